//! The public surface as users were promised it: each way of calling it compiles, and what must be `Send` is.
//!
//! Nothing here runs but the size and trait checks; the functions exist to be compiled.
#![allow(dead_code, unused_variables, clippy::unwrap_used)]

use std::collections::HashMap;

use futures::StreamExt;
use futures::future::BoxFuture;
use kafka_consume::{
    Assignor, ClassicConsumer, Cluster, CommittedOffset, Consumer, ConsumerConfig, ConsumerHandle, Error,
    ErrorKind, GroupConsumer, GroupMetadata, GroupProtocol, NegotiatedConsumer, OffsetReset, Position,
    Positions, RebalanceListener, Record, Records, Result, RevokedPartition, TopicName, Visibility,
};

async fn manual(cluster: Cluster) -> Result<()> {
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new());
    consumer.assign([("orders".to_owned(), 0), ("orders".to_owned(), 1)], Position::Earliest).await?;
    loop {
        for record in consumer.poll().await? {
            println!("{}-{} @{}: {:?}", record.topic, record.partition, record.offset, record.value);
        }
    }
}

fn changing_its_mind(consumer: &mut Consumer) -> Result<()> {
    consumer.seek("orders", 0, 4_200)?;
    consumer.pause("orders", 1);
    consumer.resume("orders", 1);
    let next: Option<i64> = consumer.position("orders", 0);
    let behind: Option<i64> = consumer.lag("orders", 0);
    Ok(())
}

fn handle(record: &Record) -> Result<()> {
    Ok(())
}

async fn offsets(cluster: Cluster) -> Result<()> {
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new().group_id("reporting"));
    consumer.assign([("orders".to_owned(), 0)], Position::Earliest).await?;
    consumer.seek_to_committed().await?;
    for record in consumer.poll().await? {
        handle(&record)?;
    }
    for ((topic, partition), result) in consumer.commit().await? {
        if let Err(error) = result {
            eprintln!("{topic}-{partition}: commit failed: {error}");
        }
    }
    let stored: HashMap<(String, i32), CommittedOffset> = consumer.committed().await?;
    Ok(())
}

fn still_running() -> bool {
    true
}

async fn member(cluster: Cluster) -> Result<()> {
    let mut consumer =
        GroupConsumer::subscribe(cluster, ConsumerConfig::new(), "billing", ["orders", "refunds"])
            .await?
            .auto_commit(true)
            .instance_id("billing-pod-3");
    while still_running() {
        for record in consumer.poll().await? {
            println!("{}-{} @{}", record.topic, record.partition, record.offset);
        }
    }
    consumer.leave().await?;
    let positions: Positions = consumer.positions();
    let metadata: GroupMetadata = consumer.group_metadata()?;
    Ok(())
}

fn timeouts() -> ConsumerConfig {
    ConsumerConfig::new().with_rebalance_timeout_ms(600_000).with_session_timeout_ms(45_000)
}

struct FlushOnRevoke;

impl RebalanceListener for FlushOnRevoke {
    fn on_revoke(&mut self, revoked: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for partition in revoked {
                println!("flushing {}-{} at {}", partition.topic, partition.partition, partition.position);
            }
            Ok(())
        })
    }
}

async fn listening(cluster: Cluster) -> Result<()> {
    let consumer = GroupConsumer::subscribe(cluster, ConsumerConfig::new(), "billing", ["orders"])
        .await?
        .on_rebalance(FlushOnRevoke);
    Ok(())
}

async fn classic(cluster: Cluster) -> Result<()> {
    let mut consumer = ClassicConsumer::subscribe(cluster, ConsumerConfig::new(), "billing", ["orders"])
        .await?
        .assignors([Assignor::CooperativeSticky, Assignor::Range]);
    for record in consumer.poll().await? {
        println!("{}-{} @{}", record.topic, record.partition, record.offset);
    }
    Ok(())
}

fn settings() {
    let config = ConsumerConfig::new().group_id("reporting").visibility(Visibility::All).max_wait_ms(200);
    let tuned = ConsumerConfig { partition_max_bytes: 4 * 1024 * 1024, ..ConsumerConfig::new() };
    let pinned = ConsumerConfig::new().with_group_protocol(GroupProtocol::Classic);
}

/// Every method of a manual consumer, with the argument and result types that were promised.
async fn surface(cluster: Cluster, mut consumer: Consumer) -> Result<()> {
    let p = || [("t".to_owned(), 0)];
    consumer.assign_each([(("t".to_owned(), 0), Position::Offset(3))]).await?;
    consumer.assign_more([(("t".to_owned(), 1), Position::Committed(Box::new(Position::Latest)))]).await?;
    consumer.unassign(p());
    let _: Vec<(String, i32)> = consumer.assignment();
    let records: Records = consumer.poll().await?;
    let mut rest = records.into_iter();
    let _: Option<Record> = rest.next();
    consumer.put_back(rest.rest());
    consumer.seek_to_beginning(p()).await?;
    consumer.seek_to_end(p()).await?;
    consumer.seek_to_timestamp(p(), 0).await?;
    let _: Vec<(String, i32)> = consumer.paused();
    let _: bool = consumer.caught_up();
    let _: Vec<((String, i32), ErrorKind)> = consumer.stopped();
    let _: Vec<((String, i32), Result<()>)> =
        consumer.commit_offsets([(("t".to_owned(), 0), CommittedOffset::new(1))]).await?;
    let _: HashMap<(String, i32), i64> = consumer.beginning_offsets(p()).await?;
    let _: HashMap<(String, i32), i64> = consumer.end_offsets(p()).await?;
    let _: HashMap<(String, i32), Option<(i64, i64)>> =
        consumer.offsets_for_times([(("t".to_owned(), 0), 0)]).await?;
    let control: ConsumerHandle = consumer.handle();
    control.wake();
    control.seek("t", 0, 1)?;
    control.pause("t", 0);
    control.resume("t", 0);
    let _: Option<i64> = control.position("t", 0);
    let _: Vec<((String, i32), Result<()>)> =
        control.commit_offsets([(("t".to_owned(), 0), CommittedOffset::new(1))]).await?;
    while let Some(record) = consumer.stream().next().await {
        let _: Record = record?;
    }
    let stream = consumer.into_stream();
    let mut consumer: Consumer = stream.into_inner();
    let _ = consumer.metrics();
    consumer.close().await?;
    let _ =
        ConsumerConfig::new().auto_offset_reset(OffsetReset::ByDuration(std::time::Duration::from_secs(1)));
    let _: Vec<i32> = cluster.partitions("t").await?;
    Ok(())
}

fn of_records(mut records: Records) {
    let _: usize = records.len();
    let _: bool = records.is_empty();
    for record in &records {
        let _: Option<&[u8]> = record.value;
    }
    for record in records.iter() {
        let _: TopicName = record.topic;
    }
    for partition in records.partitions() {
        let _: (TopicName, i32, i64) = (partition.topic(), partition.partition(), partition.high_watermark());
    }
    let tail = records.split_off(1);
    for record in tail {
        let _: CommittedOffset = record.next_offset();
        let _: i64 = record.timestamp.millis();
        for header in record.headers.iter() {
            let _ = (header.key, header.value);
        }
        let _: Record = record.detach();
    }
}

fn send<T: Send>(_: T) {}
fn send_sync<T: Send + Sync>() {}
fn lasting<T: Send + 'static>() {}

async fn futures_are_send(consumer: &mut Consumer, member: &mut NegotiatedConsumer) {
    send(consumer.assign([("t".to_owned(), 0)], Position::Earliest));
    send(consumer.poll());
    send(consumer.commit());
    send(consumer.committed());
    send(consumer.seek_to_end([("t".to_owned(), 0)]));
    send(consumer.stream());
    send(consumer.close());
    send(member.poll());
    send(member.commit());
    send(member.leave());
    send(member.stream());
}

#[test]
fn consumers_are_send_and_sync_and_records_outlive_them() {
    send_sync::<Consumer>();
    send_sync::<GroupConsumer>();
    send_sync::<ClassicConsumer>();
    send_sync::<NegotiatedConsumer>();
    send_sync::<ConsumerHandle>();
    send_sync::<Cluster>();
    lasting::<Record>();
    lasting::<Records>();
    lasting::<kafka_consume::OwnedRecordStream<GroupConsumer>>();
    assert!(size_of::<Record>() <= 136, "{}", size_of::<Record>());
    assert!(size_of::<Error>() <= 64);
}

#[test]
fn a_listener_is_object_safe_and_may_return_its_own_failure() {
    let _: Box<dyn RebalanceListener> = Box::new(FlushOnRevoke);
    let error = Error::other("the disk is full");
    assert_eq!(error.kind(), ErrorKind::Other);
    assert!(error.to_string().contains("the disk is full"), "{error}");
}
