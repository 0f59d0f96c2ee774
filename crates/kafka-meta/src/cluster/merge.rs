//! How answers become the picture of the cluster, pure.
//!
//! What this is not: it asks nobody and does not know when to ask ([`refresh`](super::refresh) does).
//!
//! Rules, all of them about never going back:
//! - A partition's leader epoch never decreases. An answer with an older epoch than one seen, here or anywhere
//!   else, leaves the partition as it is, and its leader counts as unknown until metadata has caught up.
//! - Another topic id under a known name is another topic: its epochs start anew, whatever their value. A nil id
//!   (old broker) proves nothing either way. An id that was replaced does not come back: a broker that tells it
//!   is behind, unless several answers in a row do.
//! - An answer without epochs (old broker) is believed as it comes, and what was seen is forgotten.
//! - An answer about every topic replaces; one about some topics replaces those. Topics nobody wants any more go
//!   with the next answer. The list of brokers is always replaced whole.
//! - A topic that does not exist is in the picture with its error and without partitions; what was seen of its
//!   epochs is kept, for it may be the broker that is behind.
//!
//! A snapshot is only replaced when something in it has changed, the controller excepted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use super::answer::Answer;
use super::snapshot::{Broker, Partition, Snapshot, Topic};
use crate::{ErrorCode, TopicName};

/// Which topics an answer is about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Scope {
    All,
    Some(Vec<TopicName>),
}

/// Who wants a topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wanted {
    /// Nobody.
    No,
    /// Somebody asked about it not long ago, or wants to know which topics there are.
    Lately,
    /// Somebody holds an interest in it by name.
    Standing,
}

#[derive(Debug, Default)]
struct Seen {
    id: Uuid,
    epochs: HashMap<i32, i32>,
    /// Ids the name had before, newest last.
    replaced: Vec<Uuid>,
    /// Answers in a row that told a replaced id.
    behind: u32,
}

/// Replaced ids remembered per name.
const REPLACED: usize = 4;

/// Answers in a row that tell a replaced id before it is believed: then it was the other one that was old.
const BELIEVED_AFTER: u32 = 5;

impl Seen {
    /// Whether the answer is of a broker that has not heard of the topic's replacement yet.
    fn is_behind(&mut self, id: Uuid) -> bool {
        if id == self.id || !self.replaced.contains(&id) || self.behind >= BELIEVED_AFTER {
            return false;
        }
        self.behind += 1;
        true
    }

    fn take_id(&mut self, id: Uuid) {
        self.behind = 0;
        if !self.id.is_nil() && self.id != id {
            self.epochs.clear();
            self.replaced.retain(|old| *old != id);
            self.replaced.push(self.id);
            if self.replaced.len() > REPLACED {
                self.replaced.remove(0);
            }
        }
        self.id = id;
    }
}

/// The picture and what is remembered beside it.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    snapshot: Arc<Snapshot>,
    seen: HashMap<TopicName, Seen>,
}

/// What a merge did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Merged {
    /// A new snapshot was made.
    pub(crate) changed: bool,
    /// A topic of standing interest is missing, or a partition of one has no leader: worth asking again soon.
    pub(crate) stale: bool,
    /// A topic of standing interest may not be seen: worth asking again now and then.
    pub(crate) denied: bool,
}

impl Picture {
    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Takes an answer in. `wanted` tells who still wants a topic.
    pub(crate) fn merge(
        &mut self,
        scope: &Scope,
        answer: Answer,
        wanted: impl Fn(TopicName) -> Wanted,
    ) -> Merged {
        let mut next = Snapshot {
            generation: self.snapshot.generation,
            cluster_id: answer.cluster_id.or_else(|| self.snapshot.cluster_id.clone()),
            controller: answer.controller,
            // A broker always lists itself; an answer without brokers is one of a broker that is starting.
            brokers: if answer.brokers.is_empty() { self.snapshot.brokers.clone() } else { answer.brokers },
            topics: BTreeMap::new(),
            ids: BTreeMap::new(),
            all_topics: *scope == Scope::All,
        };
        if let Scope::Some(asked) = scope {
            let kept = self.snapshot.topics.iter().filter(|(name, _)| {
                // `asked` is sorted: the union of sets.
                wanted(**name) != Wanted::No && asked.binary_search(name).is_err()
            });
            next.topics = kept.map(|(name, topic)| (*name, topic.clone())).collect();
            for name in asked {
                next.topics.insert(*name, Arc::new(missing(*name)));
            }
        }
        for topic in answer.topics {
            let mut topic = self.merge_topic(topic);
            for partition in &mut topic.partitions {
                // Nowhere to send anything to.
                partition.leader = partition.leader.filter(|leader| next.brokers.contains_key(leader));
            }
            next.topics.insert(topic.name, Arc::new(topic));
        }
        let unsettled = |topic: &Topic| {
            topic.error.is_retriable() || topic.partitions.iter().any(|partition| partition.leader.is_none())
        };
        let standing = || next.topics.values().filter(|topic| wanted(topic.name) == Wanted::Standing);
        let stale = standing().any(|topic| unsettled(topic));
        let denied = standing().any(|topic| topic.error == ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        let names = &next.topics;
        self.seen.retain(|name, _| names.contains_key(name));
        let changed = self.publish(next);
        Merged { changed, stale, denied }
    }

    /// Somebody begins to want these topics: what was refused to others, some time ago, is not told to them.
    /// Answers whether anything was forgotten.
    pub(crate) fn forget_denied(&mut self, topics: &[TopicName]) -> bool {
        let denied = |name: &&TopicName| {
            let topic = self.snapshot.topics.get(name);
            topic.is_some_and(|topic| topic.error == ErrorCode::TOPIC_AUTHORIZATION_FAILED)
        };
        let denied: Vec<TopicName> = topics.iter().filter(denied).copied().collect();
        if denied.is_empty() {
            return false;
        }
        let mut next = Snapshot::clone(&self.snapshot);
        for name in &denied {
            next.topics.remove(name);
        }
        self.publish(next)
    }

    fn merge_topic(&mut self, mut topic: Topic) -> Topic {
        let old = self.snapshot.topics.get(&topic.name);
        let seen = self.seen.entry(topic.name).or_default();
        if !topic.id.is_nil() {
            if let Some(old) = old
                && seen.is_behind(topic.id)
            {
                return Topic::clone(old);
            }
            seen.take_id(topic.id);
        }
        let same_topic = |old: &&Arc<Topic>| old.id == topic.id || old.id.is_nil() || topic.id.is_nil();
        let old = old.filter(same_topic);
        for partition in &mut topic.partitions {
            match (partition.leader_epoch, seen.epochs.get(&partition.index).copied()) {
                (Some(epoch), Some(seen)) if epoch < seen => {
                    if let Some(old) = old.and_then(|old| old.partition(partition.index)) {
                        *partition = old.clone();
                    }
                    if partition.leader_epoch.is_none_or(|epoch| epoch < seen) {
                        partition.leader = None;
                    }
                }
                (Some(epoch), _) => {
                    seen.epochs.insert(partition.index, epoch);
                }
                (None, _) => {
                    seen.epochs.remove(&partition.index);
                }
            }
        }
        topic
    }

    /// A broker named a partition's leader (KIP-951). Taken when it is newer than what was seen and the node's
    /// address is known; answers whether it was.
    pub(crate) fn leader_hint(
        &mut self,
        name: TopicName,
        index: i32,
        node: i32,
        epoch: i32,
        endpoint: Option<Broker>,
    ) -> bool {
        if node < 0 || epoch < 0 {
            return false;
        }
        let endpoint = endpoint.filter(|endpoint| endpoint.id == node);
        if endpoint.is_none() && !self.snapshot.brokers.contains_key(&node) {
            return false;
        }
        let Some(seen) = self.seen.get_mut(&name) else { return false };
        let known = seen.epochs.get(&index).copied();
        if known.is_some_and(|known| epoch <= known) || self.snapshot.partition(name, index).is_none() {
            return false;
        }
        seen.epochs.insert(index, epoch);
        let mut next = Snapshot::clone(&self.snapshot);
        if let Some(endpoint) = endpoint {
            next.brokers.insert(node, endpoint);
        }
        edit(&mut next, name, index, |partition| {
            partition.leader = Some(node);
            partition.leader_epoch = Some(epoch);
            partition.error = ErrorCode::NONE;
        });
        self.publish(next);
        true
    }

    /// A newer epoch was seen elsewhere. Without a known epoch to compare with it means nothing. Answers
    /// whether the leader has become unknown by it.
    pub(crate) fn epoch_seen(&mut self, name: TopicName, index: i32, epoch: i32) -> bool {
        let Some(known) = self.seen.get_mut(&name).and_then(|seen| seen.epochs.get_mut(&index)) else {
            return false;
        };
        if epoch <= *known {
            return false;
        }
        *known = epoch;
        let mut next = Snapshot::clone(&self.snapshot);
        edit(&mut next, name, index, |partition| partition.leader = None);
        self.publish(next)
    }

    /// A broker was named outside metadata (a coordinator). Metadata, when it comes, knows better.
    pub(crate) fn learn_broker(&mut self, broker: Broker) {
        if !self.snapshot.brokers.contains_key(&broker.id) {
            let mut next = Snapshot::clone(&self.snapshot);
            next.brokers.insert(broker.id, broker);
            self.publish(next);
        }
    }

    /// A different snapshot is published, indexed and numbered; an equal one is dropped.
    fn publish(&mut self, mut next: Snapshot) -> bool {
        let old = &self.snapshot;
        let same = old.generation > 0
            && old.cluster_id == next.cluster_id
            && old.brokers == next.brokers
            && old.topics == next.topics
            && old.all_topics == next.all_topics;
        if same {
            // KRaft brokers name any broker as the controller, another one each time: that is no news.
            if old.controller != next.controller {
                Arc::make_mut(&mut self.snapshot).controller = next.controller;
            }
            return false;
        }
        let ids = next.topics.values().filter(|topic| !topic.id.is_nil());
        next.ids = ids.map(|topic| (topic.id, topic.name)).collect();
        next.generation += 1;
        self.snapshot = Arc::new(next);
        true
    }
}

fn missing(name: TopicName) -> Topic {
    Topic {
        name,
        id: Uuid::nil(),
        internal: false,
        error: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        partitions: Vec::new(),
    }
}

fn edit(snapshot: &mut Snapshot, name: TopicName, index: i32, change: impl FnOnce(&mut Partition)) {
    let Some(topic) = snapshot.topics.get_mut(&name).map(Arc::make_mut) else { return };
    let at = topic.partitions.binary_search_by_key(&index, |partition| partition.index);
    if let Some(partition) = at.ok().and_then(|at| topic.partitions.get_mut(at)) {
        change(partition);
    }
}

#[cfg(test)]
mod tests;
