//! What polls hand out: turns, limits, errors, and what is given back.

use std::time::Duration;

use kafka_meta::{Error, ErrorCode, ErrorKind, TopicName};
use kafka_read::Records;
use kafka_read::batch::Codec;

use super::broker::Key;
use super::rig::{Rig, settings};
use crate::config::Position;
use crate::engine::Settings;

pub(super) fn key(topic: &str) -> Key {
    (TopicName::new(topic), 0)
}

/// A rig whose topics hold `batches` batches of `records` records each, assigned from the start and fetched.
pub(super) fn filled(topics: &[&str], batches: i32, records: i32, settings: Settings) -> Rig {
    let mut rig = Rig::new(settings, 1);
    for topic in topics {
        rig.create(key(topic), 1);
        for _ in 0..batches {
            rig.append(key(topic), records, 20, Codec::None);
        }
    }
    let all = topics.iter().map(|topic| (key(topic), Position::Offset(0))).collect();
    rig.core.assign(rig.now, all);
    rig.settle();
    rig.pass(Duration::from_secs(1));
    rig
}

fn offsets(records: &Records) -> Vec<(String, i64)> {
    records.iter().map(|record| (record.topic.to_string(), record.offset)).collect()
}

fn topics(records: &Records) -> Vec<String> {
    let mut topics: Vec<String> = records.iter().map(|record| record.topic.to_string()).collect();
    topics.dedup();
    topics
}

#[test]
fn partitions_whose_batches_fill_a_poll_take_turns() {
    let mut rig = filled(&["turn-a", "turn-b", "turn-c"], 4, 10, settings());
    let mut polls = Vec::new();
    for _ in 0..6 {
        polls.extend(topics(&rig.poll(10)));
    }
    let (first, second) = polls.split_at(3);
    assert_eq!(first, second, "each partition once before any comes again");
    let mut once = first.to_vec();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), 3, "{polls:?}");
}

#[test]
fn a_poll_that_ends_inside_a_batch_goes_on_there() {
    let mut rig = filled(&["in-a", "in-b"], 1, 10, settings());
    let first = rig.poll(4);
    let topic = first.iter().next().unwrap().topic;
    assert_eq!(rig.position((topic, 0)), Some(4));
    let next = rig.poll(4);
    assert_eq!(
        offsets(&next),
        [4, 5, 6, 7].map(|offset| (topic.to_string(), offset)),
        "the batch begun goes on first"
    );
}

#[test]
fn a_poll_takes_one_batch_of_each_before_a_second_of_any() {
    let mut rig = filled(&["each-a", "each-b"], 3, 5, settings());
    let records = rig.poll(20);
    let runs: Vec<(String, i64)> = records
        .iter()
        .filter(|record| record.offset % 5 == 0)
        .map(|one| (one.topic.to_string(), one.offset))
        .collect();
    let order: Vec<i64> = runs.iter().map(|(_, offset)| *offset).collect();
    assert_eq!(order, [0, 0, 5, 5]);
}

#[test]
fn records_put_back_come_again_before_anything_else() {
    let mut rig = filled(&["back-a", "back-b"], 2, 5, settings());
    let records = rig.poll(7);
    let want = offsets(&records);
    let mut records = records.into_iter();
    for _ in 0..3 {
        records.next();
    }
    rig.core.put_back(records.rest().into_slices());
    assert_eq!(offsets(&rig.poll(4)), want[3..]);
}

#[test]
fn records_put_back_before_a_marker_that_was_passed_are_not_lost() {
    let mut rig = filled(&["marked"], 1, 5, settings());
    let key = key("marked");
    let log = rig.cluster.logs.get_mut(&key).unwrap();
    for commit in [true, false, true] {
        log.append(&mut 1_000, &[0, 1], 20, Codec::None, Some(7));
        log.decide(commit);
    }
    rig.touch();
    rig.pass(Duration::from_secs(1));
    let records = rig.poll(500);
    let all = offsets(&records);
    assert_eq!(all.len(), 9, "five plain ones and two committed transactions of two");
    assert_eq!(rig.poll(500).len(), 0);
    assert_eq!(rig.position(key), Some(14), "the marker at the end is passed");
    // From the first transaction on, across markers and an aborted stretch.
    let mut rest = records;
    let rest = rest.split_off(6);
    rig.core.put_back(rest.into_slices());
    assert_eq!(rig.position(key), Some(6));
    assert_eq!(offsets(&rig.poll(500)), all[6..]);
    assert_eq!(rig.poll(500).len(), 0);
    assert_eq!(rig.position(key), Some(14), "and stands at the end again");
}

#[test]
fn records_put_back_after_a_seek_are_dropped() {
    let mut rig = filled(&["sought"], 2, 5, settings());
    let records = rig.poll(5);
    rig.core.seek("sought", 0, 7).unwrap();
    rig.core.put_back(records.into_slices());
    assert_eq!(rig.position(key("sought")), Some(7));
}

#[test]
fn records_of_a_paused_partition_can_be_put_back_after_its_buffer_was_dropped() {
    let mut small = settings();
    small.budget = 4_000;
    small.partition_max_bytes = 2_000;
    let mut rig = filled(&["kept", "other"], 6, 20, small);
    let mut taken = rig.poll(30);
    while !taken.iter().any(|record| record.topic == "kept") {
        taken = rig.poll(30);
    }
    let first = taken.iter().find(|record| record.topic == "kept").unwrap().offset;
    rig.core.pause("kept", 0);
    rig.settle();
    // The other needs the room.
    while rig.core.counts.dropped_buffers == 0 && rig.position(key("other")) != Some(120) {
        rig.poll(500);
        rig.pass(Duration::from_millis(100));
    }
    let slices = taken.into_slices().into_iter().filter(|slice| slice.topic == "kept").collect();
    rig.core.put_back(slices);
    assert_eq!(rig.position(key("kept")), Some(first));
    rig.core.resume("kept", 0);
    rig.settle();
    let mut next = first;
    while next < 120 {
        for record in rig.poll(500).iter().filter(|record| record.topic == "kept") {
            assert_eq!(record.offset, next);
            next += 1;
        }
    }
}

#[test]
fn an_error_waits_for_records_but_not_for_ever() {
    let mut rig = filled(&["bad", "good"], 8, 10, settings());
    let id = rig.core.named(TopicName::new("bad"), 0).unwrap();
    let error = Error::new(ErrorKind::UnsupportedCodec, "read a batch");
    rig.core.halt(rig.now, id, error);
    assert!(!rig.poll(10).is_empty(), "records first");
    assert!(rig.errors.is_empty());
    rig.pass(Duration::from_secs(1));
    assert!(rig.poll(10).is_empty());
    assert_eq!(rig.errors.len(), 1, "then the error, though there are more records");
    assert!(!rig.poll(10).is_empty());
}

#[test]
fn a_stopped_partition_is_told_of_again_every_minute() {
    let mut rig = filled(&["dead"], 0, 0, settings());
    let id = rig.core.named(TopicName::new("dead"), 0).unwrap();
    rig.core.halt(rig.now, id, Error::new(ErrorKind::UnsupportedCodec, "read a batch"));
    let begun = rig.now;
    while rig.now - begun < Duration::from_secs(185) {
        rig.poll(10);
    }
    assert_eq!(rig.errors.len(), 4, "at once and after one, two and three minutes");
    assert_eq!(rig.core.stopped().len(), 1);
    rig.core.seek("dead", 0, 0).unwrap();
    assert!(rig.core.stopped().is_empty(), "a seek clears it");
}

#[test]
fn a_refused_topic_is_told_once_a_minute_and_heals() {
    let mut rig = filled(&["acl"], 1, 5, settings());
    rig.poll(500);
    rig.refuse(key("acl"), Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    let begun = rig.now;
    let fetches = rig.fetches;
    while rig.now - begun < Duration::from_secs(125) {
        rig.poll(500);
    }
    assert_eq!(rig.errors.len(), 3, "{:?}", rig.errors);
    assert!(rig.fetches - fetches < 300, "{} fetches in two minutes", rig.fetches - fetches);
    rig.refuse(key("acl"), None);
    rig.append(key("acl"), 5, 20, Codec::None);
    let begun = rig.now;
    while rig.position(key("acl")) != Some(10) {
        rig.poll(500);
        assert!(rig.now - begun < Duration::from_secs(5));
    }
    assert_eq!(rig.errors.len(), 3);
}

#[test]
fn a_batch_whose_head_is_cut_behind_anothers_data_is_neither_damage_nor_left_waiting() {
    let mut small = settings();
    small.max_bytes = 10_000;
    small.partition_max_bytes = 1_000;
    let mut rig = Rig::new(small, 1);
    for topic in ["big-a", "big-b"] {
        rig.create(key(topic), 1);
        for _ in 0..40 {
            rig.append(key(topic), 6, 1_000, Codec::None);
        }
    }
    let all = ["big-a", "big-b"].map(|topic| (key(topic), Position::Offset(0))).to_vec();
    rig.core.assign(rig.now, all);
    rig.settle();
    let mut next = std::collections::BTreeMap::new();
    while next.values().sum::<i64>() < 480 {
        for record in &rig.poll(500) {
            let next = next.entry(record.topic).or_insert(0);
            assert_eq!(record.offset, *next);
            *next += 1;
        }
        let ahead: Vec<i64> =
            ["big-a", "big-b"].iter().map(|topic| rig.position(key(topic)).unwrap()).collect();
        assert!(ahead[0].abs_diff(ahead[1]) < 60, "one waits behind the other: {ahead:?}");
    }
    assert_eq!(rig.core.counts.skipped_batches, 0);
}
