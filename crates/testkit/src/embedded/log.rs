//! One partition's log: stored batches and everything a broker derives from them.
//!
//! Pure. The batches are the only source of truth: producer state, open and aborted transactions are derived
//! batch by batch and rebuilt from the start after a truncation or a compaction.
//!
//! Invariants: batches are sorted by base offset and do not overlap; `start <= end`; epoch entries rise in both
//! epoch and start offset. Segments are only as many as a test rolls; a read never crosses from one to the next.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::{Bytes, BytesMut};

use super::peek::{self, Facts};

/// Batches whose sequences are remembered per producer, as in Kafka.
const REMEMBERED: usize = 5;

/// One stored batch.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub facts: Facts,
    pub bytes: Bytes,
}

/// An aborted transaction of the log: `last` is the offset of its marker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aborted {
    pub producer_id: i64,
    pub first: i64,
    pub last: i64,
}

#[derive(Clone, Debug, Default)]
struct Producer {
    epoch: i16,
    /// First and last sequence and base offset of the last batches.
    recent: VecDeque<(i32, i32, i64)>,
}

/// What a read found: slices of stored batches, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Read {
    pub slices: Vec<Bytes>,
    pub size: usize,
    /// There is more behind the segment read from: a broker does not wait for more bytes then.
    pub older_segment: bool,
}

impl Read {
    pub fn concat(mut self) -> Bytes {
        if self.slices.len() == 1 {
            return self.slices.pop().unwrap_or_default();
        }
        let mut all = BytesMut::with_capacity(self.size);
        for slice in self.slices {
            all.extend_from_slice(&slice);
        }
        all.freeze()
    }
}

/// Whether an idempotent batch may be appended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sequenced {
    Fresh,
    /// Already stored at this base offset: answered like the first time.
    Duplicate(i64),
    Refused(i16),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    batches: Vec<Stored>,
    /// The topic wants the time of the append in its batches.
    pub stamps: bool,
    pub start: i64,
    pub end: i64,
    /// First offsets of the segments after the first one.
    segments: Vec<i64>,
    /// (epoch, first offset of it)
    pub epochs: Vec<(i32, i64)>,
    producers: HashMap<i64, Producer>,
    /// Producer id → first offset of its open transaction.
    open: BTreeMap<i64, i64>,
    aborted: Vec<Aborted>,
    /// (first offset, marker offset) of ended transactions: they count as open until the high watermark
    /// has passed the marker.
    ended: Vec<(i64, i64)>,
}

impl Log {
    pub fn latest_epoch(&self) -> i32 {
        self.epochs.last().map_or(-1, |(epoch, _)| *epoch)
    }

    pub fn batches(&self) -> &[Stored] {
        &self.batches
    }

    /// Notes that `epoch` starts at the log's end.
    pub fn begin_epoch(&mut self, epoch: i32) {
        if epoch > self.latest_epoch() {
            // An epoch that never wrote anything leaves no trace in Kafka's cache either.
            while self.epochs.last().is_some_and(|(_, first)| *first >= self.end) {
                self.epochs.pop();
            }
            self.epochs.push((epoch, self.end));
        }
    }

    /// Appends every whole batch of `data` at the end; the offset of the first.
    pub fn append(&mut self, data: &Bytes, epoch: i32, now_ms: i64) -> Option<i64> {
        let mut rest = data.clone();
        let first = self.end;
        let mut any = false;
        while let Some((facts, bytes)) = peek::split_batch(&mut rest) {
            // v0/v1 messages come with offsets relative to the append; each v2 batch starts at the end.
            let base = if facts.magic >= 2 { self.end } else { first.checked_add(facts.base)? };
            let moved = peek::place(&bytes, base, epoch, self.stamps.then_some(now_ms));
            let (placed, _) = peek::split_batch(&mut moved.clone())?;
            self.store(Stored { facts: placed, bytes: moved });
            any = true;
        }
        (any && rest.is_empty()).then_some(first)
    }

    /// Stores bytes as they are, claiming the offsets up to `next`: for damaged batches.
    pub fn append_raw(&mut self, bytes: Bytes, next: i64) -> i64 {
        let base = self.end;
        let next = next.max(base.saturating_add(1));
        let facts = Facts {
            base,
            last: next.saturating_sub(1),
            magic: 0,
            epoch: self.latest_epoch(),
            attributes: 0,
            max_timestamp: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            count: 0,
        };
        self.store(Stored { facts, bytes });
        base
    }

    /// Begins a new segment at the log's end.
    pub fn roll(&mut self) {
        self.segments.push(self.end);
    }

    /// Where the segment that holds `offset` ends, at most `upper`.
    pub fn segment_end(&self, offset: i64, upper: i64) -> i64 {
        self.segments.iter().copied().find(|first| *first > offset).map_or(upper, |first| first.min(upper))
    }

    fn store(&mut self, stored: Stored) {
        self.end = self.end.max(stored.facts.last.saturating_add(1));
        self.derive(&stored);
        self.batches.push(stored);
    }

    fn derive(&mut self, stored: &Stored) {
        let facts = stored.facts;
        if facts.producer_id < 0 {
            return;
        }
        let producer = self.producers.entry(facts.producer_id).or_default();
        if facts.is_control() {
            if producer.epoch != facts.producer_epoch {
                // The marker carries a new epoch: sequences start again.
                producer.epoch = facts.producer_epoch;
                producer.recent.clear();
            }
            if let Some(first) = self.open.remove(&facts.producer_id) {
                self.ended.push((first, facts.base));
                if peek::aborts(&stored.bytes) {
                    self.aborted.push(Aborted { producer_id: facts.producer_id, first, last: facts.base });
                }
            }
            return;
        }
        if producer.epoch != facts.producer_epoch {
            producer.recent.clear();
            producer.epoch = facts.producer_epoch;
        }
        if facts.base_sequence >= 0 {
            let last = last_sequence(facts.base_sequence, facts.last.saturating_sub(facts.base));
            producer.recent.push_back((facts.base_sequence, last, facts.base));
            if producer.recent.len() > REMEMBERED {
                producer.recent.pop_front();
            }
        }
        if facts.is_transactional() {
            self.open.entry(facts.producer_id).or_insert(facts.base);
        }
    }

    fn rebuild(&mut self) {
        self.producers.clear();
        self.open.clear();
        self.aborted.clear();
        self.ended.clear();
        let batches = std::mem::take(&mut self.batches);
        for stored in &batches {
            self.derive(stored);
        }
        self.batches = batches;
    }

    /// Drops everything at and above `to`; a batch that crosses it goes whole, as in Kafka.
    pub fn truncate(&mut self, to: i64) {
        self.batches.retain(|stored| stored.facts.last < to);
        self.end = to.clamp(self.start, self.end);
        let end = self.end;
        self.segments.retain(|first| *first <= end);
        self.epochs.retain(|(_, first)| *first < end);
        self.rebuild();
    }

    /// Raises the log start; batches wholly below it are dropped.
    pub fn delete_before(&mut self, before: i64) {
        self.start = before.clamp(self.start, self.end);
        let start = self.start;
        self.batches.retain(|stored| stored.facts.last >= start);
        self.aborted.retain(|aborted| aborted.last >= start);
    }

    /// Replaces the batches of the offsets `[from, to)` by `with` (already placed): what compaction does.
    pub fn replace(&mut self, from: i64, to: i64, with: &Bytes) {
        self.batches.retain(|stored| stored.facts.last < from || stored.facts.base >= to);
        let mut rest = with.clone();
        while let Some((facts, bytes)) = peek::split_batch(&mut rest) {
            self.batches.push(Stored { facts, bytes });
        }
        self.batches.sort_by_key(|stored| stored.facts.base);
        self.rebuild();
    }

    /// The last stable offset under this high watermark.
    pub fn stable(&self, high_watermark: i64) -> i64 {
        let open = self.open.values().copied();
        let unreplicated =
            self.ended.iter().filter(|(_, marker)| *marker >= high_watermark).map(|(first, _)| *first);
        open.chain(unreplicated).min().map_or(high_watermark, |first| first.min(high_watermark))
    }

    /// Aborted transactions that touch `[from, to)`.
    pub fn aborted(&self, from: i64, to: i64) -> impl Iterator<Item = &Aborted> {
        self.aborted.iter().filter(move |aborted| aborted.last >= from && aborted.first < to)
    }

    /// Reads whole batches from the one that holds `from`, below `upper`, cut at `max_bytes`. With `whole_first`
    /// the first batch comes whole however large; without it a first batch that does not fit gives nothing.
    pub fn read(&self, from: i64, upper: i64, max_bytes: usize, whole_first: bool) -> Read {
        let end = self.segment_end(from, upper);
        let mut read = Read { older_segment: end < upper, ..Read::default() };
        let upper = end;
        let first = self.batches.partition_point(|stored| stored.facts.last < from);
        for stored in self.batches.get(first..).unwrap_or_default() {
            if stored.facts.base >= upper {
                break;
            }
            let left = max_bytes.saturating_sub(read.size);
            if read.slices.is_empty() && stored.bytes.len() > left {
                if whole_first {
                    read.size = stored.bytes.len();
                    read.slices.push(stored.bytes.clone());
                }
                break;
            }
            let take = stored.bytes.len().min(left);
            if take == 0 {
                break;
            }
            read.size += take;
            read.slices.push(stored.bytes.slice(..take));
            if take < stored.bytes.len() {
                break;
            }
        }
        read
    }

    /// Kafka's answer to "where does this epoch end": (largest epoch at or below it, its end offset).
    pub fn epoch_end(&self, epoch: i32) -> (i32, i64) {
        if epoch < 0 || self.epochs.is_empty() {
            return (-1, -1);
        }
        if epoch == self.latest_epoch() {
            return (epoch, self.end);
        }
        let above = self.epochs.partition_point(|(known, _)| *known <= epoch);
        let Some((_, end)) = self.epochs.get(above) else { return (-1, -1) };
        match above.checked_sub(1).and_then(|below| self.epochs.get(below)) {
            Some((known, _)) => (*known, *end),
            None => (epoch, *end),
        }
    }

    /// The epoch of the offset, −1 when unknown.
    pub fn epoch_at(&self, offset: i64) -> i32 {
        let above = self.epochs.partition_point(|(_, first)| *first <= offset);
        above.checked_sub(1).and_then(|below| self.epochs.get(below)).map_or(-1, |(epoch, _)| *epoch)
    }

    /// Whether this producer's transaction has written here and not ended.
    pub fn is_open(&self, producer_id: i64, epoch: i16) -> bool {
        self.open.contains_key(&producer_id)
            && self.producers.get(&producer_id).is_some_and(|known| known.epoch == epoch)
    }

    /// Checks an idempotent batch against what is stored.
    pub fn sequenced(&self, facts: &Facts) -> Sequenced {
        let Some(producer) = self.producers.get(&facts.producer_id) else { return Sequenced::Fresh };
        if facts.producer_epoch < producer.epoch {
            return Sequenced::Refused(47);
        }
        if facts.producer_epoch > producer.epoch {
            return if facts.base_sequence == 0 { Sequenced::Fresh } else { Sequenced::Refused(45) };
        }
        let last = last_sequence(facts.base_sequence, facts.last.saturating_sub(facts.base));
        let same = producer.recent.iter().find(|(from, to, _)| *from == facts.base_sequence && *to == last);
        if let Some((_, _, base)) = same {
            return Sequenced::Duplicate(*base);
        }
        match producer.recent.back() {
            None if facts.base_sequence == 0 => Sequenced::Fresh,
            None => Sequenced::Refused(45),
            Some((_, seen, _)) if facts.base_sequence == last_sequence(*seen, 1) => Sequenced::Fresh,
            Some(_) => Sequenced::Refused(45),
        }
    }
}

/// Sequences wrap to 0 after the largest `i32`.
fn last_sequence(first: i32, more: i64) -> i32 {
    let sum = (i64::from(first).saturating_add(more)) & i64::from(i32::MAX);
    i32::try_from(sum).unwrap_or(0)
}
