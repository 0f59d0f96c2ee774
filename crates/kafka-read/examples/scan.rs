//! A look at a topic, with a progress bar that fills up whatever the log ends with.
//!
//! Without arguments it starts an embedded broker, writes records, an aborted transaction and a damaged batch, and
//! scans them. With `--bootstrap host:port --topic name` it scans a real topic; `--last n` only the last `n`
//! records of each partition.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use kafka_read::{Cluster, ScanEvent, ScanSpec, scan};
use testkit::embedded::Embedded;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse()?;
    let mut spec = ScanSpec::new(arguments.topic.as_deref().unwrap_or("orders"));
    spec.last = arguments.last;
    if let Some(bootstrap) = &arguments.bootstrap {
        return show(Cluster::connect(bootstrap).await?, spec).await;
    }
    let broker = Embedded::tcp(3).await?;
    fill(&broker);
    println!("embedded broker of three nodes: {}", broker.bootstrap());
    show(Cluster::connect_with(broker.config()).await?, spec).await
}

#[derive(Default)]
struct Arguments {
    bootstrap: Option<String>,
    topic: Option<String>,
    last: Option<u64>,
}

impl Arguments {
    fn parse() -> Result<Self, Failure> {
        let mut found = Arguments::default();
        let mut given = std::env::args().skip(1);
        while let Some(name) = given.next() {
            let value = given.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--bootstrap" => found.bootstrap = Some(value),
                "--topic" => found.topic = Some(value),
                "--last" => found.last = Some(value.parse()?),
                other => return Err(format!("unknown argument {other}").into()),
            }
        }
        if found.bootstrap.is_some() != found.topic.is_some() {
            return Err("--bootstrap and --topic go together".into());
        }
        Ok(found)
    }
}

/// Six partitions; the third has a damaged batch, the last ends with an aborted transaction.
fn fill(broker: &Embedded) {
    broker.create_topic("orders", 6);
    for partition in 0..6 {
        for batch in 0..200 {
            let records = (0..50).map(|n| (format!("order-{n}"), format!("{{\"batch\":{batch},\"n\":{n}}}")));
            broker.append_records("orders", partition, records);
        }
    }
    let end = broker.log_end("orders", 2);
    if let Some(batch) = broker.stored("orders", 2).pop() {
        let mut bytes = batch.to_vec();
        bytes.splice(0..8, end.to_be_bytes());
        if let Some(byte) = bytes.last_mut() {
            *byte ^= 0xff;
        }
        broker.append_raw_damaged("orders", 2, bytes.into(), end + 50);
    }
    let mut transaction = broker.begin("example");
    transaction.append("orders", 5, ["never", "happened"]);
    transaction.abort();
}

async fn show(cluster: Cluster, spec: ScanSpec) -> Result<(), Failure> {
    let started = Instant::now();
    let topic = spec.topic.clone();
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} offsets, {per_sec}, {eta} left")?);
    // Passed and to be passed, by partition: what a bar is made of.
    let mut bars: BTreeMap<i32, (i64, i64)> = BTreeMap::new();
    let mut last: BTreeMap<i32, String> = BTreeMap::new();
    let (mut records, mut failed) = (0u64, 0u64);
    let mut events = scan(cluster, spec);
    while let Some(event) = events.next().await {
        match event {
            Ok(ScanEvent::Record(record)) => {
                records += 1;
                let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned();
                last.insert(record.partition, format!("@{}: {value}", record.offset));
            }
            Ok(ScanEvent::Progress { partition, start, position, end, .. }) => {
                bars.insert(partition, (position - start, end - start));
                let (passed, all) = bars.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
                bar.set_length(u64::try_from(all).unwrap_or(0));
                bar.set_position(u64::try_from(passed).unwrap_or(0));
            }
            Ok(ScanEvent::Malformed { partition, offsets, bytes, error, .. }) => bar.suspend(|| {
                println!("{topic}-{partition} {offsets:?}: {} bytes that are no batch: {error}", bytes.len());
            }),
            Ok(ScanEvent::Lost { partition, offsets, loss, .. }) => bar.suspend(|| {
                println!("{topic}-{partition} {offsets:?}: lost while it was read ({loss:?})");
            }),
            Ok(_) => {}
            Err(error) => {
                failed += 1;
                bar.suspend(|| eprintln!("{error}"));
            }
        }
    }
    bar.finish();
    println!("{records} records in {:.1?}; the last of each partition:", started.elapsed());
    for (partition, line) in last {
        println!("  {topic}-{partition} {line}");
    }
    if failed > 0 { Err(format!("{failed} partitions were not read to their end").into()) } else { Ok(()) }
}
