//! Fetch answers, versions 4 to 18, read without copying.
//!
//! What it is: a reader of our own, because a Fetch answer is the one message that is large, hot and full of
//! counts, and the general codec reserves what a count claims before it looks at the bytes behind it.
//!
//! What it is not: it does not look into `records` (that is `kafka-read`), and it does not know which
//! partitions were asked for (that is the fetch session).
//!
//! Invariants:
//! - Every count is checked against the bytes left *before* anything is reserved: a reservation never exceeds
//!   a fixed multiple of the answer's own size, whatever the answer claims.
//! - Every loop consumes at least one byte a turn, so it ends.
//! - `records` are slices of the body: the answer's memory lives as long as the last slice of it.
//! - Damage is an error ([`Malformed`] is its source), never a panic, and never half an answer.
//!
//! Fields no consumer can use are read over: unknown tagged fields, the snapshot id, and a hint that names
//! nobody (leader -1, epoch -1, an endpoint with an impossible port). Bytes behind the answer's end are left
//! alone, as every other client does: a newer broker may know what they are.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use self::reader::Reader;
use crate::{Error, ErrorCode, ErrorKind, Result};

mod reader;
#[cfg(test)]
mod tests;

pub use self::reader::Malformed;

/// The lowest version [`decode`] reads; brokers of 4.0 and later serve nothing older either.
pub const MIN_VERSION: i16 = 4;
/// The highest version [`decode`] reads.
pub const MAX_VERSION: i16 = 18;

/// First version with the compact, tagged encoding.
const FLEXIBLE: i16 = 12;
/// First version that names topics by id alone.
const BY_ID: i16 = 13;

/// One answer, its topics flattened: partitions are in the answer's order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FetchAnswer {
    /// How long the broker wants us to hold back; it may have answered early and empty because of it.
    pub throttle: Duration,
    /// The error of the whole answer; only session errors and refusals are told here.
    pub error: ErrorCode,
    /// The session the broker holds for us, 0 when it holds none.
    pub session_id: i32,
    /// What came, in the answer's order.
    pub partitions: Vec<FetchedPartition>,
    /// Where the nodes named by `current_leader` can be reached (version 16 and later).
    pub endpoints: Vec<NodeEndpoint>,
}

/// One partition of an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FetchedPartition {
    /// The topic as the answer names it: by name up to version 12, by id from 13.
    pub topic: TopicRef,
    /// The partition's index.
    pub partition: i32,
    /// The partition's own error.
    pub error: ErrorCode,
    /// End of what is replicated, -1 when the broker does not say.
    pub high_watermark: i64,
    /// End of what is decided by transactions, -1 when the broker does not say.
    pub last_stable_offset: i64,
    /// First offset still in the log, -1 when the broker does not say (and below version 5).
    pub log_start_offset: i64,
    /// Aborted transactions that may touch the records; empty for read-uncommitted.
    pub aborted: Vec<AbortedTransaction>,
    /// Where the log parted from what was fetched before; only told to who sends its last fetched epoch.
    pub diverging: Option<EpochEnd>,
    /// Who leads now, when the broker knows and we asked the wrong node.
    pub current_leader: Option<LeaderHint>,
    /// The replica to read from instead of this node; the answer then carries no records.
    pub preferred_read_replica: Option<i32>,
    /// The record batches, a slice of the body; the last one may be cut anywhere.
    pub records: Bytes,
}

/// A topic as an answer names it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum TopicRef {
    /// By name, not interned: an answer must not be able to fill the process's table of names.
    Name(StrBytes),
    /// By id.
    Id(Uuid),
}

/// A transaction that was aborted: records of this producer from this offset to its abort marker are void.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AbortedTransaction {
    /// The producer's id.
    pub producer_id: i64,
    /// The first offset of the transaction.
    pub first_offset: i64,
}

/// The end of a leader epoch in the leader's log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EpochEnd {
    /// The epoch, at most the one asked about.
    pub epoch: i32,
    /// One past the epoch's last offset.
    pub end_offset: i64,
}

/// A leader named in an answer (KIP-951).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaderHint {
    /// The leader's node id.
    pub node: i32,
    /// The epoch it leads in.
    pub epoch: i32,
}

/// Where a node can be reached, as told in an answer (KIP-951).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeEndpoint {
    /// The node id.
    pub node: i32,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The node's rack.
    pub rack: Option<String>,
}

/// Reads the answer in `body`, which starts after the response header.
///
/// # Errors
///
/// `UnsupportedApi` for a version outside [`MIN_VERSION`]`..=`[`MAX_VERSION`]; `Other` with a [`Malformed`] as
/// its source when the bytes are not such an answer.
pub fn decode(version: i16, body: Bytes) -> Result<FetchAnswer> {
    if !(MIN_VERSION..=MAX_VERSION).contains(&version) {
        return Err(Error::new(ErrorKind::UnsupportedApi, "read a fetch answer")
            .with_detail(format!("Fetch version {version}")));
    }
    answer(version, Reader::new(body, version >= FLEXIBLE))
        .map_err(|damage| Error::new(ErrorKind::Other, "read a fetch answer").with_source(damage))
}

fn answer(version: i16, mut reader: Reader) -> Result<FetchAnswer, Malformed> {
    let throttle = reader.i32()?;
    let mut answer = FetchAnswer {
        throttle: Duration::from_millis(u64::try_from(throttle).unwrap_or(0)),
        error: ErrorCode::NONE,
        session_id: 0,
        partitions: Vec::new(),
        endpoints: Vec::new(),
    };
    if version >= 7 {
        answer.error = ErrorCode::from(reader.i16()?);
        answer.session_id = reader.i32()?;
    }
    // Id or shortest name, then the count of partitions (and of tags).
    let topic_size = if version >= BY_ID { 16 + 2 } else { reader.shortest(2, 4, 1) };
    for _ in 0..reader.count("topics", topic_size)? {
        topic(version, &mut reader, &mut answer.partitions)?;
    }
    reader.tags(|tag, mut field| {
        if tag == 0 && version >= 16 {
            answer.endpoints = endpoints(&mut field)?;
        }
        Ok(())
    })?;
    Ok(answer)
}

fn topic(version: i16, reader: &mut Reader, into: &mut Vec<FetchedPartition>) -> Result<(), Malformed> {
    let topic =
        if version >= BY_ID { TopicRef::Id(reader.uuid()?) } else { TopicRef::Name(reader.string()?) };
    let count = reader.count("partitions", partition_size(version, reader))?;
    into.reserve(count);
    for _ in 0..count {
        into.push(partition(version, reader, topic.clone())?);
    }
    reader.skip_tags()
}

/// The fewest bytes a partition takes: the bound of how many a given number of bytes can hold.
fn partition_size(version: i16, reader: &Reader) -> usize {
    let mut size = 4 + 2 + 8 + 8;
    if version >= 5 {
        size += 8;
    }
    if version >= 11 {
        size += 4;
    }
    // Two lengths (aborted transactions, records), then tags.
    size + reader.shortest(4, 4, 1)
}

fn partition(version: i16, reader: &mut Reader, topic: TopicRef) -> Result<FetchedPartition, Malformed> {
    let mut partition = FetchedPartition {
        topic,
        partition: reader.i32()?,
        error: ErrorCode::from(reader.i16()?),
        high_watermark: reader.i64()?,
        last_stable_offset: reader.i64()?,
        log_start_offset: -1,
        aborted: Vec::new(),
        diverging: None,
        current_leader: None,
        preferred_read_replica: None,
        records: Bytes::new(),
    };
    if version >= 5 {
        partition.log_start_offset = reader.i64()?;
    }
    let aborted = reader.nullable_count("aborted transactions", 16 + reader.shortest(0, 0, 1))?.unwrap_or(0);
    partition.aborted.reserve_exact(aborted);
    for _ in 0..aborted {
        let (producer_id, first_offset) = (reader.i64()?, reader.i64()?);
        reader.skip_tags()?;
        partition.aborted.push(AbortedTransaction { producer_id, first_offset });
    }
    if version >= 11 {
        partition.preferred_read_replica = Some(reader.i32()?).filter(|&node| node >= 0);
    }
    partition.records = reader.nullable_bytes()?.unwrap_or_default();
    reader.tags(|tag, mut field| {
        match tag {
            0 => {
                let end = EpochEnd { epoch: field.i32()?, end_offset: field.i64()? };
                partition.diverging = Some(end).filter(|end| end.epoch >= 0 && end.end_offset >= 0);
                field.skip_tags()?;
            }
            1 => {
                let hint = LeaderHint { node: field.i32()?, epoch: field.i32()? };
                partition.current_leader = Some(hint).filter(|hint| hint.node >= 0 && hint.epoch >= 0);
                field.skip_tags()?;
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(partition)
}

fn endpoints(reader: &mut Reader) -> Result<Vec<NodeEndpoint>, Malformed> {
    let count = reader.count("node endpoints", 4 + 1 + 4 + 1 + 1)?;
    let mut endpoints = Vec::with_capacity(count);
    for _ in 0..count {
        let node = reader.i32()?;
        let host = reader.string()?.as_str().to_owned();
        let port = reader.i32()?;
        let rack = reader.nullable_string()?.map(|rack| rack.as_str().to_owned());
        reader.skip_tags()?;
        // A hint is not worth the records it comes with.
        if let Ok(port @ 1..) = u16::try_from(port) {
            endpoints.push(NodeEndpoint { node, host, port, rack });
        }
    }
    Ok(endpoints)
}
