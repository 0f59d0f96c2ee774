//! Batches and requests that fail before the end.

use kafka_meta::{Error, ErrorKind};

use super::{Admit, Answer, Ask, Rig, SECOND, State};

fn lost_batch() -> Error {
    Error::new(ErrorKind::Timeout, "send").with_partition("t", 0)
}

#[test]
fn a_failed_batch_makes_the_commit_fail_and_nothing_is_committed() {
    for during_flush in [true, false] {
        let mut rig = Rig::open(true);
        rig.holds_flush = true;
        let mut number = None;
        if during_flush {
            number = Some(rig.commit().unwrap());
            assert!(rig.next().is_none());
        }
        rig.core.batch_failed(&lost_batch());
        let error = match number {
            Some(number) => rig.core.outcome_of_commit(number).unwrap().unwrap_err(),
            None => rig.commit().unwrap_err(),
        };
        assert!(error.needs_abort() && !error.is_retriable(), "{error}");
        assert_eq!(
            (error.kind(), error.topic(), error.partition()),
            (ErrorKind::Timeout, Some("t"), Some(0))
        );
        if let Some(ticket) = rig.held.take() {
            rig.core.handle_settled(ticket, Err(lost_batch()), true);
        }
        assert!(rig.next().is_none(), "no end is asked for");
        assert!(matches!(rig.core.admit("t".into(), 1), Admit::No(_)));
        assert!(rig.core.may_send().unwrap_err().needs_abort());

        rig.core.handle_abort(rig.deadline()).unwrap();
        let plan = rig.end(false);
        rig.answer(&plan, Answer::Ended(Some(SECOND)));
        assert!(rig.next().is_none());
        rig.begin();
    }
}

#[test]
fn a_batch_that_fails_during_the_abort_changes_nothing() {
    let mut rig = Rig::open(true);
    rig.core.handle_abort(rig.deadline()).unwrap();
    rig.core.batch_failed(&lost_batch());
    assert_eq!(rig.core.state(), State::Aborting);
    let plan = rig.end(false);
    rig.core.batch_failed(&lost_batch());
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    assert!(rig.next().is_none());
    assert_eq!(rig.core.state(), State::Ready);
    rig.core.batch_failed(&lost_batch());
    assert_eq!(rig.core.state(), State::Ready);
}

#[test]
fn partitions_are_added_together_and_wake_the_sender() {
    let mut rig = Rig::ready(false);
    rig.begin();
    for index in 0..3 {
        assert!(matches!(rig.core.admit("t".into(), index), Admit::Wait));
        assert!(matches!(rig.core.admit("t".into(), index), Admit::Wait));
    }
    let plan = rig.asked();
    assert!(matches!(&plan.ask, Ask::AddPartitions(places) if places.len() == 3), "{plan:?}");
    assert!(matches!(rig.core.admit("u".into(), 0), Admit::Wait));
    assert!(rig.next().is_none(), "one request at a time");
    rig.partitions(&plan, &[("t", 0, 0), ("t", 1, 0), ("t", 2, 0)]);
    let plan = rig.asked();
    assert!(matches!(&plan.ask, Ask::AddPartitions(places) if places.len() == 1));
    assert_eq!(rig.told, ["wake"]);
    assert!(matches!(rig.core.admit("t".into(), 2), Admit::Go { max_produce_version: 11, .. }));
}

#[test]
fn partitions_not_tried_because_of_another_are_asked_again() {
    let mut rig = Rig::ready(false);
    rig.begin();
    rig.core.admit("t".into(), 0);
    rig.core.admit("new".into(), 0);
    let plan = rig.asked();
    rig.partitions(&plan, &[("t", 0, 55), ("new", 0, 3)]);
    let plan = rig.asked_later();
    rig.partitions(&plan, &[("t", 0, 51), ("new", 0, 51)]);
    let plan = rig.asked_later();
    // One that the answer leaves out is asked for again.
    rig.partitions(&plan, &[("t", 0, 0)]);
    let plan = rig.asked_later();
    assert!(matches!(&plan.ask, Ask::AddPartitions(places) if places.len() == 1));
}

#[test]
fn a_refused_partition_names_itself_and_needs_an_abort() {
    let mut rig = Rig::ready(false);
    rig.begin();
    rig.core.admit("t".into(), 4);
    let plan = rig.asked();
    rig.partitions(&plan, &[("t", 4, 29)]);
    let error = rig.commit().unwrap_err();
    assert!(error.needs_abort());
    assert_eq!(
        (error.kind(), error.topic(), error.partition()),
        (ErrorKind::Authorization, Some("t"), Some(4))
    );
}

#[test]
fn initialization_waits_for_a_coordinator_and_fails_for_good_reasons() {
    let mut rig = Rig::new();
    rig.core.handle_init(rig.deadline());
    let mut plan = rig.asked();
    for code in [15, 16, 14, 51] {
        rig.code(&plan, code);
        plan = rig.asked_later();
    }
    rig.lose(&plan);
    let plan = rig.asked_later();
    rig.code(&plan, 50);
    let error = rig.core.outcome_of_init().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.is_fatal() && error.to_string().contains("transaction.timeout.ms"), "{error}");
}

#[test]
fn nothing_is_asked_past_the_horizon_and_the_next_call_goes_on() {
    let mut rig = Rig::open(true);
    let number = rig.commit().unwrap();
    let plan = rig.end(true);
    rig.lose(&plan);
    rig.wait(61_000);
    assert!(rig.next().is_none());
    assert!(rig.core.next_deadline(rig.now).is_none(), "and the driver sleeps");
    let late = rig.core.timed_out("commit transaction");
    assert!(late.is_retriable() && !late.needs_abort(), "{late}");
    assert!(rig.core.outcome_of_commit(number).is_none(), "undecided");
    assert_eq!(rig.commit().unwrap(), number);
    let plan = rig.end(true);
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    rig.core.outcome_of_commit(number).unwrap().unwrap();
}

#[test]
fn a_driver_that_died_is_followed_by_one_that_goes_on() {
    let mut rig = Rig::open(true);
    rig.holds_flush = true;
    let number = rig.commit().unwrap();
    assert!(rig.next().is_none());
    let lost = Error::new(ErrorKind::Disconnected, "transaction");
    rig.core.handle_interruption(rig.now, &lost);
    rig.holds_flush = false;
    let _lost = rig.end(true);
    assert_eq!(rig.told, ["flush", "flush"]);
    rig.core.handle_interruption(rig.now, &lost);
    let plan = rig.asked_later();
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    rig.core.outcome_of_commit(number).unwrap().unwrap();
}
