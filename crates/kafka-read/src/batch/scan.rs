//! Finds the batches in a partition's records without touching anything but their headers.
//!
//! A broker cuts an answer at its byte limit, so the last batch may be a part: that ends the scan silently. What
//! cannot be a batch at all (an impossible length, format or range of offsets) is a [`Damage`] and ends it too,
//! since nothing after it can be found by lengths; `resync` can. No CRC is checked here.

use std::fmt;

use bytes::Bytes;

use super::header::{self, BatchHeader};
use super::{RawBatch, Reason};

/// A place in the records that is no batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Damage {
    /// Where it begins.
    pub position: usize,
    /// What is wrong with it.
    pub what: Reason,
    /// The position after it by its own claim, which nothing vouches for; `None` when it makes none.
    pub claimed_next: Option<i64>,
}

/// Yields the batches of one partition of an answer.
#[derive(Clone)]
pub struct Scan {
    data: Bytes,
    at: usize,
    ended: bool,
}

/// Starts a scan of `data`.
pub fn scan(data: Bytes) -> Scan {
    Scan { data, at: 0, ended: false }
}

impl fmt::Debug for Scan {
    /// Where it stands: payloads do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("at", &self.at).field("of", &self.data.len()).finish_non_exhaustive()
    }
}

impl Scan {
    /// Where the next batch begins, or where the scan ended.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes left over when the scan has ended: those of a batch cut at the answer's byte limit.
    pub fn tail_len(&self) -> usize {
        self.data.len() - self.at.min(self.data.len())
    }

    /// The tail seen as damage, for a reader who knows that it was not cut: brokers send the first batch of an
    /// answer whole whatever the limit (KIP-74), so a tail that is all of the first partition's data, or that comes
    /// back no longer when asked for again, has a wrong length. Waiting for its rest would be waiting for ever.
    pub fn tail_as_damage(&self) -> Option<Damage> {
        let tail = self.data.get(self.at..).filter(|tail| self.ended && !tail.is_empty())?;
        match cut(tail) {
            Cut::Tail => {
                Some(Damage { position: self.at, what: Reason::Length, claimed_next: claimed_next(tail) })
            }
            Cut::Batch(_) | Cut::Bad(..) => None,
        }
    }

    fn damage(&mut self, what: Reason, claimed_next: Option<i64>) -> Option<Result<RawBatch, Damage>> {
        self.ended = true;
        Some(Err(Damage { position: self.at, what, claimed_next }))
    }
}

impl Iterator for Scan {
    type Item = Result<RawBatch, Damage>;

    fn next(&mut self) -> Option<Result<RawBatch, Damage>> {
        if self.ended {
            return None;
        }
        let rest = self.data.get(self.at..).unwrap_or_default();
        match cut(rest) {
            Cut::Tail => {
                self.ended = true;
                None
            }
            Cut::Bad(what, claimed_next) => self.damage(what, claimed_next),
            Cut::Batch(header) => {
                let end = self.at + header.size;
                let bytes = self.data.slice(self.at..end);
                self.at = end;
                Some(Ok(RawBatch { header, bytes }))
            }
        }
    }
}

/// What the bytes at one place are.
pub(crate) enum Cut {
    /// A batch that is all there.
    Batch(BatchHeader),
    /// Part of a batch, or nothing.
    Tail,
    /// No batch.
    Bad(Reason, Option<i64>),
}

/// Looks at the batch that begins with `data`.
pub(crate) fn cut(data: &[u8]) -> Cut {
    if data.len() < header::PREFIX {
        return Cut::Tail;
    }
    // Below the smallest message of any format nothing can be made of it, complete or not.
    let Ok(length @ 14..) = usize::try_from(header::read_i32(data, 8)) else {
        return Cut::Bad(Reason::Length, claimed_next(data));
    };
    let size = length + header::PREFIX;
    if size > data.len() {
        return Cut::Tail;
    }
    let magic = data.get(16).copied().unwrap_or(u8::MAX);
    let read = match magic {
        0 | 1 => BatchHeader::read_legacy(data.get(..size).unwrap_or_default(), magic, size),
        2 => BatchHeader::read_v2(data.get(..size).unwrap_or_default(), size),
        _ => return Cut::Bad(Reason::Magic, None),
    };
    let Some(header) = read else { return Cut::Bad(Reason::Length, claimed_next(data)) };
    // A position after the batch must exist and lie beyond its base, or a reader would stand still.
    let next =
        i64::from(header.last_offset_delta).checked_add(1).and_then(|n| header.base_offset.checked_add(n));
    match next {
        Some(next) if next > header.base_offset => Cut::Batch(header),
        _ => Cut::Bad(Reason::OffsetRange, None),
    }
}

/// The position after a batch, when there is one beyond its base.
fn next_offset(header: &BatchHeader) -> Option<i64> {
    let count = i64::from(header.last_offset_delta).checked_add(1)?;
    header.base_offset.checked_add(count).filter(|next| *next > header.base_offset)
}

/// What a v2 header with a wrong length says about the position after it.
fn claimed_next(data: &[u8]) -> Option<i64> {
    let header = BatchHeader::read_v2(data, 0).filter(|_| data.get(16) == Some(&2))?;
    next_offset(&header)
}
