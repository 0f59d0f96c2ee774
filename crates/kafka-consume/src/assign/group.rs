//! A group and its topics as numbers: members and topics in Java's map order, partitions numbered through.
//!
//! Everything a member wrote is checked here once: unknown topics, partitions that do not exist and repeated
//! claims are dropped, so the assignors work on numbers that are all valid. Access by number outside a table
//! reads as the default and writes nothing, so that a slip is a test failure and not a crash in a leader.

use std::collections::{HashMap, HashSet};

use super::java;
use super::{Member, TopicPartitions, Topics};

/// Tables read by number.
pub(super) trait Cells<T> {
    fn at(&self, index: usize) -> T;
    fn put(&mut self, index: usize, value: T);
}

impl<T: Copy + Default> Cells<T> for [T] {
    fn at(&self, index: usize) -> T {
        self.get(index).copied().unwrap_or_default()
    }

    fn put(&mut self, index: usize, value: T) {
        if let Some(cell) = self.get_mut(index) {
            *cell = value;
        }
    }
}

/// Tables of lists read by number.
pub(super) trait Rows<T> {
    fn row(&self, index: usize) -> &[T];
    fn add_to(&mut self, index: usize, value: T);
}

impl<T> Rows<T> for [Vec<T>] {
    fn row(&self, index: usize) -> &[T] {
        self.get(index).map_or(&[], Vec::as_slice)
    }

    fn add_to(&mut self, index: usize, value: T) {
        if let Some(row) = self.get_mut(index) {
            row.push(value);
        }
    }
}

/// One subscribed topic that has partitions.
#[derive(Debug)]
pub(super) struct Topic<'a> {
    pub name: &'a str,
    pub hash: i32,
    /// The number of its first partition.
    pub first: usize,
    pub len: usize,
    pub info: &'a TopicPartitions,
    /// In Java's member order.
    pub subscribers: Vec<usize>,
}

impl Topic<'_> {
    pub(super) fn partitions(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.len
    }
}

#[derive(Debug)]
pub(super) struct Group<'a> {
    /// As given, each id once: the order of the result.
    given: Vec<&'a Member>,
    /// In Java's map order.
    pub members: Vec<&'a Member>,
    /// Member numbers by id.
    pub by_id: Vec<usize>,
    /// Where each member stands in `by_id`.
    pub rank: Vec<usize>,
    /// In Java's map order.
    pub topics: Vec<Topic<'a>>,
    /// Topic numbers by name.
    pub by_name: Vec<usize>,
    /// The topic of each partition.
    topic_of: Vec<usize>,
    /// member x topic.
    wants: Vec<Vec<bool>>,
    numbers: HashMap<&'a str, usize>,
}

impl<'a> Group<'a> {
    pub(super) fn new(members: &'a [Member], topics: &'a Topics) -> Self {
        let mut seen = HashSet::new();
        let given: Vec<&Member> = members.iter().filter(|member| seen.insert(member.id.as_str())).collect();
        let members = java::map_order(given.iter().map(|member| (java::string_hash(&member.id), *member)));
        let mut by_id: Vec<usize> = (0..members.len()).collect();
        by_id.sort_by(|&a, &b| match (members.get(a), members.get(b)) {
            (Some(a), Some(b)) => java::compare(&a.id, &b.id),
            _ => a.cmp(&b),
        });
        let mut rank = vec![0; members.len()];
        for (position, &member) in by_id.iter().enumerate() {
            rank.put(member, position);
        }

        let mut group = Self {
            given,
            members,
            by_id,
            rank,
            topics: Vec::new(),
            by_name: Vec::new(),
            topic_of: Vec::new(),
            wants: Vec::new(),
            numbers: HashMap::new(),
        };
        group.number_topics(topics);
        group.number_subscriptions();
        group
    }

    fn number_topics(&mut self, topics: &'a Topics) {
        let mut seen = HashSet::new();
        let mut union = Vec::new();
        for topic in self.members.iter().flat_map(|member| &member.subscription.topics) {
            if seen.insert(topic.as_str()) {
                union.push((java::string_hash(topic), topic.as_str()));
            }
        }
        // Java walks a set of all names and fills a map with the known ones: two tables of different size.
        let names = java::map_order(union);
        let known = names.into_iter().filter(|name| topics.get(*name).is_some_and(|topic| topic.count > 0));
        for name in java::map_order(known.map(|name| (java::string_hash(name), name))) {
            let Some(info) = topics.get(name) else { continue };
            let number = self.topics.len();
            let first = self.topic_of.len();
            let len = usize::try_from(info.count).unwrap_or(0);
            self.topic_of.resize(first + len, number);
            self.numbers.insert(name, number);
            self.topics.push(Topic {
                name,
                hash: java::string_hash(name),
                first,
                len,
                info,
                subscribers: Vec::new(),
            });
        }
        self.by_name = (0..self.topics.len()).collect();
        let topics = &self.topics;
        self.by_name.sort_by(|&a, &b| match (topics.get(a), topics.get(b)) {
            (Some(a), Some(b)) => java::compare(a.name, b.name),
            _ => a.cmp(&b),
        });
    }

    fn number_subscriptions(&mut self) {
        for (number, member) in self.members.iter().enumerate() {
            let mut wants = vec![false; self.topics.len()];
            for topic in &member.subscription.topics {
                let Some(&topic) = self.numbers.get(topic.as_str()) else { continue };
                if !wants.at(topic) {
                    wants.put(topic, true);
                    if let Some(topic) = self.topics.get_mut(topic) {
                        topic.subscribers.push(number);
                    }
                }
            }
            self.wants.push(wants);
        }
    }

    pub(super) fn partition_count(&self) -> usize {
        self.topic_of.len()
    }

    pub(super) fn topic_of(&self, partition: usize) -> usize {
        self.topic_of.at(partition)
    }

    /// The index of a partition inside its topic.
    pub(super) fn index_of(&self, partition: usize) -> usize {
        self.topics.get(self.topic_of(partition)).map_or(0, |topic| partition.saturating_sub(topic.first))
    }

    pub(super) fn wants(&self, member: usize, topic: usize) -> bool {
        self.wants.row(member).at(topic)
    }

    /// The number of a partition that exists.
    pub(super) fn number(&self, topic: &str, partition: i32) -> Option<usize> {
        let topic = self.topics.get(*self.numbers.get(topic)?)?;
        let index = usize::try_from(partition).ok().filter(|&index| index < topic.len)?;
        Some(topic.first + index)
    }

    /// The partitions that exist among those named, each once.
    pub(super) fn claims(&self, named: &[(String, i32)]) -> Vec<usize> {
        let mut seen = HashSet::new();
        named.iter().filter_map(|(t, p)| self.number(t, *p)).filter(|p| seen.insert(*p)).collect()
    }

    /// Where each topic stands in `by_name`.
    pub(super) fn name_rank(&self) -> Vec<usize> {
        let mut rank = vec![0; self.topics.len()];
        for (position, &topic) in self.by_name.iter().enumerate() {
            rank.put(topic, position);
        }
        rank
    }

    /// Members with an instance id first, by that; then the others by member id. Range and round robin go by it,
    /// so that a static member keeps its place under a new member id.
    pub(super) fn static_first(&self) -> Vec<usize> {
        let mut order = self.by_id.clone();
        let instance = |member: usize| self.members.get(member).and_then(|m| m.instance_id.as_deref());
        order.sort_by(|&a, &b| match (instance(a), instance(b)) {
            (Some(a), Some(b)) => java::compare(a, b),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => std::cmp::Ordering::Equal,
        });
        order
    }

    /// Lists by member number as names, in the order the members were given.
    pub(super) fn named(&self, lists: Vec<Vec<usize>>) -> Vec<(String, Vec<(String, i32)>)> {
        let mut by_id: HashMap<&str, Vec<usize>> =
            self.members.iter().map(|member| member.id.as_str()).zip(lists).collect();
        let name = |partition: usize| {
            let topic = self.topics.get(self.topic_of(partition))?;
            let index = i32::try_from(partition.checked_sub(topic.first)?).ok()?;
            Some((topic.name.to_owned(), index))
        };
        self.given
            .iter()
            .map(|member| {
                let list = by_id.remove(member.id.as_str()).unwrap_or_default();
                (member.id.clone(), list.into_iter().filter_map(name).collect())
            })
            .collect()
    }
}
