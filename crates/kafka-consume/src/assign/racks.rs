//! Racks as numbers, and the rule for when they are worth looking at (KIP-881).
//!
//! Holds no choice of its own: who gets what is the assignors' business.

use std::collections::{BTreeSet, HashMap};

use super::group::{Cells, Group, Rows};

#[derive(Debug, Default)]
pub(super) struct Racks {
    /// The rack of each member, for those that have one.
    members: Vec<Option<usize>>,
    /// The racks of each partition's replicas. Empty as a whole when no member has a rack.
    partitions: Vec<Vec<usize>>,
    /// How many members sit in each rack.
    crowd: Vec<usize>,
}

impl Racks {
    pub(super) fn new(group: &Group<'_>) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut members = Vec::with_capacity(group.members.len());
        for member in &group.members {
            members.push(member.subscription.rack.as_deref().filter(|rack| !rack.is_empty()).map(|rack| {
                let next = numbers.len();
                *numbers.entry(rack).or_insert(next)
            }));
        }
        if numbers.is_empty() {
            return Self { members, ..Self::default() };
        }
        let mut partitions = Vec::with_capacity(group.partition_count());
        for topic in &group.topics {
            for index in 0..topic.len {
                let mut racks = Vec::new();
                for rack in topic.info.racks.row(index).iter().filter(|rack| !rack.is_empty()) {
                    let next = numbers.len();
                    let rack = *numbers.entry(rack).or_insert(next);
                    if !racks.contains(&rack) {
                        racks.push(rack);
                    }
                }
                racks.sort_unstable();
                partitions.push(racks);
            }
        }
        let mut crowd = vec![0; numbers.len()];
        for rack in members.iter().flatten() {
            let others = crowd.at(*rack);
            crowd.put(*rack, others + 1);
        }
        Self { members, partitions, crowd }
    }

    pub(super) fn of_member(&self, member: usize) -> Option<usize> {
        self.members.at(member)
    }

    pub(super) fn of_partition(&self, partition: usize) -> &[usize] {
        self.partitions.row(partition)
    }

    /// The member is near a replica.
    pub(super) fn near(&self, member: usize, partition: usize) -> bool {
        self.of_member(member).is_some_and(|rack| self.of_partition(partition).contains(&rack))
    }

    /// The member has a rack, and no replica is in it.
    pub(super) fn mismatch(&self, member: usize, partition: usize) -> bool {
        self.of_member(member).is_some_and(|rack| !self.of_partition(partition).contains(&rack))
    }

    /// Racks matter when some member shares one with some replica, and partitions differ in them.
    pub(super) fn matter(&self, members: &[usize], partitions: std::ops::Range<usize>) -> bool {
        let theirs: BTreeSet<usize> = members.iter().filter_map(|&member| self.of_member(member)).collect();
        if theirs.is_empty() {
            return false;
        }
        let all: BTreeSet<usize> =
            partitions.clone().flat_map(|partition| self.of_partition(partition).iter().copied()).collect();
        !theirs.is_disjoint(&all)
            && partitions.clone().any(|partition| self.of_partition(partition).len() != all.len())
    }

    /// How many members sit in the racks of each partition.
    pub(super) fn members_near(&self, partition: usize) -> usize {
        self.of_partition(partition).iter().map(|&rack| self.crowd.at(rack)).sum()
    }
}
