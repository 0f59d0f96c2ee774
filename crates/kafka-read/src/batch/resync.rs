//! Finds the way back into the log after a damaged stretch.
//!
//! When a batch's CRC is wrong its header, length included, is not to be trusted, so the next batch is looked for
//! byte by byte: a place that looks like a header and whose own CRC is right. Chance hits need 32 bits to agree
//! behind plausible fields, but a record's value may itself hold batches (a log copied into a topic). Two things
//! tell those apart: a batch of this log lies between the reader's position and the high watermark, which
//! `resync_within` takes, and the end of the data or a plausible header follows it, so a hit of which that is
//! true is preferred. The work is bounded: CRCs are computed for plausible headers only, over at most `BUDGET`
//! times the bytes there.

use std::ops::Range;

use bytes::Bytes;

use super::header::{self, PREFIX};
use super::scan::{Cut, cut};
use super::{BatchHeader, RawBatch, legacy};

/// How many times the length of the data may be read for CRCs. Hostile bytes can make every place look like the
/// header of a long batch.
const BUDGET: usize = 8;

/// No compaction makes a larger hole between two batches; a field read from the wrong place often does.
const HOLE_MAX: i64 = 1 << 40;

/// Position of the first batch after (not at) `position` whose own CRC is good.
pub fn resync(data: &Bytes, position: usize) -> Option<usize> {
    resync_within(data, position, 0..i64::MAX)
}

/// The same among batches whose base offset is one of `offsets`: the reader's position to the high watermark.
pub fn resync_within(data: &Bytes, position: usize, offsets: Range<i64>) -> Option<usize> {
    let mut budget = data.len().saturating_mul(BUDGET);
    let mut second_best = None;
    let mut at = position.checked_add(1)?;
    while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
        if let Cut::Batch(header) = cut(rest)
            && offsets.contains(&header.base_offset)
        {
            let Some(left) = budget.checked_sub(header.size) else { break };
            budget = left;
            let end = at + header.size;
            let batch = RawBatch { header, bytes: data.slice(at..end) };
            let good = if header.magic == 2 {
                batch.verify(true).is_ok()
            } else {
                legacy::crc_is_good(&batch.bytes)
            };
            if good {
                if may_follow(data.get(end..).unwrap_or_default(), &header) {
                    return Some(at);
                }
                second_best = second_best.or(Some(at));
            }
        }
        at += 1;
    }
    second_best
}

/// Whether `rest` may be what follows the batch of `before` in one log: nothing, too little to say, or a header.
/// Its format is not looked at: that batch may be damaged too, and the one before it is good all the same.
fn may_follow(rest: &[u8], before: &BatchHeader) -> bool {
    if rest.len() < PREFIX {
        return true;
    }
    let hole = header::read_i64(rest, 0).checked_sub(before.next_offset());
    hole.is_some_and(|hole| (0..HOLE_MAX).contains(&hole)) && header::read_i32(rest, 8) >= 14
}
