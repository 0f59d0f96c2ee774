//! Random lives of a session against the model of a broker.
//!
//! After every answer used, the broker's session must hold exactly what was last wanted, at the offsets last
//! wanted, and what was handed over must be what the broker read there; an undisturbed exchange must always be used.
//! At the end each deliberate mistake ([`Mistake`]) must be caught by the same property, or it proves nothing.

use std::collections::BTreeMap;

use kafka_meta::TopicName;
use kafka_meta::wire::fetch::FetchAnswer;
use kafka_meta::wire::protocol::messages::fetch_request::ForgottenTopic;
use kafka_meta::wire::protocol::messages::{FetchRequest, FetchResponse, TopicName as WireName};
use kafka_meta::wire::protocol::protocol::StrBytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use uuid::Uuid;

use super::super::{FetchSession, Fetched, Outcome, Plan, Want};
use super::broker::{Broker, Named, Topic, records};
use super::script::{Fault, PARTITIONS, Place, Script, Step, TOPICS, script};

/// A way of getting the session wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mistake {
    ForgetsNothing,
    ForgetsTwice,
    ForgetsReplacedByName,
    UsesAnEpochTwice,
    SendsTheSentinel,
    LeavesOutAChange,
    SendsEverythingAlways,
    GoesOnAfterALostAnswer,
    GoesOnAfterARefusal,
    WrapsToMin,
    ReusesAThrottledEpoch,
    AcceptsOmissions,
    TakesLateAnswers,
    LeaksTheSessionOfABadAnswer,
}

struct Life {
    session: FetchSession,
    broker: Broker,
    /// The newest Fetch version the broker knows.
    newest: i16,
    wanted: Vec<Place>,
    ids: [Uuid; TOPICS],
    places: BTreeMap<Place, (i64, Option<i32>, Option<i32>)>,
    next_topic: u128,
    /// Sessions the broker may be left with because the answer that named them was lost.
    leaks: usize,
    last: Option<(Plan, FetchAnswer)>,
    forgotten: Vec<ForgottenTopic>,
    mistake: Option<Mistake>,
}

fn name(topic: usize) -> String {
    format!("session-topic-{topic}")
}

macro_rules! ensure {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(format!($($words)+));
        }
    };
}

impl Life {
    fn new(newest: i16, closes_empty: bool, mistake: Option<Mistake>) -> Self {
        let mut life = Life {
            session: FetchSession::new(),
            broker: Broker { closes_empty, ..Broker::default() },
            newest,
            wanted: Vec::new(),
            ids: [Uuid::nil(); TOPICS],
            places: BTreeMap::new(),
            next_topic: 1,
            leaks: 0,
            last: None,
            forgotten: Vec::new(),
            mistake,
        };
        for topic in 0..TOPICS {
            life.make(topic);
            life.ids[topic] = life.broker.topics[&name(topic)].id;
        }
        life
    }

    fn make(&mut self, topic: usize) {
        let id = Uuid::from_u128(self.next_topic);
        self.next_topic += 1;
        self.broker.topics.insert(name(topic), Topic { id, ends: vec![5; PARTITIONS as usize] });
    }

    fn wants(&self) -> Vec<Want> {
        self.wanted
            .iter()
            .map(|&(topic, partition)| {
                let (offset, leader_epoch, last_fetched_epoch) =
                    self.places.get(&(topic, partition)).copied().unwrap_or_default();
                Want {
                    leader_epoch,
                    last_fetched_epoch,
                    ..super::want(&name(topic), self.ids[topic], partition, offset)
                }
            })
            .collect()
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Assign(wanted) => self.wanted.clone_from(wanted),
            Step::Seek(place, offset) => self.places.entry(*place).or_default().0 = *offset,
            Step::Epochs(place, leader, last) => {
                let entry = self.places.entry(*place).or_default();
                (entry.1, entry.2) = (Some(*leader), Some(*last));
            }
            Step::Append((topic, partition), more) => {
                if let Some(topic) = self.broker.topics.get_mut(&name(*topic)) {
                    topic.ends[*partition as usize] += more;
                }
            }
            Step::Delete(topic, again) => {
                self.broker.topics.remove(&name(*topic));
                if *again {
                    self.make(*topic);
                }
            }
            Step::Learn(topic, known) => {
                let id = self.broker.topics.get(&name(*topic)).map(|topic| topic.id);
                self.ids[*topic] = id.filter(|_| *known).unwrap_or_default();
            }
            Step::NearWrap => {
                if let Some(session) = self.broker.sessions.get_mut(&self.session.id)
                    && session.epoch == self.session.epoch
                {
                    session.epoch = i32::MAX;
                    self.session.epoch = i32::MAX;
                }
            }
            Step::Close => {
                if let Some(plan) = self.session.close() {
                    let response = self.deliver(&plan, plan_version(&plan, self.newest));
                    ensure!(response.error_code == 0 && response.session_id == 0, "closing: {response:?}");
                    let answer = super::answer(&response, plan_version(&plan, self.newest));
                    let outcome = self.session.handle_answer(&plan, answer);
                    ensure!(matches!(&outcome, Outcome::Use(fetched) if fetched.is_empty()), "{outcome:?}");
                }
                ensure!(
                    self.broker.sessions.len() <= self.leaks,
                    "closed, but held: {:?}",
                    self.broker.sessions
                );
                ensure!(!self.session.is_open() && self.session.len() == 0, "closed, but open");
            }
            Step::Exchange(fault) => self.exchange(*fault)?,
        }
        ensure!(self.broker.complaints.is_empty(), "{:?}", self.broker.complaints);
        Ok(())
    }

    /// The request as sent, mistakes included.
    fn deliver(&mut self, plan: &Plan, version: i16) -> FetchResponse {
        let mut request = super::request(plan, version);
        self.spoil(plan, &mut request, version);
        self.broker.handle(version, &request)
    }

    fn spoil(&mut self, plan: &Plan, request: &mut FetchRequest, version: i16) {
        let before = std::mem::replace(&mut self.forgotten, request.forgotten_topics_data.clone());
        match self.mistake {
            Some(Mistake::ForgetsNothing) => request.forgotten_topics_data.clear(),
            Some(Mistake::ForgetsTwice) if !plan.is_full() => request.forgotten_topics_data.extend(before),
            Some(Mistake::ForgetsReplacedByName) if (7..=12).contains(&version) => {
                request.forgotten_topics_data = plan
                    .forget
                    .iter()
                    .map(|forget| {
                        ForgottenTopic::default()
                            .with_topic(WireName(StrBytes::from_static_str(forget.topic.as_str())))
                            .with_partitions(vec![forget.partition])
                    })
                    .collect();
            }
            Some(Mistake::UsesAnEpochTwice) if plan.epoch > 1 => request.session_epoch -= 1,
            Some(Mistake::SendsTheSentinel) if plan.session_id == 0 => request.session_epoch = -1,
            Some(Mistake::LeavesOutAChange) if !plan.is_full() => {
                request.topics.pop();
            }
            Some(Mistake::SendsEverythingAlways) if !plan.is_full() && plan.send.is_empty() => {
                let mut all = plan.clone();
                all.send = self.session.held.values().map(|held| held.want.clone()).collect();
                request.topics = super::request(&all, version).topics;
            }
            Some(Mistake::WrapsToMin)
                if plan.epoch == 1 && self.last.as_ref().is_some_and(|(last, _)| last.epoch == i32::MAX) =>
            {
                request.session_epoch = i32::MIN;
            }
            _ => {}
        }
    }

    fn exchange(&mut self, fault: Fault) -> Result<(), String> {
        let wants = self.wants();
        if wants.is_empty() && !self.session.is_open() {
            return Ok(());
        }
        if let Some(session) = self.broker.sessions.get_mut(&self.session.id) {
            match fault {
                Fault::EpochMoves => session.epoch = session.epoch % 1_000 + 7,
                Fault::SessionChangesNaming => session.by_id = !session.by_id,
                _ => {}
            }
        }
        if fault == Fault::BrokerRestarts {
            self.broker.sessions.clear();
            self.leaks = 0;
        }
        if fault == Fault::VersionChanges {
            self.newest = match self.newest {
                13.. => 12,
                12 => 18,
                older => older,
            };
        }
        self.broker.throttle = fault == Fault::Throttled;
        self.broker.cache_full = fault == Fault::CacheFull;

        let open_before = self.session.id != 0 && self.session.epoch > 0;
        let plan = self.session.build(&wants);
        ensure!(open_before || plan.is_full(), "no session, but an incremental plan: {plan:?}");
        ensure!(self.session.len() == distinct(&wants).len(), "{} held of {wants:?}", self.session.len());
        ensure!(
            wants.iter().all(|want| self.session.holds(want.topic, want.partition)),
            "not held: {wants:?}"
        );
        let version = plan_version(&plan, self.newest);

        if matches!(fault, Fault::RequestLost | Fault::Abandoned) {
            if fault == Fault::RequestLost {
                self.session.handle_failure(&plan);
                ensure!(self.session.len() == 0, "a lost request, but partitions are held");
            }
            return Ok(());
        }
        let response = match fault {
            Fault::Refused(code) if version >= 7 => {
                if code == 70 {
                    self.broker.sessions.remove(&plan.session_id);
                }
                FetchResponse::default().with_error_code(code)
            }
            _ => self.deliver(&plan, version),
        };
        if fault == Fault::AnswerLost {
            self.leaks += usize::from(plan.is_full() && response.session_id != 0);
            if self.mistake == Some(Mistake::GoesOnAfterALostAnswer) {
                self.session.outstanding = false;
            } else {
                self.session.handle_failure(&plan);
            }
            return Ok(());
        }
        let (answer, must_reopen) = self.disturb(fault, &plan, super::answer(&response, version));
        if fault == Fault::LateAnswer
            && let Some((old, late)) = self.last.clone()
        {
            let mut old = old;
            if self.mistake == Some(Mistake::TakesLateAnswers) {
                old.ticket = plan.ticket;
            }
            let outcome = self.session.handle_answer(&old, late);
            ensure!(matches!(&outcome, Outcome::Use(fetched) if fetched.is_empty()), "late: {outcome:?}");
        }
        self.last = Some((plan.clone(), answer.clone()));
        let before = self.session.epoch;
        if self.mistake == Some(Mistake::GoesOnAfterARefusal) && !answer.error.is_none() {
            self.session.outstanding = false;
            return Ok(());
        }
        let outcome = self.session.handle_answer(&plan, answer);
        match outcome {
            Outcome::Use(_) if must_reopen => Err(format!("{fault:?} was used")),
            Outcome::Use(fetched) => self.check_used(&wants, version, fault, &fetched),
            Outcome::Throttled => {
                ensure!(fault == Fault::Throttled, "throttled by {fault:?}");
                if self.mistake == Some(Mistake::ReusesAThrottledEpoch) && !plan.is_full() {
                    self.session.epoch = before;
                }
                self.check_session(&wants)
            }
            Outcome::Reopen { reason, .. } => {
                ensure!(fault != Fault::None && fault != Fault::CacheFull, "{fault:?}: reopens, {reason}");
                ensure!(self.session.len() == 0 && self.session.lost_in_a_row() > 0, "reopens, but holds");
                if self.mistake == Some(Mistake::LeaksTheSessionOfABadAnswer) {
                    self.session.id = 0;
                }
                Ok(())
            }
        }
    }

    /// What a broker, or a box between, might do to a good answer; and whether it may then not be used.
    fn disturb(&self, fault: Fault, plan: &Plan, mut answer: FetchAnswer) -> (FetchAnswer, bool) {
        let full = plan.is_full();
        let spoiled = match fault {
            Fault::Refused(_) => !answer.error.is_none(),
            Fault::Omits if self.mistake != Some(Mistake::AcceptsOmissions) => {
                answer.partitions.pop().is_some() && full
            }
            Fault::Omits => full && !answer.partitions.is_empty(),
            Fault::Adds => match answer.partitions.first().cloned() {
                Some(mut part) => {
                    part.partition = PARTITIONS + 7;
                    answer.partitions.push(part);
                    true
                }
                None => false,
            },
            Fault::Repeats => match answer.partitions.first().cloned() {
                Some(part) => {
                    answer.partitions.push(part);
                    true
                }
                None => false,
            },
            Fault::AnotherSession if !full && answer.session_id != 0 => {
                answer.session_id += 1_000;
                true
            }
            _ => false,
        };
        (answer, spoiled)
    }

    fn check_used(&self, wants: &[Want], version: i16, fault: Fault, used: &[Fetched]) -> Result<(), String> {
        self.check_session(wants)?;
        ensure!(self.session.lost_in_a_row() == 0, "used, but counted as lost");
        let wants = distinct(wants);
        for Fetched { topic, part } in used {
            let Some(want) = wants.get(&(*topic, part.partition)) else {
                return Err(format!("{topic}-{} was not wanted", part.partition));
            };
            // By name a new topic's records come silently: only ids tell them apart.
            let id = if version >= 13 {
                want.topic_id
            } else {
                self.broker.topics.get(&**topic).unwrap_or(&none()).id
            };
            ensure!(
                part.records.is_empty() || part.records == records(id, want.partition, want.offset),
                "{topic}-{}: {:?} for {want:?}",
                part.partition,
                part.records
            );
        }
        if fault != Fault::None {
            return Ok(());
        }
        for want in wants.values() {
            let Some(topic) = self.broker.topics.get(&*want.topic) else { continue };
            let readable = version < 13 || topic.id == want.topic_id;
            if readable && topic.ends[want.partition as usize] > want.offset {
                let came = used.iter().any(|fetched| {
                    (fetched.topic, fetched.part.partition) == (want.topic, want.partition)
                        && !fetched.part.records.is_empty()
                });
                ensure!(came, "{want:?} has records that did not come");
            }
        }
        Ok(())
    }

    /// The broker's session is what was wanted: nothing left behind, nothing missing, every value as wanted.
    fn check_session(&self, wants: &[Want]) -> Result<(), String> {
        ensure!(
            self.broker.sessions.len() <= self.leaks + 1,
            "{} sessions, {} excused",
            self.broker.sessions.len(),
            self.leaks
        );
        if self.session.id == 0 {
            ensure!(self.session.epoch == 0 && self.session.len() == 0, "no session, but {:?}", self.session);
            return Ok(());
        }
        if self.session.epoch == 0 {
            return Ok(());
        }
        let Some(held) = self.broker.sessions.get(&self.session.id) else {
            return Err(format!("the broker has no session {}", self.session.id));
        };
        ensure!(held.epoch == self.session.epoch, "epoch {} for {}", self.session.epoch, held.epoch);
        let wants = distinct(wants);
        ensure!(held.parts.len() == wants.len(), "the broker holds {:?}, wanted {wants:?}", held.parts);
        for want in wants.values() {
            let named = if held.by_id {
                Named::Id(want.topic_id)
            } else {
                Named::Name(want.topic.as_str().to_owned())
            };
            let part = held.parts.iter().find(|part| part.topic == named && part.partition == want.partition);
            let Some(part) = part else { return Err(format!("{want:?} is not in the session")) };
            let epochs = (want.leader_epoch.unwrap_or(-1), want.last_fetched_epoch.unwrap_or(-1));
            let epochs = match self.newest {
                ..9 => (-1, -1),
                9..12 => (epochs.0, -1),
                _ => epochs,
            };
            ensure!(
                (part.offset, part.max_bytes) == (want.offset, want.max_bytes)
                    && (part.leader_epoch, part.last_fetched_epoch) == epochs,
                "{part:?} for {want:?}"
            );
        }
        Ok(())
    }
}

fn none() -> Topic {
    Topic { id: Uuid::nil(), ends: Vec::new() }
}

fn plan_version(plan: &Plan, newest: i16) -> i16 {
    newest.min(*plan.versions().end())
}

fn distinct(wants: &[Want]) -> BTreeMap<(TopicName, i32), &Want> {
    wants.iter().rev().map(|want| ((want.topic, want.partition), want)).collect()
}

fn live(script: &Script, mistake: Option<Mistake>) -> Result<(), String> {
    let mut life = Life::new(script.newest, script.closes_empty, mistake);
    for (number, step) in script.steps.iter().enumerate() {
        life.step(step).map_err(|why| format!("step {number}, {step:?}: {why}"))?;
    }
    // Whatever happened, one undisturbed exchange sets it right, and a second one is as small as can be.
    life.exchange(Fault::None)?;
    life.exchange(Fault::None)?;
    let complaints = &life.broker.complaints;
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

proptest! {
    #![proptest_config(Config::with_cases(1_000))]
    #[test]
    fn the_brokers_session_is_always_what_was_last_wanted(script in script()) {
        if let Err(why) = live(&script, None) {
            return Err(TestCaseError::fail(why));
        }
    }
}

#[test]
fn the_property_catches_every_deliberate_mistake() {
    for mistake in [
        Mistake::ForgetsNothing,
        Mistake::ForgetsTwice,
        Mistake::ForgetsReplacedByName,
        Mistake::UsesAnEpochTwice,
        Mistake::SendsTheSentinel,
        Mistake::LeavesOutAChange,
        Mistake::SendsEverythingAlways,
        Mistake::GoesOnAfterALostAnswer,
        Mistake::GoesOnAfterARefusal,
        Mistake::WrapsToMin,
        Mistake::ReusesAThrottledEpoch,
        Mistake::AcceptsOmissions,
        Mistake::TakesLateAnswers,
        Mistake::LeaksTheSessionOfABadAnswer,
    ] {
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let config =
            Config { cases: 3_000, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
        let caught = TestRunner::new_with_rng(config, rng)
            .run(&script(), |script| live(&script, Some(mistake)).map_err(TestCaseError::fail));
        assert!(caught.is_err(), "{mistake:?} went unnoticed");
    }
}
