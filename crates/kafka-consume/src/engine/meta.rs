//! What new metadata changes: leaders, epochs, replicas that left, topics that went away or came back under
//! another id. Pure.

use std::time::{Duration, Instant};

use kafka_meta::client::{Snapshot, Topic};
use kafka_meta::{Error, ErrorCode, ErrorKind};
use tracing::{info, warn};

use super::core::{Core, Id};
use crate::config::OffsetReset;
use crate::position::{Absent, Fault, Leader, REMIND_AFTER, State, Target, Why};

/// A topic made a moment ago is unknown to some brokers for tens of milliseconds, on loaded ones for longer.
const ABSENT_FOR: Duration = Duration::from_secs(2);
/// How often metadata is asked for again about a partition whose absence was told.
const ABSENT_ASKED: Duration = Duration::from_secs(5);

impl Core {
    /// Takes a new picture of the cluster.
    pub fn handle_snapshot(&mut self, now: Instant, snapshot: &Snapshot) {
        let ids: Vec<Id> = self.each().map(|(id, _)| id).collect();
        for id in ids {
            let Some(partition) = self.get(id) else { continue };
            let (name, index) = (partition.topic, partition.index);
            match snapshot.topic(name) {
                None => self.lose_leader(id),
                Some(topic) if topic.error == ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                    self.lose_leader(id);
                    let error = Error::broker(topic.error, "metadata").with_topic(name);
                    self.tell(now, id, error, true);
                }
                Some(topic) if topic.error == ErrorCode::INVALID_TOPIC_EXCEPTION => {
                    self.lose_leader(id);
                    let error = Error::new(ErrorKind::InvalidRequest, "metadata")
                        .with_topic(name)
                        .with_detail("INVALID_TOPIC_EXCEPTION (17)");
                    self.halt(now, id, error);
                }
                Some(topic) => match topic.partition(index) {
                    None => self.handle_absent(now, id, topic),
                    Some(found) => {
                        self.handle_topic_id(now, id, topic);
                        let leader = found.leader.map(|node| Leader { node, epoch: found.leader_epoch });
                        let gone = |node: i32| {
                            !snapshot.brokers.contains_key(&node)
                                || found.offline.contains(&node)
                                || !found.replicas.contains(&node)
                        };
                        self.handle_leader(id, leader, gone);
                    }
                },
            }
        }
        self.effects.supervisor = true;
    }

    fn lose_leader(&mut self, id: Id) {
        if let Some(partition) = self.get_mut(id) {
            partition.leader = None;
            partition.absent = None;
        }
    }

    /// The topic, or this partition of it, does not exist as far as the cluster knows.
    fn handle_absent(&mut self, now: Instant, id: Id, topic: &Topic) {
        let known = topic.error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION || topic.error.is_none();
        let Some(partition) = self.get_mut(id) else { return };
        partition.leader = None;
        partition.preferred = None;
        if !known {
            partition.absent = None;
            return;
        }
        // A group may assign what this picture is too old for: the next one is asked for at once.
        let mut absent = partition.absent.unwrap_or(Absent { since: now, told: false, ask_at: now });
        let asks = now >= absent.ask_at;
        if asks {
            absent.ask_at = now + if absent.told { ABSENT_ASKED } else { ABSENT_FOR };
        }
        let tells = !absent.told && now >= absent.since + ABSENT_FOR;
        absent.told |= tells;
        partition.absent = Some(absent);
        let error = tells.then(|| {
            Error::new(ErrorKind::UnknownTopic, "metadata").with_partition(partition.topic, partition.index)
        });
        self.effects.refresh |= asks;
        if let Some(error) = error {
            self.tell(now, id, error, false);
        }
    }

    /// When what metadata says has to be looked at again without being new: an absence lasts, or a follower's
    /// lease ends.
    pub(super) fn next_review_at(&self) -> Option<Instant> {
        self.each()
            .flat_map(|(_, partition)| {
                let leased = partition.preferred.map(|preferred| preferred.until);
                [partition.absent.map(|absent| absent.ask_at), leased]
            })
            .flatten()
            .min()
    }

    /// Preferences whose lease has ended: the leader's fetcher may be waiting, or gone.
    pub(super) fn end_leases(&mut self, now: Instant) {
        let mut ended = false;
        for (_, partition) in self.each_mut() {
            if partition.preferred.take_if(|preferred| preferred.until <= now).is_some() {
                ended = true;
            }
        }
        self.effects.fetchers |= ended;
    }

    /// Another id under the same name is another topic: nothing known of the old one holds.
    fn handle_topic_id(&mut self, now: Instant, id: Id, topic: &Topic) {
        let reset = self.settings.reset.clone();
        let Some(partition) = self.get_mut(id) else { return };
        let was = partition.topic_id;
        if topic.id.is_nil() || topic.id == was {
            return;
        }
        partition.topic_id = topic.id;
        if was.is_nil() {
            return;
        }
        let (name, index) = (partition.topic, partition.index);
        info!(topic = %name, partition = index, "the topic was deleted and created again: starting by the reset policy");
        partition.high_watermark = None;
        partition.last_stable_offset = None;
        partition.log_start = None;
        partition.end_at_start = None;
        partition.leader = None;
        partition.preferred = None;
        match target_of(&reset) {
            Some(target) => self.seek_by_lookup(now, id, target, Why::Reset),
            None => {
                self.renew(id);
                if let Some(partition) = self.get_mut(id) {
                    partition.consumed = None;
                    partition.fetch = None;
                }
                let error = Error::new(ErrorKind::NoOffset, "metadata")
                    .with_partition(name, index)
                    .with_detail("the topic was deleted and created again");
                self.halt(now, id, error);
            }
        }
    }

    fn handle_leader(&mut self, id: Id, leader: Option<Leader>, gone: impl Fn(i32) -> bool) {
        let Some(partition) = self.get_mut(id) else { return };
        partition.absent = None;
        // What metadata said before, it has taken back. A right to read is for the leader to judge.
        if let Some(fault) = &partition.fault
            && (fault.error.kind() == ErrorKind::UnknownTopic
                || fault.error.kind() == ErrorKind::Authorization && fault.error.operation() == "metadata")
        {
            partition.fault = None;
        }
        if partition.preferred.is_some_and(|preferred| gone(preferred.node)) {
            partition.preferred = None;
        }
        if partition.leader != leader {
            partition.leader = leader;
            partition.preferred = None;
            if leader.is_some() {
                partition.retry.clear();
                // A question to the old leader may wait for a timeout; the new one is asked at once. One to the
                // group's storage does not depend on it.
                if !matches!(partition.state, State::Seeking { target: Target::Committed(_), .. }) {
                    partition.looking = None;
                }
            }
            self.effects.fetchers = true;
        }
    }

    /// Tells the caller of a fault; the partition goes on trying. `again`: it is told every minute while it
    /// lasts, else once.
    pub(super) fn tell(&mut self, now: Instant, id: Id, error: Error, again: bool) {
        let Some(partition) = self.get_mut(id) else { return };
        match &mut partition.fault {
            Some(fault) if fault.error.kind() == error.kind() => {
                fault.error = error;
                if again && fault.tell_at.is_none() {
                    fault.tell_at = Some(now + REMIND_AFTER);
                }
            }
            fault => {
                warn!(%error, "a partition cannot be read for now");
                *fault = Some(Fault { error, tell_at: Some(now) });
                self.faulty = true;
                self.effects.poll = true;
                self.effects.settled = true;
            }
        }
    }

    /// Stops a partition until the caller seeks.
    pub(super) fn halt(&mut self, now: Instant, id: Id, error: Error) {
        let Some(partition) = self.get_mut(id) else { return };
        let told = partition.fault.as_ref().is_some_and(|fault| fault.error.kind() == error.kind());
        if matches!(partition.state, State::Stopped) && told {
            return;
        }
        warn!(%error, "a partition is stopped until a seek");
        partition.state = State::Stopped;
        partition.looking = None;
        partition.asked = None;
        partition.fault = Some(Fault { error, tell_at: Some(now) });
        self.faulty = true;
        self.effects.poll = true;
        self.effects.settled = true;
    }
}

/// What the reset policy looks up; `None` when it is to stop.
pub(super) fn target_of(reset: &OffsetReset) -> Option<Target> {
    match reset {
        OffsetReset::Earliest => Some(Target::Earliest),
        OffsetReset::Latest => Some(Target::Latest),
        OffsetReset::None => None,
        OffsetReset::ByDuration(age) => Some(Target::Age(*age)),
    }
}
