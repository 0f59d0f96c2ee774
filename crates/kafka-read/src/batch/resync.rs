//! Finds the way back into the log after a damaged stretch.
//!
//! When a batch's CRC is wrong its header, length included, is not to be trusted, so the next batch is looked for
//! byte by byte: a place that looks like a header and whose own CRC is right. A false hit needs 32 bits to agree by
//! chance behind plausible fields. The work is bounded: CRCs are only computed for plausible headers, and over at
//! most [`BUDGET`] times the bytes there.

use bytes::Bytes;

use super::RawBatch;
use super::scan::{Cut, cut};

/// How many times the length of the data may be read for CRCs. Hostile bytes can make every place look like a
/// header of a long batch.
const BUDGET: usize = 8;

/// Position of the first batch after (not at) `position` whose own CRC is good.
pub fn resync(data: &Bytes, position: usize) -> Option<usize> {
    let mut budget = data.len().saturating_mul(BUDGET);
    let mut at = position.checked_add(1)?;
    while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
        if let Cut::Batch(header) = cut(rest)
            && header.base_offset >= 0
            && header.magic == 2
        {
            budget = budget.checked_sub(header.size)?;
            let batch = RawBatch { header, bytes: data.slice(at..at + header.size) };
            if batch.verify(true).is_ok() {
                return Some(at);
            }
        }
        at += 1;
    }
    None
}
