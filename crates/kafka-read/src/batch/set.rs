//! The checked records of one batch.
//!
//! A [`RecordSet`] is a section of record frames that `walk` has accepted, and what the header says about
//! all of them. Invariants: `len` frames fill `section` exactly; their offsets rise strictly; `first` and `last`
//! are the offsets at both ends. Splitting keeps both halves on the same memory.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::walk::{self, Frame, MARK_EVERY};
use crate::{HeadersRef, Timestamp, TimestampType};

/// What is common to all records of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    pub base_offset: i64,
    pub leader_epoch: Option<i32>,
    /// What timestamp deltas are relative to, or every record's timestamp under log append time.
    pub timestamp: i64,
    pub kind: TimestampType,
    /// Bytes of the batch's own inflated buffer, 0 when the section is a slice of the answer.
    pub inflated: usize,
}

impl Common {
    #[inline(always)]
    fn offset(&self, delta: i32) -> i64 {
        self.base_offset.wrapping_add(i64::from(delta))
    }

    #[inline(always)]
    fn timestamp(&self, delta: i64) -> Timestamp {
        let millis = match self.kind {
            TimestampType::LogAppendTime => self.timestamp,
            // Wraps as Java's does: a hostile delta must not end the batch.
            TimestampType::CreateTime | TimestampType::None => self.timestamp.wrapping_add(delta),
        };
        Timestamp::new(millis, self.kind)
    }
}

/// The records of one batch, checked: handing them out cannot fail.
#[derive(Clone)]
pub struct RecordSet {
    section: Bytes,
    common: Common,
    len: usize,
    first: i64,
    last: i64,
    marks: Option<Arc<[u32]>>,
    /// Records in front of this set since the marks were made.
    cut_records: usize,
    /// Bytes in front of this set since the marks were made.
    cut_bytes: usize,
}

/// One record of a set.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp.
    pub timestamp: Timestamp,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: HeadersRef<'a>,
}

/// Where an iteration over a set stands: a plain value, so that owners of a set can keep it beside the set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// Bytes passed.
    pub at: usize,
    /// Records passed.
    pub passed: usize,
}

impl fmt::Debug for RecordSet {
    /// What it is, not what is in it: payloads do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordSet")
            .field("len", &self.len)
            .field("first", &self.first_offset())
            .field("last", &self.last_offset())
            .field("memory", &self.memory())
            .finish_non_exhaustive()
    }
}

impl RecordSet {
    /// A set over `section`, from what [`walk::check`] found in it.
    pub(crate) fn new(section: &Bytes, common: Common, checked: walk::Checked) -> RecordSet {
        let marks = if checked.marks.is_empty() { None } else { Some(Arc::from(checked.marks)) };
        RecordSet {
            section: if checked.len == 0 { Bytes::new() } else { section.slice(checked.start..) },
            common,
            len: checked.len,
            first: common.offset(checked.first_delta),
            last: common.offset(checked.last_delta),
            marks,
            cut_records: 0,
            cut_bytes: 0,
        }
    }

    /// How many records; exact.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Offset of the first record.
    pub fn first_offset(&self) -> Option<i64> {
        (self.len > 0).then_some(self.first)
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> Option<i64> {
        (self.len > 0).then_some(self.last)
    }

    /// Epoch of the leader that appended the batch.
    pub fn leader_epoch(&self) -> Option<i32> {
        self.common.leader_epoch
    }

    /// Bytes this set keeps in memory: the batch's whole inflated buffer, or its slice of the answer (which keeps
    /// the whole answer, see [`shares_frame`](RecordSet::shares_frame)).
    pub fn memory(&self) -> usize {
        if self.len == 0 { 0 } else { self.common.inflated.max(self.section.len()) }
    }

    /// Whether the records lie in the answer's own memory.
    pub fn shares_frame(&self) -> bool {
        self.len > 0 && self.common.inflated == 0
    }

    /// The same records in memory of their own, so that the answer may go.
    pub fn copied(&self) -> RecordSet {
        let section = Bytes::copy_from_slice(&self.section);
        let common = Common { inflated: section.len(), ..self.common };
        RecordSet { section, common, ..self.clone() }
    }

    /// Takes the first `n` records off; at most all of them.
    pub fn split_to(&mut self, n: usize) -> RecordSet {
        if n >= self.len {
            let all = self.clone();
            self.clear();
            return all;
        }
        let mut front = self.clone();
        if n == 0 {
            front.clear();
            return front;
        }
        // From the nearest mark at or before the last record of the front part.
        let wanted = n - 1;
        let ordinal = self.cut_records + wanted;
        let mark = (ordinal / MARK_EVERY).checked_sub(1).and_then(|mark| {
            let place = usize::try_from(*self.marks.as_ref()?.get(mark)?).ok()?;
            let passed = ((mark + 1) * MARK_EVERY).checked_sub(self.cut_records)?;
            Some(Cursor { at: place.checked_sub(self.cut_bytes)?, passed })
        });
        let mut cursor = mark.unwrap_or_default();
        while cursor.passed < wanted && self.advance(&mut cursor).is_some() {}
        front.last =
            self.advance(&mut cursor).map_or(self.first, |(_, frame)| self.common.offset(frame.offset_delta));
        front.section.truncate(cursor.at);
        front.len = n;
        self.cut_front(cursor);
        front
    }

    /// Drops what `cursor` has passed.
    pub(crate) fn cut_front(&mut self, cursor: Cursor) {
        if cursor.passed == 0 {
            return;
        }
        if cursor.passed >= self.len {
            self.clear();
            return;
        }
        self.section = self.section.slice(cursor.at.min(self.section.len())..);
        self.len -= cursor.passed;
        self.cut_records += cursor.passed;
        self.cut_bytes += cursor.at;
        if let Some(frame) = walk::frame(&self.section) {
            self.first = self.common.offset(frame.offset_delta);
        }
    }

    fn clear(&mut self) {
        self.section = Bytes::new();
        self.len = 0;
        self.marks = None;
    }

    /// The next frame and its place in the section.
    #[inline(always)]
    fn advance(&self, cursor: &mut Cursor) -> Option<(usize, Frame<'_>)> {
        if cursor.passed >= self.len {
            return None;
        }
        let start = cursor.at;
        let frame = walk::frame(self.section.get(start..)?)?;
        cursor.at = start + frame.size;
        cursor.passed += 1;
        Some((start, frame))
    }

    /// The record at `cursor`, which moves past it.
    #[inline(always)]
    pub(crate) fn next(&self, cursor: &mut Cursor) -> Option<RawRecord<'_>> {
        let (start, frame) = self.advance(cursor)?;
        Some(RawRecord {
            offset: self.common.offset(frame.offset_delta),
            timestamp: self.common.timestamp(frame.timestamp_delta),
            key: frame.key,
            value: frame.value,
            headers: HeadersRef::new(&self.section, start + frame.headers, cursor.at),
        })
    }

    /// The records in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RawRecord<'_>> {
        SetIter { set: self, cursor: Cursor::default() }
    }
}

struct SetIter<'a> {
    set: &'a RecordSet,
    cursor: Cursor,
}

impl<'a> Iterator for SetIter<'a> {
    type Item = RawRecord<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawRecord<'a>> {
        self.set.next(&mut self.cursor)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.set.len - self.cursor.passed;
        (left, Some(left))
    }
}

impl ExactSizeIterator for SetIter<'_> {}
