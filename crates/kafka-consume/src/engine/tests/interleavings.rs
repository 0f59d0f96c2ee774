//! The hand-over of buffer, budget and wake-ups between threads, under shuttle: fetchers, inflater and poller run
//! as real threads around the real core, and shuttle chooses who goes on at every lock and every bell.
//!
//! A wake-up that is lost shows as a deadlock, a byte that is lost as a wrong record or a budget that does not
//! come back to nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use kafka_meta::TopicName;
use kafka_read::batch::Codec;
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;
use uuid::Uuid;

use super::broker::{Cluster, Log};
use super::rig::settings;
use crate::config::Position;
use crate::engine::{Core, FetchStep, Settings, check};

/// A bell as the tasks use it: whoever waits has heard of every ring before its look.
struct Bell {
    rings: Mutex<u64>,
    heard: Condvar,
}

impl Bell {
    fn new() -> Self {
        Bell { rings: Mutex::new(0), heard: Condvar::new() }
    }

    fn ring(&self) {
        *self.rings.lock().unwrap() += 1;
        self.heard.notify_all();
    }

    /// Before the look.
    fn listen(&self) -> u64 {
        *self.rings.lock().unwrap()
    }

    /// After a look that found nothing.
    fn wait(&self, since: u64) {
        let mut rings = self.rings.lock().unwrap();
        while *rings == since {
            rings = self.heard.wait(rings).unwrap();
        }
    }
}

/// A mistake made on purpose.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Mistake {
    None,
    /// Room in the buffer is not told to the fetchers.
    DeafFetchers,
    /// The poller looks before it listens.
    LookFirst,
}

struct World {
    core: Mutex<Core>,
    cluster: Mutex<Cluster>,
    polls: Bell,
    fetchers: Bell,
    inflater: Bell,
    now: Instant,
    settings: Settings,
    mistake: Mistake,
}

impl World {
    fn with<T>(&self, step: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.core.lock().unwrap();
        let result = step(&mut core);
        let effects = std::mem::take(&mut core.effects);
        let closed = core.is_closed();
        drop(core);
        if effects.poll {
            self.polls.ring();
        }
        if effects.fetchers && (closed || self.mistake != Mistake::DeafFetchers) {
            self.fetchers.ring();
        }
        if effects.inflater {
            self.inflater.ring();
        }
        result
    }

    fn fetcher(&self, node: i32) {
        loop {
            let since = self.fetchers.listen();
            match self.with(|core| core.poll_fetch(self.now, node)) {
                FetchStep::Retire => return,
                FetchStep::Wait(_) => self.fetchers.wait(since),
                FetchStep::Send(order) => {
                    // The broker holds back what has no answer; here nothing is ever written later.
                    let answer = self.cluster.lock().unwrap().fetch(&order, true);
                    let Some(answer) = answer else {
                        while !self.with(|core| core.is_closed()) {
                            let since = self.fetchers.listen();
                            if !self.with(|core| core.is_closed()) {
                                self.fetchers.wait(since);
                            }
                        }
                        return;
                    };
                    let bytes = answer.partitions.iter().map(|part| part.records.len()).sum::<usize>() + 50;
                    let took = Duration::from_millis(400);
                    let works = self.with(|core| core.handle_answer(self.now, &order, answer, bytes, took));
                    for work in works {
                        let checked = check(work, &self.settings);
                        self.with(|core| core.fill(self.now, checked));
                    }
                }
            }
        }
    }

    fn inflate(&self) {
        loop {
            let since = self.inflater.listen();
            let (closed, job) = self.with(|core| (core.is_closed(), core.poll_inflate()));
            match job {
                Some(job) => {
                    let result = job.batch.open(&self.settings.limits, job.from);
                    self.with(|core| core.handle_inflated(&job, result));
                }
                None if closed => return,
                None => self.inflater.wait(since),
            }
        }
    }

    /// Reads `count` records, a few at a time; each partition in order.
    fn poll(&self, count: usize) {
        let mut next = [0_i64; 2];
        let mut read = 0;
        while read < count {
            let mut since = self.polls.listen();
            let taken = self.with(|core| core.take(self.now, 3));
            if self.mistake == Mistake::LookFirst {
                since = self.polls.listen();
            }
            for slice in &taken.slices {
                for record in slice.set.iter() {
                    let next = &mut next[usize::try_from(slice.partition).unwrap()];
                    assert_eq!(record.offset, *next, "partition {}", slice.partition);
                    *next += 1;
                    read += 1;
                }
            }
            if taken.slices.is_empty() && !taken.moved {
                self.polls.wait(since);
            }
        }
        self.with(|core| {
            assert_eq!(core.buffered_bytes(), 0, "everything is handed out, nothing is charged");
            core.close();
        });
    }
}

/// Two brokers with a partition each, one of them packed; a buffer with room for about two answers.
fn run(mistake: Mistake) {
    const BATCHES: i32 = 4;
    const RECORDS: i32 = 5;
    let topic = TopicName::new("t");
    let settings = Settings { budget: 1_500, partition_max_bytes: 600, max_bytes: 600, ..settings() };
    let mut cluster = Cluster { nodes: vec![1, 2], ..Cluster::default() };
    let mut stamp = 0;
    for (index, codec) in [(0, Codec::None), (1, Codec::Lz4)] {
        let mut log = Log::new(Uuid::from_u128(7), index + 1, &[index + 1]);
        for _ in 0..BATCHES {
            log.append(&mut stamp, &(0..RECORDS).collect::<Vec<_>>(), 40, codec, None);
        }
        cluster.logs.insert((topic, index), log);
    }
    let now = Instant::now();
    let mut core = Core::new(settings.clone(), 1);
    core.assign(now, vec![((topic, 0), Position::Offset(0)), ((topic, 1), Position::Offset(0))]);
    core.handle_snapshot(now, &cluster.snapshot(1));
    let nodes = core.poll_fetchers(now);
    let world = Arc::new(World {
        core: Mutex::new(core),
        cluster: Mutex::new(cluster),
        polls: Bell::new(),
        fetchers: Bell::new(),
        inflater: Bell::new(),
        now,
        settings,
        mistake,
    });
    let mut threads = Vec::new();
    for node in nodes {
        let world = Arc::clone(&world);
        threads.push(thread::spawn(move || world.fetcher(node)));
    }
    let inflater = Arc::clone(&world);
    threads.push(thread::spawn(move || inflater.inflate()));
    world.poll(usize::try_from(2 * BATCHES * RECORDS).unwrap());
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn no_interleaving_loses_a_wake_up_or_a_byte() {
    shuttle::check_random(|| run(Mistake::None), 400);
    shuttle::check_pct(|| run(Mistake::None), 100, 3);
}

#[test]
fn room_that_is_not_told_is_found_as_a_standstill() {
    let found = catch_unwind(AssertUnwindSafe(|| {
        shuttle::check_random(|| run(Mistake::DeafFetchers), 200);
    }));
    assert!(found.is_err(), "the fetchers never heard of room, and nobody noticed");
}

#[test]
fn looking_before_listening_is_found_as_a_standstill() {
    let found = catch_unwind(AssertUnwindSafe(|| {
        shuttle::check_random(|| run(Mistake::LookFirst), 2_000);
    }));
    assert!(found.is_err(), "a ring between look and wait was lost, and nobody noticed");
}
