//! Batches out: what a node's sender is to send next. Pure.
//!
//! One request takes the first batch of each partition the node leads that is ready, beginning with another
//! partition each time, until it is full.

use std::collections::VecDeque;
use std::time::Instant;

use kafka_meta::{Error, ErrorCode, TopicName};
use uuid::Uuid;

use super::partition::{Content, Flight, Readiness};
use super::{Engine, Node};
use crate::delivery::Outcome;
use crate::producer_id::Identity;
use crate::sequence::{State, sequence};
use crate::transaction::Admit;

/// What a batch's header says of its producer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    pub identity: Identity,
    /// −1 without idempotence.
    pub sequence: i32,
    pub transactional: bool,
}

/// A batch to be packed and sent.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub ticket: u64,
    /// The partition's place in the engine.
    pub part: usize,
    pub topic: TopicName,
    /// Nil when the brokers do not tell.
    pub id: Uuid,
    pub partition: i32,
    pub content: Content,
    pub stamp: Stamp,
}

/// The batches of one request.
#[derive(Debug)]
pub(crate) struct Shipment {
    pub parcels: Vec<Parcel>,
    /// The newest version the request may have.
    pub max_version: i16,
}

/// What a node's sender is to do.
#[derive(Debug)]
pub(crate) enum Next {
    Send(Shipment),
    /// Look again when woken, or at this time.
    Wait(Option<Instant>),
    /// End; the node leads nothing any more.
    Retire,
}

impl Engine {
    /// The next request for a node. `admit` says whether a partition's batches may leave.
    pub fn poll_request(
        &mut self,
        now: Instant,
        node: i32,
        admit: &mut dyn FnMut(TopicName, i32) -> Admit,
    ) -> Next {
        let sender = self.nodes.entry(node).or_default();
        if sender.in_flight == 0 && !self.parts.iter().any(|part| part.leader == Some(node)) {
            sender.running = false;
            return Next::Retire;
        }
        if sender.in_flight >= self.settings.max_in_flight {
            return Next::Wait(None);
        }
        if let Some(until) = sender.muted_until.filter(|until| now < *until) {
            return Next::Wait(Some(until));
        }
        sender.turn = sender.turn.wrapping_add(1);
        let turn = sender.turn;
        let Engine { busy, parts, .. } = self;
        busy.retain(|at| {
            let Some(part) = parts.get_mut(*at) else { return false };
            part.busy = !part.queue.is_empty();
            part.busy
        });
        let hurry = self.closing || !self.line.is_empty();
        let (mut parcels, mut size, mut max_version) = (Vec::new(), 0, i16::MAX);
        let mut wait: Option<Instant> = None;
        for step in 0..self.busy.len() {
            let place = turn.wrapping_add(step).checked_rem(self.busy.len()).unwrap_or(0);
            let Some(at) = self.busy.get(place).copied() else { continue };
            if self.parts.get(at).is_none_or(|part| part.leader != Some(node)) {
                continue;
            }
            self.restart_if_due(now, at);
            let Some(part) = self.parts.get(at) else { continue };
            match part.readiness(now, node, &self.settings, self.identity, hurry) {
                Readiness::Now => {}
                Readiness::At(at) => {
                    wait = Some(wait.map_or(at, |wait| wait.min(at)));
                    continue;
                }
                Readiness::No => continue,
            }
            if self.settings.idempotent && !self.identity.is_some() {
                self.effects.supervisor = true;
                continue;
            }
            let len = part.queue.front().map_or(0, |batch| batch.len);
            if !parcels.is_empty() && size + len > self.settings.max_request_size {
                // No room left: the sender asks again at once.
                continue;
            }
            let transactional = match admit(part.topic, part.index) {
                Admit::Go { max_produce_version, transactional } => {
                    max_version = max_version.min(max_produce_version);
                    transactional
                }
                Admit::Wait => continue,
                Admit::No(error) => {
                    let error = error.with_partition(part.topic, part.index);
                    self.fail_queue(now, at, &error);
                    continue;
                }
            };
            size += len;
            parcels.extend(self.take_off(at, node, transactional));
        }
        if parcels.is_empty() {
            return Next::Wait(wait);
        }
        self.counts.requests += 1;
        self.counts.batches += u64::try_from(parcels.len()).unwrap_or(0);
        if let Some(Node { in_flight, .. }) = self.nodes.get_mut(&node) {
            *in_flight += 1;
        }
        Next::Send(Shipment { parcels, max_version })
    }

    fn take_off(&mut self, at: usize, node: i32, transactional: bool) -> Option<Parcel> {
        let part = self.parts.get_mut(at)?;
        let mut batch = part.queue.pop_front()?;
        batch.closed = true;
        batch.total.get_or_insert(batch.count);
        let mut stamp = Stamp { identity: Identity::NONE, sequence: -1, transactional };
        #[cfg(test)]
        if self.forgetful && batch.position.is_some() {
            batch.position = Some(part.sequences.take(batch.count));
        }
        if self.settings.idempotent {
            let position = match batch.position {
                Some(position) => position,
                None => {
                    if part.sequences.identity != self.identity {
                        part.sequences.restart(self.identity);
                    }
                    let position = part.sequences.take(batch.count);
                    batch.ordinal = part.sequences.taken();
                    position
                }
            };
            batch.position = Some(position);
            stamp.identity = part.sequences.identity;
            stamp.sequence = sequence(position);
        }
        self.tickets += 1;
        let ticket = self.tickets;
        let content = std::mem::replace(&mut batch.content, Content::Away);
        let (topic, partition) = (part.topic, part.index);
        part.fly(Flight { ticket, node, batch, given_up: false });
        let id = self.topics.get(&topic).map_or(Uuid::nil(), |topic| topic.id);
        Some(Parcel { ticket, part: at, topic, id, partition, content, stamp })
    }

    /// A parcel has been packed; kept until the answer, to be sent again.
    pub fn handle_packed(&mut self, part: usize, ticket: u64, bytes: bytes::Bytes, stamp: Stamp) {
        let Some(part) = self.parts.get_mut(part) else { return };
        if let Some(flight) = part.flights.iter_mut().find(|flight| flight.ticket == ticket) {
            self.counts.bytes += u64::try_from(bytes.len()).unwrap_or(0);
            flight.batch.content = Content::Packed(bytes, stamp);
        }
    }

    /// Fails everything that is queued for a partition.
    pub(super) fn fail_queue(&mut self, now: Instant, at: usize, error: &Error) {
        let Some(part) = self.parts.get_mut(at) else { return };
        let queue = std::mem::take(&mut part.queue);
        if queue.iter().any(|batch| batch.position.is_some()) {
            part.sequences.given_up();
        }
        for batch in queue {
            self.finish(&batch, Outcome::Failed(error.clone()));
        }
        self.admit(now);
    }

    /// Begins a partition's sequences anew, when that is what it waits for. A transaction does it otherwise: it
    /// ends, and the next one has another epoch.
    ///
    /// A batch with a lost answer does not go along. `OUT_OF_ORDER` says that it was not written *then*, but a
    /// copy may still be on its way (in the socket of a broker that was frozen, at a leader that lost its
    /// partition and got it back) and be written before the new epoch fences it off.
    fn restart_if_due(&mut self, now: Instant, at: usize) {
        if !self.settings.idempotent || self.settings.transactional {
            return;
        }
        let Some(part) = self.parts.get_mut(at) else { return };
        if !part.is_to_restart() {
            return;
        }
        let lost = part.sequences.state() == State::Gap;
        if part.sequences.identity == self.identity {
            self.identity = match self.identity.epoch.checked_add(1) {
                Some(epoch) if self.identity.is_some() => Identity { epoch, ..self.identity },
                _ => Identity::NONE,
            };
            self.counts.epoch_bumps += 1;
        }
        let (topic, partition) = (part.topic, part.index);
        tracing::warn!(
            %topic, partition, lost,
            producer_id = self.identity.producer_id, epoch = self.identity.epoch,
            "the sequences of a partition begin anew under another epoch"
        );
        part.sequences.restart(Identity::NONE);
        let (doubtful, kept): (VecDeque<_>, _) =
            std::mem::take(&mut part.queue).into_iter().partition(|batch| batch.doubtful);
        part.queue = kept;
        for batch in &mut part.queue {
            batch.position = None;
        }
        for batch in doubtful {
            let error = Error::broker(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, "produce")
                .with_partition(topic, partition)
                .with_detail("a batch before it was given up, and whether this one was written is not known");
            tracing::warn!(%error, records = batch.count, "a batch failed");
            self.finish(&batch, Outcome::Failed(error));
        }
        self.admit(now);
        if !self.identity.is_some() {
            self.effects.supervisor = true;
        }
    }
}
