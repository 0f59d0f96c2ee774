//! The buffer's budget and marks: who is fetched, who waits, and that everything charged is given back.

use std::time::Duration;

use kafka_read::Records;
use kafka_read::batch::Codec;

use super::handing_out::{filled, key};
use super::rig::{Rig, settings};
use crate::config::Position;

#[test]
fn a_broker_that_comes_late_gets_its_share_though_nothing_is_taken() {
    let mut small = settings();
    small.budget = 10_000;
    small.partition_max_bytes = 10_000;
    let mut rig = filled(&["first"], 0, 0, small);
    // The first broker's long poll holds the whole budget.
    rig.create(key("late"), 2);
    rig.append(key("late"), 5, 20, Codec::None);
    rig.core.assign_more(rig.now, vec![(key("late"), Position::Offset(0))]);
    rig.settle();
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.take(500).slices.len(), 1, "the late broker is never asked");
}

#[test]
fn a_full_partition_is_fetched_again_below_its_low_mark() {
    let mut small = settings();
    small.budget = 40_000;
    small.partition_max_bytes = 5_000;
    let mut rig = filled(&["full"], 40, 10, small);
    assert!(rig.core.partition("full", 0).unwrap().full);
    let fetched = rig.core.partition("full", 0).unwrap().fetch;
    rig.poll(10);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.core.partition("full", 0).unwrap().fetch, fetched, "not yet");
    let mut records = 10;
    while records < 400 {
        records += rig.poll(10).len();
    }
    assert_eq!(rig.core.budget.charged(), 0);
}

#[test]
fn a_full_partition_whose_buffer_is_cut_is_fetched_again() {
    let mut small = settings();
    small.budget = 40_000;
    small.partition_max_bytes = 5_000;
    let mut rig = Rig::new(small, 1);
    rig.create(key("cut"), 1);
    for _ in 0..40 {
        rig.append(key("cut"), 10, 20, Codec::None);
    }
    rig.cluster.logs.get_mut(&key("cut")).unwrap().damage(0, super::broker::Damage::Crc);
    rig.core.assign(rig.now, vec![(key("cut"), Position::Offset(0))]);
    rig.settle();
    let begun = rig.now;
    while rig.position(key("cut")) != Some(400) {
        rig.poll(500);
        assert!(rig.now - begun < Duration::from_secs(20), "it stays full: {:?}", rig.position(key("cut")));
    }
}

#[test]
fn an_answer_over_the_budget_comes_alone() {
    let mut small = settings();
    small.budget = 2_000;
    small.partition_max_bytes = 1_000;
    let mut rig = filled(&["over-a", "over-b"], 3, 4, small.clone());
    for topic in ["over-a", "over-b"] {
        rig.append(key(topic), 2, 5_000, Codec::None);
    }
    let mut records = 0;
    while records < 28 {
        records += rig.poll(500).len();
        assert!(rig.core.budget.charged() < 2_000 + 12_000, "more than one over the budget");
    }
    assert_eq!(rig.core.budget.charged(), 0);
}

#[test]
fn the_buffer_of_a_paused_partition_makes_room_and_its_position_stays() {
    let mut small = settings();
    small.budget = 4_000;
    small.partition_max_bytes = 2_000;
    let mut rig = filled(&["idle"], 6, 20, small);
    rig.core.pause("idle", 0);
    rig.create(key("needs"), 1);
    for _ in 0..6 {
        rig.append(key("needs"), 20, 20, Codec::None);
    }
    rig.core.assign_more(rig.now, vec![(key("needs"), Position::Offset(0))]);
    rig.settle();
    let mut records = 0;
    while records < 120 {
        records += rig.poll(500).len();
    }
    assert_eq!(rig.position(key("idle")), Some(0));
    assert!(rig.core.counts.dropped_buffers > 0);
    rig.core.resume("idle", 0);
    rig.settle();
    let mut next = 0;
    while next < 120 {
        for record in &rig.poll(500) {
            assert_eq!(record.offset, next);
            next += 1;
        }
    }
}

#[test]
fn what_a_paused_partition_holds_inflated_keeps_no_other_waiting() {
    let mut small = settings();
    small.budget = 40_000;
    small.limits.max_batch_bytes = 1 << 20;
    let mut rig = Rig::new(small, 1);
    for topic in ["held", "waits", "plain"] {
        rig.create(key(topic), 1);
    }
    for topic in ["held", "waits"] {
        for _ in 0..3 {
            rig.append(key(topic), 10, 2_000, Codec::Lz4);
        }
    }
    for _ in 0..400 {
        rig.append(key("plain"), 1, 20, Codec::None);
    }
    rig.core.assign(rig.now, vec![(key("held"), Position::Offset(0))]);
    rig.settle();
    rig.pass(Duration::from_secs(1));
    rig.core.pause("held", 0);
    let more = ["waits", "plain"].map(|topic| (key(topic), Position::Offset(0))).to_vec();
    rig.core.assign_more(rig.now, more);
    rig.settle();
    rig.pass(Duration::from_secs(1));
    // There is always something of `plain` to take.
    let mut polls = 0;
    while rig.position(key("waits")) == Some(0) {
        rig.poll(1);
        polls += 1;
        assert!(polls < 100, "it is never inflated");
    }
}

#[test]
fn a_small_rest_of_a_large_answer_is_copied_out() {
    let mut rig = filled(&["rest"], 10, 100, settings());
    for _ in 0..10 {
        rig.append(key("rest"), 100, 150, Codec::None);
    }
    rig.pass(Duration::from_secs(1));
    let mut most = 0;
    while rig.position(key("rest")) != Some(1_900) {
        Records::from_slices(rig.take(100).slices);
        most = most.max(rig.core.budget.charged());
    }
    assert!(most > 100_000);
    let left = rig.core.budget.charged();
    assert!(left < 20_000, "{left} bytes are charged for the last batch");
    rig.take(100);
    assert_eq!(rig.core.budget.charged(), 0);
}
