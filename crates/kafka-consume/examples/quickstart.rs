//! The main job in one file: a manual consumer reads a topic to its end.
//!
//! Without arguments it starts an embedded broker of three nodes, writes a few thousand records, reads them,
//! and prints the last of each partition with position and lag. With `--bootstrap host:port --topic name` it
//! reads a real topic to the end it has now, with a progress bar.

use std::collections::HashMap;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position};
use testkit::embedded::Embedded;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match Arguments::parse()? {
        Arguments::Embedded => embedded().await,
        Arguments::Real { bootstrap, topic } => real(&bootstrap, &topic).await,
    }
}

enum Arguments {
    Embedded,
    Real { bootstrap: String, topic: String },
}

impl Arguments {
    fn parse() -> Result<Self, Failure> {
        let (mut bootstrap, mut topic) = (None, None);
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let slot = match arg.as_str() {
                "--bootstrap" => &mut bootstrap,
                "--topic" => &mut topic,
                other => return Err(format!("unknown argument {other}").into()),
            };
            *slot = Some(args.next().ok_or_else(|| format!("{arg} needs a value"))?);
        }
        match (bootstrap, topic) {
            (None, None) => Ok(Arguments::Embedded),
            (Some(bootstrap), Some(topic)) => Ok(Arguments::Real { bootstrap, topic }),
            _ => Err("--bootstrap and --topic go together".into()),
        }
    }
}

/// Three nodes in this process, 12 partitions, 6,000 records.
async fn embedded() -> Result<(), Failure> {
    let broker = Embedded::tcp(3).await?;
    broker.create_topic("orders", 12);
    for partition in 0..12 {
        let records =
            (0..500).map(|n| (format!("order-{n}"), format!("{{\"partition\":{partition},\"n\":{n}}}")));
        broker.append_records("orders", partition, records);
    }
    println!("embedded broker of three nodes: {}", broker.bootstrap());
    println!("wrote 6000 records to the 12 partitions of `orders`");

    let cluster = Cluster::connect_with(broker.config()).await?;
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new());
    consumer.assign((0..12).map(|partition| ("orders".to_owned(), partition)), Position::Earliest).await?;

    let started = Instant::now();
    let mut total = 0;
    let mut last: HashMap<i32, String> = HashMap::new();
    while !consumer.caught_up() {
        let records = consumer.poll().await?;
        total += records.len();
        for record in &records {
            let value = String::from_utf8_lossy(record.value.unwrap_or_default());
            let line = format!("{}-{} @{}: {value}", record.topic, record.partition, record.offset);
            last.insert(record.partition, line);
        }
    }
    println!("read {total} records in {:.1?}; the last of each partition:", started.elapsed());
    for (topic, partition) in consumer.assignment() {
        println!(
            "  {}   position {}, lag {}",
            last.get(&partition).map_or("nothing", String::as_str),
            consumer.position(&topic, partition).unwrap_or(-1),
            consumer.lag(&topic, partition).unwrap_or(-1),
        );
    }
    consumer.close().await?;
    Ok(())
}

/// A real topic, up to the end it has now.
async fn real(bootstrap: &str, topic: &str) -> Result<(), Failure> {
    let cluster = Cluster::connect(bootstrap).await?;
    let partitions = cluster.partitions(topic).await?;
    let all: Vec<(String, i32)> = partitions.iter().map(|partition| (topic.to_owned(), *partition)).collect();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new().max_poll_records(10_000));
    let starts = consumer.beginning_offsets(all.clone()).await?;
    let ends = consumer.end_offsets(all.clone()).await?;
    let length: i64 = ends.iter().map(|(key, end)| end - starts.get(key).copied().unwrap_or(0)).sum();
    consumer.assign(all.clone(), Position::Earliest).await?;

    let bar = ProgressBar::new(u64::try_from(length).unwrap_or(0));
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} offsets, {per_sec}, {eta} left")?);
    let (mut records, mut bytes) = (0, 0);
    loop {
        let passed: i64 = all
            .iter()
            .map(|key| {
                let start = starts.get(key).copied().unwrap_or(0);
                consumer.position(&key.0, key.1).unwrap_or(start).max(start) - start
            })
            .sum();
        bar.set_position(u64::try_from(passed).unwrap_or(0));
        let done = ends.iter().all(|((topic, partition), end)| {
            consumer.position(topic, *partition).is_some_and(|position| position >= *end)
        });
        if done {
            break;
        }
        let polled = consumer.poll().await?;
        records += polled.len();
        bytes += polled.iter().map(|record| record.value.map_or(0, <[u8]>::len)).sum::<usize>();
    }
    bar.finish();
    println!("{records} records, {bytes} bytes of values");
    for (topic, partition) in consumer.assignment() {
        println!(
            "  {topic}-{partition}: position {}, lag {}",
            consumer.position(&topic, partition).unwrap_or(-1),
            consumer.lag(&topic, partition).unwrap_or(-1),
        );
    }
    consumer.close().await?;
    Ok(())
}
