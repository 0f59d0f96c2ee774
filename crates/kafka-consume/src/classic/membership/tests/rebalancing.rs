//! From one assignment to the next, eager and cooperative.

use super::*;

#[test]
fn an_eager_member_gives_everything_up_before_it_joins_again() {
    let mut rig = Rig::stable(EAGER, &[("t", 0), ("t", 1)]);
    rig.beat(27);
    let number = rig.prepare(&[]);
    // The caller takes its time: heartbeats go on and nothing else happens.
    rig.beat(27);
    rig.beat(27);
    rig.idle();
    assert_eq!(rig.member.identity().unwrap().generation, 1);
    rig.reconciled(number, &[]);
    let (ticket, request) = rig.join();
    assert_eq!(request.member_id.as_str(), "me");
    assert!(said(&request).owned.is_empty());
    rig.answer(ticket, joined("range", 2, "me", "other"));
    rig.give(&[("t", 1)]);
    rig.idle();
}

#[test]
fn a_cooperative_member_keeps_reading_and_says_what_it_owns() {
    let mut rig = Rig::stable(COOPERATIVE, &[("t", 0), ("t", 1)]);
    rig.beat(27);
    let (ticket, request) = rig.join();
    let told = said(&request);
    assert_eq!(told.owned, [("t".to_owned(), 0), ("t".to_owned(), 1)]);
    assert_eq!((told.generation, told.user_data.as_deref()), (Some(1), Some(&[0, 0, 0, 1][..])));
    rig.answer(ticket, joined("cooperative-sticky", 2, "me", "other"));
    let (ticket, _) = rig.sync();
    rig.answer(ticket, synced(&[("t", 0)]));
    let number = rig.target(&[("t", 0)]);
    rig.idle();
    // Only when the lost one is really gone is there another round, for its new owner.
    rig.reconciled(number, &[("t", 0)]);
    let (ticket, request) = rig.join();
    assert_eq!(said(&request).owned, [("t".to_owned(), 0)]);
    rig.answer(ticket, joined("cooperative-sticky", 3, "me", "other"));
    rig.give(&[("t", 0)]);
    rig.idle();
}

#[test]
fn a_cooperative_member_that_loses_nothing_does_not_join_again() {
    let mut rig = Rig::stable(COOPERATIVE, &[("t", 0)]);
    rig.beat(27);
    let (ticket, _) = rig.join();
    rig.answer(ticket, joined("cooperative-sticky", 2, "me", "other"));
    rig.give(&[("t", 0), ("t", 1)]);
    rig.idle();
}

/// Joined, and given a partition that the caller has not polled for yet.
fn unseen_target(assignors: &[Assignor]) -> (Rig, u64) {
    let mut rig = Rig::new(assignors, None);
    rig.input(Input::Join);
    let (ticket, _) = rig.join();
    rig.answer(ticket, joined(assignors[0].name(), 1, "me", "other"));
    let (ticket, _) = rig.sync();
    rig.answer(ticket, synced(&[("t", 0)]));
    let number = rig.target(&[("t", 0)]);
    (rig, number)
}

#[test]
fn a_cooperative_member_does_not_join_while_a_target_waits_for_the_caller() {
    let (mut rig, number) = unseen_target(COOPERATIVE);
    rig.beat(27);
    rig.beat(27);
    rig.idle();
    rig.reconciled(number, &[("t", 0)]);
    let (_, request) = rig.join();
    assert_eq!(said(&request).owned, [("t".to_owned(), 0)]);
}

#[test]
fn an_eager_member_takes_back_a_target_that_the_caller_has_not_seen() {
    let (mut rig, _) = unseen_target(EAGER);
    rig.beat(27);
    let number = rig.prepare(&[]);
    rig.reconciled(number, &[]);
    rig.join();
}

#[test]
fn a_new_subscription_leads_to_one_new_round() {
    let mut rig = Rig::stable(EAGER, &[("t", 0)]);
    rig.subscribe(&["t", "u"]);
    let number = rig.prepare(&[]);
    rig.reconciled(number, &[]);
    let (ticket, request) = rig.join();
    assert_eq!(said(&request).topics, ["t", "u"]);
    rig.answer(ticket, joined("range", 2, "me", "other"));
    rig.give(&[("u", 0)]);
    rig.idle();
}

#[test]
fn a_cooperative_member_gives_up_unsubscribed_topics_first() {
    let mut rig = Rig::stable(COOPERATIVE, &[("t", 0)]);
    rig.subscribe(&["u"]);
    let number = rig.prepare(&[]);
    rig.reconciled(number, &[]);
    let (_, request) = rig.join();
    assert!(said(&request).owned.is_empty());
}

#[test]
fn a_subscription_that_changes_during_a_join_leads_to_another() {
    let mut rig = Rig::new(EAGER, None);
    rig.input(Input::Join);
    let (ticket, _) = rig.join();
    rig.subscribe(&["u"]);
    rig.idle();
    rig.answer(ticket, joined("range", 1, "me", "other"));
    let (ticket, _) = rig.sync();
    rig.answer(ticket, synced(&[("t", 0)]));
    // What was given is no longer wanted.
    let number = rig.target(&[]);
    let prepare = rig.prepare(&[]);
    assert!(prepare > number);
    rig.reconciled(prepare, &[]);
    let (_, request) = rig.join();
    assert_eq!(said(&request).topics, ["u"]);
}

#[test]
fn a_rebalance_during_the_sync_is_joined_after_a_back_off() {
    let mut rig = Rig::new(EAGER, None);
    rig.input(Input::Join);
    let (ticket, _) = rig.join();
    rig.answer(ticket, joined("range", 1, "me", "other"));
    let (ticket, _) = rig.sync();
    rig.answer(ticket, sync_error(27));
    rig.idle();
    rig.wait();
    let (_, request) = rig.join();
    assert_eq!(request.member_id.as_str(), "me");
}

#[test]
fn answers_nobody_waits_for_change_nothing() {
    let mut rig = Rig::stable(EAGER, &[("t", 0)]);
    for ticket in [0, 1, 2, 77] {
        rig.answer(ticket, joined("range", 9, "somebody", "somebody"));
        rig.answer(ticket, sync_error(25));
        rig.answer(ticket, beaten(25));
    }
    rig.idle();
    assert_eq!(rig.member.identity().unwrap().generation, 1);
}
