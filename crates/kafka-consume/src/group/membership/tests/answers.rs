//! What each answer means.

use super::*;

#[test]
fn a_moved_coordinator_is_forgotten_and_a_loading_one_is_not() {
    let codes = [
        (ErrorCode::NOT_COORDINATOR, true),
        (ErrorCode::COORDINATOR_NOT_AVAILABLE, true),
        (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, false),
    ];
    for (code, forgotten) in codes {
        let mut rig = Rig::stable(3, &[0]);
        rig.beat_and_answer(refused(code));
        if forgotten {
            assert!(matches!(rig.next(), Output::ForgetCoordinator));
        }
        rig.idle();
        rig.full_beat_after_back_off();
        assert_eq!(rig.epoch(), Some(3));
    }
}

#[test]
fn a_fence_ends_the_life_and_the_next_begins_after_the_loss_with_a_poll() {
    for code in [ErrorCode::FENCED_MEMBER_EPOCH, ErrorCode::UNKNOWN_MEMBER_ID] {
        let mut rig = Rig::stable(3, &[0]);
        let first = rig.member.identity().unwrap().incarnation;
        rig.beat_and_answer(refused(code));
        assert_eq!(rig.lost().kind(), ErrorKind::Fenced);
        assert_eq!(rig.epoch(), None);
        rig.input(Input::Join);
        rig.idle();
        assert_eq!(rig.member.next_deadline(), None, "silent until the loss is dealt with");
        rig.input(Input::LostDone);
        rig.idle();
        rig.input(Input::Join);
        let (ticket, request) = rig.beat();
        assert_eq!((request.member_epoch, told(&request)), (0, Some(Vec::new())));
        rig.answer(ticket, assigned(9, &[("t", &[0])]));
        rig.target(&[0]);
        assert!(rig.member.identity().unwrap().incarnation > first);
    }
}

#[test]
fn epochs_are_followed_and_old_or_parting_answers_are_not() {
    let mut rig = Rig::stable(3, &[0]);
    rig.beat_and_answer(alive(4));
    assert_eq!(rig.epoch(), Some(4));
    rig.answer(1, assigned(8, &[("t", &[5])]));
    rig.idle();
    rig.beat_and_answer(alive(-1));
    rig.idle();
    assert_eq!(rig.epoch(), Some(4));
}

#[test]
fn a_known_id_that_may_not_join_leaves_first() {
    let mut rig = Rig::new(None);
    rig.input(Input::Join);
    let (ticket, _) = rig.beat();
    rig.answer(ticket, refused(ErrorCode::FENCED_MEMBER_EPOCH));
    rig.wait();
    let (ticket, request) = rig.beat();
    assert_eq!(request.member_epoch, -1);
    rig.answer(ticket, alive(-1));
    assert_eq!(rig.beat().1.member_epoch, 0);
}

#[test]
fn an_unreleased_instance_is_asked_for_again_by_a_later_poll_only() {
    let mut rig = Rig::new(Some("instance"));
    rig.input(Input::Join);
    let (ticket, _) = rig.beat();
    rig.answer(ticket, refused(ErrorCode::UNRELEASED_INSTANCE_ID));
    let error = rig.fault();
    assert_eq!(error.kind(), ErrorKind::UnreleasedInstanceId);
    assert!(!error.is_fatal() && error.is_retriable());
    assert_eq!(rig.member.next_deadline(), None, "not by itself");
    rig.input(Input::Join);
    rig.idle();
    rig.now += Duration::from_secs(2);
    rig.input(Input::Join);
    assert_eq!(rig.beat().1.member_epoch, 0);
}

#[test]
fn what_cannot_heal_is_fatal_and_loses_what_is_owned_until_another_subscription() {
    let codes = [
        ErrorCode::FENCED_INSTANCE_ID,
        ErrorCode::UNSUPPORTED_ASSIGNOR,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::INVALID_REGULAR_EXPRESSION,
        ErrorCode::UNSUPPORTED_VERSION,
        ErrorCode::from(999),
    ];
    for code in codes {
        let mut rig = Rig::stable(3, &[0]);
        rig.beat_and_answer(refused(code));
        assert!(rig.fault().is_fatal(), "{code}");
        rig.lost();
        rig.input(Input::LostDone);
        rig.input(Input::Join);
        rig.idle();
        assert_eq!(rig.member.next_deadline(), None, "{code}");
        rig.subscribe(&["u"], None);
        rig.input(Input::Join);
        assert_eq!(rig.beat().1.member_epoch, 0);
    }
}

#[test]
fn a_missing_permission_is_told_and_does_not_cost_the_membership() {
    let mut rig = Rig::stable(3, &[0]);
    rig.beat_and_answer(refused(ErrorCode::GROUP_AUTHORIZATION_FAILED));
    let fault = rig.fault();
    assert_eq!((fault.is_fatal(), fault.group()), (false, Some("group")));
    assert_eq!(rig.epoch(), Some(3));
    rig.full_beat_after_back_off();
}

#[test]
fn a_protocol_that_is_not_served_is_refused_before_admission() {
    for code in [ErrorCode::UNSUPPORTED_VERSION, ErrorCode::GROUP_ID_NOT_FOUND] {
        let mut rig = Rig::new(None);
        rig.input(Input::Join);
        let (ticket, _) = rig.beat();
        rig.answer(ticket, refused(code));
        assert!(matches!(rig.next(), Output::Refused(_)));
        assert_eq!(rig.member.next_deadline(), None);
    }
}
