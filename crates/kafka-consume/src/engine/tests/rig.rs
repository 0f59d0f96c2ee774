//! Drives a core as the tasks do: fetchers, supervisor and inflater act only when their bell has rung or their
//! time has come, so that a bell that does not ring shows as a standstill. Time is a number here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_meta::client::Snapshot;
use kafka_meta::wire::fetch::FetchAnswer;
use kafka_meta::{Error, ErrorCode, ErrorKind};
use kafka_read::Records;
use kafka_read::batch::{Codec, Limits};
use uuid::Uuid;

use super::broker::{Cluster, Key, Log};
use crate::buffer::{Kind, Slot};
use crate::config::OffsetReset;
use crate::engine::{Core, FetchOrder, FetchStep, InflateJob, LookupOrder, Settings, Taken, Work, check};

#[derive(Debug)]
pub(super) enum Fetcher {
    Idle { wake: Option<Instant>, rung: bool },
    Waiting { order: Box<FetchOrder>, sent: Instant, due: Instant },
}

/// What goes wrong on the way; numbers are chances in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    pub lose: u32,
    pub session: u32,
    pub slow: u32,
    pub lookup: u32,
}

/// A bug built in on purpose, to see that an oracle notices it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Bug {
    SkipBatch,
    StaleBuffer,
    LeakCharge,
    DeafFetchers,
    CommitFetchPosition,
    TwiceHandedOut,
}

pub(super) struct Rig {
    pub core: Core,
    pub cluster: Cluster,
    pub now: Instant,
    pub fetchers: BTreeMap<i32, Fetcher>,
    unchecked: BTreeMap<i32, Vec<Work>>,
    pub jobs: Vec<InflateJob>,
    lookups: Vec<(Instant, LookupOrder)>,
    supervise: bool,
    inflate: bool,
    refresh_at: Option<Instant>,
    known: Snapshot,
    pub random: fastrand::Rng,
    pub weather: Weather,
    pub stamp: u64,
    pub fetches: u64,
    pub forgotten: u64,
    pub bug: Option<Bug>,
    /// Where resets have led: from which position to which.
    pub jumps: Vec<(Key, i64, i64)>,
    pub errors: Vec<Error>,
}

pub(super) fn settings() -> Settings {
    Settings {
        committed_only: true,
        wire_wait: Duration::from_millis(500),
        min_bytes: 1,
        max_bytes: 8 << 20,
        partition_max_bytes: 1 << 20,
        budget: 64 << 20,
        reset: OffsetReset::Earliest,
        check_crcs: true,
        limits: Limits { max_batch_bytes: 1 << 20 },
        rack: String::new(),
        replica_lease: Duration::from_secs(300),
    }
}

impl Rig {
    pub fn new(settings: Settings, seed: u64) -> Self {
        let now = Instant::now();
        Rig {
            core: Core::new(settings, seed),
            cluster: Cluster { nodes: vec![1, 2, 3], ..Cluster::default() },
            now,
            fetchers: BTreeMap::new(),
            unchecked: BTreeMap::new(),
            jobs: Vec::new(),
            lookups: Vec::new(),
            supervise: false,
            inflate: false,
            refresh_at: Some(now),
            known: Snapshot::default(),
            random: fastrand::Rng::with_seed(seed),
            weather: Weather::default(),
            stamp: 0,
            fetches: 0,
            forgotten: 0,
            bug: None,
            jumps: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// A partition led by `leader`, with the next node as a replica.
    pub fn create(&mut self, key: Key, leader: i32) {
        let id = Uuid::from_u128(self.random.u128(1..));
        self.cluster.logs.insert(key, Log::new(id, leader, &[leader, leader % 3 + 1]));
        self.refresh_at.get_or_insert(self.now);
    }

    pub fn append(&mut self, key: Key, records: i32, size: usize, codec: Codec) {
        let deltas: Vec<i32> = (0..records).collect();
        let log = self.cluster.logs.get_mut(&key).unwrap();
        log.append(&mut self.stamp, &deltas, size, codec, None);
        self.touch();
    }

    /// Something changed at the brokers: fetches held back are looked at again.
    pub fn touch(&mut self) {
        let now = self.now;
        for fetcher in self.fetchers.values_mut() {
            if let Fetcher::Waiting { due, .. } = fetcher {
                *due = now.min(*due);
            }
        }
    }

    pub fn chance(&mut self, in_a_thousand: u32) -> bool {
        self.random.u32(0..1_000) < in_a_thousand
    }

    /// Rings the bells of the last step.
    pub fn settle(&mut self) {
        let effects = std::mem::take(&mut self.core.effects);
        if effects.fetchers && self.bug != Some(Bug::DeafFetchers) {
            for fetcher in self.fetchers.values_mut() {
                if let Fetcher::Idle { rung, .. } = fetcher {
                    *rung = true;
                }
            }
        }
        self.supervise |= effects.supervisor || effects.interest;
        self.inflate |= effects.inflater;
        if effects.refresh || effects.interest {
            self.refresh_at.get_or_insert(self.now + Duration::from_millis(50));
        }
    }

    fn supervisor_due(&self) -> bool {
        self.supervise || self.core.next_supervision_at().is_some_and(|at| at <= self.now)
    }

    /// One turn of the supervisor.
    pub fn supervise(&mut self) {
        self.supervise = false;
        if self.refresh_at.is_some_and(|at| at <= self.now) {
            self.refresh_at = None;
            self.known = self.cluster.snapshot(self.known.generation + 1);
        }
        self.core.handle_snapshot(self.now, &self.known);
        let started = self.core.poll_fetchers(self.now);
        let orders = self.core.poll_lookups(self.now, Duration::from_secs(1_000_000));
        self.core.effects.supervisor = false;
        for node in started {
            self.fetchers.insert(node, Fetcher::Idle { wake: None, rung: true });
        }
        for order in orders {
            let delay = Duration::from_millis(self.random.u64(1..20));
            self.lookups.push((self.now + delay, order));
        }
        self.settle();
    }

    /// One turn of a fetcher without a request in flight.
    pub fn ask(&mut self, node: i32) {
        match self.core.poll_fetch(self.now, node) {
            FetchStep::Send(order) => {
                self.fetches += 1;
                self.forgotten += u64::try_from(order.plan.forget.len()).unwrap();
                let sent = self.now;
                let slow = if self.chance(self.weather.slow) { 200 } else { 5 };
                let due = sent + Duration::from_millis(self.random.u64(1..=slow));
                self.fetchers.insert(node, Fetcher::Waiting { order, sent, due });
            }
            FetchStep::Wait(wake) => {
                self.fetchers.insert(node, Fetcher::Idle { wake, rung: false });
            }
            FetchStep::Retire => {
                self.fetchers.remove(&node);
            }
        }
        self.settle();
    }

    /// The request of `node` comes to something, if a broker has anything to say.
    pub fn receive(&mut self, node: i32) {
        self.check(node);
        let Some(Fetcher::Waiting { order, sent, .. }) = self.fetchers.remove(&node) else { return };
        let took = self.now - sent;
        let dead = !self.cluster.nodes.contains(&node);
        if dead || self.chance(self.weather.lose) {
            // It may have been carried out all the same.
            if !dead && self.random.bool() {
                self.cluster.fetch(&order, false);
            }
            let error = Error::new(ErrorKind::Disconnected, "fetch");
            self.core.handle_fetch_failure(self.now, &order, &error);
            self.fetchers.insert(node, Fetcher::Idle { wake: None, rung: true });
            self.settle();
            return;
        }
        if self.chance(self.weather.session) {
            self.cluster.expire_sessions();
        }
        let hold = took < self.core.settings.wire_wait;
        let Some(answer) = self.cluster.fetch(&order, hold) else {
            let due = sent + self.core.settings.wire_wait;
            self.fetchers.insert(node, Fetcher::Waiting { order, sent, due });
            return;
        };
        self.deliver(node, &order, answer, took);
    }

    pub fn deliver(&mut self, node: i32, order: &FetchOrder, answer: FetchAnswer, took: Duration) {
        let bytes: usize = answer.partitions.iter().map(|part| part.records.len()).sum::<usize>() + 50;
        let works = self.core.handle_answer(self.now, order, answer, bytes, took);
        self.unchecked.entry(node).or_default().extend(works);
        self.fetchers.insert(node, Fetcher::Idle { wake: None, rung: true });
        self.settle();
    }

    /// What the last answer of `node` holds is checked.
    pub fn check(&mut self, node: i32) {
        for work in self.unchecked.remove(&node).unwrap_or_default() {
            let mut checked = check(work, &self.core.settings);
            if self.bug == Some(Bug::SkipBatch) && self.chance(20) {
                checked.places.pop();
            }
            if self.bug == Some(Bug::StaleBuffer)
                && let Some(partition) = self.core.get_mut(checked.id)
                && partition.ticket != checked.ticket
            {
                checked.ticket = partition.ticket;
                let (seq, answer) = (checked.seq, checked.answer);
                let kind = Kind::Reserved;
                partition.queue.push_back(Slot { seq, answer, bytes: 0, inflated: 0, end: 0, kind });
            }
            if self.bug == Some(Bug::LeakCharge) && self.chance(20) {
                self.core.budget.charge(u64::MAX, 10, 10);
            }
            self.core.fill(self.now, checked);
            self.settle();
        }
    }

    pub fn unchecked_nodes(&self) -> Vec<i32> {
        self.unchecked.iter().filter(|(_, works)| !works.is_empty()).map(|(node, _)| *node).collect()
    }

    /// The inflater takes what it is offered.
    pub fn take_jobs(&mut self) {
        while self.inflate {
            match self.core.poll_inflate() {
                Some(job) => self.jobs.push(job),
                None => self.inflate = false,
            }
            self.settle();
        }
    }

    pub fn finish_job(&mut self, at: usize) {
        let job = self.jobs.swap_remove(at);
        let result = job.batch.open(&self.core.settings.limits, job.from);
        self.core.handle_inflated(&job, result);
        // The inflater looks again after each job, as after a bell.
        self.inflate = true;
        self.settle();
    }

    fn answer_lookup(&mut self, at: usize) {
        let (_, order) = self.lookups.remove(at);
        match order {
            LookupOrder::Offsets { node, questions, asks } => {
                if !self.cluster.nodes.contains(&node) || self.chance(self.weather.lookup) {
                    let error = Error::new(ErrorKind::Disconnected, "list offsets");
                    self.core.handle_lookup_failure(self.now, &questions, &error);
                } else {
                    for (question, ask) in questions.iter().zip(&asks) {
                        let found = self.cluster.find(node, ask, self.core.settings.committed_only);
                        let key = (question.topic, question.partition);
                        let was = self.core.partition(&key.0, key.1).and_then(|one| one.consumed);
                        let known = found.ok().flatten().map(|found| found.offset);
                        self.core.handle_found(self.now, question, found);
                        let fetch = self.core.partition(&key.0, key.1).and_then(|one| one.fetch);
                        let from = self.cluster.refused.get(&key).copied();
                        if let (Some(_), Some(to), Some(from)) = (was, known, from)
                            && fetch.is_some_and(|fetch| fetch.offset == to)
                        {
                            self.jumps.push((key, from, to));
                        }
                    }
                }
            }
            LookupOrder::Committed { questions } => {
                for question in &questions {
                    self.core.handle_committed(self.now, question, None);
                }
            }
        }
        self.settle();
    }

    /// What can happen now, besides the caller.
    pub fn due(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let refresh = self.refresh_at.is_some_and(|at| at <= self.now);
        if self.supervisor_due() || refresh {
            events.push(Event::Supervise);
        }
        for (node, fetcher) in &self.fetchers {
            match fetcher {
                Fetcher::Idle { wake, rung } if *rung || wake.is_some_and(|at| at <= self.now) => {
                    events.push(Event::Ask(*node));
                }
                Fetcher::Waiting { due, .. } if *due <= self.now => events.push(Event::Receive(*node)),
                _ => {}
            }
        }
        events.extend(self.unchecked_nodes().into_iter().map(Event::Check));
        if self.inflate {
            events.push(Event::Inflate);
        }
        events.extend((0..self.jobs.len()).map(Event::Job));
        events.extend(
            self.lookups
                .iter()
                .enumerate()
                .filter(|(_, (at, _))| *at <= self.now)
                .map(|(at, _)| Event::Found(at)),
        );
        events
    }

    pub fn run(&mut self, event: Event) {
        match event {
            Event::Supervise => self.supervise(),
            Event::Ask(node) => self.ask(node),
            Event::Receive(node) => self.receive(node),
            Event::Check(node) => self.check(node),
            Event::Inflate => self.take_jobs(),
            Event::Job(at) => self.finish_job(at),
            Event::Found(at) => self.answer_lookup(at),
        }
    }

    /// When something happens next, if nothing can now.
    pub fn next_at(&self) -> Option<Instant> {
        let fetchers = self.fetchers.values().filter_map(|fetcher| match fetcher {
            Fetcher::Idle { wake, .. } => *wake,
            Fetcher::Waiting { due, .. } => Some(*due),
        });
        let lookups = self.lookups.iter().map(|(at, _)| *at);
        fetchers
            .chain(lookups)
            .chain(self.refresh_at)
            .chain(self.core.next_supervision_at())
            .chain(self.core.next_fault_at().filter(|at| *at > self.now))
            .min()
    }

    /// Lets everything happen that happens within `span`; the caller polls nothing.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..1_000_000 {
            let mut events = self.due();
            if let Some(event) = events.pop() {
                self.run(event);
                continue;
            }
            match self.next_at() {
                Some(at) if at <= end => self.now = at.max(self.now),
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("it spins: {} fetches", self.fetches);
    }

    pub fn take(&mut self, most: usize) -> Taken {
        let taken = self.core.take(self.now, most);
        self.settle();
        taken
    }

    /// As a poll does: what is there, else what comes within its wait.
    pub fn poll(&mut self, most: usize) -> Records {
        let end = self.now + Duration::from_millis(500);
        loop {
            let taken = self.take(most);
            if let Some(error) = taken.error {
                self.errors.push(error);
                return Records::default();
            }
            if !taken.slices.is_empty() || taken.moved || self.now >= end {
                return Records::from_slices(taken.slices);
            }
            self.pass(Duration::from_millis(5));
        }
    }

    pub fn position(&self, key: Key) -> Option<i64> {
        Some(self.core.partition(&key.0, key.1)?.position()?.offset)
    }

    /// Refuses a partition with this code until told otherwise.
    pub fn refuse(&mut self, key: Key, code: Option<ErrorCode>) {
        match code {
            Some(code) => self.cluster.refusals.insert(key, code),
            None => self.cluster.refusals.remove(&key),
        };
        self.touch();
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Supervise,
    Ask(i32),
    Receive(i32),
    Check(i32),
    Inflate,
    Job(usize),
    Found(usize),
}
