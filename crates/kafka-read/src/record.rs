//! One record: owned ([`Record`]) or borrowed from its batch ([`RecordRef`]).
//!
//! A record's key, value and headers are slices of the batch it came in, so a kept record keeps its batch in
//! memory; [`Record::detach`] copies it out. Nothing here parses: [`crate::records`] fills these in.

use std::fmt;

use bytes::Bytes;
use kafka_meta::{CommittedOffset, TopicName};

use crate::{Headers, HeadersRef};

/// What a record's timestamp means.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TimestampType {
    /// The format the record is stored in (v0) has no timestamp; `millis` is −1.
    None,
    /// When the producer made the record: `message.timestamp.type=CreateTime`.
    CreateTime,
    /// When the leader appended the record's batch: `message.timestamp.type=LogAppendTime`.
    LogAppendTime,
}

/// Milliseconds since the epoch, and what they mean.
// Aligned to one byte on purpose: with an i64 inside, `Record` would be a word larger.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Timestamp {
    millis: [u8; 8],
    kind: TimestampType,
}

impl Timestamp {
    /// A timestamp of `millis` since the epoch.
    #[inline]
    pub const fn new(millis: i64, kind: TimestampType) -> Self {
        Timestamp { millis: millis.to_ne_bytes(), kind }
    }

    /// Milliseconds since the epoch; −1 when the record has none.
    #[inline]
    pub const fn millis(self) -> i64 {
        i64::from_ne_bytes(self.millis)
    }

    /// Who set it.
    #[inline]
    pub const fn kind(self) -> TimestampType {
        self.kind
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms ({:?})", self.millis(), self.kind)
    }
}

/// A record that owns what it holds: `Send + 'static`, free of the poll it came from.
///
/// Key, value and headers share memory with the batch they came in (at most a fetch answer). A program that keeps
/// few records out of many for long should keep [`detach`](Record::detach)ed ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The topic it was read from.
    pub topic: TopicName,
    /// The partition it was read from.
    pub partition: i32,
    /// Epoch of the leader that appended it, where the format knows.
    pub leader_epoch: Option<i32>,
    /// Its place in the partition.
    pub offset: i64,
    /// When it was made or appended.
    pub timestamp: Timestamp,
    /// `None` for no key; an empty key is `Some`.
    pub key: Option<Bytes>,
    /// `None` for a tombstone; an empty value is `Some`.
    pub value: Option<Bytes>,
    /// In the order written, duplicates included.
    pub headers: Headers,
}

impl Record {
    /// The same record in memory of its own, so that the batch it came from may go.
    pub fn detach(self) -> Record {
        let part = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let mut copy =
            Vec::with_capacity(part(&self.key) + part(&self.value) + self.headers.as_encoded().len());
        copy.extend_from_slice(self.key.as_deref().unwrap_or_default());
        copy.extend_from_slice(self.value.as_deref().unwrap_or_default());
        copy.extend_from_slice(self.headers.as_encoded());
        let mut copy = Bytes::from(copy);
        let key = self.key.map(|key| copy.split_to(key.len()));
        let value = self.value.map(|value| copy.split_to(value.len()));
        Record { key, value, headers: Headers::from_encoded(copy), ..self }
    }

    /// The position after this record, as a commit takes it: offset + 1 and the record's leader epoch.
    pub fn next_offset(&self) -> CommittedOffset {
        CommittedOffset::new(self.offset.saturating_add(1)).with_leader_epoch(self.leader_epoch)
    }
}

/// A record borrowed from its batch: nothing is copied, counted or allocated for it.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    /// The topic it was read from.
    pub topic: TopicName,
    /// The partition it was read from.
    pub partition: i32,
    /// Epoch of the leader that appended it, where the format knows.
    pub leader_epoch: Option<i32>,
    /// Its place in the partition.
    pub offset: i64,
    /// When it was made or appended.
    pub timestamp: Timestamp,
    /// `None` for no key; an empty key is `Some`.
    pub key: Option<&'a [u8]>,
    /// `None` for a tombstone; an empty value is `Some`.
    pub value: Option<&'a [u8]>,
    /// In the order written, duplicates included.
    pub headers: HeadersRef<'a>,
}

impl RecordRef<'_> {
    /// The owned record, sharing the batch's memory.
    pub fn to_record(&self) -> Record {
        let section = self.headers.section();
        Record {
            topic: self.topic,
            partition: self.partition,
            leader_epoch: self.leader_epoch,
            offset: self.offset,
            timestamp: self.timestamp,
            key: self.key.map(|key| section.slice_ref(key)),
            value: self.value.map(|value| section.slice_ref(value)),
            headers: self.headers.to_headers(),
        }
    }

    /// The position after this record, as a commit takes it: offset + 1 and the record's leader epoch.
    pub fn next_offset(&self) -> CommittedOffset {
        CommittedOffset::new(self.offset.saturating_add(1)).with_leader_epoch(self.leader_epoch)
    }
}

#[cfg(test)]
mod tests;
