//! Random lives of groups, held to the rules of [`super::book`]: joins, leaves, crashes, slow callers, slow
//! callbacks, dropped polls, lost and late answers, refusals, fences, moves and halts of the coordinator, topics
//! that grow; in every third group the members are static, and who went or crashed comes back under its old name.
//! In the end the group has to settle, everything has to be read, and what is committed has to be all of it.
//!
//! `GROUPS_SCHEDULES` is how many a run tries of each kind, `GROUPS_SEED` replays one. A seed decides the
//! schedule and everything the member draws; the order in which tasks of one instant run is the runtime's.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use kafka_meta::Cluster;
use kafka_meta::wire::protocol::messages::ApiKey;
use testkit::embedded::Embedded;

use super::actor::{Actor, Kind, start_as};
use super::book::{Book, GROUP, Key};
use crate::ConsumerConfig;
use crate::member::sabotage::{self, Sabotage};

struct Life {
    rng: Rng,
    kind: Kind,
    kafka: Embedded,
    book: Arc<Mutex<Book>>,
    config: ConsumerConfig,
    topics: Vec<String>,
    /// Shared with the onlooker: topics grow.
    all: Arc<Mutex<BTreeSet<Key>>>,
    actors: Vec<Actor>,
    /// Whether members are static; who is on its way out, and the names nobody has now.
    fixed: bool,
    leaving: Vec<Actor>,
    away: Vec<String>,
    started: usize,
    frozen: Option<i32>,
}

const NODES: i32 = 2;

impl Life {
    fn new(seed: u64, kind: Kind) -> Life {
        let mut rng = Rng::with_seed(seed);
        let kafka = Embedded::start(NODES);
        kafka.set_group_timing(Duration::from_secs(6), Duration::from_secs(1));
        if rng.bool() {
            kafka.set_assignment_interval(Duration::from_secs(1));
        }
        if rng.bool() {
            kafka.set_initial_rebalance_delay(Duration::from_millis(rng.u64(100..3000)));
        }
        let mut all = BTreeSet::new();
        let topics: Vec<String> = (0..rng.usize(1..=2)).map(|n| format!("t{n}")).collect();
        for topic in &topics {
            let partitions = rng.i32(1..=4);
            kafka.create_topic(topic, partitions);
            all.extend((0..partitions).map(|partition| (topic.clone(), partition)));
        }
        let config = ConsumerConfig::new()
            .max_wait_ms(500)
            .max_poll_records(rng.usize(1..20))
            .auto_commit_interval_ms(rng.u32(300..4000))
            .with_session_timeout_ms(6_000)
            .with_heartbeat_interval_ms(1_000)
            .with_rebalance_timeout_ms(rng.i32(6_000..20_000));
        let book = Arc::new(Mutex::new(Book::new()));
        let fixed = rng.u32(0..3) == 0;
        book.lock().unwrap().old_generations = fixed && kind != Kind::Consumer;
        Life {
            rng,
            kind,
            kafka,
            book,
            config,
            topics,
            all: Arc::new(Mutex::new(all)),
            actors: Vec::new(),
            fixed,
            leaving: Vec::new(),
            away: Vec::new(),
            started: 0,
            frozen: None,
        }
    }

    fn all(&self) -> BTreeSet<Key> {
        self.all.lock().unwrap().clone()
    }

    /// One more partition of a topic.
    fn grow(&mut self) {
        let topic = self.topics[self.rng.usize(0..self.topics.len())].clone();
        let count = i32::try_from(self.all().iter().filter(|(name, _)| *name == topic).count()).unwrap();
        if count < 6 {
            self.note(format!("{topic} grows to {}", count + 1));
            self.kafka.add_partitions(&topic, count + 1);
            self.all.lock().unwrap().insert((topic, count));
        }
    }

    /// A name for a static member: one that is free again, or a new one.
    fn name(&mut self) -> Option<String> {
        if !self.fixed {
            return None;
        }
        let (gone, leaving) = self.leaving.drain(..).partition(|actor: &Actor| actor.task.is_finished());
        self.leaving = leaving;
        let gone: Vec<Actor> = gone;
        self.away.extend(gone.into_iter().filter_map(|actor| actor.instance));
        if self.away.is_empty() || self.rng.u32(0..4) == 0 {
            return Some(format!("static-{}", self.started));
        }
        let at = self.rng.usize(0..self.away.len());
        Some(self.away.swap_remove(at))
    }

    fn note(&self, text: String) {
        self.book.lock().unwrap().note(text);
    }

    fn write(&mut self) {
        for (topic, partition) in &self.all() {
            let count = self.rng.usize(0..15);
            if count > 0 {
                self.kafka.append_records(topic, *partition, (0..count).map(|n| ("k", n.to_string())));
            }
        }
    }

    async fn join(&mut self) {
        let cluster = self.kafka.config().with_metadata_max_age(Duration::from_secs(30));
        let cluster = Cluster::connect_with(cluster).await.unwrap();
        let number = self.started;
        let name = self.name();
        self.started += 1;
        self.note(format!("{number} starts as {name:?}"));
        let (config, topics) = (self.config.clone(), &self.topics);
        let actor = start_as(number, name, self.kind, &self.kafka, cluster, config, topics, &self.book);
        self.actors.push(actor);
    }

    fn any(&mut self) -> Option<&Actor> {
        (!self.actors.is_empty()).then(|| self.rng.usize(0..self.actors.len())).map(|at| &self.actors[at])
    }

    fn take_any(&mut self) -> Option<Actor> {
        (!self.actors.is_empty())
            .then(|| self.rng.usize(0..self.actors.len()))
            .map(|at| self.actors.remove(at))
    }

    fn fault(&mut self) {
        let apis: &[ApiKey] = match self.kind {
            Kind::Consumer => &[
                ApiKey::ConsumerGroupHeartbeat,
                ApiKey::ConsumerGroupHeartbeat,
                ApiKey::OffsetCommit,
                ApiKey::OffsetFetch,
                ApiKey::FindCoordinator,
                ApiKey::Fetch,
            ],
            _ => &[
                ApiKey::JoinGroup,
                ApiKey::SyncGroup,
                ApiKey::Heartbeat,
                ApiKey::OffsetCommit,
                ApiKey::OffsetFetch,
                ApiKey::LeaveGroup,
                ApiKey::Fetch,
            ],
        };
        let api = apis[self.rng.usize(0..apis.len())];
        let times = self.rng.u64(1..=3);
        let delay = Duration::from_millis(self.rng.u64(50..9_000));
        let fault = self.kafka.fault(api).skip(self.rng.u64(0..3)).times(times);
        let group = matches!(
            api,
            ApiKey::ConsumerGroupHeartbeat
                | ApiKey::JoinGroup
                | ApiKey::SyncGroup
                | ApiKey::Heartbeat
                | ApiKey::OffsetCommit
                | ApiKey::OffsetFetch
        );
        let what = match self.rng.u32(0..if group { 5 } else { 4 }) {
            0 => {
                fault.drop_connection_before();
                "is cut off before"
            }
            1 => {
                fault.drop_connection_after();
                "is cut off after"
            }
            2 => {
                fault.delay(delay);
                "comes late"
            }
            3 => {
                fault.delay_answer(delay);
                "is answered late"
            }
            _ => {
                let codes = [14, 15, 16];
                fault.error(codes[self.rng.usize(0..codes.len())]);
                "is refused"
            }
        };
        self.note(format!("{api:?} {what}, {times} times, {delay:?}"));
    }

    async fn step(&mut self) {
        match self.rng.u32(0..18) {
            0..=2 if self.actors.len() < 4 => self.join().await,
            3 => {
                if let Some(actor) = self.take_any() {
                    let drops = self.rng.u64(0..4);
                    self.note(format!("{} is to leave, {drops} dropped", actor.number));
                    actor.orders.drops.store(drops, Ordering::Relaxed);
                    actor.orders.patience.store(self.rng.u64(0..100), Ordering::Relaxed);
                    actor.orders.leave.store(true, Ordering::Relaxed);
                    self.leaving.push(actor);
                }
            }
            4 => {
                if let Some(actor) = self.take_any() {
                    actor.task.abort();
                    let _ = actor.task.await;
                    self.away.extend(actor.instance);
                    self.book.lock().unwrap().vanished(actor.number);
                }
            }
            5 | 6 => {
                let pause = self.rng.u64(100..25_000);
                if let Some(actor) = self.any() {
                    actor.orders.pause.store(pause, Ordering::Relaxed);
                    let text = format!("{} pauses {pause} ms", actor.number);
                    self.note(text);
                }
            }
            7 | 8 => {
                let (drops, patience) = (self.rng.u64(1..60), self.rng.u64(0..120));
                if let Some(actor) = self.any() {
                    actor.orders.drops.store(drops, Ordering::Relaxed);
                    actor.orders.patience.store(patience, Ordering::Relaxed);
                    let text = format!("{} drops {drops} polls after {patience} ms", actor.number);
                    self.note(text);
                }
            }
            9 => {
                let slow = if self.rng.bool() { self.rng.u64(1..300) } else { self.rng.u64(300..9_000) };
                if let Some(actor) = self.any() {
                    actor.orders.slow.store(slow, Ordering::Relaxed);
                    let text = format!("{} has slow callbacks: {slow} ms", actor.number);
                    self.note(text);
                }
            }
            10 => {
                let members = self.kafka.group_members(GROUP);
                if !members.is_empty() {
                    let id = members[self.rng.usize(0..members.len())].id.clone();
                    self.note(format!("the coordinator forgets {id}"));
                    self.kafka.remove_member(GROUP, &id);
                }
            }
            11 => {
                let node = self.rng.i32(1..=NODES);
                self.note(format!("the coordinator moves to {node}"));
                self.kafka.move_coordinator(GROUP, node);
            }
            12 => match self.frozen.take() {
                Some(node) => {
                    self.kafka.thaw_node(node);
                }
                None => {
                    let node = self.rng.i32(1..=NODES);
                    self.note(format!("node {node} halts"));
                    self.kafka.freeze_node(node);
                    self.frozen = Some(node);
                }
            },
            13 => self.write(),
            14 => self.grow(),
            _ => self.fault(),
        }
    }

    /// Everything is left alone from now on.
    fn calm_down(&mut self) {
        self.note("calm".to_owned());
        self.kafka.clear_faults();
        if let Some(node) = self.frozen.take() {
            self.kafka.thaw_node(node);
        }
        for actor in &self.actors {
            actor.orders.slow.store(0, Ordering::Relaxed);
            actor.orders.drops.store(0, Ordering::Relaxed);
        }
    }

    fn is_settled(&self) -> Result<(), String> {
        let book = self.book.lock().unwrap();
        let all = self.all();
        if book.claimed() != all {
            return Err(format!("owned is only {:?} of {all:?}", book.claimed()));
        }
        let members = self.kafka.group_members(GROUP).len();
        if members != self.actors.len() {
            return Err(format!("the coordinator has {members} of {} members", self.actors.len()));
        }
        if all.len() >= self.actors.len() && self.topics.len() == 1 {
            for actor in &self.actors {
                if book.claims_of(actor.number) == 0 {
                    return Err(format!("{} has nothing", actor.number));
                }
            }
        }
        self.is_read(&book)
    }

    fn is_read(&self, book: &Book) -> Result<(), String> {
        for key in &self.all() {
            let (end, read) = (self.kafka.high_watermark(&key.0, key.1), book.prefix(key));
            if read != end {
                return Err(format!("{key:?} is read below {read} of {end}"));
            }
        }
        Ok(())
    }

    async fn run(&mut self) -> Result<(), String> {
        self.write();
        self.join().await;
        let steps = self.rng.u32(5..25);
        for _ in 0..steps {
            tokio::time::sleep(Duration::from_millis(self.rng.u64(0..2_500))).await;
            self.step().await;
            self.trouble()?;
        }
        self.calm_down();
        if self.actors.is_empty() {
            self.join().await;
        }
        self.write();
        // What is on its way late arrives first.
        tokio::time::sleep(Duration::from_secs(20)).await;
        let mut last = Ok(());
        for _ in 0..1200 {
            tokio::time::sleep(Duration::from_millis(250)).await;
            self.trouble()?;
            last = self.is_settled();
            if last.is_ok() {
                break;
            }
        }
        last.map_err(|why| format!("the group does not settle: {why}"))?;
        for actor in std::mem::take(&mut self.actors) {
            actor.orders.leave.store(true, Ordering::Relaxed);
            let _ = tokio::time::timeout(Duration::from_secs(60), actor.task)
                .await
                .map_err(|_| format!("{} does not get away", actor.number))?;
        }
        self.trouble()?;
        for key in &self.all() {
            let (end, committed) =
                (self.kafka.high_watermark(&key.0, key.1), self.kafka.committed(GROUP, &key.0, key.1));
            if end > 0 && committed != Some(end) {
                return Err(format!("{key:?} ends at {end} and is committed at {committed:?}"));
            }
        }
        Ok(())
    }

    fn trouble(&self) -> Result<(), String> {
        self.book.lock().unwrap().trouble.first().cloned().map_or(Ok(()), Err)
    }
}

/// One schedule; what went wrong, with the story.
fn live(seed: u64, kind: Kind) -> Result<(), String> {
    fastrand::seed(seed);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut life = Life::new(seed, kind);
        let (kafka, book, all) = (life.kafka.clone(), Arc::clone(&life.book), Arc::clone(&life.all));
        let onlooker = tokio::spawn(async move {
            loop {
                kafka
                    .until(Duration::from_secs(3600), |kafka| {
                        let all = all.lock().unwrap().clone();
                        book.lock().unwrap().check_commits(kafka, &all);
                        false
                    })
                    .await;
            }
        });
        let result = life.run().await;
        onlooker.abort();
        result.map_err(|why| format!("{kind:?}, seed {seed}: {why}\n{}", life.book.lock().unwrap().story()))
    })
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn many(kind: Kind) {
    if let Some(seed) = from_environment("GROUPS_SEED") {
        live(seed, kind).unwrap();
        return;
    }
    let count = from_environment("GROUPS_SCHEDULES").unwrap_or(340);
    let first = from_environment("GROUPS_FIRST").unwrap_or(0);
    for seed in first..first + count {
        if let Err(story) = live(seed, kind) {
            panic!("replay with GROUPS_SEED={seed}\n{story}");
        }
    }
}

#[test]
fn kip_848_groups_live_through_anything() {
    many(Kind::Consumer);
}

#[test]
fn eager_groups_live_through_anything() {
    many(Kind::Eager);
}

#[test]
fn cooperative_groups_live_through_anything() {
    many(Kind::Cooperative);
}

/// Whether a deliberate fault is noticed within a number of schedules.
fn notices(fault: Sabotage, kind: Kind, wanted: &str) {
    notices_from(0, fault, kind, wanted);
}

/// As [`notices`], not far behind a schedule that is known to show it.
fn notices_from(first: u64, fault: Sabotage, kind: Kind, wanted: &str) {
    sabotage::set(Some(fault));
    let story =
        (first..first + 300).find_map(|seed| live(seed, kind).err().filter(|story| story.contains(wanted)));
    sabotage::set(None);
    assert!(story.is_some(), "{fault:?} goes unnoticed");
}

#[test]
fn an_acknowledgement_before_the_revocation_is_noticed() {
    notices(Sabotage::AcknowledgeBeforeRevoke, Kind::Consumer, "both own");
}

#[test]
fn commits_of_what_is_only_fetched_are_noticed() {
    notices(Sabotage::CommitFromBuffer, Kind::Consumer, "processed below");
}

#[test]
fn records_of_partitions_on_their_way_are_noticed() {
    notices(Sabotage::SkipWithholding, Kind::Consumer, "does not own");
}

#[test]
fn a_new_life_that_keeps_the_old_ones_partitions_is_noticed() {
    notices(Sabotage::FollowNewLife, Kind::Consumer, "");
}

#[test]
fn partitions_that_a_returning_leader_overlooks_are_noticed() {
    notices_from(175, Sabotage::TrustWhatWasGiven, Kind::Eager, "does not settle");
}
