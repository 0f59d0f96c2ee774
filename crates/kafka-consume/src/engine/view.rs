//! What can be seen of the engine from outside. Pure; changes nothing.

use std::collections::BTreeMap;

use kafka_meta::{CommittedOffset, ErrorKind, Positions, TopicName};

use super::core::Core;
use crate::position::{Partition, State};

impl Core {
    pub fn paused(&self) -> Vec<(String, i32)> {
        self.names(|partition| partition.paused)
    }

    pub fn assignment(&self) -> Vec<(String, i32)> {
        self.names(|_| true)
    }

    pub fn assigned_topics(&self) -> Vec<TopicName> {
        let mut topics: Vec<TopicName> = self.index.keys().map(|(topic, _)| *topic).collect();
        topics.sort_unstable();
        topics.dedup();
        topics
    }

    pub fn is_assigned(&self, topic: TopicName, index: i32) -> bool {
        self.index.contains_key(&(topic, index))
    }

    fn names(&self, wanted: impl Fn(&Partition) -> bool) -> Vec<(String, i32)> {
        let mut names: Vec<(String, i32)> = self
            .each()
            .filter(|(_, partition)| wanted(partition))
            .map(|(_, partition)| (partition.topic.as_str().to_owned(), partition.index))
            .collect();
        names.sort_unstable();
        names
    }

    /// Every known consumed position.
    pub fn positions(&self) -> Positions {
        self.each()
            .filter_map(|(_, partition)| {
                let position = partition.position()?;
                Some(((partition.topic.as_str().to_owned(), partition.index), position.into()))
            })
            .collect()
    }

    /// As [`Core::positions`], by interned name.
    pub fn positions_by_name(&self) -> BTreeMap<(TopicName, i32), CommittedOffset> {
        self.each()
            .filter_map(|(_, partition)| {
                Some(((partition.topic, partition.index), partition.position()?.into()))
            })
            .collect()
    }

    /// As far as the buffers reach, for showing that a commit of it would be noticed.
    #[cfg(test)]
    pub fn fetched_by_name(&self) -> BTreeMap<(TopicName, i32), CommittedOffset> {
        self.each()
            .filter_map(|(_, partition)| Some(((partition.topic, partition.index), partition.fetch?.into())))
            .collect()
    }

    /// How far the partition's position is from the end this reader can reach.
    pub fn lag(&self, topic: &str, index: i32) -> Option<i64> {
        let partition = self.partition(topic, index)?;
        let end = partition.end(self.settings.committed_only)?;
        Some(end.saturating_sub(partition.position()?.offset).max(0))
    }

    /// Whether every partition has reached the end that was known first after its assignment.
    pub fn caught_up(&self) -> bool {
        self.each().all(|(_, partition)| {
            matches!((partition.end_at_start, partition.position()),
                (Some(end), Some(position)) if position.offset >= end)
        })
    }

    /// Partitions that will not move without the caller.
    pub fn stopped(&self) -> Vec<((String, i32), ErrorKind)> {
        let mut stopped: Vec<((String, i32), ErrorKind)> = self
            .each()
            .filter(|(_, partition)| matches!(partition.state, State::Stopped))
            .filter_map(|(_, partition)| {
                let kind = partition.fault.as_ref()?.error.kind();
                Some(((partition.topic.as_str().to_owned(), partition.index), kind))
            })
            .collect();
        stopped.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        stopped
    }

    /// Bytes buffered or inflated and not yet handed out.
    pub fn buffered_bytes(&self) -> usize {
        self.budget.charged()
    }

    /// For metrics: every partition in order of name.
    pub fn visit(&self, mut visit: impl FnMut(&Partition)) {
        for (_, partition) in self.each() {
            visit(partition);
        }
    }
}
