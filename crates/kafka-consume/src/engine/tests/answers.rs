//! What partition errors, divergence, resets and replicas in answers lead to, a row of the rules a test.

use std::time::Duration;

use kafka_meta::{ErrorCode, ErrorKind};
use kafka_read::batch::Codec;

use super::broker::{Damage, Key};
use super::handing_out::{filled, key};
use super::rig::{Rig, settings};
use crate::config::{OffsetReset, Position};
use crate::engine::Settings;

/// Polls until the position is `end`; how long it took.
fn read_to(rig: &mut Rig, key: Key, end: i64) -> Duration {
    let begun = rig.now;
    while rig.position(key) != Some(end) {
        rig.poll(500);
        let waited = rig.now - begun;
        assert!(waited < Duration::from_secs(30), "at {:?} of {end}; {:?}", rig.position(key), rig.errors);
    }
    rig.now - begun
}

fn no_reset() -> Settings {
    Settings { reset: OffsetReset::None, ..settings() }
}

#[test]
fn codes_that_heal_are_retried_with_a_growing_pause_and_never_told() {
    for code in [6, 9, 56, 74, 75, 78, 5, 3, 100, 103, -1] {
        let mut rig = filled(&["heals", "beside"], 1, 5, settings());
        while rig.position(key("heals")) != Some(5) || rig.position(key("beside")) != Some(5) {
            rig.poll(500);
        }
        rig.refuse(key("heals"), Some(ErrorCode::from(code)));
        let before = rig.fetches;
        rig.pass(Duration::from_secs(10));
        let fetches = rig.fetches - before;
        assert!(fetches <= 60, "{fetches} fetches in ten seconds of {code}");
        // The neighbour on the same broker does not notice.
        rig.append(key("beside"), 5, 20, Codec::None);
        let took = read_to(&mut rig, key("beside"), 10);
        assert!(took <= Duration::from_millis(50), "{code}: {took:?}");
        rig.refuse(key("heals"), None);
        rig.append(key("heals"), 5, 20, Codec::None);
        let took = read_to(&mut rig, key("heals"), 10);
        assert!(took <= Duration::from_millis(1_300), "{code}: {took:?}");
        assert!(rig.errors.is_empty(), "{code}: {:?}", rig.errors);
    }
}

#[test]
fn an_unknown_code_is_told_with_its_number_and_retried() {
    let mut rig = filled(&["strange"], 1, 5, settings());
    read_to(&mut rig, key("strange"), 5);
    rig.refuse(key("strange"), Some(ErrorCode::from(999)));
    rig.poll(500);
    rig.poll(500);
    assert_eq!(rig.errors.len(), 1);
    assert_eq!(rig.errors[0].kind(), ErrorKind::Broker(ErrorCode::from(999)));
    rig.refuse(key("strange"), None);
    rig.append(key("strange"), 5, 20, Codec::None);
    read_to(&mut rig, key("strange"), 10);
}

#[test]
fn a_new_leader_goes_on_where_the_old_one_stopped() {
    let mut rig = filled(&["moves"], 1, 5, settings());
    read_to(&mut rig, key("moves"), 5);
    rig.cluster.logs.get_mut(&key("moves")).unwrap().lead(2);
    rig.append(key("moves"), 5, 20, Codec::None);
    read_to(&mut rig, key("moves"), 10);
    assert!(rig.errors.is_empty());
    assert_eq!(rig.core.counts.truncations, 0);
}

#[test]
fn divergence_above_what_was_handed_out_drops_only_the_buffer() {
    let mut rig = filled(&["tail"], 4, 5, no_reset());
    assert_eq!(rig.poll(5).len(), 5);
    rig.cluster.logs.get_mut(&key("tail")).unwrap().truncate(10, 2);
    rig.append(key("tail"), 3, 20, Codec::None);
    rig.pass(Duration::from_secs(2));
    read_to(&mut rig, key("tail"), 13);
    assert!(rig.errors.is_empty(), "{:?}", rig.errors);
    assert_eq!(rig.core.counts.truncations, 1);
}

#[test]
fn divergence_below_the_position_moves_it_there_under_a_policy() {
    let mut rig = filled(&["cut"], 4, 5, settings());
    read_to(&mut rig, key("cut"), 20);
    rig.cluster.logs.get_mut(&key("cut")).unwrap().truncate(10, 2);
    rig.append(key("cut"), 3, 20, Codec::None);
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.position(key("cut")), Some(10));
    read_to(&mut rig, key("cut"), 13);
    assert!(rig.errors.is_empty());
}

#[test]
fn divergence_below_the_position_stops_without_a_policy_and_names_the_offset() {
    let mut rig = filled(&["stops"], 4, 5, no_reset());
    read_to(&mut rig, key("stops"), 20);
    rig.cluster.logs.get_mut(&key("stops")).unwrap().truncate(10, 2);
    rig.append(key("stops"), 3, 20, Codec::None);
    while rig.errors.is_empty() {
        rig.poll(500);
    }
    assert_eq!(rig.errors[0].kind(), ErrorKind::LogTruncated);
    assert_eq!(rig.errors[0].offset(), Some(10));
    assert_eq!(rig.position(key("stops")), Some(20), "the position stays for the caller to decide");
    rig.core.seek("stops", 0, 10).unwrap();
    rig.settle();
    read_to(&mut rig, key("stops"), 13);
}

#[test]
fn out_of_range_behind_a_buffer_waits_for_it() {
    let mut small = settings();
    small.partition_max_bytes = 100;
    small.max_bytes = 100;
    let mut rig = Rig::new(small, 1);
    rig.create(key("behind"), 1);
    for _ in 0..4 {
        rig.append(key("behind"), 5, 20, Codec::None);
    }
    rig.core.assign(rig.now, vec![(key("behind"), Position::Offset(0))]);
    rig.settle();
    // One batch is buffered when retention takes all of them.
    while rig.core.partition("behind", 0).and_then(|one| one.fetch).is_none_or(|fetch| fetch.offset < 5) {
        rig.pass(Duration::from_millis(1));
    }
    let buffered = rig.core.partition("behind", 0).unwrap().fetch.unwrap().offset;
    rig.append(key("behind"), 5, 20, Codec::None);
    rig.cluster.logs.get_mut(&key("behind")).unwrap().delete_before(20);
    rig.touch();
    rig.pass(Duration::from_secs(2));
    let mut seen = Vec::new();
    while rig.position(key("behind")) != Some(25) {
        seen.extend(rig.poll(500).iter().map(|record| record.offset));
    }
    let want: Vec<i64> = (0..buffered).chain(20..25).collect();
    assert_eq!(seen, want);
    assert_eq!(rig.core.counts.resets, 1);
}

#[test]
fn out_of_range_without_a_policy_names_the_offset_and_waits_for_a_seek() {
    let mut rig = filled(&["none"], 1, 5, no_reset());
    read_to(&mut rig, key("none"), 5);
    rig.core.seek("none", 0, 99).unwrap();
    rig.settle();
    while rig.errors.is_empty() {
        rig.poll(500);
    }
    assert_eq!(rig.errors[0].kind(), ErrorKind::OffsetOutOfRange);
    assert_eq!(rig.errors[0].offset(), Some(99));
    assert_eq!(rig.core.stopped().len(), 1);
    let before = rig.fetches;
    rig.pass(Duration::from_secs(10));
    assert!(rig.fetches - before <= 1, "a stopped partition is not fetched");
}

#[test]
fn a_log_that_refuses_its_own_start_is_not_asked_at_full_speed() {
    let mut rig = filled(&["odd"], 1, 5, settings());
    read_to(&mut rig, key("odd"), 5);
    rig.refuse(key("odd"), Some(ErrorCode::OFFSET_OUT_OF_RANGE));
    let before = rig.fetches;
    rig.pass(Duration::from_secs(10));
    assert!(rig.fetches - before <= 40, "{} fetches in ten seconds", rig.fetches - before);
}

#[test]
fn a_preferred_replica_is_read_and_given_up_when_its_lease_ends() {
    let mut racked = settings();
    racked.rack = "r".to_owned();
    racked.replica_lease = Duration::from_secs(5);
    let mut rig = filled(&["near"], 1, 5, racked);
    read_to(&mut rig, key("near"), 5);
    rig.cluster.replica = Some(2);
    rig.touch();
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.core.partition("near", 0).unwrap().source(rig.now), Some(2));
    rig.append(key("near"), 5, 20, Codec::None);
    read_to(&mut rig, key("near"), 10);
    // The selector changes its mind; nothing else happens.
    rig.cluster.replica = None;
    rig.pass(Duration::from_secs(6));
    assert_eq!(rig.core.partition("near", 0).unwrap().source(rig.now), Some(1));
    rig.append(key("near"), 5, 20, Codec::None);
    let took = read_to(&mut rig, key("near"), 15);
    assert!(took <= Duration::from_millis(600), "{took:?}");
}

#[test]
fn a_dead_replica_is_shunned_for_the_leader() {
    let mut racked = settings();
    racked.rack = "r".to_owned();
    let mut rig = filled(&["shun"], 1, 5, racked);
    read_to(&mut rig, key("shun"), 5);
    rig.cluster.replica = Some(2);
    rig.touch();
    rig.pass(Duration::from_secs(1));
    rig.cluster.nodes.retain(|node| *node != 2);
    rig.append(key("shun"), 5, 20, Codec::None);
    let before = rig.fetches;
    let took = read_to(&mut rig, key("shun"), 10);
    assert!(took <= Duration::from_secs(1), "{took:?}");
    rig.pass(Duration::from_secs(5));
    assert!(rig.fetches - before <= 40, "{} fetches", rig.fetches - before);
}

#[test]
fn a_damaged_batch_is_asked_for_once_more_and_then_passed_over() {
    for damage in [Damage::Crc, Damage::Magic] {
        let mut rig = Rig::new(settings(), 1);
        rig.create(key("damaged"), 1);
        for _ in 0..3 {
            rig.append(key("damaged"), 5, 20, Codec::None);
        }
        rig.cluster.logs.get_mut(&key("damaged")).unwrap().damage(1, damage);
        rig.core.assign(rig.now, vec![(key("damaged"), Position::Offset(0))]);
        rig.settle();
        let mut seen = Vec::new();
        while rig.position(key("damaged")) != Some(15) {
            seen.extend(rig.poll(500).iter().map(|record| record.offset));
        }
        let want: Vec<i64> = (0..5).chain(10..15).collect();
        assert_eq!(seen, want, "{damage:?}");
        assert_eq!(rig.core.counts.refetched_batches, 1);
        assert_eq!(rig.core.counts.skipped_batches, 1);
        assert!(rig.errors.is_empty());
    }
}

#[test]
fn a_damaged_batch_at_the_end_of_an_epoch_is_passed_once() {
    let mut rig = Rig::new(settings(), 1);
    rig.create(key("edge"), 1);
    rig.append(key("edge"), 5, 20, Codec::None);
    rig.cluster.logs.get_mut(&key("edge")).unwrap().lead(1);
    rig.append(key("edge"), 5, 20, Codec::None);
    rig.cluster.logs.get_mut(&key("edge")).unwrap().damage(1, Damage::Magic);
    rig.core.assign(rig.now, vec![(key("edge"), Position::Offset(0))]);
    rig.settle();
    read_to(&mut rig, key("edge"), 10);
    assert_eq!(
        rig.core.counts.truncations, 0,
        "the leader is not told that the lost batch was of the old epoch"
    );
}

#[test]
fn a_batch_over_the_size_cap_stops_its_partition_until_a_seek() {
    let mut capped = settings();
    capped.limits.max_batch_bytes = 1_000;
    let mut rig = Rig::new(capped, 1);
    rig.create(key("bomb"), 1);
    rig.append(key("bomb"), 5, 20, Codec::None);
    rig.append(key("bomb"), 1, 5_000, Codec::Lz4);
    rig.append(key("bomb"), 5, 20, Codec::None);
    rig.core.assign(rig.now, vec![(key("bomb"), Position::Offset(0))]);
    rig.settle();
    while rig.errors.is_empty() {
        rig.poll(500);
    }
    assert_eq!(rig.errors[0].kind(), ErrorKind::BatchTooLarge);
    assert_eq!(rig.position(key("bomb")), Some(5));
    rig.core.seek("bomb", 0, 6).unwrap();
    rig.settle();
    read_to(&mut rig, key("bomb"), 11);
}
