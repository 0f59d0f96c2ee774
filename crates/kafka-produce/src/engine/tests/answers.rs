//! What each answer does to a batch and to those behind it.

use kafka_meta::{ErrorCode, ErrorKind};

use super::super::{Answer, Reply};
use super::rig::{Future, Rig, config};

fn code(code: i16) -> Answer {
    Answer::Replied(Reply { error: ErrorCode::from(code), base_offset: -1, ..Reply::default() })
}

/// A rig with one partition whose broker knows the producer, so that batches may follow each other.
fn known() -> Rig {
    let mut rig = Rig::new(&config().linger_ms(0), 1);
    let first = rig.send_to(0, "first");
    rig.round(0);
    assert_eq!(rig.offset(&first), 0);
    rig
}

/// Three batches in flight: their futures.
fn three(rig: &mut Rig) -> Vec<Future> {
    ["a", "b", "c"]
        .into_iter()
        .map(|value| {
            let future = rig.send_to(0, value);
            assert_eq!(rig.ship(0), 1);
            future
        })
        .collect()
}

/// Works and answers until nothing happens any more.
fn settle(rig: &mut Rig) {
    for _ in 0..20 {
        while rig.notice(0) {}
        rig.round(0);
        rig.advance(1_000);
    }
}

#[test]
fn a_lost_answer_is_found_again_under_the_same_sequence() {
    let mut rig = known();
    let sent = three(&mut rig);
    while rig.work(0, |_, _| None, |_| None) {}
    rig.break_off(0);
    settle(&mut rig);
    assert_eq!(rig.logs[0].values, ["first", "a", "b", "c"]);
    // The broker remembers where they are.
    assert_eq!(sent.iter().map(|one| rig.offset(one)).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(rig.engine.counts().epoch_bumps, 0);
}

#[test]
fn a_refused_batch_goes_again_before_those_behind_it_one_at_a_time() {
    let mut rig = known();
    let sent = three(&mut rig);
    let mut refused = false;
    // The first is refused, so the others are out of order.
    while rig.work(0, |_, _| (!std::mem::replace(&mut refused, true)).then_some(6), |_| None) {}
    while rig.arrive(0) {}
    assert_eq!(rig.logs[0].values, ["first"]);
    assert_eq!(rig.ship(0), 0, "not before the back-off has passed");
    rig.advance(2_000);
    assert_eq!(rig.ship(0), 1);
    assert_eq!(rig.ship(0), 0, "the second waits for the first");
    settle(&mut rig);
    assert_eq!(rig.logs[0].values, ["first", "a", "b", "c"]);
    assert_eq!(sent.iter().map(|one| rig.offset(one)).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_duplicate_is_a_success_whose_offset_nobody_knows() {
    let mut rig = known();
    let sent = rig.send_to(0, "a");
    rig.ship(0);
    rig.work(0, |_, _| Some(46), |_| None);
    rig.arrive(0);
    assert_eq!(rig.offset(&sent), -1);
}

#[test]
fn a_failed_batch_leaves_a_gap_that_a_new_epoch_closes() {
    let mut rig = known();
    let sent = three(&mut rig);
    let mut refused = false;
    while rig.work(0, |_, _| (!std::mem::replace(&mut refused, true)).then_some(29), |_| None) {}
    settle(&mut rig);
    assert_eq!(rig.kind(&sent[0]), ErrorKind::Authorization);
    assert_eq!(rig.logs[0].values, ["first", "b", "c"]);
    assert_eq!((rig.offset(&sent[1]), rig.offset(&sent[2])), (1, 2));
    assert_eq!(rig.engine.counts().epoch_bumps, 1);
}

#[test]
fn the_first_batch_of_a_partition_goes_alone() {
    let mut rig = Rig::new(&config().linger_ms(0), 1);
    rig.send_to(0, "a");
    assert_eq!(rig.ship(0), 1);
    rig.send_to(0, "b");
    // A broker that knows nothing of the producer would take it, and then the first would be out of order.
    assert_eq!(rig.ship(0), 0);
    rig.round(0);
    assert_eq!(rig.ship(0), 1);
    rig.send_to(0, "c");
    assert_eq!(rig.ship(0), 1);
}

#[test]
fn what_is_too_large_is_split_until_it_fits_or_is_one_record() {
    let mut rig = Rig::new(&config(), 1);
    let sent: Vec<_> = ["a", "b", "c", "d", "e"].map(|value| rig.send_to(0, value)).into();
    rig.advance(10);
    // No more than two records at a time, and "e" not at all.
    let broker = |bytes: &bytes::Bytes| {
        let count = i32::from_be_bytes(bytes[57..61].try_into().unwrap());
        let values = String::from_utf8_lossy(&bytes[61..]).into_owned();
        (count > 2 || values.contains('e')).then_some(10)
    };
    for _ in 0..20 {
        rig.ship(0);
        while rig.work(0, |_, bytes| broker(bytes), |_| None) {}
        while rig.arrive(0) {}
        rig.advance(1_000);
    }
    assert_eq!(rig.logs[0].values, ["a", "b", "c", "d"]);
    assert_eq!(sent[..4].iter().map(|one| rig.offset(one)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(rig.kind(&sent[4]), ErrorKind::BatchTooLarge);
    assert!(rig.engine.counts().splits >= 2);
    assert_eq!(rig.engine.buffered(), 0);
}

#[test]
fn state_that_a_broker_lost_is_begun_anew_and_the_batch_goes_again() {
    for lost in [45, 59] {
        let mut rig = known();
        let sent = rig.send_to(0, "a");
        rig.ship(0);
        rig.work(0, |_, _| Some(lost), |_| None);
        settle(&mut rig);
        assert_eq!(rig.offset(&sent), 1, "{lost}");
        assert_eq!(rig.engine.counts().epoch_bumps, 1);
    }
}

#[test]
fn an_epoch_that_was_taken_over_is_left_for_another_producer_id() {
    let mut rig = known();
    let before = rig.engine.identity;
    let sent = rig.send_to(0, "a");
    rig.ship(0);
    rig.work(0, |_, _| Some(47), |_| None);
    settle(&mut rig);
    assert_eq!(rig.offset(&sent), 1);
    assert_ne!(rig.engine.identity.producer_id, before.producer_id);
}

#[test]
fn epochs_that_run_out_need_another_producer_id() {
    let mut rig = known();
    rig.engine.identity.epoch = i16::MAX;
    rig.engine.parts[0].sequences.identity.epoch = i16::MAX;
    let before = rig.engine.identity.producer_id;
    let sent = rig.send_to(0, "a");
    rig.ship(0);
    rig.work(0, |_, _| Some(59), |_| None);
    settle(&mut rig);
    assert_eq!(rig.offset(&sent), 1);
    assert_ne!(rig.engine.identity.producer_id, before);
}

#[test]
fn invalid_records_fail_for_their_own_reason_and_the_others_of_the_batch_for_theirs() {
    let mut rig = Rig::new(&config(), 1);
    let sent: Vec<_> = ["a", "b"].map(|value| rig.send_to(0, value)).into();
    rig.advance(10);
    let shipped = rig.ship(0);
    assert_eq!(shipped, 1);
    let request = rig.connections.get_mut(&0).unwrap().front_mut().unwrap();
    request.replies = Some(vec![Reply {
        error: ErrorCode::INVALID_RECORD,
        base_offset: -1,
        append_time: -1,
        message: Some("one or more records are invalid".to_owned()),
        record_errors: vec![(1, Some("no key".to_owned()))],
        hint: None,
    }]);
    rig.arrive(0);
    let text = |at: usize| rig.outcome(&sent[at]).unwrap().unwrap_err().to_string();
    assert!(text(1).contains("no key"), "{}", text(1));
    assert!(text(0).contains("other records of its batch"), "{}", text(0));
    assert!(text(0).contains("t-0"), "{}", text(0));
}

#[test]
fn an_answer_that_nobody_waits_for_changes_nothing() {
    let mut rig = known();
    rig.engine.handle_answers(
        rig.now,
        0,
        vec![(0, 999, code(45)), (7, 1, code(0))],
        std::time::Duration::ZERO,
    );
    let sent = rig.send_to(0, "a");
    rig.round(0);
    assert_eq!(rig.offset(&sent), 1);
}

#[test]
fn what_is_on_its_way_to_an_old_leader_does_not_hold_up_the_new_one() {
    let mut rig = known();
    let sent = three(&mut rig);
    // Written, but the broker that has the answers is gone for long.
    while rig.work(0, |_, _| None, |_| None) {}
    rig.move_leader(0, Some(1));
    rig.show_picture();
    for _ in 0..4 {
        rig.round(1);
    }
    assert_eq!(sent.iter().map(|one| rig.offset(one)).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(rig.logs[0].values, ["first", "a", "b", "c"]);
    // The old answers come after all.
    while rig.arrive(0) {}
    assert_eq!(rig.engine.buffered(), 0);
}

#[test]
fn without_sequences_the_old_leader_is_waited_for() {
    let config = config().linger_ms(0).enable_idempotence(false).max_in_flight(1);
    let mut rig = Rig::new(&config, 1);
    let sent = rig.send_to(0, "a");
    rig.ship(0);
    rig.work(0, |_, _| None, |_| None);
    rig.move_leader(0, Some(1));
    rig.show_picture();
    rig.send_to(0, "b");
    assert_eq!(rig.ship(1), 0);
    rig.arrive(0);
    assert_eq!(rig.offset(&sent), 0);
    rig.round(1);
    assert_eq!(rig.logs[0].values, ["a", "b"]);
}

#[test]
fn a_muted_broker_is_left_alone_for_as_long_as_it_said() {
    let mut rig = known();
    rig.engine.handle_answers(rig.now, 0, Vec::new(), std::time::Duration::from_millis(300));
    rig.send_to(0, "a");
    assert_eq!(rig.ship(0), 0);
    rig.advance(299);
    assert_eq!(rig.ship(0), 0);
    rig.advance(1);
    assert_eq!(rig.ship(0), 1);
}
