//! Finds the way back into the log after a damaged stretch.
//!
//! When a batch's CRC is wrong its header, length included, is not to be trusted, so the next batch is looked for
//! byte by byte: a place that looks like a header and whose own CRC is right. Chance hits need 32 bits to agree
//! behind plausible fields, but a record's value may itself hold batches (a log copied into a topic), so a hit that
//! another batch, a cut one or the end follows is preferred to one that something else follows; and a caller knows
//! more, since a batch of this log lies at or above its position. The work is bounded: CRCs are computed for
//! plausible headers only, over at most [`BUDGET`] times the bytes there.

use bytes::Bytes;

use super::scan::{Cut, cut};
use super::{RawBatch, legacy};

/// How many times the length of the data may be read for CRCs. Hostile bytes can make every place look like the
/// header of a long batch.
const BUDGET: usize = 8;

/// Position of the first batch after (not at) `position` whose own CRC is good.
pub fn resync(data: &Bytes, position: usize) -> Option<usize> {
    let mut budget = data.len().saturating_mul(BUDGET);
    let mut second_best = None;
    let mut at = position.checked_add(1)?;
    while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
        if let Cut::Batch(header) = cut(rest)
            && header.base_offset >= 0
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
                match cut(data.get(end..).unwrap_or_default()) {
                    Cut::Bad(..) => second_best = second_best.or(Some(at)),
                    Cut::Batch(_) | Cut::Tail => return Some(at),
                }
            }
        }
        at += 1;
    }
    second_best
}
