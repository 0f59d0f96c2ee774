//! What a record costs to write, against the least it can cost here.
//!
//! `write [--rounds N] [--seconds S]` interleaves the floor and three ways of sending in rounds, each run a process
//! of its own pinned to core 1, the broker on core 0. Prints nanoseconds of CPU per record, and for each round the
//! floor's figure divided by the run's. `write one …` is one run and `write sink …` the broker, as the rounds
//! start them.

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

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use benches::endless::TOPIC;
use benches::sink::{self, Outcome};
use benches::{gate, usage};
use bytes::Bytes;
use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use kafka_produce::{Cluster, Producer, ProducerConfig, ProducerRecord, TopicName};

/// The floor; sends in order, ten thousand on the way (`StreamExt::buffered`); as many joined; as many polled once
/// and dropped, then a flush: what the producer costs without anybody's futures.
const WAYS: [&str; 4] = ["floor", "buffered", "joined", "dropped"];
const ROWS: [(usize, i32, usize); 4] =
    [(100, 6, 16_384), (1_024, 6, 16_384), (100, 6, 131_072), (1_024, 6, 131_072)];

struct Kill(Child);

impl Drop for Kill {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("sink") => {
            usage::pin(0);
            println!("{}", sink::serve(words[1].parse().unwrap()));
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
        }
        Some("one") => one(&words[1..]),
        _ => rounds(&words),
    }
}

fn rounds(words: &[String]) {
    let option = |name: &str, otherwise: f64| {
        let at = words.iter().position(|word| word == name);
        at.map_or(otherwise, |at| words[at + 1].parse().unwrap())
    };
    let (rounds, seconds) = (option("--rounds", 3.0) as usize, option("--seconds", 1.0));
    let program = std::env::current_exe().unwrap();
    for (value, partitions, batch) in ROWS {
        println!("{value} B, {partitions} partitions, batches of {batch} B");
        for _ in 0..rounds {
            let before = gate::loss();
            let mut floor = 0.0;
            for way in WAYS {
                let sink = Command::new(&program)
                    .args(["sink", &partitions.to_string()])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn();
                let mut sink = Kill(sink.unwrap());
                let mut port = String::new();
                BufReader::new(sink.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
                let words = [value as i64, i64::from(partitions), batch as i64].map(|word| word.to_string());
                let out = Command::new(&program)
                    .args(["one", way, port.trim(), &seconds.to_string()])
                    .args(words)
                    .output()
                    .unwrap();
                let text = String::from_utf8(out.stdout).unwrap();
                let figures: Vec<f64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
                let cost = (figures[1] + figures[2]) / figures[0];
                if way == "floor" {
                    floor = cost;
                }
                println!(
                    "  {way:9} {cost:7.1} ns ({:.1} user)  {:5.2} M/s  {:3.0} % of the floor  busy {:.0} %",
                    figures[1] / figures[0],
                    figures[0] / figures[3] * 1e3,
                    floor / cost * 100.0,
                    before * 100.0
                );
            }
        }
    }
}

/// `one WAY PORT SECONDS VALUE PARTITIONS BATCH`
fn one(words: &[String]) {
    usage::pin(1);
    let port = words[1].parse().unwrap();
    let span = Duration::from_secs_f64(words[2].parse().unwrap());
    let value = Bytes::from(vec![b'x'; words[3].parse().unwrap()]);
    let (partitions, batch) = (words[4].parse().unwrap(), words[5].parse().unwrap());
    let outcome = if words[0] == "floor" {
        sink::floor(port, partitions, &value, batch, span)
    } else {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(produce(&words[0], port, value, batch, span))
    };
    let Outcome { records, usage, wall } = outcome;
    println!("{records} {} {} {}", usage.user, usage.sys, wall.as_nanos());
}

async fn produce(way: &str, port: u16, value: Bytes, batch: usize, span: Duration) -> Outcome {
    let cluster = Cluster::connect(&format!("127.0.0.1:{port}")).await.unwrap();
    let producer = Producer::new(cluster, ProducerConfig::new().batch_size(batch));
    let topic = TopicName::new(TOPIC);
    let send = || producer.send(ProducerRecord::new(topic).value(value.clone()));
    let mut clock = Clock { begun: Instant::now(), marks: None, records: 0, span };
    match way {
        "buffered" => {
            let mut sends = futures::stream::repeat_with(send).buffered(10_000);
            loop {
                sends.next().await.unwrap().unwrap();
                if let Some(outcome) = clock.tick(1) {
                    return outcome;
                }
            }
        }
        "joined" => loop {
            for sent in join_all((0..10_000).map(|_| send())).await {
                sent.unwrap();
            }
            if let Some(outcome) = clock.tick(10_000) {
                return outcome;
            }
        },
        "dropped" => loop {
            for _ in 0..10_000 {
                let _ = send().now_or_never();
            }
            producer.flush().await.unwrap();
            if let Some(outcome) = clock.tick(10_000) {
                return outcome;
            }
        },
        other => panic!("no way is called {other}"),
    }
}

struct Clock {
    begun: Instant,
    marks: Option<(usage::Usage, Instant, u64)>,
    records: u64,
    span: Duration,
}

impl Clock {
    fn tick(&mut self, records: u64) -> Option<Outcome> {
        self.records += records;
        if records == 1 && !self.records.is_multiple_of(1_000) {
            return None;
        }
        match self.marks {
            None => {
                if self.begun.elapsed() > Duration::from_millis(500) {
                    self.marks = Some((usage::Usage::now(), Instant::now(), self.records));
                }
                None
            }
            Some((usage, at, before)) if at.elapsed() > self.span => Some(Outcome {
                records: self.records - before,
                usage: usage::Usage::now().since(usage),
                wall: at.elapsed(),
            }),
            Some(_) => None,
        }
    }
}
