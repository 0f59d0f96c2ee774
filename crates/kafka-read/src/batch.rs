//! Record batches: found in an answer, checked, inflated, walked.
//!
//! A batch passes four steps, each at most once: `scan` reads its header and cuts it out, `AbortedFilter`
//! decides from the header whether it is wanted, `RawBatch::verify` checks its CRC, `RawBatch::open` inflates
//! it and walks every record frame with bounds. What `open` returns, a `RecordSet`, cannot fail any more: its
//! length is exact, its offsets rise strictly from `from` on and end at or below the header's last offset.
//!
//! The position after a batch is always `BatchHeader::next_offset`, whatever was in it, so control batches,
//! aborted data, compaction holes and damaged batches never stall a reader, and no offset is handed out twice.
//! A batch that contradicts itself (record count, offsets, frames, packed stream) is refused whole: what a
//! half-right batch would deliver is a guess. Formats v0 and v1 are turned into v2 frames when opened.
//!
//! Nothing here allocates by what a header or a frame claims, and nothing panics on any bytes.

use std::fmt;

use bytes::Bytes;
use kafka_meta::{Error, ErrorKind, TopicName};

mod aborted;
mod control;
mod header;
mod legacy;
mod open;
mod resync;
mod scan;
mod set;
mod stretch;
mod walk;
pub mod write;

pub use aborted::{AbortedFilter, Verdict};
pub use control::Control;
pub use header::{BatchHeader, Codec};
pub use resync::{resync, resync_within};
pub use scan::{Damage, Scan, scan};
pub(crate) use set::Cursor;
pub use set::{RawRecord, RecordSet};
pub use stretch::{Beyond, Stretch, beyond_damage, stretch};

/// One whole batch (v2), or one message or wrapper (v0, v1), as it lies in the answer.
#[derive(Clone)]
pub struct RawBatch {
    /// Its header, read but not yet checked.
    pub header: BatchHeader,
    /// All of its bytes.
    pub bytes: Bytes,
}

impl fmt::Debug for RawBatch {
    /// The header alone: payloads do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawBatch").field("header", &self.header).finish_non_exhaustive()
    }
}

/// Bounds on what a batch may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most bytes a packed batch may inflate to.
    pub max_batch_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_batch_bytes: 128 << 20 }
    }
}

/// What is wrong with a damaged batch.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The length field is below the smallest batch.
    Length,
    /// The format number is none of 0, 1, 2.
    Magic,
    /// The stored CRC is not that of the bytes.
    Crc,
    /// Base offset and last offset delta name no range of offsets.
    OffsetRange,
    /// The record count is negative, or not the number of records there.
    Count,
    /// A record frame does not fit its batch, or its parts do not fit the frame.
    Frame,
    /// A record's offset does not rise, or lies outside the batch.
    RecordOffset,
    /// The packed stream is broken or cut.
    Stream,
    /// A v0 or v1 wrapper without messages, or with messages that must not be in one.
    Wrapper,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Length => "the batch length is impossible",
            Reason::Magic => "the batch format is unknown",
            Reason::Crc => "the CRC does not match",
            Reason::OffsetRange => "the batch's offsets are impossible",
            Reason::Count => "the record count does not match the records",
            Reason::Frame => "a record frame is malformed",
            Reason::RecordOffset => "record offsets do not rise within the batch",
            Reason::Stream => "the compressed data is broken",
            Reason::Wrapper => "the compressed message set is malformed",
        })
    }
}

/// Why a batch cannot be handed out. Only [`Damaged`](BatchError::Damaged) may be stepped past: the other two are
/// whole batches that another build or another setting can read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The bytes are wrong.
    #[error("{0}")]
    Damaged(Reason),
    /// It inflates to more than the limit.
    #[error("the batch inflates to more than max_batch_bytes ({limit} bytes)")]
    TooLarge {
        /// The limit in force.
        limit: usize,
    },
    /// It is packed with a codec this build has not got, or that does not exist.
    #[error("{}", header::codec_missing(*id))]
    UnsupportedCodec {
        /// The codec's number on the wire.
        id: i8,
    },
}

impl BatchError {
    /// The workspace's error, naming the partition and the first offset that cannot be read.
    pub fn to_error(self, topic: TopicName, partition: i32, offset: i64) -> Error {
        let kind = match self {
            BatchError::Damaged(_) => ErrorKind::Other,
            BatchError::TooLarge { .. } => ErrorKind::BatchTooLarge,
            BatchError::UnsupportedCodec { .. } => ErrorKind::UnsupportedCodec,
        };
        Error::new(kind, "read a batch")
            .with_partition(topic, partition)
            .with_offset(offset)
            .with_detail(self.to_string())
    }
}

impl From<Reason> for BatchError {
    fn from(reason: Reason) -> Self {
        BatchError::Damaged(reason)
    }
}
