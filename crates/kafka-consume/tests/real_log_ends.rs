//! Logs that do not end with a record: markers, aborted data, holes, an open transaction. Under both
//! visibilities the position reaches the end, lag is 0 and the consumer is idle there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

mod support;

use std::time::Duration;

use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position, Visibility};
use support::{Offsets, Oracle, fetches, is_at, is_idle, one, read_to, until};
use testkit::produce::{Message, Writer};
use testkit::txn::Transactions;
use testkit::{Kafka, Proxy, kafka};

/// Topic, end of the log, records a committed reader gets, records any reader gets.
const LOGS: [(&str, i64, usize, usize); 5] = [
    ("ends-in-commit", 16, 15, 15),
    ("ends-in-abort", 16, 10, 15),
    ("long-abort", 51, 10, 50),
    ("only-aborted", 6, 0, 5),
    ("two-markers", 13, 10, 11),
];

/// An answer holds about three of the big records.
fn config(visibility: Visibility) -> ConsumerConfig {
    ConsumerConfig::new().visibility(visibility).partition_max_bytes(64 * 1024)
}

async fn consumer(bootstrap: &str, config: ConsumerConfig) -> Consumer {
    Consumer::new(Cluster::connect(bootstrap).await.unwrap(), config)
}

fn values(count: usize) -> Vec<Message> {
    (0..count).map(|n| Message::value(format!("v{n}"))).collect()
}

async fn write(kafka: &Kafka, writer: &mut Writer) {
    for (topic, ..) in LOGS {
        kafka.create_topic(topic, 1, 1, &[]).await.unwrap();
    }
    let mut txn = Transactions::init(&kafka.bootstrap(), "writer").await.unwrap();
    for topic in ["ends-in-commit", "ends-in-abort", "long-abort", "two-markers"] {
        writer.numbers(topic, 0, 0..10).await.unwrap();
    }
    txn.send("ends-in-commit", 0, values(5)).await.unwrap();
    txn.commit().await.unwrap();
    txn.send("ends-in-abort", 0, values(5)).await.unwrap();
    txn.send("only-aborted", 0, values(5)).await.unwrap();
    txn.abort().await.unwrap();
    for _ in 0..40 {
        txn.send("long-abort", 0, [Message::value(vec![b'x'; 20 * 1024])]).await.unwrap();
    }
    txn.abort().await.unwrap();
    // A transaction that writes nothing to the partition, then one that is aborted: two markers in a row but
    // for one record.
    txn.add("two-markers", 0).await.unwrap();
    txn.commit().await.unwrap();
    txn.send("two-markers", 0, values(1)).await.unwrap();
    txn.abort().await.unwrap();
}

async fn markers_and_aborted_data_are_passed(kafka: &Kafka, proxy: &Proxy, visibility: Visibility) {
    let committed = visibility == Visibility::CommittedOnly;
    let ends: Offsets = LOGS.iter().map(|(topic, end, ..)| (((*topic).to_owned(), 0), *end)).collect();
    let mut consumer = consumer(&proxy.bootstrap(), config(visibility)).await;
    // The markers are written a moment after the transaction's end is acknowledged.
    until("the markers", async || {
        let found = consumer.end_offsets(ends.keys().cloned()).await.unwrap();
        found.iter().all(|(key, end)| ends[key] == *end)
    })
    .await;
    consumer.assign(ends.keys().cloned(), Position::Earliest).await.unwrap();
    proxy.clear_log();
    let mut oracle = Oracle::rising();
    read_to(&mut consumer, &ends, &mut oracle).await;
    let wanted: usize = LOGS.iter().map(|(_, _, seen, all)| if committed { *seen } else { *all }).sum();
    assert_eq!(oracle.count, wanted, "{visibility:?}");
    if committed {
        let tops = fetches(proxy)
            .into_iter()
            .filter(|seen| seen.fetched().values().any(|offset| (11..50).contains(offset)));
        assert!(tops.count() > 5, "the aborted stretch is longer than one fetch");
    }
    for (topic, ..) in LOGS {
        assert_eq!(consumer.lag(topic, 0), Some(0), "{topic}");
    }
    assert!(consumer.caught_up());
    is_idle(&mut consumer, proxy, kafka.nodes().unwrap().len(), Duration::from_secs(2)).await;
    // Whoever resumes anywhere, a marker included, comes to the same end. All logs at once: a seek takes effect
    // when the long poll in flight has ended.
    for back in 0..17 {
        let mut oracle = Oracle::rising();
        for (topic, end, ..) in LOGS {
            let offset = (end - back).max(0);
            consumer.seek(topic, 0, offset).unwrap();
            oracle.expect_from(topic, 0, offset);
        }
        read_to(&mut consumer, &ends, &mut oracle).await;
    }
    consumer.close().await.unwrap();
}

async fn a_compaction_hole_is_stepped_over(proxy: &Proxy, kafka: &Kafka, writer: &mut Writer) {
    let settings = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("segment.bytes", "1048576"),
        ("min.compaction.lag.ms", "0"),
    ];
    kafka.create_topic("holes", 1, 1, &settings).await.unwrap();
    let total = 360;
    for n in 0..total {
        // Ten to a segment of 1 MiB; five keys in turn, so that whole batches and whole segments go.
        let message = Message::value(vec![b'x'; 100 * 1024]).key(format!("k{}", n / 2 % 5));
        writer.send("holes", 0, [message]).await.unwrap();
    }
    for visibility in [Visibility::CommittedOnly, Visibility::All] {
        let ends: Offsets = [(("holes".to_owned(), 0), total)].into();
        let mut consumer = consumer(&proxy.bootstrap(), config(visibility)).await;
        until("the cleaner", async || {
            consumer.assign(one("holes", 0), Position::Earliest).await.unwrap();
            let mut oracle = Oracle::rising();
            read_to(&mut consumer, &ends, &mut oracle).await;
            oracle.count < 60
        })
        .await;
        assert_eq!(consumer.lag("holes", 0), Some(0));
        // From inside holes as from anywhere else.
        for offset in (0..=total).step_by(40) {
            consumer.seek("holes", 0, offset).unwrap();
            let mut oracle = Oracle::rising();
            oracle.expect_from("holes", 0, offset);
            read_to(&mut consumer, &ends, &mut oracle).await;
        }
        is_idle(&mut consumer, proxy, 1, Duration::from_secs(1)).await;
        consumer.close().await.unwrap();
    }
}

async fn an_open_transaction_is_the_end_for_committed_readers(
    proxy: &Proxy,
    kafka: &Kafka,
    writer: &mut Writer,
) {
    kafka.create_topic("open", 1, 1, &[]).await.unwrap();
    writer.numbers("open", 0, 0..10).await.unwrap();
    let mut txn = Transactions::init(&kafka.bootstrap(), "open").await.unwrap();
    txn.send("open", 0, values(5)).await.unwrap();
    writer.numbers("open", 0, 10..15).await.unwrap();

    let at = |end: i64| -> Offsets { [(("open".to_owned(), 0), end)].into() };
    let mut readers = Vec::new();
    for (visibility, end) in [(Visibility::CommittedOnly, 10), (Visibility::All, 20)] {
        let mut consumer = consumer(&proxy.bootstrap(), config(visibility)).await;
        let ends = consumer.end_offsets(one("open", 0)).await.unwrap();
        assert_eq!(ends[&("open".to_owned(), 0)], end, "{visibility:?}");
        consumer.assign(one("open", 0), Position::Earliest).await.unwrap();
        let mut oracle = Oracle::rising();
        read_to(&mut consumer, &at(end), &mut oracle).await;
        assert_eq!(oracle.count, usize::try_from(end).unwrap());
        assert_eq!(consumer.lag("open", 0), Some(0), "{visibility:?}");
        let stands = &consumer.metrics().partitions[0];
        assert_eq!((stands.high_watermark, stands.last_stable_offset), (Some(20), Some(10)));
        readers.push((consumer, oracle));
    }
    // One leader, two readers: only the one that polls is counted, since the other stands beside it.
    let (mut all, mut all_oracle) = readers.pop().unwrap();
    let (mut committed, mut oracle) = readers.pop().unwrap();
    is_idle(&mut committed, proxy, 2, Duration::from_secs(2)).await;
    assert_eq!(committed.position("open", 0), Some(10), "it waits before the open transaction");

    txn.abort().await.unwrap();
    read_to(&mut committed, &at(21), &mut oracle).await;
    read_to(&mut all, &at(21), &mut all_oracle).await;
    assert_eq!((oracle.count, all_oracle.count), (15, 20));
    assert!(is_at(&all, &at(21)));
    assert_eq!((committed.lag("open", 0), all.lag("open", 0)), (Some(0), Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_end_is_reached() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .property("log.cleaner.backoff.ms", "200")
        .property("transaction.state.log.num.partitions", "1")
        .start()
        .await
        .unwrap();
    kafka.ready_for_transactions().await.unwrap();
    let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    write(&kafka, &mut writer).await;
    for visibility in [Visibility::CommittedOnly, Visibility::All] {
        markers_and_aborted_data_are_passed(&kafka, &proxy, visibility).await;
    }
    a_compaction_hole_is_stepped_over(&proxy, &kafka, &mut writer).await;
    an_open_transaction_is_the_end_for_committed_readers(&proxy, &kafka, &mut writer).await;
}
