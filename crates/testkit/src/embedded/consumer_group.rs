//! A group of the new protocol (KIP-848) as its coordinator keeps it.
//!
//! Pure: time comes in as an argument; timers are looked at whenever the group is. The group's epoch rises with
//! every change of members, subscriptions or topics; a target is computed for it (at once, or an interval later);
//! each member walks to the target by itself: first it gives up what it must, then it takes what is free.
//!
//! States of a member: stable, unrevoked (told to give partitions up, keeps its epoch), unreleased (has the new
//! epoch, waits for partitions others still hold). Invariant: a partition is assigned to, or being revoked from,
//! at most one member.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

mod heartbeat;
mod pattern;
mod target;

pub(super) use pattern::Pattern;

pub(super) type Place = (Uuid, i32);
pub(super) type Places = BTreeSet<Place>;

/// A topic as an assignor sees it: id and number of partitions.
pub(super) type Topics = BTreeMap<String, (Uuid, i32)>;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Stable,
    Unrevoked,
    Unreleased,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub client_id: String,
    pub instance: Option<String>,
    pub rebalance_timeout: Duration,
    pub names: BTreeSet<String>,
    pub pattern: Option<Pattern>,
    /// A pattern is resolved after the first answer.
    pub resolved: bool,
    pub epoch: i32,
    pub previous_epoch: i32,
    pub state: State,
    pub assigned: Places,
    pub revoking: Places,
    /// The member's epoch when it got each partition.
    pub since: BTreeMap<Place, i32>,
    pub session_until: Instant,
    pub revoke_until: Option<Instant>,
}

impl Member {
    /// Whether the member wants this topic.
    pub fn wants(&self, topic: &str) -> bool {
        self.names.contains(topic)
            || self.resolved && self.pattern.as_ref().is_some_and(|pattern| pattern.matches(topic))
    }

    fn move_to(&mut self, state: State, epoch: i32, assigned: Places, revoking: Places) {
        if epoch != self.epoch {
            self.previous_epoch = self.epoch;
            self.epoch = epoch;
        }
        self.since.retain(|place, _| assigned.contains(place));
        for place in &assigned {
            self.since.entry(*place).or_insert(epoch);
        }
        (self.state, self.assigned, self.revoking) = (state, assigned, revoking);
    }
}

/// What differs between groups of a cluster's brokers, and what a test may set.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    pub session: Duration,
    pub heartbeat: Duration,
    /// The target of a changed group comes this much after the one before.
    pub assignment_interval: Duration,
    /// 3.9 and 4.0 refuse epoch 0 of a member that has moved on, 4.3 takes it as a rejoin.
    pub rejoin_always: bool,
    pub max_size: usize,
    /// What a group's own session timeout may be.
    pub session_limits: (Duration, Duration),
    /// What a group's own heartbeat interval may be.
    pub heartbeat_limits: (Duration, Duration),
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            session: Duration::from_secs(45),
            heartbeat: Duration::from_secs(5),
            assignment_interval: Duration::ZERO,
            rejoin_always: true,
            max_size: usize::MAX,
            session_limits: (Duration::from_secs(45), Duration::from_secs(60)),
            heartbeat_limits: (Duration::from_secs(5), Duration::from_secs(15)),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ConsumerGroup {
    pub members: BTreeMap<String, Member>,
    pub epoch: i32,
    target_epoch: i32,
    target: BTreeMap<String, Places>,
    target_at: Option<Instant>,
    /// The topics the last epoch was made for.
    topics: Topics,
    /// A pattern was resolved: the same topics may be for more members.
    resolved: bool,
    made: u64,
}

impl ConsumerGroup {
    /// Ids of a broker's making: 22 characters.
    fn make_id(&mut self) -> String {
        self.made = self.made.saturating_add(1);
        format!("embedded-member-{:06}", self.made)
    }

    /// Removes members whose session or time to revoke is over.
    pub fn expire(&mut self, now: Instant) {
        let over = |member: &Member| {
            now >= member.session_until || member.revoke_until.is_some_and(|until| now >= until)
        };
        let gone: Vec<String> =
            self.members.iter().filter(|(_, member)| over(member)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            self.remove(&id);
        }
    }

    pub fn remove(&mut self, id: &str) -> bool {
        let known = self.members.remove(id).is_some();
        if known {
            self.target.remove(id);
            self.epoch = self.epoch.saturating_add(1);
        }
        known
    }

    /// A moved coordinator starts the session timers anew.
    pub fn restart_sessions(&mut self, now: Instant, timing: &Timing) {
        for member in self.members.values_mut() {
            member.session_until = now + timing.session;
        }
    }

    /// What the group is doing, in Kafka's words.
    pub fn state(&self) -> &'static str {
        if self.members.is_empty() {
            return "Empty";
        }
        if self.epoch > self.target_epoch {
            return "Assigning";
        }
        let settled = |member: &Member| member.state == State::Stable && member.epoch == self.target_epoch;
        if self.members.values().all(settled) { "Stable" } else { "Reconciling" }
    }

    pub fn target_epoch(&self) -> i32 {
        self.target_epoch
    }

    /// What a member is to have.
    pub fn target_of(&self, id: &str) -> Places {
        self.target.get(id).cloned().unwrap_or_default()
    }

    /// Takes a static member out by its instance id, as an administrator does: 0 or 25.
    pub fn remove_instance(&mut self, instance: &str) -> i16 {
        let id = self.by_instance(instance).map(str::to_owned);
        if id.is_some_and(|id| self.remove(&id)) { 0 } else { 25 }
    }

    pub fn by_instance(&self, instance: &str) -> Option<&str> {
        let found = self.members.iter().find(|(_, member)| member.instance.as_deref() == Some(instance));
        found.map(|(id, _)| id.as_str())
    }

    /// Brings epoch and target up to date with the members and the cluster's topics.
    fn update_target(&mut self, topics: &Topics, now: Instant, timing: &Timing) {
        let wanted: Topics = topics
            .iter()
            .filter(|(name, _)| self.members.values().any(|member| member.wants(name)))
            .map(|(name, topic)| (name.clone(), *topic))
            .collect();
        let resolved = std::mem::take(&mut self.resolved);
        if wanted != self.topics || resolved {
            self.topics = wanted;
            self.epoch = self.epoch.saturating_add(1);
        }
        let waits = self.target_at.is_some_and(|at| now < at + timing.assignment_interval);
        if self.epoch > self.target_epoch && !waits {
            self.target = target::compute(&self.members, &self.target, &self.topics);
            self.target_epoch = self.epoch;
            self.target_at = Some(now);
        }
    }

    /// Walks one member towards the target. `owned` is what it says it owns, `None` when it does not say.
    fn reconcile(&mut self, id: &str, owned: Option<&Places>, now: Instant) {
        let Some(member) = self.members.get(id) else { return };
        let still_owns =
            |places: &Places| owned.is_none_or(|owned| places.iter().any(|place| owned.contains(place)));
        let epoch = match member.state {
            State::Stable if member.epoch == self.target_epoch => return,
            State::Unrevoked if still_owns(&member.revoking) => return,
            // All given up: it may have the epoch it was held back from.
            State::Unrevoked => self.target_epoch,
            State::Stable | State::Unreleased => member.epoch,
        };
        let goal = self.target.get(id).cloned().unwrap_or_default();
        let kept: Places = member.assigned.intersection(&goal).copied().collect();
        let lost: Places = member.assigned.difference(&goal).copied().collect();
        let missing: Places = goal.difference(&kept).copied().collect();
        let taken = |place: &Place| {
            self.members.iter().any(|(other, held)| {
                other != id && (held.assigned.contains(place) || held.revoking.contains(place))
            })
        };
        let (blocked, free): (Places, Places) = missing.into_iter().partition(taken);
        let must_revoke = !lost.is_empty() && still_owns(&lost);
        let target_epoch = self.target_epoch;
        let Some(member) = self.members.get_mut(id) else { return };
        if must_revoke {
            member.move_to(State::Unrevoked, epoch, kept, lost);
            member.revoke_until = Some(now + member.rebalance_timeout);
            return;
        }
        member.revoke_until = None;
        let assigned: Places = kept.union(&free).copied().collect();
        let state = if blocked.is_empty() { State::Stable } else { State::Unreleased };
        member.move_to(state, target_epoch, assigned, Places::new());
    }

    /// Whether an offset of this partition may be committed: 0, 25 or 113.
    pub fn may_commit(&self, id: &str, epoch: i32, place: Option<Place>) -> i16 {
        let Some(member) = self.members.get(id) else { return 25 };
        let since = place.and_then(|place| member.since.get(&place));
        if epoch == member.epoch || since.is_some_and(|since| (*since..member.epoch).contains(&epoch)) {
            0
        } else {
            113
        }
    }
}
