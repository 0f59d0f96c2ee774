//! Transactions: producer ids, which partitions belong, commit and abort with their markers.
//!
//! Markers are written in the same step that ends a transaction, so the "try again" answers (51) of a broker
//! that still writes them do not occur. A transaction that times out has to be aborted by the test.

use std::collections::{BTreeSet, HashMap};

use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, EndTxnRequest, EndTxnResponse,
    InitProducerIdRequest, InitProducerIdResponse,
};
use tokio::time::Instant;

use super::api::{Api, Call, Started};
use super::groups::coordinator;
use super::world::World;
use super::write;

/// Largest transaction timeout a broker accepts, ms.
const MAX_TIMEOUT_MS: i32 = 900_000;

/// What an open transaction has touched.
#[derive(Debug, Default)]
struct Scope {
    partitions: BTreeSet<(String, i32)>,
    /// Groups with offsets in it.
    groups: BTreeSet<String>,
}

impl Scope {
    fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.groups.is_empty()
    }
}

#[derive(Debug, Default)]
struct Transaction {
    producer_id: i64,
    epoch: i16,
    scope: Scope,
    /// How the last one ended: committed, and the epoch it ran under.
    ended: Option<(bool, i16)>,
}

#[derive(Debug, Default)]
pub(super) struct Transactions {
    known: HashMap<String, Transaction>,
    producers: i64,
}

impl Transactions {
    /// A new producer id. The first is 1000, so that it is not mistaken for an index.
    fn next_producer(&mut self) -> i64 {
        self.producers = self.producers.saturating_add(1);
        self.producers.saturating_add(999)
    }

    /// Starts the next incarnation of a transactional producer: (producer id, epoch, what was left open).
    fn init(&mut self, id: &str) -> (i64, i16, Scope) {
        let fresh = if self.known.contains_key(id) { 0 } else { self.next_producer() };
        let known = self.known.entry(id.to_owned()).or_insert_with(|| Transaction {
            producer_id: fresh,
            epoch: -1,
            ..Transaction::default()
        });
        known.epoch = known.epoch.saturating_add(1);
        known.ended = None;
        (known.producer_id, known.epoch, std::mem::take(&mut known.scope))
    }

    /// Whether a batch of this producer may go into the partition; `implicit` adds the partition by itself.
    pub fn admit(
        &mut self,
        id: &str,
        producer_id: i64,
        epoch: i16,
        topic: &str,
        partition: i32,
        implicit: bool,
    ) -> Result<(), i16> {
        let known = self.known(id, producer_id, epoch)?;
        let key = (topic.to_owned(), partition);
        if implicit {
            known.scope.partitions.insert(key);
            return Ok(());
        }
        if known.scope.partitions.contains(&key) { Ok(()) } else { Err(48) }
    }

    fn known(&mut self, id: &str, producer_id: i64, epoch: i16) -> Result<&mut Transaction, i16> {
        let known = self.known.get_mut(id).ok_or(48_i16)?;
        if known.producer_id != producer_id {
            return Err(49);
        }
        if known.epoch != epoch {
            return Err(47);
        }
        Ok(known)
    }

    /// Whether offsets of this group may go into the transaction; `implicit` adds the group by itself.
    pub fn admit_group(
        &mut self,
        id: &str,
        producer_id: i64,
        epoch: i16,
        group: &str,
        implicit: bool,
    ) -> Result<(), i16> {
        let known = self.known(id, producer_id, epoch)?;
        if implicit {
            known.scope.groups.insert(group.to_owned());
            return Ok(());
        }
        if known.scope.groups.contains(group) { Ok(()) } else { Err(48) }
    }

    pub fn add(&mut self, id: &str, topic: &str, partition: i32) {
        if let Some(known) = self.known.get_mut(id) {
            known.scope.partitions.insert((topic.to_owned(), partition));
        }
    }

    /// Producer id and epoch of a transactional producer.
    pub fn identity(&self, id: &str) -> Option<(i64, i16)> {
        self.known.get(id).map(|known| (known.producer_id, known.epoch))
    }
}

/// The checks of a request that adds something to a transaction by the old protocol.
pub(super) fn check_adding(world: &World, id: &str, asked: (i64, i16), fenced: i16) -> Result<(), i16> {
    match world.transactions.identity(id) {
        Some(known) if known == asked => Ok(()),
        Some((producer_id, _)) if producer_id == asked.0 => Err(fenced),
        _ => Err(49),
    }
}

/// Makes or renews a transactional producer; what it left open is aborted.
pub(super) fn init(world: &mut World, id: &str, now: Instant) -> (i64, i16) {
    let (producer_id, epoch, left) = world.transactions.init(id);
    mark(world, producer_id, epoch, &left, false, now);
    (producer_id, epoch)
}

/// Ends the open transaction: markers into each of its partitions. With `bump` they carry the next epoch, which
/// becomes the producer's.
pub(super) fn end(
    world: &mut World,
    id: &str,
    commit: bool,
    bump: bool,
    now: Instant,
) -> Result<(i64, i16), i16> {
    let known = world.transactions.known.get_mut(id).ok_or(49_i16)?;
    let old = known.epoch;
    let scope = std::mem::take(&mut known.scope);
    if bump {
        known.epoch = known.epoch.saturating_add(1);
    }
    known.ended = Some((commit, old));
    let (producer_id, epoch) = (known.producer_id, known.epoch);
    mark(world, producer_id, epoch, &scope, commit, now);
    Ok((producer_id, epoch))
}

fn mark(world: &mut World, producer_id: i64, epoch: i16, scope: &Scope, commit: bool, now: Instant) {
    let marker = write::marker(producer_id, epoch, commit, world.wall_ms(now));
    for (topic, index) in &scope.partitions {
        world.append(topic, *index, &marker, now);
    }
    for group in &scope.groups {
        world.groups.end_transaction(group, producer_id, commit);
    }
    world.touch();
}

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
        if self.producer_id.0 >= 0
            && world.transactions.identity(id) != Some((self.producer_id.0, self.producer_epoch))
        {
            return Started::Done(self.refuse(call, if call.version >= 4 { 90 } else { 47 }));
        }
        done(init(world, id, call.now))
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
                    world.transactions.add(&id, &key.0, key.1);
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
        let Some(known) =
            world.transactions.known.get(&id).filter(|known| known.producer_id == self.producer_id.0)
        else {
            return Started::Done(self.refuse(call, 49));
        };
        let bump = call.version >= 5;
        let done = |producer_id: i64, epoch: i16| {
            let response = EndTxnResponse::default();
            Started::Done(if bump {
                response.with_producer_id(producer_id.into()).with_producer_epoch(epoch)
            } else {
                response
            })
        };
        if let Some((committed, under)) = known.ended
            && known.scope.is_empty()
            && self.producer_epoch == under
        {
            // The same end again: its answer was lost. The opposite end is refused; so is a second abort by
            // the old protocol.
            let repeated = committed == self.committed && (bump || committed);
            return if repeated {
                done(known.producer_id, known.epoch)
            } else {
                Started::Done(self.refuse(call, 48))
            };
        }
        if self.producer_epoch != known.epoch {
            return Started::Done(self.refuse(call, if call.version >= 2 { 90 } else { 47 }));
        }
        if known.scope.is_empty() && (!bump || self.committed) {
            return Started::Done(self.refuse(call, 48));
        }
        match end(world, &id, self.committed, bump, call.now) {
            Ok((producer_id, epoch)) => done(producer_id, epoch),
            Err(code) => Started::Done(self.refuse(call, code)),
        }
    }

    fn throttle(response: &mut EndTxnResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}
