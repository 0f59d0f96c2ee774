//! The memory of a slow reader: `memory [MEGABYTES]` (2048) reads that much of an endless log slower than the broker
//! sends, with the default configuration, and prints the most this process has held.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use benches::children::Broker;
use benches::log::Shape;
use benches::slow;
use kafka_consume::ConsumerConfig;

fn main() {
    let megabytes: usize = std::env::args().nth(1).map_or(2048, |word| word.parse().unwrap());
    let program = std::env::current_exe().unwrap().with_file_name("endless");
    let broker = Broker::start(&program, &Shape::plain(1024));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = ConsumerConfig::new();
    let budget = config.fetch_buffer_bytes;
    let pause = Duration::from_millis(2);
    let held = runtime.block_on(slow::read(broker.ports.kafka, config, megabytes * 1_000_000, pause));
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "read {megabytes} MB slowly: at most {} MiB held, {} MiB before reading; budget {} MiB, at most {} MiB buffered",
        mib(held.most),
        mib(held.before),
        budget >> 20,
        held.buffered >> 20,
    );
}
