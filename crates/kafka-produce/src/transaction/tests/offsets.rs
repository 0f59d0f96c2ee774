//! Offsets in the transaction.

use kafka_meta::{ErrorKind, GroupMetadata};

use super::{Answer, Ask, Positions, Rig, SECOND, State, member, positions};

fn send(rig: &mut Rig, offsets: &[(&str, i32, i64)]) -> u64 {
    let deadline = rig.deadline();
    rig.core.handle_offsets(deadline, positions(offsets), &member()).unwrap().unwrap()
}

#[test]
fn version_1_adds_the_group_once_and_version_2_not_at_all() {
    for v2 in [true, false] {
        let mut rig = Rig::open(v2);
        for round in 0..2 {
            let call = send(&mut rig, &[("in", 0, 5 + round)]);
            if !v2 && round == 0 {
                let plan = rig.asked();
                assert!(matches!(&plan.ask, Ask::AddOffsets { group, .. } if group == "group"));
                rig.code(&plan, 51);
                let plan = rig.asked_later();
                rig.code(&plan, 0);
            }
            let plan = rig.asked();
            let Ask::CommitOffsets { group, offsets, .. } = &plan.ask else { panic!("{plan:?}") };
            assert_eq!((group.member_id.as_str(), group.generation_id), ("me", 3));
            assert_eq!(offsets.len(), 1);
            rig.partitions(&plan, &[("in", 0, 0)]);
            rig.core.outcome_of_offsets(call).unwrap().unwrap();
        }
    }
}

#[test]
fn only_what_was_not_stored_is_sent_again() {
    let mut rig = Rig::open(true);
    let call = send(&mut rig, &[("in", 0, 5), ("in", 1, 6), ("in", 2, 7)]);
    let plan = rig.asked();
    rig.partitions(&plan, &[("in", 0, 0), ("in", 1, 51), ("in", 2, 3)]);
    let plan = rig.asked_later();
    assert!(matches!(&plan.ask, Ask::CommitOffsets { offsets, .. } if offsets.len() == 2));
    rig.lose(&plan);
    let plan = rig.asked_later();
    rig.partitions(&plan, &[("in", 1, 0), ("in", 2, 0)]);
    rig.core.outcome_of_offsets(call).unwrap().unwrap();
}

#[test]
fn a_stale_member_is_fenced_and_the_transaction_can_only_be_aborted() {
    for code in [22, 25, 82, 110, 113] {
        let mut rig = Rig::open(true);
        let call = send(&mut rig, &[("in", 3, 5)]);
        let plan = rig.asked();
        rig.partitions(&plan, &[("in", 3, code)]);
        let error = rig.core.outcome_of_offsets(call).unwrap().unwrap_err();
        assert!(error.needs_abort(), "{error}");
        assert_eq!((error.kind(), error.partition()), (ErrorKind::Fenced, Some(3)));
        assert!(rig.commit().unwrap_err().needs_abort());
        rig.core.handle_abort(rig.deadline()).unwrap();
        let plan = rig.end(false);
        rig.answer(&plan, Answer::Ended(Some(SECOND)));
        assert!(rig.next().is_none());
        assert_eq!(rig.core.state(), State::Ready);
    }
}

#[test]
fn an_epoch_the_group_does_not_know_is_found_out_by_the_abort() {
    let mut rig = Rig::open(true);
    let call = send(&mut rig, &[("in", 0, 5)]);
    let plan = rig.asked();
    rig.partitions(&plan, &[("in", 0, 47)]);
    assert!(rig.core.outcome_of_offsets(call).unwrap().unwrap_err().needs_abort());
    let number = rig.core.handle_abort(rig.deadline()).unwrap().unwrap();
    let plan = rig.end(false);
    rig.code(&plan, 90);
    assert!(rig.core.outcome_of_abort(number, rig.deadline()).unwrap().unwrap_err().is_fatal());
}

#[test]
fn a_topic_that_never_appears_fails_when_time_is_up() {
    let mut rig = Rig::open(true);
    let call = send(&mut rig, &[("gone", 0, 5)]);
    let plan = rig.asked();
    rig.partitions(&plan, &[("gone", 0, 3)]);
    assert!(rig.core.outcome_of_offsets(call).is_none());
    let plan = rig.asked_later();
    rig.wait(60_000);
    rig.partitions(&plan, &[("gone", 0, 3)]);
    let error = rig.core.outcome_of_offsets(call).unwrap().unwrap_err();
    assert!(error.needs_abort());
    assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some("gone")));
}

#[test]
fn what_cannot_be_right_is_refused_unsent() {
    let mut rig = Rig::ready(true);
    let deadline = rig.deadline();
    let early = rig.core.handle_offsets(deadline, positions(&[("in", 0, 1)]), &member());
    assert_eq!(early.unwrap_err().kind(), ErrorKind::InvalidRequest);
    rig.begin();
    let empty = rig.core.handle_offsets(deadline, Positions::new(), &member());
    assert!(empty.unwrap().is_none(), "nothing to do");
    let negative = rig.core.handle_offsets(deadline, positions(&[("in", 2, -1)]), &member()).unwrap_err();
    assert_eq!((negative.kind(), negative.partition()), (ErrorKind::InvalidRequest, Some(2)));
    let nobody = GroupMetadata::member(String::new(), -1, String::new(), None);
    let nobody = rig.core.handle_offsets(deadline, positions(&[("in", 0, 1)]), &nobody).unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::InvalidRequest);
    assert!(rig.next().is_none());
    let number = rig.commit().unwrap();
    assert!(rig.next().is_none(), "none of it made the transaction more than empty");
    rig.core.outcome_of_commit(number).unwrap().unwrap();
}

#[test]
fn a_commit_waits_for_offsets_whose_caller_has_gone() {
    let mut rig = Rig::open(true);
    let call = send(&mut rig, &[("in", 0, 5)]);
    rig.core.forget_offsets(call);
    let plan = rig.asked();
    let number = rig.commit().unwrap();
    assert!(rig.next().is_none(), "not before they are stored");
    rig.partitions(&plan, &[("in", 0, 16)]);
    let plan = rig.asked_later();
    rig.partitions(&plan, &[("in", 0, 0)]);
    assert!(rig.core.outcome_of_offsets(call).is_none());
    let plan = rig.end(true);
    rig.answer(&plan, Answer::Ended(Some(SECOND)));
    rig.core.outcome_of_commit(number).unwrap().unwrap();
}

#[test]
fn an_abort_ends_the_offsets_that_wait_and_waits_for_those_in_flight() {
    let mut rig = Rig::open(true);
    let flying = send(&mut rig, &[("in", 0, 5)]);
    let plan = rig.asked();
    let waiting = send(&mut rig, &[("in", 0, 6)]);
    rig.core.handle_abort(rig.deadline()).unwrap();
    for call in [flying, waiting] {
        assert!(rig.core.outcome_of_offsets(call).unwrap().unwrap_err().needs_abort());
    }
    assert!(rig.next().is_none(), "they could arrive after the end");
    rig.partitions(&plan, &[("in", 0, 0)]);
    rig.end(false);
}
