//! The items of one call: where each is asked, which are still open, and what became of the others. Pure: no
//! network, no clock, no randomness.
//!
//! An item **waits** for somebody to ask, is **asked**, and goes back to waiting when the answer was a passing
//! failure, or is **settled**. What this is not: it builds no request and reads no answer.
//!
//! Invariants
//! - An item is with one broker at a time, and is settled once.
//! - After a failure that a moved leader, controller or coordinator may explain, what was known about the place
//!   is stale: it is looked up anew before it is asked again.
//! - A topic, partition or broker counts as absent when fresh metadata (or the broker asked) has denied it twice,
//!   and not within [`ABSENT_GRACE`] of the first time: brokers learn of a new topic one after the other. Waiting
//!   until the deadline, as Java does, tells nobody about a misspelt name for a minute.
//! - When an answer of a call that changes something was lost, a later refusal says so: the change may have been
//!   made by the first attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kafka_meta::client::passes;
use kafka_meta::{Error, ErrorCode, ErrorKind, Result, TopicName};

use crate::{ConfigResource, ResourceType};

/// See the invariants above.
const ABSENT_GRACE: Duration = Duration::from_secs(1);

/// What an item is about.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Subject {
    Cluster,
    Group(String),
    Member(String),
    Node(i32),
    Partition(TopicName, i32),
    Resource(ConfigResource),
    Topic(TopicName),
}

/// Who can answer for an item.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Route {
    /// Any broker.
    Any,
    /// The controller; under KRaft any broker passes the request on.
    Controller,
    /// The group's coordinator.
    Group(String),
    /// The partition's leader.
    Leader(TopicName, i32),
    /// This broker alone.
    Node(i32),
}

/// What is known of a route's end.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Any broker will do.
    Any,
    /// This one.
    Node(i32),
    /// Nobody at the moment.
    Later(Error),
    /// There is no such thing, as far as known.
    Absent,
    /// Whoever was asked will not tell, and asking again cannot change that.
    Never(Error),
}

/// A broker's error about one item.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Refusal {
    pub code: ErrorCode,
    /// The broker's own words, or ours where it has none.
    pub message: Option<String>,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: Option<String>) -> Self {
        Refusal { code, message: message.filter(|message| !message.is_empty()) }
    }

    fn words(&self) -> String {
        match &self.message {
            Some(message) => format!("{}: {message}", self.code),
            None => self.code.to_string(),
        }
    }
}

/// Why a request got no answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub error: Error,
    /// It may have reached the broker.
    pub sent: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { error, sent: true }
    }
}

/// What the broker said about each item of a request.
pub(crate) type Asked<T> = std::result::Result<Vec<(usize, Answer<T>)>, Failure>;

/// What a broker answered about one item.
pub(crate) type Answer<T> = std::result::Result<T, Refusal>;

#[derive(Debug)]
enum State<T> {
    Waiting,
    Asked(Option<i32>),
    Settled(Result<T>),
}

#[derive(Debug)]
struct Item<T> {
    subject: Subject,
    route: Route,
    state: State<T>,
    reason: Option<Error>,
    /// A broker, or this client by itself, has said something about it.
    answered: bool,
    /// An answer of ours was lost on its way.
    lost: bool,
    denied: Option<(Instant, u32)>,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Plan<T> {
    operation: &'static str,
    changes: bool,
    items: Vec<Item<T>>,
    stale: bool,
    forget: BTreeSet<(String, i32)>,
}

/// What became of one item, and whether anybody answered for it.
#[derive(Debug)]
pub(crate) struct Settled<T> {
    pub result: Result<T>,
    pub answered: bool,
}

impl<T> Plan<T> {
    /// A call that only looks.
    pub(crate) fn reading(operation: &'static str, items: Vec<(Subject, Route)>) -> Self {
        Plan::new(operation, false, items)
    }

    /// A call that changes something.
    pub(crate) fn changing(operation: &'static str, items: Vec<(Subject, Route)>) -> Self {
        Plan::new(operation, true, items)
    }

    fn new(operation: &'static str, changes: bool, items: Vec<(Subject, Route)>) -> Self {
        let mut seen = BTreeSet::new();
        let items = items.into_iter().map(|(subject, route)| {
            let mut item = Item {
                route,
                state: State::Waiting,
                reason: None,
                answered: false,
                lost: false,
                denied: None,
                subject,
            };
            if !seen.insert(item.subject.clone()) {
                let error = Error::new(ErrorKind::InvalidRequest, operation);
                item.answered = true;
                let words = Some("named twice in one call".to_owned());
                item.state = State::Settled(Err(item.named(error, words)));
            }
            item
        });
        Plan { operation, changes, items: items.collect(), stale: false, forget: BTreeSet::new() }
    }

    /// Refuses an item before anything is sent.
    pub(crate) fn refuse(&mut self, index: usize, why: &str) {
        let operation = self.operation;
        if let Some(item) = self.items.get_mut(index).filter(|item| matches!(item.state, State::Waiting)) {
            let error = Error::new(ErrorKind::InvalidRequest, operation);
            item.answered = true;
            item.state = State::Settled(Err(item.named(error, Some(why.to_owned()))));
        }
    }

    pub(crate) fn operation(&self) -> &'static str {
        self.operation
    }

    pub(crate) fn is_done(&self) -> bool {
        self.items.iter().all(|item| matches!(item.state, State::Settled(_)))
    }

    /// Whether an item waits for somebody to ask.
    pub(crate) fn is_waiting(&self) -> bool {
        self.items.iter().any(|item| matches!(item.state, State::Waiting))
    }

    /// Whether what the picture of the cluster says of the waiting items is out of date.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    /// The routes of the items that wait, each once.
    pub(crate) fn routes(&self) -> BTreeSet<&Route> {
        let waiting = self.items.iter().filter(|item| matches!(item.state, State::Waiting));
        waiting.map(|item| &item.route).collect()
    }

    /// Coordinators that turned out to be somebody else.
    pub(crate) fn take_forgotten(&mut self) -> BTreeSet<(String, i32)> {
        std::mem::take(&mut self.forget)
    }

    /// Whom to ask about which items; `None` is any broker. `fresh` tells that what `place` knows of the cluster
    /// was fetched after the last failure.
    pub(crate) fn poll_output(
        &mut self,
        now: Instant,
        fresh: bool,
        place: impl Fn(&Route) -> Place,
    ) -> BTreeMap<Option<i32>, Vec<usize>> {
        let mut asks: BTreeMap<Option<i32>, Vec<usize>> = BTreeMap::new();
        self.stale = false;
        let operation = self.operation;
        for (index, item) in self.items.iter_mut().enumerate() {
            if !matches!(item.state, State::Waiting) {
                continue;
            }
            match place(&item.route) {
                Place::Any => {
                    item.state = State::Asked(None);
                    asks.entry(None).or_default().push(index);
                }
                Place::Node(node) => {
                    item.state = State::Asked(Some(node));
                    asks.entry(Some(node)).or_default().push(index);
                }
                Place::Later(error) => {
                    self.stale |= !matches!(item.route, Route::Group(_));
                    item.reason = Some(error);
                }
                Place::Absent => {
                    self.stale = true;
                    if fresh && item.deny(now) {
                        let kind = match item.route {
                            Route::Leader(..) => ErrorKind::UnknownTopic,
                            _ => ErrorKind::Disconnected,
                        };
                        let words = (kind == ErrorKind::Disconnected)
                            .then(|| "it is not among the brokers of the cluster".to_owned());
                        let error = item.named(Error::new(kind, operation), words);
                        item.answered = true;
                        item.state = State::Settled(Err(error));
                    }
                }
                Place::Never(error) => item.settle_failed(operation, &error),
            }
        }
        asks
    }

    /// Takes in what a broker answered about the items it was asked about; an item it left out is refused.
    pub(crate) fn handle_answers(&mut self, now: Instant, asked: &[usize], answers: Vec<(usize, Answer<T>)>) {
        for (index, answer) in answers {
            self.handle_answer(now, index, answer);
        }
        for index in asked {
            if self.items.get(*index).is_some_and(|item| matches!(item.state, State::Asked(_))) {
                let text = "it is missing from the broker's answer".to_owned();
                self.handle_answer(
                    now,
                    *index,
                    Err(Refusal::new(ErrorCode::UNKNOWN_SERVER_ERROR, Some(text))),
                );
            }
        }
    }

    fn handle_answer(&mut self, now: Instant, index: usize, answer: Answer<T>) {
        let (operation, changes) = (self.operation, self.changes);
        let Some(item) = self.items.get_mut(index) else { return };
        let State::Asked(node) = item.state else { return };
        item.answered = true;
        let refusal = match answer {
            Ok(result) => {
                item.state = State::Settled(Ok(result));
                return;
            }
            Err(refusal) => refusal,
        };
        let again = match class(refusal.code, &item.route) {
            Class::Refused => false,
            Class::Denied => {
                let denied = item.deny(now);
                self.stale |= !denied;
                !denied
            }
            Class::Again => true,
            Class::Elsewhere => {
                match (&item.route, node) {
                    (Route::Group(group), Some(node)) => {
                        self.forget.insert((group.clone(), node));
                    }
                    _ => self.stale = true,
                }
                true
            }
        };
        if !again {
            item.settle_refused(operation, &refusal);
            return;
        }
        // It may have begun all the same.
        item.lost |= changes && refusal.code == ErrorCode::REQUEST_TIMED_OUT;
        item.reason = Some(item.named(Error::broker(refusal.code, operation), Some(refusal.words())));
        item.state = State::Waiting;
    }

    /// A request got no answer.
    pub(crate) fn handle_failure(&mut self, asked: &[usize], failure: &Failure) {
        let Failure { error, sent } = failure;
        let passing = passes(error);
        for index in asked {
            let Some(item) = self.items.get_mut(*index) else { continue };
            let State::Asked(node) = item.state else { continue };
            if !passing {
                item.settle_failed(self.operation, error);
                continue;
            }
            item.lost |= self.changes && *sent;
            item.reason = Some(error.clone());
            item.state = State::Waiting;
            match (&item.route, node) {
                (Route::Group(group), Some(node)) => {
                    self.forget.insert((group.clone(), node));
                }
                _ => self.stale = true,
            }
        }
    }

    /// The picture of the cluster could not be had.
    pub(crate) fn handle_no_metadata(&mut self, error: &Error) {
        let passing = passes(error);
        for item in self.items.iter_mut().filter(|item| matches!(item.state, State::Waiting)) {
            if passing {
                item.reason = Some(error.clone());
            } else {
                item.settle_failed(self.operation, error);
            }
        }
        self.stale = true;
    }

    /// The time is up: what is open has timed out.
    pub(crate) fn expire(&mut self) {
        let operation = self.operation;
        for item in &mut self.items {
            if matches!(item.state, State::Settled(_)) {
                continue;
            }
            if self.changes && matches!(item.state, State::Asked(_)) {
                item.lost = true;
            }
            let words = item.lost.then(|| "whether it was carried out is not known".to_owned());
            let mut error = item.named(Error::new(ErrorKind::Timeout, operation), words);
            if let Some(reason) = item.reason.take() {
                error = error.with_source(reason);
            }
            item.state = State::Settled(Err(error));
        }
    }

    /// What became of the items, in the order they were given in.
    pub(crate) fn into_settled(mut self) -> Vec<Settled<T>> {
        self.expire();
        let results = self.items.into_iter().filter_map(|item| match item.state {
            State::Settled(result) => Some(Settled { result, answered: item.answered }),
            State::Waiting | State::Asked(_) => None,
        });
        results.collect()
    }
}

impl<T> Item<T> {
    fn named(&self, error: Error, words: Option<String>) -> Error {
        named(&self.subject, &self.route, error, words)
    }

    /// Somebody says there is no such thing. Answers whether that is believed now.
    fn deny(&mut self, now: Instant) -> bool {
        let (since, times) = self.denied.get_or_insert((now, 0));
        *times += 1;
        *times >= 2 && now.saturating_duration_since(*since) >= ABSENT_GRACE
    }

    fn settle_refused(&mut self, operation: &'static str, refusal: &Refusal) {
        let words = match self.lost {
            true => format!(
                "{} (an earlier attempt of this call lost its answer and may have been carried out)",
                refusal.words()
            ),
            false => refusal.words(),
        };
        self.answered = true;
        self.state = State::Settled(Err(self.named(Error::broker(refusal.code, operation), Some(words))));
    }

    fn settle_failed(&mut self, operation: &'static str, error: &Error) {
        self.answered |= matches!(error.kind(), ErrorKind::Authorization | ErrorKind::Broker(_));
        let own = Error::new(error.kind(), operation).with_source(error.clone());
        self.state = State::Settled(Err(self.named(own, None)));
    }
}

/// The result of the whole call: an error only where nobody answered for any item.
pub(crate) fn whole<T>(settled: Vec<Settled<T>>) -> Result<Vec<Result<T>>> {
    let mut silent = settled.iter().all(|item| !item.answered);
    let mut results = Vec::with_capacity(settled.len());
    for item in settled {
        match item.result {
            Err(error) if silent => return Err(error),
            result => {
                silent = false;
                results.push(result);
            }
        }
    }
    Ok(results)
}

/// The error, naming what it is about; `words` are the code's name and the broker's own text.
fn named(subject: &Subject, route: &Route, error: Error, words: Option<String>) -> Error {
    let (error, about) = match subject {
        Subject::Cluster | Subject::Group(_) => (error, None),
        Subject::Member(member) => (error, Some(format!("member {member:?}"))),
        Subject::Node(node) => (error, Some(format!("node {node}"))),
        Subject::Partition(topic, partition) => (error.with_partition(*topic, *partition), None),
        Subject::Resource(resource) => match resource.kind() {
            ResourceType::Group => (error.with_group(resource.name()), None),
            ResourceType::Topic => (error.with_topic(resource.name()), None),
            ResourceType::Broker | ResourceType::ClientMetrics => (error, Some(resource.to_string())),
        },
        Subject::Topic(topic) => (error.with_topic(*topic), None),
    };
    let error = match route {
        Route::Group(group) => error.with_group(group.as_str()),
        _ => error,
    };
    match (about, words) {
        (Some(about), Some(words)) => error.with_detail(format!("{about}: {words}")),
        (Some(about), None) => error.with_detail(about),
        (None, Some(words)) => error.with_detail(words),
        (None, None) => error,
    }
}

/// What to do about a code.
enum Class {
    /// The same broker, in a moment.
    Again,
    /// The broker may not know yet.
    Denied,
    /// Another broker may be the right one now.
    Elsewhere,
    /// It is final.
    Refused,
}

fn class(code: ErrorCode, route: &Route) -> Class {
    match code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID => match route {
            // The controller knows every topic there is.
            Route::Controller => Class::Refused,
            _ => Class::Denied,
        },
        ErrorCode::NOT_CONTROLLER
        | ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::LEADER_NOT_AVAILABLE
        | ErrorCode::FENCED_LEADER_EPOCH
        | ErrorCode::UNKNOWN_LEADER_EPOCH
        | ErrorCode::REPLICA_NOT_AVAILABLE
        | ErrorCode::KAFKA_STORAGE_ERROR
        | ErrorCode::NOT_COORDINATOR
        | ErrorCode::COORDINATOR_NOT_AVAILABLE
        | ErrorCode::REQUEST_TIMED_OUT => Class::Elsewhere,
        code if code.is_retriable() => Class::Again,
        _ => Class::Refused,
    }
}

#[cfg(test)]
mod tests;
