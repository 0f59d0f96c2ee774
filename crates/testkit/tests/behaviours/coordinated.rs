//! Transactions as their coordinator runs them: initialising again, epochs, and what takes too long.

use std::time::Duration;

use kafka_protocol::messages::{EndTxnRequest, InitProducerIdRequest};

use super::producers::{Producer, init};
use super::raw::{RawBroker, text};
use super::sessions::setup;

/// One InitProducerId: code, producer id, epoch.
async fn init_once(producer: &mut Producer, asked: (i64, i16)) -> (i16, i64, i16) {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(text(&producer.id).into()))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id(asked.0.into())
        .with_producer_epoch(asked.1);
    let answer = producer.coordinator.call(4, &request).await;
    (answer.error_code, answer.producer_id.0, answer.producer_epoch)
}

/// One EndTxn; its code and epoch.
async fn end_once(producer: &mut Producer, version: i16, epoch: i16, commit: bool) -> (i16, i16) {
    let request = EndTxnRequest::default()
        .with_transactional_id(text(&producer.id).into())
        .with_producer_id(producer.producer_id.into())
        .with_producer_epoch(epoch)
        .with_committed(commit);
    let answer = producer.coordinator.call(version, &request).await;
    (answer.error_code, answer.producer_epoch)
}

pub async fn initialising_again_raises_the_epoch_once(cluster: &mut dyn RawBroker) {
    let s = setup(cluster).await;
    let mut producer = Producer::begin(&s.view).await;
    let (id, epoch) = (producer.producer_id, producer.epoch);
    assert_eq!(init_once(&mut producer, (id, epoch)).await, (0, id, epoch + 1));
    assert_eq!(
        init_once(&mut producer, (id, epoch)).await,
        (0, id, epoch + 1),
        "a lost answer is asked for again"
    );
    assert_eq!(init_once(&mut producer, (-1, -1)).await, (0, id, epoch + 2));
    assert_eq!(init_once(&mut producer, (id, epoch + 1)).await.0, 90, "fenced by the one that knew nothing");
}

pub async fn initialising_in_an_open_transaction_aborts_it_first(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut producer = Producer::begin(&s.view).await;
    assert_eq!(producer.add(3, &s.topic, 1).await, 0);
    assert_eq!(producer.produce(&mut s.leader, 9, &s.topic, 0).await, 0);
    let (id, epoch) = (producer.producer_id, producer.epoch);
    assert_eq!(init_once(&mut producer, (id, epoch)).await.0, 51);
    s.view.settled(&s.topic, 1, 2).await;
    let name = producer.id.clone();
    let again = init(&mut producer.coordinator, &name, (id, epoch), 60_000).await;
    // Up to 4.0 the producer is fenced by the abort of its own transaction.
    assert!(
        again.error_code == 90 || (again.error_code, again.producer_epoch) == (0, epoch + 1),
        "{again:?}"
    );
    let taken = init(&mut producer.coordinator, &name, (-1, -1), 60_000).await;
    assert_eq!((taken.error_code, taken.producer_id.0), (0, id));
    assert!(taken.producer_epoch > epoch);
}

pub async fn an_abort_of_nothing_by_the_new_protocol_raises_the_epoch(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut producer = Producer::begin(&s.view).await;
    let epoch = producer.epoch;
    assert_eq!(end_once(&mut producer, 5, epoch, true).await.0, 48);
    let ended = producer.end(5, epoch, false).await;
    assert_eq!((ended.error_code, ended.producer_epoch), (0, epoch + 1));
    producer.epoch = epoch + 1;
    assert_eq!(producer.produce(&mut s.leader, 12, &s.topic, 0).await, 0);
    let ended = producer.end(5, epoch + 1, true).await;
    assert_eq!((ended.error_code, ended.producer_epoch), (0, epoch + 2));
    s.view.settled(&s.topic, 1, 2).await;
    let ended = producer.end(5, epoch + 2, false).await;
    assert_eq!((ended.error_code, ended.producer_epoch), (0, epoch + 3), "after a commit too");
}

pub async fn the_next_transaction_is_51_until_the_markers_are_written(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut producer = Producer::begin(&s.view).await;
    for (round, commit) in [true, false, true].into_iter().enumerate() {
        // Each asks again while it is told 51.
        assert_eq!(producer.add(3, &s.topic, 1).await, 0);
        let epoch = producer.epoch;
        let sequence = i32::try_from(round).unwrap();
        assert_eq!(producer.produce(&mut s.leader, 9, &s.topic, sequence).await, 0);
        assert_eq!(producer.end(3, epoch, commit).await.error_code, 0);
        if commit {
            let (code, _) = end_once(&mut producer, 3, epoch, true).await;
            assert!([0, 51].contains(&code), "{code}");
        }
        // Told 51 until the markers are written, and 48 then.
        assert_eq!(producer.end(3, epoch, !commit).await.error_code, 48, "the opposite");
    }
    s.view.settled(&s.topic, 1, 6).await;
}

pub async fn a_transaction_that_takes_too_long_is_aborted(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut producer = Producer::begin(&s.view).await;
    let name = producer.id.clone();
    // Long enough for the record to be there first: with 200 ms a broker's abort sometimes came between the partition's
    // being added and the record, and the record stayed open for good.
    let made = init(&mut producer.coordinator, &name, (-1, -1), 2_000).await;
    let epoch = made.producer_epoch;
    producer.epoch = epoch;
    assert_eq!(producer.produce(&mut s.leader, 12, &s.topic, 0).await, 0);
    // The coordinator looks for such transactions from time to time, each ten seconds by default.
    tokio::time::timeout(Duration::from_secs(30), s.view.settled(&s.topic, 1, 2)).await.unwrap();
    assert_eq!(producer.produce(&mut s.leader, 12, &s.topic, 1).await, 47);
    assert_eq!(producer.add(3, &s.topic, 1).await, 90);
    assert_eq!(end_once(&mut producer, 4, epoch, true).await.0, 90);
    assert_eq!(end_once(&mut producer, 5, epoch, true).await.0, 48);
    let (code, next) = end_once(&mut producer, 5, epoch, false).await;
    assert_eq!(code, 0, "the abort it would have asked for");
    producer.epoch = next;
    assert_eq!(producer.produce(&mut s.leader, 12, &s.topic, 0).await, 0, "and it goes on");
    assert_eq!(producer.end(5, next, true).await.error_code, 0);
}
