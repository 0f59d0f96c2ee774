//! Auto-commit: by timer, and before partitions go. Pure.
//!
//! What is stored is `done`, what polls before the present one have handed out; never what is buffered, and
//! nothing that was stored already. What the application commits itself lasts until the next auto-commit, as in
//! Java; but what it commits inside `on_revoke` is the last word on a partition that goes. (Java commits by itself
//! before that callback.)

use std::time::{Duration, Instant};

use kafka_meta::{CommittedOffset, TopicName};
use tracing::warn;

use super::core::{Core, Leave};
use super::orders::{CommitOrder, Order, Stored};
use crate::rebalance::Stage;

impl Core {
    /// The last offsets of what goes; false when there is nothing to store.
    pub(super) fn start_revoke_commit(&mut self) -> bool {
        let (Some(pending), Some(identity)) = (&self.pending, self.identity.clone()) else { return false };
        if !self.settings.auto_commit || self.leave == (Leave::Releasing { commit: false }) {
            return false;
        }
        let offsets =
            self.undone(|key| pending.revoke.contains(key) && !pending.stored_by_caller.contains(key));
        if offsets.is_empty() {
            return false;
        }
        let number = self.next_number();
        self.commit = Some((number, true));
        let within = self.settings.rebalance_timeout.min(self.settings.api_timeout);
        self.orders.push_back(Order::Commit(CommitOrder { number, offsets, identity, within }));
        true
    }

    /// Offsets that are done and not stored.
    fn undone(&self, wanted: impl Fn(&(TopicName, i32)) -> bool) -> Vec<((TopicName, i32), CommittedOffset)> {
        self.done
            .iter()
            .filter(|(key, _)| self.owned.contains(*key) && wanted(key))
            .filter(|(key, offset)| self.stored.get(*key) != Some(&offset.offset))
            .map(|(key, offset)| (*key, offset.clone()))
            .collect()
    }

    /// The application is about to store offsets of its own, or has: what is stored is not known any more.
    pub fn stores_itself(&mut self, keys: &[(TopicName, i32)]) {
        for key in keys {
            self.stored.remove(key);
            if self.commit.is_some() {
                self.overtaken.insert(*key);
            }
        }
    }

    /// It has stored them.
    pub fn stored_itself(&mut self, keys: impl IntoIterator<Item = (TopicName, i32)>) {
        if let Some(pending) = &mut self.pending
            && pending.stage == Stage::Revoke
            && pending.frozen
        {
            pending.stored_by_caller.extend(keys.into_iter().filter(|key| pending.revoke.contains(key)));
        }
    }

    /// Whether the timer may start one.
    pub(super) fn may_commit(&self) -> bool {
        self.settings.auto_commit && self.commit.is_none() && self.leave == Leave::No
    }

    pub(super) fn start_commit(&mut self, now: Instant) {
        if !self.may_commit() {
            return;
        }
        let (Some(identity), Some(due)) = (self.identity.clone(), self.commit_due) else { return };
        if due > now {
            return;
        }
        self.commit_due = Some(now + self.settings.auto_commit_interval);
        // What is on its way out has, or will have, a commit of its own.
        let leaving = self.pending.as_ref().map(|pending| &pending.revoke);
        let offsets = self.undone(|key| leaving.is_none_or(|leaving| !leaving.contains(key)));
        if offsets.is_empty() {
            return;
        }
        let number = self.next_number();
        self.commit = Some((number, false));
        let within =
            self.settings.auto_commit_interval.max(Duration::from_secs(5)).min(self.settings.api_timeout);
        self.orders.push_back(Order::Commit(CommitOrder { number, offsets, identity, within }));
    }

    /// The commit `number` ended.
    pub fn handle_commit(
        &mut self,
        now: Instant,
        number: u64,
        offsets: &[((TopicName, i32), CommittedOffset)],
        result: &Stored,
    ) {
        self.counts.commits += 1;
        let ours = self.commit.is_some_and(|(current, _)| current == number);
        let overtaken = if ours { std::mem::take(&mut self.overtaken) } else { self.overtaken.clone() };
        match result {
            Ok(results) => {
                for (key, result) in results {
                    match result {
                        Ok(()) => {
                            if !overtaken.contains(key)
                                && let Some((_, offset)) = offsets.iter().find(|(sent, _)| sent == key)
                            {
                                self.stored.insert(*key, offset.offset);
                            }
                        }
                        Err(error) => {
                            self.counts.commit_failures += 1;
                            warn!(%error, "an auto-commit was refused");
                        }
                    }
                }
            }
            Err(error) => {
                self.counts.commit_failures += 1;
                warn!(%error, "an auto-commit failed");
            }
        }
        if !ours {
            return;
        }
        self.commit = None;
        if self.pending.as_ref().is_some_and(|pending| pending.stage == Stage::Commit) {
            self.give_up_and_acknowledge(now);
        }
    }
}
