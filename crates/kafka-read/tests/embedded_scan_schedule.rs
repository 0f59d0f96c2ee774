//! Random scans of random logs under random faults, held to an oracle that reads the stored bytes.
//!
//! A seed makes a log of every shape (codecs, old formats, transactions in each state, markers, holes, damage,
//! several segments), a specification, and faults. What comes must be what the oracle finds in the log: each
//! visible record once and in order, each unreadable stretch told once, the position at the end.
//! `SCAN_SEED=n` repeats one; `SCAN_SCHEDULES=n` runs more. A deliberate fault shows that it can fail.
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

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use kafka_meta::wire::protocol::messages::ApiKey;
use kafka_read::batch::write::{BatchOptions, legacy, seal};
use kafka_read::batch::{Codec, Control, Limits};
use kafka_read::{Cluster, ScanFrom, ScanSpec, ScanUntil, Visibility, batch, scan};
use scan_support::{LIMIT, Ledger, compacted};
use testkit::embedded::{Embedded, Open, TopicSpec};
use testkit::produce::{Message, batch as data};
use tokio::time::timeout;

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const BASE_TIME: i64 = 1_700_000_000_000;

/// What the writer knows of a log.
#[derive(Debug, Default)]
struct Written {
    /// Stretches of damage, as stored.
    damaged: Vec<std::ops::Range<i64>>,
    /// Transactions without an end, by their producer.
    open: BTreeSet<i64>,
    start: i64,
}

/// One log of random shape.
fn write(broker: &Embedded, partition: i32, random: &mut fastrand::Rng) -> Written {
    let mut written = Written::default();
    let mut transactions: Vec<Open> = (0..3).map(|n| broker.begin(&format!("tx-{partition}-{n}"))).collect();
    let mut busy: BTreeMap<i64, bool> = BTreeMap::new();
    for _ in 0..random.usize(0..40) {
        let codec = CODECS[random.usize(0..5)];
        let count = random.usize(1..8);
        let message = |n: usize| {
            let size = if n % 7 == 6 { 2_000 } else { 12 };
            Message::value("v".repeat(size)).key(format!("k{}", n % 4)).at(BASE_TIME)
        };
        let messages: Vec<Message> = (0..count).map(|n| message(n + count)).collect();
        let base = broker.log_end("t", partition);
        match random.u8(0..14) {
            0..4 => {
                let time = BASE_TIME + random.i64(0..1_000);
                let timed = messages.into_iter().map(|one| one.at(time));
                let options = BatchOptions { codec, ..BatchOptions::default() };
                broker.append("t", partition, data(options, timed).unwrap());
            }
            4..8 => {
                let at = random.usize(0..transactions.len());
                let values: Vec<_> = messages.iter().map(|one| one.value.clone().unwrap()).collect();
                transactions[at].append("t", partition, values);
                busy.insert(transactions[at].producer_id(), true);
            }
            8 | 9 => {
                let at = random.usize(0..transactions.len());
                let fresh = broker.begin(&format!("tx-{partition}-{}", random.u64(..)));
                let ended = std::mem::replace(&mut transactions[at], fresh);
                busy.remove(&ended.producer_id());
                if random.bool() { ended.commit() } else { ended.abort() }
            }
            10 => {
                let span = random.i32(1..300);
                let kept: Vec<i32> = (0..span).filter(|_| random.u32(0..40) == 0).collect();
                broker.append("t", partition, compacted(0, span, kept));
            }
            11 => {
                let mut bytes = Vec::new();
                let magic = random.u8(0..2);
                let messages: Vec<legacy::Message> = (base..base + count as i64)
                    .map(|offset| legacy::Message {
                        offset,
                        timestamp: BASE_TIME,
                        key: Some("k1".into()),
                        value: Some("v".into()),
                    })
                    .collect();
                if random.bool() {
                    let codec = [Codec::Gzip, Codec::Snappy, Codec::Lz4][random.usize(0..3)];
                    legacy::put_wrapper(&mut bytes, magic, codec, None, &messages).unwrap();
                } else {
                    messages.iter().for_each(|one| legacy::put_message(&mut bytes, magic, 0, one));
                }
                broker.append_raw_damaged("t", partition, Bytes::from(bytes), base + count as i64);
            }
            12 => {
                let options =
                    BatchOptions { codec, base_offset: base, leader_epoch: 0, ..BatchOptions::default() };
                let mut bytes = data(options, messages).unwrap().to_vec();
                let at = random.usize(61..bytes.len());
                bytes[at] ^= 1 << random.u32(0..8);
                if random.bool() {
                    bytes[61..].iter_mut().for_each(|byte| *byte = 0xee);
                    seal(&mut bytes);
                }
                let next = base + count as i64;
                broker.append_raw_damaged("t", partition, Bytes::from(bytes), next);
                written.damaged.push(base..next);
            }
            _ => {
                broker.roll_segment("t", partition);
            }
        }
    }
    written.open = busy.into_keys().collect();
    // Kept open until the log is read.
    transactions.into_iter().for_each(std::mem::forget);
    let end = broker.log_end("t", partition);
    if random.u8(0..4) == 0 && end > 0 {
        // A real log's stable offset is never below its start.
        let most = (end / 2).min(broker.last_stable_offset("t", partition));
        written.start = random.i64(0..=most);
        broker.delete_records("t", partition, written.start);
    }
    written
}

/// A record as the oracle compares it: offset, key, timestamp.
type Seen = (i64, Option<Vec<u8>>, i64);

/// What a reader should see of the stored log, by its bytes alone: no session, no fetch, one pass for the ends of
/// transactions and one for the records.
fn oracle(stored: &[Bytes], written: &Written, visibility: Visibility, end: i64) -> Vec<Seen> {
    let damaged = |offset: i64| written.damaged.iter().any(|one| one.contains(&offset));
    let whole: Vec<batch::RawBatch> =
        stored.iter().flat_map(|bytes| batch::scan(bytes.clone())).filter_map(Result::ok).collect();
    // Where each producer's transactions end, and how.
    let ends: Vec<(i64, i64, Option<Control>)> = whole
        .iter()
        .filter(|raw| raw.header.is_control())
        .map(|raw| (raw.header.producer_id, raw.header.base_offset, raw.control()))
        .collect();
    let mut records = Vec::new();
    for raw in &whole {
        let header = &raw.header;
        if header.is_control() || damaged(header.base_offset) {
            continue;
        }
        if visibility == Visibility::CommittedOnly && header.is_transactional() {
            let fate = ends
                .iter()
                .find(|(producer, at, _)| *producer == header.producer_id && *at > header.base_offset);
            if fate.is_none_or(|(_, _, control)| *control != Some(Control::Commit)) {
                continue;
            }
        }
        let set = raw.open(&Limits::default(), 0).unwrap();
        records.extend(
            set.iter()
                .filter(|record| record.offset >= written.start && record.offset < end)
                .map(|record| (record.offset, record.key.map(<[u8]>::to_vec), record.timestamp.millis())),
        );
    }
    records
}

/// Where a time falls: the first record in log order that is not older, visible or not.
fn first_at(stored: &[Bytes], written: &Written, time: i64, end: i64) -> i64 {
    let all = oracle(stored, written, Visibility::All, end);
    all.iter().find(|(_, _, at)| *at >= time).map_or(end, |(offset, ..)| *offset)
}

struct Case {
    broker: Embedded,
    written: Vec<Written>,
    spec: ScanSpec,
}

fn case(seed: u64) -> (Case, fastrand::Rng) {
    let mut random = fastrand::Rng::with_seed(seed);
    let broker = Embedded::start(3);
    let partitions = random.i32(1..5);
    broker.create_topic_with("t", TopicSpec::new(partitions).with_replicas(3));
    let written: Vec<Written> =
        (0..partitions).map(|partition| write(&broker, partition, &mut random)).collect();
    let most = (0..partitions).map(|one| broker.log_end("t", one)).max().unwrap_or(0);
    let offset = random.i64(0..most + 10);
    let mut spec = ScanSpec::new("t")
        .visibility(if random.bool() { Visibility::All } else { Visibility::CommittedOnly })
        .buffer_bytes([1, 2_000, 20_000, 32 << 20][random.usize(0..4)]);
    spec.from = match random.u8(0..6) {
        0 => ScanFrom::Offset(offset),
        1 => ScanFrom::Offsets(BTreeMap::from([(0, offset)])),
        2 => ScanFrom::Timestamp(BASE_TIME + random.i64(0..1_100)),
        _ => ScanFrom::Earliest,
    };
    spec.until = match random.u8(0..6) {
        0 => ScanUntil::Offset(random.i64(0..most + 10)),
        1 => ScanUntil::Timestamp(BASE_TIME + random.i64(0..1_100)),
        _ => ScanUntil::Latest,
    };
    if random.u8(0..3) == 0 {
        spec.last = Some(random.u64(0..60));
    }
    if random.u8(0..4) == 0 {
        spec.key = Some(Bytes::from(format!("k{}", random.u8(0..4))));
    }
    (Case { broker, written, spec }, random)
}

fn make_trouble(broker: &Embedded, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(0..6) {
        let api = if random.u8(0..4) == 0 { ApiKey::ListOffsets } else { ApiKey::Fetch };
        let fault = || broker.fault(api);
        let (skip, times) = (random.u64(0..6), random.u64(1..4));
        match random.u8(0..6) {
            0 => drop(fault().skip(skip).times(times).error([6, 74, 75, 9, 56, -1, 78][random.usize(0..7)])),
            1 => drop(fault().skip(skip).times(times).drop_connection_after()),
            2 => drop(fault().skip(skip).times(times).drop_connection_before()),
            3 => drop(fault().skip(skip).times(times).delay(Duration::from_millis(random.u64(0..3_000)))),
            4 => drop(broker.fault(ApiKey::Fetch).skip(skip).times(times).cut_answer(random.usize(0..400))),
            _ => drop(broker.fault(ApiKey::Fetch).skip(skip).times(1).throttle(Duration::from_millis(300))),
        }
    }
}

/// Runs one seed; `spoil` may change what came before it is judged.
async fn run(seed: u64, spoil: impl FnOnce(&mut Ledger)) {
    let (case, mut random) = case(seed);
    let Case { broker, written, spec } = case;
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    make_trouble(&broker, &mut random);
    let mut events = scan(cluster, spec.clone());
    let mut ledger = Ledger::default();
    let read = timeout(LIMIT, async {
        while let Some(item) = events.next().await {
            ledger.take(item);
            match random.u8(0..60) {
                0 => {
                    let partition = random.i32(0..written.len() as i32);
                    broker.move_leader("t", partition, random.i32(1..4));
                }
                1 => tokio::time::sleep(Duration::from_millis(random.u64(0..2_000))).await,
                2 => {
                    broker.drop_connections(random.i32(1..4));
                }
                _ => {}
            }
        }
    });
    assert!(read.await.is_ok(), "seed {seed}: not over; {spec:?} {ledger:?}");
    spoil(&mut ledger);
    judge(seed, &broker, &written, &spec, &ledger);
    assert!(
        broker.requests_of(ApiKey::Fetch).iter().filter_map(|seen| seen.fetch.as_ref()).all(|fetch| (
            fetch.session_id,
            fetch.session_epoch
        ) == (
            0, -1
        )),
        "seed {seed}: a session"
    );
}

fn judge(seed: u64, broker: &Embedded, written: &[Written], spec: &ScanSpec, ledger: &Ledger) {
    for (partition, written) in written.iter().enumerate() {
        let partition = partition as i32;
        let what = format!("seed {seed}, partition {partition}, {spec:?}");
        let account = ledger.partitions.get(&partition).unwrap_or_else(|| panic!("{what}: nothing came"));
        assert!(account.done, "{what}: {:?}", account.error);
        let stored = broker.stored("t", partition);
        let log_end = match spec.visibility {
            Visibility::All => broker.high_watermark("t", partition),
            Visibility::CommittedOnly => broker.last_stable_offset("t", partition),
        };
        let log_end = log_end.max(written.start);
        let start = match &spec.from {
            ScanFrom::Offset(offset) => *offset,
            ScanFrom::Offsets(offsets) => offsets.get(&partition).copied().unwrap_or(0),
            ScanFrom::Timestamp(time) => first_at(&stored, written, *time, log_end),
            _ => 0,
        };
        let start = start.clamp(written.start, log_end);
        let end = match &spec.until {
            ScanUntil::Offset(offset) => *offset,
            ScanUntil::Timestamp(time) => first_at(&stored, written, *time, log_end),
            _ => log_end,
        };
        let end = end.clamp(start, log_end);
        let mut wanted: Vec<Seen> = oracle(&stored, written, spec.visibility, end)
            .into_iter()
            .filter(|(offset, ..)| *offset >= start)
            .filter(|(_, key, _)| spec.key.is_none() || key.as_deref() == spec.key.as_deref())
            .collect();
        if let Some(last) = spec.last {
            wanted.drain(..wanted.len().saturating_sub(last as usize));
        }
        let came: Vec<Seen> = account
            .records
            .iter()
            .map(|record| {
                (record.offset, record.key.as_deref().map(<[u8]>::to_vec), record.timestamp.millis())
            })
            .collect();
        let offsets = |seen: &[Seen]| seen.iter().map(|(offset, ..)| *offset).collect::<Vec<_>>();
        assert_eq!(offsets(&came), offsets(&wanted), "{what}");
        assert_eq!(came, wanted, "{what}");
        assert_eq!(account.position, end.max(account.bounds.unwrap().0), "{what}");
        assert!(account.lost.is_empty(), "{what}: {:?}", account.lost);
        // Damage inside what was read is told, each offset once.
        let told: Vec<i64> = account.malformed.iter().flat_map(|(offsets, ..)| offsets.clone()).collect();
        let from = account.bounds.unwrap().0;
        let all: Vec<i64> = written
            .damaged
            .iter()
            .flat_map(|damaged| damaged.clone())
            .filter(|offset| (from..end).contains(offset))
            .collect();
        assert_eq!(told, all, "{what}: damage");
    }
}

fn schedules() -> Vec<u64> {
    if let Ok(seed) = std::env::var("SCAN_SEED") {
        return vec![seed.parse().unwrap()];
    }
    let count = std::env::var("SCAN_SCHEDULES").map_or(300, |count| count.parse().unwrap());
    (0..count).collect()
}

#[tokio::test(start_paused = true)]
async fn random_scans_are_what_the_oracle_reads() {
    for seed in schedules() {
        run(seed, |_| {}).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_oracle_notices_what_is_lost_twice_or_skipped() {
    type Spoil = fn(&mut Ledger) -> bool;
    let spoils: [Spoil; 4] = [
        |ledger| ledger.partitions.values_mut().any(|one| one.records.pop().is_some()),
        |ledger| {
            ledger
                .partitions
                .values_mut()
                .any(|one| one.records.first().cloned().map(|first| one.records.insert(0, first)).is_some())
        },
        |ledger| ledger.partitions.values_mut().any(|one| one.malformed.pop().is_some()),
        |ledger| {
            ledger.partitions.values_mut().for_each(|one| one.position -= 1);
            true
        },
    ];
    for spoil in spoils {
        let mut noticed = false;
        for seed in 0..40 {
            let mut spoilt = false;
            let run = run(seed, |ledger| spoilt = spoil(ledger));
            let failed = std::panic::AssertUnwindSafe(run).catch_unwind().await.is_err();
            assert_eq!(failed, spoilt, "seed {seed}");
            noticed |= failed;
        }
        assert!(noticed);
    }
}
