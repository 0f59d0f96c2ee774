//! What both kinds of member have in common: reconciliation, callbacks, commits, liveness, leaving. Pure.
//!
//! | state | meaning | next |
//! |---|---|---|
//! | idle | not joined; nothing owned | a poll joins |
//! | member | the protocol core is joined or joining | `Pending` reconciliations, one at a time |
//! | lost | the membership is gone, what was owned is not delivered | `on_lost` inside a poll, then idle |
//! | leaving | `Pending` with cause `Leave`, then the goodbye | left |
//! | left | closed | – |
//!
//! Invariants
//! - After a loss nothing is joined, committed or delivered until `on_lost` has run inside a poll and the
//!   partitions are dropped.
//! - What auto-commit stores is `done`: exactly what polls before the present one have handed out.
//! - Only this core changes the engine's assignment; it says how through [`Op`], applied under the same lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use kafka_meta::client::Snapshot;
use kafka_meta::{CommittedOffset, Error, ErrorKind, Result, TopicName};
use regex::Regex;
use tracing::{debug, info, warn};

use super::liveness::Liveness;
use super::orders::{Counts, Op, Order, Settings, Step};
use super::protocol::{Answer, Goodbye, Input, Output, Partitions, Protocol, Subscription};
use crate::offsets::Identity;
use crate::rebalance::{Cause, Pending, Stage};

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) settings: Settings,
    protocol: Box<dyn Protocol>,
    subscription: Subscription,
    /// What the protocol was told of it.
    passed: Option<Subscription>,
    /// Topics a pattern may match.
    known_topics: BTreeSet<TopicName>,
    pub(super) owned: Partitions,
    pub(super) pending: Option<Pending>,
    next: Option<(u64, Cause, Partitions)>,
    lost: Option<Lost>,
    /// One of a kind about one thing.
    faults: VecDeque<Error>,
    fatal: Option<Error>,
    refused: Option<Error>,
    switched: bool,
    /// The listener has been told of an assignment in this life of the membership.
    introduced: bool,
    liveness: Liveness,
    pub(super) identity: Option<Identity>,
    /// What polls before the present one have handed out.
    pub(super) done: BTreeMap<(TopicName, i32), CommittedOffset>,
    /// What was stored last.
    pub(super) stored: BTreeMap<(TopicName, i32), i64>,
    pub(super) commit_due: Option<Instant>,
    /// The commit in flight, and whether a reconciliation waits for it.
    pub(super) commit: Option<(u64, bool)>,
    /// What the application stored itself while that was in flight: which of the two came last is not known.
    pub(super) overtaken: Partitions,
    pub(super) leave: Leave,
    last_number: u64,
    pub ops: Vec<Op>,
    /// Something waits for the caller's poll.
    pub tell_caller: bool,
    pub(super) orders: VecDeque<Order>,
    pub counts: Counts,
}

#[derive(Debug)]
struct Lost {
    number: u64,
    error: Error,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Leave {
    No,
    /// The last reconciliation runs; whether it commits.
    Releasing {
        commit: bool,
    },
    /// The goodbye is on its way.
    Parting,
    Left,
}

impl Core {
    pub fn new(settings: Settings, protocol: Box<dyn Protocol>) -> Self {
        Core {
            liveness: Liveness::new(settings.rebalance_timeout),
            settings,
            protocol,
            subscription: Subscription::default(),
            passed: None,
            known_topics: BTreeSet::new(),
            owned: Partitions::new(),
            pending: None,
            next: None,
            lost: None,
            faults: VecDeque::new(),
            fatal: None,
            refused: None,
            switched: false,
            introduced: false,
            identity: None,
            done: BTreeMap::new(),
            stored: BTreeMap::new(),
            commit_due: None,
            commit: None,
            overtaken: Partitions::new(),
            leave: Leave::No,
            last_number: 0,
            ops: Vec::new(),
            tell_caller: false,
            orders: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// A poll begins: the caller is alive, what it was handed so far is done, and it joins if need be.
    pub fn poll_began(&mut self, now: Instant, done: BTreeMap<(TopicName, i32), CommittedOffset>) {
        self.liveness.poll_began(now);
        self.done = done;
        self.join(now);
    }

    /// The poll ended, or was dropped.
    pub fn poll_ended(&mut self, now: Instant) {
        self.liveness.poll_ended(now);
    }

    fn join(&mut self, now: Instant) {
        if self.lost.is_none() && self.fatal.is_none() && self.leave == Leave::No && self.refused.is_none() {
            self.protocol.handle(now, Input::Join);
            self.drain(now);
        }
    }

    pub fn subscribe(&mut self, now: Instant, subscription: Subscription) {
        self.subscription = subscription;
        self.pass_subscription(now);
        if self.fatal.as_ref().is_some_and(|error| error.kind() == ErrorKind::InvalidRequest) {
            // A pattern the broker refused has been replaced.
            self.fatal = None;
        }
        self.drain(now);
    }

    /// Tells the protocol what is subscribed to: a pattern as it is, or what it matches now.
    fn pass_subscription(&mut self, now: Instant) {
        let mut subscription = self.subscription.clone();
        if self.settings.matches_patterns
            && let Some(pattern) = subscription.pattern.take()
        {
            let Ok(matcher) = Regex::new(&format!("^(?:{pattern})$")) else { return };
            subscription.topics =
                self.known_topics.iter().copied().filter(|topic| matcher.is_match(topic)).collect();
        }
        if self.passed.as_ref() != Some(&subscription) {
            self.passed = Some(subscription.clone());
            self.protocol.handle(now, Input::Subscription(subscription));
        }
    }

    pub fn handle_snapshot(&mut self, now: Instant, snapshot: &Snapshot) {
        if self.settings.matches_patterns && self.subscription.pattern.is_some() {
            self.known_topics = snapshot
                .topics()
                .filter(|topic| topic.error.is_none() && !topic.internal)
                .map(|topic| topic.name)
                .collect();
            self.pass_subscription(now);
        }
        self.protocol.handle(now, Input::Metadata(snapshot));
        self.drain(now);
    }

    pub fn handle_answer(&mut self, now: Instant, ticket: u64, answer: Result<Answer>, random: f64) {
        self.protocol.handle(now, Input::Answer { ticket, answer, random });
        self.drain(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) {
        if self.liveness.is_expired(now)
            && self.lost.is_none()
            && self.may_expire()
            && (self.identity.is_some() || !self.owned.is_empty())
        {
            warn!("the caller has not polled for the rebalance timeout: the member leaves the group");
            self.protocol.handle(now, Input::Leave { goodbye: Goodbye::PollTimeout });
            let error = Error::new(ErrorKind::Fenced, "poll")
                .with_detail("no poll within rebalance_timeout_ms: the member has left the group");
            self.lose(now, error);
        }
        self.drain(now);
        self.start_commit(now);
    }

    /// A caller that drops its leave half way and never comes back must not keep its partitions for ever either.
    fn may_expire(&self) -> bool {
        matches!(self.leave, Leave::No | Leave::Releasing { .. })
    }

    /// When to look again. Whatever is named here [`tick`](Self::tick) takes out of the way: a time that stayed in
    /// the past would keep the driver spinning.
    pub fn next_deadline(&self) -> Option<Instant> {
        let commit = self.commit_due.filter(|_| self.may_commit() && self.identity.is_some());
        let expiry = self.liveness.expires_at().filter(|_| {
            self.lost.is_none() && self.may_expire() && (self.identity.is_some() || !self.owned.is_empty())
        });
        [self.protocol.next_deadline(), commit, expiry].into_iter().flatten().min()
    }

    pub fn has_orders(&self) -> bool {
        !self.orders.is_empty()
    }

    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Takes what the protocol wants until it wants no more.
    fn drain(&mut self, now: Instant) {
        while let Some(output) = self.protocol.poll_output(now) {
            match output {
                Output::Send { ticket, lane, within, request } => {
                    self.orders.push_back(Order::Send { ticket, lane, within, request });
                }
                Output::Reconcile { number, target, purpose } if self.leave == Leave::No => {
                    self.reconcile(now, number, purpose.into(), target);
                }
                Output::Reconcile { .. } => {}
                Output::Lost(error) => self.lose(now, error),
                Output::Fault(error) => {
                    self.tell_caller = true;
                    if error.is_fatal() {
                        self.fatal = Some(error);
                    } else {
                        let about = |error: &Error| (error.kind(), error.topic().map(str::to_owned));
                        self.faults.retain(|known| about(known) != about(&error));
                        self.faults.push_back(error);
                    }
                }
                Output::Refused(error) => {
                    self.refused = Some(error);
                    self.tell_caller = true;
                }
                Output::ForgetCoordinator => self.orders.push_back(Order::ForgetCoordinator),
                // Who subscribes to a pattern watches every topic already, and must go on doing so.
                Output::Interest(_) if self.subscription.pattern.is_some() => {}
                Output::Interest(topics) => self.orders.push_back(Order::Interest(topics)),
                Output::NeedIds => self.orders.push_back(Order::Refresh),
                Output::Left => {
                    self.leave = Leave::Left;
                    self.tell_caller = true;
                }
            }
        }
        self.follow_identity(now);
    }

    fn follow_identity(&mut self, now: Instant) {
        let identity = if self.lost.is_some() { None } else { self.protocol.identity() };
        if identity == self.identity {
            return;
        }
        let joined = self.identity.is_none() && identity.is_some();
        self.identity = identity;
        if joined {
            self.commit_due = Some(now + self.settings.auto_commit_interval);
        }
        self.adopt();
    }

    fn adopt(&mut self) {
        if let Some(identity) = self.identity.clone() {
            self.orders.push_back(Order::Adopt { identity, owned: self.owned.clone() });
        }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn reconcile(&mut self, now: Instant, number: u64, cause: Cause, target: Partitions) {
        if self.lost.is_some() {
            return;
        }
        if self.pending.as_ref().is_some_and(|pending| pending.frozen || pending.stage != Stage::Revoke) {
            self.next = Some((number, cause, target));
            return;
        }
        // One that nobody has been told of yet is replaced; what it held back and is not to go is let on.
        if let Some(old) = self.pending.take() {
            let kept: Partitions = old.revoke.intersection(&target).copied().collect();
            if !kept.is_empty() {
                self.ops.push(Op::Release(kept));
            }
        }
        let pending = Pending::new(number, cause, &self.owned, &target);
        self.counts.rebalances += u64::from(!pending.revoke.is_empty() || !pending.add.is_empty());
        if !pending.revoke.is_empty() {
            self.ops.push(Op::Hold(pending.revoke.clone()));
        }
        #[cfg(test)]
        if super::sabotage::is(super::sabotage::Sabotage::AcknowledgeBeforeRevoke) {
            let kept = self.owned.difference(&pending.revoke).copied().collect();
            self.protocol.handle(now, Input::Reconciled { number, owned: &kept });
        }
        self.pending = Some(pending);
        self.tell_caller = true;
        self.advance(now);
    }

    /// Carries the reconciliation on as far as it needs neither the caller nor the driver.
    fn advance(&mut self, now: Instant) {
        let Some(pending) = &self.pending else { return };
        match pending.stage {
            Stage::Revoke | Stage::Assign => {}
            Stage::Commit => {
                if !self.start_revoke_commit() {
                    self.give_up_and_acknowledge(now);
                }
            }
        }
    }

    /// Drops what goes and tells the group, then takes what comes.
    pub(super) fn give_up_and_acknowledge(&mut self, now: Instant) {
        let Some(pending) = &mut self.pending else { return };
        let owned = pending.outcome(&self.owned);
        let (number, cause, revoke, add) =
            (pending.number, pending.cause, pending.revoke.clone(), pending.add.clone());
        pending.stage = Stage::Assign;
        pending.restarts = 0;
        self.tell_caller = true;
        for key in &revoke {
            self.done.remove(key);
            self.stored.remove(key);
        }
        self.owned = owned;
        if !revoke.is_empty() {
            self.ops.push(Op::Drop(revoke));
        }
        if !add.is_empty() {
            self.ops.push(Op::Add(add.clone()));
        }
        if cause == Cause::Leave {
            self.pending = None;
            self.part(now);
            return;
        }
        self.adopt();
        self.protocol.handle(now, Input::Reconciled { number, owned: &self.owned });
        // The group's first word after a join is told even if it is "nothing yet".
        if cause == Cause::Prepare || (add.is_empty() && self.introduced) {
            self.finish(now);
        }
        self.drain(now);
    }

    fn finish(&mut self, now: Instant) {
        self.pending = None;
        if let Some((number, cause, target)) = self.next.take() {
            self.reconcile(now, number, cause, target);
        }
    }

    /// The membership is gone.
    fn lose(&mut self, now: Instant, error: Error) {
        if self.lost.is_some() {
            return;
        }
        #[cfg(test)]
        if super::sabotage::is(super::sabotage::Sabotage::FollowNewLife) && !self.liveness.is_expired(now) {
            self.protocol.handle(now, Input::LostDone);
            self.protocol.handle(now, Input::Join);
            return;
        }
        info!(%error, "the group membership is lost");
        self.counts.lost += 1;
        self.pending = None;
        self.next = None;
        self.commit = None;
        self.identity = None;
        let number = self.next_number();
        self.lost = Some(Lost { number, error });
        self.tell_caller = true;
        if self.owned.is_empty() {
            self.lost_done(now, number);
        } else {
            self.ops.push(Op::Hold(self.owned.clone()));
        }
    }

    /// What the caller's poll has to do first.
    pub fn step(&mut self, now: Instant) -> Step {
        if let Some(lost) = &self.lost {
            return Step::Lost { number: lost.number, partitions: self.owned.clone() };
        }
        if let Some(pending) = &mut self.pending {
            let number = pending.number;
            let callback = match pending.stage {
                Stage::Revoke => Some(Step::Revoke { number, partitions: pending.revoke.clone() }),
                Stage::Assign => Some(Step::Assign { number, partitions: pending.add.clone() }),
                Stage::Commit => None,
            };
            if let Some(step) = callback {
                if pending.restarts >= 2 {
                    self.counts.callback_restarts += 1;
                    warn!(
                        "a rebalance callback is begun for the third time: polls are dropped while it runs"
                    );
                }
                pending.begin();
                return step;
            }
        }
        if let Some(error) = &self.fatal {
            return Step::Error(error.clone());
        }
        if let Some(error) = self.faults.pop_front() {
            return Step::Error(error);
        }
        if let Some(error) = self.refused.clone() {
            // The owner of the core replaces the protocol, or the refusal is final.
            return Step::Error(error);
        }
        if std::mem::take(&mut self.switched) {
            return Step::Switched;
        }
        self.join(now);
        Step::Nothing
    }

    /// Whether a refusal waits for the other protocol to be tried.
    pub fn wants_switch(&self) -> bool {
        self.settings.may_switch && self.refused.is_some()
    }

    /// Goes on with the other protocol; only ever before the first admission. The picture of the cluster comes
    /// along: the next one may be minutes away, and a leader without one has nothing to assign.
    pub fn switch(&mut self, now: Instant, protocol: Box<dyn Protocol>, snapshot: &Snapshot) {
        self.protocol = protocol;
        self.settings.matches_patterns = true;
        self.passed = None;
        self.refused = None;
        self.faults.clear();
        self.switched = true;
        self.settings.may_switch = false;
        self.pass_subscription(now);
        self.handle_snapshot(now, snapshot);
    }

    /// The revoke callback of that reconciliation ended.
    pub fn revoke_done(&mut self, now: Instant, number: u64) {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.number == number) else { return };
        if pending.stage == Stage::Revoke {
            pending.stage = Stage::Commit;
            pending.restarts = 0;
            self.advance(now);
        }
    }

    /// The assign callback of that reconciliation ended: what came is read from now on.
    pub fn assign_done(&mut self, now: Instant, number: u64) {
        let Some(pending) = self.pending.as_ref().filter(|pending| pending.number == number) else { return };
        if pending.stage == Stage::Assign {
            let added = pending.add.clone();
            self.introduced = true;
            if !added.is_empty() {
                self.ops.push(Op::Release(added));
            }
            self.finish(now);
        }
    }

    /// The lost callback ended: everything is dropped, and the next poll joins anew.
    pub fn lost_done(&mut self, now: Instant, number: u64) {
        let Some(lost) = self.lost.take_if(|lost| lost.number == number) else { return };
        debug!(error = %lost.error, "what was lost is dropped");
        let gone = std::mem::take(&mut self.owned);
        if !gone.is_empty() {
            self.ops.push(Op::Drop(gone));
        }
        self.done.clear();
        self.stored.clear();
        self.overtaken.clear();
        self.introduced = false;
        if let Leave::Releasing { .. } = self.leave {
            self.part(now);
            return;
        }
        self.protocol.handle(now, Input::LostDone);
        self.drain(now);
    }

    /// Begins to leave: the listener, the commit, then the goodbye. Again: nothing changes.
    pub fn leave(&mut self, now: Instant, commit: bool, done: BTreeMap<(TopicName, i32), CommittedOffset>) {
        if self.leave != Leave::No {
            return;
        }
        self.done = done;
        self.leave = Leave::Releasing { commit };
        self.next = None;
        if self.lost.is_some() {
            return;
        }
        // A reconciliation that has begun is absorbed: what it was about to revoke is revoked with the rest.
        self.pending = None;
        let number = self.next_number();
        let pending = Pending::new(number, Cause::Leave, &self.owned, &Partitions::new());
        if !pending.revoke.is_empty() {
            self.ops.push(Op::Hold(pending.revoke.clone()));
        }
        self.pending = Some(pending);
        self.advance(now);
    }

    fn part(&mut self, now: Instant) {
        self.leave = Leave::Parting;
        self.protocol.handle(now, Input::Leave { goodbye: Goodbye::Leave });
        self.drain(now);
    }

    pub fn has_left(&self) -> bool {
        self.leave == Leave::Left
    }

    /// Time is up: whatever is still to be said to the group is not said.
    pub fn give_up_leaving(&mut self) {
        self.leave = Leave::Left;
    }

    /// Whose name offsets are stored in.
    ///
    /// # Errors
    ///
    /// `Fenced` between a loss and the next join; `NotAssigned` before the first.
    pub fn identity(&self, operation: &'static str) -> Result<Identity> {
        if let Some(identity) = &self.identity {
            return Ok(identity.clone());
        }
        Err(match &self.lost {
            Some(lost) => Error::new(ErrorKind::Fenced, operation).with_source(lost.error.clone()),
            None => {
                Error::new(ErrorKind::Fenced, operation).with_detail("the member is not in its group now")
            }
        })
    }

    pub fn member_id(&self) -> &str {
        self.protocol.member_id()
    }

    /// The caller has been seen, reading from a stream.
    pub fn touch(&mut self, now: Instant) {
        self.liveness.touch(now);
    }
}
