//! Transactions by hand: open, committed, aborted, with offsets or without.
//!
//! ```no_run
//! # async fn f(kafka: testkit::Kafka) -> testkit::Result<()> {
//! use testkit::produce::Message;
//! use testkit::txn::Transactions;
//!
//! let mut txn = Transactions::init(&kafka.bootstrap(), "tx").await?;
//! txn.send("orders", 0, [Message::value("seen")]).await?;
//! txn.send_offsets("group", &[("orders", 0, 17)]).await?;
//! txn.commit().await?;
//! txn.send("orders", 0, [Message::value("never seen")]).await?;
//! txn.abort().await?;
//! txn.send("orders", 0, [Message::value("open until it times out")]).await?;
//! # Ok(()) }
//! ```
//!
//! It goes the way that every broker version takes: partitions are added explicitly, the epoch stays. What it
//! is not: a transactional producer; it does not resume, and a second one with the same id fences the first.
//!
//! States: idle, open (partitions added). Invariant: sequences per partition go on over transactions, as the
//! epoch does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_meta::transport::{Connector, Tcp};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, GroupId, InitProducerIdRequest,
    TransactionalId, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::Request;
use kafka_read::batch::write::BatchOptions;

use crate::failure::{Failure, Result};
use crate::produce::{Message, Writer, batch};
use crate::routes::{Verdict, refused, text, topic_name, until};

/// A transactional id with its producer id and epoch.
pub struct Transactions {
    writer: Writer,
    id: String,
    producer_id: i64,
    epoch: i16,
    sequences: HashMap<(String, i32), i32>,
    added: Vec<(String, i32)>,
}

impl Transactions {
    /// Takes the transactional id: what another holder had open is aborted. The timeout is one minute.
    pub async fn init(bootstrap: &str, id: &str) -> Result<Self> {
        Self::init_with(Arc::new(Tcp), bootstrap, id, Duration::from_secs(60)).await
    }

    /// The same through a connector, with a transaction timeout.
    pub async fn init_with(
        connector: Arc<dyn Connector>,
        bootstrap: &str,
        id: &str,
        timeout: Duration,
    ) -> Result<Self> {
        let mut transactions = Self {
            writer: Writer::with(connector, bootstrap),
            id: id.to_owned(),
            producer_id: -1,
            epoch: -1,
            sequences: HashMap::new(),
            added: Vec::new(),
        };
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text(id))))
            .with_transaction_timeout_ms(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX))
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        let answer = transactions.ask(1, id, 4, &request, |answer| answer.error_code).await?;
        transactions.producer_id = answer.producer_id.0;
        transactions.epoch = answer.producer_epoch;
        Ok(transactions)
    }

    /// The producer id, as aborted-transaction lists name it.
    pub fn producer_id(&self) -> i64 {
        self.producer_id
    }

    /// The producer's epoch.
    pub fn epoch(&self) -> i16 {
        self.epoch
    }

    /// Writes the messages as one batch of the transaction, which this opens if need be. The first one's
    /// offset is the result.
    pub async fn send(
        &mut self,
        topic: &str,
        partition: i32,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<i64> {
        self.send_as(topic, partition, BatchOptions::default(), messages).await
    }

    /// The same as a batch of this shape; producer, sequence and the transactional bit are filled in.
    pub async fn send_as(
        &mut self,
        topic: &str,
        partition: i32,
        options: BatchOptions,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<i64> {
        self.add(topic, partition).await?;
        let key = (topic.to_owned(), partition);
        let sequence = self.sequences.get(&key).copied().unwrap_or(0);
        let messages: Vec<Message> = messages.into_iter().collect();
        let count = i32::try_from(messages.len()).unwrap_or(i32::MAX);
        let options = BatchOptions {
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            base_sequence: sequence,
            transactional: true,
            ..options
        };
        let bytes: Bytes = batch(options, messages)?;
        let appended = self.writer.offer_in(Some(&self.id), topic, partition, bytes).await?;
        match appended.error.value() {
            0 => {
                self.sequences.insert(key, sequence.wrapping_add(count) & i32::MAX);
                Ok(appended.base_offset)
            }
            code => Err(refused(code, format!("write to {topic}-{partition} in {}", self.id))),
        }
    }

    /// Adds a partition to the transaction without writing to it: it gets a marker at the end.
    pub async fn add(&mut self, topic: &str, partition: i32) -> Result<()> {
        let key = (topic.to_owned(), partition);
        if self.added.contains(&key) {
            return Ok(());
        }
        let wanted =
            AddPartitionsToTxnTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(text(&self.id)))
            .with_v3_and_below_producer_id(self.producer_id.into())
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(vec![wanted]);
        let id = self.id.clone();
        self.ask(1, &id, 3, &request, |answer| {
            let topics = answer.results_by_topic_v3_and_below.iter();
            let codes = topics.flat_map(|topic| &topic.results_by_partition);
            codes.map(|partition| partition.partition_error_code).find(|&code| code != 0).unwrap_or(0)
        })
        .await?;
        self.added.push(key);
        Ok(())
    }

    /// Adds offsets of a group to the transaction, without a member's identity.
    pub async fn send_offsets(&mut self, group: &str, offsets: &[(&str, i32, i64)]) -> Result<()> {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(TransactionalId(text(&self.id)))
            .with_producer_id(self.producer_id.into())
            .with_producer_epoch(self.epoch)
            .with_group_id(GroupId(text(group)));
        let id = self.id.clone();
        self.ask(1, &id, 3, &request, |answer| answer.error_code).await?;
        let topics = offsets.iter().map(|&(topic, partition, offset)| {
            let partition = TxnOffsetCommitRequestPartition::default()
                .with_partition_index(partition)
                .with_committed_offset(offset)
                .with_committed_leader_epoch(-1)
                .with_committed_metadata(Some(text("")));
            TxnOffsetCommitRequestTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(vec![partition])
        });
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(TransactionalId(text(&self.id)))
            .with_group_id(GroupId(text(group)))
            .with_producer_id(self.producer_id.into())
            .with_producer_epoch(self.epoch)
            .with_generation_id(-1)
            .with_member_id(text(""))
            .with_group_instance_id(None)
            .with_topics(topics.collect());
        self.ask(0, group, 3, &request, |answer| {
            let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.map(|partition| partition.error_code).find(|&code| code != 0).unwrap_or(0)
        })
        .await?;
        Ok(())
    }

    /// Commits. The markers are written a moment after this returns.
    pub async fn commit(&mut self) -> Result<()> {
        self.end(true).await
    }

    /// Aborts. The markers are written a moment after this returns.
    pub async fn abort(&mut self) -> Result<()> {
        self.end(false).await
    }

    async fn end(&mut self, committed: bool) -> Result<()> {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text(&self.id)))
            .with_producer_id(self.producer_id.into())
            .with_producer_epoch(self.epoch)
            .with_committed(committed);
        let id = self.id.clone();
        self.ask(1, &id, 3, &request, |answer| answer.error_code).await?;
        self.added.clear();
        Ok(())
    }

    /// Asks a coordinator until it is ready: 14, 15, 16 while it loads, moves or is made, 51 while the last
    /// transaction's markers are written, 3 while a topic is new.
    async fn ask<R: Request>(
        &mut self,
        kind: i8,
        key: &str,
        at_most: i16,
        request: &R,
        code: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response> {
        let routes = tokio::sync::Mutex::new(&mut self.writer.routes);
        until(&format!("API {} for {key}", R::KEY), async || {
            let mut routes = routes.lock().await;
            let node = match routes.coordinator(kind, key).await {
                Ok(node) => node,
                Err(failure) => return Ok(Verdict::Again(failure)),
            };
            let answer = routes.call(node, at_most, request).await?;
            match code(&answer) {
                0 => Ok(Verdict::Done(answer)),
                code @ (3 | 14 | 15 | 16 | 51) => Ok(Verdict::Again(refused(code, format!("node {node}")))),
                code => Err(Failure::new(format!(
                    "API {} for {key}: {}",
                    R::KEY,
                    kafka_meta::ErrorCode::from(code)
                ))),
            }
        })
        .await
    }
}
