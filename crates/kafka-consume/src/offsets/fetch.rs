//! Reading a group's stored offsets (OffsetFetch).
//!
//! Three results, never two: *stored*, *none stored* (the broker said −1) and *not known* (an error, a lost
//! answer, a partition missing from the answer, an offset held by an open transaction). Only the first two are
//! returned. Taking the third for the second starts a consumer at its reset policy although offsets exist.
//!
//! [`Wanted`] is the pure part: which partitions are still unknown, and what an answer means.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as StdInstant};

use kafka_meta::client::{To, Via};
use kafka_meta::wire::protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_meta::wire::protocol::messages::offset_fetch_response::{
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
};
use kafka_meta::wire::protocol::messages::{self, OffsetFetchRequest, OffsetFetchResponse};
use kafka_meta::wire::protocol::protocol::StrBytes;
use kafka_meta::wire::topic_name;
use kafka_meta::{Cluster, CommittedOffset, Error, ErrorCode, Result, TopicName};
use tokio::time::Instant;

use super::Identity;
use super::codes::{self, Class};
use super::core::Key;
use crate::coordinator::{Reply, with_coordinator};

pub(super) const OPERATION: &str = "committed offsets";

/// The last version the codec can write; 10 names topics by id.
const VERSIONS: std::ops::RangeInclusive<i16> = 1..=9;
/// From here on a broker can be told to hold back offsets of an open transaction.
const STABLE: i16 = 7;
/// From here on several groups, each in a structure of its own.
const GROUPS: i16 = 8;

/// How long a broker may not know a partition before that is believed; see the commit's core.
const MISSING_GRACE: Duration = Duration::from_secs(5);

pub(super) async fn committed(
    cluster: &Cluster,
    via: &Via,
    group: &str,
    wanted: Wanted,
    identity: Option<Identity>,
    deadline: Instant,
) -> Result<HashMap<Key, Option<CommittedOffset>>> {
    if wanted.open.is_empty() {
        return Ok(HashMap::new());
    }
    // Never contended: the attempts follow one another. A closure cannot lend `&mut` to its own future.
    let wanted = Mutex::new(wanted);
    let lock = || wanted.lock().unwrap_or_else(PoisonError::into_inner);
    with_coordinator(cluster, OPERATION, group, deadline, |node, attempt| {
        let open = lock().open.clone();
        let (lock, identity) = (&lock, identity.as_ref());
        async move {
            let build = |version| Ok(request(version, group, &open, identity));
            let (_, answer) = cluster.call_with(To::Node(node), via, attempt, VERSIONS, build).await?;
            lock().handle_answer(Instant::now().into_std(), group, &answer)
        }
    })
    .await
    .map_err(|error| error.with_group(group))?;
    Ok(wanted.into_inner().unwrap_or_else(PoisonError::into_inner).found)
}

/// When an OffsetFetch has told enough.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Until {
    /// Every partition is known.
    All,
    /// At least one is.
    Any,
}

/// What is asked for and what is known of it.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) open: BTreeSet<Key>,
    pub(super) found: HashMap<Key, Option<CommittedOffset>>,
    anonymous: bool,
    until: Until,
    missing_since: Option<StdInstant>,
}

impl Wanted {
    pub(super) fn new(partitions: Vec<Key>, anonymous: bool, until: Until) -> Self {
        Wanted {
            open: partitions.into_iter().collect(),
            found: HashMap::new(),
            anonymous,
            until,
            missing_since: None,
        }
    }

    /// Takes an answer in, of any version. What it tells is kept even if the rest has to be asked for again.
    ///
    /// # Errors
    ///
    /// A refusal that asking again cannot change.
    pub(super) fn handle_answer(
        &mut self,
        now: StdInstant,
        group: &str,
        answer: &OffsetFetchResponse,
    ) -> Result<Reply<()>> {
        let mut reason = None;
        let parts: Vec<Part<'_>> = if answer.groups.is_empty() {
            self.group_code(ErrorCode::from(answer.error_code), &mut reason)?;
            let topics = answer.topics.iter();
            topics
                .flat_map(|topic| topic.partitions.iter().map(|part| (&topic.name, part)))
                .map(Part::from)
                .collect()
        } else {
            let Some(answer) = answer.groups.iter().find(|answer| answer.group_id.as_str() == group) else {
                return Ok(Reply::Again(self.missing_from_answer()));
            };
            self.group_code(ErrorCode::from(answer.error_code), &mut reason)?;
            let topics = answer.topics.iter();
            topics
                .flat_map(|topic| topic.partitions.iter().map(|part| (&topic.name, part)))
                .map(Part::from)
                .collect()
        };
        // Under an error of the group what stands beside it means nothing.
        if reason.is_none() {
            let names: HashMap<&str, TopicName> =
                self.open.iter().map(|(topic, _)| (topic.as_str(), *topic)).collect();
            for part in parts {
                if let Some(topic) = names.get(part.topic) {
                    self.partition(now, (*topic, part.partition), &part, &mut reason)?;
                }
            }
        }
        if self.open.is_empty() || self.until == Until::Any && !self.found.is_empty() {
            return Ok(Reply::Done(()));
        }
        match reason {
            Some((Class::Rediscover, error)) => Ok(Reply::Rediscover(error)),
            Some((_, error)) => Ok(Reply::Again(error)),
            None => Ok(Reply::Again(self.missing_from_answer())),
        }
    }

    fn group_code(&self, code: ErrorCode, reason: &mut Option<(Class, Error)>) -> Result<()> {
        let error = codes::error(code, OPERATION, self.anonymous);
        match codes::fetch_class(code) {
            Class::Done => Ok(()),
            Class::Refused | Class::RefusedAll | Class::Missing | Class::Stale => Err(error),
            class => {
                *reason = Some((class, error));
                Ok(())
            }
        }
    }

    fn partition(
        &mut self,
        now: StdInstant,
        key: Key,
        part: &Part<'_>,
        reason: &mut Option<(Class, Error)>,
    ) -> Result<()> {
        if !self.open.contains(&key) {
            return Ok(());
        }
        let error = codes::error(part.code, OPERATION, self.anonymous).with_partition(key.0, key.1);
        match codes::fetch_class(part.code) {
            Class::Done => {
                self.open.remove(&key);
                self.found.insert(key, part.stored());
            }
            Class::Missing => {
                let since = *self.missing_since.get_or_insert(now);
                if now.saturating_duration_since(since) >= MISSING_GRACE {
                    return Err(error);
                }
                reason.get_or_insert((Class::Again, error));
            }
            Class::Refused | Class::RefusedAll | Class::Stale => return Err(error),
            Class::Rediscover => *reason = Some((Class::Rediscover, error)),
            Class::Again => {
                reason.get_or_insert((Class::Again, error));
            }
        }
        Ok(())
    }

    fn missing_from_answer(&self) -> Error {
        let error = Error::broker(ErrorCode::UNKNOWN_SERVER_ERROR, OPERATION);
        match self.open.first() {
            Some((topic, partition)) => error.with_partition(*topic, *partition),
            None => error,
        }
        .with_detail("the partition is missing from the broker's answer")
    }
}

/// One partition of an answer, of either of the two shapes it has had.
struct Part<'a> {
    topic: &'a str,
    partition: i32,
    code: ErrorCode,
    offset: i64,
    epoch: i32,
    metadata: Option<&'a StrBytes>,
}

impl Part<'_> {
    /// −1 means that nothing is stored. Kafka does not tell null from empty metadata.
    fn stored(&self) -> Option<CommittedOffset> {
        if self.offset < 0 {
            return None;
        }
        let stored = CommittedOffset::new(self.offset).with_leader_epoch(self.epoch);
        Some(match self.metadata {
            Some(text) if !text.is_empty() => stored.with_metadata(text.as_str()),
            _ => stored,
        })
    }
}

impl<'a> From<(&'a messages::TopicName, &'a OffsetFetchResponsePartition)> for Part<'a> {
    fn from((topic, part): (&'a messages::TopicName, &'a OffsetFetchResponsePartition)) -> Self {
        Part {
            topic: topic.as_str(),
            partition: part.partition_index,
            code: ErrorCode::from(part.error_code),
            offset: part.committed_offset,
            epoch: part.committed_leader_epoch,
            metadata: part.metadata.as_ref(),
        }
    }
}

impl<'a> From<(&'a messages::TopicName, &'a OffsetFetchResponsePartitions)> for Part<'a> {
    fn from((topic, part): (&'a messages::TopicName, &'a OffsetFetchResponsePartitions)) -> Self {
        Part {
            topic: topic.as_str(),
            partition: part.partition_index,
            code: ErrorCode::from(part.error_code),
            offset: part.committed_offset,
            epoch: part.committed_leader_epoch,
            metadata: part.metadata.as_ref(),
        }
    }
}

fn request(
    version: i16,
    group: &str,
    open: &BTreeSet<Key>,
    identity: Option<&Identity>,
) -> OffsetFetchRequest {
    let mut topics: BTreeMap<TopicName, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in open {
        topics.entry(*topic).or_default().push(*partition);
    }
    let group = messages::GroupId(StrBytes::from_string(group.to_owned()));
    let request = OffsetFetchRequest::default().with_require_stable(version >= STABLE);
    if version < GROUPS {
        let topics = topics.into_iter().map(|(topic, partitions)| {
            OffsetFetchRequestTopic::default().with_name(topic_name(topic)).with_partition_indexes(partitions)
        });
        return request.with_group_id(group).with_topics(Some(topics.collect()));
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        OffsetFetchRequestTopics::default().with_name(topic_name(topic)).with_partition_indexes(partitions)
    });
    let mut asked =
        OffsetFetchRequestGroup::default().with_group_id(group).with_topics(Some(topics.collect()));
    // No identity is a *null* member id: an empty one is refused with 25 while the group has members.
    if let Some(identity) = identity {
        asked = asked
            .with_member_id(Some(StrBytes::from_string(identity.member_id.clone())))
            .with_member_epoch(identity.generation);
    }
    request.with_groups(vec![asked])
}
