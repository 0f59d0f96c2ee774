//! ListOffsets v1 to v10 and OffsetForLeaderEpoch v2 to v4.

use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};

use super::api::{Api, Call, Started};
use super::fetch::check_epoch;
use super::peek;
use super::world::{Partition, World};

/// Latest, earliest, largest timestamp, earliest local, latest tiered: with the version that knows each.
const SENTINELS: [(i64, i16); 5] = [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9)];

impl Api for ListOffsetsRequest {
    fn topics(&self, _world: &World) -> Vec<String> {
        self.topics.iter().map(|topic| topic.name.to_string()).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> ListOffsetsResponse {
        let mut response = ListOffsetsResponse::default();
        for topic in &self.topics {
            let mut answer = ListOffsetsTopicResponse::default().with_name(topic.name.clone());
            for partition in &topic.partitions {
                let entry = nothing(partition.partition_index);
                answer.partitions.push(entry.with_error_code(code));
            }
            response.topics.push(answer);
        }
        response
    }

    fn start(self, world: &mut World, call: &Call) -> Started<ListOffsetsResponse> {
        let mut response = ListOffsetsResponse::default();
        let gated = world.node(call.node).is_some_and(|node| node.versions.gates_sentinels);
        for topic in &self.topics {
            let mut answer = ListOffsetsTopicResponse::default().with_name(topic.name.clone());
            for asked in &topic.partitions {
                let index = asked.partition_index;
                let found = world.partition(&topic.name, index).ok_or(3).and_then(|partition| {
                    if !partition.replicas.contains(&call.node) {
                        return Err(6);
                    }
                    check_epoch(partition, asked.current_leader_epoch)?;
                    if partition.leader != Some(call.node) {
                        return Err(6);
                    }
                    let known = SENTINELS.iter().any(|(sentinel, since)| {
                        *sentinel == asked.timestamp && (!gated || call.version >= *since)
                    });
                    if asked.timestamp < 0 && !known && gated {
                        return Err(35);
                    }
                    Ok(look_up(partition, asked.timestamp, self.isolation_level == 1, gated))
                });
                let mut entry = nothing(index);
                match found {
                    Ok((timestamp, offset, epoch)) => {
                        entry.timestamp = timestamp;
                        entry.offset = offset;
                        entry.leader_epoch = if call.version >= 4 { epoch } else { -1 };
                    }
                    Err(code) => entry.error_code = code,
                }
                answer.partitions.push(entry);
            }
            response.topics.push(answer);
        }
        Started::Done(response)
    }

    fn throttle(response: &mut ListOffsetsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn nothing(index: i32) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse::default()
        .with_partition_index(index)
        .with_timestamp(-1)
        .with_offset(-1)
        .with_leader_epoch(-1)
}

/// (timestamp, offset, leader epoch) as the answer carries them.
fn look_up(partition: &Partition, target: i64, committed: bool, gated: bool) -> (i64, i64, i32) {
    let log = &partition.log;
    let upper = if committed { partition.last_stable_offset() } else { partition.high_watermark() };
    let epoch = |offset: i64| log.epoch_at(offset);
    // Records below the bound with their timestamps, in log order.
    let records = log
        .batches()
        .iter()
        .filter(|stored| !stored.facts.is_control())
        .flat_map(|stored| peek::timestamps(&stored.bytes))
        .filter(|(offset, _)| *offset >= log.start && *offset < upper);
    let found = match target {
        -1 => return (-1, upper, log.latest_epoch()),
        -2 | -4 => return (-1, log.start, epoch(log.start)),
        // The first of the largest: `max_by_key` alone would give the last.
        -3 => records.reduce(|best, next| if next.1 > best.1 { next } else { best }),
        // A release without the gate takes what it does not know as a plain timestamp.
        -5 if gated => None,
        target => records.into_iter().find(|(_, timestamp)| *timestamp >= target),
    };
    found.map_or((-1, -1, -1), |(offset, timestamp)| (timestamp, offset, epoch(offset)))
}

impl Api for OffsetForLeaderEpochRequest {
    fn topics(&self, _world: &World) -> Vec<String> {
        self.topics.iter().map(|topic| topic.topic.to_string()).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> OffsetForLeaderEpochResponse {
        let mut response = OffsetForLeaderEpochResponse::default();
        for topic in &self.topics {
            let mut answer = OffsetForLeaderTopicResult::default().with_topic(topic.topic.clone());
            for asked in &topic.partitions {
                answer.partitions.push(unknown_end(asked.partition).with_error_code(code));
            }
            response.topics.push(answer);
        }
        response
    }

    fn start(self, world: &mut World, call: &Call) -> Started<OffsetForLeaderEpochResponse> {
        let mut response = OffsetForLeaderEpochResponse::default();
        for topic in &self.topics {
            let mut answer = OffsetForLeaderTopicResult::default().with_topic(topic.topic.clone());
            for asked in &topic.partitions {
                let found = world.partition(&topic.topic, asked.partition).ok_or(3).and_then(|partition| {
                    if !partition.replicas.contains(&call.node) {
                        return Err(6);
                    }
                    check_epoch(partition, asked.current_leader_epoch)?;
                    if partition.leader != Some(call.node) {
                        return Err(6);
                    }
                    Ok(partition.log.epoch_end(asked.leader_epoch))
                });
                answer.partitions.push(match found {
                    Ok((epoch, end)) => {
                        unknown_end(asked.partition).with_leader_epoch(epoch).with_end_offset(end)
                    }
                    Err(code) => unknown_end(asked.partition).with_error_code(code),
                });
            }
            response.topics.push(answer);
        }
        Started::Done(response)
    }

    fn throttle(response: &mut OffsetForLeaderEpochResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn unknown_end(partition: i32) -> EpochEndOffset {
    EpochEndOffset::default().with_partition(partition).with_leader_epoch(-1).with_end_offset(-1)
}
