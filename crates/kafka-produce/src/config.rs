//! The settings of a producer. Defaults equal the Java producer's (4.x), whose name stands at each field; a
//! departure gives its reason there.
//!
//! What it is not: checked when it is built. Settings that contradict each other are an `InvalidRequest` of the
//! first async call, before anything is sent.

mod properties;

use std::time::Duration;

use kafka_meta::{Error, ErrorKind, Result};
use kafka_read::batch::Codec;

/// Whose acknowledgement a record waits for (`acks`).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Acks {
    /// Every replica in sync (`all`, `-1`): what is acknowledged survives as long as one of them does.
    #[default]
    All,
    /// The leader alone (`1`): what it acknowledged is lost if it dies before a follower has fetched it.
    Leader,
    /// Nobody (`0`): a record counts as sent when it has been handed to the connection, its offset is unknown,
    /// and one that the broker refuses is lost without a word.
    None,
}

/// How batches are packed (`compression.type`). Each codec is a feature of this crate, all on by default; one
/// that is not compiled in is an `UnsupportedCodec` of the first async call.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// Deflate: dense, slow to pack.
    Gzip,
    /// Fast, light.
    Snappy,
    /// Fast, light.
    Lz4,
    /// Dense and fast; needs brokers from 2.1.
    Zstd,
}

impl Compression {
    pub(crate) fn codec(self) -> Codec {
        match self {
            Compression::None => Codec::None,
            Compression::Gzip => Codec::Gzip,
            Compression::Snappy => Codec::Snappy,
            Compression::Lz4 => Codec::Lz4,
            Compression::Zstd => Codec::Zstd,
        }
    }

    /// Its name in Kafka's settings.
    fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    fn is_compiled_in(self) -> bool {
        match self {
            Compression::None => true,
            Compression::Gzip => cfg!(feature = "gzip"),
            Compression::Snappy => cfg!(feature = "snappy"),
            Compression::Lz4 => cfg!(feature = "lz4"),
            Compression::Zstd => cfg!(any(feature = "zstd", feature = "zstd-rust")),
        }
    }
}

/// Which partition a record goes to that names none.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Partitioner {
    /// Java's: records with a key by murmur2 of the key, so that equal keys stay together and land where Java's
    /// clients put them (librdkafka's default is CRC32 instead; its `murmur2_random` is this one). Records
    /// without a key stick to one partition for about a batch and then move on, to partitions with short
    /// queues more often (KIP-794); partitions without a leader are passed over.
    #[default]
    Java,
    /// As records without a key, whatever the key (`partitioner.ignore.keys`).
    IgnoreKeys,
    /// One partition after the other, whatever the key; makes small batches.
    RoundRobin,
}

/// How a producer writes; a plain struct, so that `..ProducerConfig::new()` works.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// Whose acknowledgement a record waits for (`acks`). Default: [`Acks::All`].
    pub acks: Acks,
    /// Whether brokers recognise batches that are sent again (`enable.idempotence`): no duplicates, and the
    /// order of a partition is kept. Needs [`Acks::All`] and at most five requests in flight. Default: `None`,
    /// on unless `acks` rules it out, as Java's.
    pub enable_idempotence: Option<bool>,
    /// How long a batch waits for more records before it is sent, in milliseconds (`linger.ms`). A full batch
    /// does not wait, nor does one whose broker is still busy with the requests before. Default: 5.
    pub linger_ms: u32,
    /// When a batch counts as full, in bytes before packing (`batch.size`); a larger record is a batch of its
    /// own. Java estimates the packed size here, so its packed batches are larger. Default: 16,384.
    pub batch_size: usize,
    /// The bytes of records that may be queued or in flight (`buffer.memory`); beyond it, sends wait in turn.
    /// Default: 32 MiB.
    pub buffer_memory: usize,
    /// The most bytes of one request, and so of one record, before packing (`max.request.size`); brokers and
    /// topics have limits of their own (`message.max.bytes`). Default: 1 MiB.
    pub max_request_size: usize,
    /// The longest from a record's place in a batch to its outcome, in milliseconds, tries included
    /// (`delivery.timeout.ms`). Default: 120,000.
    pub delivery_timeout_ms: u32,
    /// How long one request may take before the batch is sent again, in milliseconds (`request.timeout.ms`).
    /// Default: 30,000.
    pub request_timeout_ms: u32,
    /// Requests on their way to one broker at a time (`max.in.flight.requests.per.connection`). Default: 5, the
    /// most under which brokers recognise duplicates. Without idempotence anything above 1 lets a batch that is
    /// sent again fall behind its successor.
    pub max_in_flight: usize,
    /// The wait before a batch is sent again, in milliseconds; it doubles with each failure
    /// (`retry.backoff.ms`). Default: 100.
    pub retry_backoff_ms: u32,
    /// The longest such wait, in milliseconds (`retry.backoff.max.ms`). Default: 1,000.
    pub retry_backoff_max_ms: u32,
    /// How batches are packed (`compression.type`). Default: [`Compression::None`].
    pub compression: Compression,
    /// The codec's own level (`compression.gzip.level`, `compression.zstd.level`); snappy and lz4 have none
    /// here. Default: `None`, Java's default of the codec.
    pub compression_level: Option<i32>,
    /// The longest a send waits for room in the buffer, and the longest it waits for the topic to be known, in
    /// milliseconds (`max.block.ms`). Calls about transactions are bounded by it as well. Default: 60,000.
    pub max_block_ms: u32,
    /// Which partition a record goes to that names none (`partitioner.class`). Default: [`Partitioner::Java`].
    pub partitioner: Partitioner,
    /// Whether a topic that does not exist is created by sending to it, where the brokers allow that
    /// (`auto.create.topics.enable`). Default: true, as in Java's producer, which has no setting for it
    /// (librdkafka's is `allow.auto.create.topics`).
    pub allow_auto_create_topics: bool,
    /// How long a transaction may be open before the coordinator aborts it, in milliseconds
    /// (`transaction.timeout.ms`). Default: 60,000.
    pub transaction_timeout_ms: u32,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        ProducerConfig {
            acks: Acks::All,
            enable_idempotence: None,
            linger_ms: 5,
            batch_size: 16_384,
            buffer_memory: 32 << 20,
            max_request_size: 1 << 20,
            delivery_timeout_ms: 120_000,
            request_timeout_ms: 30_000,
            max_in_flight: 5,
            retry_backoff_ms: 100,
            retry_backoff_max_ms: 1_000,
            compression: Compression::None,
            compression_level: None,
            max_block_ms: 60_000,
            partitioner: Partitioner::Java,
            allow_auto_create_topics: true,
            transaction_timeout_ms: 60_000,
        }
    }
}

impl ProducerConfig {
    /// The defaults.
    pub fn new() -> Self {
        ProducerConfig::default()
    }

    /// Sets [`acks`](Self::acks).
    pub fn acks(mut self, acks: Acks) -> Self {
        self.acks = acks;
        self
    }

    /// Sets [`enable_idempotence`](Self::enable_idempotence).
    pub fn enable_idempotence(mut self, on: bool) -> Self {
        self.enable_idempotence = Some(on);
        self
    }

    /// Sets [`linger_ms`](Self::linger_ms).
    pub fn linger_ms(mut self, millis: u32) -> Self {
        self.linger_ms = millis;
        self
    }

    /// Sets [`batch_size`](Self::batch_size).
    pub fn batch_size(mut self, bytes: usize) -> Self {
        self.batch_size = bytes;
        self
    }

    /// Sets [`buffer_memory`](Self::buffer_memory).
    pub fn buffer_memory(mut self, bytes: usize) -> Self {
        self.buffer_memory = bytes;
        self
    }

    /// Sets [`max_request_size`](Self::max_request_size).
    pub fn max_request_size(mut self, bytes: usize) -> Self {
        self.max_request_size = bytes;
        self
    }

    /// Sets [`delivery_timeout_ms`](Self::delivery_timeout_ms).
    pub fn delivery_timeout_ms(mut self, millis: u32) -> Self {
        self.delivery_timeout_ms = millis;
        self
    }

    /// Sets [`request_timeout_ms`](Self::request_timeout_ms).
    pub fn request_timeout_ms(mut self, millis: u32) -> Self {
        self.request_timeout_ms = millis;
        self
    }

    /// Sets [`max_in_flight`](Self::max_in_flight).
    pub fn max_in_flight(mut self, requests: usize) -> Self {
        self.max_in_flight = requests;
        self
    }

    /// Sets [`retry_backoff_ms`](Self::retry_backoff_ms).
    pub fn retry_backoff_ms(mut self, millis: u32) -> Self {
        self.retry_backoff_ms = millis;
        self
    }

    /// Sets [`retry_backoff_max_ms`](Self::retry_backoff_max_ms).
    pub fn retry_backoff_max_ms(mut self, millis: u32) -> Self {
        self.retry_backoff_max_ms = millis;
        self
    }

    /// Sets [`compression`](Self::compression).
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets [`compression_level`](Self::compression_level).
    pub fn compression_level(mut self, level: i32) -> Self {
        self.compression_level = Some(level);
        self
    }

    /// Sets [`max_block_ms`](Self::max_block_ms).
    pub fn max_block_ms(mut self, millis: u32) -> Self {
        self.max_block_ms = millis;
        self
    }

    /// Sets [`partitioner`](Self::partitioner).
    pub fn partitioner(mut self, partitioner: Partitioner) -> Self {
        self.partitioner = partitioner;
        self
    }

    /// Sets [`allow_auto_create_topics`](Self::allow_auto_create_topics).
    pub fn allow_auto_create_topics(mut self, allow: bool) -> Self {
        self.allow_auto_create_topics = allow;
        self
    }

    /// Sets [`transaction_timeout_ms`](Self::transaction_timeout_ms).
    pub fn transaction_timeout_ms(mut self, millis: u32) -> Self {
        self.transaction_timeout_ms = millis;
        self
    }

    /// Whether batches carry sequences.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.enable_idempotence.unwrap_or(self.acks == Acks::All)
    }

    /// Whether the settings can work together; checked before any I/O.
    pub(crate) fn check(&self, transactional: bool) -> Result<()> {
        let refuse = |detail: String| {
            Err(Error::new(ErrorKind::InvalidRequest, "producer settings").with_detail(detail))
        };
        for (name, value) in [
            ("batch_size", self.batch_size),
            ("buffer_memory", self.buffer_memory),
            ("max_request_size", self.max_request_size),
            ("max_in_flight", self.max_in_flight),
        ] {
            if value < 1 {
                return refuse(format!("{name} must be at least 1"));
            }
        }
        for (name, value) in [
            ("delivery_timeout_ms", self.delivery_timeout_ms),
            ("request_timeout_ms", self.request_timeout_ms),
            ("transaction_timeout_ms", self.transaction_timeout_ms),
        ] {
            if value < 1 {
                return refuse(format!("{name} must be at least 1"));
            }
        }
        if self.delivery_timeout_ms < self.linger_ms.saturating_add(self.request_timeout_ms) {
            return refuse("delivery_timeout_ms is below linger_ms + request_timeout_ms".to_owned());
        }
        if self.is_idempotent() {
            if self.acks != Acks::All {
                return refuse("enable_idempotence needs acks = All".to_owned());
            }
            if self.max_in_flight > 5 {
                return refuse("enable_idempotence allows at most 5 requests in flight".to_owned());
            }
        } else if transactional {
            return refuse(
                "a transactional producer is idempotent: acks = All, enable_idempotence".to_owned(),
            );
        }
        if !self.compression.is_compiled_in() {
            return Err(Error::new(ErrorKind::UnsupportedCodec, "producer settings")
                .with_detail(format!("compression: {} is not compiled in", self.compression.name())));
        }
        Ok(())
    }

    pub(crate) fn max_block(&self) -> Duration {
        Duration::from_millis(u64::from(self.max_block_ms))
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.request_timeout_ms))
    }
}

#[cfg(test)]
mod tests;
