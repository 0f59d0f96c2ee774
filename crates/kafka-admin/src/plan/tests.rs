//! Scripts of one plan: answers and failures go in, what is asked and what comes of it is looked at.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_meta::{Error, ErrorCode, ErrorKind, TopicName};

use super::{Failure, Place, Plan, Refusal, Route, Settled, Subject, whole};

fn topic(name: &str) -> (Subject, Route) {
    (Subject::Topic(TopicName::new(name)), Route::Controller)
}

fn led(name: &str, partition: i32) -> (Subject, Route) {
    let name = TopicName::new(name);
    (Subject::Partition(name, partition), Route::Leader(name, partition))
}

fn group(name: &str) -> (Subject, Route) {
    (Subject::Group(name.to_owned()), Route::Group(name.to_owned()))
}

fn lost(operation: &'static str) -> Failure {
    Error::new(ErrorKind::Disconnected, operation).into()
}

fn refused<T>(code: ErrorCode) -> Result<T, Refusal> {
    Err(Refusal::new(code, None))
}

fn at(node: i32) -> impl Fn(&Route) -> Place {
    move |_: &Route| Place::Node(node)
}

fn kinds(settled: &[Settled<()>]) -> Vec<Option<ErrorKind>> {
    settled.iter().map(|item| item.result.as_ref().err().map(Error::kind)).collect()
}

#[test]
fn items_are_asked_once_grouped_by_place() {
    let mut plan: Plan<()> = Plan::reading("test", vec![led("a", 0), led("a", 1), led("b", 0)]);
    let now = Instant::now();
    let place = |route: &Route| match route {
        Route::Leader(topic, 0) if topic.as_str() == "a" => Place::Node(1),
        _ => Place::Node(2),
    };
    let asked = plan.poll_output(now, false, place);
    assert_eq!(asked, BTreeMap::from([(Some(1), vec![0]), (Some(2), vec![1, 2])]));
    assert!(!plan.is_waiting());
    assert!(plan.poll_output(now, false, place).is_empty());
    plan.handle_answers(now, &[1, 2], vec![(2, Ok(())), (1, Ok(()))]);
    plan.handle_answers(now, &[0], vec![(0, Ok(()))]);
    assert!(plan.is_done());
    assert_eq!(kinds(&plan.into_settled()), [None, None, None]);
}

#[test]
fn an_item_named_twice_is_refused_the_second_time() {
    let plan: Plan<()> = Plan::reading("test", vec![topic("a"), topic("b"), topic("a")]);
    let settled = plan.into_settled();
    assert_eq!(kinds(&settled)[2], Some(ErrorKind::InvalidRequest));
    assert!(settled[2].result.as_ref().unwrap_err().to_string().contains("named twice"));
}

#[test]
fn an_item_missing_from_the_answer_is_refused() {
    let mut plan: Plan<()> = Plan::reading("test", vec![topic("a"), topic("b")]);
    let now = Instant::now();
    plan.poll_output(now, false, at(1));
    plan.handle_answers(now, &[0, 1], vec![(1, Ok(()))]);
    assert!(plan.is_done());
    let settled = plan.into_settled();
    let error = settled[0].result.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broker(ErrorCode::UNKNOWN_SERVER_ERROR));
    assert_eq!(error.topic(), Some("a"));
}

#[test]
fn an_answer_nobody_waits_for_changes_nothing() {
    let mut plan: Plan<()> = Plan::reading("test", vec![topic("a")]);
    let now = Instant::now();
    plan.handle_answers(now, &[], vec![(0, Ok(())), (9, Ok(()))]);
    assert!(plan.is_waiting());
    plan.poll_output(now, false, at(1));
    plan.handle_answers(now, &[0], vec![(0, Ok(())), (0, refused(ErrorCode::INVALID_CONFIG))]);
    assert_eq!(kinds(&plan.into_settled()), [None]);
}

#[test]
fn a_moved_controller_or_leader_makes_the_picture_stale() {
    for (item, code) in [
        (topic("a"), ErrorCode::NOT_CONTROLLER),
        (led("a", 0), ErrorCode::NOT_LEADER_OR_FOLLOWER),
        (led("a", 0), ErrorCode::FENCED_LEADER_EPOCH),
    ] {
        let mut plan: Plan<()> = Plan::changing("test", vec![item]);
        let now = Instant::now();
        plan.poll_output(now, false, at(1));
        plan.handle_answers(now, &[0], vec![(0, refused(code))]);
        assert!(plan.is_waiting() && plan.is_stale(), "{code}");
        assert_eq!(plan.poll_output(now, true, at(2)), BTreeMap::from([(Some(2), vec![0])]));
    }
}

#[test]
fn a_moved_coordinator_is_forgotten_and_a_loading_one_is_kept() {
    let mut plan: Plan<()> = Plan::reading("test", vec![group("moved"), group("loading")]);
    let now = Instant::now();
    plan.poll_output(now, false, at(3));
    let answers =
        vec![(0, refused(ErrorCode::NOT_COORDINATOR)), (1, refused(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS))];
    plan.handle_answers(now, &[0, 1], answers);
    let forgotten: Vec<_> = plan.take_forgotten().into_iter().collect();
    assert_eq!(forgotten, [("moved".to_owned(), 3)]);
    assert!(plan.take_forgotten().is_empty());
    // Metadata says nothing of coordinators.
    assert!(!plan.is_stale());
    plan.poll_output(now, false, at(3));
    plan.handle_failure(&[0], &lost("x"));
    assert_eq!(plan.take_forgotten().len(), 1);
}

#[test]
fn an_unknown_topic_is_believed_from_the_controller_at_once_and_from_others_after_a_grace() {
    let mut plan: Plan<()> = Plan::changing("test", vec![topic("a"), led("a", 0)]);
    let start = Instant::now();
    plan.poll_output(start, false, at(1));
    let both = |code| vec![(0, refused(code)), (1, refused(code))];
    plan.handle_answers(start, &[0, 1], both(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    assert!(plan.is_waiting());
    for (passed, waits) in [(400, true), (900, true), (1100, false)] {
        let now = start + Duration::from_millis(passed);
        plan.poll_output(now, true, at(1));
        plan.handle_answers(now, &[1], vec![(1, refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))]);
        assert_eq!(plan.is_waiting(), waits, "{passed}");
    }
    assert_eq!(kinds(&plan.into_settled()), [Some(ErrorKind::UnknownTopic), Some(ErrorKind::UnknownTopic)]);
}

#[test]
fn absence_in_an_old_picture_counts_for_nothing() {
    let node = vec![(Subject::Node(9), Route::Node(9))];
    let mut plan: Plan<()> = Plan::reading("test", node);
    let start = Instant::now();
    let absent = |_: &Route| Place::Absent;
    for passed in [0, 5000, 10_000] {
        plan.poll_output(start + Duration::from_millis(passed), false, absent);
        assert!(plan.is_waiting() && plan.is_stale());
    }
    plan.poll_output(start, true, absent);
    plan.poll_output(start + Duration::from_secs(1), true, absent);
    let settled = plan.into_settled();
    let error = settled[0].result.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    assert!(error.to_string().contains("node 9"), "{error}");
    assert!(settled[0].answered);
}

#[test]
fn a_refusal_after_a_lost_answer_says_that_the_first_attempt_may_have_worked() {
    let mut plan: Plan<()> = Plan::changing("create topics", vec![topic("a")]);
    let now = Instant::now();
    plan.poll_output(now, false, at(1));
    plan.handle_failure(&[0], &lost("CreateTopics"));
    plan.poll_output(now, true, at(2));
    let words = Some("Topic 'a' already exists.".to_owned());
    let refusal = Refusal::new(ErrorCode::TOPIC_ALREADY_EXISTS, words);
    plan.handle_answers(now, &[0], vec![(0, Err(refusal))]);
    let settled = plan.into_settled();
    let text = settled[0].result.as_ref().unwrap_err().to_string();
    assert!(text.contains("already exists") && text.contains("earlier attempt"), "{text}");

    // What was never sent cannot have worked.
    let mut plan: Plan<()> = Plan::changing("create topics", vec![topic("a")]);
    plan.poll_output(now, false, at(1));
    plan.handle_failure(&[0], &Failure { sent: false, ..lost("connect") });
    plan.poll_output(now, true, at(2));
    plan.handle_answers(now, &[0], vec![(0, refused(ErrorCode::TOPIC_ALREADY_EXISTS))]);
    let text = plan.into_settled().remove(0).result.unwrap_err().to_string();
    assert!(!text.contains("earlier"), "{text}");

    // A call that only looks has nothing to say about it.
    let mut plan: Plan<()> = Plan::reading("describe topics", vec![topic("a")]);
    plan.poll_output(now, false, at(1));
    plan.handle_failure(&[0], &lost("Metadata"));
    plan.poll_output(now, true, at(2));
    plan.handle_answers(now, &[0], vec![(0, refused(ErrorCode::INVALID_TOPIC_EXCEPTION))]);
    let text = plan.into_settled().remove(0).result.unwrap_err().to_string();
    assert!(!text.contains("earlier"), "{text}");
}

#[test]
fn running_out_of_time_names_the_item_and_the_last_reason() {
    let mut plan: Plan<()> = Plan::changing("delete topics", vec![topic("a"), topic("b")]);
    let now = Instant::now();
    plan.poll_output(now, false, at(1));
    plan.handle_answers(now, &[0], vec![(0, refused(ErrorCode::THROTTLING_QUOTA_EXCEEDED))]);
    let settled = plan.into_settled();
    let (a, b) = (settled[0].result.as_ref().unwrap_err(), settled[1].result.as_ref().unwrap_err());
    assert_eq!((a.kind(), a.topic()), (ErrorKind::Timeout, Some("a")));
    assert!(a.to_string().contains("THROTTLING_QUOTA_EXCEEDED"), "{a}");
    assert!(!a.to_string().contains("not known"), "{a}");
    // The other one was under way.
    assert!(b.to_string().contains("whether it was carried out is not known"), "{b}");
}

#[test]
fn only_silence_about_every_item_fails_the_whole_call() {
    let silent = |kind| Settled::<()> { result: Err(Error::new(kind, "x")), answered: false };
    let told = || Settled::<()> { result: Err(Error::new(ErrorKind::UnknownTopic, "x")), answered: true };
    assert_eq!(
        whole(vec![silent(ErrorKind::Tls), silent(ErrorKind::Tls)]).unwrap_err().kind(),
        ErrorKind::Tls
    );
    assert_eq!(whole(vec![silent(ErrorKind::Tls), told()]).unwrap().len(), 2);
    assert_eq!(whole(vec![told()]).unwrap().len(), 1);
    assert!(whole(Vec::<Settled<()>>::new()).unwrap().is_empty());
}

#[test]
fn what_no_later_attempt_can_cure_ends_an_item_at_once() {
    let mut plan: Plan<()> = Plan::reading("test", vec![group("a"), group("b")]);
    let now = Instant::now();
    let denied = Error::broker(ErrorCode::GROUP_AUTHORIZATION_FAILED, "find the coordinator");
    let place = |route: &Route| match route {
        Route::Group(group) if group == "a" => Place::Never(denied.clone()),
        _ => Place::Node(1),
    };
    plan.poll_output(now, false, place);
    plan.handle_failure(&[1], &Error::new(ErrorKind::UnsupportedApi, "DescribeGroups").into());
    assert!(plan.is_done());
    let settled = plan.into_settled();
    assert_eq!(kinds(&settled), [Some(ErrorKind::Authorization), Some(ErrorKind::UnsupportedApi)]);
    assert_eq!((settled[0].answered, settled[1].answered), (true, false));
    let error = settled[0].result.as_ref().unwrap_err();
    assert_eq!((error.operation(), error.group()), ("test", Some("a")));
}
