//! Random histories against a model of the broker: whatever is lost, refused, dropped or superseded, no commit
//! moves an offset back, nothing is reported stored that is not, and nothing hangs.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_meta::{Error, ErrorCode, ErrorKind};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Bench, Key};
use crate::offsets::core::{CallId, Plan};

const PARTITIONS: i32 = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Commit the next offset of these partitions.
    Commit(Vec<i32>),
    Abandon(usize),
    Expire(usize),
    Send,
    /// One code per partition; `None` leaves the partition out of the answer.
    Answer(Vec<Option<i16>>),
    /// The answer is lost; the broker had stored it or not.
    Lose {
        stored: bool,
    },
    NoCoordinator,
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let code = prop_oneof![4 => Just(Some(0)), 1 => Just(Some(14)), 1 => Just(Some(16)), 1 => Just(Some(12)), 1 => Just(None)];
    let step = prop_oneof![
        4 => vec(0..PARTITIONS, 1..4).prop_map(Step::Commit),
        1 => any::<usize>().prop_map(Step::Abandon),
        1 => any::<usize>().prop_map(Step::Expire),
        4 => Just(Step::Send),
        4 => vec(code, 3).prop_map(Step::Answer),
        1 => any::<bool>().prop_map(|stored| Step::Lose { stored }),
        1 => Just(Step::NoCoordinator),
        3 => (0..1_500u64).prop_map(Step::Pass),
    ];
    vec(step, 0..80)
}

#[derive(Default)]
struct Broker {
    stored: BTreeMap<i32, i64>,
    flight: Option<Plan>,
}

impl Broker {
    fn store(&mut self, partition: i32, offset: i64) {
        let before = self.stored.insert(partition, offset);
        assert!(
            before.is_none_or(|before| before <= offset),
            "{partition}: {before:?} moved back to {offset}"
        );
    }
}

struct World {
    bench: Bench,
    broker: Broker,
    next: i64,
    calls: BTreeMap<CallId, BTreeMap<i32, i64>>,
}

impl World {
    fn run(&mut self, step: Step) {
        match step {
            Step::Commit(partitions) => {
                self.next += 1;
                let list: BTreeMap<_, _> = partitions.into_iter().map(|index| (index, self.next)).collect();
                let flat: Vec<_> = list.iter().map(|(partition, offset)| (*partition, *offset)).collect();
                let call = self.bench.commit(&flat);
                self.calls.insert(call, list);
            }
            Step::Abandon(pick) => {
                if let Some(call) = self.pick(pick) {
                    self.calls.remove(&call);
                    self.bench.core.abandon(call);
                }
            }
            Step::Expire(pick) => {
                if let Some(call) = self.pick(pick) {
                    let outcome = self.bench.core.expire(call).expect("not finished");
                    self.check(call, outcome.unwrap_or_default());
                }
            }
            Step::Send => {
                if let Some((plan, _)) = self.bench.send() {
                    assert!(self.broker.flight.replace(plan).is_none(), "two in flight");
                }
            }
            Step::Answer(codes) => {
                let Some(plan) = self.broker.flight.take() else { return };
                let mut answer = Vec::new();
                for ((_, partition), offset) in &plan.offsets {
                    let Some(code) = codes[usize::try_from(*partition).unwrap()] else { continue };
                    answer.push((*partition, code));
                    if code == 0 {
                        self.broker.store(*partition, offset.offset);
                    }
                }
                self.bench.answer(&plan, &answer);
            }
            Step::Lose { stored } => {
                let Some(plan) = self.broker.flight.take() else { return };
                for ((_, partition), offset) in plan.offsets.iter().filter(|_| stored) {
                    self.broker.store(*partition, offset.offset);
                }
                let error = Error::new(ErrorKind::Disconnected, "test");
                self.bench.core.handle_failure(self.bench.now, plan.ticket, &error, 0.5);
            }
            Step::NoCoordinator => {
                if self.bench.core.is_due(self.bench.now) {
                    let error = Error::broker(ErrorCode::COORDINATOR_NOT_AVAILABLE, "test");
                    self.bench.core.handle_no_coordinator(self.bench.now, &error, 0.5);
                }
            }
            Step::Pass(millis) => self.bench.pass(Duration::from_millis(millis)),
        }
        for (call, outcome) in self.bench.finished() {
            self.check(call, outcome.unwrap_or_default());
        }
    }

    fn pick(&self, pick: usize) -> Option<CallId> {
        self.calls.keys().nth(pick.checked_rem(self.calls.len())?).copied()
    }

    /// A call ends once, and what it says is stored is: that offset, or a later one of the same consumer.
    fn check(&mut self, call: CallId, results: Vec<(Key, kafka_meta::Result<()>)>) {
        let asked = self.calls.remove(&call).expect("a call ends once, and not after it was abandoned");
        for ((_, partition), result) in results {
            assert!(asked.contains_key(&partition));
            if result.is_ok() {
                assert!(
                    self.broker.stored.get(&partition) >= asked.get(&partition),
                    "{partition} is not stored"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]
    #[test]
    fn no_history_moves_an_offset_back_lies_or_hangs(steps in steps()) {
        let mut world = World { bench: Bench::new(), broker: Broker::default(), next: 0, calls: BTreeMap::new() };
        for step in steps {
            world.run(step);
        }
        // A broker that works again leaves nothing open, in bounded time and with bounded requests.
        for _ in 0..3 {
            world.run(Step::Answer(vec![Some(0); 3]));
            world.run(Step::Pass(1_000));
            world.run(Step::Send);
        }
        prop_assert!(world.bench.core.is_idle());
        prop_assert!(world.calls.is_empty(), "{:?}", world.calls);
    }
}

#[test]
fn the_model_notices_an_offset_that_moves_back() {
    let mut broker = Broker::default();
    broker.store(0, 5);
    assert!(std::panic::catch_unwind(move || broker.store(0, 4)).is_err());
}
