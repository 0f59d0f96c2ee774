//! Members subscribe to different topics: give what is free to whoever has least, then move partitions one at a
//! time until no move makes two members more even.
//!
//! Lists are kept as an owner and a stamp per partition, so a move costs no list surgery; members are kept in order
//! of (count, id). The number of moves is bounded: taking back an earlier move can, unlike a plain move, make the
//! group less even, and nothing proves that Java's rule always comes to rest.

use super::super::group::{Cells, Group, Rows};
use super::super::racks::Racks;
use super::movements::Movements;
use super::{Claim, Claims, NO_GENERATION, Spread};

/// Moves per partition after which the spread is taken as it is. Recorded groups need less than two.
const MOVES_PER_PARTITION: usize = 16;

#[derive(Clone)]
struct Holdings {
    owner: Vec<Option<usize>>,
    /// Orders a member's partitions by when it got them.
    stamp: Vec<u64>,
    count: Vec<usize>,
    next_stamp: u64,
}

impl Holdings {
    fn give(&mut self, partition: usize, member: usize) {
        if let Some(old) = self.owner.at(partition) {
            let had = self.count.at(old);
            self.count.put(old, had.saturating_sub(1));
        }
        self.owner.put(partition, Some(member));
        self.stamp.put(partition, self.next_stamp);
        self.next_stamp += 1;
        let has = self.count.at(member);
        self.count.put(member, has + 1);
    }

    fn lists(&self) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.owner.len()).collect();
        order.sort_by_key(|&partition| self.stamp.at(partition));
        let mut lists = vec![Vec::new(); self.count.len()];
        for partition in order {
            if let Some(member) = self.owner.at(partition) {
                lists.add_to(member, partition);
            }
        }
        lists
    }
}

struct Balance<'g> {
    group: &'g Group<'g>,
    racks: &'g Racks,
    held: Holdings,
    /// Members that take part, by (count, id).
    order: Vec<(usize, usize)>,
    /// By partition: the member of an older generation that held it last.
    previous: Vec<Option<usize>>,
    movements: Movements,
    moves_left: usize,
}

pub(super) fn assign(
    group: &Group<'_>,
    claims: &[Claim],
    settled: Claims,
    racks: &Racks,
    max_generation: i32,
) -> Spread {
    let partitions = group.partition_count();
    let mut held = Holdings {
        owner: vec![None; partitions],
        stamp: vec![0; partitions],
        count: vec![0; group.members.len()],
        next_stamp: 0,
    };
    let mut revoked = false;
    for (member, owned) in settled.owned.iter().enumerate() {
        for &partition in owned {
            if !group.wants(member, group.topic_of(partition)) || racks.mismatch(member, partition) {
                revoked = true;
            } else {
                held.give(partition, member);
            }
        }
    }
    let order = (0..group.members.len()).map(|member| (held.count.at(member), group.rank.at(member)));
    let mut order: Vec<(usize, usize)> = order.collect();
    order.sort_unstable();
    let mut balance = Balance {
        group,
        racks,
        held,
        order,
        previous: previous_owners(group, claims, max_generation),
        movements: Movements::default(),
        moves_left: partitions.saturating_mul(MOVES_PER_PARTITION),
    };
    balance.run(revoked);
    let lists = balance.held.lists();
    let moving = moving(partitions, claims, &lists);
    Spread { lists, moving }
}

/// Java gives a partition back to such a member without asking whether it still subscribes; here it must.
fn previous_owners(group: &Group<'_>, claims: &[Claim], max_generation: i32) -> Vec<Option<usize>> {
    let mut previous: Vec<Option<(usize, i32)>> = vec![None; group.partition_count()];
    for (member, claim) in claims.iter().enumerate() {
        let generation = claim.generation.unwrap_or(NO_GENERATION);
        if generation >= max_generation {
            continue;
        }
        for &partition in &claim.partitions {
            let newer = previous.at(partition).is_none_or(|(_, other)| generation > other);
            if newer && group.wants(member, group.topic_of(partition)) {
                previous.put(partition, Some((member, generation)));
            }
        }
    }
    previous.into_iter().map(|previous| previous.map(|(member, _)| member)).collect()
}

/// Given to somebody who did not claim it while somebody who did is not given it.
fn moving(partitions: usize, claims: &[Claim], lists: &[Vec<usize>]) -> Vec<bool> {
    let mut holder: Vec<Option<usize>> = vec![None; partitions];
    for (member, list) in lists.iter().enumerate() {
        for &partition in list {
            holder.put(partition, Some(member));
        }
    }
    let mut lost = vec![false; partitions];
    let mut claimed_by_holder = vec![false; partitions];
    for (member, claim) in claims.iter().enumerate() {
        for &partition in &claim.partitions {
            if holder.at(partition) == Some(member) {
                claimed_by_holder.put(partition, true);
            } else {
                lost.put(partition, true);
            }
        }
    }
    lost.into_iter().zip(claimed_by_holder).map(|(lost, same)| lost && !same).collect()
}

impl Balance<'_> {
    fn run(&mut self, revoked: bool) {
        let group = self.group;
        let mut topics: Vec<usize> = group.by_name.clone();
        let subscribers = |topic: usize| group.topics.get(topic).map_or(0, |topic| topic.subscribers.len());
        topics.sort_by_key(|&topic| subscribers(topic));
        let mut all: Vec<usize> = topics
            .iter()
            .filter_map(|&topic| group.topics.get(topic))
            .flat_map(|topic| topic.partitions())
            .collect();
        let mut free: Vec<usize> = all.iter().copied().filter(|&p| self.held.owner.at(p).is_none()).collect();

        let started_empty = self.order.last().is_none_or(|&(count, _)| count == 0);
        self.hand_out(&free);

        // What only one member can have, and members that hold all they could of such, stay out of it.
        let movable = |partition: &usize| subscribers(group.topic_of(*partition)) >= 2;
        all.retain(movable);
        free.retain(movable);
        let mut takes_part: Vec<bool> = (0..group.members.len())
            .map(|member| {
                let could: usize = group
                    .topics
                    .iter()
                    .enumerate()
                    .filter(|&(number, _)| group.wants(member, number))
                    .map(|(_, topic)| topic.len)
                    .sum();
                self.held.count.at(member) < could
            })
            .collect();
        for &partition in &all {
            if let Some(owner) = self.held.owner.at(partition) {
                takes_part.put(owner, true);
            }
        }
        self.order.retain(|&(_, rank)| takes_part.at(group.by_id.at(rank)));

        let before = self.held.clone();
        if !revoked {
            self.level(&free);
        }
        let moved = self.level(&all);
        if !started_empty && moved && self.score(&self.held) >= self.score(&before) {
            self.held = before;
        }
    }

    /// Gives every free partition to the subscriber that has least; with racks to one nearby if there is one.
    fn hand_out(&mut self, free: &[usize]) {
        let mut free = free.to_vec();
        for near_only in [true, false] {
            free.retain(|&partition| {
                let Some(member) = self.least(partition, near_only) else { return true };
                let had = self.held.count.at(member);
                self.held.give(partition, member);
                self.reorder(member, had);
                false
            });
        }
    }

    /// The first subscriber by (count, id).
    fn least(&self, partition: usize, near_only: bool) -> Option<usize> {
        let topic = self.group.topic_of(partition);
        self.order.iter().map(|&(_, rank)| self.group.by_id.at(rank)).find(|&member| {
            self.group.wants(member, topic) && !(near_only && self.racks.mismatch(member, partition))
        })
    }

    /// Puts a member that had `had` partitions where it belongs now.
    fn reorder(&mut self, member: usize, had: usize) {
        let rank = self.group.rank.at(member);
        if let Ok(place) = self.order.binary_search(&(had, rank)) {
            self.order.remove(place);
            let now = (self.held.count.at(member), rank);
            let place = self.order.partition_point(|entry| *entry < now);
            self.order.insert(place, now);
        }
    }

    /// Moves partitions to less loaded members until a whole round moves none. Returns whether any moved.
    ///
    /// Java asks before each partition whether the group is balanced as a whole; no single move is possible then,
    /// so the answer changes nothing but the time it takes.
    fn level(&mut self, partitions: &[usize]) -> bool {
        let mut any = false;
        loop {
            let mut moved = false;
            for &partition in partitions {
                if let (Some((min, _)), Some((max, _))) = (self.order.first(), self.order.last())
                    && max - min <= 1
                {
                    break;
                }
                if self.moves_left == 0 {
                    return any;
                }
                moved |= self.improve(partition);
            }
            any |= moved;
            if !moved {
                return any;
            }
        }
    }

    fn improve(&mut self, partition: usize) -> bool {
        let Some(owner) = self.held.owner.at(partition) else { return false };
        let has = self.held.count.at(owner);
        let lighter = |member: &usize| has > self.held.count.at(*member) + 1;
        let target = self
            .previous
            .at(partition)
            .filter(lighter)
            .or_else(|| self.least(partition, false).filter(lighter));
        let Some(target) = target else { return false };
        self.moves_left -= 1;
        self.shift(partition, owner, target);
        true
    }

    fn shift(&mut self, partition: usize, owner: usize, target: usize) {
        let topic = self.group.topic_of(partition);
        let partition = self.movements.stand_in(topic, partition, owner, target);
        let Some(owner) = self.held.owner.at(partition) else { return };
        let had = (self.held.count.at(owner), self.held.count.at(target));
        let hash = self.group.topics.get(topic).map_or(0, |topic| topic.hash);
        self.movements.note(topic, hash, self.group.index_of(partition), partition, owner, target);
        self.held.give(partition, target);
        self.reorder(owner, had.0);
        self.reorder(target, had.1);
    }

    /// How uneven: the sum of the differences of all pairs of members that take part.
    fn score(&self, held: &Holdings) -> u128 {
        let members = self.order.iter().map(|&(_, rank)| self.group.by_id.at(rank));
        let mut counts: Vec<usize> = members.map(|member| held.count.at(member)).collect();
        counts.sort_unstable();
        let (mut score, mut below) = (0_u128, 0_u128);
        for (position, count) in (0_u128..).zip(counts) {
            let count = u128::try_from(count).unwrap_or(u128::MAX);
            score = score.saturating_add(count.saturating_mul(position).saturating_sub(below));
            below = below.saturating_add(count);
        }
        score
    }
}
