//! Rules: which message, how often, and what to do with it.
//!
//! A rule's conditions are looked at in this order: API, node, version, client, `when`, and for edits whether
//! there was something to change; only then it counts (`skip`, `every`, `chance`, `times`). So
//! `skip(2).times(1)` on an edit of one partition means that partition's third answer, whatever else goes by.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::protocol::{Decodable, Request};
use tokio::sync::watch;

use super::edit::{self, Edit};
use super::errors::{self, Scope};
use super::log::Arrived;
use super::state::{Shared, wait};
use crate::failure::Result;
use crate::recode::{Batch, recode};

const PATIENCE: Duration = Duration::from_secs(60);

/// What happens after half an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The connection closes.
    Close,
    /// Nothing more comes, and no FIN.
    Stall,
}

pub(super) enum Action {
    EditRequest(Edit),
    EditAnswer(Edit),
    DelayRequest(Duration),
    DelayAnswer(Duration),
    HoldRequest,
    HoldAnswer,
    CutBefore,
    CutAfter,
    Half(usize, Then),
    Stall,
}

impl Action {
    fn is_on_request(&self) -> bool {
        matches!(
            self,
            Self::EditRequest(_) | Self::DelayRequest(_) | Self::HoldRequest | Self::CutBefore | Self::Stall
        )
    }
}

type When = Box<dyn Fn(&Arrived) -> bool + Send + Sync>;
type WhenAnswer = Box<dyn Fn(&Arrived, &Bytes) -> bool + Send + Sync>;

struct Conditions {
    api: Option<i16>,
    node: Option<i32>,
    versions: RangeInclusive<i16>,
    client_id: Option<String>,
    when: Vec<When>,
    when_answer: Vec<WhenAnswer>,
    skip: u64,
    every: u64,
    times: u64,
    chance: Option<f64>,
}

/// A rule in the making; the verb at its end puts it in force. See [`super::Proxy`].
#[must_use = "a rule is in force only after its verb"]
pub struct Rule {
    shared: Arc<Shared>,
    conditions: Conditions,
    seed: u64,
}

impl Rule {
    pub(super) fn new(shared: Arc<Shared>, api: Option<i16>) -> Self {
        let conditions = Conditions {
            api,
            node: None,
            versions: i16::MIN..=i16::MAX,
            client_id: None,
            when: Vec::new(),
            when_answer: Vec::new(),
            skip: 0,
            every: 1,
            times: u64::MAX,
            chance: None,
        };
        Self { shared, conditions, seed: 0 }
    }

    /// Only messages to and from this broker.
    pub fn node(mut self, node: i32) -> Self {
        self.conditions.node = Some(node);
        self
    }

    /// Only these versions of the API.
    pub fn versions(mut self, versions: RangeInclusive<i16>) -> Self {
        self.conditions.versions = versions;
        self
    }

    /// Only this client id.
    pub fn client(mut self, client_id: impl Into<String>) -> Self {
        self.conditions.client_id = Some(client_id.into());
        self
    }

    /// Only when the decoded request satisfies.
    pub fn when<R: Request>(mut self, satisfies: impl Fn(i16, &R) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.when.push(Box::new(move |request| {
            request.api == R::KEY
                && R::decode(&mut request.body.clone(), request.version)
                    .is_ok_and(|decoded| satisfies(request.version, &decoded))
        }));
        self
    }

    /// Only when the decoded answer satisfies; for verbs on answers.
    pub fn when_answer<R: Request>(
        mut self,
        satisfies: impl Fn(i16, &R::Response) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.conditions.when_answer.push(Box::new(move |request, body| {
            request.api == R::KEY
                && R::Response::decode(&mut body.clone(), request.version)
                    .is_ok_and(|decoded| satisfies(request.version, &decoded))
        }));
        self
    }

    /// Not the first `count`.
    pub fn skip(mut self, count: u64) -> Self {
        self.conditions.skip = count;
        self
    }

    /// Each `nth` only, the first one included.
    pub fn every(mut self, nth: u64) -> Self {
        self.conditions.every = nth.max(1);
        self
    }

    /// At most `count` times; without it, until it is removed.
    pub fn times(mut self, count: u64) -> Self {
        self.conditions.times = count;
        self
    }

    /// Each time with this probability, drawn from the seed.
    pub fn chance(mut self, probability: f64, seed: u64) -> Self {
        self.conditions.chance = Some(probability);
        self.seed = seed;
        self
    }

    fn put(self, action: Action) -> RuleHandle {
        let active = Active {
            conditions: self.conditions,
            action,
            random: Mutex::new(fastrand::Rng::with_seed(self.seed)),
            counted: Mutex::default(),
            removed: AtomicBool::new(false),
            released: watch::Sender::new(false),
        };
        let active = Arc::new(active);
        self.shared.rules.add(Arc::clone(&active));
        RuleHandle { active }
    }

    /// ERR: answers carry this code; at their top where the API has one, else in each entry.
    pub fn error(self, code: i16) -> RuleHandle {
        self.put(Action::EditAnswer(errors::edit(Scope::Everywhere, code)))
    }

    /// ERR: each entry of this topic carries the code.
    pub fn error_in(self, topic: impl Into<String>, code: i16) -> RuleHandle {
        self.put(Action::EditAnswer(errors::edit(Scope::Topic(topic.into()), code)))
    }

    /// ERR: the entry of this partition carries the code. In a fetch answer it is put in if the partition
    /// belongs to the connection's session and has no entry, as it has none in an incremental answer without
    /// news.
    pub fn error_at(self, topic: impl Into<String>, partition: i32, code: i16) -> RuleHandle {
        self.put(Action::EditAnswer(errors::edit(Scope::Partition(topic.into(), partition), code)))
    }

    /// SET, REMAP: changes decoded answers to `R`; `change` gets the version and says whether it changed
    /// something. Broker addresses in the answer are the proxy's already.
    pub fn edit<R: Request>(
        self,
        change: impl Fn(i16, &mut R::Response) -> bool + Send + Sync + 'static,
    ) -> RuleHandle {
        self.put(Action::EditAnswer(edit::of_answer::<R>(move |_, version, answer| change(version, answer))))
    }

    /// SET on requests: changes decoded requests; `change` says whether it changed something.
    pub fn edit_request<R: Request>(
        self,
        change: impl Fn(i16, &mut R) -> bool + Send + Sync + 'static,
    ) -> RuleHandle {
        self.put(Action::EditRequest(edit::of_request::<R>(change)))
    }

    /// RECODE: changes the record bytes of fetch answers, partition by partition; `None` leaves them.
    pub fn recode(
        self,
        change: impl Fn(&str, i32, &Bytes) -> Option<Bytes> + Send + Sync + 'static,
    ) -> RuleHandle {
        self.put(Action::EditAnswer(edit::of_answer::<FetchRequest>(move |context, _, answer| {
            let mut changed = false;
            for topic in &mut answer.responses {
                let Some(name) = context.topics.name(&topic.topic, topic.topic_id) else { continue };
                for partition in &mut topic.partitions {
                    let Some(records) = partition.records.as_ref().filter(|records| !records.is_empty())
                    else {
                        continue;
                    };
                    if let Some(recoded) = change(&name, partition.partition_index, records) {
                        partition.records = Some(recoded);
                        changed = true;
                    }
                }
            }
            changed
        })))
    }

    /// RECODE: changes the batches of fetch answers, taken apart; `change` says whether it changed something.
    /// See [`crate::recode`].
    pub fn recode_batches(
        self,
        change: impl Fn(&str, i32, &mut Batch) -> bool + Send + Sync + 'static,
    ) -> RuleHandle {
        self.recode(move |topic, partition, records| recode(records, |batch| change(topic, partition, batch)))
    }

    /// DELAY: answers come late by this much.
    pub fn delay(self, time: Duration) -> RuleHandle {
        self.put(Action::DelayAnswer(time))
    }

    /// Requests reach the broker late by this much.
    pub fn delay_request(self, time: Duration) -> RuleHandle {
        self.put(Action::DelayRequest(time))
    }

    /// HOLD: answers wait for [`RuleHandle::release`].
    pub fn hold(self) -> RuleHandle {
        self.put(Action::HoldAnswer)
    }

    /// Requests wait for [`RuleHandle::release`] before the broker sees them.
    pub fn hold_request(self) -> RuleHandle {
        self.put(Action::HoldRequest)
    }

    /// CUT-BEFORE: the connection closes and the broker never sees the request.
    pub fn cut_before(self) -> RuleHandle {
        self.put(Action::CutBefore)
    }

    /// CUT-AFTER: the broker has acted, the answer is swallowed and the connection closes.
    pub fn cut_after(self) -> RuleHandle {
        self.put(Action::CutAfter)
    }

    /// HALF: only the first `bytes` of the answer are sent, its four bytes of length included.
    pub fn half(self, bytes: usize, then: Then) -> RuleHandle {
        self.put(Action::Half(bytes, then))
    }

    /// BLACKHOLE: from this request on its connection takes bytes and answers nothing, without a FIN. The
    /// broker does not see the request.
    pub fn blackhole(self) -> RuleHandle {
        self.put(Action::Stall)
    }
}

/// A rule in force. Dropping the handle leaves it so.
#[derive(Clone)]
pub struct RuleHandle {
    active: Arc<Active>,
}

impl RuleHandle {
    /// How often the rule has struck.
    pub fn hits(&self) -> u64 {
        self.active.counted().hits
    }

    /// Waits until the rule has struck `times` times, for at most a minute.
    pub async fn hit(&self, times: u64) -> Result<()> {
        wait(PATIENCE, "a rule to strike", || (self.hits() >= times).then_some(())).await
    }

    /// Lets what the rule holds go on, and holds nothing from now on.
    pub fn release(&self) {
        self.active.released.send_replace(true);
        self.remove();
    }

    /// Takes the rule out of force. What it holds stays held until it is released.
    pub fn remove(&self) {
        self.active.removed.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Active {
    conditions: Conditions,
    pub(super) action: Action,
    random: Mutex<fastrand::Rng>,
    counted: Mutex<Counted>,
    removed: AtomicBool,
    released: watch::Sender<bool>,
}

#[derive(Default)]
struct Counted {
    seen: u64,
    hits: u64,
}

impl Active {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn applies(&self, request: &Arrived) -> bool {
        let conditions = &self.conditions;
        !self.removed.load(Ordering::Relaxed)
            && conditions.api.is_none_or(|api| api == request.api)
            && conditions.node.is_none_or(|node| node == request.node)
            && conditions.versions.contains(&request.version)
            && conditions.client_id.as_ref().is_none_or(|id| Some(id) == request.client_id.as_ref())
            && self.counted().hits < conditions.times
            && conditions.when.iter().all(|satisfied| satisfied(request))
    }

    /// Counts one more message that meets all conditions, and says whether the rule strikes.
    pub(super) fn count(&self) -> bool {
        let conditions = &self.conditions;
        let mut counted = self.counted();
        let index = counted.seen;
        counted.seen += 1;
        if counted.hits >= conditions.times
            || index < conditions.skip
            || !(index - conditions.skip).is_multiple_of(conditions.every)
        {
            return false;
        }
        if let Some(chance) = conditions.chance
            && self.random.lock().unwrap_or_else(PoisonError::into_inner).f64() >= chance
        {
            return false;
        }
        counted.hits += 1;
        true
    }

    pub(super) async fn released(&self) {
        // The sender lives in this rule: it cannot be gone.
        let _ = self.released.subscribe().wait_for(|released| *released).await;
    }
}

#[derive(Default)]
pub(super) struct Rules(Mutex<Vec<Arc<Active>>>);

impl Rules {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Active>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, rule: Arc<Active>) {
        let mut rules = self.lock();
        rules.retain(|rule| !rule.removed.load(Ordering::Relaxed));
        rules.push(rule);
    }

    pub(super) fn clear(&self) {
        for rule in self.lock().drain(..) {
            rule.removed.store(true, Ordering::Relaxed);
            rule.released.send_replace(true);
        }
    }

    pub(super) fn on_request(&self, request: &Arrived) -> Vec<Arc<Active>> {
        let rules = self.lock();
        rules.iter().filter(|rule| rule.action.is_on_request() && rule.applies(request)).cloned().collect()
    }

    pub(super) fn on_answer(&self, request: &Arrived, body: &Bytes) -> Vec<Arc<Active>> {
        let rules = self.lock();
        let meant = rules.iter().filter(|rule| {
            !rule.action.is_on_request()
                && rule.applies(request)
                && rule.conditions.when_answer.iter().all(|satisfied| satisfied(request, body))
        });
        meant.cloned().collect()
    }
}
