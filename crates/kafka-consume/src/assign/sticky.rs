//! The sticky core: who claims what, and which of the two ways of spreading applies.
//!
//! When all members subscribe to the same topics, quotas alone decide (`constrained`). Otherwise partitions are
//! moved one at a time until nothing gets more even (`general`).
//!
//! Two departures from Java, both where its result is invalid: the subscriptions are compared with the first
//! member's even when that one is empty, and claims are read without partitions that no longer exist.

mod constrained;
mod general;
mod movements;

use super::AssignorState;
use super::group::{Cells, Group, Rows};
use super::racks::Racks;

/// What one member says it owned, and how new that is.
#[derive(Debug, Clone, Default)]
pub(super) struct Claim {
    /// Partitions that exist, each once, in the order they were named.
    pub partitions: Vec<usize>,
    /// The generation the claim comes from, wherever the member wrote it.
    pub generation: Option<i32>,
    /// The generation in the subscription's own field. Java asks this one when it settles a conflict.
    pub written_generation: Option<i32>,
}

/// Claims after conflicts were settled.
#[derive(Debug)]
struct Claims {
    /// By member: what it may keep, in the order it was claimed.
    owned: Vec<Vec<usize>>,
    /// Claimed by several members of one generation: nobody's word counts.
    contested: Vec<bool>,
}

/// A partition given to a member while another may still hold it is `moving`.
#[derive(Debug)]
pub(super) struct Spread {
    pub lists: Vec<Vec<usize>>,
    /// By partition.
    pub moving: Vec<bool>,
}

const NO_GENERATION: i32 = -1;

/// Spreads the group's partitions; `claims` by member number.
pub(super) fn assign(group: &Group<'_>, claims: &[Claim], state: &mut AssignorState) -> Spread {
    let settled = settle(group, claims, state);
    let racks = if state.restless < super::RESTLESS { Racks::new(group) } else { Racks::default() };
    let all: Vec<usize> = (0..group.members.len()).collect();
    let racks = if racks.matter(&all, 0..group.partition_count()) { racks } else { Racks::default() };
    if same_topics(group) {
        constrained::assign(group, &settled, &racks)
    } else {
        general::assign(group, claims, settled, &racks, state.max_generation)
    }
}

/// The names as written, unknown topics included: a topic that appears later must not change the way of spreading
/// for a group that Java's leader would treat alike.
fn same_topics(group: &Group<'_>) -> bool {
    let sorted = |member: &super::Member| {
        let mut topics: Vec<String> = member.subscription.topics.clone();
        topics.sort_unstable();
        topics.dedup();
        topics
    };
    let mut members = group.members.iter();
    let Some(first) = members.next().map(|member| sorted(member)) else { return true };
    members.all(|member| sorted(member) == first)
}

fn settle(group: &Group<'_>, claims: &[Claim], state: &mut AssignorState) -> Claims {
    let count = group.partition_count();
    let mut contested = vec![false; count];
    let mut claimed_by: Vec<Option<usize>> = vec![None; count];
    let mut kept_by: Vec<Option<usize>> = vec![None; count];
    for (member, claim) in claims.iter().enumerate() {
        let mine = claim.generation.unwrap_or(NO_GENERATION);
        state.max_generation = state.max_generation.max(mine);
        for &partition in &claim.partitions {
            let theirs = claimed_by
                .at(partition)
                .and_then(|other| claims.get(other))
                .map(|other| other.written_generation.unwrap_or(NO_GENERATION));
            match theirs {
                Some(theirs) if mine < theirs => {}
                Some(theirs) if mine == theirs => {
                    contested.put(partition, true);
                    kept_by.put(partition, None);
                    claimed_by.put(partition, Some(member));
                }
                _ => {
                    kept_by.put(partition, Some(member));
                    claimed_by.put(partition, Some(member));
                }
            }
        }
    }
    let mut owned = vec![Vec::new(); group.members.len()];
    for (member, claim) in claims.iter().enumerate() {
        for &partition in claim.partitions.iter().filter(|&&p| kept_by.at(p) == Some(member)) {
            owned.add_to(member, partition);
        }
    }
    Claims { owned, contested }
}
