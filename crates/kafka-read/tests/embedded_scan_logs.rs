//! What can lie in a log, as a scan and a tail hand it over: field bugs about log content, on the embedded broker
//! under the paused clock. Names begin with the ids of `docs/testing.md`.
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

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_meta::wire::protocol::messages::fetch_response::AbortedTransaction;
use kafka_meta::wire::protocol::messages::{ApiKey, FetchResponse};
use kafka_read::batch::Codec;
use kafka_read::batch::write::{BatchOptions, legacy, seal};
use kafka_read::{ErrorKind, Record, ScanFrom, ScanSpec, ScanUntil, TimestampType, Visibility};
use scan_support::{compacted, fill, read};
use testkit::embedded::{Embedded, TopicSpec};
use testkit::produce::{Message, batch};

const BOTH: [Visibility; 2] = [Visibility::CommittedOnly, Visibility::All];

fn spec() -> ScanSpec {
    ScanSpec::new("t")
}

#[tokio::test(start_paused = true)]
async fn fb26_holes_of_every_shape_end_the_scan_all_the_same() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    fill(&broker, "t", 0, 12, 10);
    // Batch n keeps its first n records; the eleventh is gone with its header, the twelfth is full.
    for n in 0..10 {
        let base = i64::from(n) * 10;
        broker.replace("t", 0, base, base + 10, compacted(base, 10, 0..n));
    }
    broker.replace("t", 0, 100, 110, Bytes::new());
    broker.append("t", 0, compacted(0, 1_000_000, [0]));
    let end = broker.high_watermark("t", 0);
    assert_eq!(end, 120 + 1_000_000);
    for visibility in BOTH {
        let ledger = read(&broker, spec().visibility(visibility)).await;
        assert!(ledger.all_done());
        assert_eq!(ledger.of(0).records.len(), 45 + 10 + 1);
        assert_eq!(ledger.of(0).position, end, "the bar is full though the last record is far below");
        for offset in (0..=125).chain([500_000, end - 1, end]) {
            let ledger = read(&broker, spec().visibility(visibility).from(ScanFrom::Offset(offset))).await;
            let all: Vec<i64> = read(&broker, spec()).await.of(0).offsets();
            let wanted: Vec<i64> = all.into_iter().filter(|at| *at >= offset).collect();
            assert_eq!(ledger.of(0).offsets(), wanted);
        }
    }
    // Ends inside holes, and behind them.
    for end in [95, 99, 100, 105, 110, 111, 500_000] {
        let ledger = read(&broker, spec().until(ScanUntil::Offset(end))).await;
        assert!(ledger.all_done(), "{end}: {ledger:?}");
        assert_eq!(ledger.of(0).position, end);
        assert!(ledger.of(0).offsets().iter().all(|at| *at < end));
    }
}

/// No real broker leaves one: the batch with a log's last offset is never compacted away.
#[tokio::test(start_paused = true)]
async fn fb26_a_log_without_its_last_batch_is_told_and_ends() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 2);
    fill(&broker, "t", 0, 2, 10);
    fill(&broker, "t", 1, 5, 10);
    broker.replace("t", 0, 10, 20, Bytes::new());
    let ledger = read(&broker, spec()).await;
    assert!(ledger.all_done());
    assert_eq!(ledger.of(0).lost, [(10..20, 20, kafka_read::Loss::Missing)]);
    assert_eq!((ledger.count(), ledger.of(0).position), (60, 20));
}

#[tokio::test(start_paused = true)]
async fn fb28_a_marker_at_the_end_fills_the_bar() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 4);
    for partition in 0..3 {
        fill(&broker, "t", partition, 1, 10);
        let mut txn = broker.begin("tx");
        txn.append("t", partition, ["a", "b"]);
        match partition {
            0 => txn.commit(),
            1 => txn.abort(),
            _ => std::mem::forget(txn),
        }
    }
    let mut only = broker.begin("only");
    only.append("t", 3, ["x"]);
    only.abort();
    let all = read(&broker, spec()).await;
    assert!(all.all_done());
    let ends = |ledger: &scan_support::Ledger| {
        (0..4).map(|one| (ledger.of(one).records.len(), ledger.of(one).position)).collect::<Vec<_>>()
    };
    let open = broker.high_watermark("t", 2);
    assert_eq!(ends(&all), [(12, 13), (12, 13), (12, open), (1, 2)]);
    let committed = read(&broker, spec().visibility(Visibility::CommittedOnly)).await;
    assert!(committed.all_done());
    let stable = broker.last_stable_offset("t", 2);
    assert_eq!(ends(&committed), [(12, 13), (10, 13), (stable as usize, stable), (0, 2)]);
}

#[tokio::test(start_paused = true)]
async fn fb29_a_marker_without_its_transaction() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let mut txn = broker.begin("tx");
    txn.append("t", 0, ["aborted"]);
    txn.abort();
    fill(&broker, "t", 0, 1, 3);
    let mut txn = broker.begin("tx");
    txn.append::<&str>("t", 0, []);
    txn.abort();
    let end = broker.high_watermark("t", 0);
    let shapes: [fn() -> Option<Vec<AbortedTransaction>>; 3] = [
        || None,
        || Some(Vec::new()),
        || Some(vec![AbortedTransaction::default().with_producer_id(999.into()).with_first_offset(0)]),
    ];
    for shape in shapes {
        let fault = broker.fault(ApiKey::Fetch).always().map(move |answer: &mut FetchResponse| {
            for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
                partition.aborted_transactions = shape();
            }
        });
        let from_marker = spec().visibility(Visibility::CommittedOnly).from(ScanFrom::Offset(1));
        let ledger = read(&broker, from_marker).await;
        assert!(ledger.all_done());
        assert_eq!((ledger.of(0).offsets(), ledger.of(0).position), (vec![2, 3, 4], end));
        fault.remove();
    }
}

/// A batch of codec 5, and one that inflates to 20 MiB.
fn unreadable() -> [(Bytes, ErrorKind); 2] {
    let mut unknown = batch(BatchOptions::default(), [Message::value("x")]).unwrap().to_vec();
    unknown[22] |= 5;
    seal(&mut unknown);
    let options = BatchOptions { codec: Codec::Zstd, ..BatchOptions::default() };
    let bomb = batch(options, [Message::value(vec![0; 20 << 20])]).unwrap();
    [(Bytes::from(unknown), ErrorKind::UnsupportedCodec), (bomb, ErrorKind::BatchTooLarge)]
}

#[tokio::test(start_paused = true)]
async fn fb31_a_batch_that_cannot_be_read_is_handed_over_and_the_scan_goes_on() {
    for (bytes, kind) in unreadable() {
        let broker = Embedded::start(1);
        broker.create_topic("t", 2);
        fill(&broker, "t", 0, 1, 5);
        broker.append("t", 0, bytes.clone());
        fill(&broker, "t", 0, 1, 5);
        fill(&broker, "t", 1, 10, 5);
        let ledger = read(&broker, spec().max_batch_bytes(1 << 20)).await;
        assert!(ledger.all_done());
        assert_eq!(ledger.of(0).offsets(), (0..5).chain(6..11).collect::<Vec<_>>());
        assert_eq!(ledger.of(1).records.len(), 50);
        let (offsets, found, error) = &ledger.of(0).malformed[0];
        assert_eq!((offsets.clone(), error.kind(), found.len()), (5..6, kind, bytes.len()));
        assert_eq!((error.topic(), ledger.of(0).malformed.len()), (Some("t"), 1));
        // Outside of what was asked for it is nobody's business.
        let ledger = read(&broker, spec().partitions([0]).from(ScanFrom::Offset(6))).await;
        assert!(ledger.of(0).malformed.is_empty());
        let ledger = read(&broker, spec().partitions([0]).until(ScanUntil::Offset(5))).await;
        assert!(ledger.of(0).malformed.is_empty() && ledger.of(0).records.len() == 5);
        // The last records lie on both sides of it.
        let ledger = read(&broker, spec().partitions([0]).last(7).max_batch_bytes(1 << 20)).await;
        assert_eq!((ledger.of(0).records.len(), ledger.of(0).malformed.len()), (7, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn fb31_damage_is_handed_over_with_its_offsets() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for sealed in [false, true] {
            let broker = Embedded::start(1);
            broker.create_topic("t", 1);
            fill(&broker, "t", 0, 1, 5);
            let options = BatchOptions { codec, base_offset: 5, ..BatchOptions::default() };
            let messages = (0..7).map(|n| Message::value(format!("a longer value {n}")));
            let mut bytes = batch(options, messages).unwrap().to_vec();
            bytes.iter_mut().skip(61).for_each(|byte| *byte ^= 0x5a);
            if sealed {
                seal(&mut bytes);
            }
            broker.append_raw_damaged("t", 0, Bytes::from(bytes.clone()), 12);
            fill(&broker, "t", 0, 1, 5);
            let ledger = read(&broker, spec()).await;
            assert!(ledger.all_done());
            assert_eq!(
                ledger.of(0).offsets(),
                (0..5).chain(12..17).collect::<Vec<_>>(),
                "{codec:?} {sealed}"
            );
            let (offsets, found, error) = &ledger.of(0).malformed[0];
            assert_eq!((offsets.clone(), &found[..]), (5..12, &bytes[..]), "{codec:?} {sealed}");
            assert_eq!((error.kind(), ledger.of(0).malformed.len()), (ErrorKind::Other, 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fb31_a_header_that_lies_about_its_length_costs_itself() {
    for (at, value) in [(8..12, i32::MAX), (8..12, 3), (8..12, -1), (8..12, 90), (16..17, 0x7f00_0000)] {
        for last in [false, true] {
            let broker = Embedded::start(1);
            broker.create_topic("t", 1);
            fill(&broker, "t", 0, 1, 5);
            let options = BatchOptions { base_offset: 5, ..BatchOptions::default() };
            let mut bytes = batch(options, (0..3).map(|n| Message::value(format!("{n}")))).unwrap().to_vec();
            let at = at.clone();
            let len = at.len();
            bytes[at].copy_from_slice(&value.to_be_bytes()[..len]);
            broker.append_raw_damaged("t", 0, Bytes::from(bytes), 8);
            if !last {
                fill(&broker, "t", 0, 1, 5);
            }
            let ledger = read(&broker, spec()).await;
            assert!(ledger.all_done(), "{value} {last}: {ledger:?}");
            let wanted: Vec<i64> = if last { (0..5).collect() } else { (0..5).chain(8..13).collect() };
            assert_eq!(ledger.of(0).offsets(), wanted, "{value} {last}");
            assert_eq!(ledger.of(0).malformed[0].0.start, 5);
            assert_eq!(ledger.of(0).malformed.last().unwrap().0.end, 8, "{value} {last}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fb33_timestamps_are_the_brokers_or_the_producers() {
    let broker = Embedded::start(1);
    broker.create_topic_with("append", TopicSpec::new(1).with_log_append_time());
    broker.create_topic("create", 1);
    for codec in [Codec::None, Codec::Gzip, Codec::Lz4] {
        let options = BatchOptions { codec, ..BatchOptions::default() };
        let far = (0..50).map(|n| Message::value("v").at(if n % 2 == 0 { 1 } else { 9_000_000_000_000 }));
        broker.append("append", 0, batch(options, far).unwrap());
    }
    let ledger = read(&broker, ScanSpec::new("append")).await;
    let first = ledger.of(0).records[0].timestamp.millis();
    for record in &ledger.of(0).records {
        let timestamp = record.timestamp;
        assert_eq!((timestamp.kind(), timestamp.millis()), (TimestampType::LogAppendTime, first));
    }
    let times = [-1, -1, 0, 5, 3, i64::MAX - 1, 17];
    for base in [-1, i64::MAX - 1] {
        let options = BatchOptions { base_timestamp: Some(base), ..BatchOptions::default() };
        broker.append("create", 0, batch(options, times.map(|time| Message::value("v").at(time))).unwrap());
    }
    let ledger = read(&broker, ScanSpec::new("create")).await;
    for (record, time) in ledger.of(0).records.iter().zip(times.iter().cycle()) {
        assert_eq!((record.timestamp.kind(), record.timestamp.millis()), (TimestampType::CreateTime, *time));
    }
}

#[tokio::test(start_paused = true)]
async fn fb34_headers_are_a_list_and_null_is_not_empty() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let messages = vec![
        Message::default(),
        Message::value("").key(""),
        Message::tombstone("gone"),
        Message::value("v").header("same", "1").null_header("same").header("same", ""),
        Message::value("v").header("", [0xff, 0xfe, 0]).null_header(""),
    ];
    for codec in [Codec::None, Codec::Lz4] {
        let options = BatchOptions { codec, ..BatchOptions::default() };
        broker.append("t", 0, batch(options, messages.clone()).unwrap());
    }
    // With a filter by key the records take another way.
    let all = read(&broker, spec()).await;
    let gone = read(&broker, spec().key("gone")).await;
    assert_eq!(gone.of(0).records, [all.of(0).records[2].clone(), all.of(0).records[7].clone()]);
    assert_eq!(read(&broker, spec().key("")).await.count(), 2);
    for (record, message) in all.of(0).records.iter().zip(messages.iter().cycle()) {
        assert_eq!(record.key.as_deref(), message.key.as_deref());
        assert_eq!(record.value.as_deref(), message.value.as_deref());
        let headers: Vec<(Vec<u8>, Option<Vec<u8>>)> = record
            .headers
            .iter()
            .map(|header| (header.key.as_bytes().to_vec(), header.value.map(|value| value.to_vec())))
            .collect();
        assert_eq!(headers, message.headers);
    }
}

#[tokio::test(start_paused = true)]
async fn fb35_large_records_and_small_buffers_stop_nobody() {
    let broker = Embedded::start(2);
    broker.create_topic("t", 8);
    for partition in 0..8 {
        fill(&broker, "t", partition, 20, 10);
        let size = if partition % 2 == 0 { 900 << 10 } else { 3 << 20 };
        let record = Message::value(vec![b'x'; size]);
        broker.append("t", partition, batch(BatchOptions::default(), [record]).unwrap());
        fill(&broker, "t", partition, 20, 10);
    }
    for buffer in [1, 4_000, 256 << 10, 32 << 20] {
        let ledger = read(&broker, spec().buffer_bytes(buffer)).await;
        assert!(ledger.all_done());
        for partition in 0..8 {
            assert_eq!(ledger.of(partition).offsets(), (0..401).collect::<Vec<_>>(), "{buffer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fb35_answers_cut_at_every_byte_lose_nothing() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    fill(&broker, "t", 0, 400, 1);
    for bytes in 0..160 {
        broker.fault(ApiKey::Fetch).skip(bytes * 2).times(1).cut_answer(bytes as usize);
    }
    let ledger = read(&broker, spec().buffer_bytes(300)).await;
    assert!(ledger.all_done());
    assert_eq!(ledger.of(0).offsets(), (0..400).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn formats_v0_and_v1_are_read_and_cut_at_the_bounds() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    for magic in [0, 1] {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy] {
            let base = broker.high_watermark("t", 0);
            let messages: Vec<legacy::Message> = (base..base + 4)
                .map(|offset| legacy::Message { offset, timestamp: 7, value: Some("v".into()), key: None })
                .collect();
            let mut bytes = Vec::new();
            if codec == Codec::None {
                messages.iter().for_each(|message| legacy::put_message(&mut bytes, magic, 0, message));
            } else {
                legacy::put_wrapper(&mut bytes, magic, codec, None, &messages).unwrap();
            }
            broker.append_raw_damaged("t", 0, Bytes::from(bytes), base + 4);
        }
    }
    let end = broker.high_watermark("t", 0);
    let all: Vec<i64> = (0..end).collect();
    assert_eq!(read(&broker, spec()).await.of(0).offsets(), all);
    for (from, until) in [(1, end - 1), (6, 15), (end - 3, end)] {
        let spec = spec().from(ScanFrom::Offset(from)).until(ScanUntil::Offset(until));
        assert_eq!(read(&broker, spec).await.of(0).offsets(), all[from as usize..until as usize]);
    }
}

/// Changes the records of every Fetch answer.
fn tamper(
    broker: &Embedded,
    times: u64,
    mut change: impl FnMut(i32, &mut Vec<u8>) + Send + 'static,
) -> testkit::embedded::Fault {
    broker.fault(ApiKey::Fetch).times(times).map(move |answer: &mut FetchResponse| {
        for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
            if let Some(records) = partition.records.take() {
                let mut bytes = records.to_vec();
                if !bytes.is_empty() {
                    change(partition.partition_index, &mut bytes);
                }
                partition.records = Some(Bytes::from(bytes));
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn fb31_damage_on_the_way_costs_one_more_fetch_and_nothing_else() {
    for at in [8, 16, 20, 22, 30, 57, 70, 100] {
        let broker = Embedded::start(1);
        broker.create_topic("t", 2);
        fill(&broker, "t", 0, 60, 10);
        fill(&broker, "t", 1, 60, 10);
        // Each batch that heads an answer, once.
        let mut spoilt = BTreeSet::new();
        let fault = tamper(&broker, 1_000, move |partition, bytes| {
            if spoilt.insert((partition, bytes[..8].to_vec())) {
                let at = at.min(bytes.len() - 1);
                bytes[at] ^= 0x40;
            }
        });
        let ledger = read(&broker, spec().buffer_bytes(6_000)).await;
        assert!(ledger.all_done());
        assert!(fault.hits() > 3);
        for partition in 0..2 {
            assert_eq!(ledger.of(partition).offsets(), (0..600).collect::<Vec<_>>(), "byte {at}");
            assert!(ledger.of(partition).malformed.is_empty(), "byte {at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_full_of_noise_end_the_scan_in_time_and_invent_nothing() {
    for seed in 0..60 {
        let broker = Embedded::start(1);
        broker.create_topic("t", 2);
        fill(&broker, "t", 0, 30, 5);
        fill(&broker, "t", 1, 30, 5);
        let good = read(&broker, spec()).await;
        let mut random = fastrand::Rng::with_seed(seed);
        tamper(&broker, u64::MAX, move |_, bytes| {
            for _ in 0..random.usize(1..6) {
                let at = random.usize(0..bytes.len());
                bytes[at] = random.u8(..);
            }
            if random.u8(0..4) == 0 {
                bytes.truncate(random.usize(0..bytes.len()));
            }
        });
        let cluster = kafka_read::Cluster::connect_with(broker.config()).await.unwrap();
        let limits = spec().buffer_bytes(2_000).timeout(std::time::Duration::from_secs(5));
        let ledger = scan_support::drain(kafka_read::scan(cluster, limits)).await;
        for partition in 0..2 {
            let account = ledger.of(partition);
            assert!(account.done || account.error.is_some(), "seed {seed}");
            // Base offset and leader epoch lie outside the checksum: nobody can vouch for those.
            for record in &account.records {
                let same = |one: &Record| {
                    (&one.key, &one.value, one.timestamp) == (&record.key, &record.value, record.timestamp)
                };
                assert!(
                    good.of(partition).records.iter().any(same),
                    "seed {seed}: never written: {record:?}"
                );
            }
        }
    }
}
