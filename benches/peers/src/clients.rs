//! The Rust clients by the rules of `main.rs`.

use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use benches::usage::{Usage, high_water};
use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position, Visibility};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// `CLIENT MODE BOOTSTRAP TOPIC PARTITIONS AMOUNT`
pub fn run(words: &[String]) {
    let [client, mode, bootstrap, topic, partitions, amount] = words else { panic!("six words") };
    let task = Task {
        mode,
        bootstrap,
        topic,
        partitions: partitions.parse().unwrap(),
        amount: amount.parse().unwrap(),
    };
    match client.as_str() {
        "ours" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(ours(&task));
        }
        "rdkafka" => rdkafka(&task, false),
        "rdkafka-tuned" => rdkafka(&task, true),
        other => panic!("nobody is called {other}"),
    }
}

struct Task<'a> {
    mode: &'a str,
    bootstrap: &'a str,
    topic: &'a str,
    partitions: i32,
    amount: u64,
}

impl Task<'_> {
    fn span(&self) -> Duration {
        Duration::from_secs(self.amount)
    }
}

/// Counts from the first record on, as all clients do.
#[derive(Default)]
struct Meter {
    begun: Option<(Instant, Usage)>,
    seen: u64,
}

impl Meter {
    fn begin(&mut self) {
        self.begun.get_or_insert_with(|| (Instant::now(), Usage::now()));
    }

    fn print(&self) {
        let (begun, usage) = self.begun.unwrap();
        let used = Usage::now().since(usage);
        println!("{} {} {} {} {}", self.seen, used.user, used.sys, begun.elapsed().as_nanos(), high_water());
    }
}

/// Prints how long ago the value says it was sent, in microseconds.
fn print_age(value: &[u8]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let sent: i64 = std::str::from_utf8(&value[..19]).unwrap().parse().unwrap();
    println!("{}", (now - sent) / 1_000);
}

fn print_cpu(since: Usage) {
    let used = Usage::now().since(since);
    println!("cpu {}", used.user + used.sys);
}

async fn ours(task: &Task<'_>) {
    let cluster = Cluster::connect(task.bootstrap).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new().visibility(Visibility::All));
    let start = if task.mode == "latency" { Position::Latest } else { Position::Earliest };
    let partitions = (0..task.partitions).map(|partition| (task.topic.to_owned(), partition));
    consumer.assign(partitions, start).await.unwrap();
    match task.mode {
        "read" => {
            let mut meter = Meter::default();
            while meter.seen < task.amount {
                let records = consumer.poll().await.unwrap();
                meter.begin();
                for record in &records {
                    black_box((
                        record.key.map(<[u8]>::len),
                        record.value.map(<[u8]>::len),
                        record.offset,
                        record.partition,
                    ));
                }
                meter.seen += records.len() as u64;
            }
            meter.print();
        }
        "latency" => {
            let (begun, usage) = (Instant::now(), Usage::now());
            while begun.elapsed() < task.span() {
                for record in &consumer.poll().await.unwrap() {
                    print_age(record.value.unwrap());
                }
            }
            print_cpu(usage);
        }
        _ => {
            let warm = Instant::now();
            while warm.elapsed() < Duration::from_secs(2) {
                consumer.poll().await.unwrap();
            }
            let (begun, usage, fetches) = (Instant::now(), Usage::now(), consumer.metrics().fetches);
            while begun.elapsed() < task.span() {
                consumer.poll().await.unwrap();
            }
            print_cpu(usage);
            eprintln!("ours: {} fetches in {:?}", consumer.metrics().fetches - fetches, begun.elapsed());
        }
    }
}

fn rdkafka(task: &Task<'_>, tuned: bool) {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", task.bootstrap)
        .set("group.id", "peers")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_uncommitted")
        .set_log_level(RDKafkaLogLevel::Error);
    if tuned {
        config
            .set("queued.min.messages", "1000000")
            .set("queued.max.messages.kbytes", "262144")
            .set("fetch.queue.backoff.ms", "1")
            .set("check.crcs", "true");
    }
    let consumer: BaseConsumer = config.create().unwrap();
    let mut list = TopicPartitionList::new();
    let start = if task.mode == "latency" { Offset::End } else { Offset::Beginning };
    for partition in 0..task.partitions {
        list.add_partition_offset(task.topic, partition, start).unwrap();
    }
    consumer.assign(&list).unwrap();
    let patience = Duration::from_millis(100);
    match task.mode {
        "read" => {
            let mut meter = Meter::default();
            while meter.seen < task.amount {
                let Some(message) = consumer.poll(patience) else { continue };
                let message = message.unwrap();
                meter.begin();
                black_box((message.key_len(), message.payload_len(), message.offset(), message.partition()));
                meter.seen += 1;
            }
            meter.print();
        }
        mode => {
            if mode == "idle" {
                let warm = Instant::now();
                while warm.elapsed() < Duration::from_secs(2) {
                    let _ = consumer.poll(patience);
                }
            }
            let (begun, usage) = (Instant::now(), Usage::now());
            while begun.elapsed() < task.span() {
                if let Some(message) = consumer.poll(patience) {
                    print_age(message.unwrap().payload().unwrap());
                }
            }
            print_cpu(usage);
        }
    }
}

/// The two CRCs over 1 MiB batches in memory larger than the caches, interleaved.
pub fn compare_crcs() {
    let data: Vec<u8> = (0..128 << 20).map(|_| fastrand::u8(..)).collect();
    let both: [(&str, fn(&[u8]) -> u32); 2] =
        [("crc32c", crc32c::crc32c), ("crc-fast", crc_fast::crc32_iscsi)];
    for size in [16 << 10, 1 << 20] {
        for _ in 0..3 {
            for (name, crc) in both {
                let before = Usage::now();
                for batch in data.chunks(size) {
                    black_box(crc(batch));
                }
                let used = Usage::now().since(before);
                let nanos = (used.user + used.sys) as f64;
                println!(
                    "crc     {name:14} {size:8} B batches: {:.2} ns per 119-byte record",
                    nanos / data.len() as f64 * 119.0
                );
            }
        }
    }
}
