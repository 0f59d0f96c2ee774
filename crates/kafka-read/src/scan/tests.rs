//! The core alone, with time as an argument: one fetch per broker, back-pressure, tickets, patience.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_meta::client::{Partition as MetaPartition, Snapshot, Topic};
use kafka_meta::wire::fetch::{EpochEnd, FetchAnswer, FetchedPartition, TopicRef};
use kafka_meta::{Error, ErrorCode, ErrorKind, TopicName};
use uuid::Uuid;

use super::bounds::Bounds;
use super::core::{Core, Output};
use super::partition::What;
use super::plan::FetchOrder;
use super::work::Part;
use super::{Loss, ScanEvent, ScanSpec, TailSpec};
use crate::batch::write::{BatchOptions, BatchWriter};

const ID: Uuid = Uuid::from_u128(7);

/// A core and the time; partition `n` is led by node `n % nodes + 1`.
struct Rig {
    core: Core,
    now: Instant,
    partitions: i32,
}

fn topic(partitions: i32, nodes: i32) -> Topic {
    let partitions = (0..partitions).map(|index| MetaPartition {
        index,
        leader: Some(index % nodes + 1),
        leader_epoch: Some(3),
        replicas: (1..=nodes).collect(),
        isr: (1..=nodes).collect(),
        offline: Vec::new(),
        error: ErrorCode::NONE,
    });
    let name = TopicName::new("t");
    Topic { name, id: ID, internal: false, error: ErrorCode::NONE, partitions: partitions.collect() }
}

/// `count` batches of ten records of `size` bytes each from `base` on.
fn batches(base: i64, count: i64, size: usize) -> Bytes {
    let mut all = Vec::new();
    for batch in 0..count {
        let options =
            BatchOptions { base_offset: base + batch * 10, leader_epoch: 3, ..BatchOptions::default() };
        let mut writer = BatchWriter::new(options);
        for _ in 0..10 {
            writer.push(0, None, Some(&vec![b'x'; size]), &[]).unwrap();
        }
        all.extend_from_slice(&writer.finish().unwrap());
    }
    Bytes::from(all)
}

impl Rig {
    fn new(order: super::Order, partitions: i32, nodes: i32) -> Self {
        let now = Instant::now();
        let mut rig = Rig { core: Core::new(order, None, Duration::from_secs(300)), now, partitions };
        assert!(matches!(rig.poll()[..], [Output::List]));
        rig.snapshot(topic(partitions, nodes), Some((0..partitions).collect()));
        rig
    }

    /// A scan of `partitions` logs of 1,000 records, its bounds known.
    fn scan(spec: ScanSpec, partitions: i32, nodes: i32) -> Self {
        let mut rig = Rig::new(spec.into_order(), partitions, nodes);
        rig.resolve(0, 1_000);
        rig
    }

    fn snapshot(&mut self, topic: Topic, listed: Option<Vec<i32>>) {
        let snapshot = Snapshot::default().with_topic(topic);
        match listed {
            Some(listed) => self.core.handle_listed(Ok(listed), &snapshot, self.now),
            None => self.core.handle_snapshot(self.now, &snapshot),
        }
    }

    fn resolve(&mut self, earliest: i64, latest: i64) {
        for output in self.poll() {
            let Output::Resolve(group) = output else { panic!("{output:?}") };
            let bounds = Bounds { earliest, latest, ..Bounds::default() };
            let found: BTreeMap<i32, Bounds> = group.iter().map(|index| (*index, bounds)).collect();
            self.core.handle_resolved(self.now, &group, Ok(found));
        }
        assert_eq!(i32::try_from(self.core.partitions.len()), Ok(self.partitions));
    }

    fn poll(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some(output) = self.core.poll_output(self.now, 0.5) {
            outputs.push(output);
            assert!(outputs.len() < 1_000, "it never comes to rest: {outputs:?}");
        }
        outputs
    }

    /// What is to be done now: fetches, and parts to be worked on.
    fn split(&mut self) -> (Vec<FetchOrder>, Vec<Part>) {
        let (mut orders, mut parts) = (Vec::new(), Vec::new());
        for output in self.poll() {
            match output {
                Output::Fetch(order) => orders.push(*order),
                Output::Work { part, .. } => parts.push(*part),
                other => panic!("{other:?}"),
            }
        }
        (orders, parts)
    }

    fn fetches(&mut self) -> Vec<FetchOrder> {
        let (orders, parts) = self.split();
        assert!(parts.is_empty());
        orders
    }

    fn answer(&mut self, order: &FetchOrder, answer: impl Fn(i32, i64) -> FetchedPartition, took: Duration) {
        let partitions: Vec<_> = order.wants.iter().map(|want| answer(want.partition, want.offset)).collect();
        let bytes = partitions.iter().map(|part| part.records.len()).sum();
        let answer = FetchAnswer {
            throttle: Duration::ZERO,
            error: ErrorCode::NONE,
            session_id: 0,
            partitions,
            endpoints: Vec::new(),
        };
        self.core.handle_answer(self.now, 0.5, order, answer, (bytes, took));
    }

    fn work(&mut self, mut part: Part) {
        let worked = part.work(&self.core.settings.clone());
        self.core.handle_worked(part, worked);
    }

    /// Works on all there is; the fetches that become possible meanwhile.
    fn settle(&mut self) -> Vec<FetchOrder> {
        let mut all = Vec::new();
        loop {
            let (orders, parts) = self.split();
            all.extend(orders);
            if parts.is_empty() {
                return all;
            }
            parts.into_iter().for_each(|part| self.work(part));
        }
    }

    /// Takes all there is: records, events, errors.
    fn take(&mut self) -> (usize, Vec<ScanEvent>, Vec<Error>) {
        let (mut records, mut events, mut errors) = (0, Vec::new(), Vec::new());
        while let Some(what) = self.core.take() {
            match what {
                What::Piece(piece) => records += piece.into_records().count(),
                What::Event(event) => events.push(event),
                What::Error(error) => errors.push(error),
            }
        }
        (records, events, errors)
    }

    fn later(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }
}

fn part(partition: i32, records: Bytes) -> FetchedPartition {
    FetchedPartition {
        topic: TopicRef::Id(ID),
        partition,
        error: ErrorCode::NONE,
        high_watermark: 1_000,
        last_stable_offset: 1_000,
        log_start_offset: 0,
        aborted: Vec::new(),
        diverging: None,
        current_leader: None,
        preferred_read_replica: None,
        records,
    }
}

fn refused(partition: i32, code: ErrorCode) -> FetchedPartition {
    FetchedPartition { error: code, ..part(partition, Bytes::new()) }
}

const SLOW: Duration = Duration::from_millis(500);

#[test]
fn each_broker_has_one_fetch_and_the_next_leaves_before_the_work() {
    let mut rig = Rig::scan(ScanSpec::new("t"), 6, 3);
    let orders = rig.fetches();
    assert_eq!(orders.iter().map(|order| order.node).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(orders.iter().all(|order| order.wants.len() == 2));
    assert!(rig.fetches().is_empty(), "one in flight each");
    rig.answer(&orders[1], |partition, offset| part(partition, batches(offset, 2, 10)), SLOW);
    let first = rig.core.poll_output(rig.now, 0.5);
    let Some(Output::Fetch(next)) = first else { panic!("{first:?}") };
    assert_eq!((next.node, next.wants.iter().map(|want| want.offset).collect::<Vec<_>>()), (2, vec![20, 20]));
    assert!(matches!(rig.core.poll_output(rig.now, 0.5), Some(Output::Work { .. })));
}

#[test]
fn a_damaged_batch_drops_what_was_fetched_behind_it() {
    let mut rig = Rig::scan(ScanSpec::new("t"), 1, 1);
    let first = rig.fetches().remove(0);
    let mut bad = batches(0, 1, 10).to_vec();
    *bad.last_mut().unwrap() ^= 1;
    rig.answer(&first, |_, _| part(0, Bytes::from(bad.clone())), SLOW);
    let (mut orders, mut parts) = rig.split();
    let behind = orders.remove(0);
    assert_eq!(behind.wants[0].offset, 10);
    // What was asked for behind it arrives first, then the damage is found.
    rig.answer(&behind, |_, _| part(0, batches(10, 1, 10)), SLOW);
    rig.work(parts.remove(0));
    // Asked again under a new ticket; the second time it is handed over, and then what lies behind it.
    let mut orders = rig.settle();
    let mut offsets = Vec::new();
    for _ in 0..4 {
        let order = orders.pop().unwrap();
        offsets.push(order.wants[0].offset);
        let records = if order.wants[0].offset == 0 { Bytes::from(bad.clone()) } else { batches(10, 1, 10) };
        rig.answer(&order, |_, _| part(0, records.clone()), SLOW);
        orders.extend(rig.settle());
    }
    assert_eq!(offsets, [0, 10, 10, 20]);
    let (records, events, _) = rig.take();
    assert_eq!(records, 10);
    let malformed: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            ScanEvent::Malformed { offsets, .. } => Some(offsets.clone()),
            _ => None,
        })
        .collect();
    assert_eq!((malformed.len(), malformed.first()), (1, Some(&(0..10))));
}

#[test]
fn a_slow_caller_holds_fetches_back_and_is_no_trouble() {
    let spec = ScanSpec::new("t").buffer_bytes(20_000).timeout(Duration::from_secs(5));
    let mut rig = Rig::scan(spec, 1, 1);
    let mut orders = rig.fetches();
    // An error first, so that there is something to be impatient about.
    rig.answer(&orders.remove(0), |_, _| refused(0, ErrorCode::NOT_LEADER_OR_FOLLOWER), SLOW);
    rig.later(200);
    let mut fetched = 0;
    for order in rig.fetches() {
        fetched = order.wants[0].offset;
        rig.answer(&order, |_, offset| part(0, batches(offset, 20, 100)), SLOW);
    }
    assert_eq!(fetched, 0);
    assert!(rig.settle().is_empty(), "the buffer is full");
    for _ in 0..20 {
        rig.later(10_000);
        assert!(rig.settle().is_empty());
    }
    rig.core.effects.room = false;
    let (records, _, errors) = rig.take();
    assert_eq!((records, errors.len()), (200, 0));
    assert!(rig.core.effects.room, "the driver is rung");
    assert_eq!(rig.fetches().len(), 1);
}

#[test]
fn a_broker_over_its_share_does_not_take_the_others() {
    let mut rig = Rig::scan(ScanSpec::new("t").buffer_bytes(40_000), 2, 2);
    let orders = rig.fetches();
    let big = &orders[0];
    rig.answer(big, |partition, offset| part(partition, batches(offset, 50, 100)), SLOW);
    assert!(rig.settle().is_empty(), "its share is used up");
    rig.answer(&orders[1], |partition, offset| part(partition, batches(offset, 1, 100)), SLOW);
    let next = rig.settle();
    assert_eq!(next.iter().map(|order| order.node).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_partition_without_a_leader_ends_at_its_time_and_not_before() {
    let mut rig = Rig::scan(ScanSpec::new("t").timeout(Duration::from_secs(9)), 1, 1);
    let mut leaderless = topic(1, 1);
    leaderless.partitions[0].leader = None;
    rig.snapshot(leaderless, None);
    assert!(rig.fetches().is_empty());
    let start = rig.now;
    let mut rounds = 0;
    loop {
        rig.now = rig.core.next_deadline(rig.now).expect("it waits for something");
        assert!(rig.fetches().is_empty());
        rounds += 1;
        let (_, _, errors) = rig.take();
        if let Some(error) = errors.first() {
            assert_eq!(
                (error.kind(), error.partition(), error.offset()),
                (ErrorKind::Timeout, Some(0), Some(0))
            );
            break;
        }
        assert!(std::mem::take(&mut rig.core.effects.refresh) || rounds > 1);
    }
    assert_eq!(rig.now - start, Duration::from_secs(9));
    assert!(rounds < 30, "{rounds} rounds");
    assert!(rig.core.is_over());
}

#[test]
fn a_denied_topic_is_asked_about_again_before_it_is_gone() {
    let mut rig = Rig::scan(ScanSpec::new("t"), 1, 1);
    let mut gone = topic(1, 1);
    gone.error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    gone.partitions.clear();
    rig.snapshot(gone.clone(), None);
    rig.poll();
    rig.later(2_000);
    assert!(rig.poll().iter().any(|output| matches!(output, Output::Confirm)));
    assert!(!rig.core.is_over());
    // It is there after all.
    rig.core.handle_confirmed(rig.now, Some(&Snapshot::default().with_topic(topic(1, 1))));
    rig.later(5_000);
    assert!(!rig.poll().iter().any(|output| matches!(output, Output::Confirm)));
    // It is not.
    rig.snapshot(gone.clone(), None);
    rig.later(2_000);
    rig.poll();
    rig.core.handle_confirmed(rig.now, None);
    assert!(!rig.core.is_over(), "no answer is no denial");
    rig.later(2_000);
    rig.poll();
    rig.core.handle_confirmed(rig.now, Some(&Snapshot::default().with_topic(gone)));
    assert_eq!(rig.take().2[0].kind(), ErrorKind::UnknownTopic);
    assert!(rig.core.is_over());
}

#[test]
fn answers_that_come_early_and_empty_are_not_asked_for_again_at_once() {
    let mut rig = Rig::new(TailSpec::new("t").into_order(), 1, 1);
    rig.resolve(0, 1_000);
    let mut sent = 0;
    let end = rig.now + Duration::from_secs(10);
    while rig.now < end {
        for order in rig.fetches() {
            sent += 1;
            rig.answer(&order, |_, _| part(0, Bytes::new()), Duration::from_millis(1));
        }
        rig.later(1);
    }
    assert!((20..=25).contains(&sent), "{sent} fetches in ten seconds");
}

#[test]
fn the_cut_head_of_a_batch_is_asked_for_alone_and_is_damage_in_the_end() {
    let mut rig = Rig::scan(ScanSpec::new("t"), 2, 1);
    let head = batches(0, 1, 100).slice(..90);
    let mut alone = Vec::new();
    for _ in 0..12 {
        let Some(order) = rig.settle().pop() else { break };
        let only = order.wants.len() == 1;
        alone.push(only.then(|| order.wants[0].partition));
        rig.answer(
            &order,
            |partition, offset| match partition {
                0 if offset == 0 => part(0, head.clone()),
                _ => part(partition, batches(offset, 1, 10)),
            },
            SLOW,
        );
    }
    assert_eq!(alone[..3], [None, None, Some(0)], "{alone:?}");
    let (_, events, _) = rig.take();
    assert!(events.iter().any(|event| matches!(event, ScanEvent::Malformed { partition: 0, .. })));
}

#[test]
fn a_loss_is_told_behind_what_was_read_before_it() {
    let mut rig = Rig::scan(ScanSpec::new("t"), 1, 1);
    let order = rig.fetches().remove(0);
    rig.answer(&order, |_, offset| part(0, batches(offset, 3, 10)), SLOW);
    let (orders, parts) = rig.split();
    rig.answer(&orders[0], |_, _| refused(0, ErrorCode::OFFSET_OUT_OF_RANGE), SLOW);
    assert!(rig.fetches().is_empty(), "nothing is looked up before all is worked on");
    parts.into_iter().for_each(|part| rig.work(part));
    let outputs = rig.poll();
    let [Output::Look { partition: 0, ticket }] = outputs[..] else { panic!("{outputs:?}") };
    let bounds = Bounds { earliest: 500, latest: 1_000, ..Bounds::default() };
    rig.core.handle_looked(rig.now, 0.5, 0, ticket, Ok(bounds));
    assert_eq!(rig.fetches()[0].wants[0].offset, 500);
    let (mut before, mut seen) = (0, false);
    while let Some(what) = rig.core.take() {
        match what {
            What::Piece(piece) if !seen => before += piece.into_records().count(),
            What::Event(ScanEvent::Lost { offsets, position, loss, .. }) => {
                assert_eq!((offsets, position, loss), (30..500, 500, Loss::Deleted));
                seen = true;
            }
            _ => {}
        }
    }
    assert!(seen && before == 30);
}

#[test]
fn a_log_that_parts_is_read_again_from_there() {
    let mut rig = Rig::scan(ScanSpec::new("t"), 1, 1);
    let order = rig.fetches().remove(0);
    rig.answer(&order, |_, offset| part(0, batches(offset, 5, 10)), SLOW);
    let orders = rig.settle();
    assert_eq!((orders[0].wants[0].offset, orders[0].wants[0].last_fetched_epoch), (50, Some(3)));
    let diverging = Some(EpochEnd { epoch: 2, end_offset: 20 });
    rig.answer(&orders[0], |_, _| FetchedPartition { diverging, ..part(0, Bytes::new()) }, SLOW);
    assert!(rig.fetches().is_empty(), "not at once");
    rig.later(200);
    assert_eq!(rig.fetches()[0].wants[0].offset, 20);
    let (records, events, _) = rig.take();
    assert_eq!(records, 50);
    assert!(events.iter().any(|event| matches!(
        event,
        ScanEvent::Lost { offsets, position: 20, loss: Loss::Truncated, .. } if *offsets == (20..50)
    )));
}

#[test]
fn what_cannot_be_resolved_costs_the_partition_it_names() {
    let mut rig = Rig::new(ScanSpec::new("t").into_order(), 3, 1);
    let outputs = rig.poll();
    let [Output::Resolve(group)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(group[..], [0, 1, 2]);
    let denied = Error::new(ErrorKind::Authorization, "look up offsets").with_partition("t", 1);
    rig.core.handle_resolved(rig.now, group, Err(denied));
    let outputs = rig.poll();
    let [Output::Resolve(group)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(group[..], [0, 2]);
    let (_, _, errors) = rig.take();
    assert_eq!((errors.len(), errors[0].partition()), (1, Some(1)));
}

#[test]
fn a_muted_broker_is_not_asked() {
    let mut rig = Rig::scan(ScanSpec::new("t"), 1, 1);
    let order = rig.fetches().remove(0);
    let answer = FetchAnswer {
        throttle: Duration::from_secs(3),
        error: ErrorCode::NONE,
        session_id: 0,
        partitions: Vec::new(),
        endpoints: Vec::new(),
    };
    rig.core.handle_answer(rig.now, 0.5, &order, answer, (0, Duration::ZERO));
    assert!(rig.fetches().is_empty());
    assert_eq!(rig.core.next_deadline(rig.now), Some(rig.now + Duration::from_secs(3)));
    rig.later(3_001);
    assert_eq!(rig.fetches().len(), 1);
}
