//! Produce v3 to v13: raw batches, with the checks of idempotent and transactional producers.

use bytes::Bytes;
use kafka_protocol::messages::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use kafka_protocol::protocol::StrBytes;

use super::api::{Api, Call, Started};
use super::log::Sequenced;
use super::peek;
use super::world::World;

impl Api for ProduceRequest {
    fn topics(&self, world: &World) -> Vec<String> {
        self.topic_data.iter().filter_map(|topic| world.resolve(&topic.name, topic.topic_id)).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> ProduceResponse {
        let mut response = ProduceResponse::default();
        for topic in &self.topic_data {
            let mut answer =
                TopicProduceResponse::default().with_name(topic.name.clone()).with_topic_id(topic.topic_id);
            for partition in &topic.partition_data {
                answer.partition_responses.push(refused(partition.index, code));
            }
            response.responses.push(answer);
        }
        response
    }

    fn start(self, world: &mut World, call: &Call) -> Started<ProduceResponse> {
        let mut response = ProduceResponse::default();
        for topic in &self.topic_data {
            let name = world.resolve(&topic.name, topic.topic_id);
            let mut answer =
                TopicProduceResponse::default().with_name(topic.name.clone()).with_topic_id(topic.topic_id);
            for partition in &topic.partition_data {
                let records = partition.records.clone().unwrap_or_default();
                let index = partition.index;
                let result = match &name {
                    None if topic.topic_id.is_nil() => Err(3),
                    None => Err(100),
                    Some(name) => {
                        let id = self.transactional_id.as_deref().map(|id| id.as_str());
                        append(world, call, name, index, &records, id)
                    }
                };
                let mut entry = match result {
                    Ok((base, start)) => PartitionProduceResponse::default()
                        .with_index(index)
                        .with_base_offset(base)
                        .with_log_append_time_ms(-1)
                        .with_log_start_offset(start),
                    Err(code) => refused(index, code),
                };
                if entry.error_code == 6 && call.version >= 10 {
                    hint(world, name.as_deref(), &mut entry, &mut response);
                }
                answer.partition_responses.push(entry);
            }
            response.responses.push(answer);
        }
        world.touch();
        if self.acks == 0 { Started::Silent } else { Started::Done(response) }
    }

    fn throttle(response: &mut ProduceResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn refused(index: i32, code: i16) -> PartitionProduceResponse {
    PartitionProduceResponse::default()
        .with_index(index)
        .with_error_code(code)
        .with_base_offset(-1)
        .with_log_append_time_ms(-1)
        .with_log_start_offset(-1)
}

fn hint(
    world: &World,
    topic: Option<&str>,
    entry: &mut PartitionProduceResponse,
    response: &mut ProduceResponse,
) {
    let Some(partition) = topic.and_then(|topic| world.partition(topic, entry.index)) else { return };
    let leader = partition.leader.unwrap_or(-1);
    entry.current_leader =
        LeaderIdAndEpoch::default().with_leader_id(leader.into()).with_leader_epoch(partition.leader_epoch);
    if let Some(node) = world.node(leader)
        && !response.node_endpoints.iter().any(|endpoint| endpoint.node_id.0 == leader)
    {
        let endpoint = NodeEndpoint::default()
            .with_node_id(leader.into())
            .with_host(StrBytes::from_string(node.host.clone()))
            .with_port(i32::from(node.port))
            .with_rack(node.rack.clone().map(StrBytes::from_string));
        response.node_endpoints.push(endpoint);
    }
}

/// Appends what a client produced; (base offset, log start).
fn append(
    world: &mut World,
    call: &Call,
    topic: &str,
    index: i32,
    records: &Bytes,
    transactional_id: Option<&str>,
) -> Result<(i64, i64), i16> {
    let partition = world.partition(topic, index).ok_or(3_i16)?;
    if partition.leader != Some(call.node) {
        return Err(6);
    }
    let mut rest = records.clone();
    let (facts, batch) = peek::split_batch(&mut rest).ok_or(2_i16)?;
    // A producer sends exactly one batch per partition, of the newest format, whole and unharmed.
    if facts.magic < 2 || !rest.is_empty() || !peek::is_intact(&batch) {
        return Err(2);
    }
    if facts.is_control() {
        return Err(87);
    }
    let transactional = facts.is_transactional();
    if transactional != transactional_id.is_some() {
        return Err(48);
    }
    let running = partition.log.is_open(facts.producer_id, facts.producer_epoch);
    if let Some(id) = transactional_id
        && !running
    {
        // Only the first batch of a transaction is checked with the coordinator. Up to v10 the general code, from
        // v11 the one that says to abort.
        let producer = (facts.producer_id, facts.producer_epoch);
        let (transactions, implicit) = (&mut world.transactions, call.version >= 12);
        transactions
            .admit(id, producer, (topic, index), implicit, call.now)
            .map_err(|code| if code == 48 && call.version >= 11 { 120 } else { code })?;
    }
    let partition = world.partition(topic, index).ok_or(3_i16)?;
    if facts.producer_id >= 0 {
        match partition.log.sequenced(&facts) {
            Sequenced::Fresh => {}
            Sequenced::Duplicate(base) => return Ok((base, partition.log.start)),
            Sequenced::Refused(code) => return Err(code),
        }
    }
    let base = world.append(topic, index, records, call.now).ok_or(2_i16)?;
    Ok((base, world.partition(topic, index).map_or(-1, |partition| partition.log.start)))
}
