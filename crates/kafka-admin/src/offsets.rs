//! The offsets a group has stored: reading, setting and deleting them from outside the group.

use kafka_meta::wire::protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_meta::wire::protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_meta::wire::protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_meta::wire::protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions,
};
use kafka_meta::wire::protocol::messages::{OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest};
use kafka_meta::wire::topic_name;
use kafka_meta::{CommittedOffset, Error, ErrorCode, ErrorKind, Result, TopicName};

use crate::admin::{Admin, Call, interned, keyed};
use crate::plan::{Answer, Failure, Plan, Refusal, Route, Subject};
use crate::records::places;
use crate::run::Batch;
use crate::wire::{by_topic, check, group as wire_group, text};

/// Groups in structures of their own, from here to the last version the codec can write (10 names topics by id).
const FETCH_VERSIONS: std::ops::RangeInclusive<i16> = 8..=9;
/// From the version that fences static members to the last one the codec can write (10 names topics by id).
const COMMIT_VERSIONS: std::ops::RangeInclusive<i16> = 7..=9;

const LIST: &str = "list group offsets";
const ALTER: &str = "alter group offsets";
const DELETE: &str = "delete group offsets";

impl Admin {
    /// Every offset the group has stored, by topic and partition (Java: `listConsumerGroupOffsets`; KIP-88). A
    /// group that is not there has none; that is no error.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// As a whole: `Authorization` on the group, `InvalidRequest` for an empty group id, `Timeout`. Per
    /// partition: a broker's error about it. Topics that this principal may not see are left out by the broker.
    pub async fn list_group_offsets(
        &self,
        group: &str,
    ) -> Result<Vec<((String, i32), Result<CommittedOffset>)>> {
        check_group(LIST, group)?;
        let call = self.call();
        let plan =
            Plan::reading(LIST, vec![(Subject::Group(group.to_owned()), Route::Group(group.to_owned()))]);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move { Ok(vec![(0, fetch(call, &batch, group, None).await?)]) }
        });
        let mut found = Vec::new();
        for result in results.await? {
            for topic in result?.topics {
                for part in topic.partitions {
                    let key = (topic.name.to_string(), part.partition_index);
                    let result = match check(part.error_code, None) {
                        Ok(()) => stored(&part).map(Ok),
                        Err(refusal) => Some(Err(Error::broker(refusal.code, LIST)
                            .with_partition(key.0.as_str(), key.1)
                            .with_group(group))),
                    };
                    found.extend(result.map(|result| (key, result)));
                }
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(found)
    }

    /// The offsets the group has stored for these partitions; `None` where it has stored none (Java:
    /// `listConsumerGroupOffsets` with a `ListConsumerGroupOffsetsSpec`). An offset that an open transaction is
    /// about to replace is answered as it was before.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Per partition: `Authorization` on topic or group, `InvalidRequest` for a partition named twice, `Timeout`.
    /// As a whole: `InvalidRequest` for an empty group id.
    pub async fn list_group_offsets_of(
        &self,
        group: &str,
        partitions: impl IntoIterator<Item = (impl Into<String>, i32)>,
    ) -> Result<Vec<((String, i32), Result<Option<CommittedOffset>>)>> {
        check_group(LIST, group)?;
        let partitions: Vec<_> =
            partitions.into_iter().map(|(topic, partition)| (topic.into(), partition)).collect();
        let names = interned(&partitions);
        let plan = Plan::reading(LIST, coordinated(group, &names));
        let (call, names) = (self.call(), &names);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let wanted = batch.items.iter().filter_map(|index| names.get(*index).copied());
                let found = match fetch(call, &batch, group, Some(by_topic(wanted))).await? {
                    Ok(found) => found,
                    Err(refusal) => return Ok(every(&batch, &refusal)),
                };
                let places = places(&batch.items, names);
                let mut answers = Vec::new();
                for topic in &found.topics {
                    for part in &topic.partitions {
                        if let Some(index) = places.get(&(topic.name.as_str(), part.partition_index)) {
                            answers.push((*index, check(part.error_code, None).map(|()| stored(part))));
                        }
                    }
                }
                Ok(answers)
            }
        });
        let results = results.await?;
        Ok(keyed(partitions, results))
    }

    /// Stores offsets in the group's name (Java: `alterConsumerGroupOffsets`; KIP-396), as to start its members
    /// elsewhere. The group must have no members; it is made if it is not there.
    ///
    /// Dropping the future leaves it open whether the offsets are stored.
    ///
    /// # Errors
    ///
    /// Per partition: `Broker(UNKNOWN_MEMBER_ID)` while the group has members, `UnknownTopic`,
    /// `Broker(OFFSET_METADATA_TOO_LARGE)`, `Authorization`, `InvalidRequest` for a negative offset (brokers would
    /// store it) or a partition named twice, `Timeout`. As a whole: `InvalidRequest` for an empty group id.
    pub async fn alter_group_offsets(
        &self,
        group: &str,
        offsets: impl IntoIterator<Item = ((impl Into<String>, i32), CommittedOffset)>,
    ) -> Result<Vec<((String, i32), Result<()>)>> {
        check_group(ALTER, group)?;
        let offsets = offsets.into_iter().map(|((topic, partition), to)| ((topic.into(), partition), to));
        let (partitions, offsets): (Vec<_>, Vec<_>) = offsets.unzip();
        let names = interned(&partitions);
        let mut plan = Plan::changing(ALTER, coordinated(group, &names));
        for (index, offset) in offsets.iter().enumerate() {
            if offset.offset < 0 {
                plan.refuse(index, "the offset is negative");
            }
        }
        let (call, names, offsets) = (self.call(), &names, &offsets);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let wanted = batch.items.iter().filter_map(|index| {
                    let ((topic, partition), offset) = (names.get(*index)?, offsets.get(*index)?);
                    let wanted = OffsetCommitRequestPartition::default()
                        .with_partition_index(*partition)
                        .with_committed_offset(offset.offset)
                        .with_committed_leader_epoch(offset.leader_epoch.unwrap_or(-1))
                        .with_committed_metadata(Some(text(offset.metadata.as_deref().unwrap_or_default())));
                    Some((*topic, wanted))
                });
                let topics = by_topic(wanted).into_iter().map(|(name, partitions)| {
                    OffsetCommitRequestTopic::default()
                        .with_name(topic_name(name))
                        .with_partitions(partitions)
                });
                let request = OffsetCommitRequest::default()
                    .with_group_id(wire_group(group))
                    .with_generation_id_or_member_epoch(-1)
                    .with_topics(topics.collect());
                let (_, answer) =
                    call.send_within(batch.to, batch.deadline, COMMIT_VERSIONS, request).await?;
                let parts = answer.topics.iter().flat_map(|topic| {
                    topic
                        .partitions
                        .iter()
                        .map(|part| (topic.name.as_str(), part.partition_index, part.error_code))
                });
                let places = places(&batch.items, names);
                let answers = parts.filter_map(|(topic, partition, code)| {
                    Some((*places.get(&(topic, partition))?, check(code, None).map_err(explained)))
                });
                Ok(answers.collect())
            }
        });
        let results = results.await?;
        Ok(keyed(partitions, results))
    }

    /// Deletes offsets the group has stored (Java: `deleteConsumerGroupOffsets`; KIP-496). Of a group with members
    /// only offsets of topics that no member subscribes to can be deleted. A partition without a stored offset is
    /// no error.
    ///
    /// Dropping the future leaves it open whether the offsets are deleted.
    ///
    /// # Errors
    ///
    /// Per partition: `Broker(GROUP_SUBSCRIBED_TO_TOPIC)`, `UnknownTopic`, `Broker(GROUP_ID_NOT_FOUND)`,
    /// `Broker(NON_EMPTY_GROUP)` for a group whose members are not consumers, `Authorization`, `InvalidRequest`
    /// for a partition named twice, `Timeout`. As a whole: `InvalidRequest` for an empty group id.
    pub async fn delete_group_offsets(
        &self,
        group: &str,
        partitions: impl IntoIterator<Item = (impl Into<String>, i32)>,
    ) -> Result<Vec<((String, i32), Result<()>)>> {
        check_group(DELETE, group)?;
        let partitions: Vec<_> =
            partitions.into_iter().map(|(topic, partition)| (topic.into(), partition)).collect();
        let names = interned(&partitions);
        let plan = Plan::changing(DELETE, coordinated(group, &names));
        let (call, names) = (self.call(), &names);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let wanted =
                    batch.items.iter().filter_map(|index| names.get(*index)).map(|(topic, partition)| {
                        (*topic, OffsetDeleteRequestPartition::default().with_partition_index(*partition))
                    });
                let topics = by_topic(wanted).into_iter().map(|(name, partitions)| {
                    OffsetDeleteRequestTopic::default()
                        .with_name(topic_name(name))
                        .with_partitions(partitions)
                });
                let request = OffsetDeleteRequest::default()
                    .with_group_id(wire_group(group))
                    .with_topics(topics.collect());
                let (_, answer) = call.send(batch.to, batch.deadline, 0, request).await?;
                if let Err(refusal) = check(answer.error_code, None) {
                    return Ok(every(&batch, &refusal));
                }
                let parts = answer.topics.iter().flat_map(|topic| {
                    topic
                        .partitions
                        .iter()
                        .map(|part| (topic.name.as_str(), part.partition_index, part.error_code))
                });
                let places = places(&batch.items, names);
                let answers = parts.filter_map(|(topic, partition, code)| {
                    Some((*places.get(&(topic, partition))?, check(code, None)))
                });
                Ok(answers.collect())
            }
        });
        let results = results.await?;
        Ok(keyed(partitions, results))
    }
}

fn check_group(operation: &'static str, group: &str) -> Result<()> {
    match group.is_empty() {
        // A broker would take it, and store offsets under no name.
        true => Err(Error::new(ErrorKind::InvalidRequest, operation).with_detail("the group id is empty")),
        false => Ok(()),
    }
}

fn coordinated(group: &str, partitions: &[(TopicName, i32)]) -> Vec<(Subject, Route)> {
    let one = |(topic, index): &(TopicName, i32)| {
        (Subject::Partition(*topic, *index), Route::Group(group.to_owned()))
    };
    partitions.iter().map(one).collect()
}

/// The same refusal for every item of a request.
fn every<T>(batch: &Batch, refusal: &Refusal) -> Vec<(usize, Answer<T>)> {
    batch.items.iter().map(|index| (*index, Err(refusal.clone()))).collect()
}

/// The code says that nobody of that id is a member; what it means here is that others are.
fn explained(refusal: Refusal) -> Refusal {
    match refusal.code {
        ErrorCode::UNKNOWN_MEMBER_ID => {
            Refusal::new(refusal.code, Some("the group has members; only its members may commit".to_owned()))
        }
        _ => refusal,
    }
}

/// Asks as nobody's member, which is a *null* member id: an empty one is refused while the group has members.
async fn fetch(
    call: &Call<'_>,
    batch: &Batch,
    group: &str,
    wanted: Option<Vec<(TopicName, Vec<i32>)>>,
) -> std::result::Result<Answer<OffsetFetchResponseGroup>, Failure> {
    let topics = wanted.map(|topics| {
        let topics = topics.into_iter().map(|(name, partitions)| {
            OffsetFetchRequestTopics::default().with_name(topic_name(name)).with_partition_indexes(partitions)
        });
        topics.collect()
    });
    let asked = OffsetFetchRequestGroup::default().with_group_id(wire_group(group)).with_topics(topics);
    let request = OffsetFetchRequest::default().with_groups(vec![asked]);
    let (_, answer) = call.send_within(batch.to, batch.deadline, FETCH_VERSIONS, request).await?;
    let found = answer.groups.into_iter().find(|found| found.group_id.as_str() == group);
    Ok(match found {
        Some(found) => check(found.error_code, None).map(|()| found),
        None => Err(Refusal::new(
            ErrorCode::UNKNOWN_SERVER_ERROR,
            Some("the group is missing from the broker's answer".to_owned()),
        )),
    })
}

/// -1 means that nothing is stored. Kafka does not tell null from empty metadata.
fn stored(part: &OffsetFetchResponsePartitions) -> Option<CommittedOffset> {
    if part.committed_offset < 0 {
        return None;
    }
    let stored = CommittedOffset::new(part.committed_offset).with_leader_epoch(part.committed_leader_epoch);
    Some(match &part.metadata {
        Some(metadata) if !metadata.is_empty() => stored.with_metadata(metadata.as_str()),
        _ => stored,
    })
}
