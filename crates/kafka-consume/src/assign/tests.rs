//! What the tests of the assignors share: the recorded cases, and a checker of what every result must be.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

mod formats;
mod golden;
mod large;
mod lists;
mod order;
mod properties;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use serde_json::Value;

use super::cooperative_sticky;
use super::group::Group;
use super::{AssignorState, Member, Subscription, TopicPartitions, Topics};

/// A member's list, as names.
type Lists = Vec<(String, Vec<(String, i32)>)>;

/// All lines of a recorded file. Fails when there are none.
fn recorded(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/assignors").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty(), "{file} is empty");
    lines
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn partitions(value: &Value) -> Vec<(String, i32)> {
    let pair = |item: &Value| (item[0].as_str().unwrap().to_owned(), item[1].as_i64().unwrap() as i32);
    value.as_array().unwrap().iter().map(pair).collect()
}

fn member(id: &str, topics: &[&str]) -> Member {
    let topics = topics.iter().map(ToString::to_string).collect();
    let subscription = Subscription { topics, ..Subscription::default() };
    Member { id: id.to_owned(), instance_id: None, subscription }
}

fn topics(counts: &[(&str, i32)]) -> Topics {
    counts
        .iter()
        .map(|(name, count)| ((*name).to_owned(), TopicPartitions { count: *count, racks: Vec::new() }))
        .collect()
}

/// The spread cooperative-sticky aims at, before it withholds anything.
fn unadjusted(members: &[Member], topics: &Topics, state: &mut AssignorState) -> Lists {
    let group = Group::new(members, topics);
    let spread = cooperative_sticky::unadjusted(&group, state);
    group.named(spread.lists)
}

/// What is wrong with a full assignment: something missing, given twice, not asked for, not there, or uneven
/// where a single move to a subscriber of the same topic would even it out.
fn faults(members: &[Member], topics: &Topics, lists: &Lists) -> Vec<String> {
    let mut faults = invalid(members, topics, lists, true);
    let sizes: HashMap<&str, usize> = lists.iter().map(|(id, list)| (id.as_str(), list.len())).collect();
    let mut fewest: BTreeMap<&str, usize> = BTreeMap::new();
    for member in members {
        for topic in &member.subscription.topics {
            let fewest = fewest.entry(topic).or_insert(usize::MAX);
            *fewest = (*fewest).min(sizes[member.id.as_str()]);
        }
    }
    for (id, list) in lists {
        for (topic, partition) in list {
            if fewest.get(topic.as_str()).is_some_and(|fewest| list.len() > fewest + 1) {
                faults.push(format!("{topic}-{partition} should go from {id} to somebody with less"));
            }
        }
    }
    faults
}

/// The part of [`faults`] that holds for every assignor; `complete` asks for every partition.
fn invalid(members: &[Member], topics: &Topics, lists: &Lists, complete: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let wants: HashMap<&str, BTreeSet<&str>> = members
        .iter()
        .map(|m| (m.id.as_str(), m.subscription.topics.iter().map(String::as_str).collect()))
        .collect();
    if lists.len() != members.len() {
        faults.push(format!("{} lists for {} members", lists.len(), members.len()));
    }
    let mut given = BTreeSet::new();
    for (id, list) in lists {
        for (topic, partition) in list {
            if !wants.get(id.as_str()).is_some_and(|wants| wants.contains(topic.as_str())) {
                faults.push(format!("{id} did not ask for {topic}"));
            }
            if topics.get(topic).is_none_or(|info| !(0..info.count).contains(partition)) {
                faults.push(format!("there is no {topic}-{partition}"));
            }
            if !given.insert((topic.as_str(), *partition)) {
                faults.push(format!("{topic}-{partition} given twice"));
            }
        }
    }
    let wanted: BTreeSet<&str> = wants.values().flatten().copied().collect();
    for topic in wanted.iter().filter(|_| complete) {
        for partition in 0..topics.get(*topic).map_or(0, |info| info.count) {
            if !given.contains(&(*topic, partition)) {
                faults.push(format!("{topic}-{partition} given to nobody"));
            }
        }
    }
    faults
}

/// Partitions given to a member that did not claim them while another member did: read twice, silently.
fn handed_over_too_early(members: &[Member], lists: &Lists) -> Vec<String> {
    let mut claimed: HashMap<(&str, i32), Vec<&str>> = HashMap::new();
    for member in members {
        for (topic, partition) in &member.subscription.owned {
            claimed.entry((topic, *partition)).or_default().push(&member.id);
        }
    }
    let mut early = Vec::new();
    for (id, list) in lists {
        for (topic, partition) in list {
            let holders = claimed.get(&(topic.as_str(), *partition));
            if holders.is_some_and(|holders| !holders.contains(&id.as_str())) {
                early.push(format!("{topic}-{partition} to {id}"));
            }
        }
    }
    early
}
