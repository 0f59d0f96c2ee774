//! What a record costs to read, against the least it can cost here.
//!
//! `read [--rounds N] [--seconds S] [ROW…]` interleaves the floor and every way of reading in rounds, each run a
//! process of its own pinned to core 1, the broker on core 0. Prints nanoseconds of CPU per record and, for each
//! round, the floor's figure divided by the run's: the share of the machine's limit that is reached. `read one …` is
//! one run, as the rounds start it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss
)]

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use benches::children::Broker;
use benches::drive::{self, Way};
use benches::gate;
use benches::log::Shape;
use benches::usage::{self, ticks_of};
use kafka_read::batch::Codec;

/// What is run for one shape: the way, and `max_poll_records`.
type Runs = &'static [(Way, usize)];

struct Row {
    name: &'static str,
    shape: Shape,
    runs: Runs,
}

const ALL: usize = usize::MAX;
const MAIN: Runs = &[
    (Way::Floor, 0),
    (Way::Walk, 0),
    (Way::Borrowed, 500),
    (Way::Borrowed, ALL),
    (Way::Owned, 500),
    (Way::Owned, ALL),
    (Way::Stream, 500),
    (Way::Scan, 0),
];
const BRIEF: Runs = &[(Way::Floor, 0), (Way::Borrowed, 500), (Way::Owned, 500)];
const PACKED: Runs = &[(Way::Walk, 0), (Way::Borrowed, 500)];

fn rows() -> Vec<Row> {
    let plain = Shape::plain;
    let packed = |codec| Shape { codec, ..plain(1024) };
    let row = |name, shape, runs| Row { name, shape, runs };
    vec![
        row("100B", plain(100), MAIN),
        row("1KiB", plain(1024), MAIN),
        row("100B-3hdr", Shape { headers: 3, ..plain(100) }, MAIN),
        row("100B-16KiB-batches", Shape { batch: 16 << 10, ..plain(100) }, BRIEF),
        row("1KiB-64KiB-batches", Shape { batch: 64 << 10, ..plain(1024) }, BRIEF),
        row("100B-1-partition", Shape { partitions: 1, ..plain(100) }, BRIEF),
        row("100B-10-partitions-16KiB", Shape { partitions: 10, batch: 16 << 10, ..plain(100) }, BRIEF),
        row("100B-1000-partitions-16KiB", Shape { partitions: 1000, batch: 16 << 10, ..plain(100) }, BRIEF),
        row("1KiB-lz4", packed(Codec::Lz4), PACKED),
        row("1KiB-zstd", packed(Codec::Zstd), PACKED),
        row("1KiB-gzip", packed(Codec::Gzip), PACKED),
        row("1KiB-snappy", packed(Codec::Snappy), PACKED),
    ]
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "one") {
        one(&words[1..]);
        return;
    }
    let mut rounds = 5;
    let mut seconds = 1.5;
    let mut names = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--rounds" => rounds = rest.next().unwrap().parse().unwrap(),
            "--seconds" => seconds = rest.next().unwrap().parse().unwrap(),
            name => names.push(name.to_owned()),
        }
    }
    let known = rows();
    for name in &names {
        assert!(known.iter().any(|row| row.name == name), "no row is called {name}");
    }
    println!(
        "ns of CPU per record (user + kernel), M records/s, page faults per 1000 records, share of the floor;"
    );
    println!("busy = share of a spin lost to others before/after, other = CPU others used during the run\n");
    for row in known.into_iter().filter(|row| names.is_empty() || names.iter().any(|name| name == row.name)) {
        measure(&row, rounds, seconds);
    }
}

/// `one WAY MOST SECONDS KAFKA RAW SHAPE…`
fn one(words: &[String]) {
    usage::pin(1);
    let way = Way::named(&words[0]).unwrap();
    let most = words[1].parse().unwrap();
    let span = Duration::from_secs_f64(words[2].parse().unwrap());
    let (kafka, raw) = (words[3].parse().unwrap(), words[4].parse().unwrap());
    let shape = Shape::from_words(&words[5..]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(drive::run(way, kafka, raw, &shape, most, span));
    let usage = outcome.usage;
    let wall = outcome.wall.as_nanos();
    println!(
        "{} {} {} {} {wall} {}",
        outcome.records,
        usage.user,
        usage.sys,
        usage.faults,
        usage::high_water()
    );
}

#[derive(Clone, Copy)]
struct Run {
    nanos: f64,
    share: f64,
    quiet: bool,
}

fn measure(row: &Row, rounds: usize, seconds: f64) {
    let me = std::env::current_exe().unwrap();
    let broker = Broker::start(&me.with_file_name("endless"), &row.shape);
    println!("{}: {:?}", row.name, row.shape);
    let mut all: Vec<Vec<Run>> = vec![Vec::new(); row.runs.len()];
    for _ in 0..rounds {
        let mut floor = f64::NAN;
        for (run, results) in row.runs.iter().zip(&mut all) {
            let result = child(&me, &broker, row, *run, seconds, &mut floor);
            results.push(result);
        }
    }
    for ((way, most), results) in row.runs.iter().zip(&all) {
        let quiet: Vec<Run> = results.iter().copied().filter(|run| run.quiet).collect();
        let (kept, of) = (quiet.len(), results.len());
        let used = if quiet.is_empty() { results } else { &quiet };
        let nanos = |run: &Run| run.nanos;
        println!(
            "= {:28} {:9} most {:5}  best {:6.1} ns, median {:6.1} ns; share of floor: median {:4.0} %, best {:4.0} %  ({kept}/{of} quiet)",
            row.name,
            way.name(),
            show(*most),
            sorted(used, nanos)[0],
            median(used, nanos),
            100.0 * median(used, |run| run.share),
            100.0 * sorted(used, |run| run.share).last().unwrap(),
        );
    }
    println!();
}

fn show(most: usize) -> String {
    if most == ALL { "all".to_owned() } else { most.to_string() }
}

fn sorted(runs: &[Run], of: impl Fn(&Run) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    let values = sorted(runs, of);
    values[values.len() / 2]
}

fn child(me: &PathBuf, broker: &Broker, row: &Row, run: (Way, usize), seconds: f64, floor: &mut f64) -> Run {
    let (way, most) = run;
    let before = gate::loss();
    let ticks = (gate::busy_ticks(), ticks_of(broker.pid()), children_ticks());
    let ports = broker.ports;
    let output = Command::new(me)
        .args(["one", way.name(), &most.to_string(), &seconds.to_string()])
        .args([ports.kafka.to_string(), ports.raw.to_string()])
        .args(row.shape.to_words())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let own = ticks_of(broker.pid()) - ticks.1 + children_ticks() - ticks.2;
    let foreign = (gate::busy_ticks() - ticks.0 - own).max(0) as f64 * gate::TICK.as_secs_f64();
    let after = gate::loss();
    let numbers: Vec<f64> = String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let [records, user, sys, faults, wall, memory] = numbers[..] else { panic!("six numbers") };
    let nanos = (user + sys) / records;
    if way == Way::Floor {
        *floor = nanos;
    }
    let share = *floor / nanos;
    println!(
        "  {:9} most {:5} {nanos:7.1} ns ({:5.1} + {:5.1}) {:6.2} M/s  faults {:5.2}  {:4.0} MiB  {:4.0} % of floor  busy {:2.0}/{:2.0} %, other {foreign:.1} s",
        way.name(),
        show(most),
        user / records,
        sys / records,
        records / wall * 1e3,
        faults / records * 1e3,
        memory / 1_048_576.0,
        100.0 * share,
        100.0 * before,
        100.0 * after,
    );
    Run { nanos, share, quiet: before < gate::QUIET && after < gate::QUIET && foreign < 0.15 * seconds }
}

/// Ticks of children that have ended.
fn children_ticks() -> i64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let words: Vec<&str> = rest.split_whitespace().collect();
    words[13].parse::<i64>().unwrap() + words[14].parse::<i64>().unwrap()
}
