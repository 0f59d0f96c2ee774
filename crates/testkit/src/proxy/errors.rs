//! ERR: an error code put into an answer, with what a broker leaves out beside one.
//!
//! What it is not: complete. APIs that no client of the workspace sends are left alone, and a rule on one
//! never strikes.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, ApiKey, ApiVersionsRequest,
    ConsumerGroupHeartbeatRequest, EndTxnRequest, FetchRequest, FetchResponse, FindCoordinatorRequest,
    HeartbeatRequest, InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest, ListOffsetsRequest,
    MetadataRequest, OffsetCommitRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest, ProduceRequest,
    SaslAuthenticateRequest, SaslHandshakeRequest, SyncGroupRequest, TopicName, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::{Decodable, Request, StrBytes};
use uuid::Uuid;

use super::edit::{Context, Edit, encode};
use super::log::TopicRef;

/// Where the code goes.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    Everywhere,
    Topic(String),
    Partition(String, i32),
}

impl Scope {
    fn covers(&self, context: &Context<'_>, topic: &str, id: Uuid, partition: i32) -> bool {
        let named = |name: &String| context.topics.name(topic, id).as_ref() == Some(name);
        match self {
            Self::Everywhere => true,
            Self::Topic(name) => named(name),
            Self::Partition(name, index) => *index == partition && named(name),
        }
    }

    fn is_everywhere(&self) -> bool {
        matches!(self, Self::Everywhere)
    }
}

/// The edit that puts `code` into answers.
pub(super) fn edit(scope: Scope, code: i16) -> Edit {
    Arc::new(move |context, version, body| apply(&scope, code, context, version, body))
}

fn change<R: Request>(
    version: i16,
    body: &Bytes,
    act: impl FnOnce(&mut R::Response) -> bool,
) -> Option<Bytes> {
    let mut answer = R::Response::decode(&mut body.clone(), version).ok()?;
    if act(&mut answer) { encode(&answer, version) } else { None }
}

/// For answers with one code at their top and nothing else that matters beside an error.
macro_rules! top {
    ($request:ty, $scope:expr, $code:expr, $version:expr, $body:expr) => {
        change::<$request>($version, $body, |answer| {
            answer.error_code = $code;
            $scope.is_everywhere()
        })
    };
}

/// For answers that are lists of topics with lists of partitions.
macro_rules! partitions {
    ($request:ty, $topics:ident, $partitions:ident, $index:ident, $code_field:ident, $id:expr,
     $scope:expr, $code:expr, $context:expr, $version:expr, $body:expr, $more:expr) => {
        change::<$request>($version, $body, |answer| {
            let mut changed = false;
            for topic in &mut answer.$topics {
                let id: Uuid = $id(&*topic);
                for partition in &mut topic.$partitions {
                    if $scope.covers($context, &topic.name, id, partition.$index) {
                        partition.$code_field = $code;
                        $more(partition);
                        changed = true;
                    }
                }
            }
            changed
        })
    };
}

fn apply(scope: &Scope, code: i16, context: &Context<'_>, version: i16, body: &Bytes) -> Option<Bytes> {
    match ApiKey::try_from(context.request.api).ok()? {
        ApiKey::Fetch => {
            change::<FetchRequest>(version, body, |answer| fetch(scope, code, context, version, answer))
        }
        ApiKey::Produce => change::<ProduceRequest>(version, body, |answer| {
            let mut changed = false;
            for topic in &mut answer.responses {
                for partition in &mut topic.partition_responses {
                    if scope.covers(context, &topic.name, topic.topic_id, partition.index) {
                        partition.error_code = code;
                        partition.base_offset = -1;
                        changed = true;
                    }
                }
            }
            changed
        }),
        ApiKey::ListOffsets => partitions!(
            ListOffsetsRequest, topics, partitions, partition_index, error_code, |_| Uuid::nil(),
            scope, code, context, version, body,
            |partition: &mut kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse| {
                partition.timestamp = -1;
                partition.offset = -1;
                partition.leader_epoch = -1;
            }
        ),
        ApiKey::OffsetForLeaderEpoch => change::<OffsetForLeaderEpochRequest>(version, body, |answer| {
            let mut changed = false;
            for topic in &mut answer.topics {
                for partition in &mut topic.partitions {
                    if scope.covers(context, &topic.topic, Uuid::nil(), partition.partition) {
                        partition.error_code = code;
                        partition.leader_epoch = -1;
                        partition.end_offset = -1;
                        changed = true;
                    }
                }
            }
            changed
        }),
        ApiKey::OffsetCommit => partitions!(
            OffsetCommitRequest,
            topics,
            partitions,
            partition_index,
            error_code,
            |topic: &kafka_protocol::messages::offset_commit_response::OffsetCommitResponseTopic| topic
                .topic_id,
            scope,
            code,
            context,
            version,
            body,
            |_| ()
        ),
        ApiKey::TxnOffsetCommit => partitions!(
            TxnOffsetCommitRequest,
            topics,
            partitions,
            partition_index,
            error_code,
            |_| Uuid::nil(),
            scope,
            code,
            context,
            version,
            body,
            |_| ()
        ),
        ApiKey::OffsetFetch => change::<OffsetFetchRequest>(version, body, |answer| {
            offset_fetch(scope, code, context, version, answer)
        }),
        ApiKey::Metadata => change::<MetadataRequest>(version, body, |answer| {
            let mut changed = false;
            for topic in &mut answer.topics {
                let name = topic.name.as_ref().map(|name| name.0.to_string()).unwrap_or_default();
                if let Scope::Partition(..) = scope {
                    for partition in &mut topic.partitions {
                        if scope.covers(context, &name, Uuid::nil(), partition.partition_index) {
                            partition.error_code = code;
                            partition.leader_id = (-1).into();
                            changed = true;
                        }
                    }
                } else if scope.covers(context, &name, Uuid::nil(), -1) {
                    topic.error_code = code;
                    topic.partitions.clear();
                    changed = true;
                }
            }
            changed
        }),
        ApiKey::FindCoordinator => change::<FindCoordinatorRequest>(version, body, |answer| {
            if version < 4 {
                answer.error_code = code;
                answer.node_id = (-1).into();
                answer.host = StrBytes::default();
                answer.port = -1;
            }
            for found in &mut answer.coordinators {
                found.error_code = code;
                found.node_id = (-1).into();
                found.host = StrBytes::default();
                found.port = -1;
            }
            scope.is_everywhere()
        }),
        ApiKey::JoinGroup => change::<JoinGroupRequest>(version, body, |answer| {
            answer.error_code = code;
            answer.generation_id = -1;
            answer.members.clear();
            scope.is_everywhere()
        }),
        ApiKey::SyncGroup => change::<SyncGroupRequest>(version, body, |answer| {
            answer.error_code = code;
            answer.assignment = Bytes::new();
            scope.is_everywhere()
        }),
        ApiKey::ConsumerGroupHeartbeat => change::<ConsumerGroupHeartbeatRequest>(version, body, |answer| {
            answer.error_code = code;
            answer.member_id = None;
            answer.member_epoch = 0;
            answer.heartbeat_interval_ms = 0;
            answer.assignment = None;
            scope.is_everywhere()
        }),
        ApiKey::InitProducerId => change::<InitProducerIdRequest>(version, body, |answer| {
            answer.error_code = code;
            answer.producer_id = (-1).into();
            answer.producer_epoch = -1;
            scope.is_everywhere()
        }),
        ApiKey::AddPartitionsToTxn => change::<AddPartitionsToTxnRequest>(version, body, |answer| {
            let mut changed = false;
            for topic in &mut answer.results_by_topic_v3_and_below {
                for partition in &mut topic.results_by_partition {
                    if scope.covers(context, &topic.name, Uuid::nil(), partition.partition_index) {
                        partition.partition_error_code = code;
                        changed = true;
                    }
                }
            }
            changed
        }),
        ApiKey::Heartbeat => top!(HeartbeatRequest, scope, code, version, body),
        ApiKey::LeaveGroup => top!(LeaveGroupRequest, scope, code, version, body),
        ApiKey::ApiVersions => top!(ApiVersionsRequest, scope, code, version, body),
        ApiKey::SaslHandshake => top!(SaslHandshakeRequest, scope, code, version, body),
        ApiKey::SaslAuthenticate => top!(SaslAuthenticateRequest, scope, code, version, body),
        ApiKey::AddOffsetsToTxn => top!(AddOffsetsToTxnRequest, scope, code, version, body),
        ApiKey::EndTxn => top!(EndTxnRequest, scope, code, version, body),
        _ => None,
    }
}

fn offset_fetch(
    scope: &Scope,
    code: i16,
    context: &Context<'_>,
    version: i16,
    answer: &mut kafka_protocol::messages::OffsetFetchResponse,
) -> bool {
    if scope.is_everywhere() {
        if version < 8 {
            answer.error_code = code;
            answer.topics.clear();
        }
        for group in &mut answer.groups {
            group.error_code = code;
            group.topics.clear();
        }
        return true;
    }
    let mut changed = false;
    for topic in &mut answer.topics {
        for partition in &mut topic.partitions {
            if scope.covers(context, &topic.name, Uuid::nil(), partition.partition_index) {
                partition.error_code = code;
                partition.committed_offset = -1;
                partition.committed_leader_epoch = -1;
                changed = true;
            }
        }
    }
    for topic in answer.groups.iter_mut().flat_map(|group| &mut group.topics) {
        for partition in &mut topic.partitions {
            if scope.covers(context, &topic.name, topic.topic_id, partition.partition_index) {
                partition.error_code = code;
                partition.committed_offset = -1;
                partition.committed_leader_epoch = -1;
                changed = true;
            }
        }
    }
    changed
}

fn fetch(scope: &Scope, code: i16, context: &Context<'_>, version: i16, answer: &mut FetchResponse) -> bool {
    if scope.is_everywhere() && version >= 7 {
        answer.error_code = code;
        answer.session_id = 0;
        answer.responses.clear();
        return true;
    }
    let mut changed = false;
    for topic in &mut answer.responses {
        for partition in &mut topic.partitions {
            if scope.covers(context, &topic.topic, topic.topic_id, partition.partition_index) {
                *partition = refused(partition.partition_index, code);
                changed = true;
            }
        }
    }
    if !changed && answer.error_code == 0 {
        changed = insert(scope, code, context.session, context, answer);
    }
    changed
}

/// What a broker says of a partition it refuses.
fn refused(index: i32, code: i16) -> PartitionData {
    PartitionData::default()
        .with_partition_index(index)
        .with_error_code(code)
        .with_high_watermark(-1)
        .with_last_stable_offset(-1)
        .with_log_start_offset(-1)
        .with_aborted_transactions(None)
        .with_preferred_read_replica((-1).into())
        .with_records(Some(Bytes::new()))
}

/// An incremental answer leaves out partitions without news; an error is news.
fn insert(
    scope: &Scope,
    code: i16,
    session: &BTreeSet<(TopicRef, i32)>,
    context: &Context<'_>,
    answer: &mut FetchResponse,
) -> bool {
    let mut inserted = false;
    for (topic, index) in session {
        let (name, id) = match topic {
            TopicRef::Name(name) => (name.as_str(), Uuid::nil()),
            TopicRef::Id(id) => ("", *id),
        };
        if scope.covers(context, name, id, *index) {
            let topic = FetchableTopicResponse::default()
                .with_topic(TopicName(StrBytes::from_string(name.to_owned())))
                .with_topic_id(id)
                .with_partitions(vec![refused(*index, code)]);
            answer.responses.push(topic);
            inserted = true;
        }
    }
    inserted
}
