//! Raw writers: batches of any shape, written to a leader as they are.
//!
//! ```no_run
//! # async fn f(kafka: testkit::Kafka) -> testkit::Result<()> {
//! use kafka_read::batch::Codec;
//! use testkit::produce::{Message, Writer, batch};
//! use kafka_read::batch::write::BatchOptions;
//!
//! let mut writer = Writer::new(&kafka.bootstrap());
//! let first = writer.send("orders", 0, [Message::value("a").key("k").header("h", "v").at(17)]).await?;
//! writer.numbers("orders", 1, 0..1000).await?;
//! let options = BatchOptions { codec: Codec::Zstd, ..BatchOptions::default() };
//! writer.raw("orders", 0, batch(options, [Message::tombstone("k")])?).await?;
//! # let _ = first; Ok(()) }
//! ```
//!
//! What it is not: a producer. One batch per call, nothing in flight beside it, no idempotence unless the
//! batch says so. It asks again where a broker has surely not appended (no leader, too few replicas), never
//! after a lost answer.

use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kafka_meta::ErrorCode;
use kafka_meta::transport::{Connector, Tcp};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, TransactionalId};
use kafka_read::batch::write::{BatchOptions, BatchWriter};

use crate::failure::{Doing, Failure, Result};
use crate::routes::{Routes, Verdict, refused, text, topic_name, until};

/// A record to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// Milliseconds since the epoch; the time of writing if `None`.
    pub timestamp: Option<i64>,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers in order, duplicates allowed.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Message {
    /// A record with a value and nothing else.
    pub fn value(value: impl AsRef<[u8]>) -> Self {
        Self { value: Some(value.as_ref().to_vec()), ..Self::default() }
    }

    /// A record with a key and no value.
    pub fn tombstone(key: impl AsRef<[u8]>) -> Self {
        Self { key: Some(key.as_ref().to_vec()), ..Self::default() }
    }

    /// With this key.
    #[must_use]
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = Some(key.as_ref().to_vec());
        self
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((key.as_ref().to_vec(), Some(value.as_ref().to_vec())));
        self
    }

    /// With one more header whose value is null.
    #[must_use]
    pub fn null_header(mut self, key: impl AsRef<[u8]>) -> Self {
        self.headers.push((key.as_ref().to_vec(), None));
        self
    }

    /// With this timestamp.
    #[must_use]
    pub fn at(mut self, timestamp: i64) -> Self {
        self.timestamp = Some(timestamp);
        self
    }
}

/// Messages whose values are "`partition`-`number`", keys the number: for tests that look for gaps and
/// duplicates.
pub fn numbered(partition: i32, numbers: Range<u64>) -> impl Iterator<Item = Message> {
    numbers.map(move |number| Message::value(format!("{partition}-{number}")).key(number.to_string()))
}

/// One batch of these messages.
pub fn batch(options: BatchOptions, messages: impl IntoIterator<Item = Message>) -> Result<Bytes> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let mut writer = BatchWriter::new(options);
    for message in messages {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            message.headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
        let timestamp = message.timestamp.unwrap_or(now);
        let pushed = writer.push(timestamp, message.key.as_deref(), message.value.as_deref(), &headers);
        pushed.map_err(|error| format!("{error:?}")).doing(|| "write a batch".to_owned())?;
    }
    let bytes = writer.finish().map_err(|error| format!("{error:?}")).doing(|| "write a batch".to_owned())?;
    Ok(bytes.freeze())
}

/// What a broker answers to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The code; anything but 0 means that nothing was appended.
    pub error: ErrorCode,
    /// The first record's offset.
    pub base_offset: i64,
    /// The broker's time, on topics with log append time, else −1.
    pub append_time: i64,
}

/// Writes batches to the leaders of partitions.
pub struct Writer {
    pub(crate) routes: Routes,
}

impl Writer {
    /// A writer to the cluster of these bootstrap addresses.
    pub fn new(bootstrap: &str) -> Self {
        Self::with(Arc::new(Tcp), bootstrap)
    }

    /// The same through a connector, such as the embedded broker's.
    pub fn with(connector: Arc<dyn Connector>, bootstrap: &str) -> Self {
        Self { routes: Routes::new(connector, bootstrap) }
    }

    /// Writes the messages as one uncompressed batch. The first one's offset is the result.
    pub async fn send(
        &mut self,
        topic: &str,
        partition: i32,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<i64> {
        self.raw(topic, partition, batch(BatchOptions::default(), messages)?).await
    }

    /// Writes the messages as one batch of this shape. The first one's offset is the result.
    pub async fn send_as(
        &mut self,
        topic: &str,
        partition: i32,
        options: BatchOptions,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<i64> {
        self.raw(topic, partition, batch(options, messages)?).await
    }

    /// Writes numbered messages (see [`numbered`]) in batches of 500.
    pub async fn numbers(&mut self, topic: &str, partition: i32, numbers: Range<u64>) -> Result<()> {
        let mut from = numbers.start;
        while from < numbers.end {
            let to = numbers.end.min(from + 500);
            self.send(topic, partition, numbered(partition, from..to)).await?;
            from = to;
        }
        Ok(())
    }

    /// Writes a batch as it is. The first record's offset is the result.
    pub async fn raw(&mut self, topic: &str, partition: i32, batch: Bytes) -> Result<i64> {
        let appended = self.offer(topic, partition, batch).await?;
        match appended.error.value() {
            0 => Ok(appended.base_offset),
            code => Err(refused(code, format!("write to {topic}-{partition}"))),
        }
    }

    /// Writes a batch as it is, with acknowledgement by all replicas in sync; a refusal is a result.
    pub async fn offer(&mut self, topic: &str, partition: i32, batch: Bytes) -> Result<Appended> {
        self.offer_in(None, topic, partition, batch).await
    }

    pub(crate) async fn offer_in(
        &mut self,
        transactional_id: Option<&str>,
        topic: &str,
        partition: i32,
        batch: Bytes,
    ) -> Result<Appended> {
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch));
        let data = TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_transactional_id(transactional_id.map(|id| TransactionalId(text(id))))
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![data]);
        let routes = &mut self.routes;
        // The closure's future borrows what only one call at a time may have.
        let routes = tokio::sync::Mutex::new(routes);
        until(&format!("write to {topic}-{partition}"), async || {
            let mut routes = routes.lock().await;
            let leader = match routes.leader(topic, partition).await {
                Ok(leader) => leader,
                Err(failure) => return Ok(Verdict::Again(failure)),
            };
            let answer = routes.call(leader, 9, &request).await;
            if answer.is_err() {
                routes.forget_leader(topic, partition);
            }
            let answer = answer?;
            let result = answer.responses.first().and_then(|topic| topic.partition_responses.first());
            let result = result.ok_or_else(|| Failure::new("an answer without the partition"))?;
            match result.error_code {
                // Not appended: unknown, not the leader, not enough replicas.
                code @ (3 | 5 | 6 | 19) => {
                    routes.forget_leader(topic, partition);
                    Ok(Verdict::Again(refused(code, format!("node {leader}"))))
                }
                code => Ok(Verdict::Done(Appended {
                    error: ErrorCode::from(code),
                    base_offset: result.base_offset,
                    append_time: result.log_append_time_ms,
                })),
            }
        })
        .await
    }
}
