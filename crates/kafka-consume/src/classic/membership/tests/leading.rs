//! The leader's work: assign once the metadata knows everything, and watch what was assigned.

use super::*;

/// Joined and chosen to lead `me`, who wants t, and `you`, who wants t and u.
fn chosen() -> Rig {
    let mut rig = Rig::new(EAGER, None);
    rig.input(Input::Join);
    let (ticket, _) = rig.join();
    let answer = leading("range", 1, &[("me", wants(&["t"])), ("you", wants(&["t", "u"]))]);
    rig.answer(ticket, Answer::Join(answer));
    rig
}

fn given(request: &SyncGroupRequest) -> Vec<(String, Partitions)> {
    let one = |given: &kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment| {
        let partitions = Assignment::decode(&given.assignment).unwrap().partitions;
        let partitions = partitions.iter().map(|(topic, index)| (TopicName::new(topic), *index)).collect();
        (given.member_id.to_string(), partitions)
    };
    request.assignments.iter().map(one).collect()
}

/// A leader that has led, knowing t with 2 and u with 1 partition.
fn led() -> Rig {
    let mut rig = chosen();
    rig.outputs.clear();
    rig.metadata(&[("t", 2), ("u", 1)]);
    rig.give(&[("t", 0)]);
    rig
}

#[test]
fn a_leader_waits_for_the_topics_of_all_members() {
    let mut rig = chosen();
    assert!(matches!(rig.next(), Output::Interest(topics) if topics == names(&["t", "u"])));
    assert!(matches!(rig.next(), Output::NeedIds));
    rig.idle();
    rig.metadata(&[("t", 2)]);
    rig.idle();
    rig.metadata(&[("t", 2), ("u", 1)]);
    let (_, request) = rig.sync();
    let expected = [("me".to_owned(), set(&[("t", 0)])), ("you".to_owned(), set(&[("t", 1), ("u", 0)]))];
    assert_eq!(given(&request), expected);
}

#[test]
fn a_topic_that_stays_unknown_does_not_hold_the_group_for_ever() {
    let mut rig = chosen();
    rig.outputs.clear();
    rig.metadata(&[("t", 2)]);
    let start = rig.now;
    let request = loop {
        rig.wait();
        match rig.next() {
            Output::Send { request: Request::Sync(request), .. } => break request,
            Output::Send { ticket, request: Request::Heartbeat(_), .. } => rig.answer(ticket, beaten(0)),
            other => panic!("{other:?}"),
        }
    };
    assert!(rig.now - start <= Duration::from_secs(10));
    assert_eq!(given(&request).len(), 2);
}

#[test]
fn a_topic_being_created_is_waited_for() {
    let mut rig = chosen();
    rig.outputs.clear();
    let creating = picture(&[("t", 2)]).with_topic(Topic {
        name: TopicName::new("u"),
        id: Uuid::nil(),
        internal: false,
        error: ErrorCode::LEADER_NOT_AVAILABLE,
        partitions: Vec::new(),
    });
    rig.input(Input::Metadata(&creating));
    rig.idle();
}

#[test]
fn new_partitions_of_any_topic_of_the_group_start_a_rebalance() {
    let mut rig = led();
    rig.metadata(&[("t", 2), ("u", 1)]);
    rig.idle();
    rig.metadata(&[("t", 2), ("u", 3)]);
    let number = rig.prepare(&[]);
    rig.reconciled(number, &[]);
    let (_, request) = rig.join();
    assert!(request.reason.is_some());
}

#[test]
fn metadata_that_lacks_a_topic_for_a_moment_starts_none() {
    let mut rig = led();
    rig.metadata(&[("t", 2)]);
    rig.idle();
}

#[test]
fn a_follower_does_not_watch() {
    let mut rig = Rig::stable(EAGER, &[("t", 0)]);
    rig.metadata(&[("t", 2)]);
    rig.metadata(&[("t", 5)]);
    rig.idle();
}

#[test]
fn a_member_that_cannot_be_read_gets_nothing_and_stops_nobody() {
    let mut rig = Rig::new(EAGER, None);
    rig.metadata(&[("t", 2)]);
    rig.input(Input::Join);
    let (ticket, _) = rig.join();
    let answer = leading("range", 1, &[("me", wants(&["t"])), ("you", Bytes::from_static(b"\x00"))]);
    rig.answer(ticket, Answer::Join(answer));
    rig.outputs.retain(|output| !matches!(output, Output::Interest(_)));
    let (_, request) = rig.sync();
    let expected = [("me".to_owned(), set(&[("t", 0), ("t", 1)])), ("you".to_owned(), set(&[]))];
    assert_eq!(given(&request), expected);
}

#[test]
fn metadata_that_changes_while_the_assignment_is_on_its_way_is_noticed_with_it() {
    let mut rig = chosen();
    rig.outputs.clear();
    rig.metadata(&[("t", 2), ("u", 1)]);
    let (ticket, _) = rig.sync();
    rig.metadata(&[("t", 2), ("u", 3)]);
    rig.idle();
    rig.answer(ticket, synced(&[("t", 0)]));
    rig.target(&[("t", 0)]);
    let number = rig.prepare(&[]);
    rig.reconciled(number, &[]);
    rig.join();
}

#[test]
fn a_topic_that_may_not_be_seen_is_told_once_and_again_while_it_lasts() {
    let mut rig = led();
    rig.outputs.clear();
    let denied = picture(&[("u", 1)]).with_topic(Topic {
        name: TopicName::new("t"),
        id: Uuid::nil(),
        internal: false,
        error: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        partitions: Vec::new(),
    });
    let told = |rig: &mut Rig| {
        rig.input(Input::Metadata(&denied));
        let faults = rig.outputs.drain(..).filter_map(|output| match output {
            Output::Fault(error) => Some(error),
            _ => None,
        });
        faults.map(|error| (error.kind(), error.topic().map(str::to_owned))).collect::<Vec<_>>()
    };
    let once = vec![(kafka_meta::ErrorKind::Authorization, Some("t".to_owned()))];
    assert_eq!(told(&mut rig), once);
    assert_eq!(told(&mut rig), []);
    rig.now += std::time::Duration::from_secs(61);
    assert_eq!(told(&mut rig), once);
}
