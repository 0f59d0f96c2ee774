//! Snappy: one raw block, or blocks in the framing of Xerial's Java library, which every Java client writes and
//! which may have several headers.
//!
//! A raw block declares its length in front. At best three bytes of input make 64 of output, so a declaration
//! beyond that is a lie and is refused before anything is reserved for it.

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use super::{Failure, first_buffer};

/// What a Xerial stream begins with: magic, version 1, readable by version 1.
const HEADER: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
const MAGIC: &[u8] = &[0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// What Java packs at a time.
const CHUNK: usize = 32 << 10;

pub(super) fn inflate(packed: &[u8], cap: usize) -> Result<Vec<u8>, Failure> {
    let mut out = first_buffer(packed, cap);
    if !packed.starts_with(MAGIC) {
        block(packed, &mut out, cap)?;
        return Ok(out);
    }
    let mut rest = packed;
    while !rest.is_empty() {
        if rest.starts_with(MAGIC) {
            rest = rest.get(HEADER.len()..).ok_or(Failure::Broken)?;
            continue;
        }
        let (length, after) = rest.split_first_chunk::<4>().ok_or(Failure::Broken)?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| Failure::Broken)?;
        let (chunk, after) = after.split_at_checked(length).ok_or(Failure::Broken)?;
        block(chunk, &mut out, cap)?;
        rest = after;
    }
    Ok(out)
}

/// Unpacks one raw block behind what `out` holds.
fn block(packed: &[u8], out: &mut Vec<u8>, cap: usize) -> Result<(), Failure> {
    let length = decompress_len(packed).map_err(|_| Failure::Broken)?;
    if length / 22 > packed.len() {
        return Err(Failure::Broken);
    }
    let start = out.len();
    if length > cap.saturating_sub(start) {
        return Err(Failure::TooLarge);
    }
    out.resize(start + length, 0);
    let room = out.get_mut(start..).unwrap_or_default();
    let written = Decoder::new().decompress(packed, room).map_err(|_| Failure::Broken)?;
    if written == length { Ok(()) } else { Err(Failure::Broken) }
}

pub(super) fn deflate(data: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
    out.extend_from_slice(&HEADER);
    let mut encoder = Encoder::new();
    for chunk in data.chunks(CHUNK) {
        let start = out.len();
        out.resize(start + 4 + max_compress_len(chunk.len()), 0);
        let room = out.get_mut(start + 4..).unwrap_or_default();
        let length = encoder.compress(chunk, room).map_err(|_| Failure::Broken)?;
        out.truncate(start + 4 + length);
        let length = u32::try_from(length).map_err(|_| Failure::TooLarge)?;
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(())
}
