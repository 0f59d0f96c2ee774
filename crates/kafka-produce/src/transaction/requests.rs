//! From a plan to a request, and from its answer to what the core understands.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use kafka_meta::client::{CoordinatorKind, To, Via};
use kafka_meta::{Cluster, CommittedOffset, ErrorCode, GroupMetadata, Result, TopicName};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    self, AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, GroupId, ProducerId,
    TransactionalId, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::StrBytes;
use std::time::Duration;
use tokio::time::Instant;

use super::core::{Answer, Ask, Place, Plan};
use crate::producer_id::{self, Identity, Transactional};

/// The feature that decides which version of the transaction protocol the cluster runs; the versions listed by a
/// broker do not.
const FEATURE: &str = "transaction.version";

/// From 4 on for brokers alone.
const ADD_PARTITIONS: RangeInclusive<i16> = 0..=3;
const ADD_OFFSETS: RangeInclusive<i16> = 0..=4;
/// From 3 on with the group member's identity, without which nothing fences a zombie; 5 adds the group to the
/// transaction by itself.
const OFFSETS_V1: RangeInclusive<i16> = 3..=4;
const OFFSETS_V2: RangeInclusive<i16> = 5..=5;
/// From 5 on the answer has the next epoch.
const END_V1: RangeInclusive<i16> = 0..=4;
const END_V2: RangeInclusive<i16> = 5..=5;

/// What a request of this producer is sent with.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    pub cluster: &'a Cluster,
    pub via: &'a Via,
    pub id: &'a str,
    pub timeout: Duration,
}

impl Ask {
    /// Which coordinator it goes to.
    pub(super) fn coordinator<'a>(&'a self, id: &'a str) -> (CoordinatorKind, &'a str) {
        match self {
            Ask::CommitOffsets { group, .. } => (CoordinatorKind::Group, &group.group_id),
            _ => (CoordinatorKind::Transaction, id),
        }
    }
}

impl Asking<'_> {
    /// Sends the request to `node`, once.
    pub(super) async fn send(&self, node: i32, plan: &Plan, deadline: Instant) -> Result<Answer> {
        let to = To::Node(node);
        match &plan.ask {
            Ask::Init { current } => self.init(node, *current, deadline).await,
            Ask::AddPartitions(places) => self.add_partitions(to, plan, places, deadline).await,
            Ask::AddOffsets { group, .. } => {
                let request = AddOffsetsToTxnRequest::default()
                    .with_transactional_id(self.transactional_id())
                    .with_producer_id(ProducerId(plan.identity.producer_id))
                    .with_producer_epoch(plan.identity.epoch)
                    .with_group_id(GroupId(StrBytes::from_string(group.clone())));
                let answer =
                    self.cluster.call_with(to, self.via, deadline, ADD_OFFSETS, |_| Ok(request)).await?;
                Ok(Answer::Code(ErrorCode::from(answer.1.error_code)))
            }
            Ask::CommitOffsets { group, offsets, .. } => {
                self.commit_offsets(to, plan, group, offsets, deadline).await
            }
            Ask::End { commit } => self.end(to, plan, *commit, deadline).await,
        }
    }

    fn transactional_id(&self) -> TransactionalId {
        TransactionalId(StrBytes::from_string(self.id.to_owned()))
    }

    async fn init(&self, node: i32, current: Identity, deadline: Instant) -> Result<Answer> {
        let v2 = self.cluster.versions(node, self.via, deadline).await?.finalized(FEATURE) >= 2;
        let transactional = Transactional { id: self.id, timeout: self.timeout, current };
        let given =
            producer_id::init(self.cluster, To::Node(node), self.via, deadline, Some(transactional)).await?;
        Ok(match given {
            Ok(identity) => Answer::Identity { identity, v2 },
            Err(code) => Answer::Code(code),
        })
    }

    async fn add_partitions(
        &self,
        to: To,
        plan: &Plan,
        places: &[Place],
        deadline: Instant,
    ) -> Result<Answer> {
        let mut topics: BTreeMap<TopicName, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in places {
            topics.entry(*topic).or_default().push(*partition);
        }
        let topics = topics.into_iter().map(|(topic, partitions)| {
            AddPartitionsToTxnTopic::default().with_name(wire_name(topic)).with_partitions(partitions)
        });
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(self.transactional_id())
            .with_v3_and_below_producer_id(ProducerId(plan.identity.producer_id))
            .with_v3_and_below_producer_epoch(plan.identity.epoch)
            .with_v3_and_below_topics(topics.collect());
        let (_, answer) =
            self.cluster.call_with(to, self.via, deadline, ADD_PARTITIONS, |_| Ok(request)).await?;
        let names = names(places.iter().map(|(topic, _)| *topic));
        let topics = answer.results_by_topic_v3_and_below.iter();
        let known = topics.filter_map(|topic| Some((*names.get(topic.name.as_str())?, topic)));
        let codes = known.flat_map(|(name, topic)| {
            let parts = topic.results_by_partition.iter();
            parts.map(move |part| ((name, part.partition_index), ErrorCode::from(part.partition_error_code)))
        });
        Ok(Answer::Partitions(codes.collect()))
    }

    async fn commit_offsets(
        &self,
        to: To,
        plan: &Plan,
        group: &GroupMetadata,
        offsets: &[(Place, CommittedOffset)],
        deadline: Instant,
    ) -> Result<Answer> {
        let mut topics: BTreeMap<TopicName, Vec<TxnOffsetCommitRequestPartition>> = BTreeMap::new();
        for ((topic, partition), offset) in offsets {
            let metadata = offset.metadata.clone().unwrap_or_default();
            topics.entry(*topic).or_default().push(
                TxnOffsetCommitRequestPartition::default()
                    .with_partition_index(*partition)
                    .with_committed_offset(offset.offset)
                    .with_committed_leader_epoch(offset.leader_epoch.unwrap_or(-1))
                    .with_committed_metadata(Some(StrBytes::from_string(metadata))),
            );
        }
        let topics = topics.into_iter().map(|(topic, partitions)| {
            TxnOffsetCommitRequestTopic::default().with_name(wire_name(topic)).with_partitions(partitions)
        });
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_group_id(GroupId(StrBytes::from_string(group.group_id.clone())))
            .with_producer_id(ProducerId(plan.identity.producer_id))
            .with_producer_epoch(plan.identity.epoch)
            .with_generation_id(group.generation_id)
            .with_member_id(StrBytes::from_string(group.member_id.clone()))
            .with_group_instance_id(group.instance_id.clone().map(StrBytes::from_string))
            .with_topics(topics.collect());
        let versions = if plan.v2 { OFFSETS_V2 } else { OFFSETS_V1 };
        let (_, answer) = self.cluster.call_with(to, self.via, deadline, versions, |_| Ok(request)).await?;
        let names = names(offsets.iter().map(|((topic, _), _)| *topic));
        let topics = answer.topics.iter();
        let known = topics.filter_map(|topic| Some((*names.get(topic.name.as_str())?, topic)));
        let codes = known.flat_map(|(name, topic)| {
            let parts = topic.partitions.iter();
            parts.map(move |part| ((name, part.partition_index), ErrorCode::from(part.error_code)))
        });
        Ok(Answer::Partitions(codes.collect()))
    }

    async fn end(&self, to: To, plan: &Plan, commit: bool, deadline: Instant) -> Result<Answer> {
        let request = EndTxnRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_producer_id(ProducerId(plan.identity.producer_id))
            .with_producer_epoch(plan.identity.epoch)
            .with_committed(commit);
        let versions = if plan.v2 { END_V2 } else { END_V1 };
        let (_, answer) = self.cluster.call_with(to, self.via, deadline, versions, |_| Ok(request)).await?;
        let code = ErrorCode::from(answer.error_code);
        if !code.is_none() {
            return Ok(Answer::Code(code));
        }
        let next = Identity { producer_id: answer.producer_id.0, epoch: answer.producer_epoch };
        Ok(Answer::Ended(Some(next).filter(|next| plan.v2 && next.is_some())))
    }
}

fn wire_name(topic: TopicName) -> messages::TopicName {
    messages::TopicName(StrBytes::from_static_str(topic.as_str()))
}

/// The topics asked about, by name: an answer interns no others.
fn names(topics: impl Iterator<Item = TopicName>) -> HashMap<&'static str, TopicName> {
    topics.map(|topic| (topic.as_str(), topic)).collect()
}
