//! A producer's life: topics that are not there yet, settings that cannot work, closing, dropping.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;

use kafka_produce::{Acks, Cluster, ErrorKind, Producer, ProducerConfig, ProducerRecord};
use kafka_protocol::messages::{ApiKey, MetadataResponse};
use support::{producer, values};
use testkit::embedded::Embedded;
use tokio::runtime::Builder;
use tokio::time::Instant;

fn record(topic: &str) -> ProducerRecord {
    ProducerRecord::new(topic).value("x")
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_does_not_exist_is_waited_for_then_told() {
    let broker = Embedded::start(2);
    let producer = producer(&broker, ProducerConfig::new().allow_auto_create_topics(false)).await;
    let begun = Instant::now();
    let error = producer.send(record("nowhere")).await.unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some("nowhere")));
    assert_eq!(begun.elapsed().as_secs(), 60);
    let send = tokio::spawn({
        let producer = producer.clone();
        async move { producer.send(record("late")).await }
    });
    tokio::time::sleep(Duration::from_secs(20)).await;
    broker.create_topic("late", 3);
    send.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn sending_to_a_topic_makes_it_where_brokers_allow_that() {
    let broker = Embedded::start(2);
    broker.set_auto_create(true);
    let producer = producer(&broker, ProducerConfig::new()).await;
    let begun = Instant::now();
    producer.send(record("new")).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_denied_is_told_at_once() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let producer = producer(&broker, ProducerConfig::new()).await;
    broker.fault(ApiKey::Metadata).always().map(|answer: &mut MetadataResponse| {
        for topic in &mut answer.topics {
            topic.error_code = 29;
            topic.partitions.clear();
        }
    });
    let begun = Instant::now();
    let error = producer.send(record("t")).await.unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Authorization, Some("t")));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn new_partitions_are_found_and_one_that_never_comes_is_told() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let producer = producer(&broker, ProducerConfig::new()).await;
    producer.send(record("t")).await.unwrap();
    let send = tokio::spawn({
        let producer = producer.clone();
        async move { producer.send(record("t").partition(4)).await }
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    broker.add_partitions("t", 5);
    assert_eq!(send.await.unwrap().unwrap().partition, 4);
    let error = producer.send(record("t").partition(5)).await.unwrap_err();
    assert_eq!((error.kind(), error.partition()), (ErrorKind::UnknownTopic, Some(5)));
}

#[tokio::test(start_paused = true)]
async fn settings_that_contradict_each_other_are_told_before_anything_is_sent() {
    let broker = Embedded::start(1);
    let producer = producer(&broker, ProducerConfig::new().acks(Acks::None).enable_idempotence(true)).await;
    let error = producer.send(record("t")).await.unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::InvalidRequest, Some("t")));
    assert_eq!(producer.flush().await.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[tokio::test(start_paused = true)]
async fn a_flush_does_not_wait_for_the_linger() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let producer = producer(&broker, ProducerConfig::new().linger_ms(50_000)).await;
    let mut send = Box::pin(producer.send(record("t")));
    assert!(futures::poll!(send.as_mut()).is_pending());
    let begun = Instant::now();
    producer.flush().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    send.await.unwrap();
    // Nothing there is a flush as well.
    producer.flush().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_flush_tells_of_a_record_that_failed() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let producer = producer(&broker, ProducerConfig::new()).await;
    broker.fault(ApiKey::Produce).error(29);
    let mut send = Box::pin(producer.send(record("t")));
    assert!(futures::poll!(send.as_mut()).is_pending());
    assert_eq!(producer.flush().await.unwrap_err().kind(), ErrorKind::Authorization);
    assert_eq!(send.await.unwrap_err().kind(), ErrorKind::Authorization);
}

#[tokio::test(start_paused = true)]
async fn a_close_that_is_dropped_may_be_called_again() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let producer = producer(&broker, ProducerConfig::new()).await;
    let held = broker.fault(ApiKey::Produce).always().hold();
    let mut send = Box::pin(producer.send(record("t")));
    assert!(futures::poll!(send.as_mut()).is_pending());
    assert!(tokio::time::timeout(Duration::from_secs(1), producer.close()).await.is_err());
    assert_eq!(producer.send(record("t")).await.unwrap_err().kind(), ErrorKind::Closed);
    held.remove();
    producer.close().await.unwrap();
    send.await.unwrap();
    producer.close().await.unwrap();
    assert_eq!(values(&broker, "t", 0), ["x"]);
}

/// One broker answers, one is frozen, one is dead; records lie about everywhere.
async fn busy() -> (Embedded, Cluster, Producer) {
    let broker = Embedded::tcp(3).await.unwrap();
    broker.create_topic("t", 6);
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    let producer = Producer::new(cluster.clone(), ProducerConfig::new().buffer_memory(2_000));
    producer.send(record("t")).await.unwrap();
    broker.freeze_node(2);
    broker.kill_node(3);
    for n in 0..100 {
        let mut send = Box::pin(producer.send(record("t").partition(n % 6)));
        let _ = futures::poll!(send.as_mut());
    }
    (broker, cluster, producer)
}

#[test]
fn dropping_the_last_clone_leaves_no_task_and_needs_no_runtime() {
    let runtimes = || [Builder::new_current_thread(), Builder::new_multi_thread()];
    for mut builder in runtimes() {
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(async {
            let (broker, cluster, producer) = busy().await;
            let begun = std::time::Instant::now();
            drop(producer.clone());
            drop(producer);
            assert!(begun.elapsed() < Duration::from_secs(1));
            drop((cluster, broker));
            let begun = std::time::Instant::now();
            while tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0 {
                assert!(begun.elapsed() < Duration::from_secs(20), "a task survives");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let (_broker, cluster, producer) = runtime.block_on(busy());
        let never_used = Producer::new(cluster, ProducerConfig::new());
        drop(runtime);
        drop((producer, never_used));
    }
}

#[test]
fn a_producer_outlives_the_runtime_it_was_first_used_on() {
    let runtime = || Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let brokers = runtime();
    let broker = brokers.block_on(Embedded::tcp(1)).unwrap();
    broker.create_topic("t", 1);
    let first = runtime();
    let (cluster, producer) = first.block_on(async {
        let cluster = Cluster::connect_with(broker.config()).await.unwrap();
        let producer = Producer::new(cluster.clone(), ProducerConfig::new());
        producer.send(record("t")).await.unwrap();
        broker.freeze_node(1);
        // On its way when the runtime ends.
        let lost = tokio::time::timeout(Duration::from_millis(200), producer.send(record("t"))).await;
        assert!(lost.is_err());
        (cluster, producer)
    });
    // Its tasks are gone when this returns; while they go, the producer still counts on them.
    first.shutdown_timeout(Duration::from_secs(10));
    broker.thaw_node(1);
    runtime().block_on(async {
        let send = async {
            producer.send(record("t")).await.unwrap();
            producer.close().await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(50), send).await.expect("a stall");
    });
    assert_eq!(values(&broker, "t", 0).len(), 3);
    drop(cluster);
}

#[test]
fn producers_and_their_futures_may_be_sent() {
    fn sendable<T: Send + Sync + Clone>() {}
    fn future<T: Send>(_: &T) {}
    sendable::<Producer>();
    let check = |producer: &Producer| {
        let send = producer.send(record("t"));
        // Programs keep thousands of them.
        assert!(size_of_val(&send) <= 320, "{}", size_of_val(&send));
        future(&send);
        future(&producer.flush());
        future(&producer.close());
        future(&producer.commit_transaction());
    };
    let broker = Embedded::start(1);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    check(&runtime.block_on(producer(&broker, ProducerConfig::new())));
}
