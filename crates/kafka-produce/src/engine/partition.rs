//! One partition: its batches, and whether the first may leave. Pure.
//!
//! `queue` holds what is to be sent, in the order the batches were begun: those to be sent again, then new ones, the last
//! of which may be open. `flights` holds what is on its way, in the same order. A flight that was given up has
//! its outcome and stays until its answer, which may tell what became of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_meta::client::Backoff;
use kafka_meta::{Error, TopicName};
use kafka_read::batch::write::BatchWriter;

use super::{Settings, Stamp};
use crate::delivery::Delivery;
use crate::producer_id::Identity;
use crate::sequence::{Sequences, State};

/// A batch's records.
#[derive(Debug)]
pub(crate) enum Content {
    Open(BatchWriter),
    /// With the driver.
    Away,
    /// Ready for the wire, under this stamp.
    Packed(Bytes, Stamp),
}

#[derive(Debug)]
pub(crate) struct Batch {
    /// When it was begun, in batches; parts of a split one share it.
    pub born: u64,
    /// Which of the delivery's records it holds.
    pub first: u32,
    pub count: u32,
    /// The delivery's records; not known while the batch is open.
    pub total: Option<u32>,
    pub delivery: Arc<Delivery>,
    pub content: Content,
    pub created: Instant,
    pub charge: usize,
    /// Bytes before packing.
    pub len: usize,
    /// Where its sequences begin, once it has been sent.
    pub position: Option<u64>,
    /// Which of the batches with sequences it is.
    pub ordinal: u64,
    pub attempts: u32,
    /// An attempt may have been written without an answer that says so.
    pub doubtful: bool,
    pub closed: bool,
    /// Goes without waiting for more.
    pub urgent: bool,
    pub last_error: Option<Error>,
}

impl Batch {
    pub fn key(&self) -> (u64, u32) {
        (self.born, self.first)
    }

    /// Whether it has been sent, or was about to be.
    pub fn is_again(&self) -> bool {
        self.position.is_some() || self.attempts > 0
    }
}

#[derive(Debug)]
pub(crate) struct Flight {
    pub ticket: u64,
    pub node: i32,
    pub batch: Batch,
    pub given_up: bool,
}

#[derive(Debug)]
pub(crate) struct Part {
    pub topic: TopicName,
    pub index: i32,
    pub leader: Option<i32>,
    pub queue: VecDeque<Batch>,
    pub flights: VecDeque<Flight>,
    pub sequences: Sequences,
    pub backoff: Backoff,
    pub not_before: Option<Instant>,
    /// How long the last batch became, to guess the next one's.
    pub last_len: usize,
    /// Whose sequences the brokers hold, and when they last said so.
    pub vouched: Option<(i64, Instant)>,
    /// In the list of the busy.
    pub busy: bool,
}

/// Whether the first batch may leave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Readiness {
    Now,
    At(Instant),
    /// Not before something else happens.
    No,
}

impl Part {
    pub fn new(topic: TopicName, index: i32, settings: &Settings) -> Part {
        Part {
            topic,
            index,
            leader: None,
            queue: VecDeque::new(),
            flights: VecDeque::new(),
            sequences: Sequences::new(),
            backoff: Backoff::new(settings.backoff.0, settings.backoff.1),
            not_before: None,
            last_len: 0,
            vouched: None,
            busy: false,
        }
    }

    /// Puts a batch back in its place.
    pub fn put_back(&mut self, batch: Batch) {
        let at = self.queue.iter().take_while(|other| other.key() < batch.key()).count();
        self.queue.insert(at, batch);
    }

    pub fn fly(&mut self, flight: Flight) {
        let at = self.flights.iter().take_while(|other| other.batch.key() < flight.batch.key()).count();
        self.flights.insert(at, flight);
    }

    pub fn land(&mut self, ticket: u64) -> Option<Flight> {
        let at = self.flights.iter().position(|flight| flight.ticket == ticket)?;
        self.flights.remove(at)
    }

    /// Whether something begun before `key` has been sent and has no answer that counts.
    pub fn is_behind(&self, key: (u64, u32)) -> bool {
        self.flights.front().is_some_and(|flight| flight.batch.key() < key)
            || self.queue.front().is_some_and(|batch| batch.is_again() && batch.key() < key)
    }

    /// Whether its sequences have to begin again, and may.
    pub fn is_to_restart(&self) -> bool {
        self.flights.is_empty()
            && match self.sequences.state() {
                State::Good => false,
                State::Gap => true,
                State::Unresolved => self.queue.front().is_none_or(|batch| batch.position.is_none()),
            }
    }

    /// Whether brokers are sure to hold this producer's last sequence. One that holds none, or has forgotten it,
    /// takes whatever comes first: the second batch, when the first is refused or lost. So the first goes alone.
    fn is_vouched(&self, now: Instant) -> bool {
        /// Well below any time brokers keep it (`producer.id.expiration.ms`, a day by default).
        const FRESH: Duration = Duration::from_secs(600);
        let fresh = |(id, at): (i64, Instant)| {
            id == self.sequences.identity.producer_id && now.saturating_duration_since(at) < FRESH
        };
        self.vouched.is_some_and(fresh)
    }

    /// Whether the first batch may leave for `node`; `hurry`: nothing waits for more records.
    pub fn readiness(
        &self,
        now: Instant,
        node: i32,
        settings: &Settings,
        identity: Identity,
        hurry: bool,
    ) -> Readiness {
        let Some(front) = self.queue.front() else { return Readiness::No };
        if self.sequences.state() == State::Gap || self.flights.iter().any(|flight| flight.node != node) {
            return Readiness::No;
        }
        let held = self.not_before.filter(|at| now < *at);
        if front.is_again() {
            let overtaken = self.flights.front().is_some_and(|flight| flight.batch.key() < front.key());
            // Without sequences nothing tells a broker which of two comes first.
            let alone = settings.idempotent || self.flights.is_empty();
            return match held {
                _ if overtaken || !alone => Readiness::No,
                Some(at) => Readiness::At(at),
                None => Readiness::Now,
            };
        }
        if self.flights.len() >= settings.max_in_flight
            || settings.idempotent && !self.flights.is_empty() && !self.is_vouched(now)
        {
            return Readiness::No;
        }
        // Brokers recognise the last five batches: the oldest without an answer has to stay among them.
        let oldest = self.flights.front().map_or(u64::MAX, |flight| flight.batch.ordinal);
        let ahead = self.sequences.taken().saturating_add(1).saturating_sub(oldest);
        if settings.idempotent && ahead >= u64::try_from(settings.max_in_flight).unwrap_or(1) {
            return Readiness::No;
        }
        if settings.idempotent
            && (self.sequences.state() == State::Unresolved
                || self.sequences.identity != identity && !self.flights.is_empty())
        {
            return Readiness::No;
        }
        let due = if front.closed || front.urgent || hurry || self.queue.len() > 1 {
            now
        } else {
            front.created + settings.linger
        };
        let at = held.map_or(due, |held| held.max(due));
        if at <= now { Readiness::Now } else { Readiness::At(at) }
    }
}
