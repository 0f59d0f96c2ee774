//! Calls whose futures were dropped: what the next call finds.

use kafka_meta::ErrorKind;

use super::{Answer, Ask, Rig, SECOND, State};

#[test]
fn a_second_commit_goes_on_with_the_first() {
    let mut rig = Rig::open(true);
    let number = rig.commit().unwrap();
    let plan = rig.end(true);
    assert_eq!(rig.commit().unwrap(), number);
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    assert!(rig.next().is_none());
    assert_eq!(rig.core.state(), State::Ready);
    // Nobody has been told yet.
    assert_eq!(rig.commit().unwrap(), number);
    rig.core.outcome_of_commit(number).unwrap().unwrap();
    let error = rig.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "told, and nothing is open");
}

#[test]
fn a_begin_after_a_dropped_commit_finishes_the_commit() {
    let mut rig = Rig::open(true);
    rig.commit().unwrap();
    let plan = rig.end(true);
    rig.core.handle_begin(rig.deadline());
    assert!(rig.core.outcome_of_begin().is_none());
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    assert!(rig.next().is_none());
    rig.core.outcome_of_begin().unwrap().unwrap();
    assert_eq!(rig.core.state(), State::InTransaction);
}

#[test]
fn an_abort_before_the_end_was_asked_for_wins() {
    let mut rig = Rig::open(true);
    rig.holds_flush = true;
    let number = rig.commit().unwrap();
    assert!(rig.next().is_none());
    let flush = rig.held.take().unwrap();
    assert_eq!(rig.core.handle_abort(rig.deadline()).unwrap(), Some(number));
    assert!(rig.core.outcome_of_commit(number).unwrap().unwrap_err().needs_abort());
    let plan = rig.end(false);
    rig.core.handle_settled(flush, Ok(()), true);
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    assert!(rig.next().is_none());
    rig.core.outcome_of_abort(number, rig.deadline()).unwrap().unwrap();
    assert!(rig.core.handle_abort(rig.deadline()).unwrap().is_none(), "an abort may be repeated");
    assert!(rig.commit().is_err());
}

#[test]
fn an_abort_of_an_undecided_commit_waits_and_tells_that_it_came_too_late() {
    let mut rig = Rig::open(true);
    let number = rig.commit().unwrap();
    let plan = rig.end(true);
    rig.lose(&plan);
    assert_eq!(rig.core.handle_abort(rig.deadline()).unwrap(), Some(number));
    assert!(rig.core.outcome_of_abort(number, rig.deadline()).is_none());
    let again = rig.asked_later();
    assert!(matches!(again.ask, Ask::End { commit: true }), "never the opposite before the outcome is known");
    rig.answer(&again, Answer::Ended(Some(SECOND)));
    assert!(rig.next().is_none());
    let error = rig.core.outcome_of_abort(number, rig.deadline()).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("committed"), "{error}");
    rig.begin();
}

#[test]
fn an_abort_of_a_commit_that_came_to_nothing_aborts() {
    let mut rig = Rig::open(true);
    let number = rig.commit().unwrap();
    let plan = rig.end(true);
    rig.core.handle_abort(rig.deadline()).unwrap();
    rig.code(&plan, 48);
    assert!(rig.core.outcome_of_abort(number, rig.deadline()).is_none());
    let plan = rig.end(false);
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    rig.core.outcome_of_abort(number, rig.deadline()).unwrap().unwrap();
}

#[test]
fn closing_aborts_what_is_open_and_finishes_a_commit() {
    let mut rig = Rig::open(true);
    rig.core.handle_close(rig.deadline());
    assert!(rig.core.outcome_of_close(rig.deadline()).is_none());
    let plan = rig.end(false);
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    assert!(rig.next().is_none());
    rig.core.outcome_of_close(rig.deadline()).unwrap().unwrap();
    assert_eq!(rig.core.outcome_of_begin().unwrap().unwrap_err().kind(), ErrorKind::Closed);

    let mut rig = Rig::open(true);
    let number = rig.commit().unwrap();
    let plan = rig.end(true);
    rig.core.handle_close(rig.deadline());
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    assert!(rig.next().is_none());
    rig.core.outcome_of_close(rig.deadline()).unwrap().unwrap();
    rig.core.outcome_of_commit(number).unwrap().unwrap();
}

#[test]
fn calls_out_of_place_say_so() {
    let mut rig = Rig::ready(true);
    assert_eq!(rig.core.may_send().unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert!(rig.commit().is_err() && rig.core.handle_abort(rig.deadline()).is_err());
    rig.begin();
    assert!(rig.core.outcome_of_begin().unwrap().is_err(), "one at a time");
    rig.core.may_send().unwrap();
    rig.commit().unwrap();
    assert!(rig.core.may_send().is_err());
}
