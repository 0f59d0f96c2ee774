//! The ways of reading that are measured: what a program does with the consumer, and what it costs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position, Record, RecordRef};
use kafka_read::batch::{self, Limits};
use kafka_read::{ScanEvent, ScanFrom, TailSpec, tail};

use crate::endless::TOPIC;
use crate::floor;
use crate::log::{Log, Shape};
use crate::usage::Usage;

/// A way of reading.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// TCP, CRC, one walk: [`floor`].
    Floor,
    /// Header scan, CRC, proof and hand-out over a log in memory: no socket, no engine.
    Walk,
    /// `for record in &records`.
    Borrowed,
    /// `for record in records`.
    Owned,
    /// `stream.next().await`.
    Stream,
    /// The events of a scan without an end.
    Scan,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 6] = [Way::Floor, Way::Walk, Way::Borrowed, Way::Owned, Way::Stream, Way::Scan];

    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            Way::Floor => "floor",
            Way::Walk => "walk",
            Way::Borrowed => "borrowed",
            Way::Owned => "owned",
            Way::Stream => "stream",
            Way::Scan => "scan",
        }
    }

    /// From a word.
    pub fn named(name: &str) -> Option<Way> {
        Way::ALL.into_iter().find(|way| way.name() == name)
    }
}

/// What a run came to, warm-up left out.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Records read.
    pub records: u64,
    /// Time it took.
    pub wall: Duration,
    /// What it used.
    pub usage: Usage,
}

impl Outcome {
    /// CPU nanoseconds per record.
    pub fn nanos(&self) -> f64 {
        (self.usage.user + self.usage.sys) as f64 / self.records as f64
    }
}

/// Counts between the end of the warm-up and the end of the run.
struct Meter {
    begun: Instant,
    warm: Duration,
    span: Duration,
    at_start: Option<(Instant, Usage)>,
    records: u64,
}

impl Meter {
    fn new(span: Duration) -> Meter {
        Meter { begun: Instant::now(), warm: span / 5, span, at_start: None, records: 0 }
    }

    /// More records; the outcome once the time is up.
    fn add(&mut self, records: usize) -> Option<Outcome> {
        let now = Instant::now();
        let Some((since, usage)) = self.at_start else {
            if now - self.begun >= self.warm {
                self.at_start = Some((now, Usage::now()));
            }
            return None;
        };
        self.records += records as u64;
        let wall = now - since;
        (wall >= self.span).then(|| Outcome { records: self.records, wall, usage: Usage::now().since(usage) })
    }
}

/// Reads for `span` and says what it cost. `most` is `max_poll_records`.
pub async fn run(way: Way, kafka: u16, raw: u16, shape: &Shape, most: usize, span: Duration) -> Outcome {
    match way {
        Way::Floor => {
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", raw)).await.unwrap();
            let mut meter = Meter::new(span);
            loop {
                let records = floor::frame(&mut stream, crc32c::crc32c).await;
                if let Some(outcome) = meter.add(records) {
                    return outcome;
                }
            }
        }
        Way::Walk => walk(shape, span),
        Way::Borrowed | Way::Owned => {
            let mut consumer = consumer(kafka, shape, most).await;
            let mut meter = Meter::new(span);
            loop {
                let records = consumer.poll().await.unwrap();
                let len = records.len();
                if way == Way::Borrowed {
                    for record in &records {
                        borrowed(&record);
                    }
                } else {
                    for record in records {
                        owned(&record);
                    }
                }
                if let Some(outcome) = meter.add(len) {
                    return outcome;
                }
            }
        }
        Way::Scan => scan(kafka, span).await,
        Way::Stream => {
            let mut consumer = consumer(kafka, shape, most).await;
            let mut stream = consumer.stream();
            let mut meter = Meter::new(span);
            loop {
                for _ in 0..500 {
                    owned(&stream.next().await.unwrap().unwrap());
                }
                if let Some(outcome) = meter.add(500) {
                    return outcome;
                }
            }
        }
    }
}

/// The scan's machine on the endless topic: a tail from the beginning, since the topic has no end.
async fn scan(port: u16, span: Duration) -> Outcome {
    let cluster = Cluster::connect(&format!("127.0.0.1:{port}")).await.unwrap();
    let mut events = tail(cluster, TailSpec::new(TOPIC).from(ScanFrom::Earliest));
    let mut meter = Meter::new(span);
    loop {
        let mut records = 0;
        for _ in 0..500 {
            if let ScanEvent::Record(record) = events.next().await.unwrap().unwrap() {
                owned(&record);
                records += 1;
            }
        }
        if let Some(outcome) = meter.add(records) {
            return outcome;
        }
    }
}

/// A consumer on every partition of the endless topic.
pub async fn consumer(port: u16, shape: &Shape, most: usize) -> Consumer {
    let cluster = Cluster::connect(&format!("127.0.0.1:{port}")).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new().max_poll_records(most));
    let partitions = (0..shape.partitions).map(|partition| (TOPIC.to_owned(), partition));
    consumer.assign(partitions, Position::Earliest).await.unwrap();
    consumer
}

/// What a program looks at in a borrowed record.
#[inline(always)]
pub fn borrowed(record: &RecordRef<'_>) {
    black_box((
        record.offset,
        record.timestamp.millis(),
        record.key,
        record.value,
        record.headers.is_empty(),
    ));
}

/// What a program looks at in an owned record.
#[inline(always)]
pub fn owned(record: &Record) {
    black_box((
        record.offset,
        record.timestamp.millis(),
        record.key.as_deref(),
        record.value.as_deref(),
        record.headers.is_empty(),
    ));
}

fn walk(shape: &Shape, span: Duration) -> Outcome {
    let mut log = Log::build(shape);
    let batches: Vec<Bytes> =
        (0..log.distinct()).map(|ordinal| Bytes::copy_from_slice(log.batch(ordinal))).collect();
    drop(log);
    let limits = Limits { max_batch_bytes: 128 << 20 };
    let mut meter = Meter::new(span);
    loop {
        for bytes in &batches {
            let mut records = 0;
            for raw in batch::scan(bytes.clone()) {
                let raw = raw.unwrap();
                raw.verify(true).unwrap();
                let set = raw.open(&limits, 0).unwrap();
                records += set.len();
                for record in set.iter() {
                    black_box((record.offset, record.key, record.value, record.headers.is_empty()));
                }
            }
            if let Some(outcome) = meter.add(records) {
                return outcome;
            }
        }
    }
}
