//! What a producer writes to the embedded broker, and what it tells its callers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use kafka_produce::{Acks, Compression, ErrorKind, ProducerConfig, ProducerRecord};
use support::{log, producer, values};
use testkit::embedded::Embedded;

#[tokio::test(start_paused = true)]
async fn a_record_is_where_its_metadata_says() {
    let broker = Embedded::start(3);
    broker.create_topic("t", 4);
    let producer = producer(&broker, ProducerConfig::new()).await;
    for n in 0..40_i32 {
        let record =
            ProducerRecord::new("t").key(n.to_string()).value(format!("v{n}")).timestamp(i64::from(n));
        let sent = producer.send(record.header("h", "1").null_header("h")).await.unwrap();
        let stored =
            log(&broker, "t", sent.partition).into_iter().find(|one| one.offset == sent.offset).unwrap();
        assert_eq!(stored.key.as_deref(), Some(n.to_string().as_bytes()));
        assert_eq!(stored.value.as_deref(), Some(format!("v{n}").as_bytes()));
        assert_eq!(stored.timestamp, i64::from(n));
        assert_eq!(stored.headers, [("h".to_owned(), Some(b"1".to_vec())), ("h".to_owned(), None)]);
        assert_eq!(sent.timestamp, i64::from(n));
    }
    producer.close().await.unwrap();
    let late = producer.send(ProducerRecord::new("t").value("late")).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn sends_at_once_share_batches_and_keep_their_order() {
    for acks in [Acks::All, Acks::Leader, Acks::None] {
        let broker = Embedded::start(1);
        broker.create_topic("t", 1);
        let producer = producer(&broker, ProducerConfig::new().acks(acks)).await;
        let sends = (0..500).map(|n| producer.send(ProducerRecord::new("t").value(n.to_string())));
        let sent = futures::future::join_all(sends).await;
        for (n, sent) in sent.into_iter().enumerate() {
            let expected = if acks == Acks::None { -1 } else { i64::try_from(n).unwrap() };
            assert_eq!(sent.unwrap().offset, expected);
        }
        producer.flush().await.unwrap();
        support::eventually(|| values(&broker, "t", 0).len() == 500).await;
        assert_eq!(values(&broker, "t", 0), (0..500).map(|n| n.to_string()).collect::<Vec<_>>());
        assert!(broker.stored("t", 0).len() < 20, "{acks:?}: {} batches", broker.stored("t", 0).len());
    }
}

#[tokio::test(start_paused = true)]
async fn every_codec_is_written_and_read_back() {
    for codec in
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
    {
        let broker = Embedded::start(1);
        broker.create_topic("t", 1);
        let producer = producer(&broker, ProducerConfig::new().compression(codec)).await;
        let sends = (0..300).map(|n| producer.send(ProducerRecord::new("t").value(format!("value {n}"))));
        for sent in futures::future::join_all(sends).await {
            sent.unwrap();
        }
        assert_eq!(values(&broker, "t", 0), (0..300).map(|n| format!("value {n}")).collect::<Vec<_>>());
    }
}
