//! Records in: batches, room, turns, partitions.

use kafka_meta::ErrorKind;

use super::rig::{Rig, TOPIC, config};
use crate::config::Partitioner;
use crate::record::ProducerRecord;

fn record(partition: i32, value: &str) -> ProducerRecord {
    ProducerRecord::new(TOPIC).partition(partition).value(value.to_owned())
}

#[test]
fn records_of_a_partition_share_batches_up_to_their_size() {
    let mut rig = Rig::new(&config(), 2);
    for n in 0..100 {
        rig.send_to(n % 2, &format!("{n}"));
    }
    for at in 0..2 {
        for _ in 0..10 {
            rig.advance(5);
            rig.round(at);
        }
    }
    assert_eq!(rig.logs[0].values, (0..50).map(|n| (2 * n).to_string()).collect::<Vec<_>>());
    assert_eq!(rig.logs[1].values, (0..50).map(|n| (2 * n + 1).to_string()).collect::<Vec<_>>());
    let batches = rig.engine.counts().batches;
    assert!((4..=12).contains(&batches), "{batches}");
}

#[test]
fn a_record_that_nothing_can_hold_is_refused_at_once() {
    let mut rig = Rig::new(&config().max_request_size(1_000).buffer_memory(2_000), 1);
    let error = rig.send(record(0, &"x".repeat(1_000))).unwrap_err();
    assert_eq!((error.kind(), error.partition()), (ErrorKind::BatchTooLarge, Some(0)));
    assert!(error.to_string().contains("max_request_size"), "{error}");
    // One over the batch size is a batch of its own.
    let sent = rig.send(record(0, &"y".repeat(800))).unwrap();
    rig.round(0);
    assert_eq!(rig.offset(&sent), 0);
    assert_eq!(rig.send(record(-1, "z")).unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[test]
fn a_full_buffer_lets_records_in_by_turn() {
    let mut rig = Rig::new(&config().buffer_memory(1_000).linger_ms(60_000), 1);
    let sent: Vec<_> = (0..30).map(|n| rig.send_to(0, &format!("{n:0>100}"))).collect();
    assert!(rig.engine.waiting() > 10);
    // A small one that would fit does not overtake.
    let small = rig.send_to(0, "small");
    // Nothing lingers while records wait for room.
    for _ in 0..20 {
        rig.round(0);
    }
    rig.advance(60_000);
    rig.round(0);
    let expected: Vec<_> = (0..30).map(|n| format!("{n:0>100}")).chain(["small".to_owned()]).collect();
    assert_eq!(rig.logs[0].values, expected);
    assert_eq!(rig.offset(&sent[29]), 29);
    assert_eq!(rig.offset(&small), 30);
    assert_eq!((rig.engine.buffered(), rig.engine.waiting()), (0, 0));
}

#[test]
fn who_waits_for_room_too_long_is_told_so_and_the_next_are_let_in() {
    let mut rig = Rig::new(&config().buffer_memory(1_000).max_block_ms(1_000), 1);
    let first = rig.send_to(0, &"a".repeat(700));
    let late = rig.send_to(0, &"b".repeat(700));
    rig.advance(500);
    let next = rig.send_to(0, "c");
    rig.advance(500);
    let error = rig.outcome(&late).unwrap().unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Timeout, Some(TOPIC)));
    assert!(error.to_string().contains("buffer_memory"), "{error}");
    for _ in 0..3 {
        rig.round(0);
        rig.advance(10);
    }
    assert_eq!((rig.offset(&first), rig.offset(&next)), (0, 1));
}

#[test]
fn equal_keys_share_a_partition_and_keyless_records_a_batch() {
    let mut rig = Rig::new(&config(), 3);
    for n in 0..60 {
        let key = format!("key-{}", n % 5);
        rig.send(ProducerRecord::new(TOPIC).key(key.clone()).value(key)).unwrap();
    }
    for n in 0..60 {
        rig.send(ProducerRecord::new(TOPIC).value(format!("{n}"))).unwrap();
    }
    for _ in 0..10 {
        rig.advance(10);
        (0..3).for_each(|node| rig.round(node));
    }
    for key in 0..5 {
        let key = format!("key-{key}");
        assert_eq!(rig.logs.iter().filter(|log| log.values.contains(&key)).count(), 1, "{key}");
    }
    assert_eq!(rig.logs.iter().map(|log| log.values.len()).sum::<usize>(), 120);
}

#[test]
fn turns_go_round_all_partitions_when_that_is_asked_for() {
    let mut rig = Rig::new(&config().partitioner(Partitioner::RoundRobin), 3);
    for n in 0..9 {
        rig.send(ProducerRecord::new(TOPIC).key("same").value(format!("{n}"))).unwrap();
    }
    rig.advance(10);
    (0..3).for_each(|node| rig.round(node));
    assert_eq!(rig.logs.iter().map(|log| log.values.len()).collect::<Vec<_>>(), [3, 3, 3]);
}

#[test]
fn a_request_holds_no_more_than_it_may_and_every_partition_gets_its_turn() {
    let mut rig = Rig::new(&config().linger_ms(0).max_request_size(500).max_in_flight(1), 9);
    // Partitions 0, 3 and 6 have the same leader.
    for round in 0..6 {
        for partition in [0, 3, 6] {
            rig.send_to(partition, &format!("{round:0>300}"));
        }
    }
    for _ in 0..18 {
        assert_eq!(rig.ship(0), 1, "two do not fit");
        rig.work(0, |_, _| None, |_| None);
        rig.arrive(0);
    }
    for partition in [0, 3, 6] {
        assert_eq!(rig.logs[partition].values.len(), 6);
    }
}
