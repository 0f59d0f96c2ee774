//! One partition's positions, and what keeps it from being fetched. Pure.
//!
//! Two positions: **consumed** is what `poll` has handed out and what a commit stores; **fetch** is the end of
//! what has been fetched, the buffer's tail. Both are the offset of the next record, with the leader epoch of
//! the batch before it.
//!
//! | state | fetch position | leaves by |
//! |---|---|---|
//! | `Seeking` | none yet: a look-up is due or in flight | the look-up's answer, a seek |
//! | `Fetching` | known | out of range, divergence (→ `Seeking` or `Stopped`), a seek |
//! | `Stopped` | kept where it stopped | a seek, a new assignment |
//!
//! There is no state that waits for a validation round trip after a leader change: every fetch carries the
//! epoch of the last record fetched, and the new leader answers a position it does not have with the offset
//! where the logs part (KIP-595), which costs nothing while they agree.
//!
//! Invariants
//! - `ticket` rises with every seek, reset, truncation and (re)assignment; whatever was asked or buffered under
//!   an older ticket is dropped, on arrival and on delivery.
//! - The consumed position is never ahead of what was handed out or proven to hold nothing to hand out.
//! - With an empty queue and no jump pending, the two positions are equal.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use kafka_meta::{Error, TopicName};
use kafka_read::Slice;
use kafka_read::fetch::SHUN_FOR;
pub(crate) use kafka_read::fetch::{Asked, Leader, Pos, Retry};
use uuid::Uuid;

use crate::buffer::Queue;
use crate::config::Position;

/// How long a stopped partition's error stays unspoken before `poll` returns it again.
pub(crate) const REMIND_AFTER: Duration = Duration::from_secs(60);

/// What a look-up has to find out before the partition can be fetched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    /// The group's committed offset, else the position inside; without one, the reset policy decides.
    Committed(Option<Box<Position>>),
    /// Start of the log.
    Earliest,
    /// End of the log.
    Latest,
    /// First record at or after this time; the log end if there is none.
    Timestamp(i64),
    /// First record no older than this; the wall clock is read when the question is asked.
    Age(Duration),
}

/// Why a partition is being looked up; decides the error when no policy applies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Why {
    /// The caller said where to start.
    Asked,
    /// Its offset was outside the log, or there was none.
    Reset,
}

#[derive(Debug)]
pub(crate) enum State {
    Seeking { target: Target, why: Why },
    Fetching,
    Stopped,
}

/// A fault that poll tells the caller, once and then every [`REMIND_AFTER`].
#[derive(Debug)]
pub(crate) struct Fault {
    pub error: Error,
    /// When poll returns it next; `None` for one that is told once and then retried in silence.
    pub tell_at: Option<Instant>,
}

/// A replica the leader sent us to (KIP-392), until the lease ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preferred {
    pub node: i32,
    pub until: Instant,
}

/// The cluster does not know the partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absent {
    pub since: Instant,
    pub told: bool,
    /// When to have metadata asked for again.
    pub ask_at: Instant,
}

/// Where a stream stands inside the records it has taken; written per record, read by positions and commits.
///
/// One word holds the offset and, as its sign, whether the lease is over: so the stream can claim a record and
/// the engine can end the lease from another thread, and both agree on which came first. With two words a record
/// could be yielded just after the engine had read the position to go on from, and would come twice.
#[derive(Debug)]
pub(crate) struct Lease(AtomicI64);

/// Offsets are never negative.
const OVER: i64 = i64::MIN;

impl Lease {
    pub fn new(offset: i64) -> Self {
        Lease(AtomicI64::new(offset))
    }

    /// Moves from one offset to the next; false when the lease is over, and the record must not be yielded.
    #[inline]
    pub fn advance(&self, from: i64, to: i64) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub fn offset(&self) -> i64 {
        self.0.load(Ordering::Acquire) & !OVER
    }

    /// Ends the lease, for a seek, a new assignment or a pause: what the stream still holds must not be yielded.
    /// Answers where it stood.
    fn end(&self) -> i64 {
        self.0.fetch_or(OVER, Ordering::AcqRel) & !OVER
    }
}

/// Everything known about one assigned partition; dropped whole when it leaves the assignment.
#[derive(Debug)]
pub(crate) struct Partition {
    pub topic: TopicName,
    pub index: i32,
    pub topic_id: Uuid,
    pub ticket: u64,
    pub state: State,
    pub paused: bool,
    /// Handed over by a rebalance that has not been told to the listener yet: neither looked up nor fetched.
    pub held: bool,
    pub consumed: Option<Pos>,
    pub fetch: Option<Pos>,
    /// Where reading began: the assignment's position, or the last seek's. Where to go back to when nothing has been
    /// committed since.
    pub origin: Option<Pos>,
    pub leader: Option<Leader>,
    pub preferred: Option<Preferred>,
    /// Until then the leader is asked without a rack, so that it does not send us to a replica that failed.
    pub shun: Option<Instant>,
    pub asked: Option<Asked>,
    /// The look-up in flight that counts.
    pub looking: Option<u64>,
    pub retry: Retry,
    pub fault: Option<Fault>,
    pub high_watermark: Option<i64>,
    pub last_stable_offset: Option<i64>,
    pub log_start: Option<i64>,
    /// The end of the log known first after the assignment, for `caught_up`.
    pub end_at_start: Option<i64>,
    pub queue: Queue,
    /// Over its high mark and not yet below the low one.
    pub full: bool,
    /// In the ring of partitions with something to hand out.
    pub in_ring: bool,
    /// In the ring of partitions with something to inflate.
    pub inflating: bool,
    /// When it last gave records or an error, in fetches: the lowest goes first.
    pub served: u64,
    /// The offset and length of an answer that held nothing but the head of a batch, and how often it came.
    pub tail: Option<((i64, usize), u32)>,
    /// A batch at this offset failed its checksum once and has been asked for again.
    pub doubted: Option<i64>,
    pub lease: Option<Arc<Lease>>,
    /// Metadata does not know the partition.
    pub absent: Option<Absent>,
    /// The leader epoch of the batch the lease walks through.
    pub lease_epoch: Option<i32>,
    /// The position after that batch.
    pub lease_end: Pos,
    /// The position after what was handed out last and not given back; markers passed since do not count.
    pub handed: Option<i64>,
    /// Resets since records last came: a log that refuses where it begins must not spin us.
    pub strays: Retry,
}

impl Partition {
    pub fn new(topic: TopicName, index: i32, ticket: u64) -> Self {
        Partition {
            topic,
            index,
            topic_id: Uuid::nil(),
            ticket,
            state: State::Stopped,
            paused: false,
            held: false,
            consumed: None,
            fetch: None,
            origin: None,
            leader: None,
            preferred: None,
            shun: None,
            asked: None,
            looking: None,
            retry: Retry::default(),
            fault: None,
            high_watermark: None,
            last_stable_offset: None,
            log_start: None,
            end_at_start: None,
            queue: Queue::default(),
            full: false,
            in_ring: false,
            inflating: false,
            served: 0,
            tail: None,
            doubted: None,
            lease: None,
            lease_epoch: None,
            absent: None,
            lease_end: Pos::at(0),
            handed: None,
            strays: Retry::default(),
        }
    }

    /// The consumed position; inside a stream's lease, the record it has yielded last.
    pub fn position(&self) -> Option<Pos> {
        let consumed = self.consumed?;
        match &self.lease {
            Some(lease) if lease.offset() > consumed.offset => {
                Some(Pos { offset: lease.offset(), epoch: self.lease_epoch.or(consumed.epoch) })
            }
            _ => Some(consumed),
        }
    }

    /// Everything asked or buffered so far is void; what it buffered is handed back to be un-charged.
    pub fn renew(&mut self, ticket: u64) -> Queue {
        self.ticket = ticket;
        self.asked = None;
        self.looking = None;
        self.full = false;
        self.inflating = false;
        self.doubted = None;
        self.handed = None;
        self.end_lease();
        std::mem::take(&mut self.queue)
    }

    /// Ends a stream's lease where it stands: what it has not yielded is to be read again.
    pub fn end_lease(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let offset = lease.end();
        if let Some(consumed) = self.consumed.filter(|consumed| offset > consumed.offset) {
            self.consumed = Some(Pos { offset, epoch: self.lease_epoch.or(consumed.epoch) });
        }
    }

    /// The records of `slice` are handed out.
    pub fn consume(&mut self, slice: &Slice) {
        self.consumed = Some(Pos { offset: slice.next, epoch: slice.next_epoch });
    }

    /// The position after everything handed out or lent.
    pub fn lent(&self) -> Option<Pos> {
        if self.lease.is_some() { Some(self.lease_end) } else { self.consumed }
    }

    /// Nothing is buffered or lent.
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.lease.is_none()
    }

    /// Whether anything but back-off and the buffer keeps it from being fetched.
    pub fn is_fetchable(&self) -> bool {
        matches!(self.state, State::Fetching) && !self.paused && !self.held && self.fetch.is_some()
    }

    /// The replica to ask: the preferred one while its lease lasts, else the leader.
    pub fn source(&self, now: Instant) -> Option<i32> {
        match self.preferred {
            Some(preferred) if now < preferred.until => Some(preferred.node),
            _ => self.leader.map(|leader| leader.node),
        }
    }

    /// The preferred replica failed: back to the leader, and no redirect for a while.
    pub fn shun_replica(&mut self, now: Instant) {
        if self.preferred.take().is_some() {
            self.shun = Some(now + SHUN_FOR);
        }
    }

    /// The end of the log for this reader.
    pub fn end(&self, committed_only: bool) -> Option<i64> {
        if committed_only { self.last_stable_offset.or(self.high_watermark) } else { self.high_watermark }
    }
}
