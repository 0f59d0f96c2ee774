//! Where partitions were moved from and to, so that a move is undone rather than answered by its opposite.
//!
//! Pure bookkeeping: decides nothing but which partition of a topic stands in for another.

use std::collections::HashMap;

use super::super::java::{self, HashOrder, Ticket};

/// topic, from, to.
type Path = (usize, usize, usize);

#[derive(Debug, Default)]
pub(super) struct Movements {
    by_partition: HashMap<usize, (Path, Ticket)>,
    by_path: HashMap<Path, HashOrder<usize>>,
}

impl Movements {
    /// The partition to move instead of this one from `from` to `to`: one of its topic that came the other way.
    pub(super) fn stand_in(&self, topic: usize, partition: usize, from: usize, to: usize) -> usize {
        let source = self.by_partition.get(&partition).map_or(from, |((_, source, _), _)| *source);
        self.by_path.get(&(topic, to, source)).and_then(HashOrder::first).unwrap_or(partition)
    }

    /// Notes that a partition went from `from` to `to`. `hash` is Java's of its topic, `index` its number there.
    pub(super) fn note(
        &mut self,
        topic: usize,
        hash: i32,
        index: usize,
        partition: usize,
        from: usize,
        to: usize,
    ) {
        let source = match self.by_partition.remove(&partition) {
            Some((path, ticket)) => {
                if let Some(moved) = self.by_path.get_mut(&path) {
                    moved.remove(ticket);
                    if moved.is_empty() {
                        self.by_path.remove(&path);
                    }
                }
                path.1
            }
            None => from,
        };
        if source == to {
            return;
        }
        let path = (topic, source, to);
        let hash = java::partition_hash(hash, i32::try_from(index).unwrap_or(i32::MAX));
        let ticket = self.by_path.entry(path).or_insert_with(HashOrder::new).insert(hash, partition);
        self.by_partition.insert(partition, (path, ticket));
    }
}
