//! A stream's lease, and what ends it from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kafka_read::{IntoIter, Records};

use super::handing_out::{filled, key};
use super::rig::{Rig, settings};
use crate::position::Lease;

fn lend(rig: &mut Rig) -> (IntoIter, Arc<Lease>) {
    let (taken, lease) = rig.core.take_leased(rig.now);
    rig.settle();
    (Records::from_slices(taken.slices).into_iter(), lease.unwrap())
}

#[test]
fn the_position_follows_the_records_yielded() {
    let mut rig = filled(&["follow"], 1, 10, settings());
    let (mut records, lease) = lend(&mut rig);
    assert_eq!(rig.position(key("follow")), Some(0));
    let record = records.next().unwrap();
    assert!(lease.advance(0, record.offset + 1));
    assert_eq!(rig.position(key("follow")), Some(1));
}

#[test]
fn a_pause_takes_back_what_the_stream_has_not_yielded() {
    let mut rig = filled(&["paused"], 2, 10, settings());
    let (mut records, lease) = lend(&mut rig);
    records.next();
    assert!(lease.advance(0, 1));
    rig.core.pause("paused", 0);
    rig.settle();
    records.next();
    assert!(!lease.advance(1, 2), "nothing is yielded after the pause");
    assert_eq!(rig.position(key("paused")), Some(1));
    rig.core.resume("paused", 0);
    rig.settle();
    let mut offsets = Vec::new();
    while offsets.len() < 19 {
        offsets.extend(rig.poll(500).iter().map(|record| record.offset));
    }
    assert_eq!(offsets, (1..20).collect::<Vec<i64>>());
}

#[test]
fn a_log_cut_inside_a_lease_is_read_again_from_the_record_yielded_last() {
    let mut rig = filled(&["cut-lease"], 2, 10, settings());
    let (mut records, lease) = lend(&mut rig);
    for offset in 0..5 {
        records.next();
        assert!(lease.advance(offset, offset + 1));
    }
    // The log parts below what was lent.
    let log = rig.cluster.logs.get_mut(&key("cut-lease")).unwrap();
    log.truncate(0, 2);
    let deltas: Vec<i32> = (0..10).collect();
    log.append(&mut 1_000, &deltas, 20, kafka_read::batch::Codec::None, None);
    rig.touch();
    rig.pass(Duration::from_secs(2));
    assert!(!lease.advance(5, 6), "what was lent is of a log that is gone");
    assert_eq!(rig.position(key("cut-lease")), Some(0), "and so is what was yielded");
}

#[test]
fn a_seek_ends_a_lease_at_once() {
    let mut rig = filled(&["seek-lease"], 2, 10, settings());
    let (records, lease) = lend(&mut rig);
    rig.core.seek("seek-lease", 0, 15).unwrap();
    rig.settle();
    assert!(!lease.advance(0, 1));
    let end = crate::position::Pos::at(10);
    rig.core.end_lease("seek-lease".into(), 0, &lease, end, records.rest().into_slices());
    assert_eq!(rig.position(key("seek-lease")), Some(15));
}

#[test]
fn yielding_and_ending_agree_from_two_threads() {
    for round in 0..200 {
        let mut rig = filled(&["threads"], 1, 10, settings());
        let (_, lease) = lend(&mut rig);
        let yielded = Arc::new(AtomicI64::new(0));
        let count = Arc::clone(&yielded);
        let stream = std::thread::spawn(move || {
            let mut at = 0;
            while lease.advance(at, at + 1) {
                at += 1;
                count.store(at, Ordering::SeqCst);
            }
        });
        while yielded.load(Ordering::SeqCst) <= round % 7 {
            std::hint::spin_loop();
        }
        rig.core.pause("threads", 0);
        let position = rig.position(key("threads")).unwrap();
        stream.join().unwrap();
        assert_eq!(position, yielded.load(Ordering::SeqCst));
    }
}
