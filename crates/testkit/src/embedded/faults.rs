//! Faults on demand: rules that match requests and say what goes wrong with them.
//!
//! A rule matches by API, node, topic and client id, passes over its first `skip` matches, then fires at every
//! `every`-th match until its `times` are used up. Several rules may fire on one request.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use tokio::sync::watch;

type Change = Arc<Mutex<dyn FnMut(&mut dyn Any) + Send>>;

/// What a request is matched by.
pub(super) struct Subject<'a> {
    pub api: ApiKey,
    pub node: i32,
    pub topics: &'a [String],
    pub client_id: &'a str,
}

#[derive(Clone)]
pub(super) enum Effect {
    Error(i16),
    DropBefore,
    DropAfter,
    Late(Duration),
    CutAnswer(usize),
    Delay(Duration),
    DelayAnswer(Duration),
    Hold(watch::Receiver<bool>),
    HoldAnswer(watch::Receiver<bool>),
    Throttle(Duration),
    Change(Change),
}

/// An error code to answer with, for one topic or for all the request names.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub code: i16,
    pub topic: Option<String>,
}

/// Everything that goes wrong with one request.
#[derive(Clone, Default)]
pub(super) struct Effects {
    pub error: Option<Refusal>,
    pub drop_before: bool,
    pub drop_after: bool,
    pub late: Option<Duration>,
    pub cut_answer: Option<usize>,
    pub delay: Duration,
    pub delay_answer: Duration,
    pub holds: Vec<watch::Receiver<bool>>,
    pub answer_holds: Vec<watch::Receiver<bool>>,
    pub throttle: Option<Duration>,
    changes: Vec<Change>,
}

impl Effects {
    /// Runs the rules' closures over a typed answer.
    pub fn change(&self, response: &mut dyn Any) {
        for change in &self.changes {
            (change.lock().unwrap_or_else(PoisonError::into_inner))(response);
        }
    }

    fn add(&mut self, effect: &Effect, topic: Option<&String>) {
        match effect {
            Effect::Error(code) => self.error = Some(Refusal { code: *code, topic: topic.cloned() }),
            Effect::DropBefore => self.drop_before = true,
            Effect::DropAfter => self.drop_after = true,
            Effect::Late(delay) => self.late = Some(*delay),
            Effect::CutAnswer(bytes) => self.cut_answer = Some(*bytes),
            Effect::Delay(delay) => self.delay = self.delay.saturating_add(*delay),
            Effect::DelayAnswer(delay) => self.delay_answer = self.delay_answer.saturating_add(*delay),
            Effect::Hold(gate) => self.holds.push(gate.clone()),
            Effect::HoldAnswer(gate) => self.answer_holds.push(gate.clone()),
            Effect::Throttle(throttle) => self.throttle = Some(*throttle),
            Effect::Change(change) => self.changes.push(Arc::clone(change)),
        }
    }
}

struct Rule {
    id: u64,
    api: ApiKey,
    node: Option<i32>,
    topic: Option<String>,
    client_id: Option<String>,
    skip: u64,
    every: u64,
    left: Option<u64>,
    matched: u64,
    hits: Arc<AtomicU64>,
    effect: Effect,
}

impl Rule {
    fn matches(&self, subject: &Subject<'_>) -> bool {
        self.api == subject.api
            && self.node.is_none_or(|node| node == subject.node)
            && self.topic.as_ref().is_none_or(|topic| subject.topics.contains(topic))
            && self.client_id.as_ref().is_none_or(|client| client == subject.client_id)
    }

    fn fires(&mut self) -> bool {
        if self.left == Some(0) {
            return false;
        }
        let nth = self.matched;
        self.matched = self.matched.saturating_add(1);
        let due = nth.checked_sub(self.skip).is_some_and(|after| after.is_multiple_of(self.every.max(1)));
        if due {
            self.left = self.left.map(|left| left.saturating_sub(1));
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        due
    }
}

/// The rules in force.
#[derive(Default)]
pub(super) struct Faults {
    rules: Vec<Rule>,
    made: u64,
}

impl Faults {
    pub fn apply(&mut self, subject: &Subject<'_>) -> Effects {
        let mut effects = Effects::default();
        for rule in &mut self.rules {
            if rule.matches(subject) && rule.fires() {
                effects.add(&rule.effect, rule.topic.as_ref());
            }
        }
        effects
    }

    pub fn remove(&mut self, id: u64) {
        self.rules.retain(|rule| rule.id != id);
    }

    pub fn clear(&mut self) {
        self.rules.clear();
    }
}

/// A fault under construction; nothing happens before one of the finishing methods is called.
///
/// By default it fires once, at the next matching request.
#[must_use = "a fault does nothing until one of its finishing methods is called"]
pub struct FaultBuilder {
    shared: Arc<super::Shared>,
    rule: Rule,
}

impl fmt::Debug for FaultBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultBuilder").field("api", &self.rule.api).finish_non_exhaustive()
    }
}

impl FaultBuilder {
    pub(super) fn new(shared: Arc<super::Shared>, api: ApiKey) -> Self {
        let rule = Rule {
            id: 0,
            api,
            node: None,
            topic: None,
            client_id: None,
            skip: 0,
            every: 1,
            left: Some(1),
            matched: 0,
            hits: Arc::default(),
            effect: Effect::DropBefore,
        };
        FaultBuilder { shared, rule }
    }

    /// Only requests that reach this node.
    pub fn node(mut self, node: i32) -> Self {
        self.rule.node = Some(node);
        self
    }

    /// Only requests that name this topic. Of a Fetch only the topic's partitions are refused.
    pub fn topic(mut self, topic: &str) -> Self {
        self.rule.topic = Some(topic.to_owned());
        self
    }

    /// Only requests with this client id.
    pub fn client_id(mut self, client_id: &str) -> Self {
        self.rule.client_id = Some(client_id.to_owned());
        self
    }

    /// Lets the first `n` matching requests pass.
    pub fn skip(mut self, n: u64) -> Self {
        self.rule.skip = n;
        self
    }

    /// Fires at every `n`-th matching request.
    pub fn every(mut self, n: u64) -> Self {
        self.rule.every = n;
        self
    }

    /// Fires `n` times.
    pub fn times(mut self, n: u64) -> Self {
        self.rule.left = Some(n);
        self
    }

    /// Fires until it is removed.
    pub fn always(mut self) -> Self {
        self.rule.left = None;
        self
    }

    fn install(mut self, effect: Effect, gate: Option<watch::Sender<bool>>) -> Fault {
        self.rule.effect = effect;
        let hits = Arc::clone(&self.rule.hits);
        let shared = Arc::clone(&self.shared);
        let mut world = shared.world();
        world.faults.made = world.faults.made.saturating_add(1);
        let id = world.faults.made;
        self.rule.id = id;
        world.faults.rules.push(self.rule);
        drop(world);
        Fault { shared, id, hits, gate }
    }

    /// Answers with this error code, wherever the API reports errors; the request is not carried out. For a
    /// Fetch 70, 71 and 106 are errors of the whole answer, the others of its partitions.
    pub fn error(self, code: i16) -> Fault {
        self.install(Effect::Error(code), None)
    }

    /// Closes the connection before the request is carried out.
    pub fn drop_connection_before(self) -> Fault {
        self.install(Effect::DropBefore, None)
    }

    /// Carries the request out, then closes the connection without answering.
    pub fn drop_connection_after(self) -> Fault {
        self.install(Effect::DropAfter, None)
    }

    /// Closes the connection at once and carries the request out after `delay` all the same, as a broker does with
    /// what it had read before. Nobody hears the answer.
    pub fn arrive_late(self, delay: Duration) -> Fault {
        self.install(Effect::Late(delay), None)
    }

    /// Sends only the first `bytes` of the answer's frame, then closes the connection.
    pub fn cut_answer(self, bytes: usize) -> Fault {
        self.install(Effect::CutAnswer(bytes), None)
    }

    /// Waits before carrying the request out.
    pub fn delay(self, delay: Duration) -> Fault {
        self.install(Effect::Delay(delay), None)
    }

    /// Carries the request out at once, answers later.
    pub fn delay_answer(self, delay: Duration) -> Fault {
        self.install(Effect::DelayAnswer(delay), None)
    }

    /// Holds the request back, not carried out, until [`Fault::release`].
    pub fn hold(self) -> Fault {
        let (gate, held) = watch::channel(false);
        self.install(Effect::Hold(held), Some(gate))
    }

    /// Carries the request out and holds its answer back until [`Fault::release`].
    pub fn hold_answer(self) -> Fault {
        let (gate, held) = watch::channel(false);
        self.install(Effect::HoldAnswer(held), Some(gate))
    }

    /// Throttles: the answer says so and the connection is muted for that long. A Fetch is answered at once
    /// and without data, as by a broker whose quota is exceeded.
    pub fn throttle(self, throttle: Duration) -> Fault {
        self.install(Effect::Throttle(throttle), None)
    }

    /// Changes the answer, a decoded `kafka_protocol` message of the API's response type.
    pub fn map<R: 'static>(self, mut change: impl FnMut(&mut R) + Send + 'static) -> Fault {
        let change = move |response: &mut dyn Any| {
            if let Some(response) = response.downcast_mut::<R>() {
                change(response);
            }
        };
        self.install(Effect::Change(Arc::new(Mutex::new(change))), None)
    }
}

/// A fault in force. Dropping the handle leaves the fault in force.
pub struct Fault {
    shared: Arc<super::Shared>,
    id: u64,
    hits: Arc<AtomicU64>,
    gate: Option<watch::Sender<bool>>,
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("id", &self.id).field("hits", &self.hits()).finish_non_exhaustive()
    }
}

impl Fault {
    /// How often it has fired.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Lets everything held by this fault go on, now and later.
    pub fn release(&self) {
        if let Some(gate) = &self.gate {
            gate.send_replace(true);
        }
    }

    /// Takes the fault out of force; what it holds goes on.
    pub fn remove(self) {
        self.release();
        self.shared.world().faults.remove(self.id);
    }
}
