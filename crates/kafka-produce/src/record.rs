//! What is sent, and what comes back.

use std::borrow::Cow;

use bytes::Bytes;
use kafka_meta::TopicName;

/// A record to be sent. Without a partition the partitioner chooses; without a value it is a tombstone; without a
/// timestamp it gets the time of the send.
///
/// ```
/// use kafka_produce::ProducerRecord;
///
/// let record = ProducerRecord::new("orders").key("customer-7").value("{}").header("trace", "a1");
/// # let _ = record;
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "a record does nothing until it is sent"]
pub struct ProducerRecord {
    pub(crate) topic: TopicName,
    pub(crate) partition: Option<i32>,
    pub(crate) timestamp: Option<i64>,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
    pub(crate) headers: Vec<(Cow<'static, str>, Option<Bytes>)>,
}

impl ProducerRecord {
    /// A record for a topic. Names are interned for the life of the process; a [`TopicName`] that is kept saves
    /// the look-up.
    pub fn new(topic: impl Into<TopicName>) -> Self {
        ProducerRecord {
            topic: topic.into(),
            partition: None,
            timestamp: None,
            key: None,
            value: None,
            headers: Vec::new(),
        }
    }

    /// Sets the key.
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the value. A record without one is a tombstone.
    pub fn value(mut self, value: impl Into<Bytes>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// Names the partition, whatever the key.
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Adds a header; order and duplicates are kept.
    pub fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), Some(value.into())));
        self
    }

    /// Adds a header whose value is null.
    pub fn null_header(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.headers.push((name.into(), None));
        self
    }

    /// Sets the timestamp, in milliseconds since the epoch. Topics with log append time replace it.
    pub fn timestamp(mut self, millis: i64) -> Self {
        self.timestamp = Some(millis);
        self
    }
}

impl ProducerRecord {
    /// No fewer bytes than it takes in a batch, before packing.
    pub(crate) fn size_bound(&self) -> usize {
        /// Length, attributes, both deltas, key and value length, number of headers, each at its longest.
        const FRAME: usize = 5 + 1 + 10 + 5 + 5 + 5 + 5;
        let len = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers: usize = self.headers.iter().map(|(name, value)| 10 + name.len() + len(value)).sum();
        FRAME + len(&self.key) + len(&self.value) + headers
    }
}

/// Where a record is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct RecordMetadata {
    /// Its topic.
    pub topic: TopicName,
    /// Its partition.
    pub partition: i32,
    /// Its offset; −1 when nobody told: under [`Acks::None`](crate::Acks::None), and for a batch that was sent
    /// again after its answer was lost, when the broker knows that it has it but no longer where.
    pub offset: i64,
    /// Its timestamp in milliseconds since the epoch: the record's own, or the broker's on topics with log
    /// append time.
    pub timestamp: i64,
}
