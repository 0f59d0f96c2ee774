//! What the producer and its transaction order: flush, fail what has not left, begin a new epoch, close. Pure.

use std::sync::Arc;
use std::time::Instant;

use kafka_meta::{Error, ErrorKind, Result};

use super::Engine;
use crate::delivery::{Delivery, Outcome, Placement};
use crate::producer_id::Identity;
use crate::sequence::State;

/// Something that has no outcome yet.
#[derive(Clone, Debug)]
pub(crate) enum Outstanding {
    Batch(Arc<Delivery>),
    Record(Arc<Placement>),
}

impl Engine {
    /// Everything that has no outcome yet; what lingers goes now.
    pub fn handle_flush(&mut self) -> Vec<Outstanding> {
        let mut outstanding = Vec::new();
        for part in &mut self.parts {
            for flight in part.flights.iter().filter(|flight| !flight.given_up) {
                outstanding.push(Outstanding::Batch(Arc::clone(&flight.batch.delivery)));
            }
            for batch in &mut part.queue {
                batch.urgent = true;
                outstanding.push(Outstanding::Batch(Arc::clone(&batch.delivery)));
            }
        }
        let topics = self.topics.values_mut().flat_map(|topic| topic.waiting.iter_mut());
        for waiting in topics.chain(self.line.iter_mut()) {
            waiting.urgent = true;
            outstanding.push(Outstanding::Record(Arc::clone(&waiting.placement)));
        }
        self.wake_all();
        outstanding
    }

    /// Fails everything that is not in flight. What is in flight is still outstanding, and fails instead of being sent
    /// again: a broker that is away must not hold an abort up for longer than a request takes.
    pub fn handle_fail_unsent(&mut self, now: Instant, error: &Error) -> Vec<Outstanding> {
        // Who waits for room goes first, or the room that becomes free would let them in.
        for waiting in std::mem::take(&mut self.line) {
            let error = waiting.blame(error.clone());
            self.effects.placed.push((waiting.placement, Err(error)));
        }
        let topics = self.topics.values_mut().flat_map(|topic| topic.waiting.drain(..));
        for waiting in topics {
            self.used = self.used.saturating_sub(waiting.charge);
            let error = waiting.blame(error.clone());
            self.effects.placed.push((waiting.placement, Err(error)));
        }
        for at in 0..self.parts.len() {
            let Some(part) = self.parts.get_mut(at) else { break };
            let error = error.clone().with_partition(part.topic, part.index);
            let dropped = std::mem::take(&mut part.queue);
            if dropped.iter().any(|batch| batch.position.is_some()) {
                // Sent before, and whether it was written is not known.
                part.sequences.given_up();
            }
            for batch in dropped {
                self.finish(&batch, Outcome::Failed(error.clone()));
            }
        }
        self.admit(now);
        self.dropping = Some(error.clone());
        self.handle_flush()
    }

    /// What was in flight when the rest was failed has its outcome.
    pub fn handle_dropped(&mut self) {
        self.dropping = None;
    }

    /// Sequences of all partitions start again at 0 under this identity.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` while batches sent under the old one have no outcome.
    pub fn handle_new_identity(&mut self, identity: Identity) -> Result<()> {
        let outstanding = |part: &super::Part| {
            part.flights.iter().any(|flight| !flight.given_up)
                || part.queue.front().is_some_and(|batch| batch.position.is_some())
        };
        if let Some(part) = self.parts.iter().find(|part| outstanding(part)) {
            return Err(Error::new(ErrorKind::InvalidRequest, "new producer identity")
                .with_partition(part.topic, part.index)
                .with_detail("batches of the old one have no outcome yet"));
        }
        self.identity = identity;
        for part in &mut self.parts {
            // What was given up is fenced by the new epoch; its answer tells nothing any more.
            part.flights.clear();
            part.sequences.restart(identity);
        }
        self.wake_all();
        Ok(())
    }

    /// An identity has come that the driver asked for.
    pub fn handle_identity(&mut self, identity: Identity) {
        if !self.identity.is_some() {
            self.identity = identity;
        }
        self.wake_all();
    }

    /// No identity can be had: everything fails with it. A later send asks again.
    pub fn handle_no_identity(&mut self, now: Instant, error: &Error) {
        for at in 0..self.parts.len() {
            let Some(part) = self.parts.get(at) else { break };
            let error = error.clone().with_partition(part.topic, part.index);
            self.fail_queue(now, at, &error);
        }
        let waiting: Vec<_> = self.topics.values_mut().flat_map(|topic| topic.waiting.drain(..)).collect();
        for waiting in waiting {
            self.used = self.used.saturating_sub(waiting.charge);
            let error = waiting.blame(error.clone());
            self.effects.placed.push((waiting.placement, Err(error)));
        }
        self.admit(now);
    }

    /// Whether brokers and partitions agree about sequences.
    pub fn is_in_sequence(&self) -> bool {
        self.parts.iter().all(|part| part.sequences.state() == State::Good)
    }

    /// The senders are gone, with the runtime they were on: what they had on the way is lost, and others are needed.
    pub fn handle_lost_senders(&mut self, now: Instant) {
        let lost = Error::new(ErrorKind::Closed, "produce").with_detail("the runtime has been shut down");
        self.nodes.clear();
        for at in 0..self.parts.len() {
            let Some(part) = self.parts.get_mut(at) else { break };
            let tickets: Vec<_> = part.flights.iter().map(|flight| (flight.node, flight.ticket)).collect();
            for (node, ticket) in tickets {
                let verdicts = vec![(at, ticket, super::Answer::Lost(lost.clone()))];
                self.handle_answers(now, node, verdicts, std::time::Duration::ZERO);
            }
            self.touch(at);
        }
    }

    /// Takes no more records; what is there goes without waiting.
    pub fn handle_close(&mut self) {
        self.closing = true;
        self.wake_all();
    }
}
