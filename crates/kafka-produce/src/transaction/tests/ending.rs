//! Commits and aborts, and the answers that were lost.

use kafka_meta::ErrorKind;

use super::{Answer, Ask, FIRST, Identity, Rig, SECOND, State};

#[test]
fn a_commit_flushes_then_ends_and_takes_the_next_epoch_over() {
    let mut rig = Rig::open(true);
    rig.holds_flush = true;
    let number = rig.commit().unwrap();
    assert!(rig.next().is_none(), "nothing is decided while records are on their way");
    let ticket = rig.held.take().unwrap();
    rig.core.handle_settled(ticket, Ok(()), true);
    let plan = rig.end(true);
    assert!(plan.v2 && plan.identity == FIRST);
    assert!(rig.core.outcome_of_commit(number).is_none());
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    assert!(rig.next().is_none());
    assert_eq!(rig.told, ["flush", "adopt 1"]);
    rig.core.outcome_of_commit(number).unwrap().unwrap();
    assert_eq!(rig.core.state(), State::Ready);
    rig.begin();
    rig.core.admit("t".into(), 0);
    rig.commit().unwrap();
    rig.holds_flush = false;
    rig.held.take();
    // The next one runs under the new epoch.
    let ticket = match rig.core.poll_output(rig.now).unwrap() {
        super::Output::Flush(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    rig.core.handle_settled(ticket, Ok(()), true);
    assert_eq!(rig.end(true).identity, SECOND);
}

#[test]
fn a_transaction_with_nothing_in_it_is_not_told_to_anybody() {
    for v2 in [true, false] {
        for commit in [true, false] {
            let mut rig = Rig::ready(v2);
            rig.begin();
            if commit {
                let number = rig.commit().unwrap();
                assert!(rig.next().is_none());
                rig.core.outcome_of_commit(number).unwrap().unwrap();
            } else {
                let number = rig.core.handle_abort(rig.deadline()).unwrap().unwrap();
                assert!(rig.next().is_none());
                rig.core.outcome_of_abort(number, rig.deadline()).unwrap().unwrap();
            }
            assert_eq!(rig.core.state(), State::Ready);
        }
    }
}

#[test]
fn a_lost_answer_to_an_end_is_asked_for_again_under_the_old_epoch() {
    for v2 in [true, false] {
        let mut rig = Rig::open(v2);
        let number = rig.commit().unwrap();
        let plan = rig.end(true);
        rig.lose(&plan);
        let again = rig.asked_later();
        assert!(matches!(again.ask, Ask::End { commit: true }));
        assert_eq!(again.identity, FIRST);
        // An answer of the lost one that comes after all is nobody's.
        rig.code(&plan, 90);
        assert_eq!(rig.core.state(), State::Committing);
        rig.answer(&again, Answer::Ended(v2.then_some(SECOND)));
        rig.core.outcome_of_commit(number).unwrap().unwrap();
    }
}

#[test]
fn markers_that_are_being_written_and_coordinators_that_move_are_waited_for() {
    let mut rig = Rig::open(true);
    let number = rig.commit().unwrap();
    let mut plan = rig.end(true);
    for (code, forgets) in [(51, false), (14, false), (15, true), (16, true), (52, true)] {
        assert_eq!(rig.code(&plan, code), forgets, "{code}");
        let before = rig.now;
        plan = rig.asked_later();
        assert!(rig.now > before);
    }
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    rig.core.outcome_of_commit(number).unwrap().unwrap();
}

#[test]
fn an_abort_drops_what_was_not_sent_and_goes_on_by_version() {
    let mut rig = Rig::open(true);
    let number = rig.core.handle_abort(rig.deadline()).unwrap().unwrap();
    let plan = rig.end(false);
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    assert!(rig.next().is_none());
    assert_eq!(rig.told, ["wake", "drop", "adopt 1"]);
    rig.core.outcome_of_abort(number, rig.deadline()).unwrap().unwrap();

    let mut rig = Rig::open(false);
    rig.core.handle_abort(rig.deadline()).unwrap();
    let plan = rig.end(false);
    rig.answer(&plan, Answer::Ended(None));
    assert!(rig.next().is_none(), "sequences go on under version 1");
    assert_eq!(rig.core.state(), State::Ready);
}

#[test]
fn under_version_1_a_gap_in_the_sequences_raises_the_epoch_after_the_abort() {
    let mut rig = Rig::open(false);
    rig.in_sequence = false;
    let number = rig.core.handle_abort(rig.deadline()).unwrap().unwrap();
    let plan = rig.end(false);
    rig.answer(&plan, Answer::Ended(None));
    // The abort is decided; the next transaction waits for the epoch.
    rig.core.outcome_of_abort(number, rig.deadline()).unwrap().unwrap();
    assert!(rig.core.outcome_of_begin().is_none());
    let plan = rig.asked();
    assert!(matches!(plan.ask, Ask::Init { current } if current == FIRST));
    rig.code(&plan, 51);
    let plan = rig.asked_later();
    rig.answer(&plan, Answer::Identity { identity: SECOND, v2: false });
    assert!(rig.next().is_none());
    assert_eq!(rig.told.last().unwrap(), "adopt 1");
    rig.core.outcome_of_begin().unwrap().unwrap();
}

#[test]
fn under_version_1_a_lost_answer_raises_the_epoch_even_after_a_commit() {
    let mut rig = Rig::open(false);
    let number = rig.commit().unwrap();
    let plan = rig.end(true);
    rig.lose(&plan);
    let plan = rig.asked_later();
    rig.answer(&plan, Answer::Ended(None));
    rig.core.outcome_of_commit(number).unwrap().unwrap();
    let plan = rig.asked();
    assert!(matches!(plan.ask, Ask::Init { current } if current == FIRST));
    // A fence found out now takes nothing back.
    rig.code(&plan, 90);
    assert_eq!(rig.core.state(), State::Fatal);
    rig.core.outcome_of_commit(number).unwrap().unwrap();
    assert!(rig.core.outcome_of_begin().unwrap().unwrap_err().is_fatal());
}

#[test]
fn an_abort_of_what_the_coordinator_does_not_have_takes_a_new_epoch() {
    for (v2, code) in [(true, 48), (false, 48), (true, 49), (false, 49)] {
        let mut rig = Rig::open(v2);
        let number = rig.core.handle_abort(rig.deadline()).unwrap().unwrap();
        let plan = rig.end(false);
        rig.code(&plan, code);
        let plan = rig.asked();
        assert!(matches!(plan.ask, Ask::Init { current } if current == FIRST));
        let other = Identity { producer_id: 8, epoch: 0 };
        rig.answer(&plan, Answer::Identity { identity: other, v2 });
        assert!(rig.next().is_none());
        rig.core.outcome_of_abort(number, rig.deadline()).unwrap().unwrap();
        assert_eq!(rig.core.state(), State::Ready);
    }
}

#[test]
fn a_commit_the_coordinator_has_no_transaction_for_needs_an_abort() {
    for v2 in [true, false] {
        let mut rig = Rig::open(v2);
        let number = rig.commit().unwrap();
        let plan = rig.end(true);
        rig.code(&plan, 48);
        let error = rig.core.outcome_of_commit(number).unwrap().unwrap_err();
        assert!(error.needs_abort() && !error.is_fatal() && !error.is_retriable(), "{error}");
        assert!(rig.core.outcome_of_begin().unwrap().unwrap_err().needs_abort());
        rig.core.handle_abort(rig.deadline()).unwrap();
        let plan = rig.end(false);
        rig.answer(&plan, Answer::Ended(v2.then_some(SECOND)));
        if !v2 {
            let plan = rig.asked();
            rig.answer(&plan, Answer::Identity { identity: SECOND, v2 });
        }
        assert!(rig.next().is_none());
        assert_eq!(rig.core.state(), State::Ready);
    }
}

#[test]
fn a_fenced_producer_is_fatal_wherever_it_finds_out() {
    for code in [90, 47] {
        let mut rig = Rig::open(true);
        let number = rig.commit().unwrap();
        let plan = rig.end(true);
        rig.code(&plan, code);
        let error = rig.core.outcome_of_commit(number).unwrap().unwrap_err();
        assert!(error.is_fatal() && !error.needs_abort(), "{error}");
        assert_eq!(error.kind(), ErrorKind::Fenced);
        assert!(rig.core.may_send().unwrap_err().is_fatal());
        assert!(rig.core.handle_abort(rig.deadline()).unwrap_err().is_fatal());
        assert!(rig.next().is_none(), "a fenced producer asks for nothing");
        rig.core.outcome_of_close(rig.deadline()).unwrap().unwrap();
    }
}

#[test]
fn an_unknown_answer_to_an_end_is_fatal_since_the_outcome_is_not_known() {
    let mut rig = Rig::open(true);
    let number = rig.commit().unwrap();
    let plan = rig.end(true);
    rig.code(&plan, -1);
    assert!(rig.core.outcome_of_commit(number).unwrap().unwrap_err().is_fatal());
}
