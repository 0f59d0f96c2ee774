//! Scans and tails on real brokers: what Java wrote in every compression, by time, by key, the last of it; logs
//! that end with markers and holes; live records; a leader that dies in the middle. 4.3.1 with three nodes, and
//! 3.9.1.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

mod scan_support;

use std::collections::BTreeMap;

use futures::StreamExt;
use kafka_meta::wire::protocol::messages::ApiKey;
use kafka_read::{
    Cluster, Record, ScanFrom, ScanSpec, ScanUntil, TailSpec, TimestampType, Visibility, scan, tail,
};
use scan_support::{Ledger, drain, until};
use testkit::java::{Java, JavaRecord, ProducePlan};
use testkit::produce::{Message, Writer};
use testkit::txn::Transactions;
use testkit::{Kafka, Proxy, kafka};

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
const PER_CODEC: u64 = 2_000;
const BASE_TIME: i64 = 1_600_000_000_000;
const STEP: i64 = 1_000_000;

type Written = BTreeMap<(i32, i64), JavaRecord>;

async fn read(bootstrap: &str, spec: ScanSpec) -> Ledger {
    let ledger = drain(scan(Cluster::connect(bootstrap).await.unwrap(), spec)).await;
    assert!(ledger.all_done(), "{:?}", ledger.error);
    ledger
}

async fn write(java: &Java, topic: &str) -> Written {
    let mut written = Written::new();
    for (run, codec) in CODECS.into_iter().enumerate() {
        let plan = ProducePlan {
            count: PER_CODEC,
            partitions: 3,
            size: 60,
            keys: 50,
            headers: 2,
            tombstones: 17,
            timestamp: Some(BASE_TIME + run as i64 * STEP),
            ..ProducePlan::new(topic).producer("compression.type", codec).producer("linger.ms", "20")
        };
        let records = java.produce(plan).await.unwrap();
        written.extend(records.into_iter().map(|one| ((one.partition, one.offset), one)));
    }
    assert_eq!(written.len(), CODECS.len() * PER_CODEC as usize);
    written
}

fn same_as_java(record: &Record, written: &Written) {
    let java = &written[&(record.partition, record.offset)];
    assert_eq!(record.key.as_deref(), java.key.as_deref());
    assert_eq!(record.value.as_deref(), java.value.as_deref());
    assert_eq!(record.timestamp.millis(), java.timestamp);
    assert_eq!(record.timestamp.kind(), TimestampType::CreateTime);
    let headers: Vec<(Vec<u8>, Option<Vec<u8>>)> = record
        .headers
        .iter()
        .map(|header| (header.key.as_bytes().to_vec(), header.value.map(|value| value.to_vec())))
        .collect();
    assert_eq!(headers, java.headers);
}

async fn what_java_wrote_is_what_is_read(bootstrap: &str, written: &Written) {
    for visibility in [Visibility::All, Visibility::CommittedOnly] {
        let ledger = read(bootstrap, ScanSpec::new("codecs").visibility(visibility)).await;
        assert_eq!(ledger.count(), written.len());
        for account in ledger.partitions.values() {
            account.records.iter().for_each(|record| same_as_java(record, written));
            assert!(account.malformed.is_empty());
        }
    }
    // By time: exactly one run.
    for run in 0..CODECS.len() as i64 {
        let spec = ScanSpec::new("codecs")
            .from(ScanFrom::Timestamp(BASE_TIME + run * STEP))
            .until(ScanUntil::Timestamp(BASE_TIME + (run + 1) * STEP));
        let ledger = read(bootstrap, spec).await;
        assert_eq!(ledger.count() as u64, PER_CODEC, "run {run}");
        let times = BASE_TIME + run * STEP..BASE_TIME + (run + 1) * STEP;
        let all = ledger.partitions.values().flat_map(|account| &account.records);
        assert!(all.map(|record| record.timestamp.millis()).all(|time| times.contains(&time)));
    }
    // The last, and a key.
    let ledger = read(bootstrap, ScanSpec::new("codecs").last(7)).await;
    for (partition, account) in &ledger.partitions {
        let end =
            written.keys().filter(|(one, _)| one == partition).map(|(_, offset)| offset + 1).max().unwrap();
        assert_eq!(account.offsets(), (end - 7..end).collect::<Vec<_>>());
    }
    let ledger = read(bootstrap, ScanSpec::new("codecs").key("key-3")).await;
    let with_key = written.values().filter(|java| java.key.as_deref() == Some(b"key-3"));
    assert_eq!(ledger.count(), with_key.count());
}

async fn logs_that_end_without_a_record(kafka: &Kafka, bootstrap: &str, cleaned: bool) {
    let settings = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("segment.bytes", "1048576"),
        ("min.compaction.lag.ms", "0"),
    ];
    kafka.create_topic("compacted", 1, 1, &settings).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    let total: i64 = 160;
    for n in 0..total {
        let message = Message::value(vec![b'x'; 100 * 1024]).key(format!("k{}", n / 2 % 5));
        writer.send("compacted", 0, [message]).await.unwrap();
    }
    let mut txn = Transactions::init(&kafka.bootstrap(), "scanned").await.unwrap();
    txn.send("compacted", 0, [Message::value("never").key("a"), Message::value("was").key("b")])
        .await
        .unwrap();
    txn.abort().await.unwrap();
    txn.send("compacted", 0, [Message::value("is").key("c")]).await.unwrap();
    txn.commit().await.unwrap();
    // Two records, a marker, one record, a marker.
    let end = total + 5;
    let mut counts = BTreeMap::new();
    let waited = tokio::time::timeout(scan_support::LIMIT, async {
        loop {
            for visibility in [Visibility::All, Visibility::CommittedOnly] {
                let ledger = read(bootstrap, ScanSpec::new("compacted").visibility(visibility)).await;
                counts.insert(visibility == Visibility::All, (ledger.count(), ledger.of(0).position));
            }
            let settled = counts.values().all(|(_, position)| *position == end);
            // The cleaner may have come between the two.
            let differ = counts[&true].0 == counts[&false].0 + 2;
            if settled && differ && (!cleaned || counts[&true].0 < 60) {
                break;
            }
        }
    });
    assert!(waited.await.is_ok(), "{counts:?}");
    // The last record lies behind a marker; before it one that was aborted.
    let last = |visibility, n| read(bootstrap, ScanSpec::new("compacted").visibility(visibility).last(n));
    assert_eq!(last(Visibility::All, 1).await.of(0).offsets(), [total + 3]);
    assert_eq!(last(Visibility::All, 2).await.of(0).offsets(), [total + 1, total + 3]);
    assert_eq!(last(Visibility::CommittedOnly, 2).await.of(0).offsets(), [total - 1, total + 3]);
    for from in (0..=end).step_by(33) {
        let ledger = read(bootstrap, ScanSpec::new("compacted").from(ScanFrom::Offset(from))).await;
        assert_eq!(ledger.of(0).position, end);
        assert!(ledger.of(0).lost.is_empty());
    }
}

async fn a_tail_sees_what_java_writes(java: &Java, bootstrap: &str) {
    let mut events = tail(Cluster::connect(bootstrap).await.unwrap(), TailSpec::new("codecs"));
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, |ledger| ledger.partitions.len() == 3).await;
    let plan = ProducePlan { count: 300, partitions: 3, ..ProducePlan::new("codecs") };
    let (written, ()) =
        tokio::join!(java.produce(plan), until(&mut events, &mut ledger, |ledger| ledger.count() == 300));
    let mut written: Vec<(i32, i64)> =
        written.unwrap().into_iter().map(|java| (java.partition, java.offset)).collect();
    written.sort_unstable();
    let seen: Vec<(i32, i64)> = ledger
        .partitions
        .iter()
        .flat_map(|(partition, account)| account.offsets().into_iter().map(|offset| (*partition, offset)))
        .collect();
    assert_eq!(seen, written);
}

async fn a_leader_killed_in_the_middle_costs_nothing(kafka: &Kafka, java: &Java) {
    kafka.create_topic("big", 3, 3, &[]).await.unwrap();
    let total = 60_000;
    let plan =
        ProducePlan { count: total, partitions: 3, size: 100, print: false, ..ProducePlan::new("big") };
    java.produce(plan.producer("acks", "all")).await.unwrap();
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let mut events = scan(cluster, ScanSpec::new("big").buffer_bytes(192 << 10));
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, |ledger| ledger.count() as u64 > total / 4).await;
    kafka.kill_node(kafka.leader("big", 0).await.unwrap()).unwrap();
    while let Some(item) = events.next().await {
        ledger.take(item);
    }
    assert!(ledger.all_done(), "{:?}", ledger.partitions.values().map(|one| &one.error).collect::<Vec<_>>());
    for partition in 0..3 {
        let offsets = ledger.of(partition).offsets();
        assert_eq!(offsets, (0..total as i64 / 3).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .nodes(3)
        .quick_failover()
        .property("log.cleaner.backoff.ms", "200")
        .property("transaction.state.log.num.partitions", "1")
        .start()
        .await
        .unwrap();
    kafka.ready_for_transactions().await.unwrap();
    let java = Java::new(&kafka).await.unwrap();
    kafka.create_topic("codecs", 3, 3, &[]).await.unwrap();
    let written = write(&java, "codecs").await;
    let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
    what_java_wrote_is_what_is_read(&proxy.bootstrap(), &written).await;
    a_tail_sees_what_java_writes(&java, &proxy.bootstrap()).await;
    logs_that_end_without_a_record(&kafka, &proxy.bootstrap(), true).await;
    // Nowhere was a session asked for.
    let fetches: Vec<_> = proxy.log().into_iter().filter(|seen| seen.api == ApiKey::Fetch as i16).collect();
    assert!(fetches.len() > 50);
    assert!(fetches.iter().all(|seen| seen.fetch_session() == Some((0, -1))));
    a_leader_killed_in_the_middle_costs_nothing(&kafka, &java).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_release() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .version("3.9.1")
        .property("transaction.state.log.num.partitions", "1")
        .start()
        .await
        .unwrap();
    kafka.ready_for_transactions().await.unwrap();
    let java = Java::new(&kafka).await.unwrap();
    kafka.create_topic("codecs", 3, 1, &[]).await.unwrap();
    let written = write(&java, "codecs").await;
    what_java_wrote_is_what_is_read(&kafka.bootstrap(), &written).await;
    a_tail_sees_what_java_writes(&java, &kafka.bootstrap()).await;
    logs_that_end_without_a_record(&kafka, &kafka.bootstrap(), false).await;
}
