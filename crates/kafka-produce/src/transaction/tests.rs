//! Tests of the core: time, answers and the sender's words are arguments.

use std::time::{Duration, Instant};

use kafka_meta::{Error, ErrorCode, ErrorKind, GroupMetadata, Positions, Result, TopicName};

use super::Admit;
use super::core::{Answer, Ask, Core, Output, Plan, State};
use crate::producer_id::Identity;

mod begun_and_dropped;
mod ending;
mod failing;
mod offsets;
mod schedule;

const FIRST: Identity = Identity { producer_id: 7, epoch: 0 };
const SECOND: Identity = Identity { producer_id: 7, epoch: 1 };

/// A core with its sender: what it asks is looked at by the test, what it tells the sender is done at once.
struct Rig {
    core: Core,
    now: Instant,
    /// Words to the sender, in order.
    told: Vec<String>,
    in_sequence: bool,
    /// The sender's flush does not end by itself.
    holds_flush: bool,
    held: Option<u64>,
}

impl Rig {
    fn new() -> Rig {
        let (core, now) = (Core::new(), Instant::now());
        Rig { core, now, told: Vec::new(), in_sequence: true, holds_flush: false, held: None }
    }

    /// Initialized, in version 1 or 2.
    fn ready(v2: bool) -> Rig {
        let mut rig = Rig::new();
        rig.core.handle_init(rig.deadline());
        let plan = rig.asked();
        assert!(matches!(plan.ask, Ask::Init { current: Identity::NONE }));
        rig.answer(&plan, Answer::Identity { identity: FIRST, v2 });
        assert!(rig.next().is_none());
        assert_eq!(rig.core.state(), State::Ready);
        rig.told.clear();
        rig
    }

    /// In a transaction with one batch on its way.
    fn open(v2: bool) -> Rig {
        let mut rig = Rig::ready(v2);
        rig.begin();
        if !v2 {
            assert!(matches!(rig.core.admit("t".into(), 0), Admit::Wait));
            let plan = rig.asked();
            assert!(matches!(&plan.ask, Ask::AddPartitions(places) if places.len() == 1));
            rig.partitions(&plan, &[("t", 0, 0)]);
        }
        assert!(matches!(rig.core.admit("t".into(), 0), Admit::Go { transactional: true, .. }));
        assert!(rig.next().is_none());
        rig
    }

    fn deadline(&self) -> Instant {
        self.now + Duration::from_secs(60)
    }

    fn begin(&mut self) {
        self.core.handle_begin(self.deadline());
        self.core.outcome_of_begin().unwrap().unwrap();
    }

    fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    /// The next request, the sender having done what it was told.
    fn next(&mut self) -> Option<Plan> {
        for _ in 0..100 {
            match self.core.poll_output(self.now)? {
                Output::Ask(plan) => return Some(plan),
                Output::Wake => self.told.push("wake".into()),
                Output::Flush(ticket) => {
                    self.told.push("flush".into());
                    if self.holds_flush {
                        self.held = Some(ticket);
                    } else {
                        self.core.handle_settled(ticket, Ok(()), self.in_sequence);
                    }
                }
                Output::Drop(ticket, _) => {
                    self.told.push("drop".into());
                    self.core.handle_settled(ticket, Ok(()), self.in_sequence);
                }
                Output::Adopt(identity) => {
                    self.told.push(format!("adopt {}", identity.epoch));
                    self.core.handle_adopted(identity, Ok(()));
                }
            }
        }
        panic!("the core never comes to rest");
    }

    fn asked(&mut self) -> Plan {
        self.next().expect("a request")
    }

    /// The next request, after the pause before it.
    fn asked_later(&mut self) -> Plan {
        assert!(self.next().is_none(), "without a pause");
        self.now = self.core.next_deadline(self.now).expect("a time to ask again");
        self.asked()
    }

    fn answer(&mut self, plan: &Plan, answer: Answer) -> bool {
        self.core.handle_answer(self.now, plan.ticket, answer, 0.5)
    }

    fn code(&mut self, plan: &Plan, code: i16) -> bool {
        self.answer(plan, Answer::Code(ErrorCode::from(code)))
    }

    fn partitions(&mut self, plan: &Plan, codes: &[(&str, i32, i16)]) {
        let codes =
            codes.iter().map(|(topic, index, code)| ((TopicName::from(*topic), *index), (*code).into()));
        self.answer(plan, Answer::Partitions(codes.collect()));
    }

    fn lose(&mut self, plan: &Plan) {
        let lost = Error::new(ErrorKind::Disconnected, "EndTxn");
        self.core.handle_failure(self.now, plan.ticket, &lost, 0.5);
    }

    fn commit(&mut self) -> Result<u64> {
        self.core.handle_commit(self.deadline())
    }

    fn end(&mut self, commit: bool) -> Plan {
        let plan = self.asked();
        assert!(matches!(plan.ask, Ask::End { commit: asked } if asked == commit), "{plan:?}");
        plan
    }
}

fn positions(offsets: &[(&str, i32, i64)]) -> Positions {
    let one = |(topic, index, offset): &(&str, i32, i64)| {
        (((*topic).to_owned(), *index), kafka_meta::CommittedOffset::new(*offset))
    };
    offsets.iter().map(one).collect()
}

fn member() -> GroupMetadata {
    GroupMetadata::member("group".into(), 3, "me".into(), None)
}
