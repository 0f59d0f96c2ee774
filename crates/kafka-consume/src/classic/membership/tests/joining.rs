//! From nothing to a first assignment, and what stands in the way.

use super::*;

fn joining(assignors: &[Assignor]) -> (Rig, u64) {
    let mut rig = Rig::new(assignors, None);
    rig.input(Input::Join);
    let (ticket, _) = rig.join();
    (rig, ticket)
}

#[test]
fn nothing_is_sent_before_the_first_poll() {
    let rig = Rig::new(EAGER, None);
    rig.idle();
    assert_eq!(rig.member.next_deadline(), None);
    assert_eq!(rig.member.identity(), None);
}

#[test]
fn a_new_member_takes_the_id_it_is_given_and_joins_again_at_once() {
    let mut rig = Rig::new(EAGER, None);
    rig.input(Input::Join);
    let (ticket, request) = rig.join();
    assert_eq!(request.member_id.as_str(), "");
    assert_eq!((request.session_timeout_ms, request.rebalance_timeout_ms), (45_000, 300_000));
    let offered: Vec<&str> = request.protocols.iter().map(|protocol| protocol.name.as_str()).collect();
    assert_eq!(offered, ["range", "cooperative-sticky"]);
    assert_eq!(said(&request).topics, ["t"]);
    assert!(said(&request).owned.is_empty());
    rig.answer(ticket, join_error(79, "me"));
    let (ticket, request) = rig.join();
    assert_eq!(request.member_id.as_str(), "me");
    rig.answer(ticket, joined("range", 5, "me", "other"));
    let (ticket, request) = rig.sync();
    assert_eq!((request.generation_id, request.member_id.as_str()), (5, "me"));
    assert!(request.assignments.is_empty());
    rig.answer(ticket, synced(&[("t", 0), ("t", 1)]));
    let number = rig.target(&[("t", 0), ("t", 1)]);
    rig.reconciled(number, &[("t", 0), ("t", 1)]);
    rig.idle();
    assert_eq!(rig.member.identity().unwrap().generation, 5);
}

#[test]
fn polls_while_a_join_is_out_send_no_second_one() {
    let (mut rig, _) = joining(EAGER);
    for _ in 0..5 {
        rig.input(Input::Join);
    }
    rig.idle();
}

#[test]
fn a_moved_coordinator_is_forgotten_and_asked_again_after_a_back_off() {
    for code in [15, 16] {
        let (mut rig, ticket) = joining(EAGER);
        rig.answer(ticket, join_error(code, ""));
        assert!(matches!(rig.next(), Output::ForgetCoordinator));
        rig.idle();
        assert!(rig.wait() >= Duration::from_millis(50));
        rig.join();
    }
}

#[test]
fn a_lost_join_keeps_the_id_and_is_repeated_after_a_growing_back_off() {
    let (mut rig, ticket) = joining(EAGER);
    rig.answer(ticket, join_error(79, "me"));
    let mut last = Duration::ZERO;
    for _ in 0..4 {
        let (ticket, request) = rig.join();
        assert_eq!(request.member_id.as_str(), "me");
        rig.lose(ticket);
        rig.idle();
        let waited = rig.wait();
        assert!(waited > last, "{waited:?} after {last:?}");
        last = waited;
    }
}

#[test]
fn a_group_with_other_assignors_is_a_fatal_error_that_names_ours() {
    let (mut rig, ticket) = joining(EAGER);
    rig.answer(ticket, join_error(23, ""));
    let Output::Fault(error) = rig.next() else { panic!("no fault") };
    assert!(error.is_fatal());
    assert!(error.to_string().contains("range, cooperative-sticky"), "{error}");
    rig.input(Input::Join);
    rig.idle();
    assert_eq!(rig.member.next_deadline(), None);
    rig.subscribe(&["other"]);
    rig.input(Input::Join);
    rig.join();
}

#[test]
fn an_assignor_that_was_not_offered_is_refused() {
    let (mut rig, ticket) = joining(EAGER);
    rig.answer(ticket, joined("sticky", 1, "me", "other"));
    assert!(matches!(rig.next(), Output::Fault(error) if error.is_fatal()));
    assert_eq!(rig.member.identity(), None);
}

#[test]
fn a_lacking_right_is_told_and_asked_again_only_by_a_later_poll() {
    let (mut rig, ticket) = joining(EAGER);
    rig.answer(ticket, join_error(30, ""));
    assert!(matches!(rig.next(), Output::Fault(error) if !error.is_fatal()));
    rig.pass(Duration::from_secs(60));
    rig.idle();
    rig.input(Input::Join);
    rig.join();
}

#[test]
fn a_member_in_a_group_that_nobody_leads_takes_what_the_broker_assigns() {
    let (mut rig, ticket) = joining(EAGER);
    rig.answer(ticket, joined("range", 3, "me", ""));
    let (ticket, request) = rig.sync();
    assert!(request.assignments.is_empty());
    rig.answer(ticket, synced(&[("t", 2)]));
    rig.target(&[("t", 2)]);
}

#[test]
fn a_member_the_leader_forgot_owns_nothing() {
    let (mut rig, ticket) = joining(EAGER);
    rig.answer(ticket, joined("range", 3, "me", "other"));
    let (ticket, _) = rig.sync();
    rig.answer(ticket, Answer::Sync(SyncGroupResponse::default()));
    rig.target(&[]);
}

#[test]
fn foreign_topics_in_an_assignment_are_not_owned_and_lead_to_another_round() {
    let (mut rig, ticket) = joining(COOPERATIVE);
    rig.answer(ticket, joined("cooperative-sticky", 3, "me", "other"));
    let (ticket, _) = rig.sync();
    rig.answer(ticket, synced(&[("t", 0), ("u", 0), ("t", -1)]));
    let number = rig.target(&[("t", 0)]);
    rig.reconciled(number, &[("t", 0)]);
    rig.idle();
    rig.wait();
    rig.join();
}

#[test]
fn heartbeats_begin_with_the_joins_answer_and_go_on_during_the_sync() {
    let (mut rig, ticket) = joining(EAGER);
    assert_eq!(rig.member.next_deadline(), None);
    rig.answer(ticket, joined("range", 3, "me", "other"));
    let (sync, _) = rig.sync();
    for _ in 0..3 {
        assert_eq!(rig.wait(), Duration::from_secs(3));
        let ticket = rig.heartbeat();
        rig.answer(ticket, beaten(27));
        rig.idle();
    }
    rig.answer(sync, synced(&[]));
    rig.target(&[]);
}
