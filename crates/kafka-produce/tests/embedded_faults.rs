//! A producer while the embedded broker loses answers, moves leaders, freezes and dies: nothing lost, nothing
//! twice, order kept, and no broker waits for another.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;

use futures::future::join_all;
use kafka_produce::{ErrorKind, Producer, ProducerConfig, ProducerRecord};
use kafka_protocol::messages::ApiKey;
use support::{log, producer, values};
use testkit::embedded::Embedded;
use tokio::time::{Instant, timeout};

/// Small batches, so that there are many.
fn small() -> ProducerConfig {
    ProducerConfig::new().batch_size(300).linger_ms(1)
}

fn to(partition: i32, value: &str) -> ProducerRecord {
    ProducerRecord::new("t").partition(partition).value(value.to_owned())
}

/// Sends `count` numbered records to each of `partitions`, some at a time, and checks that every one is where its
/// metadata says, once, in order.
async fn send_all(broker: &Embedded, producer: &Producer, partitions: i32, count: usize) {
    let mut offsets = vec![Vec::new(); usize::try_from(partitions).unwrap()];
    for chunk in (0..count).collect::<Vec<_>>().chunks(40) {
        let sends = chunk.iter().flat_map(|n| (0..partitions).map(move |partition| (partition, *n)));
        let sends = sends.map(|(partition, n)| producer.send(to(partition, &n.to_string())));
        for sent in join_all(sends).await {
            let sent = sent.unwrap();
            offsets[usize::try_from(sent.partition).unwrap()].push(sent.offset);
        }
    }
    for partition in 0..partitions {
        let expected: Vec<_> = (0..count).map(|n| n.to_string()).collect();
        assert_eq!(values(broker, "t", partition), expected, "partition {partition}");
        let stored: Vec<_> = log(broker, "t", partition).iter().map(|one| one.offset).collect();
        assert_eq!(offsets[usize::try_from(partition).unwrap()], stored);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_requests_and_lost_answers_leave_no_trace() {
    let broker = Embedded::start(2);
    broker.create_topic("t", 3);
    let producer = producer(&broker, small()).await;
    let after = broker.fault(ApiKey::Produce).skip(2).every(5).times(20).drop_connection_after();
    let before = broker.fault(ApiKey::Produce).skip(4).every(7).times(20).drop_connection_before();
    send_all(&broker, &producer, 3, 1_000).await;
    assert!(after.hits() >= 10 && before.hits() >= 5, "{} {}", after.hits(), before.hits());
    assert!(producer.metrics().retries > 20);
    assert_eq!(producer.metrics().errors, 0);
}

#[tokio::test(start_paused = true)]
async fn every_code_that_heals_heals() {
    for code in [2, 3, 5, 6, 7, 13, 19, 20, 56, 74, 75, 100] {
        let broker = Embedded::start(1);
        broker.create_topic("t", 1);
        let producer = producer(&broker, small()).await;
        let fault = broker.fault(ApiKey::Produce).skip(1).every(3).times(5).error(code);
        send_all(&broker, &producer, 1, 300).await;
        assert_eq!(fault.hits(), 5, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn leaders_may_move_and_nodes_die_while_records_are_sent() {
    let broker = Embedded::start(3);
    broker.create_topic("t", 3);
    let sends = producer(&broker, small()).await;
    let trouble = {
        let broker = broker.clone();
        tokio::spawn(async move {
            for round in 0..12 {
                let node = round % 3 + 1;
                for partition in 0..3 {
                    broker.move_leader("t", partition, node);
                    tokio::time::sleep(Duration::from_millis(37)).await;
                }
                broker.stop_node(node);
                tokio::time::sleep(Duration::from_millis(300)).await;
                broker.start_node(node);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    };
    send_all(&broker, &sends, 3, 3_000).await;
    trouble.await.unwrap();
    // However it went: the end is the same.
    send_all_again(&broker, &sends).await;
    assert_eq!(sends.metrics().errors, 0);
}

async fn send_all_again(broker: &Embedded, producer: &Producer) {
    let before = values(broker, "t", 0).len();
    producer.send(to(0, "last")).await.unwrap();
    assert_eq!(values(broker, "t", 0).len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_hint_about_the_new_leader_is_followed_at_once() {
    let broker = Embedded::start(2);
    broker.create_topic("t", 1);
    let producer = producer(&broker, small()).await;
    producer.send(to(0, "a")).await.unwrap();
    let (leader, _) = broker.leader("t", 0).unwrap();
    broker.move_leader("t", 0, 3 - leader);
    // Nobody who is asked for metadata knows yet.
    let metadata = broker.fault(ApiKey::Metadata).always().hold();
    let sent =
        timeout(Duration::from_millis(60), producer.send(to(0, "b"))).await.expect("waits for metadata");
    assert_eq!(sent.unwrap().offset, 1);
    metadata.remove();
}

#[tokio::test(start_paused = true)]
async fn a_slow_leader_holds_up_nobody_else() {
    let broker = Embedded::start(2);
    broker.create_topic("t", 2);
    let producer = producer(&broker, small()).await;
    let (slow, _) = broker.leader("t", 0).unwrap();
    assert_ne!(broker.leader("t", 1).unwrap().0, slow);
    let held = broker.fault(ApiKey::Produce).node(slow).always().hold();
    let stuck = tokio::spawn({
        let producer = producer.clone();
        async move { producer.send(to(0, "stuck")).await }
    });
    let begun = Instant::now();
    for n in 0..50 {
        producer.send(to(1, &n.to_string())).await.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(!stuck.is_finished());
    held.release();
    stuck.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_frozen_leader_is_left_when_another_is_elected() {
    let broker = Embedded::start(2);
    broker.create_topic("t", 1);
    let producer = producer(&broker, small()).await;
    producer.send(to(0, "a")).await.unwrap();
    let (leader, _) = broker.leader("t", 0).unwrap();
    broker.freeze_node(leader);
    let stuck = tokio::spawn({
        let producer = producer.clone();
        async move { producer.send(to(0, "b")).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    broker.move_leader("t", 0, 3 - leader);
    // The request's own time-out would take thirty seconds.
    let sent = timeout(Duration::from_secs(20), stuck).await.expect("waits for a frozen broker");
    sent.unwrap().unwrap();
    broker.thaw_node(leader);
    assert_eq!(values(&broker, "t", 0), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_waits_and_goes_on() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let producer = producer(&broker, small().buffer_memory(2_000)).await;
    let held = broker.fault(ApiKey::Produce).always().hold();
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let producer = producer.clone();
            tokio::spawn(async move { producer.send(to(0, &format!("{n:0>100}"))).await })
        })
        .collect();
    support::eventually(|| producer.metrics().waiting_records > 50).await;
    assert!(producer.metrics().buffered_bytes <= 2_000);
    held.remove();
    for sent in join_all(tasks).await {
        sent.unwrap().unwrap();
    }
    assert_eq!(values(&broker, "t", 0), (0..100).map(|n| format!("{n:0>100}")).collect::<Vec<_>>());
    assert_eq!(producer.metrics().buffered_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_record_is_sent_whatever_happens_to_its_future() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let producer = producer(&broker, small().buffer_memory(500)).await;
    for n in 0..50 {
        // Polled once; most of them wait for the topic or for room.
        let mut send = Box::pin(producer.send(to(0, &format!("{n:0>50}"))));
        assert!(futures::poll!(send.as_mut()).is_pending());
    }
    // Never polled: never queued.
    drop(producer.send(to(0, "never")));
    producer.flush().await.unwrap();
    assert_eq!(values(&broker, "t", 0), (0..50).map(|n| format!("{n:0>50}")).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_takes_too_long_fails_and_the_partition_goes_on() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let producer = producer(&broker, small().delivery_timeout_ms(40_000)).await;
    producer.send(to(0, "a")).await.unwrap();
    broker.freeze_node(1);
    let begun = Instant::now();
    let error = producer.send(to(0, "b")).await.unwrap_err();
    assert_eq!((error.kind(), error.topic(), error.partition()), (ErrorKind::Timeout, Some("t"), Some(0)));
    assert!(error.to_string().contains("delivery_timeout_ms"), "{error}");
    assert_eq!(begun.elapsed().as_secs(), 40);
    broker.thaw_node(1);
    producer.send(to(0, "c")).await.unwrap();
    let values = values(&broker, "t", 0);
    assert!(values == ["a", "c"] || values == ["a", "b", "c"], "{values:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_broker_finds_too_large_is_split() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let producer = producer(&broker, ProducerConfig::new()).await;
    let fault = broker.fault(ApiKey::Produce).times(3).error(10);
    send_all(&broker, &producer, 1, 40).await;
    assert_eq!(fault.hits(), 3);
    assert!(producer.metrics().splits >= 2);
    let alone = broker.fault(ApiKey::Produce).error(10);
    let error = producer.send(to(0, "alone")).await.unwrap_err();
    assert_eq!((error.kind(), error.partition()), (ErrorKind::BatchTooLarge, Some(0)));
    assert_eq!(alone.hits(), 1);
    producer.send(to(0, "next")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_throttled_producer_waits_as_it_is_told() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let producer = producer(&broker, small()).await;
    producer.send(to(0, "a")).await.unwrap();
    broker.fault(ApiKey::Produce).throttle(Duration::from_secs(2));
    producer.send(to(0, "b")).await.unwrap();
    let begun = Instant::now();
    producer.send(to(0, "c")).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(1_900), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_producer_id_is_waited_for_or_told() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let waits = producer(&broker, small()).await;
    let fault = broker.fault(ApiKey::InitProducerId).times(3).error(15);
    waits.send(to(0, "a")).await.unwrap();
    assert_eq!(fault.hits(), 3);
    let refused = producer(&broker, small()).await;
    broker.fault(ApiKey::InitProducerId).error(31);
    let error = refused.send(to(0, "b")).await.unwrap_err();
    assert_eq!((error.kind(), error.partition()), (ErrorKind::Authorization, Some(0)));
    // The right was given in the meantime.
    refused.send(to(0, "c")).await.unwrap();
    assert_eq!(values(&broker, "t", 0), ["a", "c"]);
}
