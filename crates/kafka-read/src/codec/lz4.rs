//! LZ4 frames, walked here and unpacked block by block into the final buffer, which saves the copies a streaming
//! reader makes.
//!
//! Read: several frames, skippable frames, independent and linked blocks, stored blocks, block and content
//! checksums (checked when present), a declared content size (ignored), a missing end mark. A frame that needs a
//! dictionary is refused. The header's checksum may also be the one old Java clients made, over the magic number
//! too; in format v0 it may be anything, as Java reads it.

use lz4_flex::block::{DecompressError, compress_into, decompress_into_with_dict, get_maximum_output_size};
use twox_hash::XxHash32;

use super::{Failure, first_buffer, is_skippable};

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// How far back a linked block may reach.
const WINDOW: usize = 64 << 10;
/// Room for a block before its size is known: four times its packed size, and this at least.
const ROOM: usize = 64 << 10;
/// A stored block's size has this bit set.
const STORED: u32 = 1 << 31;

pub(super) fn inflate(packed: &[u8], cap: usize, lenient: bool) -> Result<Vec<u8>, Failure> {
    let mut out = first_buffer(packed, cap);
    let mut rest = packed;
    let mut frames = 0;
    loop {
        if rest.starts_with(&MAGIC) {
            rest = frame(rest, &mut out, cap, lenient)?;
            frames += 1;
        } else if is_skippable(rest) {
            let length =
                u32_at(rest, 4).and_then(|length| usize::try_from(length).ok()).ok_or(Failure::Broken)?;
            rest = rest.get(8..).and_then(|rest| rest.get(length..)).ok_or(Failure::Broken)?;
        } else if frames > 0 {
            return Ok(out);
        } else {
            return Err(Failure::Broken);
        }
    }
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*data.get(at..)?.first_chunk::<4>()?))
}

/// Unpacks the frame `data` begins with; what follows it is returned.
fn frame<'a>(data: &'a [u8], out: &mut Vec<u8>, cap: usize, lenient: bool) -> Result<&'a [u8], Failure> {
    let (Some(&flags), Some(&block_code)) = (data.get(4), data.get(5)) else { return Err(Failure::Broken) };
    // Version 1, no reserved bit, no dictionary.
    if flags & 0b1100_0011 != 0b0100_0000 || block_code & 0x8f != 0 {
        return Err(Failure::Broken);
    }
    let (linked, block_sums) = (flags & 0x20 == 0, flags & 0x10 != 0);
    let (sized, content_sum) = (flags & 0x08 != 0, flags & 0x04 != 0);
    let block_max = match block_code >> 4 {
        4 => 64 << 10,
        5 => 256 << 10,
        6 => 1 << 20,
        7 => 4 << 20,
        _ => return Err(Failure::Broken),
    };
    let end = if sized { 14 } else { 6 };
    let sum = *data.get(end).ok_or(Failure::Broken)?;
    if !lenient && sum != header_sum(data.get(4..end)) && sum != header_sum(data.get(..end)) {
        return Err(Failure::Broken);
    }
    let mut rest = data.get(end + 1..).unwrap_or_default();
    let start = out.len();
    loop {
        // A writer that was not closed leaves no end mark; the records are all there, or the walk will tell.
        let Some(word) = u32_at(rest, 0) else { return Ok(&[]) };
        rest = rest.get(4..).unwrap_or_default();
        if word == 0 {
            break;
        }
        let length = usize::try_from(word & !STORED).map_err(|_| Failure::Broken)?;
        if length > block_max {
            return Err(Failure::Broken);
        }
        let (block, after) = rest.split_at_checked(length).ok_or(Failure::Broken)?;
        rest = after;
        if block_sums {
            if u32_at(rest, 0) != Some(XxHash32::oneshot(0, block)) {
                return Err(Failure::Broken);
            }
            rest = rest.get(4..).unwrap_or_default();
        }
        if word & STORED != 0 {
            if length > cap.saturating_sub(out.len()) {
                return Err(Failure::TooLarge);
            }
            out.extend_from_slice(block);
        } else {
            let history = if linked { start } else { out.len() };
            unpack(block, out, history, block_max, cap)?;
        }
    }
    if content_sum {
        let content = out.get(start..).unwrap_or_default();
        if u32_at(rest, 0) != Some(XxHash32::oneshot(0, content)) {
            return Err(Failure::Broken);
        }
        rest = rest.get(4..).unwrap_or_default();
    }
    Ok(rest)
}

fn header_sum(descriptor: Option<&[u8]>) -> u8 {
    let [_, second, ..] = XxHash32::oneshot(0, descriptor.unwrap_or_default()).to_le_bytes();
    second
}

/// Unpacks one block behind what `out` holds; it may refer to output from `history` on.
fn unpack(
    block: &[u8],
    out: &mut Vec<u8>,
    history: usize,
    block_max: usize,
    cap: usize,
) -> Result<(), Failure> {
    let start = out.len();
    let most = block_max.min(cap.saturating_sub(start));
    let mut room = block.len().saturating_mul(4).max(ROOM).min(most);
    loop {
        out.resize(start + room, 0);
        let (before, space) = out.split_at_mut(start);
        let from = history.max(start.saturating_sub(WINDOW));
        let known = before.get(from..).unwrap_or_default();
        match decompress_into_with_dict(block, space, known) {
            Ok(written) => {
                out.truncate(start + written);
                return Ok(());
            }
            Err(DecompressError::OutputTooSmall { .. }) if room < most => {
                room = room.saturating_mul(4).min(most)
            }
            Err(DecompressError::OutputTooSmall { .. }) if most < block_max => return Err(Failure::TooLarge),
            Err(_) => return Err(Failure::Broken),
        }
    }
}

/// One frame as Java's writer makes it: independent blocks of 64 KiB, no checksums, end mark.
pub(super) fn deflate(data: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
    let descriptor = [0x60, 0x40];
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&descriptor);
    out.push(header_sum(Some(&descriptor)));
    for chunk in data.chunks(64 << 10) {
        let start = out.len();
        out.resize(start + 4 + get_maximum_output_size(chunk.len()), 0);
        let room = out.get_mut(start + 4..).unwrap_or_default();
        let length = compress_into(chunk, room).map_err(|_| Failure::Broken)?;
        let stored = length >= chunk.len();
        if stored {
            out.truncate(start + 4);
            out.extend_from_slice(chunk);
        } else {
            out.truncate(start + 4 + length);
        }
        let length = u32::try_from(length.min(chunk.len())).map_err(|_| Failure::TooLarge)?;
        let word = if stored { length | STORED } else { length };
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    Ok(())
}
