//! The target assignment: balanced over the members that want each topic, moving as little as possible.

use std::collections::BTreeMap;

use super::{Member, Places, Topics};

/// Computes who should own what, starting from what was meant before.
pub(super) fn compute(
    members: &BTreeMap<String, Member>,
    before: &BTreeMap<String, Places>,
    topics: &Topics,
) -> BTreeMap<String, Places> {
    let mut target: BTreeMap<String, Places> = members.keys().map(|id| (id.clone(), Places::new())).collect();
    let mut homeless = Vec::new();
    for (name, (id, partitions)) in topics {
        for index in 0..*partitions {
            let place = (*id, index);
            let owner = before.iter().find(|(owner, held)| {
                held.contains(&place) && members.get(*owner).is_some_and(|member| member.wants(name))
            });
            match owner.and_then(|(owner, _)| target.get_mut(owner)) {
                Some(held) => {
                    held.insert(place);
                }
                None => homeless.push((name, place)),
            }
        }
    }
    let load = |target: &BTreeMap<String, Places>, id: &str| target.get(id).map_or(0, Places::len);
    for (name, place) in homeless {
        let fit = members.iter().filter(|(_, member)| member.wants(name)).map(|(id, _)| id);
        if let Some(least) = fit.min_by_key(|id| load(&target, id))
            && let Some(held) = target.get_mut(least)
        {
            held.insert(place);
        }
    }
    // Each move brings two loads closer together, so this ends.
    while let Some((from, to, place)) = unfair(members, &target, topics) {
        if let Some(held) = target.get_mut(&from) {
            held.remove(&place);
        }
        target.entry(to).or_default().insert(place);
    }
    target
}

/// A partition that should move: from a member with at least two more than another one that wants it.
fn unfair(
    members: &BTreeMap<String, Member>,
    target: &BTreeMap<String, Places>,
    topics: &Topics,
) -> Option<(String, String, super::Place)> {
    let mut rich: Vec<(&String, &Places)> = target.iter().collect();
    rich.sort_by_key(|(_, held)| std::cmp::Reverse(held.len()));
    for (from, held) in rich {
        // The highest partitions move first, so that the lower ones stay where they are.
        for place in held.iter().rev() {
            let name = topics.iter().find(|(_, (id, _))| *id == place.0).map(|(name, _)| name)?;
            let fit = members.iter().filter(|(_, member)| member.wants(name)).map(|(id, _)| id);
            let poorest = fit.min_by_key(|id| target.get(*id).map_or(0, Places::len))?;
            if target.get(poorest).map_or(0, Places::len).saturating_add(1) < held.len() {
                return Some((from.clone(), poorest.clone(), *place));
            }
        }
    }
    None
}
