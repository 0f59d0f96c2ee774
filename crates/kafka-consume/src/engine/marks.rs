//! What brokers said of a partition's log: watermarks. Pure.
//!
//! An incremental fetch session tells a watermark once, when it changes. So what was told must outlive whatever
//! made the answer useless otherwise: a seek while it was under way, and a partition that leaves the assignment
//! and is back before the next fetch, which the session takes for one that never left.
//!
//! Invariant: `departed` holds nothing that no session holds any longer.

use kafka_meta::TopicName;
use kafka_meta::wire::fetch::FetchedPartition;

use super::core::Core;
use crate::position::Partition;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    high_watermark: Option<i64>,
    last_stable_offset: Option<i64>,
    log_start: Option<i64>,
}

impl Marks {
    fn learn(&mut self, part: &FetchedPartition) {
        // An error entry says −1.
        let known = |offset: i64| (offset >= 0).then_some(offset);
        self.high_watermark = known(part.high_watermark).or(self.high_watermark);
        self.last_stable_offset = known(part.last_stable_offset).or(self.last_stable_offset);
        self.log_start = known(part.log_start_offset).or(self.log_start);
    }
}

impl Partition {
    fn marks(&self) -> Marks {
        Marks {
            high_watermark: self.high_watermark,
            last_stable_offset: self.last_stable_offset,
            log_start: self.log_start,
        }
    }

    /// Takes what an answer says of the log.
    pub fn learn(&mut self, part: &FetchedPartition, committed_only: bool) {
        let mut marks = self.marks();
        marks.learn(part);
        self.remember(marks, committed_only);
    }

    fn remember(&mut self, marks: Marks, committed_only: bool) {
        self.high_watermark = marks.high_watermark;
        self.last_stable_offset = marks.last_stable_offset;
        self.log_start = marks.log_start;
        if self.end_at_start.is_none() {
            self.end_at_start = self.end(committed_only);
        }
    }
}

impl Core {
    /// The partition leaves the assignment; a session may go on holding it until its next fetch.
    pub(super) fn depart(&mut self, partition: &Partition) {
        let key = (partition.topic, partition.index);
        if self.nodes.values().any(|node| node.session.holds(key.0, key.1)) {
            self.departed.insert(key, partition.marks());
        }
    }

    /// The partition is back before any session has noticed.
    pub(super) fn come_back(&mut self, partition: &mut Partition) {
        if let Some(marks) = self.departed.remove(&(partition.topic, partition.index)) {
            partition.remember(marks, self.settings.committed_only);
        }
    }

    /// An answer about a partition that is not assigned.
    pub(super) fn learn_of_departed(&mut self, topic: TopicName, part: &FetchedPartition) {
        if let Some(marks) = self.departed.get_mut(&(topic, part.partition)) {
            marks.learn(part);
        }
    }

    /// A session has changed: those it has forgotten will be told anew.
    pub(super) fn forget_departed(&mut self) {
        let nodes = &self.nodes;
        self.departed
            .retain(|(topic, index), _| nodes.values().any(|node| node.session.holds(*topic, *index)));
    }
}
