//! A static leader that comes back into the generation it left: what it is given, what it asks, when it rejoins.

use kafka_protocol::messages::DescribeGroupsResponse;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};

use super::*;

/// Back from a restart, and told what members want: itself `last`, as its last life said, and `you` wants t and u.
/// Its own part is t-0.
fn returned(assignors: &[Assignor], last: &[&str], picture: &[(&str, i32)]) -> Rig {
    let mut rig = Rig::new(assignors, Some("static"));
    rig.metadata(picture);
    rig.input(Input::Join);
    let (ticket, _) = rig.join();
    let members = [("me", wants(last)), ("you", wants(&["t", "u"]))];
    let answer = leading(assignors[0].name(), 4, &members).with_skip_assignment(true);
    rig.answer(ticket, Answer::Join(answer));
    rig.outputs.retain(|output| !matches!(output, Output::Interest(_) | Output::NeedIds));
    let (ticket, request) = rig.sync();
    assert!(request.assignments.is_empty());
    rig.answer(ticket, synced(&[("t", 0)]));
    let at = rig.outputs.iter().position(|output| matches!(output, Output::Reconcile { .. })).unwrap();
    let Output::Reconcile { number, .. } = rig.outputs.remove(at).unwrap() else { unreachable!() };
    rig.reconciled(number, &[("t", 0)]);
    rig
}

fn question(rig: &mut Rig) -> u64 {
    match rig.next() {
        Output::Send { ticket, request: Request::Describe(request), .. } => {
            assert_eq!(request.groups[0].as_str(), "group");
            ticket
        }
        other => panic!("no question but {other:?}"),
    }
}

fn described(state: &str, given: &[&[(&str, i32)]]) -> Answer {
    let member = |given: &&[(&str, i32)]| {
        let partitions = given.iter().map(|(topic, index)| ((*topic).to_owned(), *index)).collect();
        let assignment = Assignment { partitions, user_data: None }.encode().unwrap();
        DescribedGroupMember::default().with_member_assignment(assignment)
    };
    let group = DescribedGroup::default()
        .with_group_id(kafka_protocol::messages::GroupId("group".into()))
        .with_group_state(state.to_owned().into())
        .with_members(given.iter().map(member).collect());
    Answer::Describe(DescribeGroupsResponse::default().with_groups(vec![group]))
}

fn refused(code: i16) -> Answer {
    let Answer::Describe(mut answer) = described("", &[]) else { unreachable!() };
    answer.groups[0].error_code = code;
    Answer::Describe(answer)
}

const BOTH: [&[Assignor]; 2] = [EAGER, COOPERATIVE];

#[test]
fn what_is_given_away_in_full_costs_no_rebalance_and_is_watched_from_then_on() {
    let mut rig = returned(EAGER, &["t"], &[("t", 2), ("u", 1)]);
    let ticket = question(&mut rig);
    rig.answer(ticket, described("Stable", &[&[("t", 0)], &[("t", 1), ("u", 0)]]));
    rig.idle();
    rig.beat(0);
    rig.idle();
    rig.metadata(&[("t", 3), ("u", 1)]);
    rig.prepare(&[]);
}

#[test]
fn partitions_that_nobody_was_given_start_a_rebalance() {
    for assignors in BOTH {
        let mut rig = returned(assignors, &["t"], &[("t", 2), ("u", 2)]);
        let ticket = question(&mut rig);
        rig.answer(ticket, described("Stable", &[&[("t", 0)], &[("t", 1), ("u", 0)]]));
        if assignors == EAGER {
            let number = rig.prepare(&[]);
            rig.reconciled(number, &[]);
        }
        let (_, request) = rig.join();
        assert_eq!(request.member_id.as_str(), "me");
        assert!(request.reason.is_some());
    }
}

#[test]
fn partitions_that_are_no_more_start_one_too() {
    let mut rig = returned(COOPERATIVE, &["t"], &[("t", 1), ("u", 1)]);
    let ticket = question(&mut rig);
    rig.answer(ticket, described("Stable", &[&[("t", 0)], &[("t", 1), ("u", 0)]]));
    rig.join();
}

#[test]
fn topics_that_the_metadata_does_not_know_yet_are_waited_for() {
    let mut rig = returned(COOPERATIVE, &["t"], &[("t", 2)]);
    let ticket = question(&mut rig);
    rig.answer(ticket, described("Stable", &[&[("t", 0)], &[("t", 1), ("u", 0)]]));
    rig.idle();
    rig.metadata(&[("t", 2), ("u", 1)]);
    rig.idle();
    rig.metadata(&[("t", 2), ("u", 3)]);
    rig.join();
}

#[test]
fn without_an_answer_it_asks_again_with_a_later_heartbeat() {
    let mut rig = returned(COOPERATIVE, &["t"], &[("t", 2), ("u", 2)]);
    let ticket = question(&mut rig);
    rig.lose(ticket);
    for again in [refused(14), refused(16), described("CompletingRebalance", &[])] {
        rig.idle();
        rig.beat(0);
        let ticket = question(&mut rig);
        rig.answer(ticket, again);
    }
    rig.beat(0);
    let ticket = question(&mut rig);
    rig.answer(ticket, described("Stable", &[&[("t", 0), ("t", 1), ("u", 0), ("u", 1)]]));
    rig.beat(0);
    rig.idle();
}

#[test]
fn a_coordinator_that_will_not_say_is_asked_once() {
    let undecodable = {
        let Answer::Describe(mut answer) = described("Stable", &[&[]]) else { unreachable!() };
        answer.groups[0].members[0].member_assignment = Bytes::from_static(b"\0\0\xff\xff\xff");
        Answer::Describe(answer)
    };
    let nobody = Answer::Describe(DescribeGroupsResponse::default());
    for answer in [refused(30), undecodable, nobody] {
        let mut rig = returned(COOPERATIVE, &["t"], &[("t", 2), ("u", 2)]);
        let ticket = question(&mut rig);
        rig.answer(ticket, answer);
        rig.beat(0);
        rig.idle();
        rig.metadata(&[("t", 2), ("u", 3)]);
        rig.join();
    }
}

#[test]
fn another_subscription_starts_a_rebalance_without_a_question() {
    let mut rig = returned(COOPERATIVE, &["old", "t"], &[("t", 2), ("old", 1), ("u", 1)]);
    let (_, request) = rig.join();
    assert!(request.reason.is_some());
}

#[test]
fn an_answer_that_a_rebalance_overtakes_means_nothing() {
    let mut rig = returned(COOPERATIVE, &["t"], &[("t", 2), ("u", 2)]);
    let ticket = question(&mut rig);
    rig.beat(27);
    let (join, _) = rig.join();
    rig.answer(ticket, described("Stable", &[&[("t", 0)]]));
    rig.answer(join, joined("cooperative-sticky", 5, "me", "you"));
    rig.give(&[("t", 0)]);
    rig.metadata(&[("t", 2), ("u", 9)]);
    rig.beat(0);
    rig.idle();
}
