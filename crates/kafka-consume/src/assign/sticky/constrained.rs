//! All members subscribe to the same topics: everyone keeps up to a quota of what it owned, the rest is dealt out.
//!
//! With T partitions and N members each gets T / N rounded down, and T mod N of them one more. Partitions are
//! looked at a constant number of times, but for the search of a member in the right rack.

use std::collections::VecDeque;

use super::super::group::{Cells, Group, Rows};
use super::super::racks::Racks;
use super::{Claims, Spread};

struct Deal<'g> {
    racks: &'g Racks,
    contested: &'g [bool],
    min: usize,
    max: usize,
    /// How many members are to have more than `min`, and how many have.
    over_expected: usize,
    over: usize,
    lists: Vec<Vec<usize>>,
    kept: Vec<bool>,
    moving: Vec<bool>,
    /// By partition: who owned it and was not left it.
    given_up_by: Vec<Option<usize>>,
    below_min: Vec<usize>,
    at_min: VecDeque<usize>,
}

pub(super) fn assign(group: &Group<'_>, claims: &Claims, racks: &Racks) -> Spread {
    let (partitions, members) = (group.partition_count(), group.members.len());
    let mut deal = Deal {
        racks,
        contested: &claims.contested,
        min: partitions.checked_div(members).unwrap_or(0),
        max: if members == 0 { 0 } else { partitions.div_ceil(members) },
        over_expected: partitions.checked_rem(members).unwrap_or(0),
        over: 0,
        lists: vec![Vec::new(); members],
        kept: vec![false; partitions],
        moving: vec![false; partitions],
        given_up_by: vec![None; partitions],
        below_min: Vec::new(),
        at_min: VecDeque::new(),
    };
    let names = group.name_rank();
    for member in 0..members {
        deal.keep_owned(member, claims.owned.row(member), |partition| {
            (group.index_of(partition), names.at(group.topic_of(partition)))
        });
    }

    let by_name = group.by_name.iter().filter_map(|&topic| group.topics.get(topic));
    let mut free: Vec<usize> =
        by_name.flat_map(|topic| topic.partitions()).filter(|&p| !deal.kept.at(p)).collect();
    deal.below_min.sort_by_key(|&member| group.rank.at(member));
    deal.at_min.make_contiguous().sort_by_key(|&member| group.rank.at(member));
    // Those with the fewest members nearby first.
    free.sort_by_key(|&partition| racks.members_near(partition));
    let free = deal.deal_near(free);
    deal.deal_rest(free);
    Spread { lists: deal.lists, moving: deal.moving }
}

impl Deal<'_> {
    fn keep_owned(&mut self, member: usize, owned: &[usize], order: impl Fn(usize) -> (usize, usize)) {
        let mut stays = Vec::with_capacity(owned.len());
        for &partition in owned.iter().filter(|&&partition| !self.contested.at(partition)) {
            if self.racks.mismatch(member, partition) {
                self.given_up_by.put(partition, Some(member));
            } else {
                stays.push(partition);
            }
        }
        stays.sort_by_key(|&partition| order(partition));

        let quota = if stays.len() < self.min {
            self.below_min.push(member);
            stays.len()
        } else if stays.len() >= self.max && self.over < self.over_expected {
            self.over += 1;
            if self.over == self.over_expected {
                self.at_min.clear();
            }
            self.max
        } else {
            if self.over < self.over_expected {
                self.at_min.push_back(member);
            }
            self.min
        };
        for (position, partition) in stays.into_iter().enumerate() {
            if position < quota {
                self.kept.put(partition, true);
                self.lists.add_to(member, partition);
            } else {
                self.given_up_by.put(partition, Some(member));
            }
        }
    }

    /// Returns how many the member has now.
    fn give(&mut self, partition: usize, member: usize) -> usize {
        let old = self.given_up_by.at(partition);
        if old.is_some_and(|old| old != member) || self.contested.at(partition) {
            self.moving.put(partition, true);
        }
        self.lists.add_to(member, partition);
        self.lists.row(member).len()
    }

    /// Gives what can go to a member nearby; returns the rest in the same order.
    fn deal_near(&mut self, free: Vec<usize>) -> Vec<usize> {
        let mut rest = Vec::new();
        let mut turn = 0;
        for partition in free {
            if let Some(found) = self.nearest(partition, turn) {
                let member = self.below_min.at(found);
                let has = self.give(partition, member);
                if has >= self.min {
                    self.below_min.remove(found);
                    if has < self.max && self.over < self.over_expected {
                        self.at_min.push_back(member);
                    }
                    turn = found;
                } else {
                    turn = found + 1;
                }
                turn = turn.checked_rem(self.below_min.len()).unwrap_or(0);
            } else if let Some(found) = self.at_min.iter().position(|&m| self.racks.near(m, partition)) {
                let Some(&member) = self.at_min.get(found) else { continue };
                if self.give(partition, member) == self.max {
                    self.at_min.remove(found);
                    self.over += 1;
                    if self.over == self.over_expected {
                        self.at_min.clear();
                    }
                }
            } else {
                rest.push(partition);
            }
        }
        rest
    }

    /// The place in `below_min` of the first member near the partition, looking around from `turn`.
    fn nearest(&self, partition: usize, turn: usize) -> Option<usize> {
        if self.racks.of_partition(partition).is_empty() {
            return None;
        }
        let len = self.below_min.len();
        (turn..len)
            .chain(0..turn.min(len))
            .find(|&place| self.racks.near(self.below_min.at(place), partition))
    }

    fn deal_rest(&mut self, free: Vec<usize>) {
        let mut turn = 0;
        for partition in free {
            if turn >= self.below_min.len() {
                turn = 0;
            }
            if let Some(&member) = self.below_min.get(turn) {
                if self.give(partition, member) >= self.min {
                    self.below_min.remove(turn);
                    self.at_min.push_back(member);
                } else {
                    turn += 1;
                }
            } else if let Some(member) = self.at_min.pop_front().or_else(|| self.emptiest()) {
                self.give(partition, member);
            }
        }
    }

    /// Never needed while the quotas add up; if they ever do not, no partition is left to nobody.
    fn emptiest(&self) -> Option<usize> {
        (0..self.lists.len()).min_by_key(|&member| self.lists.row(member).len())
    }
}
