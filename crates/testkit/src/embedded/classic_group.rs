//! A group of the classic protocol as its coordinator keeps it.
//!
//! Pure: time comes in as an argument; [`ClassicGroup::advance`] does whatever has become due.
//!
//! States: empty → preparing (joins are collected) → completing (joins answered, the leader's assignment awaited)
//! → stable, and back to preparing whenever a member comes, goes or changes. Each join and sync that waits has a
//! ticket; its answer is left under that ticket. Invariants: a generation is answered to all its members or to
//! none; a member that waits for its join does not expire.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

mod beat;
mod describe;
mod join;
mod sync;

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum State {
    #[default]
    Empty,
    Preparing,
    Completing,
    Stable,
}

impl State {
    /// Kafka's name of it.
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Preparing => "PreparingRebalance",
            State::Completing => "CompletingRebalance",
            State::Stable => "Stable",
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub client_id: String,
    pub instance: Option<String>,
    /// The order of joining, which decides who leads.
    order: u64,
    session: Duration,
    rebalance: Duration,
    protocols: Vec<(String, Bytes)>,
    session_until: Instant,
    join: Option<u64>,
    sync: Option<u64>,
    assignment: Bytes,
}

impl Member {
    /// What it said of itself under a protocol.
    pub fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }
}

/// A join's answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Joined {
    pub generation: i32,
    pub protocol: String,
    pub leader: String,
    pub member: String,
    pub skip_assignment: bool,
    /// Id, instance id and metadata of every member; the leader's answer only.
    pub members: Vec<(String, Option<String>, Bytes)>,
}

#[derive(Debug, Default)]
pub(super) struct ClassicGroup {
    pub state: State,
    pub generation: i32,
    pub protocol_type: String,
    pub protocol: String,
    pub leader: Option<String>,
    pub members: BTreeMap<String, Member>,
    /// Ids that were given out (79), until when each may be brought back.
    pending: BTreeMap<String, Instant>,
    until: Option<Instant>,
    joined: HashMap<u64, Joined>,
    /// Assignments, or the code a sync is refused with.
    synced: HashMap<u64, Result<Bytes, i16>>,
    tickets: u64,
}

impl ClassicGroup {
    fn ticket(&mut self) -> u64 {
        self.tickets = self.tickets.saturating_add(1);
        self.tickets
    }

    pub fn by_instance(&self, instance: &str) -> Option<&str> {
        let found = self.members.iter().find(|(_, member)| member.instance.as_deref() == Some(instance));
        found.map(|(id, _)| id.as_str())
    }

    /// Who a request comes from: 82 when another member holds its instance id, 25 when nobody knows it.
    pub fn verify(&self, member: &str, instance: Option<&str>) -> Result<(), i16> {
        if let Some(instance) = instance {
            match self.by_instance(instance) {
                Some(owner) if owner == member => return Ok(()),
                Some(_) => return Err(82),
                None => return Err(25),
            }
        }
        if self.members.contains_key(member) { Ok(()) } else { Err(25) }
    }

    /// Whether a member may commit.
    pub fn may_commit(&mut self, member: &str, instance: Option<&str>, generation: i32, now: Instant) -> i16 {
        if let Err(code) = self.verify(member, instance) {
            return code;
        }
        if generation != self.generation {
            return 22;
        }
        if self.state == State::Completing {
            return 27;
        }
        self.touch(member, now);
        0
    }

    /// Starts a member's session anew.
    fn touch(&mut self, member: &str, now: Instant) {
        if let Some(member) = self.members.get_mut(member) {
            member.session_until = now + member.session;
        }
    }

    /// A moved coordinator starts the session timers anew.
    pub fn restart_sessions(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            member.session_until = now + member.session;
        }
    }

    /// When something becomes due by itself.
    pub fn next_deadline(&self) -> Option<Instant> {
        let sessions =
            self.members.values().filter(|member| member.join.is_none()).map(|member| member.session_until);
        sessions.chain(self.until).chain(self.pending.values().copied()).min()
    }

    /// Does what is due; whether anything changed.
    pub fn advance(&mut self, now: Instant) -> bool {
        let mut changed = false;
        let over = |member: &Member| member.join.is_none() && now >= member.session_until;
        let gone: Vec<String> =
            self.members.iter().filter(|(_, member)| over(member)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            self.remove(&id, now);
            changed = true;
        }
        self.pending.retain(|_, until| now < *until);
        let due = self.until.is_some_and(|until| now >= until);
        match self.state {
            State::Preparing if due || self.all_joined() => {
                self.complete(now);
                true
            }
            State::Completing if due => {
                // Whoever has not asked for its assignment in all this time is gone.
                let silent: Vec<String> = self
                    .members
                    .iter()
                    .filter(|(_, member)| member.sync.is_none())
                    .map(|(id, _)| id.clone())
                    .collect();
                for id in silent {
                    self.members.remove(&id);
                }
                self.prepare(now, Duration::ZERO);
                true
            }
            _ => changed,
        }
    }

    fn all_joined(&self) -> bool {
        self.pending.is_empty() && self.members.values().all(|member| member.join.is_some())
    }

    /// Begins a rebalance unless one is being prepared already.
    fn prepare(&mut self, now: Instant, delay: Duration) {
        if self.state == State::Preparing {
            return;
        }
        for member in self.members.values_mut() {
            if let Some(ticket) = member.sync.take() {
                self.synced.insert(ticket, Err(27));
            }
        }
        if self.members.is_empty() && self.pending.is_empty() {
            self.empty();
            return;
        }
        self.state = State::Preparing;
        let longest = self.members.values().map(|member| member.rebalance).max().unwrap_or_default();
        self.until = Some(now + longest.max(delay));
    }

    fn empty(&mut self) {
        if self.state != State::Empty {
            self.generation = self.generation.saturating_add(1);
        }
        self.state = State::Empty;
        self.leader = None;
        self.until = None;
        self.protocol.clear();
        self.protocol_type.clear();
    }

    /// Ends the collecting of joins: a new generation of those who joined, and of static members who did not.
    fn complete(&mut self, now: Instant) {
        self.members.retain(|_, member| member.join.is_some() || member.instance.is_some());
        if self.members.is_empty() {
            self.empty();
            return;
        }
        if self.members.values().all(|member| member.join.is_none()) {
            // Only static members that are away: their sessions decide.
            let longest = self.members.values().map(|member| member.rebalance).max().unwrap_or_default();
            self.until = Some(now + longest);
            return;
        }
        self.generation = self.generation.saturating_add(1);
        self.protocol = self.vote();
        self.state = State::Completing;
        let longest = self.members.values().map(|member| member.rebalance).max().unwrap_or_default();
        self.until = Some(now + longest);
        let joined = |id: &String| self.members.get(id).is_some_and(|member| member.join.is_some());
        let leader = self.leader.clone().filter(joined).or_else(|| {
            let present = self.members.iter().filter(|(_, member)| member.join.is_some());
            present.min_by_key(|(_, member)| member.order).map(|(id, _)| id.clone())
        });
        self.leader = leader;
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let answer = self.describe(&id, false);
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.session_until = now + member.session;
            member.assignment = Bytes::new();
            if let Some(ticket) = member.join.take() {
                self.joined.insert(ticket, answer);
            }
        }
    }

    /// The present generation as one member is told of it.
    fn describe(&self, id: &str, skip_assignment: bool) -> Joined {
        let leads = self.leader.as_deref() == Some(id);
        let mut members: Vec<(&String, &Member)> = self.members.iter().collect();
        members.sort_by_key(|(_, member)| member.order);
        let members = members
            .into_iter()
            .map(|(id, member)| (id.clone(), member.instance.clone(), member.metadata(&self.protocol)))
            .collect();
        Joined {
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            member: id.to_owned(),
            skip_assignment: leads && skip_assignment,
            members: if leads { members } else { Vec::new() },
        }
    }

    /// The protocol most members would choose among those all of them have.
    fn vote(&self) -> String {
        let shared = self.shared();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| shared.contains(name.as_str()))
            {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name.to_owned()).unwrap_or_default()
    }

    /// The protocols all members have.
    fn shared(&self) -> BTreeSet<&str> {
        let lists =
            self.members.values().map(|member| member.protocols.iter().map(|(name, _)| name.as_str()));
        let sets = lists.map(|names| names.collect::<BTreeSet<&str>>());
        sets.reduce(|all, names| all.intersection(&names).copied().collect()).unwrap_or_default()
    }

    /// Whether a member with these protocols fits in.
    fn fits(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if self.members.is_empty() {
            return true;
        }
        let shared = self.shared();
        protocol_type == self.protocol_type
            && protocols.iter().any(|(name, _)| shared.contains(name.as_str()))
    }

    /// Whether a member that is a consumer reads this topic.
    pub fn subscribes_to(&self, topic: &str) -> bool {
        let reads = |member: &Member| {
            let read = kafka_meta::wire::guard::subscription(&member.metadata(&self.protocol));
            read.is_ok_and(|found| found.topics.iter().any(|name| name.as_str() == topic))
        };
        self.members.values().any(reads)
    }

    /// Takes a member out; what is left rebalances.
    pub fn remove(&mut self, id: &str, now: Instant) -> bool {
        if self.members.remove(id).is_none() {
            return false;
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = None;
        }
        match self.state {
            State::Stable | State::Completing => self.prepare(now, Duration::ZERO),
            State::Preparing if self.members.is_empty() && self.pending.is_empty() => self.empty(),
            State::Preparing | State::Empty => {}
        }
        true
    }
}
