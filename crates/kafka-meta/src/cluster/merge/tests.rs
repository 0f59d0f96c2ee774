//! The picture never goes back.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{Answer, Broker, Merged, Partition, Picture, Scope, Topic, Wanted};
use crate::{ErrorCode, TopicName};

fn broker(id: i32) -> Broker {
    Broker { id, host: format!("host{id}"), port: 9092, rack: None }
}

fn orders() -> TopicName {
    TopicName::new("orders")
}

fn topic(name: &str, id: u128, partitions: &[(i32, i32)]) -> Topic {
    let partitions = (0..).zip(partitions).map(|(index, (leader, epoch))| Partition {
        index,
        leader: Some(*leader),
        leader_epoch: Some(*epoch).filter(|epoch| *epoch >= 0),
        replicas: vec![1, 2, 3],
        isr: vec![1, 2, 3],
        offline: Vec::new(),
        error: ErrorCode::NONE,
    });
    Topic {
        name: TopicName::new(name),
        id: Uuid::from_u128(id),
        internal: false,
        error: ErrorCode::NONE,
        partitions: partitions.collect(),
    }
}

fn answer(topics: Vec<Topic>) -> Answer {
    let brokers: BTreeMap<_, _> = (1..=3).map(|id| (id, broker(id))).collect();
    Answer { cluster_id: Some("c".to_owned()), controller: Some(1), brokers, topics, error: ErrorCode::NONE }
}

fn some(names: &[&str]) -> Scope {
    let mut names: Vec<_> = names.iter().map(|name| TopicName::new(name)).collect();
    names.sort();
    Scope::Some(names)
}

fn merge(picture: &mut Picture, topics: Vec<Topic>) -> Merged {
    let names: Vec<_> = topics.iter().map(|topic| topic.name.as_str()).collect();
    picture.merge(&some(&names), answer(topics), |_| Wanted::Standing)
}

fn leader(picture: &Picture) -> (Option<i32>, Option<i32>) {
    let partition = picture.snapshot().partition(orders(), 0).unwrap();
    (partition.leader, partition.leader_epoch)
}

#[test]
fn a_newer_epoch_is_taken_and_an_older_one_is_not() {
    let mut picture = Picture::default();
    assert!(merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]).changed);
    assert_eq!(leader(&picture), (Some(1), Some(5)));
    merge(&mut picture, vec![topic("orders", 1, &[(2, 6)])]);
    assert_eq!(leader(&picture), (Some(2), Some(6)));
    let merged = merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    assert_eq!(leader(&picture), (Some(2), Some(6)));
    assert!(!merged.changed);
    // The same epoch is news about replicas.
    let mut same = topic("orders", 1, &[(2, 6)]);
    same.partitions[0].isr = vec![2];
    assert!(merge(&mut picture, vec![same]).changed);
    assert_eq!(picture.snapshot().partition(orders(), 0).unwrap().isr, [2]);
}

#[test]
fn an_equal_answer_publishes_nothing() {
    let mut picture = Picture::default();
    merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    let before = picture.snapshot().clone();
    assert_eq!(
        merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]),
        Merged { changed: false, stale: false, denied: false }
    );
    assert!(std::sync::Arc::ptr_eq(&before, picture.snapshot()));
}

#[test]
fn a_refused_topic_is_worth_asking_about_and_not_told_to_who_comes_later() {
    let mut picture = Picture::default();
    let mut hidden = topic("hidden", 0, &[]);
    hidden.error = ErrorCode::TOPIC_AUTHORIZATION_FAILED;
    let merged = merge(&mut picture, vec![topic("orders", 1, &[(1, 5)]), hidden]);
    assert_eq!((merged.stale, merged.denied), (false, true));
    let both = [orders(), TopicName::new("hidden")];
    assert!(picture.forget_denied(&both));
    assert!(picture.snapshot().topic(both[1]).is_none() && picture.snapshot().topic(orders()).is_some());
    assert!(!picture.forget_denied(&both));
}

#[test]
fn another_controller_alone_is_no_news() {
    let mut picture = Picture::default();
    let topics = || vec![topic("orders", 1, &[(1, 5)])];
    merge(&mut picture, topics());
    let generation = picture.snapshot().generation;
    let answer = Answer { controller: Some(3), ..answer(topics()) };
    let merged = picture.merge(&some(&["orders"]), answer, |_| Wanted::Standing);
    assert_eq!((merged.changed, picture.snapshot().generation), (false, generation));
    assert_eq!(picture.snapshot().controller, Some(3));
}

#[test]
fn another_topic_id_is_another_topic_and_its_epochs_start_anew() {
    let mut picture = Picture::default();
    merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    merge(&mut picture, vec![topic("orders", 2, &[(3, 0)])]);
    assert_eq!(leader(&picture), (Some(3), Some(0)));
    assert_eq!(picture.snapshot().topic_by_id(Uuid::from_u128(2)).unwrap().name, orders());
    assert!(picture.snapshot().topic_by_id(Uuid::from_u128(1)).is_none());
}

#[test]
fn a_replaced_id_does_not_come_back_with_a_broker_that_is_behind() {
    let mut picture = Picture::default();
    let id = |picture: &Picture| picture.snapshot().topic(orders()).unwrap().id.as_u128();
    merge(&mut picture, vec![topic("orders", 1, &[(1, 9)])]);
    merge(&mut picture, vec![topic("orders", 2, &[(2, 0)])]);
    for _ in 0..20 {
        assert!(!merge(&mut picture, vec![topic("orders", 1, &[(1, 9)])]).changed);
        assert_eq!((id(&picture), leader(&picture)), (2, (Some(2), Some(0))));
        merge(&mut picture, vec![topic("orders", 2, &[(2, 0)])]);
    }
}

#[test]
fn a_replaced_id_is_believed_when_nobody_tells_the_other_any_more() {
    let mut picture = Picture::default();
    let id = |picture: &Picture| picture.snapshot().topic(orders()).unwrap().id.as_u128();
    // The first broker asked was up to date, the second behind: what it told was the old id.
    merge(&mut picture, vec![topic("orders", 2, &[(2, 0)])]);
    merge(&mut picture, vec![topic("orders", 1, &[(1, 9)])]);
    for _ in 0..6 {
        merge(&mut picture, vec![topic("orders", 2, &[(2, 0)])]);
    }
    assert_eq!((id(&picture), leader(&picture)), (2, (Some(2), Some(0))));
}

#[test]
fn a_nil_id_of_an_old_broker_does_not_restart_epochs() {
    let mut picture = Picture::default();
    merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    merge(&mut picture, vec![topic("orders", 0, &[(2, 4)])]);
    assert_eq!(leader(&picture), (Some(1), Some(5)));
    // And the id is still remembered for when a new broker answers again.
    merge(&mut picture, vec![topic("orders", 1, &[(2, 4)])]);
    assert_eq!(leader(&picture), (Some(1), Some(5)));
}

#[test]
fn an_answer_without_epochs_is_believed_and_forgets_what_was_seen() {
    let mut picture = Picture::default();
    merge(&mut picture, vec![topic("orders", 0, &[(1, 5)])]);
    merge(&mut picture, vec![topic("orders", 0, &[(2, -1)])]);
    assert_eq!(leader(&picture), (Some(2), None));
    merge(&mut picture, vec![topic("orders", 0, &[(3, 1)])]);
    assert_eq!(leader(&picture), (Some(3), Some(1)));
}

#[test]
fn a_topic_a_broker_does_not_know_for_a_moment_keeps_its_epochs() {
    let mut picture = Picture::default();
    merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    let mut unknown = topic("orders", 0, &[]);
    unknown.error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let merged = merge(&mut picture, vec![unknown]);
    assert!(merged.stale);
    assert_eq!(picture.snapshot().topic(orders()).unwrap().partitions.len(), 0);
    merge(&mut picture, vec![topic("orders", 1, &[(1, 4)])]);
    assert_eq!(leader(&picture).0, None, "older than what was seen");
    merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    assert_eq!(leader(&picture), (Some(1), Some(5)));
}

#[test]
fn a_topic_missing_from_the_answer_does_not_exist() {
    let mut picture = Picture::default();
    picture.merge(&some(&["orders"]), answer(Vec::new()), |_| Wanted::Lately);
    let topic = picture.snapshot().topic(orders()).unwrap();
    assert_eq!(topic.error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn an_answer_about_some_topics_leaves_the_others_and_one_about_all_replaces() {
    let mut picture = Picture::default();
    merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    merge(&mut picture, vec![topic("refunds", 2, &[(1, 5)])]);
    assert_eq!(picture.snapshot().topics().count(), 2);
    picture.merge(&Scope::All, answer(vec![topic("refunds", 2, &[(1, 5)])]), |_| Wanted::Standing);
    assert_eq!(picture.snapshot().topics().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), ["refunds"]);
    assert!(picture.snapshot().all_topics);
}

#[test]
fn a_topic_nobody_wants_any_more_goes_with_the_next_answer() {
    let mut picture = Picture::default();
    merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    picture.merge(&some(&["refunds"]), answer(vec![topic("refunds", 2, &[(1, 5)])]), |_| Wanted::No);
    assert!(picture.snapshot().topic(orders()).is_none());
}

#[test]
fn a_leader_that_is_no_broker_is_none() {
    let mut picture = Picture::default();
    let merged = merge(&mut picture, vec![topic("orders", 1, &[(9, 5)])]);
    assert_eq!(leader(&picture), (None, Some(5)));
    assert!(merged.stale);
}

#[test]
fn only_topics_of_standing_interest_are_worth_asking_again() {
    let mut picture = Picture::default();
    let merged = picture.merge(&some(&["nope"]), answer(Vec::new()), |_| Wanted::Lately);
    assert!(!merged.stale);
    let merged = picture.merge(&some(&["nope"]), answer(Vec::new()), |_| Wanted::Standing);
    assert!(merged.stale);
}

#[test]
fn a_starting_broker_without_brokers_does_not_empty_the_list() {
    let mut picture = Picture::default();
    merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    picture.merge(&some(&[]), Answer::default(), |_| Wanted::Standing);
    assert_eq!(picture.snapshot().brokers.len(), 3);
    assert_eq!(leader(&picture), (Some(1), Some(5)));
}

#[test]
fn a_leader_hint_is_taken_only_when_newer_and_its_node_can_be_found() {
    let mut picture = Picture::default();
    assert!(!picture.leader_hint(orders(), 0, 2, 9, None), "a topic not in the picture");
    merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    assert!(!picture.leader_hint(orders(), 0, 2, 5, None), "the same epoch");
    assert!(!picture.leader_hint(orders(), 0, 2, 4, None), "an older epoch");
    assert!(!picture.leader_hint(orders(), 0, 9, 6, None), "a node without address");
    assert!(!picture.leader_hint(orders(), 0, 9, 6, Some(broker(8))), "an address of another node");
    assert!(!picture.leader_hint(orders(), 7, 2, 6, None), "a partition not in the picture");
    assert!(!picture.leader_hint(orders(), 0, -1, 6, None));
    assert!(!picture.leader_hint(orders(), 0, 2, -1, None));
    assert_eq!(leader(&picture), (Some(1), Some(5)));

    let before = picture.snapshot().generation;
    assert!(picture.leader_hint(orders(), 0, 2, 6, None));
    assert_eq!(leader(&picture), (Some(2), Some(6)));
    assert_eq!(picture.snapshot().generation, before + 1);
    assert!(picture.leader_hint(orders(), 0, 9, 7, Some(broker(9))));
    assert_eq!(leader(&picture), (Some(9), Some(7)));
    assert_eq!(picture.snapshot().brokers.get(&9), Some(&broker(9)));
    // Metadata that is behind the hint does not undo it.
    merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    assert_eq!(picture.snapshot().partition(orders(), 0).unwrap().leader_epoch, Some(7));
}

#[test]
fn a_newer_epoch_seen_elsewhere_makes_the_leader_unknown_until_metadata_has_caught_up() {
    let mut picture = Picture::default();
    assert!(!picture.epoch_seen(orders(), 0, 9), "nothing to compare with");
    merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    assert!(!picture.epoch_seen(orders(), 0, 5));
    assert!(picture.epoch_seen(orders(), 0, 6));
    assert_eq!(leader(&picture), (None, Some(5)));
    let merged = merge(&mut picture, vec![topic("orders", 1, &[(1, 5)])]);
    assert_eq!(leader(&picture).0, None);
    assert!(merged.stale);
    merge(&mut picture, vec![topic("orders", 1, &[(3, 6)])]);
    assert_eq!(leader(&picture), (Some(3), Some(6)));
}

#[test]
fn a_broker_named_by_a_coordinator_look_up_is_added_but_never_replaced() {
    let mut picture = Picture::default();
    merge(&mut picture, vec![]);
    picture.learn_broker(Broker { host: "elsewhere".to_owned(), ..broker(1) });
    assert_eq!(picture.snapshot().brokers.get(&1), Some(&broker(1)));
    picture.learn_broker(broker(4));
    assert_eq!(picture.snapshot().brokers.get(&4), Some(&broker(4)));
}
