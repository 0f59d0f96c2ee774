//! Packing and unpacking, the latter with a cap.
//!
//! Output grows with the data and never by what a frame declares; one byte over the cap ends it. Bytes behind a
//! whole stream that begin no further one are ignored, as Java does for gzip and lz4: the batch's CRC has vouched
//! for them, and the frame walk notices whatever is missing. Each codec is a feature; one that is not compiled in
//! is [`Failure::Missing`].

use crate::batch::Codec;

#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "lz4")]
mod lz4;
#[cfg(feature = "zstd-rust")]
#[cfg_attr(feature = "zstd", allow(dead_code))]
mod ruzstd;
#[cfg(feature = "snappy")]
mod snappy;
#[cfg(feature = "zstd")]
mod zstd;

/// Why a stream was not packed or unpacked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    /// It is not a whole stream of its kind, or a checksum in it is wrong.
    #[cfg_attr(
        not(any(
            feature = "gzip",
            feature = "lz4",
            feature = "snappy",
            feature = "zstd",
            feature = "zstd-rust"
        )),
        allow(dead_code)
    )]
    Broken,
    /// It goes beyond the cap.
    #[cfg_attr(
        not(any(
            feature = "gzip",
            feature = "lz4",
            feature = "snappy",
            feature = "zstd",
            feature = "zstd-rust"
        )),
        allow(dead_code)
    )]
    TooLarge,
    /// The codec is not compiled in.
    Missing,
}

/// Unpacks `packed` into at most `cap` bytes. `lenient_lz4` accepts any checksum of an lz4 frame's header: writers
/// of format v0 made it over the wrong bytes.
pub(crate) fn inflate(
    codec: Codec,
    packed: &[u8],
    cap: usize,
    lenient_lz4: bool,
) -> Result<Vec<u8>, Failure> {
    let _ = (packed, cap, lenient_lz4);
    match codec {
        Codec::None => Ok(packed.to_vec()),
        #[cfg(feature = "gzip")]
        Codec::Gzip => gzip::inflate(packed, cap),
        #[cfg(feature = "snappy")]
        Codec::Snappy => snappy::inflate(packed, cap),
        #[cfg(feature = "lz4")]
        Codec::Lz4 => lz4::inflate(packed, cap, lenient_lz4),
        #[cfg(feature = "zstd")]
        Codec::Zstd => zstd::inflate(packed, cap),
        #[cfg(all(feature = "zstd-rust", not(feature = "zstd")))]
        Codec::Zstd => ruzstd::inflate(packed, cap),
        #[allow(unreachable_patterns)]
        _ => Err(Failure::Missing),
    }
}

/// Packs `data` behind what `out` holds. `level` is the codec's own; `None` takes Java's default.
pub(crate) fn deflate(
    codec: Codec,
    data: &[u8],
    level: Option<i32>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let _ = level;
    match codec {
        Codec::None => {
            out.extend_from_slice(data);
            Ok(())
        }
        #[cfg(feature = "gzip")]
        Codec::Gzip => gzip::deflate(data, level, out),
        #[cfg(feature = "snappy")]
        Codec::Snappy => snappy::deflate(data, out),
        #[cfg(feature = "lz4")]
        Codec::Lz4 => lz4::deflate(data, out),
        #[cfg(feature = "zstd")]
        Codec::Zstd => zstd::deflate(data, level, out),
        #[cfg(all(feature = "zstd-rust", not(feature = "zstd")))]
        Codec::Zstd => ruzstd::deflate(data, out),
        #[allow(unreachable_patterns)]
        _ => Err(Failure::Missing),
    }
}

/// A first buffer for what `packed` inflates to: a guess from real bytes, so hostile ones cannot raise it.
#[cfg(any(feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd", feature = "zstd-rust"))]
fn first_buffer(packed: &[u8], cap: usize) -> Vec<u8> {
    Vec::with_capacity(packed.len().saturating_mul(4).min(cap))
}

/// Reads `from` to its end behind what `out` holds.
#[cfg(any(feature = "gzip", feature = "zstd-rust"))]
fn read_capped(from: impl std::io::Read, out: &mut Vec<u8>, cap: usize) -> Result<(), Failure> {
    use std::io::Read as _;

    let room = u64::try_from(cap.saturating_sub(out.len())).unwrap_or(u64::MAX).saturating_add(1);
    from.take(room).read_to_end(out).map_err(|_| Failure::Broken)?;
    if out.len() > cap { Err(Failure::TooLarge) } else { Ok(()) }
}

/// Whether `data` begins with one of the frames every zstd and lz4 reader passes over.
#[cfg(any(feature = "lz4", feature = "zstd", feature = "zstd-rust"))]
fn is_skippable(data: &[u8]) -> bool {
    matches!(data, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

#[cfg(test)]
mod tests;
