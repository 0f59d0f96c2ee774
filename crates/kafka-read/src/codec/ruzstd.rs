//! Zstandard in pure Rust, for builds without a C compiler; about four times slower to read.
//!
//! Several frames and skippable frames, as the C code reads them; frame checksums are checked when present.

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use ruzstd::encoding::{CompressionLevel, compress};

use super::{Failure, first_buffer, is_skippable, read_capped};

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

pub(super) fn inflate(packed: &[u8], cap: usize) -> Result<Vec<u8>, Failure> {
    let mut out = first_buffer(packed, cap);
    let mut rest = packed;
    let mut frames = 0;
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(u64::try_from(cap.max(8 << 20)).unwrap_or(u64::MAX));
    loop {
        if rest.starts_with(&MAGIC) {
            let mut frame =
                StreamingDecoder::new_with_decoder(&mut rest, &mut decoder).map_err(|_| Failure::Broken)?;
            read_capped(&mut frame, &mut out, cap)?;
            frames += 1;
            let stored = decoder.get_checksum_from_data();
            if stored.is_some() && stored != decoder.get_calculated_checksum() {
                return Err(Failure::Broken);
            }
        } else if is_skippable(rest) {
            let (_, after) = rest.split_first_chunk::<4>().ok_or(Failure::Broken)?;
            let (length, after) = after.split_first_chunk::<4>().ok_or(Failure::Broken)?;
            let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| Failure::Broken)?;
            rest = after.get(length..).ok_or(Failure::Broken)?;
        } else if frames > 0 {
            return Ok(out);
        } else {
            return Err(Failure::Broken);
        }
    }
}

pub(super) fn deflate(data: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
    compress(data, out, CompressionLevel::Fastest);
    Ok(())
}
