//! What time does: linger, back-off, delivery timeout, waits that end.

use std::time::Duration;

use kafka_meta::ErrorKind;

use super::super::Next;
use super::rig::{Rig, config};
use crate::record::ProducerRecord;
use crate::transaction::Admit;

fn wait_of(rig: &mut Rig, node: i32) -> Option<Duration> {
    let mut admit = |_, _| Admit::Go { max_produce_version: 13, transactional: false };
    match rig.engine.poll_request(rig.now, node, &mut admit) {
        Next::Wait(at) => at.map(|at| at.duration_since(rig.now)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_lingers_unless_it_is_full() {
    let mut rig = Rig::new(&config(), 1);
    rig.send_to(0, "a");
    assert_eq!(wait_of(&mut rig, 0), Some(Duration::from_millis(5)));
    rig.advance(4);
    assert_eq!(rig.ship(0), 0);
    rig.advance(1);
    assert_eq!(rig.ship(0), 1);
    rig.round(0);
    rig.send_to(0, &"b".repeat(400));
    assert_eq!(rig.ship(0), 1, "a full one does not linger");
}

#[test]
fn a_batch_whose_broker_is_busy_goes_on_filling() {
    let mut rig = Rig::new(&config().linger_ms(0).max_in_flight(1), 1);
    rig.send_to(0, "a");
    rig.ship(0);
    for value in ["b", "c", "d"] {
        rig.send_to(0, value);
        assert_eq!(rig.ship(0), 0);
    }
    rig.round(0);
    rig.round(0);
    assert_eq!(rig.engine.counts().batches, 2);
    assert_eq!(rig.logs[0].values, ["a", "b", "c", "d"]);
}

#[test]
fn a_batch_that_is_never_sent_fails_by_its_delivery_timeout() {
    let mut rig = Rig::new(&config(), 1);
    rig.move_leader(0, None);
    rig.show_picture();
    let sent = rig.send_to(0, "a");
    rig.advance(119_999);
    assert!(rig.outcome(&sent).is_none());
    assert_eq!(rig.engine.next_deadline(), Some(rig.now + Duration::from_millis(1)));
    rig.advance(1);
    let error = rig.outcome(&sent).unwrap().unwrap_err();
    assert_eq!((error.kind(), error.partition()), (ErrorKind::Timeout, Some(0)));
    assert!(error.to_string().contains("no leader"), "{error}");
    assert_eq!((rig.engine.buffered(), rig.engine.next_deadline()), (0, None));
    assert_eq!(rig.engine.counts().epoch_bumps, 0, "it had no sequence");
}

#[test]
fn after_a_batch_of_unknown_fate_a_new_epoch_begins_before_anything_else_goes() {
    let mut rig = Rig::new(&config().linger_ms(0), 1);
    let sent = rig.send_to(0, "a");
    rig.ship(0);
    rig.advance(120_000);
    assert_eq!(rig.kind(&sent), ErrorKind::Timeout);
    let next = rig.send_to(0, "b");
    assert_eq!(rig.ship(0), 0, "what is in flight may still tell");
    // The request is lost, never worked on.
    rig.break_off(0);
    rig.notice(0);
    rig.round(0);
    assert_eq!(rig.offset(&next), 0);
    assert_eq!((rig.engine.counts().epoch_bumps, rig.engine.identity.epoch), (1, 1));
}

#[test]
fn a_late_answer_spares_the_new_epoch() {
    let mut rig = Rig::new(&config().linger_ms(0), 1);
    let sent = rig.send_to(0, "a");
    rig.ship(0);
    rig.advance(120_000);
    assert_eq!(rig.kind(&sent), ErrorKind::Timeout);
    rig.round(0);
    let next = rig.send_to(0, "b");
    rig.round(0);
    assert_eq!(rig.offset(&next), 1);
    assert_eq!(rig.engine.counts().epoch_bumps, 0);
}

#[test]
fn a_record_waits_for_its_topic_as_long_as_it_may_block() {
    let mut rig = Rig::new(&config(), 1);
    let sent = rig.send(ProducerRecord::new("unheard-of").value("x")).unwrap();
    assert_eq!(rig.engine.unresolved().len(), 1);
    rig.advance(59_999);
    assert!(rig.outcome(&sent).is_none());
    rig.advance(1);
    let error = rig.outcome(&sent).unwrap().unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Timeout, Some("unheard-of")));
    // A partition that a known topic has not got.
    let sent = rig.send(ProducerRecord::new(super::rig::TOPIC).partition(9).value("x")).unwrap();
    rig.advance(60_000);
    let error = rig.outcome(&sent).unwrap().unwrap_err();
    assert_eq!((error.kind(), error.partition()), (ErrorKind::UnknownTopic, Some(9)));
    assert_eq!(rig.engine.buffered(), 0);
}
