//! Round robin: all partitions in one row, dealt out in turn to whoever subscribes. Racks do not matter here.

use super::group::{Group, Rows};

pub(super) fn assign(group: &Group<'_>) -> Vec<Vec<usize>> {
    let mut lists = vec![Vec::new(); group.members.len()];
    let order = group.static_first();
    let mut turn = order.iter().copied().cycle().peekable();
    for (number, topic) in
        group.by_name.iter().filter_map(|&number| Some((number, group.topics.get(number)?)))
    {
        for partition in topic.partitions() {
            // Every topic here has a subscriber, so one round finds one.
            for _ in 0..order.len() {
                match turn.peek() {
                    Some(&member) if !group.wants(member, number) => _ = turn.next(),
                    _ => break,
                }
            }
            if let Some(member) = turn.next() {
                lists.add_to(member, partition);
            }
        }
    }
    lists
}
