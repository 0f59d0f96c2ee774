//! Positions as they travel between a consumer, a group's offset storage and a producer's transaction.

use std::collections::BTreeMap;

use crate::{Error, ErrorKind, Result};

/// An offset as a group stores it: the **next** record to read, not the last one handled.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CommittedOffset {
    /// Offset of the next record to read.
    pub offset: i64,
    /// Leader epoch of the record before it, where known; lets the next reader notice a truncated log (KIP-320).
    pub leader_epoch: Option<i32>,
    /// Free text stored beside the offset; at most `offset.metadata.max.bytes` (broker, 4,096 bytes) long.
    /// Kafka does not tell null from empty: an empty text comes back as `None`.
    pub metadata: Option<String>,
}

impl CommittedOffset {
    /// An offset without leader epoch and without metadata.
    pub fn new(offset: i64) -> Self {
        CommittedOffset { offset, leader_epoch: None, metadata: None }
    }

    /// Adds the leader epoch of the record before `offset`; `None` or a negative epoch means unknown.
    pub fn with_leader_epoch(mut self, epoch: impl Into<Option<i32>>) -> Self {
        self.leader_epoch = epoch.into().filter(|epoch| *epoch >= 0);
        self
    }

    /// Adds free text stored beside the offset.
    pub fn with_metadata(mut self, metadata: impl Into<String>) -> Self {
        self.metadata = Some(metadata.into());
        self
    }
}

/// A set of positions, one per partition, in the order of topic and partition.
///
/// What `Consumer::positions` answers and what a transactional producer takes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Positions {
    offsets: BTreeMap<String, BTreeMap<i32, CommittedOffset>>,
}

impl Positions {
    /// No positions.
    pub fn new() -> Self {
        Positions::default()
    }

    /// Sets the position of one partition, replacing an earlier one.
    pub fn insert(&mut self, topic: impl Into<String>, partition: i32, offset: CommittedOffset) {
        self.offsets.entry(topic.into()).or_default().insert(partition, offset);
    }

    /// How many partitions have a position.
    pub fn len(&self) -> usize {
        self.offsets.values().map(BTreeMap::len).sum()
    }

    /// Whether there is no position at all.
    pub fn is_empty(&self) -> bool {
        self.offsets.values().all(BTreeMap::is_empty)
    }

    /// The position of one partition.
    pub fn get(&self, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.offsets.get(topic)?.get(&partition)
    }

    /// Every position, by topic and partition.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i32, &CommittedOffset)> {
        self.offsets.iter().flat_map(|(topic, parts)| {
            parts.iter().map(move |(index, offset)| (topic.as_str(), *index, offset))
        })
    }
}

impl FromIterator<((String, i32), CommittedOffset)> for Positions {
    fn from_iter<I: IntoIterator<Item = ((String, i32), CommittedOffset)>>(iter: I) -> Self {
        let mut positions = Positions::new();
        positions.extend(iter);
        positions
    }
}

impl Extend<((String, i32), CommittedOffset)> for Positions {
    fn extend<I: IntoIterator<Item = ((String, i32), CommittedOffset)>>(&mut self, iter: I) {
        for ((topic, partition), offset) in iter {
            self.insert(topic, partition, offset);
        }
    }
}

impl IntoIterator for Positions {
    type Item = ((String, i32), CommittedOffset);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        let flat: Vec<_> = self
            .offsets
            .into_iter()
            .flat_map(|(topic, parts)| {
                parts.into_iter().map(move |(index, offset)| ((topic.clone(), index), offset))
            })
            .collect();
        flat.into_iter()
    }
}

/// Who a consumer is in its group, as a transaction needs it to fence a zombie (KIP-447).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GroupMetadata {
    /// The group's id.
    pub group_id: String,
    /// Generation (classic) or member epoch (KIP-848); −1 for a consumer that is not a member.
    pub generation_id: i32,
    /// Member id; empty for a consumer that is not a member.
    pub member_id: String,
    /// `group.instance.id` of a static member (KIP-345).
    pub instance_id: Option<String>,
}

impl GroupMetadata {
    /// The metadata of a consumer that borrows a group's offset storage without being a member.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` when `group_id` is empty: a broker would accept it and store the offsets under no name.
    pub fn anonymous(group_id: impl Into<String>) -> Result<Self> {
        let group_id = group_id.into();
        if group_id.is_empty() {
            return Err(
                Error::new(ErrorKind::InvalidRequest, "group metadata").with_detail("the group id is empty")
            );
        }
        Ok(GroupMetadata { group_id, generation_id: -1, member_id: String::new(), instance_id: None })
    }

    /// The metadata of a member.
    pub fn member(
        group_id: String,
        generation_id: i32,
        member_id: String,
        instance_id: Option<String>,
    ) -> Self {
        GroupMetadata { group_id, generation_id, member_id, instance_id }
    }
}
