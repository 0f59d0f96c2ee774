//! Which partitions of a look-up are still open, and what an answer means for them. Pure: no network, no clock.
//!
//! A partition **waits** for a leader, is **asked**, and goes back to waiting when the answer was a passing
//! failure, or is **found**.
//!
//! Invariants
//! - A partition is with one leader at a time.
//! - After a passing failure the cached metadata is stale: no leader is taken from it before it was fetched anew.
//! - A topic or partition counts as absent when fresh metadata has denied it twice, and not within
//!   [`ABSENT_GRACE`] of the first time: brokers learn of a new topic one after the other. Waiting for it until
//!   the deadline, as Java does, tells nobody about a misspelt name for a minute.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use kafka_meta::client::offsets::{Answer, Ask, Found, OPERATION, Target, negative};
use kafka_meta::client::{Leader, passes};
use kafka_meta::{Error, ErrorCode, ErrorKind, Result, TopicName};

/// First pause after a passing failure.
pub(super) const BACKOFF: Duration = Duration::from_millis(100);
/// Longest pause.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// See the invariants above.
const ABSENT_GRACE: Duration = Duration::from_secs(1);

type Key = (TopicName, i32);

#[derive(Debug)]
pub(super) struct Search {
    items: BTreeMap<Key, Item>,
    found: HashMap<Key, Option<Found>>,
    stale: bool,
    reason: Option<Error>,
}

#[derive(Debug)]
struct Item {
    target: Target,
    asked: bool,
    denied: Option<Denied>,
}

#[derive(Clone, Copy, Debug)]
struct Denied {
    since: Instant,
    times: u32,
}

impl Search {
    pub(super) fn new(targets: Vec<(TopicName, i32, Target)>) -> Result<Self> {
        let mut items = BTreeMap::new();
        for (topic, partition, target) in targets {
            if target.wire().is_none() {
                return Err(negative(topic, partition));
            }
            items.insert((topic, partition), Item { target, asked: false, denied: None });
        }
        Ok(Search { items, found: HashMap::new(), stale: false, reason: None })
    }

    pub(super) fn is_done(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether a partition waits for a leader.
    pub(super) fn is_waiting(&self) -> bool {
        self.items.values().any(|item| !item.asked)
    }

    /// Whether the leaders have to be fetched anew.
    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    /// The topics of partitions that wait.
    pub(super) fn topics(&self) -> Vec<TopicName> {
        let mut topics: Vec<_> =
            self.items.iter().filter(|(_, item)| !item.asked).map(|((topic, _), _)| *topic).collect();
        topics.dedup();
        topics
    }

    /// Whom to ask what. `fresh` tells that what `leader` knows was fetched after the last failure.
    pub(super) fn poll_output(
        &mut self,
        now: Instant,
        fresh: bool,
        leader: impl Fn(TopicName, i32) -> Leader,
    ) -> Result<BTreeMap<i32, Vec<Ask>>> {
        let mut asks: BTreeMap<i32, Vec<Ask>> = BTreeMap::new();
        self.stale = false;
        for ((topic, partition), item) in self.items.iter_mut().filter(|(_, item)| !item.asked) {
            match leader(*topic, *partition) {
                Leader::Node(node, leader_epoch) => {
                    (item.asked, item.denied) = (true, None);
                    let (topic, partition, target) = (*topic, *partition, item.target);
                    asks.entry(node).or_default().push(Ask { topic, partition, leader_epoch, target });
                    continue;
                }
                Leader::Absent if fresh => {
                    let denied = item.denied.get_or_insert(Denied { since: now, times: 0 });
                    denied.times += 1;
                    if denied.times >= 2 && now.saturating_duration_since(denied.since) >= ABSENT_GRACE {
                        return Err(
                            Error::new(ErrorKind::UnknownTopic, OPERATION).with_partition(*topic, *partition)
                        );
                    }
                }
                Leader::Absent => {}
                Leader::Refused(code) => {
                    return Err(Error::broker(code, OPERATION).with_partition(*topic, *partition));
                }
                Leader::None => {
                    item.denied = None;
                    self.reason = Some(
                        Error::broker(ErrorCode::LEADER_NOT_AVAILABLE, OPERATION)
                            .with_partition(*topic, *partition),
                    );
                }
            }
            self.stale = true;
        }
        Ok(asks)
    }

    pub(super) fn handle_answers(&mut self, answers: Vec<(TopicName, i32, Answer)>) -> Result<()> {
        for (topic, partition, answer) in answers {
            let key = (topic, partition);
            let Some(item) = self.items.get_mut(&key) else { continue };
            match answer {
                Ok(found) => {
                    self.items.remove(&key);
                    self.found.insert(key, found);
                }
                Err(code) => {
                    let error = Error::broker(code, OPERATION).with_partition(topic, partition);
                    // -1 is what a broker says when it does not know itself what went wrong.
                    if !code.is_retriable() && code != ErrorCode::UNKNOWN_SERVER_ERROR {
                        return Err(error);
                    }
                    item.asked = false;
                    self.stale = true;
                    self.reason = Some(error);
                }
            }
        }
        Ok(())
    }

    pub(super) fn handle_failure(&mut self, asks: &[Ask], error: Error) -> Result<()> {
        if !passes(&error) {
            return Err(error);
        }
        for ask in asks {
            if let Some(item) = self.items.get_mut(&(ask.topic, ask.partition)) {
                item.asked = false;
            }
        }
        self.stale = true;
        self.reason = Some(error);
        Ok(())
    }

    pub(super) fn handle_no_metadata(&mut self, error: Error) -> Result<()> {
        if !passes(&error) {
            return Err(error);
        }
        self.reason = Some(error);
        Ok(())
    }

    pub(super) fn timed_out(&self) -> Error {
        let mut error = Error::new(ErrorKind::Timeout, OPERATION);
        if let Some((topic, partition)) = self.items.keys().next() {
            error = error.with_partition(*topic, *partition);
        }
        match &self.reason {
            Some(reason) => error.with_source(reason.clone()),
            None => error,
        }
    }

    pub(super) fn into_found(self) -> HashMap<Key, Option<Found>> {
        self.found
    }
}

#[cfg(test)]
mod tests;
