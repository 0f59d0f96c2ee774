//! Bounds of a scan on the embedded broker under the paused clock: all of it, offsets, times, the last so many,
//! partitions, keys; and what it leaves on the wire.
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
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use kafka_meta::wire::protocol::messages::ApiKey;
use kafka_read::batch::Codec;
use kafka_read::batch::write::BatchOptions;
use kafka_read::{Cluster, ErrorKind, ScanEvent, ScanFrom, ScanSpec, ScanUntil, Visibility, scan};
use scan_support::{compacted, fill, read};
use testkit::embedded::Embedded;
use testkit::produce::{Message, batch};

#[tokio::test(start_paused = true)]
async fn all_of_a_topic_is_read_once_and_in_order() {
    let broker = Embedded::start(3);
    broker.create_topic("t", 7);
    for partition in 0..7 {
        fill(&broker, "t", partition, 20, 10 + partition as usize);
    }
    let ledger = read(&broker, ScanSpec::new("t")).await;
    assert!(ledger.all_done());
    for partition in 0..7 {
        let end = 20 * (10 + i64::from(partition));
        let account = ledger.of(partition);
        assert_eq!(account.offsets(), (0..end).collect::<Vec<_>>());
        assert_eq!(account.bounds, Some((0, end)));
        assert_eq!(account.records[0].value.as_deref(), Some(&b"v0"[..]));
    }
    // No session: neither asked for nor given.
    let fetches: Vec<_> =
        broker.requests_of(ApiKey::Fetch).into_iter().map(|seen| seen.fetch.unwrap()).collect();
    assert!(!fetches.is_empty());
    assert!(fetches.iter().all(|fetch| (fetch.session_id, fetch.session_epoch) == (0, -1)));
    for node in 1..=3 {
        assert_eq!(broker.sessions(node), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_topic_is_done_at_once() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 3);
    let start = tokio::time::Instant::now();
    let ledger = read(&broker, ScanSpec::new("t")).await;
    assert!(ledger.all_done() && ledger.count() == 0);
    assert_eq!(ledger.partitions.len(), 3);
    assert_eq!(broker.count(ApiKey::Fetch), 0, "nothing to fetch");
    assert!(start.elapsed() < Duration::from_millis(100));
    // And no partitions at all.
    let ledger = read(&broker, ScanSpec::new("t").partitions([])).await;
    assert!(ledger.partitions.is_empty() && ledger.error.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_does_not_exist_is_an_error_that_names_it() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 2);
    fill(&broker, "t", 0, 1, 5);
    let ledger = read(&broker, ScanSpec::new("nowhere")).await;
    let error = ledger.error.unwrap();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some("nowhere")));
    // One partition that is not there costs the others nothing.
    let ledger = read(&broker, ScanSpec::new("t").partitions([0, 9, 1, 0])).await;
    assert_eq!(ledger.of(9).error.as_ref().unwrap().kind(), ErrorKind::UnknownTopic);
    assert_eq!(ledger.of(0).records.len(), 5);
    assert!(ledger.of(0).done && ledger.of(1).done);
    for spec in [
        ScanSpec::new(""),
        ScanSpec::new("t").from(ScanFrom::Timestamp(-5)),
        ScanSpec::new("t").until(ScanUntil::Timestamp(-1)),
    ] {
        assert_eq!(read(&broker, spec).await.error.unwrap().kind(), ErrorKind::InvalidRequest);
    }
}

#[tokio::test(start_paused = true)]
async fn offsets_bound_the_stretch() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 2);
    fill(&broker, "t", 0, 10, 10);
    fill(&broker, "t", 1, 10, 10);
    broker.delete_records("t", 0, 15);
    let cases: [(ScanFrom, ScanUntil, std::ops::Range<i64>, std::ops::Range<i64>); 8] = [
        (ScanFrom::Earliest, ScanUntil::Latest, 15..100, 0..100),
        (ScanFrom::Offset(33), ScanUntil::Offset(57), 33..57, 33..57),
        (ScanFrom::Offset(-7), ScanUntil::Offset(20), 15..20, 0..20),
        (ScanFrom::Offset(99), ScanUntil::Offset(1_000), 99..100, 99..100),
        (ScanFrom::Offset(1_000), ScanUntil::Latest, 100..100, 100..100),
        (ScanFrom::Offset(50), ScanUntil::Offset(40), 50..50, 50..50),
        (ScanFrom::Latest, ScanUntil::Latest, 100..100, 100..100),
        (
            ScanFrom::Offsets(BTreeMap::from([(0, 20)])),
            ScanUntil::Offsets(BTreeMap::from([(1, 7)])),
            20..100,
            0..7,
        ),
    ];
    for (from, until, first, second) in cases {
        let spec = ScanSpec::new("t").from(from).until(until);
        let ledger = read(&broker, spec.clone()).await;
        assert!(ledger.all_done());
        for (partition, wanted) in [(0, first), (1, second)] {
            let account = ledger.of(partition);
            assert_eq!(account.offsets(), wanted.clone().collect::<Vec<_>>(), "{spec:?}");
            assert_eq!(account.bounds, Some((wanted.start, wanted.end)), "{spec:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn adjoining_ranges_of_time_share_nothing_and_miss_nothing() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    // Times that go back and forth.
    broker.append_at("t", 0, &[100, 300, 200, 500, 400, 150, 600, 550, 700, 650]);
    let all = read(&broker, ScanSpec::new("t")).await.of(0).offsets();
    for split in [0, 100, 101, 250, 500, 650, 701, 9_999] {
        let before = ScanSpec::new("t").until(ScanUntil::Timestamp(split));
        let after = ScanSpec::new("t").from(ScanFrom::Timestamp(split));
        let mut both = read(&broker, before).await.of(0).offsets();
        both.extend(read(&broker, after).await.of(0).offsets());
        assert_eq!(both, all, "split at {split}");
    }
    let some = ScanSpec::new("t").from(ScanFrom::Timestamp(300)).until(ScanUntil::Timestamp(600));
    assert_eq!(read(&broker, some).await.of(0).offsets(), [1, 2, 3, 4, 5]);
    let none = ScanSpec::new("t").from(ScanFrom::Timestamp(600)).until(ScanUntil::Timestamp(300));
    assert!(read(&broker, none).await.of(0).records.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_last_records_are_found_behind_whatever_holds_none() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 3);
    fill(&broker, "t", 0, 40, 25);
    // Few records far apart, and markers at the end.
    fill(&broker, "t", 1, 1, 3);
    broker.append("t", 1, compacted(0, 50_000, [0, 7]));
    broker.append("t", 1, compacted(0, 100_000, [10]));
    for _ in 0..300 {
        broker.begin("tx").append::<&str>("t", 1, []);
    }
    let mut open = broker.begin("aborted");
    open.append("t", 2, ["x", "y"]);
    open.abort();
    for n in [0, 1, 2, 5, 100, 10_000] {
        let ledger = read(&broker, ScanSpec::new("t").last(n)).await;
        assert!(ledger.all_done());
        let n = n as usize;
        let dense: Vec<i64> = (0..1_000).collect();
        assert_eq!(ledger.of(0).offsets(), dense[1_000usize.saturating_sub(n)..]);
        let sparse = [0, 1, 2, 3, 10, 50_013];
        assert_eq!(ledger.of(1).offsets(), sparse[6usize.saturating_sub(n)..], "last {n}");
        assert_eq!(ledger.of(2).offsets(), [0, 1][2usize.saturating_sub(n)..]);
        let committed = ScanSpec::new("t").visibility(Visibility::CommittedOnly).last(n as u64);
        assert!(read(&broker, committed).await.of(2).records.is_empty());
    }
    // The last of a stretch, and the last with a key.
    let spec = ScanSpec::new("t").partitions([0]).from(ScanFrom::Offset(100)).until(ScanUntil::Offset(500));
    assert_eq!(read(&broker, spec.clone().last(3)).await.of(0).offsets(), [497, 498, 499]);
    assert_eq!(read(&broker, spec.last(3).key("k7")).await.of(0).offsets(), [432, 457, 482]);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_matched_byte_by_byte_in_every_partition() {
    let broker = Embedded::start(2);
    broker.create_topic("t", 4);
    for partition in 0..4 {
        broker.append_records("t", partition, [("a", "1"), ("ab", "2"), ("A", "3"), ("a", "4")]);
    }
    let ledger = read(&broker, ScanSpec::new("t").key("a")).await;
    assert!(ledger.all_done());
    for partition in 0..4 {
        let values: Vec<_> =
            ledger.of(partition).records.iter().map(|record| record.value.clone().unwrap()).collect();
        assert_eq!(values, ["1", "4"]);
        assert_eq!(ledger.of(partition).position, 4);
    }
    assert_eq!(
        read(&broker, ScanSpec::new("t").key(Bytes::new())).await.count(),
        0,
        "no key is not an empty key"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_written_after_the_beginning_is_not_read() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    fill(&broker, "t", 0, 3, 10);
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    let mut events = scan(cluster, ScanSpec::new("t"));
    let Some(Ok(ScanEvent::Progress { end: 30, .. })) = events.next().await else { panic!("progress first") };
    fill(&broker, "t", 0, 3, 10);
    let rest: Vec<_> = events.collect().await;
    let records = rest.iter().filter(|event| matches!(event, Ok(ScanEvent::Record(_)))).count();
    assert_eq!(records, 30);
}

#[test]
fn streams_may_be_moved_anywhere() {
    fn held<S: futures::Stream + Send + Unpin + 'static>(_: fn(Cluster) -> S) {}
    held(|cluster| scan(cluster, ScanSpec::new("t")));
    held(|cluster| kafka_read::tail(cluster, kafka_read::TailSpec::new("t")));
    assert!(size_of::<ScanEvent>() <= 152, "{}", size_of::<ScanEvent>());
}

/// Large packed batches are worked on beside the runtime's own threads; order and offsets stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_packed_batches_keep_their_order_on_many_threads() {
    let broker = Embedded::tcp(2).await.unwrap();
    broker.create_topic("t", 4);
    let mut random = fastrand::Rng::with_seed(3);
    for codec in [Codec::Zstd, Codec::Gzip, Codec::Lz4, Codec::Snappy, Codec::None, Codec::Zstd] {
        for partition in 0..4 {
            // Noise does not pack: each batch is about 100 KiB on the wire.
            let values =
                (0..100).map(|_| Message::value((0..1_000).map(|_| random.u8(..)).collect::<Vec<u8>>()));
            let options = BatchOptions { codec, ..BatchOptions::default() };
            broker.append("t", partition, batch(options, values).unwrap());
        }
    }
    for buffer in [64 << 10, 32 << 20] {
        let ledger = read(&broker, ScanSpec::new("t").buffer_bytes(buffer)).await;
        assert!(ledger.all_done());
        for partition in 0..4 {
            assert_eq!(ledger.of(partition).offsets(), (0..600).collect::<Vec<_>>());
        }
    }
}
