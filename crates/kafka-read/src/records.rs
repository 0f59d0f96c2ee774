//! What a poll hands over: records of several batches, in order.
//!
//! A [`Records`] is a list of [`Slice`]s, each a checked stretch of one batch with the position after it. No slice
//! is empty, so `len` is the sum of theirs and iteration cannot fail. A slice cut short gets a `next` of its own:
//! the offset after its last record; the rest keeps the batch's.

use std::vec;

use kafka_meta::TopicName;

use crate::batch::RecordSet;
use crate::batch::{Cursor, RawRecord};
use crate::{Record, RecordRef};

/// A stretch of one batch of one partition.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// The owner's mark of the assignment and position it was read for.
    pub ticket: u64,
    /// Where the slice handed out before it ended, or what was read of this one: what the owner compares when it
    /// is given back.
    pub previous: i64,
    /// The records.
    pub set: RecordSet,
    /// The position after this slice.
    pub next: i64,
    /// Leader epoch that goes with `next`.
    pub next_epoch: Option<i32>,
    /// The partition's high watermark when this was fetched.
    pub high_watermark: i64,
    /// The partition's last stable offset when this was fetched.
    pub last_stable_offset: i64,
    /// The first offset of the partition's log when this was fetched.
    pub log_start_offset: i64,
}

impl Slice {
    /// Takes the first `n` records off, as a slice of its own. With `n` at or beyond the end this slice is left
    /// empty, and the front has its `next`.
    pub fn split_to(&mut self, n: usize) -> Slice {
        let whole = n >= self.set.len();
        let set = self.set.split_to(n);
        let mut front = Slice { set, ..*self };
        if !whole {
            front.next = match front.set.last_offset() {
                Some(last) => last.saturating_add(1),
                None => self.set.first_offset().unwrap_or(self.next),
            };
            front.next_epoch = front.set.leader_epoch();
            self.previous = front.next;
        }
        front
    }

    #[inline(always)]
    fn record<'a>(&self, raw: RawRecord<'a>) -> RecordRef<'a> {
        RecordRef {
            topic: self.topic,
            partition: self.partition,
            leader_epoch: self.set.leader_epoch(),
            offset: raw.offset,
            timestamp: raw.timestamp,
            key: raw.key,
            value: raw.value,
            headers: raw.headers,
        }
    }
}

/// The records of one poll, in partition order; may be empty.
#[derive(Clone, Debug, Default)]
pub struct Records {
    slices: Vec<Slice>,
    len: usize,
}

impl Records {
    /// From slices in the order to be read; empty ones are dropped.
    #[doc(hidden)]
    pub fn from_slices(mut slices: Vec<Slice>) -> Records {
        slices.retain(|slice| !slice.set.is_empty());
        let len = slices.iter().map(|slice| slice.set.len()).sum();
        Records { slices, len }
    }

    /// The slices, none of them empty.
    #[doc(hidden)]
    pub fn into_slices(self) -> Vec<Slice> {
        self.slices
    }

    /// How many records there are; exact.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The records, borrowed.
    pub fn iter(&self) -> Iter<'_> {
        Iter { slices: self.slices.iter(), current: None, cursor: Cursor::default(), left: self.len }
    }

    /// Splits off everything from record number `at` on; `self` keeps the first `at`. Beyond the end the result
    /// is empty.
    pub fn split_off(&mut self, at: usize) -> Records {
        if at >= self.len {
            return Records::default();
        }
        let mut rest = Vec::new();
        let mut kept = Vec::new();
        let mut room = at;
        for mut slice in std::mem::take(&mut self.slices) {
            let len = slice.set.len();
            if room == 0 {
                rest.push(slice);
            } else if len <= room {
                room -= len;
                kept.push(slice);
            } else {
                kept.push(slice.split_to(room));
                room = 0;
                rest.push(slice);
            }
        }
        *self = Records::from_slices(kept);
        Records::from_slices(rest)
    }

    /// The records by partition, in the order the partitions first appear.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionRecords<'_>> {
        let mut groups: Vec<PartitionRecords<'_>> = Vec::new();
        for slice in &self.slices {
            let group = groups
                .iter_mut()
                .rev()
                .find(|group| group.topic == slice.topic && group.partition == slice.partition);
            match group {
                Some(group) => group.slices.push(slice),
                None => groups.push(PartitionRecords {
                    topic: slice.topic,
                    partition: slice.partition,
                    slices: vec![slice],
                }),
            }
        }
        groups.into_iter()
    }
}

impl IntoIterator for Records {
    type Item = Record;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        IntoIter {
            current: None,
            slices: self.slices.into_iter(),
            cursor: Cursor::default(),
            left: self.len,
            offset: None,
        }
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = RecordRef<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The records of one partition within a [`Records`].
#[derive(Clone, Debug)]
pub struct PartitionRecords<'a> {
    topic: TopicName,
    partition: i32,
    slices: Vec<&'a Slice>,
}

impl<'a> PartitionRecords<'a> {
    /// The topic.
    pub fn topic(&self) -> TopicName {
        self.topic
    }

    /// The partition.
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.slices.iter().map(|slice| slice.set.len()).sum()
    }

    /// Never true: a partition without records is not listed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records in offset order.
    pub fn iter(&self) -> impl Iterator<Item = RecordRef<'a>> + use<'a> {
        let slices = self.slices.clone();
        slices.into_iter().flat_map(|slice| slice.set.iter().map(move |raw| slice.record(raw)))
    }

    /// The position after these records, markers and holes behind them included.
    pub fn next_offset(&self) -> i64 {
        self.slices.last().map_or(-1, |slice| slice.next)
    }

    /// One past the last offset all in-sync replicas have, when these records were fetched.
    pub fn high_watermark(&self) -> i64 {
        self.slices.last().map_or(-1, |slice| slice.high_watermark)
    }

    /// Where the first undecided transaction begins, or the high watermark, when these records were fetched.
    pub fn last_stable_offset(&self) -> i64 {
        self.slices.last().map_or(-1, |slice| slice.last_stable_offset)
    }

    /// The first offset the log held when these records were fetched.
    pub fn log_start_offset(&self) -> i64 {
        self.slices.last().map_or(-1, |slice| slice.log_start_offset)
    }
}

/// Borrows the records of a [`Records`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    slices: std::slice::Iter<'a, Slice>,
    current: Option<&'a Slice>,
    cursor: Cursor,
    left: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = RecordRef<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<RecordRef<'a>> {
        loop {
            if let Some(slice) = self.current
                && let Some(raw) = slice.set.next(&mut self.cursor)
            {
                self.left -= 1;
                return Some(slice.record(raw));
            }
            self.turn()?;
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl Iter<'_> {
    /// On to the next slice; out of line, so that the loop over records stays small.
    #[cold]
    fn turn(&mut self) -> Option<()> {
        self.current = Some(self.slices.next()?);
        self.cursor = Cursor::default();
        Some(())
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Yields the records of a [`Records`], owned; what is left can be had back with [`rest`](IntoIter::rest).
#[derive(Clone, Debug)]
pub struct IntoIter {
    current: Option<Slice>,
    slices: vec::IntoIter<Slice>,
    cursor: Cursor,
    left: usize,
    /// Offset of the last record yielded.
    offset: Option<i64>,
}

impl IntoIter {
    /// The records not yielded yet, to be put back or kept.
    pub fn rest(self) -> Records {
        let mut slices = Vec::with_capacity(self.slices.len() + 1);
        if let Some(mut slice) = self.current {
            slice.set.cut_front(self.cursor);
            if self.cursor.passed > 0
                && let Some(offset) = self.offset
            {
                slice.previous = offset.saturating_add(1);
            }
            slices.push(slice);
        }
        slices.extend(self.slices);
        Records::from_slices(slices)
    }

    /// Partition, ticket and next offset after what was yielded last; `None` before the first record. With the
    /// last record of a slice the position is the slice's, so markers and holes behind it are passed.
    #[doc(hidden)]
    pub fn position(&self) -> Option<(TopicName, i32, u64, i64)> {
        let slice = self.current.as_ref()?;
        let offset = self.offset?;
        let next = if self.cursor.passed >= slice.set.len() { slice.next } else { offset.saturating_add(1) };
        Some((slice.topic, slice.partition, slice.ticket, next))
    }
}

impl IntoIter {
    /// On to the next slice; without one the last stays, for `position`.
    #[cold]
    fn turn(&mut self) -> Option<()> {
        self.current = Some(self.slices.next()?);
        self.cursor = Cursor::default();
        Some(())
    }
}

impl Iterator for IntoIter {
    type Item = Record;

    #[inline]
    fn next(&mut self) -> Option<Record> {
        loop {
            if let Some(slice) = &self.current
                && let Some(raw) = slice.set.next(&mut self.cursor)
            {
                self.left -= 1;
                self.offset = Some(raw.offset);
                return Some(slice.record(raw).to_record());
            }
            self.turn()?;
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for IntoIter {}
