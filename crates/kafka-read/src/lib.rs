//! What is in a Kafka log: record batches, the records in them, and look-ups of offsets; and two ways to look at a
//! topic without being its consumer: [`scan()`] reads a bounded stretch, [`tail()`] follows.
//!
//! The reader is this crate's own, over the answer's `Bytes`: a batch is checked once, inflated once, and its
//! records are handed out as slices of it. What this crate is not: it opens no connection by itself (that is
//! `kafka-meta`) and keeps no position (that is `kafka-consume`).

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
mod scan;
mod tail;
mod varint;

pub use headers::{Header, Headers, HeadersIter, HeadersRef};
pub use kafka_meta::{Cluster, ClusterConfig, Error, ErrorCode, ErrorKind, Result, TopicName};
pub use record::{Record, RecordRef, Timestamp, TimestampType};
#[doc(hidden)]
pub use records::Slice;
pub use records::{IntoIter, Iter, PartitionRecords, Records};
pub use scan::{Loss, ScanEvent, ScanFrom, ScanSpec, ScanUntil, TailSpec, scan};
pub use tail::tail;

/// Which records of a transactional topic are read.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Visibility {
    /// Only what is committed or was never part of a transaction: `isolation.level=read_committed`.
    #[default]
    CommittedOnly,
    /// Everything below the high watermark, aborted and undecided transactions included.
    All,
}

// The samples in the guide are compiled with the tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/scanning.md")]
    struct Scanning;
}
