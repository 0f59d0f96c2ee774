//! Turns the batches of one partition's answer into what its queue will hold. Pure, and run outside the lock:
//! checksums, the aborted-transaction filter, the walk over the records of batches that are not packed.
//!
//! Damage: a batch whose checksum fails has an untrusted header, so its end is not known. It is asked for once
//! more; when it comes back the same, the next batch whose own checksum is good goes on, else the claimed end,
//! never beyond the high watermark. A batch with a good checksum and bad records is passed over whole.

use bytes::Bytes;
use kafka_meta::wire::fetch::AbortedTransaction;
use kafka_meta::{Error, TopicName};
use kafka_read::Slice;
use kafka_read::batch::{self, AbortedFilter, BatchError, Codec, Damage, RawBatch, Verdict};
use tracing::warn;

use super::core::{Id, Settings};
use crate::buffer::Kind;
use crate::position::Pos;

/// One partition's part of an answer, to be checked.
#[derive(Debug)]
pub(crate) struct Work {
    pub id: Id,
    pub ticket: u64,
    pub seq: u64,
    pub answer: u64,
    /// Bytes of the answer it pins.
    pub bytes: usize,
    pub topic: TopicName,
    pub partition: i32,
    /// Where the fetch began.
    pub from: Pos,
    pub batches: Vec<RawBatch>,
    /// What ended the scan of the headers early.
    pub damage: Option<Damage>,
    pub records: Bytes,
    pub aborted: Vec<AbortedTransaction>,
    /// The batch at this offset has failed before.
    pub doubted: Option<i64>,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
}

/// What became of a [`Work`].
#[derive(Debug)]
pub(crate) struct Checked {
    pub id: Id,
    pub ticket: u64,
    pub seq: u64,
    pub answer: u64,
    pub bytes: usize,
    /// In order: bytes of the answer it pins, the offset after it, what it is.
    pub places: Vec<Place>,
    /// Damage: fetch from here instead of from where the headers led.
    pub refetch: Option<Refetch>,
    /// Batches passed over.
    pub skipped: u64,
}

#[derive(Debug)]
pub(crate) struct Place {
    pub bytes: usize,
    pub end: i64,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Refetch {
    pub at: Pos,
    /// The batch there has been found damaged and is asked for once more.
    pub doubted: bool,
}

/// See the module.
pub(crate) fn check(work: Work, settings: &Settings) -> Checked {
    let mut checker = Checker {
        filter: settings.committed_only.then(|| {
            AbortedFilter::new(
                work.aborted.iter().map(|aborted| (aborted.producer_id, aborted.first_offset)).collect(),
            )
        }),
        settings,
        pos: work.from,
        places: Vec::with_capacity(work.batches.len()),
        skipped: 0,
        work: &work,
    };
    let refetch = checker.run();
    let Checker { places, skipped, .. } = checker;
    Checked {
        id: work.id,
        ticket: work.ticket,
        seq: work.seq,
        answer: work.answer,
        bytes: work.bytes,
        places,
        refetch,
        skipped,
    }
}

struct Checker<'a> {
    settings: &'a Settings,
    filter: Option<AbortedFilter>,
    pos: Pos,
    places: Vec<Place>,
    skipped: u64,
    work: &'a Work,
}

impl Checker<'_> {
    fn run(&mut self) -> Option<Refetch> {
        for raw in &self.work.batches {
            match self.batch(raw) {
                Step::Next => {}
                Step::End => return None,
                Step::Damaged(what) => {
                    let position = raw.position_in(&self.work.records);
                    return self.damaged(position, Some(raw.header.next_offset()), &what);
                }
            }
        }
        let damage = self.work.damage.as_ref()?;
        self.damaged(damage.position, damage.claimed_next, &damage.what.to_string())
    }

    fn batch(&mut self, raw: &RawBatch) -> Step {
        let header = &raw.header;
        if header.next_offset() <= self.pos.offset {
            return Step::Next;
        }
        match raw.verify(self.settings.check_crcs) {
            Ok(()) => {}
            Err(BatchError::Damaged(what)) => return Step::Damaged(what.to_string()),
            Err(error) => return self.halt(raw, &error),
        }
        let next = Pos { offset: header.next_offset(), epoch: header.leader_epoch.or(self.pos.epoch) };
        let bytes = header.size;
        let hidden = match &mut self.filter {
            Some(filter) => filter.decide(header, || raw.control()) == Verdict::Skip,
            None => header.is_control(),
        };
        if hidden {
            self.pass(bytes, next);
            return Step::Next;
        }
        let packed = match header.codec() {
            Ok(codec) => codec != Codec::None,
            Err(id) => return self.halt(raw, &BatchError::UnsupportedCodec { id }),
        };
        if packed {
            let batch = raw.clone();
            let from = self.pos.offset;
            self.places.push(Place { bytes, end: next.offset, kind: Kind::Packed { batch, from } });
            self.pos = next;
            return Step::Next;
        }
        match raw.open(&self.settings.limits, self.pos.offset) {
            Ok(set) if set.is_empty() => self.pass(bytes, next),
            Ok(set) => {
                let slice = Slice {
                    topic: self.work.topic,
                    partition: self.work.partition,
                    ticket: self.work.ticket,
                    previous: self.pos.offset,
                    set,
                    next: next.offset,
                    next_epoch: next.epoch,
                    high_watermark: self.work.high_watermark,
                    last_stable_offset: self.work.last_stable_offset,
                    log_start_offset: self.work.log_start_offset,
                };
                self.places.push(Place { bytes, end: next.offset, kind: Kind::Ready(slice) });
            }
            Err(BatchError::Damaged(what)) => {
                self.skipped += 1;
                warn!(topic = %self.work.topic, partition = self.work.partition, offset = self.pos.offset,
                    next = next.offset, %what, "passed over a damaged batch");
                self.pass(bytes, next);
            }
            Err(error) => return self.halt(raw, &error),
        }
        self.pos = next;
        Step::Next
    }

    /// Offsets with nothing to hand out; neighbours become one place.
    fn pass(&mut self, bytes: usize, next: Pos) {
        self.pos = next;
        if let Some(last) = self.places.last_mut()
            && let Kind::Skip(to) = &mut last.kind
        {
            *to = next;
            last.end = next.offset;
            last.bytes += bytes;
            return;
        }
        self.places.push(Place { bytes, end: next.offset, kind: Kind::Skip(next) });
    }

    fn halt(&mut self, raw: &RawBatch, error: &BatchError) -> Step {
        let error = refusal(error, self.work.topic, self.work.partition, self.pos.offset);
        self.places.push(Place { bytes: raw.header.size, end: self.pos.offset, kind: Kind::Halt(error) });
        Step::End
    }

    /// Nothing is known of the batch at the present position but that it is damaged. Not its epoch either: said to
    /// be that of the batch before, a leader would answer that the log parts at the damage, and lead us back to it.
    fn damaged(&mut self, position: usize, claimed_next: Option<i64>, what: &str) -> Option<Refetch> {
        let at = self.pos;
        if self.work.doubted != Some(at.offset) {
            warn!(topic = %self.work.topic, partition = self.work.partition, offset = at.offset, what,
                "a damaged batch is asked for once more");
            return Some(Refetch { at, doubted: true });
        }
        self.skipped += 1;
        let to = batch::beyond_damage(
            &self.work.records,
            position,
            at.offset,
            claimed_next,
            self.work.high_watermark,
            &self.settings.limits,
        )
        .offset;
        self.report_skip(at.offset, to, what);
        self.pass(0, Pos::at(to));
        Some(Refetch { at: self.pos, doubted: false })
    }

    fn report_skip(&self, from: i64, to: i64, what: &str) {
        warn!(topic = %self.work.topic, partition = self.work.partition, from, to, what,
            "passed over a damaged batch");
    }
}

enum Step {
    Next,
    /// The partition stops here.
    End,
    Damaged(String),
}

/// The error of a batch that is sound but cannot be read with these settings.
pub(super) fn refusal(error: &BatchError, topic: TopicName, partition: i32, offset: i64) -> Error {
    error.to_error(topic, partition, offset)
}
