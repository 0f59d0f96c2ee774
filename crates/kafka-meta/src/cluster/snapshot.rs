//! The picture of the cluster at one moment, immutable once published.
//!
//! What it is not: complete. It covers the topics somebody is interested in, as of the newest answer about each.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::{ErrorCode, TopicName};

/// The brokers, and the topics somebody is interested in.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Grows by one with each published snapshot.
    pub generation: u64,
    /// The cluster's id, where brokers tell it.
    pub cluster_id: Option<String>,
    /// The controller's node id, where one is known.
    pub controller: Option<i32>,
    /// The brokers that are up, by node id.
    pub brokers: BTreeMap<i32, Broker>,
    pub(crate) topics: BTreeMap<TopicName, Arc<Topic>>,
    pub(crate) ids: BTreeMap<Uuid, TopicName>,
    /// Whether the newest answer listed every topic, so that one that is absent does not exist.
    pub all_topics: bool,
}

/// A broker and its address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Broker {
    /// Its node id.
    pub id: i32,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The rack it is in, where set.
    pub rack: Option<String>,
}

/// A node's address as a leader hint names it.
pub type Endpoint = Broker;

/// A topic, or why nothing is known about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Topic {
    /// Its name.
    pub name: TopicName,
    /// Its id; nil when the brokers do not tell (Metadata below version 10).
    pub id: Uuid,
    /// Whether it is one of Kafka's own.
    pub internal: bool,
    /// What the newest answer said about the topic as a whole.
    pub error: ErrorCode,
    /// Its partitions, in the order of their index.
    pub partitions: Vec<Partition>,
}

/// A partition and its leader.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Partition {
    /// Its index.
    pub index: i32,
    /// The leader's node id; `None` while there is none, or while a newer epoch is known than the one that
    /// named it.
    pub leader: Option<i32>,
    /// The leader's epoch, where brokers tell it.
    pub leader_epoch: Option<i32>,
    /// Nodes that hold a replica.
    pub replicas: Vec<i32>,
    /// Replicas in sync with the leader.
    pub isr: Vec<i32>,
    /// Replicas on nodes that are down.
    pub offline: Vec<i32>,
    /// What the newest answer said about the partition.
    pub error: ErrorCode,
}

impl Snapshot {
    /// The same picture with these topics in it; for tests of what consumes pictures.
    #[doc(hidden)]
    #[must_use]
    pub fn with_topics(mut self, topics: impl IntoIterator<Item = Topic>) -> Snapshot {
        for topic in topics {
            if !topic.id.is_nil() {
                self.ids.insert(topic.id, topic.name);
            }
            self.topics.insert(topic.name, Arc::new(topic));
        }
        self
    }

    /// What is known about a topic; `None` when nobody has asked yet.
    pub fn topic(&self, name: TopicName) -> Option<&Topic> {
        self.topics.get(&name).map(Arc::as_ref)
    }

    /// The topic of this id.
    pub fn topic_by_id(&self, id: Uuid) -> Option<&Topic> {
        self.ids.get(&id).and_then(|name| self.topic(*name))
    }

    /// What is known about a partition.
    pub fn partition(&self, name: TopicName, index: i32) -> Option<&Partition> {
        self.topic(name)?.partition(index)
    }

    /// The same picture with one more topic: for the tests of what looks at pictures.
    #[doc(hidden)]
    pub fn with_topic(mut self, topic: Topic) -> Self {
        if !topic.id.is_nil() {
            self.ids.insert(topic.id, topic.name);
        }
        self.topics.insert(topic.name, Arc::new(topic));
        self
    }

    /// The topics known, in the order of their names.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.topics.values().map(Arc::as_ref)
    }
}

impl Topic {
    /// One of its partitions.
    pub fn partition(&self, index: i32) -> Option<&Partition> {
        let at = self.partitions.binary_search_by_key(&index, |partition| partition.index).ok()?;
        self.partitions.get(at)
    }
}
