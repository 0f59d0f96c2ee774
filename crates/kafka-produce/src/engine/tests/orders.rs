//! Flush, close, and what a transaction orders.

use kafka_meta::{Error, ErrorKind, TopicName};

use super::super::Settings;
use super::rig::{Rig, TOPIC, config, is_settled};
use crate::producer_id::Identity;
use crate::record::ProducerRecord;
use crate::transaction::Admit;

#[test]
fn a_flush_sends_what_lingers_and_waits_for_what_was_there() {
    let mut rig = Rig::new(&config().linger_ms(60_000), 2);
    rig.send_to(0, "a");
    rig.send_to(1, "b");
    let outstanding = rig.engine.handle_flush();
    rig.follow();
    assert!(!is_settled(&outstanding));
    rig.round(0);
    assert!(!is_settled(&outstanding));
    // Queued after the flush: not waited for.
    rig.send_to(0, "later");
    rig.round(1);
    assert!(is_settled(&outstanding));
    assert_eq!(rig.ship(0), 0, "what came later lingers");
}

#[test]
fn a_flush_covers_records_that_wait() {
    let mut rig = Rig::new(&config().linger_ms(60_000).buffer_memory(500), 1);
    for _ in 0..4 {
        rig.send_to(0, &"x".repeat(200));
    }
    assert!(rig.engine.waiting() > 0);
    let outstanding = rig.engine.handle_flush();
    for _ in 0..5 {
        rig.round(0);
    }
    assert!(is_settled(&outstanding));
    assert_eq!(rig.logs[0].values.len(), 4);
}

#[test]
fn a_closed_engine_takes_nothing_more_and_sends_what_it_has() {
    let mut rig = Rig::new(&config().linger_ms(60_000), 1);
    let sent = rig.send_to(0, "a");
    rig.engine.handle_close();
    let error = rig.send(ProducerRecord::new(TOPIC).value("b")).unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Closed, Some(TOPIC)));
    rig.round(0);
    assert_eq!(rig.offset(&sent), 0);
}

fn transactional(partitions: usize) -> Rig {
    let mut rig = Rig::with(Settings::new(&config().linger_ms(0), true), partitions);
    rig.engine.handle_new_identity(Identity { producer_id: 1, epoch: 0 }).unwrap();
    rig
}

#[test]
fn an_abort_drops_what_was_never_sent_and_waits_for_the_rest() {
    let mut rig = transactional(1);
    let sent = rig.send_to(0, "sent");
    rig.ship(0);
    let unsent = rig.send_to(0, "unsent");
    let outstanding =
        rig.engine.handle_fail_unsent(rig.now, &Error::new(ErrorKind::Closed, "abort transaction"));
    rig.follow();
    assert_eq!(rig.kind(&unsent), ErrorKind::Closed);
    assert!(!is_settled(&outstanding));
    let next = Identity { producer_id: 1, epoch: 1 };
    assert!(rig.engine.handle_new_identity(next).is_err(), "a batch has no outcome yet");
    rig.round(0);
    assert!(is_settled(&outstanding));
    assert_eq!(rig.offset(&sent), 0);
    rig.engine.handle_new_identity(next).unwrap();
    let again = rig.send_to(0, "again");
    rig.round(0);
    assert_eq!(rig.offset(&again), 1);
    assert_eq!(rig.logs[0].values, ["sent", "again"]);
}

#[test]
fn a_batch_that_fails_in_a_transaction_takes_all_of_its_partition_along() {
    let mut rig = transactional(1);
    let first = rig.send_to(0, "first");
    rig.round(0);
    assert_eq!(rig.offset(&first), 0);
    let a = rig.send_to(0, "a");
    rig.ship(0);
    let b = rig.send_to(0, "b");
    rig.ship(0);
    let c = rig.send_to(0, "c");
    let mut refused = false;
    while rig.work(0, |_, _| (!std::mem::replace(&mut refused, true)).then_some(29), |_| None) {}
    while rig.arrive(0) {}
    for one in [&a, &b, &c] {
        assert!(rig.outcome(one).unwrap().is_err());
    }
    assert!(!rig.engine.is_in_sequence());
    assert_eq!(rig.engine.counts().epoch_bumps, 0, "the transaction begins the next epoch");
    rig.engine.handle_new_identity(Identity { producer_id: 1, epoch: 1 }).unwrap();
    assert!(rig.engine.is_in_sequence());
}

#[test]
fn a_partition_outside_the_transaction_waits_and_a_refused_one_fails() {
    let mut rig = transactional(2);
    let (a, b) = (rig.send_to(0, "a"), rig.send_to(1, "b"));
    rig.move_leader(1, Some(0));
    rig.show_picture();
    let mut admit = |_: TopicName, partition| match partition {
        0 => Admit::Wait,
        _ => Admit::No(Error::new(ErrorKind::Fenced, "produce")),
    };
    rig.engine.poll_request(rig.now, 0, &mut admit);
    rig.follow();
    assert!(rig.outcome(&a).is_none());
    assert_eq!(rig.kind(&b), ErrorKind::Fenced);
    rig.round(0);
    assert_eq!(rig.offset(&a), 0);
}
