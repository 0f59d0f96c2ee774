//! What a reader at a position makes of one partition's part of an answer: the batches ahead of it, where the
//! next fetch begins, and where to go on behind damage. Headers only; nothing is checked or opened here.
//!
//! Invariants: the batches' ends rise strictly from the position on, and `next` is the end of the last one.

use bytes::Bytes;

use super::{Damage, Limits, RawBatch, Scan, resync_within, scan};

/// The batches of a partition's records that end beyond a position.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// In log order.
    pub batches: Vec<RawBatch>,
    /// What ended the scan of the headers early.
    pub damage: Option<Damage>,
    /// The offset after the last batch; where the reader stood when there is none.
    pub next: i64,
    /// The leader epoch of the last batch that tells one, else that of the reader.
    pub next_epoch: Option<i32>,
    scan: Scan,
}

/// Scans the headers in `records` for a reader at the offset `from` that has read up to `epoch`.
pub fn stretch(records: Bytes, from: i64, epoch: Option<i32>) -> Stretch {
    let mut found =
        Stretch { batches: Vec::new(), damage: None, next: from, next_epoch: epoch, scan: scan(records) };
    for item in &mut found.scan {
        match item {
            // One that lies below has been read before: a broker may start inside what we have, and a damaged log
            // may hold a batch twice.
            Ok(raw) if raw.header.next_offset() <= found.next => {}
            Ok(raw) => {
                found.next = raw.header.next_offset();
                found.next_epoch = raw.header.leader_epoch.or(found.next_epoch);
                found.batches.push(raw);
            }
            Err(damage) => found.damage = Some(damage),
        }
    }
    found
}

impl Stretch {
    /// Whether there is nothing but the cut head of a batch: it did not fit behind another partition's data.
    pub fn is_cut(&self) -> bool {
        self.batches.is_empty() && self.damage.is_none()
    }

    /// See [`Scan::tail_as_damage`].
    pub fn tail_as_damage(&self) -> Option<Damage> {
        self.scan.tail_as_damage()
    }
}

/// Where a reader goes on that gives a damaged batch up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Beyond {
    /// The offset.
    pub offset: i64,
    /// Where in the records the next good batch begins, when one was found.
    pub position: Option<usize>,
}

/// The way past the damage at `position`, for a reader at the offset `at`: the next batch below the high watermark
/// whose own CRC is good, else the end that the damaged header claims, never beyond the high watermark. Always at
/// least one offset on.
pub fn beyond_damage(
    records: &Bytes,
    position: usize,
    at: i64,
    claimed_next: Option<i64>,
    high_watermark: i64,
    limits: &Limits,
) -> Beyond {
    let after = at.saturating_add(1);
    let end = high_watermark.max(after);
    if let Some(found) = resync_within(records, position, after..end)
        && let Some(Ok(raw)) = scan(records.slice(found..)).next()
    {
        // A wrapper of the old formats is named by its last message: going on there would lose the others.
        return Beyond { offset: raw.lowest_offset(limits).max(after), position: Some(found) };
    }
    // A claim that does not move on is no claim; one beyond the high watermark would lose good records.
    let claimed = claimed_next.filter(|next| *next > at).unwrap_or(after);
    Beyond { offset: claimed.min(end), position: None }
}

impl RawBatch {
    /// Where the batch begins in the `records` it was cut out of.
    pub fn position_in(&self, records: &Bytes) -> usize {
        self.bytes.as_ptr().addr().saturating_sub(records.as_ptr().addr())
    }
}
