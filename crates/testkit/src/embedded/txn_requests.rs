//! The requests a transactional producer sends to its coordinator: InitProducerId, AddPartitionsToTxn, EndTxn.
//!
//! They check who asks and shape the answers; what they change is in `txn.rs`.

use std::time::Duration;

use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, EndTxnRequest, EndTxnResponse,
    InitProducerIdRequest, InitProducerIdResponse,
};

use super::api::{Api, Call, Started};
use super::groups::coordinator;
use super::txn::{self, check_adding};
use super::world::World;

/// Largest transaction timeout a broker accepts, ms.
const MAX_TIMEOUT_MS: i32 = 900_000;

impl Api for InitProducerIdRequest {
    fn refuse(&self, _call: &Call, code: i16) -> InitProducerIdResponse {
        let none = InitProducerIdResponse::default().with_error_code(code);
        none.with_producer_id((-1).into()).with_producer_epoch(-1)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<InitProducerIdResponse> {
        let done = |(producer_id, epoch): (i64, i16)| {
            let response = InitProducerIdResponse::default().with_producer_id(producer_id.into());
            Started::Done(response.with_producer_epoch(epoch))
        };
        let Some(id) = &self.transactional_id else {
            return done((world.transactions.next_producer(), 0));
        };
        if id.is_empty() {
            return Started::Done(self.refuse(call, 42));
        }
        if coordinator(world, id) != Some(call.node) {
            return Started::Done(self.refuse(call, 16));
        }
        if self.transaction_timeout_ms > MAX_TIMEOUT_MS || self.transaction_timeout_ms <= 0 {
            return Started::Done(self.refuse(call, 50));
        }
        let asked = (self.producer_id.0, self.producer_epoch);
        let timeout = Duration::from_millis(u64::try_from(self.transaction_timeout_ms).unwrap_or(0));
        let fenced = if call.version >= 4 { 90 } else { 47 };
        match txn::init(world, id, asked, timeout, fenced, call.now) {
            Ok(made) => done(made),
            Err(code) => Started::Done(self.refuse(call, code)),
        }
    }

    fn throttle(response: &mut InitProducerIdResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

impl Api for AddPartitionsToTxnRequest {
    fn topics(&self, _world: &World) -> Vec<String> {
        self.v3_and_below_topics.iter().map(|topic| topic.name.to_string()).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> AddPartitionsToTxnResponse {
        let mut response = AddPartitionsToTxnResponse::default();
        for topic in &self.v3_and_below_topics {
            let entry = |index: &i32| {
                let result = AddPartitionsToTxnPartitionResult::default().with_partition_index(*index);
                result.with_partition_error_code(code)
            };
            let results = topic.partitions.iter().map(entry).collect();
            let answer = AddPartitionsToTxnTopicResult::default().with_name(topic.name.clone());
            response.results_by_topic_v3_and_below.push(answer.with_results_by_partition(results));
        }
        response
    }

    fn start(self, world: &mut World, call: &Call) -> Started<AddPartitionsToTxnResponse> {
        let id = self.v3_and_below_transactional_id.to_string();
        if coordinator(world, &id) != Some(call.node) {
            return Started::Done(self.refuse(call, 16));
        }
        let asked = (self.v3_and_below_producer_id.0, self.v3_and_below_producer_epoch);
        let fenced = if call.version >= 2 { 90 } else { 47 };
        if let Err(code) = check_adding(world, &id, asked, fenced) {
            return Started::Done(self.refuse(call, code));
        }
        let mut response = self.refuse(call, 0);
        let known = |topic: &str, index: i32| world.partition(topic, index).is_some();
        let unknown: Vec<(String, i32)> = self
            .v3_and_below_topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|index| (topic.name.to_string(), *index)))
            .filter(|(topic, index)| !known(topic, *index))
            .collect();
        for topic in &mut response.results_by_topic_v3_and_below {
            for entry in &mut topic.results_by_partition {
                let key = (topic.name.to_string(), entry.partition_index);
                if unknown.contains(&key) {
                    entry.partition_error_code = 3;
                } else if !unknown.is_empty() {
                    // All or nothing: the good ones were not attempted.
                    entry.partition_error_code = 55;
                } else {
                    world.transactions.add(&id, &key.0, key.1, call.now);
                }
            }
        }
        Started::Done(response)
    }

    fn throttle(response: &mut AddPartitionsToTxnResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

impl Api for EndTxnRequest {
    fn refuse(&self, _call: &Call, code: i16) -> EndTxnResponse {
        EndTxnResponse::default().with_error_code(code)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<EndTxnResponse> {
        let id = self.transactional_id.to_string();
        if coordinator(world, &id) != Some(call.node) {
            return Started::Done(self.refuse(call, 16));
        }
        let asked = (self.producer_id.0, self.producer_epoch);
        match txn::end(world, &id, asked, self.committed, call.version, call.now) {
            Ok((producer_id, epoch)) if call.version >= 5 => {
                let response = EndTxnResponse::default().with_producer_id(producer_id.into());
                Started::Done(response.with_producer_epoch(epoch))
            }
            Ok(_) => Started::Done(EndTxnResponse::default()),
            Err(code) => Started::Done(self.refuse(call, code)),
        }
    }

    fn throttle(response: &mut EndTxnResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}
