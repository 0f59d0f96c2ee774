//! Every public async method dropped after its first, second, … wait until it comes to its end, and the consumer
//! used on: each record comes once and in order, nothing hangs, a later commit works and wins.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;

use futures::StreamExt;
use kafka_consume::{Cluster, CommittedOffset, Consumer, ConsumerConfig, Position};
use support::polled;
use testkit::embedded::Embedded;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(300);
const EACH: i64 = 60;

fn partitions() -> Vec<(String, i32)> {
    (0..3).map(|partition| ("t".to_owned(), partition)).collect()
}

async fn start() -> (Embedded, Consumer) {
    let broker = Embedded::start(3);
    broker.create_topic("t", 3);
    for partition in 0..3 {
        for batch in 0..6 {
            broker.append_records("t", partition, (0..10).map(|n| (format!("{batch}"), format!("{n}"))));
        }
    }
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    (broker, Consumer::new(cluster, ConsumerConfig::new().group_id("g").max_poll_records(7)))
}

/// Reads all partitions from where they stand to their ends; each offset once and in order.
async fn read_on(consumer: &mut Consumer) {
    let mut next: Vec<i64> = Vec::new();
    timeout(LIMIT, async {
        while next.len() < 3 {
            next = (0..3).filter_map(|partition| consumer.position("t", partition)).collect();
            if next.len() < 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        while next.iter().any(|next| *next < EACH) {
            for record in &consumer.poll().await.unwrap() {
                let next = &mut next[usize::try_from(record.partition).unwrap()];
                assert_eq!(record.offset, *next, "partition {}", record.partition);
                *next += 1;
            }
        }
    })
    .await
    .expect("the consumer stands still");
}

/// For every number of waits: a new consumer, the step cut off there, then the rest of its life.
macro_rules! cut_everywhere {
    (|$broker:ident, $consumer:ident| $future:expr) => {{
        let mut waits = 1;
        loop {
            let ($broker, mut $consumer) = start().await;
            $consumer.assign(partitions(), Position::Earliest).await.unwrap();
            $broker.commit("g", "t", 0, 5);
            let ended = polled($future, waits).await.is_some();
            read_on(&mut $consumer).await;
            let results = timeout(LIMIT, $consumer.commit()).await.expect("a lane is stuck").unwrap();
            assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
            for partition in 0..3 {
                assert_eq!($broker.committed("g", "t", partition), Some(EACH), "after {waits} waits");
            }
            timeout(LIMIT, $consumer.close()).await.expect("close hangs").unwrap();
            if ended {
                break;
            }
            waits += 1;
            assert!(waits < 10_000, "it never comes to its end");
        }
    }};
}

#[tokio::test(start_paused = true)]
async fn assign() {
    cut_everywhere!(|broker, consumer| consumer.assign(partitions(), Position::Earliest));
}

#[tokio::test(start_paused = true)]
async fn assign_to_committed() {
    let position = || Position::Committed(Box::new(Position::Earliest));
    cut_everywhere!(|broker, consumer| consumer.assign(partitions(), position()));
}

#[tokio::test(start_paused = true)]
async fn assign_each_and_more() {
    let each = || partitions().into_iter().map(|partition| (partition, Position::Offset(3)));
    cut_everywhere!(|broker, consumer| consumer.assign_each(each()));
    let more = || [(("t".to_owned(), 1), Position::Earliest)];
    cut_everywhere!(|broker, consumer| consumer.assign_more(more()));
}

#[tokio::test(start_paused = true)]
async fn poll() {
    cut_everywhere!(|broker, consumer| consumer.poll());
}

#[tokio::test(start_paused = true)]
async fn seeks() {
    cut_everywhere!(|broker, consumer| consumer.seek_to_committed());
    cut_everywhere!(|broker, consumer| consumer.seek_to_beginning(partitions()));
    cut_everywhere!(|broker, consumer| consumer.seek_to_end(partitions()));
    cut_everywhere!(|broker, consumer| consumer.seek_to_timestamp(partitions(), 1));
}

#[tokio::test(start_paused = true)]
async fn commits() {
    let offsets = || [(("t".to_owned(), 0), CommittedOffset::new(1))];
    cut_everywhere!(|broker, consumer| consumer.commit());
    cut_everywhere!(|broker, consumer| consumer.commit_offsets(offsets()));
    cut_everywhere!(|broker, consumer| {
        let handle = consumer.handle();
        async move { handle.commit_offsets(offsets()).await.map(drop) }
    });
    cut_everywhere!(|broker, consumer| consumer.committed());
}

#[tokio::test(start_paused = true)]
async fn offset_look_ups() {
    cut_everywhere!(|broker, consumer| consumer.beginning_offsets(partitions()));
    cut_everywhere!(|broker, consumer| consumer.end_offsets(partitions()));
    let times = || partitions().into_iter().map(|partition| (partition, 1));
    cut_everywhere!(|broker, consumer| consumer.offsets_for_times(times()));
}

#[tokio::test(start_paused = true)]
async fn the_next_record_of_a_stream() {
    cut_everywhere!(|broker, consumer| async {
        let mut stream = consumer.stream();
        stream.next().await.map(drop)
    });
}

#[tokio::test(start_paused = true)]
async fn close_may_be_dropped_and_called_again() {
    let mut waits = 1;
    loop {
        let (_broker, mut consumer) = start().await;
        consumer.assign(partitions(), Position::Earliest).await.unwrap();
        consumer.poll().await.unwrap();
        let ended = polled(consumer.close(), waits).await.is_some();
        timeout(LIMIT, consumer.close()).await.expect("close hangs").unwrap();
        assert!(consumer.poll().await.is_err());
        if ended {
            break;
        }
        waits += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_shorter_than_every_step_still_makes_progress() {
    let (broker, mut consumer) = start().await;
    broker.fault(kafka_protocol::messages::ApiKey::Fetch).always().delay(Duration::from_millis(20));
    broker.fault(kafka_protocol::messages::ApiKey::ListOffsets).always().delay(Duration::from_millis(20));
    let mut ticks = 0;
    let mut next = [0_i64; 3];
    let _ = polled(consumer.assign(partitions(), Position::Earliest), 1).await;
    while next.iter().any(|next| *next < EACH) {
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_millis(1)) => ticks += 1,
            records = consumer.poll() => {
                for record in &records.unwrap() {
                    let next = &mut next[usize::try_from(record.partition).unwrap()];
                    assert_eq!(record.offset, *next);
                    *next += 1;
                }
            }
        }
        assert!(ticks < 10_000, "no progress under ticks: {next:?}");
    }
}
