//! The raw writers on the embedded broker: what they write is there, and transactions end as told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use kafka_read::batch::Codec;
use kafka_read::batch::write::BatchOptions;
use testkit::embedded::Embedded;
use testkit::produce::{Message, Writer, batch, numbered};
use testkit::txn::Transactions;

#[tokio::test(start_paused = true)]
async fn batches_go_to_their_leaders() {
    let kafka = Embedded::start(3);
    kafka.create_topic("t", 3);
    let mut writer = Writer::with(kafka.connector(), &kafka.bootstrap());
    for partition in 0..3 {
        assert_eq!(
            writer.send("t", partition, [Message::value("v"), Message::tombstone("k")]).await.unwrap(),
            0
        );
        let options = BatchOptions { codec: Codec::Zstd, ..BatchOptions::default() };
        assert_eq!(writer.send_as("t", partition, options, numbered(partition, 0..10)).await.unwrap(), 2);
        writer.numbers("t", partition, 0..1200).await.unwrap();
        assert_eq!(kafka.high_watermark("t", partition), 1212);
    }
    // The leader moves: the writer finds the next one.
    kafka.move_leader("t", 0, 2);
    assert_eq!(writer.send("t", 0, [Message::value("v")]).await.unwrap(), 1212);
    kafka.move_leader("t", 0, 3);
    assert_eq!(writer.send("t", 0, [Message::value("v")]).await.unwrap(), 1213);
}

#[tokio::test(start_paused = true)]
async fn a_refused_batch_is_told_and_not_written() {
    let kafka = Embedded::start(1);
    kafka.create_topic("t", 1);
    let mut writer = Writer::with(kafka.connector(), &kafka.bootstrap());
    let mut broken = batch(BatchOptions::default(), [Message::value("x")]).unwrap().to_vec();
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let refused = writer.offer("t", 0, broken.into()).await.unwrap();
    assert_ne!(refused.error.value(), 0);
    assert_eq!(kafka.log_end("t", 0), 0);
}

#[tokio::test(start_paused = true)]
async fn transactions_commit_abort_and_stay_open() {
    let kafka = Embedded::start(3);
    kafka.create_topic("t", 1);
    let bootstrap = kafka.bootstrap();
    let mut txn =
        Transactions::init_with(kafka.connector(), &bootstrap, "tx", Duration::from_secs(60)).await.unwrap();
    txn.send("t", 0, numbered(0, 0..5)).await.unwrap();
    assert_eq!(kafka.last_stable_offset("t", 0), 0);
    txn.commit().await.unwrap();
    assert_eq!(kafka.last_stable_offset("t", 0), 6);
    txn.send("t", 0, numbered(0, 5..7)).await.unwrap();
    txn.send("t", 0, numbered(0, 7..9)).await.unwrap();
    txn.abort().await.unwrap();
    assert_eq!((kafka.last_stable_offset("t", 0), kafka.high_watermark("t", 0)), (11, 11));
    txn.send("t", 0, numbered(0, 9..10)).await.unwrap();
    assert_eq!((kafka.last_stable_offset("t", 0), kafka.high_watermark("t", 0)), (11, 12));
}
