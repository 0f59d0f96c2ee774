//! A reader slower than its broker holds its budget and one answer, whatever the log holds.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::time::Duration;

use benches::children::Broker;
use benches::log::Shape;
use benches::slow;
use kafka_consume::ConsumerConfig;

const MIB: usize = 1 << 20;

// One test: the most memory held is the process's.
#[test]
fn a_slow_reader_stays_within_its_budget_and_one_answer() {
    let shape = Shape { total: 16 * MIB, ..Shape::plain(1024) };
    let broker = Broker::start(Path::new(env!("CARGO_BIN_EXE_endless")), &shape);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let budget = 16 * MIB;
    let config = ConsumerConfig { fetch_buffer_bytes: budget, ..ConsumerConfig::new() };
    let answer = usize::try_from(config.max_bytes).unwrap();
    let pause = Duration::from_millis(5);
    let held = runtime.block_on(slow::read(broker.ports.kafka, config, 96 * MIB, pause));
    assert!(held.buffered <= budget + answer, "{held:?}");
    assert!(held.buffered >= budget / 2, "the reader was not slow enough to fill its buffer: {held:?}");
    // What the runtime and the code that runs for the first time need comes on top.
    let grown = usize::try_from(held.most - held.before).unwrap();
    assert!(grown <= budget + answer + 8 * MIB, "{held:?}");
}
