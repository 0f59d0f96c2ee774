//! What a scan or a tail yields.

use std::ops::Range;

use bytes::Bytes;
use kafka_meta::{Error, TopicName};

use crate::Record;

/// One thing a scan or a tail has to tell. Of one partition they come in the order of the log; partitions take
/// turns.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ScanEvent {
    /// A record.
    Record(Record),
    /// Bytes that are no readable batch. They are told once, where they lie, and reading goes on behind them.
    ///
    /// What the error's kind says: `Other`, the bytes are damaged (asked for twice before they are given up);
    /// `UnsupportedCodec`, the batch is sound but this build cannot unpack it; `BatchTooLarge`, it inflates to more
    /// than `max_batch_bytes`.
    Malformed {
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: i32,
        /// The offsets that are passed over, from the position of the reader on. When the checksum is wrong nothing
        /// vouches for the damaged header: the range then ends at the next sound batch in the same answer, or
        /// else where the header claims, at most at the high watermark.
        offsets: Range<i64>,
        /// The bytes as they came, batch header included. A slice of the answer: copy it to keep it for long.
        bytes: Bytes,
        /// What is wrong, naming topic, partition and first offset.
        error: Error,
    },
    /// How far a partition has been read: once when its bounds are known, before anything else of it, then with
    /// each stretch of the log that is done with, whether or not there were records in it.
    ///
    /// `(position - start) / (end - start)` is the length of a progress bar; `position` reaches `end` even when the
    /// last offsets are transaction markers or holes.
    Progress {
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: i32,
        /// The offset where reading began.
        start: i64,
        /// The offset up to which everything has been handed over.
        position: i64,
        /// The offset where the scan ends; of a tail, the end of the log (under `CommittedOnly` of its decided
        /// part) when this stretch was fetched.
        end: i64,
        /// Records handed over so far.
        records: u64,
        /// Bytes of log read so far, as they are stored.
        bytes: u64,
    },
    /// A partition of a scan has been read to its end; nothing more of it follows. A tail never says it.
    PartitionDone {
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: i32,
        /// The offset up to which it was read.
        position: i64,
        /// Records handed over.
        records: u64,
        /// Bytes of log read, as they are stored.
        bytes: u64,
    },
    /// The log changed under the reader: these offsets are not there any more.
    Lost {
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: i32,
        /// Which offsets.
        offsets: Range<i64>,
        /// Where reading goes on.
        position: i64,
        /// How they were lost.
        loss: Loss,
    },
}

/// How offsets of a log went away while it was read.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// Retention or a deletion of records moved the log's start past the reader; they were not handed over.
    Deleted,
    /// An unclean election cut the log. What was handed over of these offsets is void, and records of the new log
    /// may follow at the same offsets.
    Truncated,
    /// The leader has nothing at these offsets, though they lie below the log's end. They were waited for as long
    /// as `timeout` says.
    Missing,
    /// The topic was deleted and made anew under the same name (a tail only); what was handed over is void, and the
    /// new topic is read from its first record.
    Recreated,
}
