//! What the consumer's integration tests share: the oracle of order, a loop that reads to given ends, and
//! polling until a condition holds.
//!
//! What it is not: a place for assertions about one behaviour. Invariant: every wait has a deadline.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss
)]

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use kafka_consume::{Consumer, Record, RecordRef, Records};
use kafka_protocol::messages::ApiKey;
use testkit::Proxy;
use testkit::proxy::Seen;
use tokio::time::{Instant, timeout};

/// Polls `future` until it has said "not yet" `waits` times; its result if it came to its end before.
pub async fn polled<F: Future>(future: F, waits: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut waited = 0;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if waited + 1 >= waits => Poll::Ready(None),
        Poll::Pending => {
            waited += 1;
            Poll::Pending
        }
    })
    .await
}

/// Long enough for a machine that ten others load.
pub const LIMIT: Duration = Duration::from_secs(150);

/// A partition by name.
pub type Key = (String, i32);

/// Offsets by partition.
pub type Offsets = BTreeMap<Key, i64>;

/// Holds a reader to its promise: in order, no offset twice, and no gap unless gaps are allowed.
#[derive(Debug, Default)]
pub struct Oracle {
    next: Offsets,
    gaps: bool,
    pub count: usize,
}

impl Oracle {
    /// Every partition begins at 0 and has no gaps.
    pub fn strict() -> Self {
        Self::default()
    }

    /// Offsets only rise: for logs with markers, aborted data or holes.
    pub fn rising() -> Self {
        Self { gaps: true, ..Self::default() }
    }

    /// The next record of a partition has this offset.
    pub fn expect_from(&mut self, topic: &str, partition: i32, offset: i64) {
        self.next.insert((topic.to_owned(), partition), offset);
    }

    pub fn take(&mut self, record: &RecordRef<'_>) {
        let next = self.next.entry((record.topic.to_string(), record.partition)).or_insert(0);
        let place = format!("{}-{} at {}", record.topic, record.partition, record.offset);
        if self.gaps {
            assert!(record.offset >= *next, "{place}: twice or out of order, {next} was next");
        } else {
            assert_eq!(record.offset, *next, "{place}: {next} was next");
        }
        *next = record.offset + 1;
        self.count += 1;
    }

    pub fn take_all(&mut self, records: &Records) {
        for record in records {
            self.take(&record);
        }
    }
}

/// All partitions of a topic.
pub fn partitions(topic: &str, count: i32) -> Vec<Key> {
    (0..count).map(|partition| (topic.to_owned(), partition)).collect()
}

/// One partition.
pub fn one(topic: &str, partition: i32) -> [Key; 1] {
    [(topic.to_owned(), partition)]
}

/// Whether every position is where it shall be.
pub fn is_at(consumer: &Consumer, ends: &Offsets) -> bool {
    ends.iter().all(|((topic, partition), end)| consumer.position(topic, *partition) == Some(*end))
}

/// Reads until every position is at its end, showing each poll to `each`. An error of a poll fails the test.
pub async fn read_with(consumer: &mut Consumer, ends: &Offsets, mut each: impl AsyncFnMut(&Records)) {
    let read = timeout(LIMIT, async {
        while !is_at(consumer, ends) {
            let records = consumer.poll().await.expect("no error surfaces");
            each(&records).await;
        }
    });
    if read.await.is_err() {
        let behind: Vec<_> = ends
            .iter()
            .map(|((topic, partition), end)| (topic, partition, consumer.position(topic, *partition), end))
            .filter(|(_, _, position, end)| *position != Some(**end))
            .collect();
        panic!("not read to the end in {LIMIT:?}: {behind:?}; {:?}", consumer.metrics());
    }
}

/// Reads until every position is at its end, under the oracle.
pub async fn read_to(consumer: &mut Consumer, ends: &Offsets, oracle: &mut Oracle) {
    read_with(consumer, ends, async |records: &Records| oracle.take_all(records)).await;
}

/// Reads `count` records.
pub async fn read_some(consumer: &mut Consumer, count: usize) -> Vec<Record> {
    let mut all = Vec::new();
    let read = timeout(LIMIT, async {
        while all.len() < count {
            all.extend(consumer.poll().await.expect("no error surfaces"));
        }
    });
    assert!(read.await.is_ok(), "{} of {count} records in {LIMIT:?}; {:?}", all.len(), consumer.metrics());
    assert_eq!(all.len(), count, "more than was written");
    all
}

/// Polls, expecting no records, until `met` holds.
pub async fn poll_until(consumer: &mut Consumer, what: &str, mut met: impl FnMut(&Consumer) -> bool) {
    let waited = timeout(LIMIT, async {
        while !met(consumer) {
            let records = consumer.poll().await.expect("no error surfaces");
            assert!(records.is_empty(), "waiting for {what}, and there are {} records", records.len());
        }
    });
    assert!(waited.await.is_ok(), "waited for {what} in vain; {:?}", consumer.metrics());
}

/// Looks until `met` holds.
pub async fn until(what: &str, mut met: impl AsyncFnMut() -> bool) {
    let waited = timeout(LIMIT, async {
        while !met().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited for {what} in vain");
}

/// The error that polls come to.
pub async fn poll_error(consumer: &mut Consumer) -> kafka_consume::Error {
    let waited = timeout(LIMIT, async {
        loop {
            if let Err(error) = consumer.poll().await {
                return error;
            }
        }
    });
    waited.await.expect("an error comes")
}

/// Polls for that long; no record may come.
pub async fn stay_empty(consumer: &mut Consumer, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let records = consumer.poll().await.expect("no error surfaces");
        assert!(records.is_empty(), "{} records", records.len());
    }
}

/// The fetches a proxy has seen.
pub fn fetches(proxy: &Proxy) -> Vec<Seen> {
    proxy.log().into_iter().filter(|seen| seen.api == ApiKey::Fetch as i16).collect()
}

/// An idle consumer sends one fetch per leader and wire wait, and no more: counted over `time`.
pub async fn is_idle(consumer: &mut Consumer, proxy: &Proxy, leaders: usize, time: Duration) {
    proxy.clear_log();
    let start = Instant::now();
    stay_empty(consumer, time).await;
    let waits = start.elapsed().as_millis() / 500 + 2;
    let sent = fetches(proxy).len();
    assert!(sent <= leaders * waits as usize, "{sent} fetches of {leaders} leaders in {waits} waits");
    assert!(sent >= leaders, "{sent} fetches: the fetchers stand still");
}
