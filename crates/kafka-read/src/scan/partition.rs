//! One partition of a scan or tail: where it stands, whom it is read from, and what is on its way to the caller.
//! Pure.
//!
//! | stage | leaves by |
//! |---|---|
//! | `Resolving` | its bounds, or an error that no repetition cures |
//! | `Reading` | its end, an error; back to `Resolving` when the log changes while the last records are looked for |
//! | `Done` | never |
//!
//! While it reads it either counts (what comes tells where the last records begin, and is not handed over) or
//! hands over. `fetch` is the end of what was fetched, `position` the end of what has been worked on and queued.
//!
//! Invariants
//! - `ticket` rises whenever `fetch` moves by anything but an answer to it; what was asked for, or is being worked
//!   on, under an older one is dropped.
//! - `position <= fetch.offset`, and everything below `position` is in `items` or was handed over.
//! - While something is `pending` nothing is fetched; it is done when all that was fetched has been worked on, so
//!   that events stand in the order of the log.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kafka_meta::{Error, TopicName};

use super::last::Search;
use super::work::{Part, Piece};
use super::{Loss, ScanEvent};
use crate::fetch::{Asked, Leader, Pos, Retry, SHUN_FOR};

/// A topic made a moment ago is unknown to some brokers for tens of milliseconds, on loaded ones for longer.
pub(super) const ABSENT_FOR: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// `asked`: a look-up is under way.
    Resolving {
        asked: bool,
    },
    Reading,
    Done,
}

#[derive(Debug)]
pub(super) enum Phase {
    Counting(Search),
    /// So many records at the front are left out.
    Giving {
        skip: u64,
    },
}

/// What happens once all that was fetched has been worked on.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// The log's ends are looked up anew. `asked`: that is under way.
    Look {
        asked: bool,
    },
    Fail(Error),
}

/// What keeps a partition from getting on.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub since: Instant,
    pub reason: Reason,
}

#[derive(Clone, Debug)]
pub(super) enum Reason {
    Error(Error),
    /// Its leader answers that there is nothing, though the end is not reached.
    Nothing,
}

/// Metadata has no such partition. One broker may not know a new topic yet, so it is asked again, later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Absent {
    pub since: Instant,
    /// The second question is under way.
    pub asked: bool,
}

/// Something on its way to the caller, and what is charged for it.
#[derive(Debug)]
pub(super) struct Item {
    pub what: What,
    /// The answer it lies in.
    pub answer: Option<u64>,
    /// Bytes charged beside the answer.
    pub inflated: usize,
    /// Bytes of log that are handed over with it.
    pub bytes: usize,
}

#[derive(Debug)]
pub(super) enum What {
    Piece(Piece),
    Event(ScanEvent),
    Error(Error),
}

#[derive(Debug)]
pub(super) struct Partition {
    pub index: i32,
    pub stage: Stage,
    pub phase: Phase,
    /// Began to exist while a tail was running: read from its first record on.
    pub late: bool,
    pub ticket: u64,
    /// When it was last served, in fetches of the whole scan.
    pub served: u64,
    pub start: i64,
    pub position: i64,
    pub fetch: Pos,
    /// Where it ends; `None` goes on for ever.
    pub end: Option<i64>,
    /// The end of the log as last heard.
    pub log_end: i64,
    pub leader: Option<Leader>,
    /// A replica to read from until then (KIP-392).
    pub preferred: Option<(i32, Instant)>,
    pub shun: Option<Instant>,
    pub asked: Option<Asked>,
    pub retry: Retry,
    pub trouble: Option<Trouble>,
    /// The same cut head of a batch: (offset, bytes), and how often it came.
    pub cut: Option<((i64, usize), u32)>,
    pub doubted: Option<i64>,
    /// The headers fetched last end in damage: where to go on is known when that has been worked on.
    pub suspect: bool,
    pub pending: Option<Pending>,
    pub parts: VecDeque<Part>,
    /// A part is being worked on outside.
    pub working: bool,
    pub items: VecDeque<Item>,
    /// Bytes of log fetched and not handed over.
    pub queued: usize,
    pub records: u64,
    pub bytes: u64,
    /// Position and end as last told.
    told: Option<(i64, i64)>,
    pub absent: Option<Absent>,
}

impl Partition {
    pub(super) fn new(index: i32, late: bool) -> Self {
        Partition {
            index,
            stage: Stage::Resolving { asked: false },
            phase: Phase::Giving { skip: 0 },
            late,
            ticket: 0,
            served: 0,
            start: 0,
            position: 0,
            fetch: Pos::at(0),
            end: None,
            log_end: 0,
            leader: None,
            preferred: None,
            shun: None,
            asked: None,
            retry: Retry::default(),
            trouble: None,
            cut: None,
            doubted: None,
            suspect: false,
            pending: None,
            parts: VecDeque::new(),
            working: false,
            items: VecDeque::new(),
            queued: 0,
            records: 0,
            bytes: 0,
            told: None,
            absent: None,
        }
    }

    pub(super) fn is_reading(&self) -> bool {
        self.stage == Stage::Reading
    }

    /// Whether all that was fetched has been worked on.
    pub(super) fn is_settled(&self) -> bool {
        self.parts.is_empty() && !self.working
    }

    /// Where what is read now ends.
    pub(super) fn limit(&self) -> i64 {
        match &self.phase {
            Phase::Counting(search) => search.high(),
            Phase::Giving { .. } => self.end.unwrap_or(i64::MAX),
        }
    }

    /// Whether a fetch would bring what is wanted, back-off apart.
    pub(super) fn is_wanting(&self) -> bool {
        self.is_reading() && self.pending.is_none() && !self.suspect && self.fetch.offset < self.limit()
    }

    /// The node it is read from.
    pub(super) fn source(&self, now: Instant) -> Option<i32> {
        let leader = self.leader?;
        let preferred = self.preferred.filter(|(_, until)| *until > now);
        Some(preferred.map_or(leader.node, |(node, _)| node))
    }

    pub(super) fn shun_replica(&mut self, now: Instant) {
        if self.preferred.take().is_some() {
            self.shun = Some(now + SHUN_FOR);
        }
    }

    /// Fetches from another place: whatever was asked for or fetched beyond the position is dropped. The parts are
    /// returned, to be discharged.
    #[must_use]
    pub(super) fn jump(&mut self, to: Pos) -> VecDeque<Part> {
        self.ticket += 1;
        self.fetch = to;
        self.asked = None;
        self.cut = None;
        self.suspect = false;
        std::mem::take(&mut self.parts)
    }

    /// Remembers that it does not get on, since when and, as the newest reason, why.
    pub(super) fn suffer(&mut self, now: Instant, reason: Reason) {
        match &mut self.trouble {
            Some(trouble) => trouble.reason = reason,
            None => self.trouble = Some(Trouble { since: now, reason }),
        }
    }

    pub(super) fn push(&mut self, what: What) {
        self.items.push_back(Item { what, answer: None, inflated: 0, bytes: 0 });
    }

    pub(super) fn push_progress(&mut self, topic: TopicName) {
        let end = self.end.unwrap_or(self.log_end.max(self.position));
        if self.told == Some((self.position, end)) {
            return;
        }
        self.told = Some((self.position, end));
        self.push(What::Event(ScanEvent::Progress {
            topic,
            partition: self.index,
            start: self.start,
            position: self.position,
            end,
            records: self.records,
            bytes: self.bytes,
        }));
    }

    pub(super) fn push_lost(&mut self, topic: TopicName, offsets: std::ops::Range<i64>, loss: Loss) {
        let (partition, position) = (self.index, self.position);
        self.push(What::Event(ScanEvent::Lost { topic, partition, offsets, position, loss }));
    }

    /// It has been read to its end.
    #[must_use]
    pub(super) fn finish(&mut self, topic: TopicName) -> VecDeque<Part> {
        self.stage = Stage::Done;
        self.push_progress(topic);
        self.push(What::Event(ScanEvent::PartitionDone {
            topic,
            partition: self.index,
            position: self.position,
            records: self.records,
            bytes: self.bytes,
        }));
        self.jump(self.fetch)
    }

    /// It ends with an error.
    #[must_use]
    pub(super) fn fail(&mut self, error: Error) -> VecDeque<Part> {
        self.stage = Stage::Done;
        self.push(What::Error(error));
        self.jump(self.fetch)
    }
}
