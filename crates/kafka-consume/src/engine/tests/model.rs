//! Random schedules of everything at once against the oracle: what the caller may do, what brokers and networks
//! do, and the order in which tasks get their turn. A failing seed is printed; `ENGINE_SEED=n` replays it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kafka_meta::{ErrorCode, TopicName};
use kafka_read::batch::Codec;
use kafka_read::{IntoIter, Records};

use super::broker::{Damage, Key};
use super::oracle::Oracle;
use super::rig::{Bug, Rig, Weather, settings};
use crate::config::{OffsetReset, Position};
use crate::position::{Lease, Pos, State};

const SCHEDULES: u64 = 2_000;
const STEPS: u32 = 250;

struct Lent {
    lease: Arc<Lease>,
    records: IntoIter,
    key: Key,
    at: i64,
    end: Pos,
}

struct Model {
    rig: Rig,
    oracle: Oracle,
    keys: Vec<Key>,
    hand: Option<Records>,
    lent: Option<Lent>,
    rough: bool,
}

impl Model {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut settings = settings();
        settings.committed_only = random.u8(..4) > 0;
        settings.budget = [6_000, 40_000, 1 << 20][random.usize(..3)];
        settings.partition_max_bytes = [300, 2_000, 30_000][random.usize(..3)];
        settings.max_bytes = [1_000, 8_000, 8 << 20][random.usize(..3)];
        settings.reset =
            [OffsetReset::Earliest, OffsetReset::Latest, OffsetReset::None][random.usize(..3)].clone();
        settings.replica_lease = Duration::from_secs(random.u64(1..20));
        if random.bool() {
            settings.rack = "r".to_owned();
        }
        let mut rig = Rig::new(settings, random.u64(..));
        rig.bug = bug;
        let keys: Vec<Key> =
            (0..random.i32(1..5)).map(|n| (TopicName::new(&format!("model-{n}")), 0)).collect();
        for key in &keys {
            rig.create(*key, random.i32(1..4));
        }
        let rough = random.bool();
        rig.weather = match random.u8(..3) {
            0 => Weather::default(),
            1 => Weather { lose: 30, session: 30, slow: 100, lookup: 100 },
            _ => Weather { lose: 150, session: 100, slow: 500, lookup: 300 },
        };
        Model { rig, oracle: Oracle::default(), keys, hand: None, lent: None, rough }
    }

    fn key(&mut self) -> Key {
        self.keys[self.rig.random.usize(..self.keys.len())]
    }

    fn step(&mut self) {
        match self.rig.random.u32(..100) {
            0..55 => self.background(),
            55..60 => {
                let at = self.rig.next_at();
                let until = self.rig.now + Duration::from_millis(self.rig.random.u64(..300));
                self.rig.now = at.map_or(until, |at| at.min(until)).max(self.rig.now);
            }
            60..75 => self.read(),
            75..81 => self.command(),
            _ => self.world(),
        }
        self.oracle.observe(&self.rig);
        let mut reserved = 0;
        for fetcher in self.rig.fetchers.values() {
            if let super::rig::Fetcher::Waiting { order, .. } = fetcher {
                reserved += order.reserved;
            }
        }
        assert_eq!(self.rig.core.budget.reserved(), reserved, "room is set aside for nobody");
    }

    fn background(&mut self) {
        let events = self.rig.due();
        if events.is_empty() {
            self.rig.now = self.rig.next_at().unwrap_or(self.rig.now).max(self.rig.now);
            return;
        }
        let event = events[self.rig.random.usize(..events.len())];
        self.rig.run(event);
    }

    fn read(&mut self) {
        if self.lent.is_some() {
            return self.stream();
        }
        if self.rig.chance(150) {
            return self.lend();
        }
        let most = [1, 3, 10, 500][self.rig.random.usize(..4)];
        let taken = self.rig.take(most);
        let records = Records::from_slices(taken.slices);
        assert!(records.len() <= most);
        self.oracle.handed_out(&self.rig, &records);
        if self.rig.bug == Some(Bug::TwiceHandedOut) && self.rig.chance(50) {
            self.oracle.handed_out(&self.rig, &records);
        }
        self.hand = Some(records);
        self.oracle.observe(&self.rig);
        // Other things may happen before the caller gives some of it back.
        if self.rig.chance(300) {
            for _ in 0..self.rig.random.u32(..4) {
                self.background();
                self.oracle.observe(&self.rig);
            }
            if self.rig.chance(300) {
                self.command();
                self.oracle.observe(&self.rig);
            }
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        let Some(mut records) = self.hand.take() else { return };
        if records.is_empty() {
            return;
        }
        let rest = if self.rig.random.bool() {
            let mut iterator = records.into_iter();
            for _ in 0..self.rig.random.usize(..iterator.len()) {
                iterator.next();
            }
            iterator.rest()
        } else {
            records.split_off(self.rig.random.usize(..records.len()))
        };
        let mut firsts: Vec<(Key, u64, i64)> = Vec::new();
        for slice in rest.clone().into_slices() {
            let key = (slice.topic, slice.partition);
            if !firsts.iter().any(|(other, ..)| *other == key) {
                firsts.push((key, slice.ticket, slice.set.first_offset().unwrap()));
            }
        }
        self.rig.core.put_back(rest.into_slices());
        self.rig.settle();
        for (key, ticket, first) in firsts {
            let Some(one) = self.rig.core.partition(&key.0, key.1) else { continue };
            if one.ticket == ticket {
                assert_eq!(one.position().map(|pos| pos.offset), Some(first), "{key:?}: put back and lost");
                self.oracle.given_back(key, first);
            }
        }
    }

    fn lend(&mut self) {
        self.hand = None;
        let (mut taken, lease) = self.rig.core.take_leased(self.rig.now);
        self.rig.settle();
        self.oracle.observe(&self.rig);
        let (Some(slice), Some(lease)) = (taken.slices.pop(), lease) else { return };
        let key = (slice.topic, slice.partition);
        let end = Pos { offset: slice.next, epoch: slice.next_epoch };
        let at = lease.offset();
        let records = Records::from_slices(vec![slice]).into_iter();
        self.lent = Some(Lent { lease, records, key, at, end });
    }

    fn stream(&mut self) {
        let Some(mut lent) = self.lent.take() else { return };
        if self.rig.chance(700)
            && let Some(record) = lent.records.next()
        {
            let next = if lent.records.len() == 0 { lent.end.offset } else { record.offset + 1 };
            if lent.lease.advance(lent.at, next) {
                lent.at = next;
                self.oracle.one(&self.rig, lent.key, record.offset, &record.value.unwrap());
                self.lent = Some(lent);
                return;
            }
        }
        self.finish(lent);
    }

    fn finish(&mut self, lent: Lent) {
        let rest = lent.records.rest().into_slices();
        self.rig.core.end_lease(lent.key.0, lent.key.1, &lent.lease, lent.end, rest);
        self.rig.settle();
    }

    fn command(&mut self) {
        let key = self.key();
        let (topic, index) = key;
        let now = self.rig.now;
        let log = &self.rig.cluster.logs[&key];
        let (start, end) = (log.start, log.end);
        let assigned = self.rig.core.partition(&topic, index).is_some();
        let position = match self.rig.random.u8(..4) {
            0 => Position::Latest,
            1 => Position::Offset(self.rig.random.i64(start..=end)),
            _ => Position::Earliest,
        };
        match self.rig.random.u8(..10) {
            0 | 1 if assigned => {
                // Now and then outside the log.
                let offset = (self.rig.random.i64(start - 2..=end + 2)).max(0);
                self.oracle.restart(key);
                self.rig.core.seek(&topic, index, offset).unwrap();
                assert_eq!(self.rig.position(key), Some(offset));
            }
            2 | 3 => self.rig.core.pause(&topic, index),
            4..7 => self.rig.core.resume(&topic, index),
            7 => {
                self.oracle.restart(key);
                self.rig.core.unassign([key]);
            }
            8 if self.rig.chance(300) => {
                for key in &self.keys {
                    self.oracle.restart(*key);
                }
                let all = self.keys.iter().map(|key| (*key, position.clone())).collect();
                self.rig.core.assign(now, all);
            }
            _ if !assigned => {
                self.oracle.restart(key);
                self.rig.core.assign_more(now, vec![(key, position)]);
            }
            _ => {}
        }
        self.rig.settle();
    }

    fn world(&mut self) {
        let key = self.key();
        let node = self.rig.random.i32(1..4);
        let rough = self.rough;
        let mut stamp = self.rig.stamp;
        let random = &mut self.rig.random;
        let cluster = &mut self.rig.cluster;
        let log = cluster.logs.get_mut(&key).unwrap();
        let codec = if random.u8(..3) == 0 { Codec::Lz4 } else { Codec::None };
        let size = [10, 100, 1_000][random.usize(..3)];
        match random.u8(..40) {
            0..14 => {
                let mut at = 0;
                let mut deltas = Vec::new();
                for _ in 0..random.u32(1..12) {
                    deltas.push(at);
                    at += if random.u8(..6) == 0 { 3 } else { 1 };
                }
                log.append(&mut stamp, &deltas, size, codec, None);
            }
            14..18 => {
                let producer = log.open.map_or_else(|| random.i64(1..4), |(producer, _)| producer);
                log.append(&mut stamp, &[0, 1], size, codec, Some(producer));
            }
            18..21 => log.decide(random.bool()),
            21 => log.hole(random.i64(1..6)),
            22 if log.batches.last().is_some_and(|batch| batch.producer.is_none()) => {
                let damage = [Damage::Crc, Damage::Frame, Damage::Magic][random.usize(..3)];
                let at = log.batches.len() - 1;
                // What was fetched before was sound.
                let fetched = self.rig.core.partition(&key.0, key.1).and_then(|one| one.fetch);
                if fetched.is_none_or(|fetch| fetch.offset <= log.batches[at].base) {
                    log.damage(at, damage);
                }
            }
            23..25 => log.lead(node),
            25 if rough => {
                let to =
                    log.batches.get(random.usize(..log.batches.len().max(1))).map_or(0, |batch| batch.base);
                log.truncate(to, node);
                let to = log.end;
                self.oracle.truncated(&self.rig, key, to);
            }
            26 => log.delete_before(random.i64(log.start..=log.end)),
            27 if rough && random.u8(..4) == 0 => {
                let mut anew =
                    super::broker::Log::new(uuid::Uuid::from_u128(random.u128(1..)), node, &[node]);
                anew.history = std::mem::take(&mut log.history);
                *log = anew;
                self.oracle.replaced(&self.rig, key);
            }
            28 => {
                if cluster.nodes.contains(&node) && cluster.nodes.len() > 1 {
                    cluster.nodes.retain(|other| *other != node);
                } else if !cluster.nodes.contains(&node) {
                    cluster.nodes.push(node);
                }
            }
            29 => cluster.nodes = vec![1, 2, 3],
            30 => {
                let code = [
                    ErrorCode::NOT_LEADER_OR_FOLLOWER,
                    ErrorCode::UNKNOWN_SERVER_ERROR,
                    ErrorCode::TOPIC_AUTHORIZATION_FAILED,
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                ][random.usize(..4)];
                cluster.refusals.insert(key, code);
            }
            31 | 32 => cluster.refusals.clear(),
            33 => cluster.replica = random.bool().then_some(node),
            34 => cluster.sessionless = random.bool(),
            _ => {}
        }
        self.rig.stamp = stamp;
        self.rig.touch();
    }

    /// Everything heals; everything must arrive.
    fn finale(&mut self) {
        if let Some(lent) = self.lent.take() {
            self.finish(lent);
        }
        self.hand = None;
        self.rig.weather = Weather::default();
        self.rig.cluster.nodes = vec![1, 2, 3];
        self.rig.cluster.refusals.clear();
        self.rig.cluster.replica = None;
        self.rig.cluster.sessionless = false;
        for log in self.rig.cluster.logs.values_mut() {
            log.decide(true);
        }
        self.rig.core.effects.refresh = true;
        self.rig.settle();
        self.rig.touch();
        for (topic, index) in self.keys.clone() {
            self.rig.core.resume(&topic, index);
            self.rig.settle();
        }
        let begun = self.rig.now;
        while !self.is_through() {
            // Not by the rig's poll: a life that ends inside it would go unseen.
            self.rig.pass(Duration::from_millis(20));
            self.oracle.observe(&self.rig);
            let records = Records::from_slices(self.rig.take(500).slices);
            self.oracle.handed_out(&self.rig, &records);
            self.oracle.observe(&self.rig);
            for key in self.keys.clone() {
                let start = self.rig.cluster.logs[&key].start;
                let stopped = |one: &crate::position::Partition| matches!(one.state, State::Stopped);
                let told = |one: &crate::position::Partition| stopped(one) && one.queue.is_empty();
                if self.rig.core.partition(&key.0, key.1).is_some_and(told) {
                    self.oracle.restart(key);
                    self.rig.core.seek(&key.0, key.1, start).unwrap();
                    self.rig.settle();
                    self.oracle.observe(&self.rig);
                }
            }
            assert!(self.rig.now - begun < Duration::from_secs(120), "it stands still: {}", self.state());
        }
        assert_eq!(self.rig.core.budget.charged(), 0, "a charge is left over: {}", self.state());
        assert_eq!(self.rig.core.inflated, 0, "inflated bytes are left over");
        let before = self.rig.fetches;
        self.rig.pass(Duration::from_secs(10));
        let idle = self.rig.fetches - before;
        assert!(idle <= 3 * 21, "{idle} fetches in ten idle seconds");
    }

    fn is_through(&self) -> bool {
        let committed_only = self.rig.core.settings.committed_only;
        self.keys.iter().all(|key| {
            let end = self.rig.cluster.logs[key].end_for(committed_only);
            let Some(one) = self.rig.core.partition(&key.0, key.1) else { return true };
            one.queue.is_empty() && self.rig.position(*key) == Some(end)
        })
    }

    fn state(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        self.rig.core.visit(|one| {
            let log = &self.rig.cluster.logs[&(one.topic, one.index)];
            let _ = write!(
                text,
                "\n{} {:?} consumed {:?} fetch {:?} leader {:?} full {} queue {:?} log {}..{} by {} fault {:?}",
                one.topic,
                one.state,
                one.position(),
                one.fetch,
                one.leader,
                one.full,
                one.queue.slots,
                log.start,
                log.end,
                log.leader,
                one.fault,
            );
        });
        let _ =
            write!(text, "\nfree {} charged {}", self.rig.core.budget.free(), self.rig.core.budget.charged());
        for (node, fetcher) in &self.rig.fetchers {
            let _ = write!(text, "\nnode {node} {fetcher:?}");
        }
        text
    }
}

/// One schedule; how many records it has handed out.
fn schedule(seed: u64, bug: Option<Bug>) -> u64 {
    let mut model = Model::new(seed, bug);
    let all = model.keys.iter().map(|key| (*key, Position::Earliest)).collect();
    model.rig.core.assign(model.rig.now, all);
    model.rig.settle();
    for _ in 0..STEPS {
        model.step();
    }
    model.finale();
    model.oracle.records
}

#[test]
fn every_schedule_hands_out_each_record_once_and_in_order() {
    if let Ok(seed) = std::env::var("ENGINE_SEED") {
        schedule(seed.parse().unwrap(), None);
        return;
    }
    let base = std::env::var("ENGINE_BASE").map_or(0, |base| base.parse().unwrap());
    let schedules = std::env::var("ENGINE_SCHEDULES").map_or(SCHEDULES, |count| count.parse().unwrap());
    let mut records = 0;
    let mut failures = Vec::new();
    for seed in base..base + schedules {
        match catch_unwind(AssertUnwindSafe(|| schedule(seed, None))) {
            Ok(handed_out) => records += handed_out,
            Err(reason) => {
                let text = reason.downcast_ref::<String>().cloned();
                failures.push(format!("ENGINE_SEED={seed}: {}", text.unwrap_or_default()));
            }
        }
    }
    let some: Vec<&String> = failures.iter().take(8).collect();
    assert!(failures.is_empty(), "{} of {schedules} schedules fail:\n{some:#?}", failures.len());
    assert!(records > 10 * schedules, "only {records} records were handed out");
}

/// How many of some schedules notice the bug.
fn noticed(bug: Bug) -> usize {
    (0..150).filter(|seed| catch_unwind(AssertUnwindSafe(|| schedule(*seed, Some(bug)))).is_err()).count()
}

#[test]
fn a_batch_left_out_is_noticed() {
    assert!(noticed(Bug::SkipBatch) > 0);
}

#[test]
fn a_buffer_delivered_under_a_later_ticket_is_noticed() {
    assert!(noticed(Bug::StaleBuffer) > 0);
}

#[test]
fn a_charge_never_given_back_is_noticed() {
    assert!(noticed(Bug::LeakCharge) > 0);
}

#[test]
fn fetchers_that_do_not_hear_their_bell_are_noticed() {
    assert!(noticed(Bug::DeafFetchers) > 0);
}

#[test]
fn a_commit_from_the_fetch_position_is_noticed() {
    assert!(noticed(Bug::CommitFetchPosition) > 0);
}

#[test]
fn records_handed_out_twice_are_noticed() {
    assert!(noticed(Bug::TwiceHandedOut) > 0);
}
