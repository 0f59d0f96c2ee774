//! The orders of Java that leak into assignments: of strings, and of its hash maps.
//!
//! Hash codes of strings and of topic-partitions are fixed by Java's specification and its hash map's layout has
//! been the same since version 8, so the order is the same in every JVM. Not modelled: the order inside a bucket
//! that became a tree (nine colliding keys in a table of 64 or more), which no set of honest names reaches.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Java compares strings by UTF-16 unit, which differs from Rust's order beyond the basic plane.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

/// `String.hashCode`.
pub(super) fn string_hash(s: &str) -> i32 {
    s.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// `TopicPartition.hashCode`.
pub(super) fn partition_hash(topic_hash: i32, partition: i32) -> i32 {
    31_i32.wrapping_add(partition).wrapping_mul(31).wrapping_add(topic_hash)
}

const FIRST_CAPACITY: u32 = 16;
/// A chain of this many makes a small table double, and a large one turn the chain into a tree.
const LONG_CHAIN: usize = 9;
const SMALL_TABLE: u32 = 64;

fn bucket(hash: i32, capacity: u32) -> u32 {
    let hash = hash.cast_unsigned();
    (hash ^ (hash >> 16)) & (capacity - 1)
}

/// Whether a table that size holds more than three quarters of it.
fn overfull(len: usize, capacity: u32) -> bool {
    u32::try_from(len).is_ok_and(|len| len > capacity / 4 * 3)
}

/// A hash set of Java over small payloads: walked by bucket, and by insertion inside a bucket. Doubling keeps the
/// order inside a bucket, and nothing ever shrinks it.
#[derive(Debug, Clone)]
pub(super) struct HashOrder<T> {
    /// While there are so few that the table cannot have grown, in order of insertion: most tables in a rebalance
    /// hold one entry.
    few: Vec<(Ticket, T)>,
    capacity: u32,
    chains: BTreeMap<u32, usize>,
    next: u64,
    entries: BTreeMap<(u32, u64), (i32, T)>,
}

/// Names one entry of a [`HashOrder`] for its removal; stays good while the table grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ticket {
    hash: i32,
    sequence: u64,
}

impl<T: Copy> HashOrder<T> {
    pub(super) fn new() -> Self {
        Self {
            few: Vec::new(),
            capacity: FIRST_CAPACITY,
            chains: BTreeMap::new(),
            next: 0,
            entries: BTreeMap::new(),
        }
    }

    /// Adds a key that is not in it yet.
    pub(super) fn insert(&mut self, hash: i32, item: T) -> Ticket {
        let ticket = Ticket { hash, sequence: self.next };
        self.next += 1;
        if self.entries.is_empty() && self.capacity == FIRST_CAPACITY && self.few.len() + 1 < LONG_CHAIN {
            self.few.push((ticket, item));
            return ticket;
        }
        for (ticket, item) in std::mem::take(&mut self.few) {
            self.place(ticket, item);
        }
        self.place(ticket, item);
        ticket
    }

    fn place(&mut self, ticket: Ticket, item: T) {
        let hash = ticket.hash;
        let place = bucket(hash, self.capacity);
        let chain = self.chains.entry(place).or_default();
        *chain += 1;
        let long = *chain >= LONG_CHAIN && self.capacity < SMALL_TABLE;
        self.entries.insert((place, ticket.sequence), (hash, item));
        if long {
            self.double();
        }
        if overfull(self.entries.len(), self.capacity) {
            self.double();
        }
    }

    pub(super) fn remove(&mut self, ticket: Ticket) {
        self.few.retain(|(held, _)| *held != ticket);
        let place = bucket(ticket.hash, self.capacity);
        if self.entries.remove(&(place, ticket.sequence)).is_some()
            && let Some(chain) = self.chains.get_mut(&place)
        {
            *chain = chain.saturating_sub(1);
        }
    }

    pub(super) fn first(&self) -> Option<T> {
        self.iter().next()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.entries.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = T> + '_ {
        let mut few: Vec<(u32, T)> =
            self.few.iter().map(|(ticket, item)| (bucket(ticket.hash, FIRST_CAPACITY), *item)).collect();
        few.sort_by_key(|(place, _)| *place);
        few.into_iter().map(|(_, item)| item).chain(self.entries.values().map(|(_, item)| *item))
    }

    fn double(&mut self) {
        let Some(capacity) = self.capacity.checked_mul(2).filter(|&c| c <= 1 << 30) else { return };
        self.capacity = capacity;
        self.chains.clear();
        let old = std::mem::take(&mut self.entries);
        for ((_, sequence), (hash, item)) in old {
            let place = bucket(hash, capacity);
            *self.chains.entry(place).or_default() += 1;
            self.entries.insert((place, sequence), (hash, item));
        }
    }
}

/// The items in the order in which a Java hash map filled with them (distinct keys, in this order) is walked.
pub(super) fn map_order<T: Copy>(items: impl IntoIterator<Item = (i32, T)>) -> Vec<T> {
    let mut table = HashOrder::new();
    for (hash, item) in items {
        table.insert(hash, item);
    }
    table.iter().collect()
}
