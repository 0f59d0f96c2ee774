//! Allocations per record over the whole path, from the socket to the caller's loop, in the default configuration.
//! Counts are the same on every machine, so they may fail a build where a time may not. The broker runs in a
//! process of its own: its allocations are not counted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation
)]

use std::alloc::System;
use std::path::Path;

use benches::children::Broker;
use benches::drive::{self, Way};
use benches::log::Shape;
use futures::StreamExt;
use kafka_consume::{Consumer, Records};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What was allocated for each record and for each byte of payload.
#[derive(Debug)]
struct PerRecord {
    allocations: f64,
    /// Allocated bytes over delivered bytes (keys and values): a copy of the data would add one.
    copies: f64,
}

fn per_record(stats: &Stats, records: usize, value: usize) -> PerRecord {
    PerRecord {
        allocations: (stats.allocations + stats.reallocations) as f64 / records as f64,
        copies: stats.bytes_allocated as f64 / (records * (value + 8)) as f64,
    }
}

async fn read(consumer: &mut Consumer, way: Way, wanted: usize) -> usize {
    let mut seen = 0;
    if way == Way::Stream {
        let mut stream = consumer.stream();
        while seen < wanted {
            drive::owned(&stream.next().await.unwrap().unwrap());
            seen += 1;
        }
        return seen;
    }
    while seen < wanted {
        let records: Records = consumer.poll().await.unwrap();
        seen += records.len();
        if way == Way::Owned {
            records.into_iter().for_each(|record| drive::owned(&record));
        } else {
            records.iter().for_each(|record| drive::borrowed(&record));
        }
    }
    seen
}

/// Bytes of log read while counting, after as many for warming up.
const BYTES: usize = 16 << 20;

// One test: the counter is the process's, and tests run side by side.
#[test]
fn reading_allocates_per_batch_never_per_record() {
    let program = Path::new(env!("CARGO_BIN_EXE_endless"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (value, headers) in [(100, 0), (1024, 0), (100, 3)] {
        let shape = Shape { headers, total: 16 << 20, ..Shape::plain(value) };
        let broker = Broker::start(program, &shape);
        for way in [Way::Borrowed, Way::Owned, Way::Stream] {
            let found = runtime.block_on(async {
                let mut consumer = drive::consumer(broker.ports.kafka, &shape, 500).await;
                let wanted = BYTES / (shape.value + shape.headers * 24 + 20);
                read(&mut consumer, way, wanted).await;
                let region = Region::new(ALLOCATOR);
                let records = read(&mut consumer, way, wanted).await;
                per_record(&region.change(), records, shape.value)
            });
            println!("{} B, {} headers, {}: {found:?}", shape.value, shape.headers, way.name());
            let most = if shape.value < 1000 { 0.02 } else { 0.1 };
            assert!(found.allocations <= most, "{shape:?} {way:?}: {found:?}");
            // Answers are read into buffers used before, and no payload is copied out of them.
            assert!(found.copies <= 0.25, "{shape:?} {way:?}: {found:?}");
        }
    }
}
