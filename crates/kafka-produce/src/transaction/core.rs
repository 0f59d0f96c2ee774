//! The transactions of one transactional id as a state machine. Pure: time and randomness come in as arguments,
//! requests come out as values.
//!
//! What it is not: it moves no records. It tells the sender which batches may leave ([`Core::admit`]), and is told
//! which of them failed ([`Core::batch_failed`]).
//!
//! States
//! ```text
//! Uninitialized → Initializing → Ready → InTransaction ─ commit → Committing → Ready
//!                                           │  │ a batch or the offsets failed   │ aborted by the coordinator
//!                                    abort  │  └──→ AbortableError ←─────────────┘
//!                                           └──→ Aborting ←─┘ abort → Ready
//! any → Fatal: somebody else has the transactional id, or how the transaction ended cannot be known
//! ```
//! An end has stages: settle (the sender flushes, or drops what was not sent and waits for the rest), end (EndTxn),
//! bump (version 1 only, where sequences or requests are in doubt: InitProducerId with the present identity), adopt
//! (the sender takes the new identity over).
//!
//! Version 2 of the transaction protocol is chosen when an identity is obtained and kept: both versions are
//! understood by every broker that finalizes version 2, so a transaction never changes horses.
//!
//! Invariants
//! - Nothing is decided by a call's future or its end. A call raises the horizon up to which requests are repeated;
//!   past it, what is undecided stays undecided until the next call asks.
//! - EndTxn(commit) is asked only when every batch and every offset of the transaction has been acknowledged, and
//!   once it has been asked the opposite never is before its outcome is known.
//! - EndTxn is asked exactly if anything may belong to the transaction (`touched`).
//! - At most one request is in flight to the transaction's coordinator, and one to a group's.
//! - InitProducerId with the present identity is asked only when no transaction can be open: in an open one it would
//!   abort it, and brokers up to 4.0 then refuse the very producer that asked (90). That is left to one case, a
//!   request of version 1 that arrives after the end of its transaction and opens another. Even then a 90 is final:
//!   nothing tells it from a rightful successor's fence, and taking the id anew with (-1, -1) would fence that one.
//! - An answer carries the ticket of its request; others are dropped.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use kafka_meta::client::Backoff;
use kafka_meta::{CommittedOffset, Error, ErrorKind, GroupMetadata, Result, TopicName};

use super::Admit;
use super::codes;
use crate::producer_id::Identity;

mod answers;
pub(super) mod calls;
mod output;

pub(super) use answers::Answer;
pub(super) use output::{Ask, Output, Plan};

pub(super) type Place = (TopicName, i32);

/// The newest Produce version that leaves the transaction's partitions to AddPartitionsToTxn.
const PRODUCE_V1: i16 = 11;
/// First and longest pause after a failure that passes by itself.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The same while markers are written, which takes milliseconds.
const BUSY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// Ended transactions whose outcome a caller may still ask for.
const REMEMBERED: usize = 8;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Uninitialized,
    Initializing,
    Ready,
    InTransaction,
    Committing,
    Aborting,
    AbortableError,
    Fatal,
}

/// How a transaction is being ended.
#[derive(Debug)]
struct Ending {
    commit: bool,
    stage: Stage,
    /// EndTxn has been sent at least once.
    asked: bool,
    /// What unsent batches fail with.
    reason: Option<Error>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// The sender has to be told, under this ticket once it has been.
    Settle(Option<u64>),
    /// The sender is done.
    Settled,
    End,
    Bump,
    Adopt(Identity),
}

/// Offsets that a caller wants in the transaction.
#[derive(Debug)]
struct OffsetCall {
    id: u64,
    group: GroupMetadata,
    left: BTreeMap<Place, CommittedOffset>,
    /// Nobody waits for the result.
    forgotten: bool,
}

/// A stream of requests, one at a time.
#[derive(Debug)]
struct Line {
    in_flight: Option<(u64, Ask)>,
    backoff: Backoff,
    busy: Backoff,
    not_before: Option<Instant>,
}

impl Line {
    fn new() -> Self {
        let backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
        Line { in_flight: None, backoff, busy: Backoff::new(BUSY.0, BUSY.1), not_before: None }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.in_flight.is_none() && self.not_before.is_none_or(|at| at <= now)
    }

    fn succeed(&mut self) {
        self.backoff.reset();
        self.busy.reset();
        self.not_before = None;
    }
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    number: u64,
    committed: bool,
    /// A caller has been told.
    reported: bool,
}

#[derive(Debug)]
pub(super) struct Core {
    state: State,
    /// Why it is in `AbortableError` or `Fatal`.
    cause: Option<Error>,
    identity: Identity,
    v2: bool,
    /// Of the transaction, from 1.
    number: u64,
    /// Version 1: partitions a batch waits for, and those the coordinator knows.
    wanted: BTreeSet<Place>,
    added: HashSet<Place>,
    groups: HashSet<String>,
    /// Something may belong to the transaction.
    touched: bool,
    /// Sequences or requests sent are in doubt: under version 1 the epoch has to be raised before the next one.
    doubtful: bool,
    offsets: VecDeque<OffsetCall>,
    finished: HashMap<u64, Result<()>>,
    ending: Option<Ending>,
    outcomes: VecDeque<Outcome>,
    horizon: Option<Instant>,
    /// To the transaction's coordinator.
    line: Line,
    /// To a group's coordinator.
    group_line: Line,
    adopt_after: Option<Instant>,
    tickets: u64,
    /// The last failure that passes by itself: what a call that runs out of time was waiting for.
    last: Option<Error>,
    wake: bool,
    closed: bool,
}

impl Core {
    pub fn new() -> Self {
        Core {
            state: State::Uninitialized,
            cause: None,
            identity: Identity::NONE,
            v2: false,
            number: 0,
            wanted: BTreeSet::new(),
            added: HashSet::new(),
            groups: HashSet::new(),
            touched: false,
            doubtful: false,
            offsets: VecDeque::new(),
            finished: HashMap::new(),
            ending: None,
            outcomes: VecDeque::new(),
            horizon: None,
            line: Line::new(),
            group_line: Line::new(),
            adopt_after: None,
            tickets: 0,
            last: None,
            wake: false,
            closed: false,
        }
    }

    #[cfg(test)]
    pub fn state(&self) -> State {
        self.state
    }

    fn ticket(&mut self) -> u64 {
        self.tickets = self.tickets.wrapping_add(1);
        self.tickets
    }

    /// Whether the next transaction may begin.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Whether a record may be queued.
    pub fn may_send(&self) -> Result<()> {
        const OPERATION: &str = "send";
        match self.state {
            State::InTransaction => Ok(()),
            State::AbortableError | State::Fatal => Err(self.refusal(OPERATION)),
            State::Uninitialized | State::Initializing | State::Ready => {
                Err(misuse(OPERATION, "no transaction is open: begin one first"))
            }
            State::Committing => Err(misuse(OPERATION, "the transaction is being committed")),
            State::Aborting => Err(misuse(OPERATION, "the transaction is being aborted")),
        }
    }

    /// Whether a batch may leave. One that waits is looked at again when the sender is woken.
    pub fn admit(&mut self, topic: TopicName, partition: i32) -> Admit {
        match self.state {
            State::InTransaction | State::Committing => {}
            State::AbortableError | State::Fatal => return Admit::No(self.refusal("send")),
            _ => return Admit::No(misuse("send", "its transaction has ended")),
        }
        if self.v2 {
            self.touched = true;
            return Admit::Go { max_produce_version: i16::MAX, transactional: true };
        }
        let place = (topic, partition);
        if self.added.contains(&place) {
            return Admit::Go { max_produce_version: PRODUCE_V1, transactional: true };
        }
        self.wanted.insert(place);
        Admit::Wait
    }

    /// A batch of the transaction is lost, or its fate unknown for good.
    pub fn batch_failed(&mut self, error: &Error) {
        let settling = self.ending.as_ref().is_some_and(|ending| !ending.asked);
        match self.state {
            State::InTransaction => self.give_up(error.clone()),
            State::Committing if settling => self.give_up(error.clone()),
            _ => {}
        }
    }

    /// The transaction can only be aborted.
    fn give_up(&mut self, cause: Error) {
        tracing::debug!(error = %cause, "the transaction has to be aborted");
        self.state = State::AbortableError;
        self.ending = None;
        self.drop_work(cause);
    }

    /// The producer can do nothing more.
    fn fail(&mut self, cause: Error) {
        tracing::warn!(error = %cause, "the transactional producer cannot go on");
        self.state = State::Fatal;
        self.ending = None;
        self.drop_work(cause);
    }

    fn drop_work(&mut self, cause: Error) {
        self.cause = Some(cause);
        self.wanted.clear();
        // Batches that wait have to be told.
        self.wake = true;
        let refusal = self.refusal(calls::SEND_OFFSETS);
        self.finish_offsets(&refusal);
    }

    fn finish_offsets(&mut self, error: &Error) {
        for call in std::mem::take(&mut self.offsets) {
            if !call.forgotten {
                self.finished.insert(call.id, Err(error.clone()));
            }
        }
    }

    /// What a call is told in `AbortableError` and `Fatal`: the cause, and what may be done about it.
    fn refusal(&self, operation: &'static str) -> Error {
        let Some(cause) = &self.cause else { return misuse(operation, "the producer has failed") };
        let mut error = Error::new(cause.kind(), operation).with_source(cause.clone());
        error = match (cause.topic(), cause.partition()) {
            (Some(topic), Some(partition)) => error.with_partition(topic, partition),
            (Some(topic), None) => error.with_topic(topic),
            _ => error,
        };
        if let Some(group) = cause.group() {
            error = error.with_group(group);
        }
        if self.state == State::Fatal { error.with_fatal() } else { error.with_abort_needed() }
    }

    /// What a call is told that ran out of time. Nothing is decided by that.
    pub fn timed_out(&self, operation: &'static str) -> Error {
        let error = Error::new(ErrorKind::Timeout, operation);
        match &self.last {
            Some(last) => error.with_source(last.clone()),
            None => error.with_detail("the records of the transaction have not been acknowledged yet"),
        }
    }

    /// The outcome of the present transaction is known.
    fn decide(&mut self, committed: bool) {
        if self.outcomes.len() >= REMEMBERED {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(Outcome { number: self.number, committed, reported: false });
    }

    fn decided(&self) -> Option<Outcome> {
        self.outcomes.back().copied().filter(|outcome| outcome.number == self.number)
    }

    /// Ready for the next transaction.
    fn finish(&mut self) {
        self.state = State::Ready;
        self.cause = None;
        self.ending = None;
        self.wanted.clear();
        self.added.clear();
        self.groups.clear();
        self.touched = false;
        self.doubtful = false;
        self.last = None;
    }

    fn note_passing(&mut self, error: Error) {
        let before = self.last.take();
        self.last = Some(codes::more_telling(before, error));
    }
}

/// A call that cannot be right at this moment.
fn misuse(operation: &'static str, why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidRequest, operation).with_detail(why)
}
