//! Record frames: one parser for the check and for the iteration.
//!
//! A frame is a varint length and a body: attributes, timestamp delta, offset delta, key, value, headers. The
//! fixed fields are read from a copy of the frame's first 32 bytes, whose masked index costs no bounds check
//! (about a fifth of the walk). `check` walks a whole section once; what it accepts, iteration cannot fail on.

use super::{BatchError, Reason};
use crate::varint::{self, HEAD};

/// Records between two marks, see [`Checked::marks`]. A poll that ends inside a batch walks half of it once more,
/// on average: at 500 records a poll, 128 would add an eighth to the hand-out.
pub(crate) const MARK_EVERY: usize = 32;

/// Batches of no more records have no marks: most polls take them whole, and marks cost two allocations.
const MARKED_ABOVE: usize = 128;

/// The smallest frame: length, attributes, timestamp, offset, null key, null value, no headers.
const FRAME_MIN: usize = 7;

/// One record frame; positions are relative to its first byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// Where the headers begin, after their count.
    pub headers: usize,
    pub header_count: i32,
    /// The frame's end; the headers end here as well.
    pub size: usize,
}

/// The key or value of `length` bytes at `at`, which moves past it; a negative length is null, as Java has it.
#[inline(always)]
fn part<'a>(body: &'a [u8], at: &mut usize, length: i32) -> Option<Option<&'a [u8]>> {
    let Ok(length) = usize::try_from(length) else { return Some(None) };
    let part = body.get(*at..)?.get(..length)?;
    *at += length;
    Some(Some(part))
}

/// Reads the frame at the start of `data`; its parts are inside the frame and the frame inside `data`.
#[inline(always)]
pub(crate) fn frame(data: &[u8]) -> Option<Frame<'_>> {
    let head: [u8; HEAD] = match data.first_chunk::<HEAD>() {
        Some(head) => *head,
        None => padded(data),
    };
    let mut at = 0;
    let length = usize::try_from(varint::head_i32(&head, &mut at)?).ok()?;
    let size = at + length;
    let body = data.get(..size)?;
    // The attributes byte carries nothing.
    at += 1;
    let timestamp_delta = varint::head_i64(&head, &mut at)?;
    let offset_delta = varint::head_i32(&head, &mut at)?;
    let key_length = varint::head_i32(&head, &mut at)?;
    let key = part(body, &mut at, key_length)?;
    let value_length = varint::read_i32(body, &mut at)?;
    let value = part(body, &mut at, value_length)?;
    let header_count = varint::read_i32(body, &mut at)?;
    Some(Frame { timestamp_delta, offset_delta, key, value, headers: at, header_count, size })
}

#[cold]
fn padded(data: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    for (to, from) in head.iter_mut().zip(data) {
        *to = *from;
    }
    head
}

/// A length of a header's part, nearly always one byte.
#[inline(always)]
fn header_length(body: &[u8], at: &mut usize) -> Option<i32> {
    match body.get(*at) {
        Some(&byte) if byte < 0x80 => {
            *at += 1;
            let byte = i32::from(byte);
            Some((byte >> 1) ^ -(byte & 1))
        }
        _ => varint::read_i32(body, at),
    }
}

/// Whether the frame's headers are exactly what lies between their count and the frame's end.
fn headers_fit(data: &[u8], frame: &Frame<'_>) -> bool {
    let Some(body) = data.get(..frame.size) else { return false };
    let mut at = frame.headers;
    for _ in 0..frame.header_count {
        // A key must not be null, a value may.
        let Some(Ok(key)) = header_length(body, &mut at).map(usize::try_from) else { return false };
        at = at.saturating_add(key);
        let Some(value) = header_length(body, &mut at) else { return false };
        at = at.saturating_add(usize::try_from(value).unwrap_or(0));
    }
    frame.header_count >= 0 && at == frame.size
}

/// What `check` found.
#[derive(Debug)]
pub(crate) struct Checked {
    /// Position of the first record at or after `from`.
    pub start: usize,
    /// Records from there to the end.
    pub len: usize,
    /// First of their offset deltas.
    pub first_delta: i32,
    /// Last of their offset deltas.
    pub last_delta: i32,
    /// Positions of the kept records number 32, 64, …, relative to `start`; none for a small batch.
    pub marks: Vec<u32>,
}

/// Walks a section of `count` records whose offset deltas must rise strictly within `0..=last_delta`; the records
/// with a delta below `from` are cut off the front.
pub(crate) fn check(data: &[u8], count: i32, last_delta: i32, from: i64) -> Result<Checked, BatchError> {
    let count = usize::try_from(count).map_err(|_| Reason::Count)?;
    if count.checked_mul(FRAME_MIN).is_none_or(|least| least > data.len()) {
        return Err(Reason::Count.into());
    }
    let mut checked = Checked { start: 0, len: 0, first_delta: 0, last_delta: 0, marks: Vec::new() };
    let marked = count > MARKED_ABOVE;
    let mut rest = data;
    let mut previous = -1;
    for _ in 0..count {
        let frame = frame(rest).ok_or(Reason::Frame)?;
        let bare = frame.header_count == 0 && frame.headers == frame.size;
        if !bare && !headers_fit(rest, &frame) {
            return Err(Reason::Frame.into());
        }
        if frame.offset_delta <= previous || frame.offset_delta > last_delta {
            return Err(Reason::RecordOffset.into());
        }
        previous = frame.offset_delta;
        if i64::from(previous) >= from {
            if checked.len == 0 {
                checked.start = data.len() - rest.len();
                checked.first_delta = previous;
                if marked {
                    checked.marks.reserve(count / MARK_EVERY);
                }
            } else if marked && checked.len.is_multiple_of(MARK_EVERY) {
                let place = data.len() - rest.len() - checked.start;
                checked.marks.push(u32::try_from(place).map_err(|_| Reason::Frame)?);
            }
            checked.len += 1;
            checked.last_delta = previous;
        }
        rest = rest.get(frame.size..).unwrap_or_default();
    }
    if !rest.is_empty() {
        return Err(Reason::Count.into());
    }
    Ok(checked)
}
