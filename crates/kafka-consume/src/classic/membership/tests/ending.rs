//! How a membership ends: fenced, silent, unreachable, or with a goodbye.

use super::*;

#[test]
fn an_unknown_member_is_lost_and_begins_anew_only_when_the_loss_was_told() {
    for (code, id) in [(25, ""), (22, "me")] {
        let mut rig = Rig::stable(COOPERATIVE, &[("t", 0)]);
        let first = rig.member.identity().unwrap();
        rig.beat(code);
        assert!(matches!(rig.next(), Output::Lost(_)));
        assert_eq!(rig.member.identity(), None);
        rig.input(Input::Join);
        rig.pass(Duration::from_secs(600));
        rig.idle();
        rig.input(Input::LostDone);
        rig.idle();
        rig.input(Input::Join);
        let (ticket, request) = rig.join();
        assert_eq!(request.member_id.as_str(), id);
        assert!(said(&request).owned.is_empty(), "what was lost is not claimed");
        assert_eq!(said(&request).generation, None);
        rig.answer(ticket, joined("cooperative-sticky", 1, "again", "other"));
        rig.give(&[("t", 0)]);
        assert!(rig.member.identity().unwrap().is_newer_than(&first));
    }
}

#[test]
fn a_member_that_is_unknown_while_it_owns_nothing_joins_anew_by_itself() {
    let mut rig = Rig::stable(EAGER, &[("t", 0)]);
    rig.beat(27);
    let number = rig.prepare(&[]);
    rig.reconciled(number, &[]);
    let (ticket, _) = rig.join();
    rig.answer(ticket, join_error(25, ""));
    let (ticket, request) = rig.join();
    assert_eq!(request.member_id.as_str(), "");
    // A broker that says so for ever is not asked without pause.
    rig.answer(ticket, join_error(25, ""));
    rig.idle();
    rig.wait();
    rig.join();
}

#[test]
fn an_old_generations_heartbeat_does_not_end_the_new_one() {
    let mut rig = Rig::stable(COOPERATIVE, &[("t", 0)]);
    rig.beat(27);
    let (ticket, _) = rig.join();
    rig.answer(ticket, joined("cooperative-sticky", 2, "me", "other"));
    let (sync, _) = rig.sync();
    rig.wait();
    let old = rig.heartbeat();
    rig.answer(sync, sync_error(27));
    rig.wait();
    let (ticket, _) = rig.join();
    rig.answer(ticket, joined("cooperative-sticky", 3, "me", "other"));
    rig.sync();
    rig.answer(old, beaten(22));
    rig.idle();
    assert_eq!(rig.member.identity().unwrap().generation, 3);
}

#[test]
fn a_fenced_instance_is_lost_for_good() {
    let mut rig = Rig::stable(EAGER, &[("t", 0)]);
    rig.beat(82);
    assert!(matches!(rig.next(), Output::Lost(_)));
    assert!(matches!(rig.next(), Output::Fault(error) if error.is_fatal()));
    rig.input(Input::LostDone);
    rig.input(Input::Join);
    rig.idle();
    assert_eq!(rig.member.next_deadline(), None);
}

#[test]
fn a_silent_coordinator_is_given_up_after_a_session_and_the_generation_kept() {
    let mut rig = Rig::stable(EAGER, &[("t", 0)]);
    let start = rig.now;
    loop {
        if rig.outputs.is_empty() {
            rig.wait();
        }
        match rig.next() {
            Output::Send { ticket, within, .. } => {
                assert_eq!(within, Duration::from_secs(15));
                rig.pass(within);
                rig.lose(ticket);
            }
            Output::ForgetCoordinator => break,
            other => panic!("{other:?}"),
        }
    }
    let silent = rig.now - start;
    assert!(silent >= Duration::from_secs(45) && silent < Duration::from_secs(65), "{silent:?}");
    assert_eq!(rig.member.identity().unwrap().generation, 1);
    if rig.outputs.is_empty() {
        rig.wait();
    }
    rig.heartbeat();
}

#[test]
fn a_moved_coordinator_costs_no_partition() {
    let mut rig = Rig::stable(EAGER, &[("t", 0)]);
    for code in [16, 15, 14] {
        rig.beat(code);
        if code != 14 {
            assert!(matches!(rig.next(), Output::ForgetCoordinator));
        }
        rig.idle();
    }
    rig.beat(0);
    rig.idle();
}

#[test]
fn a_dynamic_member_says_goodbye() {
    let mut rig = Rig::stable(EAGER, &[("t", 0)]);
    rig.input(Input::Leave { goodbye: Goodbye::Leave });
    let (ticket, request) = rig.leave_request();
    assert_eq!(request.members[0].member_id.as_str(), "me");
    assert_eq!(request.members[0].group_instance_id, None);
    rig.idle();
    assert_eq!(rig.member.identity(), None);
    rig.answer(ticket, Answer::Leave);
    assert!(matches!(rig.next(), Output::Left));
}

#[test]
fn a_static_member_goes_without_a_word() {
    let mut rig = Rig::new(EAGER, Some("static"));
    rig.input(Input::Join);
    let (ticket, request) = rig.join();
    assert_eq!(request.group_instance_id.as_deref(), Some("static"));
    rig.answer(ticket, joined("range", 1, "static-1", "other"));
    rig.give(&[("t", 0)]);
    rig.input(Input::Leave { goodbye: Goodbye::Leave });
    assert!(matches!(rig.next(), Output::Left));
    rig.idle();
}

#[test]
fn a_goodbye_without_an_answer_ends_all_the_same() {
    let mut rig = Rig::stable(EAGER, &[]);
    rig.input(Input::Leave { goodbye: Goodbye::Leave });
    let (ticket, _) = rig.leave_request();
    rig.lose(ticket);
    assert!(matches!(rig.next(), Output::Left));
    rig.input(Input::Join);
    rig.idle();
}

#[test]
fn a_member_that_still_joins_leaves_too() {
    let mut rig = Rig::new(EAGER, None);
    rig.input(Input::Join);
    let (ticket, _) = rig.join();
    rig.answer(ticket, join_error(79, "me"));
    let (join, _) = rig.join();
    rig.input(Input::Leave { goodbye: Goodbye::Leave });
    rig.leave_request();
    rig.answer(join, joined("range", 1, "me", "me"));
    rig.idle();
}

#[test]
fn a_silent_caller_is_out_and_its_next_poll_joins_anew() {
    let mut rig = Rig::stable(EAGER, &[("t", 0)]);
    rig.input(Input::Leave { goodbye: Goodbye::PollTimeout });
    let (ticket, request) = rig.leave_request();
    assert!(request.members[0].reason.is_some());
    rig.answer(ticket, Answer::Leave);
    rig.pass(Duration::from_secs(600));
    rig.idle();
    assert_eq!(rig.member.identity(), None);
    rig.input(Input::LostDone);
    rig.input(Input::Join);
    let (_, request) = rig.join();
    assert_eq!(request.member_id.as_str(), "");
}
