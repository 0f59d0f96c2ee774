//! Dropping a consumer, anywhere: it returns at once, needs no runtime, and leaves no task behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::{Duration, Instant};

use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position};
use testkit::embedded::Embedded;
use tokio::runtime::{Builder, Runtime};

/// Far more than a drop takes, far less than any time-out inside.
const AT_ONCE: Duration = Duration::from_secs(2);

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A consumer in the middle of things: one broker answers, one is frozen, one is dead.
async fn busy() -> (Embedded, Cluster, Consumer) {
    let broker = Embedded::tcp(3).await.unwrap();
    broker.create_topic("t", 6);
    for partition in 0..6 {
        broker.append_records("t", partition, (0..100).map(|n| (n.to_string(), "v")));
    }
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    let mut consumer = Consumer::new(cluster.clone(), ConsumerConfig::new().group_id("g"));
    let all = (0..6).map(|partition| ("t".to_owned(), partition));
    consumer.assign(all, Position::Earliest).await.unwrap();
    consumer.poll().await.unwrap();
    broker.freeze_node(2);
    broker.kill_node(3);
    // Commits and look-ups that will not be answered.
    let _ = tokio::time::timeout(Duration::from_millis(20), consumer.commit()).await;
    let end = [("t".to_owned(), 1)];
    let _ = tokio::time::timeout(Duration::from_millis(20), consumer.seek_to_end(end)).await;
    (broker, cluster, consumer)
}

fn drops_at_once<T>(dropped: T) {
    let begun = Instant::now();
    drop(dropped);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
}

#[test]
fn inside_an_async_context_no_task_survives() {
    for runtime in [current_thread(), multi_thread()] {
        runtime.block_on(async {
            let (broker, cluster, consumer) = busy().await;
            drops_at_once(consumer);
            drops_at_once(cluster);
            drop(broker);
            let begun = Instant::now();
            while tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0 {
                assert!(begun.elapsed() < Duration::from_secs(20), "a task survives");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
}

#[test]
fn outside_and_after_the_runtime() {
    for runtime in [current_thread(), multi_thread()] {
        let (broker, cluster, consumer) = runtime.block_on(busy());
        drops_at_once(consumer);
        let again = Consumer::new(cluster.clone(), ConsumerConfig::new());
        drop(runtime);
        drops_at_once(again);
        drops_at_once(cluster);
        drop(broker);
    }
    let runtime = multi_thread();
    let (_broker, cluster, consumer) = runtime.block_on(busy());
    drop(runtime);
    drops_at_once(consumer);
    drops_at_once(cluster);
}

#[test]
fn one_that_was_never_used_needs_no_runtime() {
    let runtime = current_thread();
    let (_broker, cluster, consumer) = runtime.block_on(busy());
    drop(consumer);
    drop(runtime);
    let consumer = Consumer::new(cluster, ConsumerConfig::new());
    let handle = consumer.handle();
    drops_at_once(consumer);
    assert!(handle.assignment().is_empty());
}

#[test]
fn a_handle_that_outlives_it_holds_neither_assignment_nor_records() {
    let runtime = multi_thread();
    runtime.block_on(async {
        let (_broker, _cluster, consumer) = busy().await;
        let handle = consumer.handle();
        assert_eq!(handle.assignment().len(), 6);
        drop(consumer);
        assert!(handle.assignment().is_empty());
        assert!(handle.seek("t", 0, 1).is_err());
        let error = handle.commit_offsets([]).await.unwrap_err();
        assert_eq!(error.kind(), kafka_consume::ErrorKind::Closed);
    });
}
