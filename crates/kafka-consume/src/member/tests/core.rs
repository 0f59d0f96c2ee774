//! The core that both protocols share, with a protocol that does as it is told, and time as an argument.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kafka_meta::client::Snapshot;
use kafka_meta::{CommittedOffset, Error, ErrorKind, TopicName};

use crate::member::core::Core;
use crate::member::orders::{CommitOrder, Op, Order, Settings, Step};
use crate::member::protocol::{Goodbye, Input, Output, Partitions, Protocol, Purpose, Subscription};
use crate::offsets::Identity;

mod callbacks;
mod commits;
mod leaving;
mod liveness;
mod losses;

const INTERVAL: Duration = Duration::from_secs(5);
const REBALANCE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Script {
    outputs: VecDeque<Output>,
    heard: Vec<String>,
    identity: Option<Identity>,
}

#[derive(Clone, Debug, Default)]
struct Puppet(Arc<Mutex<Script>>);

impl Protocol for Puppet {
    fn handle(&mut self, _: Instant, input: Input<'_>) {
        let heard = match input {
            Input::Reconciled { number, owned } => format!("owns {} after {number}", text(owned)),
            Input::LostDone => "lost".to_owned(),
            Input::Leave { goodbye: Goodbye::Leave } => "leave".to_owned(),
            Input::Leave { goodbye: Goodbye::PollTimeout } => "silent".to_owned(),
            Input::Join | Input::Subscription(_) | Input::Metadata(_) | Input::Answer { .. } => return,
        };
        self.0.lock().unwrap().heard.push(heard);
    }

    fn poll_output(&mut self, _: Instant) -> Option<Output> {
        self.0.lock().unwrap().outputs.pop_front()
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn identity(&self) -> Option<Identity> {
        self.0.lock().unwrap().identity.clone()
    }

    fn member_id(&self) -> &'static str {
        "m"
    }
}

struct Rig {
    core: Core,
    puppet: Puppet,
    now: Instant,
}

impl Rig {
    fn new(auto_commit: bool) -> Rig {
        let settings = Settings {
            auto_commit,
            auto_commit_interval: INTERVAL,
            rebalance_timeout: REBALANCE,
            api_timeout: Duration::from_secs(60),
            may_switch: false,
            matches_patterns: false,
        };
        let puppet = Puppet::default();
        let core = Core::new(settings, Box::new(puppet.clone()));
        let mut rig = Rig { core, puppet, now: Instant::now() };
        rig.poll(&[]);
        rig.live(1);
        rig
    }

    /// A member that owns these partitions and was told so.
    fn owning(auto_commit: bool, owned: &[i32]) -> Rig {
        let mut rig = Rig::new(auto_commit);
        rig.target(1, owned);
        let number = rig.assigns(owned);
        rig.core.assign_done(rig.now, number);
        rig.core.ops.clear();
        rig.orders();
        rig.heard();
        rig
    }

    /// Its protocol is a member, in this life.
    fn live(&mut self, incarnation: u64) {
        let identity = Identity { generation: 1, member_id: "m".into(), instance_id: None, incarnation };
        self.puppet.0.lock().unwrap().identity = Some(identity);
        self.core.tick(self.now);
    }

    /// A poll begins, with these positions.
    fn poll(&mut self, done: &[(i32, i64)]) {
        let done: BTreeMap<_, _> =
            done.iter().map(|(index, offset)| (key(*index), CommittedOffset::new(*offset))).collect();
        self.core.poll_began(self.now, done);
    }

    fn output(&mut self, output: Output) {
        self.puppet.0.lock().unwrap().outputs.push_back(output);
        self.core.tick(self.now);
    }

    fn target(&mut self, number: u64, target: &[i32]) {
        self.output(Output::Reconcile { number, target: set(target), purpose: Purpose::Target });
    }

    fn lose(&mut self) {
        self.puppet.0.lock().unwrap().identity = None;
        self.output(Output::Lost(Error::new(ErrorKind::Fenced, "test")));
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.core.tick(self.now);
        let next = self.core.next_deadline();
        assert!(next.is_none_or(|next| next > self.now), "a deadline that stays in the past");
    }

    fn revokes(&mut self, expected: &[i32]) -> u64 {
        match self.core.step(self.now) {
            Step::Revoke { number, partitions } => {
                assert_eq!(partitions, set(expected));
                number
            }
            other => panic!("no revocation but {other:?}"),
        }
    }

    fn assigns(&mut self, expected: &[i32]) -> u64 {
        match self.core.step(self.now) {
            Step::Assign { number, partitions } => {
                assert_eq!(partitions, set(expected));
                number
            }
            other => panic!("no assignment but {other:?}"),
        }
    }

    fn loses(&mut self, expected: &[i32]) -> u64 {
        match self.core.step(self.now) {
            Step::Lost { number, partitions } => {
                assert_eq!(partitions, set(expected));
                number
            }
            other => panic!("no loss but {other:?}"),
        }
    }

    fn nothing(&mut self) {
        assert!(matches!(self.core.step(self.now), Step::Nothing));
    }

    fn ops(&mut self) -> Vec<Op> {
        std::mem::take(&mut self.core.ops)
    }

    fn orders(&mut self) -> Vec<Order> {
        std::iter::from_fn(|| self.core.poll_order()).collect()
    }

    /// What is to be stored now, of the commits ordered since.
    fn commit(&mut self) -> Option<CommitOrder> {
        let mut commits = self.orders().into_iter().filter_map(|order| match order {
            Order::Commit(order) => Some(order),
            _ => None,
        });
        let first = commits.next();
        assert!(commits.next().is_none(), "two commits at once");
        first
    }

    fn stored(&mut self, order: &CommitOrder) {
        let results = order.offsets.iter().map(|(key, _)| (*key, Ok(()))).collect();
        self.core.handle_commit(self.now, order.number, &order.offsets, &Ok(results));
    }

    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.puppet.0.lock().unwrap().heard)
    }
}

fn key(index: i32) -> (TopicName, i32) {
    (TopicName::new("t"), index)
}

fn set(partitions: &[i32]) -> Partitions {
    partitions.iter().map(|index| key(*index)).collect()
}

fn text(partitions: &Partitions) -> String {
    format!("{:?}", partitions.iter().map(|(_, index)| *index).collect::<Vec<_>>())
}

fn offsets(order: &CommitOrder) -> Vec<(i32, i64)> {
    order.offsets.iter().map(|((_, index), offset)| (*index, offset.offset)).collect()
}

#[test]
fn a_pattern_keeps_every_topic_watched_whatever_the_protocol_asks_for() {
    let mut rig = Rig::new(true);
    rig.orders();
    rig.core.subscribe(rig.now, Subscription { pattern: Some("t.*".into()), ..Subscription::default() });
    rig.output(Output::Interest([TopicName::new("t")].into()));
    assert!(rig.orders().iter().all(|order| !matches!(order, Order::Interest(_))));
}

#[test]
fn a_protocol_that_takes_over_is_told_the_picture_of_the_cluster() {
    #[derive(Debug, Default)]
    struct Waits(Arc<Mutex<bool>>);
    impl Protocol for Waits {
        fn handle(&mut self, _: Instant, input: Input<'_>) {
            *self.0.lock().unwrap() |= matches!(input, Input::Metadata(_));
        }
        fn poll_output(&mut self, _: Instant) -> Option<Output> {
            None
        }
        fn next_deadline(&self) -> Option<Instant> {
            None
        }
        fn identity(&self) -> Option<Identity> {
            None
        }
        fn member_id(&self) -> &'static str {
            ""
        }
    }
    let mut rig = Rig::new(true);
    let told = Arc::new(Mutex::new(false));
    rig.core.switch(rig.now, Box::new(Waits(Arc::clone(&told))), &Snapshot::default());
    assert!(*told.lock().unwrap());
}
