//! Range: per topic, the members in order take contiguous runs; the first ones take one more when it does not
//! divide. With racks that matter, near partitions are given first, but topics that are split alike stay alike.
//!
//! A pass per topic with a cursor: nothing here looks at all members for each partition but the rack passes, which
//! stop at the first match.

use std::collections::HashMap;

use super::group::{Cells, Group, Rows, Topic};
use super::racks::Racks;

/// One topic while it is given away.
struct Open<'g> {
    topic: &'g Topic<'g>,
    /// Its subscribers, in member order, and how many of its partitions each has.
    members: Vec<usize>,
    given: Vec<usize>,
    taken: Vec<bool>,
    base: usize,
    /// How many members may still have one more than `base`.
    extra: usize,
    /// No subscriber has a rack: its partitions count as having none.
    rackless: bool,
    racks_matter: bool,
}

impl Open<'_> {
    fn room(&self, place: usize) -> usize {
        (self.base + usize::from(self.extra > 0)).saturating_sub(self.given.at(place))
    }

    /// Gives partitions (by index in the topic) to the member at `place`, in one go.
    fn give(&mut self, place: usize, indices: &[usize], lists: &mut [Vec<usize>]) {
        for &index in indices {
            self.taken.put(index, true);
            lists.add_to(self.members.at(place), self.topic.first + index);
        }
        let given = self.given.at(place) + indices.len();
        self.given.put(place, given);
        if given > self.base {
            self.extra = self.extra.saturating_sub(1);
        }
    }

    fn fits(&self, racks: &Racks, member: usize, index: usize) -> bool {
        racks.of_member(member).is_none() || (!self.rackless && racks.near(member, self.topic.first + index))
    }
}

pub(super) fn assign(group: &Group<'_>) -> Vec<Vec<usize>> {
    let mut lists = vec![Vec::new(); group.members.len()];
    let racks = Racks::new(group);
    let order = group.static_first();
    let mut open: Vec<Open<'_>> = Vec::with_capacity(group.topics.len());
    for (number, topic) in group.topics.iter().enumerate() {
        let members: Vec<usize> =
            order.iter().copied().filter(|&member| group.wants(member, number)).collect();
        let (Some(base), Some(extra)) =
            (topic.len.checked_div(members.len()), topic.len.checked_rem(members.len()))
        else {
            continue;
        };
        open.push(Open {
            topic,
            given: vec![0; members.len()],
            taken: vec![false; topic.len],
            base,
            extra,
            rackless: members.iter().all(|&member| racks.of_member(member).is_none()),
            racks_matter: racks.matter(&members, topic.partitions()),
            members,
        });
    }

    let racks_matter = open.iter().any(|topic| topic.racks_matter);
    if racks_matter {
        near_first(&mut open, &racks, &mut lists);
    }
    for topic in &mut open {
        let mut from = 0;
        for place in 0..topic.members.len() {
            let room = topic.room(place);
            let mut run = Vec::with_capacity(room);
            while run.len() < room && from < topic.topic.len {
                if !topic.taken.at(from) {
                    run.push(from);
                }
                from += 1;
            }
            if !run.is_empty() {
                topic.give(place, &run, &mut lists);
            }
        }
    }
    if racks_matter {
        let rank = group.name_rank();
        for list in &mut lists {
            list.sort_by_key(|&partition| (rank.at(group.topic_of(partition)), partition));
        }
    }
    lists
}

/// The rack pass. Topics with the same subscribers and as many partitions are given together, so that what is
/// joined by partition number stays with one member.
fn near_first(open: &mut [Open<'_>], racks: &Racks, lists: &mut [Vec<usize>]) {
    let mut alike: HashMap<(Vec<usize>, usize), Vec<&mut Open<'_>>> = HashMap::new();
    for topic in open {
        let len = if topic.rackless { 0 } else { topic.topic.len };
        alike.entry((topic.members.clone(), len)).or_default().push(topic);
    }
    for ((members, len), mut topics) in alike {
        match topics.as_mut_slice() {
            [topic] if topic.racks_matter => near_alone(topic, racks, lists),
            [_] => {}
            topics => near_together(&members, len, topics, racks, lists),
        }
    }
}

fn near_alone(topic: &mut Open<'_>, racks: &Racks, lists: &mut [Vec<usize>]) {
    for place in 0..topic.members.len() {
        let member = topic.members.at(place);
        let room = topic.room(place);
        let run: Vec<usize> = (0..topic.topic.len)
            .filter(|&index| !topic.taken.at(index) && topic.fits(racks, member, index))
            .take(room)
            .collect();
        if !run.is_empty() {
            topic.give(place, &run, lists);
        }
    }
}

fn near_together(
    members: &[usize],
    len: usize,
    topics: &mut [&mut Open<'_>],
    racks: &Racks,
    lists: &mut [Vec<usize>],
) {
    let mut left: Vec<usize> = (0..members.len()).collect();
    for index in 0..len {
        let found = left.iter().position(|&place| {
            let member = members.at(place);
            topics.iter().all(|topic| topic.fits(racks, member, index) && topic.room(place) > 0)
        });
        let Some(found) = found else { continue };
        let place = left.at(found);
        for topic in topics.iter_mut() {
            topic.give(place, &[index], lists);
        }
        // Topics here have equal counts, so a member is full in all of them at once.
        if topics.iter().all(|topic| topic.room(place) == 0) {
            left.remove(found);
            if left.is_empty() {
                break;
            }
        }
    }
}
