//! Targets: named by metadata, the last one counts, told again when more can be named.

use super::*;

#[test]
fn an_empty_first_target_and_a_repeated_one_are_acknowledged_too() {
    let mut rig = Rig::new(None);
    rig.input(Input::Join);
    let (ticket, _) = rig.beat();
    rig.answer(ticket, assigned(1, &[]));
    for _ in 0..2 {
        let number = rig.target(&[]);
        rig.reconciled(number, &[]);
        let (ticket, request) = rig.beat();
        assert_eq!(told(&request), Some(Vec::new()));
        rig.answer(ticket, assigned(1, &[]));
    }
}

#[test]
fn what_cannot_be_named_yet_waits_for_metadata() {
    let mut rig = Rig::new(None);
    rig.input(Input::Join);
    let (ticket, _) = rig.beat();
    rig.answer(ticket, assigned(1, &[("t", &[0]), ("u", &[4])]));
    assert!(matches!(rig.next(), Output::NeedIds));
    rig.target(&[0]);
    rig.know(&["t"]);
    assert!(matches!(rig.next(), Output::NeedIds), "asked for until it is known");
    rig.idle();
    rig.know(&["t", "u"]);
    match rig.next() {
        Output::Reconcile { target, .. } => assert_eq!(target.len(), 2),
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_outlive_the_metadata_that_told_them() {
    let mut rig = Rig::stable(3, &[0]);
    rig.know(&[]);
    rig.beat_and_answer(assigned(3, &[("t", &[0, 1])]));
    rig.target(&[0, 1]);
}

#[test]
fn a_reconciliation_that_ends_after_a_loss_says_nothing() {
    let mut rig = Rig::stable(3, &[0]);
    rig.beat_and_answer(assigned(3, &[("t", &[1])]));
    let number = rig.target(&[1]);
    rig.beat_and_answer(refused(ErrorCode::UNKNOWN_MEMBER_ID));
    rig.lost();
    rig.reconciled(number, &[1]);
    rig.idle();
    rig.input(Input::LostDone);
    rig.input(Input::Join);
    assert_eq!(told(&rig.beat().1), Some(Vec::new()));
}

#[test]
fn a_target_of_which_nothing_can_be_named_is_not_taken_for_an_empty_one() {
    let mut rig = Rig::new(None);
    rig.input(Input::Join);
    let (ticket, _) = rig.beat();
    rig.answer(ticket, assigned(1, &[("u", &[4])]));
    assert!(matches!(rig.next(), Output::NeedIds));
    rig.idle();
    rig.know(&["t", "u"]);
    match rig.next() {
        Output::Reconcile { target, .. } => assert_eq!(target.len(), 1),
        other => panic!("{other:?}"),
    }
}
