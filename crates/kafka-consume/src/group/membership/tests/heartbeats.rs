//! When a heartbeat goes out, and what it says.

use super::*;

#[test]
fn a_join_says_everything_at_once_and_owns_nothing() {
    let mut rig = Rig::new(Some("instance"));
    rig.idle();
    rig.input(Input::Join);
    let (_, request) = rig.beat();
    assert_full(&request);
    assert_eq!((request.member_epoch, told(&request)), (0, Some(Vec::new())));
    assert_eq!(request.instance_id.as_deref(), Some("instance"));
    assert_eq!(request.subscribed_topic_regex, None);
    // One in flight, whatever is asked meanwhile.
    rig.input(Input::Join);
    rig.subscribe(&["t", "u"], None);
    rig.idle();
}

#[test]
fn heartbeats_go_on_at_the_brokers_interval_and_say_nothing_new() {
    let mut rig = Rig::stable(3, &[0, 1]);
    for _ in 0..3 {
        assert_eq!(rig.wait(), INTERVAL);
        let (ticket, request) = rig.beat();
        assert_eq!((request.member_epoch, request.rebalance_timeout_ms), (3, -1));
        assert!(request.subscribed_topic_names.is_none() && request.topic_partitions.is_none());
        assert!(request.subscribed_topic_regex.is_none() && request.rack_id.is_none());
        rig.answer(ticket, alive(3));
        rig.idle();
    }
    rig.wait();
    let (ticket, _) = rig.beat();
    rig.answer(ticket, alive(3).with_heartbeat_interval_ms(1_500));
    assert_eq!(rig.wait(), Duration::from_millis(1_500));
}

#[test]
fn heartbeats_go_on_while_a_target_is_being_reconciled_and_acknowledge_it_only_then() {
    let mut rig = Rig::stable(3, &[0, 1]);
    rig.beat_and_answer(assigned(3, &[("t", &[0])]));
    let number = rig.target(&[0]);
    assert_eq!(rig.wait(), INTERVAL);
    let (ticket, request) = rig.beat();
    assert_eq!(told(&request), None);
    rig.answer(ticket, alive(3));
    rig.reconciled(number, &[0]);
    assert_eq!(told(&rig.beat().1), Some(vec![0]), "at once");
}

#[test]
fn a_new_subscription_is_told_at_once_and_once() {
    let mut rig = Rig::stable(3, &[0]);
    rig.subscribe(&["t", "u"], None);
    let (ticket, request) = rig.beat();
    assert_eq!(request.subscribed_topic_names.map(|names| names.len()), Some(2));
    assert_eq!(request.topic_partitions, None);
    rig.answer(ticket, alive(3));
    rig.wait();
    let (ticket, request) = rig.beat();
    assert_eq!(request.subscribed_topic_names, None);
    rig.answer(ticket, alive(3));
    rig.subscribe(&["u", "t"], None);
    rig.idle();
}

#[test]
fn a_pattern_is_told_and_taken_back_by_an_empty_one() {
    let mut rig = Rig::new(None);
    rig.subscribe(&[], Some("t.*"));
    rig.input(Input::Join);
    let (ticket, request) = rig.beat();
    assert_eq!(request.subscribed_topic_regex.as_deref(), Some("t.*"));
    assert_eq!(request.subscribed_topic_names.map(|names| names.len()), Some(0));
    rig.answer(ticket, alive(1));
    rig.subscribe(&["t"], None);
    let (_, request) = rig.beat();
    assert_eq!(request.subscribed_topic_regex.as_deref(), Some(""));
}

#[test]
fn after_a_lost_answer_everything_is_said_again_the_acknowledgement_too() {
    let mut rig = Rig::stable(3, &[0, 1]);
    rig.beat_and_answer(assigned(3, &[("t", &[1])]));
    let number = rig.target(&[1]);
    rig.reconciled(number, &[1]);
    let (ticket, _) = rig.beat();
    rig.lose(ticket);
    let (ticket, request) = rig.full_beat_after_back_off();
    assert_eq!(told(&request), Some(vec![1]));
    rig.answer(ticket, alive(3));
    assert_eq!(rig.wait(), INTERVAL);
    assert_eq!(told(&rig.beat().1), None);
}

#[test]
fn back_offs_grow_while_nobody_answers_up_to_a_limit() {
    let mut rig = Rig::stable(3, &[0]);
    rig.wait();
    let mut waits = Vec::new();
    for _ in 0..8 {
        let (ticket, _) = rig.beat();
        rig.lose(ticket);
        waits.push(rig.wait());
    }
    assert!(waits.is_sorted() && waits[0] < waits[3], "{waits:?}");
    assert!(waits[7] <= Duration::from_secs(2), "{waits:?}");
}
