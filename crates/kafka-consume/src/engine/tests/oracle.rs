//! Judges what a core hands out: nothing made up, nothing twice, nothing left out, and no position ahead of what
//! was handed out. It looks at the logs and at the caller's side, not at how the core works.

use std::collections::{BTreeMap, BTreeSet};

use kafka_read::Records;

use super::broker::Key;
use super::rig::{Bug, Rig};
use crate::buffer::Kind;

/// A stretch of reading one partition in order: from a seek or an assignment to the next.
#[derive(Debug)]
struct Life {
    ticket: u64,
    /// Everything before it was handed out or needs not be.
    at: Option<i64>,
    /// What was fetched may be of a log that has been truncated or replaced since: from this offset on.
    stale: Option<(i64, i32)>,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    lives: BTreeMap<Key, Life>,
    /// Logs that have been truncated or replaced: the core may begin anew with them by itself.
    changed: BTreeSet<Key>,
    pub records: u64,
}

fn stamp(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

impl Oracle {
    /// The caller begins anew with a partition.
    pub fn restart(&mut self, key: Key) {
        self.lives.remove(&key);
    }

    /// The log above `to` is gone, or all of it with `to` 0.
    pub fn truncated(&mut self, rig: &Rig, key: Key, to: i64) {
        self.changed.insert(key);
        let Some(life) = self.lives.get_mut(&key) else { return };
        let ahead = rig.core.partition(&key.0, key.1).and_then(|one| one.fetch);
        if ahead.is_some_and(|fetch| fetch.offset > to) {
            let now = (to, rig.cluster.logs[&key].epoch);
            let was = life.stale.unwrap_or(now);
            life.stale = Some((now.0.min(was.0), now.1.max(was.1)));
        }
    }

    pub fn replaced(&mut self, rig: &Rig, key: Key) {
        self.truncated(rig, key, 0);
        if let Some(life) = self.lives.get_mut(&key) {
            life.stale = Some((i64::MIN, i32::MAX));
        }
    }

    /// Follows every position; to be called after each step.
    pub fn observe(&mut self, rig: &Rig) {
        let mut seen = Vec::new();
        rig.core.visit(|one| {
            let position = if rig.bug == Some(Bug::CommitFetchPosition) { one.fetch } else { one.position() };
            let jumps = one.queue.slots.iter().any(|slot| matches!(slot.kind, Kind::Jump(_)));
            seen.push(((one.topic, one.index), one.ticket, position, one.fetch, jumps));
        });
        self.lives.retain(|key, _| seen.iter().any(|(other, ..)| other == key));
        for (key, ticket, position, fetch, jumps) in seen {
            let fresh = || Life { ticket, at: None, stale: None };
            let life = self.lives.entry(key).or_insert_with(fresh);
            if life.ticket != ticket {
                assert!(self.changed.contains(&key), "{key:?} begins anew without a reason");
                *life = fresh();
            }
            let position = position.map(|pos| pos.offset);
            if let Some((from, epoch)) = life.stale
                && let Some(fetch) = fetch
                && !jumps
                && (fetch.offset <= from || fetch.epoch.is_some_and(|known| known >= epoch))
            {
                life.stale = None;
                life.at = position;
            }
            if let Some(position) = position {
                match life.at {
                    None => life.at = Some(position),
                    Some(_) => self.advance(rig, key, position, "the position"),
                }
            }
        }
    }

    /// `to` was reached: nothing that had to be handed out before it may be left out.
    fn advance(&mut self, rig: &Rig, key: Key, to: i64, what: &str) {
        let life = self.lives.get_mut(&key).unwrap();
        let Some(at) = life.at else {
            life.at = Some(to);
            return;
        };
        if life.stale.is_some() {
            life.at = Some(to);
            return;
        }
        let log = &rig.cluster.logs[&key];
        let missing = |from: i64, to: i64| log.visible(from, to, rig.core.settings.committed_only);
        if to >= at && missing(at, to).is_empty() {
            life.at = Some(to);
            return;
        }
        let jumped = rig.jumps.iter().any(|(of, from, target)| {
            *of == key && missing(at, *from).is_empty() && to >= *target && missing(*target, to).is_empty()
        });
        let left = missing(at, to);
        assert!(
            jumped,
            "{key:?}: {what} went from {at} to {to}, leaving out {:?} of {}; jumps {:?}",
            left.first(),
            left.len(),
            rig.jumps
        );
        life.at = Some(to);
    }

    /// These records were handed out.
    pub fn handed_out(&mut self, rig: &Rig, records: &Records) {
        for record in records {
            self.one(rig, (record.topic, record.partition), record.offset, record.value.unwrap());
        }
    }

    pub fn one(&mut self, rig: &Rig, key: Key, offset: i64, value: &[u8]) {
        self.records += 1;
        let log = &rig.cluster.logs[&key];
        assert!(log.history.contains(&(offset, stamp(value))), "{key:?}: {offset} is no record of this log");
        self.advance(rig, key, offset, "a record");
        self.lives.get_mut(&key).unwrap().at = Some(offset + 1);
    }

    /// Records from `first` on were given back.
    pub fn given_back(&mut self, key: Key, first: i64) {
        if let Some(life) = self.lives.get_mut(&key) {
            life.at = Some(first);
        }
    }
}
