//! What the leader of a classic group does: read what the members want, spread the partitions, and watch whether
//! they change. Knows nothing of requests or time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kafka_meta::client::{Snapshot, Topic};
use kafka_meta::{ErrorCode, Result, TopicName};
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use tracing::warn;

use crate::assign::{self, Assignment, Assignor, AssignorState, Member, TopicPartitions, Topics};

use super::{legal, text};

/// A group waiting for its leader's decision.
#[derive(Debug)]
pub(super) struct Lead {
    members: Vec<Member>,
    assignor: Assignor,
    /// All topics anybody subscribes to.
    pub topics: BTreeSet<TopicName>,
    /// When to decide with what is known.
    pub deadline: Instant,
}

impl Lead {
    pub(super) fn new(answer: &[JoinGroupResponseMember], assignor: Assignor, deadline: Instant) -> Self {
        let mut members = Vec::with_capacity(answer.len());
        let mut topics = BTreeSet::new();
        for member in answer {
            // One member that cannot be understood must not stop the others: it gets nothing.
            let subscription = assign::Subscription::decode(&member.metadata).unwrap_or_else(|error| {
                warn!(member = %member.member_id, %error, "a member's subscription cannot be read");
                assign::Subscription::default()
            });
            topics.extend(subscription.topics.iter().filter_map(|topic| legal(topic)));
            members.push(Member {
                id: member.member_id.to_string(),
                instance_id: member.group_instance_id.as_ref().map(ToString::to_string),
                subscription,
            });
        }
        Lead { members, assignor, topics, deadline }
    }

    /// The topics a member subscribes to, as the group knows it.
    pub(super) fn wants(&self, id: &str) -> Option<BTreeSet<TopicName>> {
        let member = self.members.iter().find(|member| member.id == id)?;
        Some(member.subscription.topics.iter().filter_map(|topic| legal(topic)).collect())
    }

    pub(super) fn is_known(&self, picture: &Snapshot) -> bool {
        self.topics.iter().all(|topic| match picture.topic(*topic) {
            Some(topic) => is_settled(topic),
            None => picture.all_topics,
        })
    }

    pub(super) fn assign(
        &self,
        picture: &Snapshot,
        state: &mut AssignorState,
    ) -> Result<Vec<SyncGroupRequestAssignment>> {
        let topics: Topics = self
            .topics
            .iter()
            .filter_map(|topic| picture.topic(*topic))
            .map(|topic| (topic.name.as_str().to_owned(), shape(topic, picture, true)))
            .collect();
        let assigned = assign::assign(self.assignor, &self.members, &topics, state);
        assigned
            .members
            .into_iter()
            .map(|(id, partitions)| {
                let assignment = Assignment { partitions, user_data: None }.encode()?;
                Ok(SyncGroupRequestAssignment::default()
                    .with_member_id(text(&id))
                    .with_assignment(assignment))
            })
            .collect()
    }
}

/// Whether what is known about a topic is an answer, and not a moment of its creation or of a leader's election.
fn is_settled(topic: &Topic) -> bool {
    !topic.partitions.is_empty()
        || !topic.error.is_retriable()
        || topic.error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
}

fn shape(topic: &Topic, picture: &Snapshot, racks: bool) -> TopicPartitions {
    let any_rack = racks && picture.brokers.values().any(|broker| broker.rack.is_some());
    let of_replica = |node: &i32| picture.brokers.get(node).and_then(|broker| broker.rack.clone());
    TopicPartitions {
        count: i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX),
        racks: if any_rack {
            let partitions = topic.partitions.iter();
            partitions.map(|partition| partition.replicas.iter().filter_map(of_replica).collect()).collect()
        } else {
            Vec::new()
        },
    }
}

/// The partitions the last assignment was made for.
#[derive(Debug, Default)]
pub(super) struct Watched {
    shapes: BTreeMap<TopicName, TopicPartitions>,
    /// Whether racks count: only for a leader that has one itself.
    racks: bool,
}

impl Watched {
    pub(super) fn set(
        &mut self,
        topics: impl IntoIterator<Item = TopicName>,
        picture: &Snapshot,
        racks: bool,
    ) {
        let seen = |topic| Self::seen(topic, picture, racks).unwrap_or_default();
        self.shapes = topics.into_iter().map(|topic| (topic, seen(topic))).collect();
        self.racks = racks;
    }

    pub(super) fn clear(&mut self) {
        self.shapes.clear();
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = TopicName> {
        self.shapes.keys().copied()
    }

    /// Whether what the picture knows for sure differs.
    pub(super) fn changed(&self, picture: &Snapshot) -> bool {
        self.shapes
            .iter()
            .any(|(topic, old)| Self::seen(*topic, picture, self.racks).is_some_and(|new| new != *old))
    }

    /// The set of racks of each partition counts, not the order of replicas.
    pub(super) fn seen(topic: TopicName, picture: &Snapshot, racks: bool) -> Option<TopicPartitions> {
        let Some(topic) = picture.topic(topic) else {
            return picture.all_topics.then(TopicPartitions::default);
        };
        let mut shape = is_settled(topic).then(|| shape(topic, picture, racks))?;
        for racks in &mut shape.racks {
            racks.sort_unstable();
            racks.dedup();
        }
        Some(shape)
    }
}
