//! Leaving, parking, and being silent too long.

use super::*;

const LEAVE: Input<'static> = Input::Leave { goodbye: Goodbye::Leave };
const SILENT: Input<'static> = Input::Leave { goodbye: Goodbye::PollTimeout };

#[test]
fn a_dynamic_member_leaves_and_a_static_one_parks_whatever_the_answer() {
    for (instance, epoch) in [(None, -1), (Some("instance"), -2)] {
        for answer in [alive(epoch), refused(ErrorCode::UNKNOWN_MEMBER_ID)] {
            let mut rig = Rig::stable_as(instance, 3, &[0]);
            rig.input(LEAVE);
            let (ticket, request) = rig.beat();
            assert_eq!((request.member_epoch, request.instance_id.as_deref()), (epoch, instance));
            assert!(request.subscribed_topic_names.is_none() && request.topic_partitions.is_none());
            rig.answer(ticket, answer);
            assert!(matches!(rig.next(), Output::Left));
            assert_eq!(rig.member.next_deadline(), None);
        }
    }
}

#[test]
fn a_lost_goodbye_is_said_once_more_and_no_oftener() {
    let mut rig = Rig::stable(3, &[0]);
    rig.input(LEAVE);
    let (ticket, _) = rig.beat();
    rig.lose(ticket);
    rig.wait();
    let (ticket, request) = rig.beat();
    assert_eq!(request.member_epoch, -1);
    rig.lose(ticket);
    assert!(matches!(rig.next(), Output::Left));
    rig.idle();
}

#[test]
fn a_goodbye_waits_for_the_heartbeat_in_flight() {
    let mut rig = Rig::stable(3, &[0]);
    rig.wait();
    let (ticket, _) = rig.beat();
    rig.input(LEAVE);
    rig.idle();
    rig.answer(ticket, alive(3));
    assert_eq!(rig.beat().1.member_epoch, -1);
}

#[test]
fn who_never_joined_has_nobody_to_say_goodbye_to_but_who_is_on_the_way_in_has() {
    let mut rig = Rig::new(None);
    rig.input(LEAVE);
    assert!(matches!(rig.next(), Output::Left));
    rig.idle();

    let mut rig = Rig::new(None);
    rig.input(Input::Join);
    let (ticket, _) = rig.beat();
    rig.input(LEAVE);
    rig.answer(ticket, assigned(1, &[("t", &[0])]));
    assert_eq!(rig.beat().1.member_epoch, -1);
}

#[test]
fn a_lost_join_is_followed_by_a_goodbye_as_well() {
    let mut rig = Rig::new(None);
    rig.input(Input::Join);
    let (ticket, _) = rig.beat();
    // The broker may have let it in all the same.
    rig.lose(ticket);
    rig.input(LEAVE);
    assert_eq!(rig.beat().1.member_epoch, -1);
}

#[test]
fn silence_says_goodbye_and_a_later_join_comes_after_it() {
    for (instance, epoch) in [(None, -1), (Some("instance"), -2)] {
        for answered in [true, false] {
            let mut rig = Rig::stable_as(instance, 3, &[0]);
            rig.input(SILENT);
            let (goodbye, request) = rig.beat();
            assert_eq!(request.member_epoch, epoch);
            assert_eq!(rig.epoch(), None);
            rig.input(Input::LostDone);
            rig.input(Input::Join);
            rig.idle();
            if answered {
                rig.answer(goodbye, alive(epoch));
            } else {
                rig.lose(goodbye);
            }
            let (ticket, request) = rig.beat();
            assert_eq!(request.member_epoch, 0, "a goodbye must not end the new life");
            rig.answer(ticket, assigned(5, &[("t", &[0])]));
            rig.target(&[0]);
        }
    }
}
