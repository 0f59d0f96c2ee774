//! What the general codec writes, the reader reads: random answers in every version.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response as wire;
use kafka_protocol::protocol::{Encodable, StrBytes};
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::super::{
    AbortedTransaction, EpochEnd, FetchAnswer, FetchedPartition, LeaderHint, NodeEndpoint, TopicRef, decode,
};
use crate::ErrorCode;

/// The codec's answer in our terms.
pub(super) fn from_codec(answer: &FetchResponse, version: i16) -> FetchAnswer {
    let mut partitions = Vec::new();
    for topic in &answer.responses {
        for partition in &topic.partitions {
            let (end, leader) = (&partition.diverging_epoch, &partition.current_leader);
            partitions.push(FetchedPartition {
                topic: if version >= 13 {
                    TopicRef::Id(topic.topic_id)
                } else {
                    TopicRef::Name(topic.topic.0.clone())
                },
                partition: partition.partition_index,
                error: ErrorCode::from(partition.error_code),
                high_watermark: partition.high_watermark,
                last_stable_offset: partition.last_stable_offset,
                log_start_offset: partition.log_start_offset,
                aborted: partition
                    .aborted_transactions
                    .iter()
                    .flatten()
                    .map(|one| AbortedTransaction {
                        producer_id: one.producer_id.0,
                        first_offset: one.first_offset,
                    })
                    .collect(),
                diverging: (end.epoch >= 0 && end.end_offset >= 0)
                    .then_some(EpochEnd { epoch: end.epoch, end_offset: end.end_offset }),
                current_leader: (leader.leader_id.0 >= 0 && leader.leader_epoch >= 0)
                    .then_some(LeaderHint { node: leader.leader_id.0, epoch: leader.leader_epoch }),
                preferred_read_replica: Some(partition.preferred_read_replica.0).filter(|&node| node >= 0),
                records: partition.records.clone().unwrap_or_default(),
            });
        }
    }
    let endpoints = answer.node_endpoints.iter().filter_map(|endpoint| {
        Some(NodeEndpoint {
            node: endpoint.node_id.0,
            host: endpoint.host.to_string(),
            port: u16::try_from(endpoint.port).ok().filter(|&port| port > 0)?,
            rack: endpoint.rack.as_ref().map(ToString::to_string),
        })
    });
    FetchAnswer {
        throttle: Duration::from_millis(u64::try_from(answer.throttle_time_ms).unwrap_or(0)),
        error: ErrorCode::from(answer.error_code),
        session_id: answer.session_id,
        partitions,
        endpoints: endpoints.collect(),
    }
}

fn partition(version: i16) -> impl Strategy<Value = wire::PartitionData> {
    let number = prop_oneof![Just(-1), any::<i64>()];
    let offsets = (number.clone(), number.clone(), number);
    let hints = (any::<[i32; 2]>(), any::<i64>(), any::<[i32; 2]>(), any::<i64>(), any::<i32>());
    let aborted = proptest::option::of(vec(any::<(i64, i64)>(), 0..4));
    let records = proptest::option::of(vec(any::<u8>(), 0..40));
    let unknown = vec((7..1_000i32, vec(any::<u8>(), 0..9)), 0..3);
    let shape = (any::<i32>(), any::<i16>(), offsets, aborted, records, hints, unknown, any::<bool>());
    shape.prop_map(
        move |(index, error, (high, stable, start), aborted, records, hints, unknown, with_hints)| {
            let mut data = wire::PartitionData::default()
                .with_partition_index(index)
                .with_error_code(error)
                .with_high_watermark(high)
                .with_last_stable_offset(stable)
                .with_records(records.map(Bytes::from))
                .with_aborted_transactions(aborted.map(|list| {
                    list.into_iter()
                        .map(|(producer, first)| {
                            wire::AbortedTransaction::default()
                                .with_producer_id(producer.into())
                                .with_first_offset(first)
                        })
                        .collect()
                }));
            if version >= 5 {
                data.log_start_offset = start;
            }
            if version >= 11 {
                data.preferred_read_replica = hints.4.into();
            }
            if version >= 12 {
                if with_hints {
                    data.diverging_epoch =
                        wire::EpochEndOffset::default().with_epoch(hints.0[0]).with_end_offset(hints.1);
                    data.current_leader = wire::LeaderIdAndEpoch::default()
                        .with_leader_id(hints.2[0].into())
                        .with_leader_epoch(hints.2[1]);
                    data.snapshot_id =
                        wire::SnapshotId::default().with_epoch(hints.0[1]).with_end_offset(hints.3);
                }
                data.unknown_tagged_fields =
                    unknown.into_iter().map(|(tag, value)| (tag, value.into())).collect();
            }
            data
        },
    )
}

fn answer(version: i16) -> impl Strategy<Value = FetchResponse> {
    let topics = vec(("[a-zé]{0,9}", any::<u128>(), vec(partition(version), 0..4)), 0..4);
    let endpoints =
        vec((any::<i32>(), "[a-z.]{0,9}", -2..70_000i32, proptest::option::of("[a-z]{0,4}")), 0..3);
    (any::<(i32, i16, i32)>(), topics, endpoints).prop_map(
        move |((throttle, error, session), topics, nodes)| {
            let mut answer = FetchResponse::default().with_throttle_time_ms(throttle).with_responses(
                topics
                    .into_iter()
                    .map(|(name, id, partitions)| {
                        let topic = wire::FetchableTopicResponse::default().with_partitions(partitions);
                        if version >= 13 {
                            topic.with_topic_id(Uuid::from_u128(id))
                        } else {
                            topic.with_topic(StrBytes::from_string(name).into())
                        }
                    })
                    .collect(),
            );
            if version >= 7 {
                answer = answer.with_error_code(error).with_session_id(session);
            }
            if version >= 16 {
                answer.node_endpoints = nodes
                    .into_iter()
                    .map(|(node, host, port, rack)| {
                        wire::NodeEndpoint::default()
                            .with_node_id(node.into())
                            .with_host(StrBytes::from_string(host))
                            .with_port(port)
                            .with_rack(rack.map(StrBytes::from_string))
                    })
                    .collect();
            }
            answer
        },
    )
}

proptest! {
    #[test]
    fn what_the_codec_writes_is_read_back(
        (version, answer) in (4..=18i16).prop_flat_map(|version| (Just(version), answer(version))),
    ) {
        let mut body = BytesMut::new();
        answer.encode(&mut body, version).unwrap();
        let body = body.freeze();
        prop_assert_eq!(decode(version, body.clone()).unwrap(), from_codec(&answer, version));
        for end in 0..body.len() {
            prop_assert!(decode(version, body.slice(..end)).is_err(), "v{} cut at {}", version, end);
        }
    }
}
