//! This workspace's consumer, rdkafka and franz-go against one real broker, interleaved, each run a process of its
//! own: CPU per record, latency, and what waiting costs.
//!
//! `peers [--rounds N] [read|latency|idle|crc]…` runs the comparison; `peers child CLIENT MODE BOOTSTRAP TOPIC
//! PARTITIONS AMOUNT` is one run, as the comparison starts it, and `franz/` the same in Go. `read` prints records,
//! user ns, kernel ns, wall ns from the first record on, and the highest memory; `latency` a line of microseconds
//! per record, then the CPU; `idle` the CPU. Every client touches key length, value length, offset and partition.

mod clients;
mod topics;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use benches::gate;
use testkit::Kafka;

const CLIENTS: [&str; 4] = ["ours", "rdkafka", "rdkafka-tuned", "franz"];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("child") => clients::run(&words[1..]),
        Some("produce") => {
            topics::produce_at_rate(&words[1], words[2].parse().unwrap(), words[3].parse().unwrap())
        }
        _ => compare(&words),
    }
}

fn compare(words: &[String]) {
    let rounds =
        words.iter().position(|word| word == "--rounds").map_or(3, |at| words[at + 1].parse().unwrap());
    let chosen = |name: &str| {
        let named =
            ["read", "latency", "idle", "crc"].iter().any(|mode| words.iter().any(|word| word == mode));
        !named || words.iter().any(|word| word == name)
    };
    if chosen("crc") {
        clients::compare_crcs();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let kafka = runtime.block_on(Kafka::builder().jvm_flag("-Xmx768M").start()).unwrap();
    let bootstrap = kafka.bootstrap();
    let broker = kafka.pid(1).unwrap();
    if chosen("read") {
        for (topic, value, records) in [("t100", 100, 3_000_000), ("t1k", 1024, 600_000)] {
            runtime.block_on(topics::fill(&kafka, topic, value, records));
            for pinned in [false, true] {
                set_cores(broker, if pinned { "0" } else { "0,1" });
                for _ in 0..rounds {
                    for client in CLIENTS {
                        read(client, &bootstrap, topic, records, pinned);
                    }
                }
                set_cores(broker, "0,1");
            }
        }
    }
    if chosen("latency") {
        runtime.block_on(kafka.create_topic("latency", 6, 1, &[])).unwrap();
        for _ in 0..rounds {
            for client in CLIENTS {
                latency(client, &bootstrap);
            }
        }
    }
    if chosen("idle") {
        runtime.block_on(kafka.create_topic("idle", 50, 1, &[])).unwrap();
        for _ in 0..rounds {
            for client in CLIENTS {
                let child = start(client, "idle", &bootstrap, "idle", 50, 10, false);
                let out = finish(child);
                println!("idle    {client:14} {out} ns of CPU in 10 s");
            }
        }
    }
    runtime.block_on(kafka.stop_node(1)).unwrap();
}

fn set_cores(pid: u32, cores: &str) {
    let status = Command::new("taskset")
        .args(["-a", "-p", "-c", cores, &pid.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
}

fn start(
    client: &str,
    mode: &str,
    bootstrap: &str,
    topic: &str,
    partitions: i32,
    amount: i64,
    pinned: bool,
) -> Child {
    let me = std::env::current_exe().unwrap();
    let words = [mode, bootstrap, topic, &partitions.to_string(), &amount.to_string()].map(str::to_owned);
    let mut command = if pinned {
        let mut command = Command::new("taskset");
        command.args(["-c", "1"]);
        command.arg(if client == "franz" { franz() } else { me });
        command
    } else {
        Command::new(if client == "franz" { franz() } else { me })
    };
    if client != "franz" {
        command.args(["child", client]);
    }
    command.args(words).stdout(Stdio::piped()).spawn().unwrap()
}

/// Where `go build` puts it: beside its source.
fn franz() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("franz/franz")
}

fn finish(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn read(client: &str, bootstrap: &str, topic: &str, records: i64, pinned: bool) {
    let before = gate::loss();
    let out = finish(start(client, "read", bootstrap, topic, 6, records, pinned));
    let after = gate::loss();
    let numbers: Vec<f64> = out.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [seen, user, sys, wall, memory] = numbers[..] else { panic!("{out}") };
    println!(
        "{topic:5} {} {client:14} {:6.3} us of CPU per record ({:.3} + {:.3})  {:5.2} M/s  {:4.0} MiB  busy {:2.0}/{:2.0} %",
        if pinned { "pinned" } else { "both  " },
        (user + sys) / seen / 1e3,
        user / seen / 1e3,
        sys / seen / 1e3,
        seen / wall * 1e3,
        memory / 1_048_576.0,
        100.0 * before,
        100.0 * after,
    );
}

fn latency(client: &str, bootstrap: &str) {
    let reader = start(client, "latency", bootstrap, "latency", 6, 17, false);
    std::thread::sleep(Duration::from_secs(2));
    let me = std::env::current_exe().unwrap();
    let mut writer = Command::new(me).args(["produce", bootstrap, "6", "13"]).spawn().unwrap();
    let out = finish(reader);
    assert!(writer.wait().unwrap().success());
    let (lines, cpu) = out.rsplit_once('\n').unwrap();
    let mut micros: Vec<i64> = lines.lines().skip(1_000).map(|line| line.parse().unwrap()).collect();
    micros.sort_unstable();
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    println!(
        "latency {client:14} p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms of {} records; {cpu} ns in 17 s",
        at(0.5),
        at(0.99),
        at(0.999),
        micros.len()
    );
}
