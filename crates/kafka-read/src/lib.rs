//! What is in a Kafka log: record batches, the records in them, and look-ups of offsets.
//!
//! The reader is this crate's own, over the answer's `Bytes`: a batch is checked once, inflated once, and its
//! records are handed out as slices of it. What this crate is not: it opens no connection (that is `kafka-meta`)
//! and keeps no position (that is `kafka-consume`).

#[doc(hidden)]
pub mod batch;
mod codec;
#[doc(hidden)]
pub mod epochs;
#[doc(hidden)]
pub mod fetch;
mod headers;
#[doc(hidden)]
pub mod lookup;
mod record;
mod records;
mod varint;

pub use headers::{Header, Headers, HeadersIter, HeadersRef};
pub use kafka_meta::Result;
pub use record::{Record, RecordRef, Timestamp, TimestampType};
#[doc(hidden)]
pub use records::Slice;
pub use records::{IntoIter, Iter, PartitionRecords, Records};

/// Which records of a transactional topic are read.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Visibility {
    /// Only what is committed or was never part of a transaction: `isolation.level=read_committed`.
    #[default]
    CommittedOnly,
    /// Everything below the high watermark, aborted and undecided transactions included.
    All,
}
