//! CreateTopics, DeleteTopics and DeleteRecords: as much as tests need of them over the wire.

use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::api::{Api, Call, Started};
use super::world::World;

impl Api for CreateTopicsRequest {
    fn topics(&self, _world: &World) -> Vec<String> {
        self.topics.iter().map(|topic| topic.name.to_string()).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> CreateTopicsResponse {
        let mut response = CreateTopicsResponse::default();
        for topic in &self.topics {
            response
                .topics
                .push(CreatableTopicResult::default().with_name(topic.name.clone()).with_error_code(code));
        }
        response
    }

    fn start(self, world: &mut World, call: &Call) -> Started<CreateTopicsResponse> {
        let mut response = self.refuse(call, 0);
        let nodes = world.nodes.len();
        for (asked, answer) in self.topics.iter().zip(&mut response.topics) {
            let assigned: Vec<Vec<i32>> = asked
                .assignments
                .iter()
                .map(|entry| entry.broker_ids.iter().map(|id| id.0).collect())
                .collect();
            let partitions = match i32::try_from(assigned.len()) {
                Ok(count) if count > 0 => count,
                _ if asked.num_partitions < 0 => 1,
                _ => asked.num_partitions,
            };
            let factor = usize::try_from(asked.replication_factor).unwrap_or(1);
            if partitions == 0 {
                answer.error_code = 37;
                continue;
            }
            if factor > nodes || (factor == 0 && assigned.is_empty()) {
                answer.error_code = 38;
                continue;
            }
            if world.topics.contains_key(asked.name.as_str()) {
                answer.error_code = 36;
                let text = format!("Topic '{}' already exists.", asked.name.as_str());
                answer.error_message = Some(StrBytes::from_string(text));
                continue;
            }
            if self.validate_only {
                continue;
            }
            let placed: Vec<Vec<i32>> = (0..partitions)
                .map(|index| {
                    let at = usize::try_from(index).unwrap_or(usize::MAX);
                    assigned.get(at).cloned().unwrap_or_else(|| world.placement(index, factor))
                })
                .collect();
            world.create_topic(&asked.name, partitions, |index| {
                usize::try_from(index).ok().and_then(|index| placed.get(index).cloned()).unwrap_or_default()
            });
            let stamped = asked.configs.iter().any(|config| {
                config.name.as_str() == "message.timestamp.type"
                    && config.value.as_deref().is_some_and(|value| value == "LogAppendTime")
            });
            world.set_stamps(&asked.name, stamped);
            if let Some(topic) = world.topics.get(asked.name.as_str()).filter(|_| call.version >= 7) {
                answer.topic_id = topic.id;
            }
            if call.version >= 5 {
                answer.num_partitions = partitions;
                answer.replication_factor = asked.replication_factor;
                answer.configs = Some(Vec::new());
            }
        }
        Started::Done(response)
    }

    fn throttle(response: &mut CreateTopicsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

impl Api for DeleteTopicsRequest {
    fn topics(&self, world: &World) -> Vec<String> {
        let by_state = self.topics.iter().filter_map(|topic| match &topic.name {
            Some(name) => Some(name.to_string()),
            None => world.resolve("", topic.topic_id),
        });
        by_state.chain(self.topic_names.iter().map(|name| name.to_string())).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> DeleteTopicsResponse {
        let mut response = DeleteTopicsResponse::default();
        for topic in &self.topics {
            let entry =
                DeletableTopicResult::default().with_name(topic.name.clone()).with_topic_id(topic.topic_id);
            response.responses.push(entry.with_error_code(code));
        }
        for name in &self.topic_names {
            let entry = DeletableTopicResult::default().with_name(Some(name.clone()));
            response.responses.push(entry.with_error_code(code));
        }
        response
    }

    fn start(self, world: &mut World, call: &Call) -> Started<DeleteTopicsResponse> {
        let mut response = self.refuse(call, 0);
        for entry in &mut response.responses {
            let name = match &entry.name {
                Some(name) => Some(name.to_string()),
                None => world.resolve("", entry.topic_id),
            };
            let deleted = name.is_some_and(|name| world.delete_topic(&name));
            if !deleted {
                entry.error_code = if entry.name.is_some() { 3 } else { 100 };
            }
        }
        Started::Done(response)
    }

    fn throttle(response: &mut DeleteTopicsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

impl Api for DeleteRecordsRequest {
    fn topics(&self, _world: &World) -> Vec<String> {
        self.topics.iter().map(|topic| topic.name.to_string()).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> DeleteRecordsResponse {
        let mut response = DeleteRecordsResponse::default();
        for topic in &self.topics {
            let mut answer = DeleteRecordsTopicResult::default().with_name(topic.name.clone());
            for partition in &topic.partitions {
                let entry =
                    DeleteRecordsPartitionResult::default().with_partition_index(partition.partition_index);
                answer.partitions.push(entry.with_low_watermark(-1).with_error_code(code));
            }
            response.topics.push(answer);
        }
        response
    }

    fn start(self, world: &mut World, call: &Call) -> Started<DeleteRecordsResponse> {
        let mut response = self.refuse(call, 0);
        for (topic, answer) in self.topics.iter().zip(&mut response.topics) {
            for (asked, entry) in topic.partitions.iter().zip(&mut answer.partitions) {
                let result = delete(world, call.node, &topic.name, asked.partition_index, asked.offset);
                match result {
                    Ok(start) => entry.low_watermark = start,
                    Err(code) => entry.error_code = code,
                }
            }
        }
        world.touch();
        Started::Done(response)
    }

    fn throttle(response: &mut DeleteRecordsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn delete(world: &mut World, node: i32, topic: &str, index: i32, before: i64) -> Result<i64, i16> {
    let partition = world.partition_mut(topic, index).ok_or(3_i16)?;
    if partition.leader != Some(node) {
        return Err(6);
    }
    let high_watermark = partition.high_watermark();
    let before = if before == -1 { high_watermark } else { before };
    if before < 0 || before > high_watermark {
        return Err(1);
    }
    let before = before.max(partition.log.start);
    partition.log.delete_before(before);
    Ok(partition.log.start)
}
