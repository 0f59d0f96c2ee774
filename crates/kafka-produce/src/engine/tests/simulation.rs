//! Seeded schedules of everything that goes wrong between a producer and its brokers, against an oracle: no
//! record twice, none that was acknowledged missing or elsewhere, the order of each partition kept, an outcome
//! for every record. A producer that forgets sequences is caught.

use std::collections::HashSet;

use super::rig::{Future, Rig, TOPIC, config};
use crate::record::ProducerRecord;

const PARTITIONS: usize = 4;
const NODES: [i32; 3] = [0, 1, 2];

struct Sent {
    partition: usize,
    value: String,
    future: Future,
}

/// What a schedule came to.
#[derive(Debug, Default)]
struct Tally {
    acknowledged: usize,
    failed: usize,
    bumps: u64,
    retries: u64,
    splits: u64,
}

fn run(seed: u64, forgetful: bool) -> Result<Tally, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    // Short, so that batches are given up in the middle of things.
    let config = config().delivery_timeout_ms(3_000).request_timeout_ms(1_000).buffer_memory(4_000);
    let mut rig = Rig::new(&config, PARTITIONS);
    rig.engine.forgetful = forgetful;
    let mut sent: Vec<Sent> = Vec::new();
    // How bad the times are: quiet seeds make long runs of success, rough ones give up a lot.
    let trouble = random.u32(0..30);
    for _ in 0..2_000 {
        let node = NODES[random.usize(..3)];
        let partition = random.usize(..PARTITIONS);
        match random.u32(0..100) {
            0..25 => {
                let value = format!("{seed}-{}", sent.len());
                let record = ProducerRecord::new(TOPIC)
                    .partition(i32::try_from(partition).unwrap())
                    .value(format!("{value:>width$}", width = random.usize(1..120)));
                let value = format!("{}", String::from_utf8_lossy(record.value.as_deref().unwrap()));
                if let Ok(future) = rig.send(record) {
                    sent.push(Sent { partition, value, future });
                }
            }
            25..50 => {
                rig.ship(node);
            }
            50..65 => {
                let (refuse, spoil) = (random.u32(0..100), random.u32(0..100));
                let rough = trouble;
                rig.work(
                    node,
                    |_, _| match refuse {
                        _ if refuse >= rough => None,
                        0..4 => Some(10),
                        4..6 => Some(29),
                        6..12 => Some(19),
                        _ => Some(6),
                    },
                    // Appended, but not by enough replicas in time.
                    |_| (spoil < rough / 2).then_some(if spoil % 2 == 0 { 7 } else { 20 }),
                );
            }
            65..80 => {
                rig.arrive(node);
            }
            80..85 => {
                rig.notice(node);
            }
            85..88 if random.u32(0..30) < trouble => rig.break_off(node),
            88..91 if random.u32(0..30) < trouble => {
                let to = random.u32(0..4);
                rig.move_leader(partition, i32::try_from(to).ok().filter(|to| *to < 3));
            }
            91..94 => rig.show_picture(),
            94..99 => rig.advance(random.u64(0..40)),
            _ if random.u32(0..30) < trouble => rig.advance(random.u64(0..2_000)),
            _ => {}
        }
    }
    // Everything heals.
    for partition in 0..PARTITIONS {
        rig.move_leader(partition, i32::try_from(partition % 3).ok());
    }
    rig.show_picture();
    for _ in 0..400 {
        for node in NODES {
            while rig.notice(node) {}
            rig.round(node);
        }
        rig.advance(50);
    }
    check(&rig, &sent)
}

fn check(rig: &Rig, sent: &[Sent]) -> Result<Tally, String> {
    let counts = rig.engine.counts().clone();
    let mut tally = Tally {
        bumps: counts.epoch_bumps,
        retries: counts.retries,
        splits: counts.splits,
        ..Tally::default()
    };
    for (partition, log) in rig.logs.iter().enumerate() {
        let mut seen = HashSet::new();
        for value in &log.values {
            if !seen.insert(value) {
                return Err(format!("{value} is twice in {partition}"));
            }
        }
        let mut order = sent.iter().filter(|one| one.partition == partition).map(|one| &one.value);
        for value in &log.values {
            if !order.any(|other| other == value) {
                return Err(format!("{value} is out of order in {partition}"));
            }
        }
    }
    for one in sent {
        let log = &rig.logs[one.partition].values;
        match rig.outcome(&one.future) {
            None => return Err(format!("{} has no outcome", one.value)),
            Some(Ok(written)) => {
                tally.acknowledged += 1;
                let at = usize::try_from(written.offset).map_err(|_| "offset unknown".to_owned())?;
                if log.get(at) != Some(&one.value) {
                    return Err(format!("{} is not at {at} of {}", one.value, one.partition));
                }
            }
            Some(Err(_)) => tally.failed += 1,
        }
    }
    if rig.engine.buffered() != 0 {
        return Err(format!("{} bytes are charged for nothing", rig.engine.buffered()));
    }
    Ok(tally)
}

#[test]
fn nothing_is_lost_doubled_or_reordered() {
    let mut all = Tally::default();
    for seed in 0..400 {
        let tally = run(seed, false).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        all.acknowledged += tally.acknowledged;
        all.failed += tally.failed;
        all.bumps += tally.bumps;
        all.retries += tally.retries;
        all.splits += tally.splits;
    }
    // The schedules reach what they are for.
    assert!(all.acknowledged > 20_000 && all.failed > 1_000, "{all:?}");
    assert!(all.bumps > 200 && all.retries > 5_000 && all.splits > 100, "{all:?}");
}

#[test]
fn a_producer_that_forgets_its_sequences_is_caught() {
    assert!((0..100).any(|seed| run(seed, true).is_err()), "the oracle sees nothing");
}
