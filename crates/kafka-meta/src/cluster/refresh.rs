//! When to ask for metadata, and about what; pure.
//!
//! What this is not: it merges nothing and picks no node.
//!
//! States: *resting* until something is due, *asking* while a round is under way. A round is due when the picture
//! is too old, when somebody asked for an early one, or when somebody wants a topic it does not cover.
//!
//! Invariants:
//! - One round at a time, and everything asked for while it runs is one next round.
//! - After a failure, and after an answer that brought nothing new, rounds come further and further apart
//!   (100 ms to 1 s, jittered); an answer that changed something starts over at 100 ms. Only a topic that was
//!   never asked about may go before that, and only while rounds succeed.
//! - A round started after a call is numbered above every round the call may have seen.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::merge::{Scope, Wanted};
use crate::TopicName;
use crate::client::Backoff;

/// How long a topic asked about once stays in the refresh, as in Java's producer.
const RECENT: Duration = Duration::from_secs(300);

/// Without an answer for this long, the brokers known are taken for gone (KIP-1102).
const REBOOTSTRAP: Duration = Duration::from_secs(300);

/// How old a picture may get in which somebody is refused a topic: a right that was granted shows nowhere else.
const DENIED: Duration = Duration::from_secs(3);

/// Rounds this much later than they might have come count as unrelated to the ones before.
const CALM: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
enum Wish {
    All,
    Some(BTreeSet<TopicName>),
}

/// A round to run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Round {
    pub(crate) number: u64,
    pub(crate) scope: Scope,
    /// Ask the bootstrap addresses before the brokers known.
    pub(crate) rebootstrap: bool,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Refresh {
    max_age: Duration,
    /// Somebody is refused a topic.
    denied: bool,
    interests: HashMap<u64, Wish>,
    next_interest: u64,
    recent: HashMap<TopicName, Instant>,
    covered: Option<Covered>,
    early: bool,
    /// A topic was asked about for the first time.
    fresh: bool,
    asking: Option<Round>,
    started: u64,
    backoff: Backoff,
    not_before: Option<Instant>,
    last_answer: Option<Instant>,
    failing_since: Option<Instant>,
    rebootstrap: bool,
}

#[derive(Debug)]
struct Covered {
    all: bool,
    topics: BTreeSet<TopicName>,
}

impl Refresh {
    pub(crate) fn new(max_age: Duration) -> Self {
        Refresh {
            max_age,
            denied: false,
            interests: HashMap::new(),
            next_interest: 0,
            recent: HashMap::new(),
            covered: None,
            early: false,
            fresh: false,
            asking: None,
            started: 0,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(1)),
            not_before: None,
            last_answer: None,
            failing_since: None,
            rebootstrap: false,
        }
    }

    /// A new interest, covering nothing.
    pub(crate) fn interest(&mut self) -> u64 {
        self.next_interest += 1;
        self.next_interest
    }

    pub(crate) fn set_interest(&mut self, id: u64, topics: impl IntoIterator<Item = TopicName>) {
        let topics: BTreeSet<_> = topics.into_iter().collect();
        for topic in &topics {
            self.note(*topic);
        }
        self.interests.insert(id, Wish::Some(topics));
    }

    pub(crate) fn set_interest_all(&mut self, id: u64) {
        if !self.covered.as_ref().is_some_and(|covered| covered.all) {
            self.fresh = true;
        }
        self.interests.insert(id, Wish::All);
    }

    pub(crate) fn drop_interest(&mut self, id: u64) {
        self.interests.remove(&id);
    }

    fn note(&mut self, topic: TopicName) {
        let is_covered =
            self.covered.as_ref().is_some_and(|covered| covered.all || covered.topics.contains(&topic));
        if !is_covered {
            self.fresh = true;
        }
    }

    /// Somebody wants a picture fetched from now on that covers `topics`: the number of the round to wait for.
    pub(crate) fn want(&mut self, now: Instant, topics: &[TopicName]) -> u64 {
        for topic in topics {
            self.note(*topic);
            self.recent.insert(*topic, now);
        }
        self.early = true;
        self.started + 1
    }

    /// What is covered is no longer what was asked.
    pub(crate) fn forgot(&mut self) {
        self.fresh = true;
    }

    /// The last answer refused topics that somebody wants, or did not.
    pub(crate) fn note_denied(&mut self, denied: bool) {
        self.denied = denied;
    }

    fn age(&self) -> Duration {
        if self.denied { self.max_age.min(DENIED) } else { self.max_age }
    }

    /// Somebody suspects the picture.
    pub(crate) fn suspect(&mut self) {
        self.early = true;
    }

    /// No broker known is worth asking: start from the bootstrap addresses (KIP-899, error 129).
    pub(crate) fn rebootstrap(&mut self) {
        self.rebootstrap = true;
        self.early = true;
    }

    /// Who wants a topic.
    pub(crate) fn wanted(&self, topic: TopicName) -> Wanted {
        let mut wanted = if self.recent.contains_key(&topic) { Wanted::Lately } else { Wanted::No };
        for wish in self.interests.values() {
            match wish {
                Wish::Some(topics) if topics.contains(&topic) => return Wanted::Standing,
                Wish::Some(_) => {}
                // Who wants to know of every topic does not need the leader of each: one partition without a
                // leader in a large cluster must not fetch all of its metadata every second.
                Wish::All => wanted = Wanted::Lately,
            }
        }
        wanted
    }

    fn scope(&self) -> Scope {
        let mut union: BTreeSet<_> = self.recent.keys().copied().collect();
        for wish in self.interests.values() {
            match wish {
                Wish::All => return Scope::All,
                Wish::Some(topics) => union.extend(topics),
            }
        }
        Scope::Some(union.into_iter().collect())
    }

    /// When the next round is due, if nothing else happens; `None` while one runs.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if self.asking.is_some() {
            return None;
        }
        let Some(last) = self.last_answer else {
            return self.not_before;
        };
        if self.failing_since.is_some() || self.early {
            return self.not_before;
        }
        Some(self.not_before.unwrap_or(last).max(last + self.age()))
    }

    fn is_due(&self, now: Instant) -> bool {
        if self.fresh && self.failing_since.is_none() {
            return true;
        }
        if self.not_before.is_some_and(|at| now < at) {
            return false;
        }
        let aged = self.last_answer.is_none_or(|at| now >= at + self.age());
        self.early || self.fresh || self.failing_since.is_some() || aged
    }

    /// The round to run now.
    pub(crate) fn poll_round(&mut self, now: Instant) -> Option<Round> {
        if self.asking.is_some() || !self.is_due(now) {
            return None;
        }
        self.recent.retain(|_, at| now.saturating_duration_since(*at) < RECENT);
        self.early = false;
        self.fresh = false;
        self.started += 1;
        // The last round is long over: this one is about something else.
        if self.not_before.is_some_and(|at| now >= at + CALM) && self.failing_since.is_none() {
            self.backoff.reset();
        }
        let silent = self.failing_since.is_some_and(|since| now >= since + REBOOTSTRAP);
        let rebootstrap = std::mem::take(&mut self.rebootstrap) || silent;
        let round = Round { number: self.started, scope: self.scope(), rebootstrap };
        self.asking = Some(round.clone());
        Some(round)
    }

    /// The round has an answer that was taken in. `changed`: it brought something new; `stale`: it is worth
    /// asking again.
    pub(crate) fn handle_answer(&mut self, now: Instant, random: f64, changed: bool, stale: bool) {
        let Some(round) = self.asking.take() else { return };
        self.covered = Some(match round.scope {
            Scope::All => Covered { all: true, topics: BTreeSet::new() },
            Scope::Some(topics) => Covered { all: false, topics: topics.into_iter().collect() },
        });
        self.last_answer = Some(now);
        self.failing_since = None;
        self.early |= stale;
        if changed {
            self.backoff.reset();
        }
        self.not_before = Some(now + self.backoff.next(random));
    }

    /// The round found nobody to answer. Answers whether it is the first in a row.
    pub(crate) fn handle_failure(&mut self, now: Instant, random: f64) -> bool {
        if self.asking.take().is_none() {
            return false;
        }
        let first = self.failing_since.is_none();
        self.failing_since.get_or_insert(now);
        self.not_before = Some(now + self.backoff.next(random));
        first
    }
}

#[cfg(test)]
mod tests;
