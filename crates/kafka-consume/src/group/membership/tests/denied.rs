//! Topics that may not be seen: named, left out, and taken in again.

use super::*;

fn picture(topics: &[(&str, ErrorCode)]) -> Snapshot {
    let topic = |(name, error): &(&str, ErrorCode)| Topic {
        name: TopicName::new(name),
        id: if error.is_none() { id(name) } else { Uuid::nil() },
        internal: false,
        error: *error,
        partitions: Vec::new(),
    };
    topics.iter().map(topic).fold(Snapshot::default(), Snapshot::with_topic)
}

fn names(request: &ConsumerGroupHeartbeatRequest) -> Vec<&str> {
    request.subscribed_topic_names.as_ref().unwrap().iter().map(|name| name.as_str()).collect()
}

const DENIED: ErrorCode = ErrorCode::TOPIC_AUTHORIZATION_FAILED;

#[test]
fn a_denied_topic_is_named_and_costs_the_others_nothing() {
    let mut rig = Rig::new(None);
    rig.subscribe(&["t", "u"], None);
    rig.input(Input::Metadata(&picture(&[("t", ErrorCode::NONE), ("u", DENIED)])));
    let fault = rig.fault();
    assert_eq!((fault.kind(), fault.topic()), (ErrorKind::Authorization, Some("u")));
    rig.input(Input::Join);
    let (ticket, request) = rig.beat();
    assert_eq!(names(&request), ["t", "u"], "nothing is given up before the coordinator has refused");
    rig.answer(ticket, refused(DENIED));
    rig.idle();
    let (ticket, request) = rig.full_beat_after_back_off();
    assert_eq!((request.member_epoch, names(&request)), (0, vec!["t"]));
    rig.answer(ticket, assigned(3, &[("t", &[0])]));
    let number = rig.target(&[0]);
    rig.reconciled(number, &[0]);
    let (ticket, _) = rig.beat();
    rig.answer(ticket, alive(3));

    rig.input(Input::Metadata(&picture(&[("t", ErrorCode::NONE), ("u", ErrorCode::NONE)])));
    let (_, request) = rig.beat();
    assert_eq!(
        (request.member_epoch, names(&request)),
        (3, vec!["t", "u"]),
        "asked for again once it is seen"
    );
}

#[test]
fn metadata_that_says_denied_is_no_reason_to_give_anything_up() {
    let mut rig = Rig::stable(3, &[0]);
    rig.input(Input::Metadata(&picture(&[("t", DENIED)])));
    assert_eq!(rig.fault().topic(), Some("t"));
    rig.idle();
    rig.beat_and_answer(alive(3));
    rig.idle();
}

#[test]
fn a_refusal_that_metadata_does_not_explain_is_asked_about_and_told_in_the_end() {
    let mut rig = Rig::new(None);
    rig.input(Input::Join);
    for _ in 0..4 {
        let (ticket, _) = rig.beat();
        rig.answer(ticket, refused(DENIED));
        assert!(matches!(rig.next(), Output::NeedIds));
        rig.idle();
        rig.wait();
    }
    let (ticket, _) = rig.beat();
    rig.answer(ticket, refused(DENIED));
    assert!(matches!(rig.next(), Output::NeedIds));
    let fault = rig.fault();
    assert_eq!((fault.kind(), fault.group()), (ErrorKind::Authorization, Some("group")));
    rig.idle();
}
