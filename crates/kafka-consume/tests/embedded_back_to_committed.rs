//! What `seek_to_committed` does where nothing is committed: nothing counts as done, so reading goes back to where it
//! began. A loop whose first transaction is aborted depends on it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use kafka_consume::{
    Cluster, CommittedOffset, Consumer, ConsumerConfig, GroupProtocol, NegotiatedConsumer, OffsetReset,
    Position,
};
use testkit::embedded::Embedded;

fn broker() -> Embedded {
    let broker = Embedded::start(1);
    broker.create_topic("t", 2);
    fill(&broker);
    broker
}

fn fill(broker: &Embedded) {
    for partition in 0..2 {
        broker.append_records("t", partition, (0..10).map(|n| ("k", n.to_string())));
    }
}

fn both() -> [(String, i32); 2] {
    [("t".to_owned(), 0), ("t".to_owned(), 1)]
}

async fn manual(broker: &Embedded, position: Position) -> Consumer {
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new().group_id("g").max_wait_ms(100));
    consumer.assign(both(), position).await.unwrap();
    consumer
}

async fn read(consumer: &mut Consumer, count: usize) {
    let mut read = 0;
    while read < count {
        read += consumer.poll().await.unwrap().len();
    }
    assert_eq!(read, count);
}

fn positions(consumer: &Consumer) -> [Option<i64>; 2] {
    [consumer.position("t", 0), consumer.position("t", 1)]
}

#[tokio::test(start_paused = true)]
async fn a_partition_nobody_committed_goes_back_to_where_it_was_assigned() {
    for (position, start) in [(Position::Earliest, 0), (Position::Offset(3), 3)] {
        let broker = broker();
        let mut consumer = manual(&broker, position).await;
        read(&mut consumer, 2 * (10 - start)).await;
        let start = i64::try_from(start).unwrap();
        let stored = CommittedOffset::new(7);
        consumer.commit_offsets([(("t".to_owned(), 1), stored)]).await.unwrap().remove(0).1.unwrap();
        consumer.seek_to_committed().await.unwrap();
        assert_eq!(positions(&consumer), [Some(start), Some(7)]);
        let mut again = Vec::new();
        while again.len() < 10 - usize::try_from(start).unwrap() + 3 {
            again.extend(
                consumer.poll().await.unwrap().iter().map(|record| (record.partition, record.offset)),
            );
        }
        again.sort_unstable();
        let wanted: Vec<_> =
            (start..10).map(|offset| (0, offset)).chain((7..10).map(|offset| (1, offset))).collect();
        assert_eq!(again, wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_seek_is_a_new_beginning() {
    let broker = broker();
    let mut consumer = manual(&broker, Position::Earliest).await;
    read(&mut consumer, 20).await;
    consumer.seek("t", 0, 6).unwrap();
    read(&mut consumer, 4).await;
    consumer.seek_to_committed().await.unwrap();
    assert_eq!(positions(&consumer), [Some(6), Some(0)]);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_read_yet_stays_buffered() {
    let broker = broker();
    let mut consumer = manual(&broker, Position::Earliest).await;
    consumer.seek_to_committed().await.unwrap();
    assert_eq!(positions(&consumer), [Some(0), Some(0)]);
    read(&mut consumer, 20).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_without_commits_goes_back_to_where_it_joined() {
    for protocol in [GroupProtocol::Consumer, GroupProtocol::Classic] {
        let broker = broker();
        let config = ConsumerConfig::new()
            .max_wait_ms(100)
            .auto_offset_reset(OffsetReset::Latest)
            .with_group_protocol(protocol);
        let cluster = Cluster::connect_with(broker.config()).await.unwrap();
        let mut member =
            NegotiatedConsumer::subscribe(cluster, config, "g", ["t"]).await.unwrap().auto_commit(false);
        while [0, 1].map(|partition| member.position("t", partition)) != [Some(10), Some(10)] {
            assert!(member.poll().await.unwrap().is_empty());
        }
        fill(&broker);
        for _ in 0..2 {
            let mut read = 0;
            while read < 20 {
                read += member.poll().await.unwrap().len();
            }
            assert_eq!([0, 1].map(|partition| member.position("t", partition)), [Some(20), Some(20)]);
            member.seek_to_committed().await.unwrap();
            assert_eq!([0, 1].map(|partition| member.position("t", partition)), [Some(10), Some(10)]);
        }
    }
}
