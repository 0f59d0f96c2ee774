//! CreateTopics, CreatePartitions, DeleteTopics and DeleteRecords.

use std::collections::BTreeSet;
use std::ops::Range;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteRecordsRequest, DeleteRecordsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::api::{Api, Call, Started};
use super::configs;
use super::world::{Partition, World};

/// A code and the broker's words for it.
type Refused = (i16, String);

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
        for (asked, answer) in self.topics.iter().zip(&mut response.topics) {
            let again = self.topics.iter().filter(|other| other.name == asked.name).count() > 1;
            let made = if again {
                Err((42, "Duplicate topic name.".to_owned()))
            } else {
                create(world, asked, self.validate_only)
            };
            let placed = match made {
                Ok(placed) => placed,
                Err((code, message)) => {
                    answer.error_code = code;
                    answer.error_message = Some(StrBytes::from_string(message));
                    continue;
                }
            };
            if call.version >= 7 {
                let made = world.topics.get(asked.name.as_str()).map(|topic| topic.id);
                // A real broker makes an id up even where no topic is made.
                answer.topic_id = made.unwrap_or_else(|| world.make_id());
            }
            if call.version >= 5 {
                answer.num_partitions = i32::try_from(placed.len()).unwrap_or(i32::MAX);
                let replicas = placed.first().map_or(0, Vec::len);
                answer.replication_factor = i16::try_from(replicas).unwrap_or(i16::MAX);
                let own = configs::checked(named(asked)).unwrap_or_default();
                let told = configs::told(world, configs::TOPIC, &asked.name).into_iter();
                let told = told.map(|(name, value, source, _)| match own.get(&name) {
                    Some(own) => (name, own.clone(), 1),
                    None => (name, value, source),
                });
                answer.configs = Some(told.map(config).collect());
            }
        }
        Started::Done(response)
    }

    fn throttle(response: &mut CreateTopicsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn named(asked: &CreatableTopic) -> impl Iterator<Item = (&str, Option<&str>)> {
    asked.configs.iter().map(|config| (config.name.as_str(), config.value.as_deref()))
}

fn config((name, value, source): (String, String, i8)) -> CreatableTopicConfigs {
    CreatableTopicConfigs::default()
        .with_name(StrBytes::from_string(name))
        .with_value(Some(StrBytes::from_string(value)))
        .with_config_source(source)
}

/// Makes a topic, or says why not. The replicas of its partitions.
fn create(world: &mut World, asked: &CreatableTopic, validate: bool) -> Result<Vec<Vec<i32>>, Refused> {
    let name = asked.name.as_str();
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > 249 || !name.bytes().all(legal) {
        return Err((
            17,
            format!(
                "Topic name is invalid: '{name}' contains one or more characters other than \
                                 ASCII alphanumerics, '.', '_' and '-'"
            ),
        ));
    }
    if world.topics.contains_key(name) {
        return Err((36, format!("Topic '{name}' already exists.")));
    }
    let set = configs::checked(named(asked))?;
    let placed = if asked.assignments.is_empty() {
        let partitions = if asked.num_partitions == -1 { 1 } else { asked.num_partitions };
        let factor = if asked.replication_factor == -1 { 1 } else { asked.replication_factor };
        if partitions <= 0 {
            return Err((37, "Number of partitions was set to an invalid non-positive value.".to_owned()));
        }
        place(world, 0..partitions, usize::try_from(factor).unwrap_or(0))?
    } else {
        if asked.num_partitions != -1 || asked.replication_factor != -1 {
            let text = "A manual partition assignment was specified, but numPartitions or replicationFactor was \
                        not set to -1.";
            return Err((42, text.to_owned()));
        }
        let placed: Vec<Vec<i32>> =
            asked.assignments.iter().map(|entry| entry.broker_ids.iter().map(|id| id.0).collect()).collect();
        check_placed(world, &placed)?;
        placed
    };
    if !validate {
        let count = i32::try_from(placed.len()).unwrap_or(i32::MAX);
        world.create_topic(name, count, |index| {
            usize::try_from(index).ok().and_then(|index| placed.get(index).cloned()).unwrap_or_default()
        });
        configs::put(world, configs::TOPIC, name, set);
    }
    Ok(placed)
}

/// Where the cluster would put these partitions.
fn place(world: &World, partitions: Range<i32>, factor: usize) -> Result<Vec<Vec<i32>>, Refused> {
    let nodes = world.nodes.len();
    if factor == 0 || factor > nodes {
        let text = format!(
            "Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot \
             be reached because only {nodes} broker(s) are registered."
        );
        return Err((38, text));
    }
    Ok(partitions.map(|index| world.placement(index, factor)).collect())
}

fn check_placed(world: &World, placed: &[Vec<i32>]) -> Result<(), Refused> {
    for replicas in placed {
        let unknown = replicas.iter().find(|id| !world.nodes.contains_key(id));
        if let Some(id) = unknown {
            let text = format!(
                "The manual partition assignment includes broker {id}, but no such broker is registered."
            );
            return Err((39, text));
        }
        let distinct: BTreeSet<_> = replicas.iter().collect();
        if distinct.len() != replicas.len() || replicas.is_empty() {
            return Err((39, "The manual partition assignment includes a broker more than once.".to_owned()));
        }
    }
    Ok(())
}

impl Api for CreatePartitionsRequest {
    fn topics(&self, _world: &World) -> Vec<String> {
        self.topics.iter().map(|topic| topic.name.to_string()).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> CreatePartitionsResponse {
        let results = self.topics.iter().map(|topic| {
            CreatePartitionsTopicResult::default().with_name(topic.name.clone()).with_error_code(code)
        });
        CreatePartitionsResponse::default().with_results(results.collect())
    }

    fn start(self, world: &mut World, call: &Call) -> Started<CreatePartitionsResponse> {
        let mut response = self.refuse(call, 0);
        for (asked, answer) in self.topics.iter().zip(&mut response.results) {
            if let Err((code, message)) = grow(world, asked, self.validate_only) {
                answer.error_code = code;
                answer.error_message = Some(StrBytes::from_string(message));
            }
        }
        Started::Done(response)
    }

    fn throttle(response: &mut CreatePartitionsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn grow(world: &mut World, asked: &CreatePartitionsTopic, validate: bool) -> Result<(), Refused> {
    let Some(topic) = world.topics.get(asked.name.as_str()) else {
        return Err((3, "This server does not host this topic-partition.".to_owned()));
    };
    let present = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    let factor = topic.partitions.first().map_or(1, |partition| partition.replicas.len());
    let (name, count) = (topic.name.clone(), asked.count);
    if count == present {
        return Err((37, format!("Topic already has {present} partition(s).")));
    }
    if count < present {
        let text = format!(
            "The topic {name} currently has {present} partition(s); {count} would not be an increase."
        );
        return Err((37, text));
    }
    let placed = match &asked.assignments {
        None => place(world, present..count, factor)?,
        Some(entries) => {
            let placed = entries.iter().map(|entry| entry.broker_ids.iter().map(|id| id.0).collect());
            let placed: Vec<Vec<i32>> = placed.collect();
            if i32::try_from(placed.len()) != Ok(count.saturating_sub(present)) {
                let text = format!(
                    "Attempted to add {} additional partition(s), but only {} assignment(s) were specified.",
                    count.saturating_sub(present),
                    placed.len()
                );
                return Err((39, text));
            }
            check_placed(world, &placed)?;
            placed
        }
    };
    if !validate && let Some(topic) = world.topics.get_mut(&name) {
        let new = (present..).zip(placed).map(|(index, replicas)| Partition::new(index, replicas));
        topic.partitions.extend(new);
        world.touch();
    }
    Ok(())
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
                let result = if world.configs.is_only_compacted(&topic.name) {
                    Err(44)
                } else {
                    delete(world, call.node, &topic.name, asked.partition_index, asked.offset)
                };
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
