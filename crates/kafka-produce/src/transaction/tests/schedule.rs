//! Random lives of the core against a coordinator that decides by the rules of real ones: requests and answers are lost,
//! ends arrive late, transactions time out, another producer comes, callers go away and come back.
//!
//! Held to: what a caller is told about a transaction is what the coordinator decided; the opposite end is never asked
//! for before the outcome of the first is known; one request per line; and when the trouble ends, everything comes to
//! an end.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use kafka_meta::{ErrorCode, ErrorKind};

use super::{Answer, Ask, FIRST, Identity, Rig, State, member, positions};
use crate::transaction::core::Plan;

const LIVES: u64 = 2_000;
const STEPS: usize = 120;

/// What is got wrong on purpose, in the coordinator's answers.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Sabotage {
    None,
    /// An abort is carried out and answered as if it were the commit that was asked for.
    LieAboutCommits,
}

struct Coordinator {
    v2: bool,
    identity: Identity,
    /// The number of the transaction that is open.
    open: Option<u64>,
    ended: Option<(bool, Identity)>,
    /// Who last raised its epoch, and may ask again.
    raised: Option<Identity>,
    outcomes: BTreeMap<u64, bool>,
    sabotage: Sabotage,
    /// A fence that the producer cannot heal has happened.
    over: bool,
}

impl Coordinator {
    fn raise(&mut self) {
        self.raised = None;
        self.identity.epoch += 1;
    }

    fn end_open(&mut self, commit: bool) {
        if let Some(number) = self.open.take() {
            self.outcomes.insert(number, commit);
        }
    }

    /// The coordinator aborts by itself.
    fn time_out(&mut self) {
        if self.open.is_some() {
            self.ended = Some((false, self.identity));
            self.end_open(false);
            self.raise();
            self.over |= !self.v2;
        }
    }

    /// Another producer takes the id.
    fn take_over(&mut self) {
        self.end_open(false);
        self.raise();
        self.ended = None;
        self.over = true;
    }

    fn carry_out(&mut self, plan: &Plan, number: u64) -> Answer {
        let answer = self.carry_out_quietly(plan, number);
        if std::env::var("TXN_SEED").is_ok() {
            println!("{number}: {plan:?} → {answer:?}");
        }
        answer
    }

    fn carry_out_quietly(&mut self, plan: &Plan, number: u64) -> Answer {
        let current = plan.identity == self.identity;
        let code = |code: i16| Answer::Code(ErrorCode::from(code));
        match &plan.ask {
            Ask::Init { current: asked } => {
                if self.raised == Some(*asked) {
                    return Answer::Identity { identity: self.identity, v2: self.v2 };
                }
                if *asked != self.identity {
                    return code(90);
                }
                self.end_open(false);
                self.raise();
                self.raised = Some(*asked);
                Answer::Identity { identity: self.identity, v2: self.v2 }
            }
            Ask::AddPartitions(_) | Ask::AddOffsets { .. } if !current => code(90),
            Ask::AddPartitions(places) => {
                self.open = Some(number);
                Answer::Partitions(places.iter().map(|place| (*place, ErrorCode::NONE)).collect())
            }
            Ask::AddOffsets { .. } => {
                self.open = Some(number);
                code(0)
            }
            Ask::CommitOffsets { offsets, .. } => {
                let told = if current { ErrorCode::NONE } else { ErrorCode::INVALID_PRODUCER_EPOCH };
                if current {
                    self.open = Some(number);
                }
                Answer::Partitions(offsets.iter().map(|(place, _)| (*place, told)).collect())
            }
            Ask::End { commit } => self.end(plan.identity, *commit),
        }
    }

    fn end(&mut self, asked: Identity, commit: bool) -> Answer {
        let code = |code: i16| Answer::Code(ErrorCode::from(code));
        let next = |identity: Identity, v2: bool| Answer::Ended(v2.then_some(identity));
        if let Some((committed, under)) = self.ended
            && under == asked
            && self.open.is_none()
            && (self.v2 || asked == self.identity)
        {
            return match committed == commit && (self.v2 || commit) {
                true => next(self.identity, self.v2),
                false => code(48),
            };
        }
        if asked != self.identity {
            return code(90);
        }
        if self.open.is_none() && (commit || !self.v2) {
            return code(48);
        }
        let done = commit && self.sabotage != Sabotage::LieAboutCommits;
        self.end_open(done);
        self.ended = Some((commit, asked));
        if self.v2 {
            self.raise();
        }
        next(self.identity, self.v2)
    }
}

/// A caller that waits.
#[derive(Clone, Copy, Debug)]
enum Call {
    Begin,
    Offsets(u64),
    Commit(u64),
    Abort(u64),
}

struct Life {
    rig: Rig,
    rng: Rng,
    coordinator: Coordinator,
    number: u64,
    calls: Vec<Call>,
    in_flight: Vec<Plan>,
    late: Vec<Plan>,
    flushes: Vec<u64>,
    adopted: Identity,
    /// Of the present transaction: a commit has been asked for and its outcome is not known.
    undecided: bool,
    told: usize,
}

impl Life {
    fn new(seed: u64, sabotage: Sabotage) -> Life {
        let mut rng = Rng::with_seed(seed);
        let v2 = rng.bool();
        let coordinator = Coordinator {
            v2,
            identity: FIRST,
            open: None,
            ended: None,
            raised: None,
            outcomes: BTreeMap::new(),
            sabotage,
            over: false,
        };
        Life {
            rig: Rig::ready(v2),
            rng,
            coordinator,
            number: 0,
            calls: Vec::new(),
            in_flight: Vec::new(),
            late: Vec::new(),
            flushes: Vec::new(),
            adopted: FIRST,
            undecided: false,
            told: 0,
        }
    }

    /// Everything the core wants, until it rests.
    fn pump(&mut self) -> Result<(), String> {
        use crate::transaction::core::Output;
        for _ in 0..50 {
            let Some(output) = self.rig.core.poll_output(self.rig.now) else { return Ok(()) };
            match output {
                Output::Ask(plan) => {
                    let group = matches!(plan.ask, Ask::CommitOffsets { .. });
                    let same = |other: &&Plan| matches!(other.ask, Ask::CommitOffsets { .. }) == group;
                    if self.in_flight.iter().any(|other| same(&other)) {
                        return Err(format!("two requests on one line: {plan:?}"));
                    }
                    match plan.ask {
                        Ask::End { commit: true } => self.undecided = true,
                        Ask::End { commit: false } if self.undecided => {
                            return Err("an abort was asked for while a commit was undecided".to_owned());
                        }
                        _ => {}
                    }
                    if plan.identity != self.adopted {
                        return Err(format!("{plan:?} under another identity than {:?}", self.adopted));
                    }
                    self.in_flight.push(plan);
                }
                Output::Flush(ticket) | Output::Drop(ticket, _) => self.flushes.push(ticket),
                Output::Adopt(identity) => {
                    self.adopted = identity;
                    self.rig.core.handle_adopted(identity, Ok(()));
                }
                Output::Wake => {}
            }
        }
        Err("the core never comes to rest".to_owned())
    }

    fn answer(&mut self, trouble: bool) {
        if self.in_flight.is_empty() {
            return;
        }
        let plan = self.in_flight.swap_remove(self.rng.usize(..self.in_flight.len()));
        match if trouble { self.rng.u8(..8) } else { 7 } {
            0 => self.rig.lose(&plan),
            1 => {
                self.coordinator.carry_out(&plan, self.number);
                self.rig.lose(&plan);
            }
            2 if matches!(plan.ask, Ask::End { .. }) => {
                self.late.push(plan.clone());
                self.rig.lose(&plan);
            }
            3 => {
                let code = ErrorCode::from([14, 15, 16, 51][self.rng.usize(..4)]);
                match &plan.ask {
                    Ask::AddPartitions(places) => {
                        let codes = places.iter().map(|place| (*place, code)).collect();
                        self.rig.answer(&plan, Answer::Partitions(codes));
                    }
                    Ask::CommitOffsets { offsets, .. } => {
                        let codes = offsets.iter().map(|(place, _)| (*place, code)).collect();
                        self.rig.answer(&plan, Answer::Partitions(codes));
                    }
                    _ => drop(self.rig.answer(&plan, Answer::Code(code))),
                }
            }
            _ => {
                let answer = self.coordinator.carry_out(&plan, self.number);
                if matches!(&plan.ask, Ask::End { .. }) {
                    let passing = matches!(&answer, Answer::Code(code) if code.is_retriable());
                    self.undecided &= passing;
                }
                self.rig.answer(&plan, answer);
            }
        }
    }

    /// The application does something.
    fn act(&mut self) {
        let deadline = self.rig.deadline();
        match self.rng.u8(..10) {
            0..=2 => {
                self.rig.core.handle_begin(deadline);
                self.calls.push(Call::Begin);
            }
            3..=4 => {
                let partition = self.rng.i32(0..3);
                let admitted = self.rig.core.admit("t".into(), partition);
                if matches!(admitted, super::Admit::Go { .. }) && self.coordinator.v2 {
                    // Produce v12 adds the partition.
                    if self.adopted == self.coordinator.identity {
                        self.coordinator.open = Some(self.number);
                    } else {
                        self.fail_batch();
                    }
                }
            }
            5 => {
                let offsets = positions(&[("in", 0, 5)]);
                if let Ok(Some(id)) = self.rig.core.handle_offsets(deadline, offsets, &member()) {
                    self.calls.push(Call::Offsets(id));
                }
            }
            6..=7 => {
                if let Ok(number) = self.rig.core.handle_commit(deadline) {
                    self.calls.push(Call::Commit(number));
                }
            }
            8 => {
                if let Ok(Some(number)) = self.rig.core.handle_abort(deadline) {
                    self.calls.push(Call::Abort(number));
                }
            }
            _ => self.fail_batch(),
        }
    }

    fn fail_batch(&mut self) {
        self.rig.core.batch_failed(&kafka_meta::Error::new(ErrorKind::Timeout, "produce"));
        self.rig.in_sequence = self.rng.bool();
    }

    /// Callers look, and are held to what they are told.
    fn look(&mut self) -> Result<(), String> {
        let deadline = self.rig.deadline();
        let mut calls = std::mem::take(&mut self.calls);
        let mut wrong = None;
        calls.retain(|call| {
            let told = match *call {
                Call::Begin => self.rig.core.outcome_of_begin().inspect(|told| {
                    if told.is_ok() {
                        self.number += 1;
                        self.undecided = false;
                        self.rig.in_sequence = true;
                    }
                }),
                Call::Offsets(id) => self.rig.core.outcome_of_offsets(id),
                Call::Commit(number) => self.rig.core.outcome_of_commit(number),
                Call::Abort(number) => self.rig.core.outcome_of_abort(number, deadline),
            };
            let Some(told) = told else { return true };
            self.told += 1;
            if let Err(error) = &told {
                let kinds = [error.is_fatal(), error.needs_abort(), error.is_retriable()];
                if kinds.iter().filter(|one| **one).count() > 1 {
                    wrong = Some(format!("an error of two minds: {error}"));
                }
            }
            match (*call, told) {
                (Call::Commit(number), Ok(())) if self.coordinator.outcomes.get(&number) == Some(&false) => {
                    wrong = Some(format!("told that {number} is committed, and it was aborted"));
                }
                (Call::Commit(number), Err(error))
                    if error.needs_abort() && self.coordinator.outcomes.get(&number) == Some(&true) =>
                {
                    wrong = Some(format!("told to abort {number}, and it was committed"));
                }
                (Call::Abort(number), Ok(())) if self.coordinator.outcomes.get(&number) == Some(&true) => {
                    wrong = Some(format!("told that {number} is aborted, and it was committed"));
                }
                _ => {}
            }
            false
        });
        self.calls = calls;
        wrong.map_or(Ok(()), Err)
    }

    fn step(&mut self, trouble: bool) -> Result<(), String> {
        self.pump()?;
        match self.rng.u8(..8) {
            0..=3 => self.answer(trouble),
            4 => {
                if let Some(ticket) = self.flushes.pop() {
                    let in_sequence = self.rig.in_sequence;
                    self.rig.core.handle_settled(ticket, Ok(()), in_sequence);
                }
            }
            5 if trouble => self.act(),
            6 if trouble => match self.rng.u8(..30) {
                0 => self.coordinator.time_out(),
                1 => self.coordinator.take_over(),
                2..=9 => {
                    if let Some(plan) = self.late.pop() {
                        self.coordinator.carry_out(&plan, self.number);
                    }
                }
                10..=14 if !self.calls.is_empty() => {
                    // A future is dropped.
                    let call = self.calls.swap_remove(self.rng.usize(..self.calls.len()));
                    if let Call::Offsets(id) = call {
                        self.rig.core.forget_offsets(id);
                    }
                }
                15 => {
                    let lost = kafka_meta::Error::new(ErrorKind::Disconnected, "transaction");
                    self.in_flight.clear();
                    self.flushes.clear();
                    self.rig.core.handle_interruption(self.rig.now, &lost);
                }
                _ => {}
            },
            _ => self.rig.now += Duration::from_millis(self.rng.u64(..400)),
        }
        self.pump()?;
        self.look()
    }

    fn run(mut self) -> Result<(usize, bool), String> {
        for _ in 0..STEPS {
            self.step(true)?;
        }
        // The trouble is over: whatever state it is in, a patient caller gets to a new transaction or a fatal error.
        for _ in 0..20 {
            let deadline = self.rig.deadline();
            match self.rig.core.state() {
                State::Fatal => break,
                State::InTransaction | State::AbortableError => {
                    if let Ok(Some(number)) = self.rig.core.handle_abort(deadline) {
                        self.calls.push(Call::Abort(number));
                    }
                }
                State::Ready => {
                    self.rig.core.handle_begin(deadline);
                    self.calls.push(Call::Begin);
                }
                _ => self.rig.core.handle_begin(deadline),
            }
            for _ in 0..150 {
                self.step(false)?;
            }
        }
        if !self.calls.is_empty() {
            return Err(format!("never told: {:?}, {:?}", self.calls, self.rig.core.state()));
        }
        let fatal = self.rig.core.state() == State::Fatal;
        if fatal && !self.coordinator.over {
            return Err(format!("fatal without a reason: {}", self.rig.core.may_send().unwrap_err()));
        }
        Ok((self.told, fatal))
    }
}

#[test]
fn whatever_happens_callers_are_told_what_the_coordinator_decided() {
    let seeds = match std::env::var("TXN_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..LIVES,
    };
    let (mut told, mut fatal) = (0, 0);
    for seed in seeds {
        let life = Life::new(seed, Sabotage::None);
        let (some, over) = life.run().unwrap_or_else(|wrong| panic!("TXN_SEED={seed}: {wrong}"));
        told += some;
        fatal += usize::from(over);
    }
    println!("{told} calls told, {fatal} lives ended fatally");
    assert!(told > 0);
}

#[test]
fn a_coordinator_that_lies_is_caught() {
    assert!((0..200).any(|seed| Life::new(seed, Sabotage::LieAboutCommits).run().is_err()));
}
