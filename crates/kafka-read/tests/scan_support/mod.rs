//! What the tests of scans and tails share: collecting events, and an account of them per partition that holds
//! every stream to its promises.
//!
//! Invariant: every wait has a deadline.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use kafka_read::batch::write::{BatchOptions, BatchWriter};
use kafka_read::{Cluster, Error, Loss, Record, Result, ScanEvent, ScanSpec, scan};
use testkit::embedded::Embedded;
use tokio::time::timeout;

/// Long enough for a machine that ten others load.
pub const LIMIT: Duration = Duration::from_secs(300);

/// What came of one partition.
#[derive(Debug, Default)]
pub struct Account {
    pub records: Vec<Record>,
    pub malformed: Vec<(Range<i64>, Bytes, Error)>,
    pub lost: Vec<(Range<i64>, i64, Loss)>,
    /// Start and end as first told.
    pub bounds: Option<(i64, i64)>,
    pub position: i64,
    pub end: i64,
    pub progresses: usize,
    pub done: bool,
    pub error: Option<Error>,
}

impl Account {
    pub fn offsets(&self) -> Vec<i64> {
        self.records.iter().map(|record| record.offset).collect()
    }
}

/// What came of a whole stream so far.
#[derive(Debug, Default)]
pub struct Ledger {
    pub partitions: BTreeMap<i32, Account>,
    /// An error that names no partition.
    pub error: Option<Error>,
}

impl Ledger {
    /// Books one item, and holds it to what every stream promises.
    pub fn take(&mut self, item: Result<ScanEvent>) {
        assert!(self.error.is_none(), "something follows the last error: {item:?}");
        let event = match item {
            Err(error) => {
                match error.partition() {
                    Some(partition) => {
                        let account = self.partitions.entry(partition).or_default();
                        assert!(!account.done, "an error after the end: {error}");
                        account.error = Some(error);
                    }
                    None => self.error = Some(error),
                }
                return;
            }
            Ok(event) => event,
        };
        match event {
            ScanEvent::Record(record) => {
                let account = self.open(record.partition);
                assert!(record.offset >= account.position, "{record:?} is below {}", account.position);
                if let Some(last) = account.records.last()
                    && account.lost.is_empty()
                {
                    assert!(record.offset > last.offset, "{record:?} after {}", last.offset);
                }
                account.records.push(record);
            }
            ScanEvent::Malformed { partition, offsets, bytes, error, .. } => {
                let account = self.open(partition);
                assert!(offsets.start < offsets.end && !bytes.is_empty(), "{offsets:?}");
                assert_eq!((error.partition(), error.offset()), (Some(partition), Some(offsets.start)));
                account.malformed.push((offsets, bytes, error));
            }
            ScanEvent::Progress { partition, start, position, end, records, .. } => {
                let account = self.partitions.entry(partition).or_default();
                assert!(!account.done);
                account.bounds.get_or_insert((start, end));
                assert!(position <= end && start <= position, "{start} {position} {end}");
                assert!(position >= account.position || !account.lost.is_empty());
                assert_eq!(records as usize, account.records.len());
                (account.position, account.end) = (position, end);
                account.progresses += 1;
            }
            ScanEvent::PartitionDone { partition, position, records, .. } => {
                let account = self.open(partition);
                assert_eq!((position, position), (account.position, account.end), "the bar is full");
                assert_eq!(records as usize, account.records.len());
                account.done = true;
            }
            ScanEvent::Lost { partition, offsets, position, loss, .. } => {
                self.open(partition).lost.push((offsets, position, loss));
            }
            other => panic!("unknown: {other:?}"),
        }
    }

    /// The account of a partition that has told its bounds and is not done.
    fn open(&mut self, partition: i32) -> &mut Account {
        let account = self.partitions.get_mut(&partition).expect("progress comes first");
        assert!(!account.done && account.error.is_none(), "nothing follows the end");
        account
    }

    pub fn of(&self, partition: i32) -> &Account {
        &self.partitions[&partition]
    }

    /// Where a partition is; -1 before it has told its bounds.
    pub fn position(&self, partition: i32) -> i64 {
        self.partitions.get(&partition).map_or(-1, |account| account.position)
    }

    pub fn is_done(&self, partition: i32) -> bool {
        self.partitions.get(&partition).is_some_and(|account| account.done)
    }

    pub fn count(&self) -> usize {
        self.partitions.values().map(|account| account.records.len()).sum()
    }

    pub fn all_done(&self) -> bool {
        self.error.is_none() && self.partitions.values().all(|account| account.done)
    }
}

/// Reads a stream to its end.
pub async fn drain(mut events: impl Stream<Item = Result<ScanEvent>> + Unpin) -> Ledger {
    let mut ledger = Ledger::default();
    let read = timeout(LIMIT, async {
        while let Some(item) = events.next().await {
            ledger.take(item);
        }
    });
    assert!(read.await.is_ok(), "not over in {LIMIT:?}: {ledger:?}");
    assert!(events.next().await.is_none(), "a stream that has ended stays so");
    ledger
}

/// Reads a stream until `met` holds.
pub async fn until(
    events: &mut (impl Stream<Item = Result<ScanEvent>> + Unpin),
    ledger: &mut Ledger,
    mut met: impl FnMut(&Ledger) -> bool,
) {
    let read = timeout(LIMIT, async {
        while !met(ledger) {
            ledger.take(events.next().await.expect("the stream goes on"));
        }
    });
    let ended = read.await.is_ok();
    assert!(ended, "waited in vain: {ledger:?}");
}

/// Reads `spec` of an embedded broker to its end.
pub async fn read(broker: &Embedded, spec: ScanSpec) -> Ledger {
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    drain(scan(cluster, spec)).await
}

/// Numbered records, `each` to a batch.
pub fn fill(broker: &Embedded, topic: &str, partition: i32, batches: usize, each: usize) {
    for _ in 0..batches {
        broker.append_records(topic, partition, (0..each).map(|n| (format!("k{n}"), format!("v{n}"))));
    }
}

/// A batch as compaction leaves it: these offsets of `[base, base + span)`.
pub fn compacted(base: i64, span: i32, kept: impl IntoIterator<Item = i32>) -> Bytes {
    let options = BatchOptions {
        base_offset: base,
        leader_epoch: 0,
        last_offset_delta: Some(span - 1),
        ..BatchOptions::default()
    };
    let mut writer = BatchWriter::new(options);
    for delta in kept {
        writer.push_at(delta, 0, Some(b"k"), Some(b"v"), &[]).unwrap();
    }
    writer.finish().unwrap().freeze()
}
