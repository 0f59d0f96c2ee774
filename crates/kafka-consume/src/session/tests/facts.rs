//! One test for each fact about sessions noted from real brokers: what was sent, what came back, and what the
//! session makes of it. The broker here is the model, whose answers are those noted.

use std::collections::BTreeMap;

use kafka_meta::TopicName;
use kafka_meta::wire::fetch::FetchAnswer;
use kafka_meta::wire::protocol::messages::FetchResponse;
use uuid::Uuid;

use super::super::{FetchSession, Outcome, Plan, Want};
use super::broker::{Broker, Topic};
use super::want;

const A: Uuid = Uuid::from_u128(0xa);
const B: Uuid = Uuid::from_u128(0xb);

/// By name, and by id.
const VERSIONS: [i16; 2] = [12, 18];

struct Pair {
    broker: Broker,
    session: FetchSession,
    version: i16,
}

/// A broker with two topics of two partitions, ten records each.
fn pair(version: i16) -> Pair {
    let topic = |id| Topic { id, ends: vec![10, 10] };
    let topics = BTreeMap::from([("facts-a".to_owned(), topic(A)), ("facts-b".to_owned(), topic(B))]);
    Pair { broker: Broker { topics, ..Broker::default() }, session: FetchSession::new(), version }
}

fn a(partition: i32, offset: i64) -> Want {
    want("facts-a", A, partition, offset)
}

fn b(partition: i32, offset: i64) -> Want {
    want("facts-b", B, partition, offset)
}

impl Pair {
    /// The plan, and the answer as a broker of this version gives it.
    fn ask(&mut self, wants: &[Want]) -> (Plan, FetchAnswer) {
        let plan = self.session.build(wants);
        let version = self.version.min(*plan.versions().end());
        let response = self.broker.handle(version, &super::request(&plan, version));
        (plan, super::answer(&response, version))
    }

    fn exchange(&mut self, wants: &[Want]) -> Outcome {
        let (plan, answer) = self.ask(wants);
        self.session.handle_answer(&plan, answer)
    }

    /// Topic, partition, error, and whether records came.
    fn used(&mut self, wants: &[Want]) -> Vec<(TopicName, i32, i16, bool)> {
        used(self.exchange(wants))
    }

    fn state(&self) -> (i32, i32) {
        (self.session.id, self.session.epoch)
    }

    fn held(&self) -> Vec<(i32, i64)> {
        self.broker.sessions[&self.session.id]
            .parts
            .iter()
            .map(|part| (part.partition, part.offset))
            .collect()
    }
}

fn used(outcome: Outcome) -> Vec<(TopicName, i32, i16, bool)> {
    match outcome {
        Outcome::Use(fetched) => fetched
            .into_iter()
            .map(|one| (one.topic, one.part.partition, one.part.error.value(), !one.part.records.is_empty()))
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn reopens(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Reopen { .. })
}

fn name(topic: &str) -> TopicName {
    TopicName::new(topic)
}

#[test]
fn opening_lists_every_partition_the_empty_ones_too() {
    for version in VERSIONS {
        let mut pair = pair(version);
        let got = pair.used(&[a(0, 3), b(1, 10)]);
        assert_eq!(got, [(name("facts-a"), 0, 0, true), (name("facts-b"), 1, 0, false)]);
        assert_eq!(pair.state(), (1, 1));
        assert!(pair.session.is_open());
    }
}

#[test]
fn opening_with_no_partitions_gives_an_empty_session() {
    for version in VERSIONS {
        let mut pair = pair(version);
        assert_eq!(pair.used(&[]), []);
        assert_eq!((pair.state(), pair.session.len()), ((1, 1), 0));
        assert_eq!(pair.used(&[a(0, 3)]), [(name("facts-a"), 0, 0, true)]);
    }
}

#[test]
fn an_idle_session_sends_nothing_and_gets_nothing() {
    for version in VERSIONS {
        let mut pair = pair(version);
        let wants = [a(0, 10), b(1, 10)];
        pair.used(&wants);
        for epoch in 1..5 {
            let (plan, answer) = pair.ask(&wants);
            assert_eq!((plan.session_id, plan.epoch), (1, epoch));
            assert!(plan.send.is_empty() && plan.forget.is_empty() && !plan.is_full(), "{plan:?}");
            assert_eq!(used(pair.session.handle_answer(&plan, answer)), []);
        }
    }
}

#[test]
fn only_partitions_with_news_are_listed() {
    let mut pair = pair(18);
    let wants = [a(0, 10), b(0, 10), b(1, 10)];
    pair.used(&wants);
    pair.broker.topics.get_mut("facts-b").unwrap().ends[1] = 12;
    assert_eq!(pair.used(&wants), [(name("facts-b"), 1, 0, true)]);
}

#[test]
fn a_position_that_does_not_move_gets_the_same_records_again() {
    let mut pair = pair(18);
    for _ in 0..3 {
        assert_eq!(pair.used(&[a(0, 3)]), [(name("facts-a"), 0, 0, true)]);
    }
    assert_eq!(pair.held(), [(0, 3)]);
}

#[test]
fn a_repeated_or_future_epoch_is_71_and_the_session_is_opened_anew_under_its_id() {
    for (version, epoch) in [(12, 1), (18, 1), (12, 40), (18, 40)] {
        let mut pair = pair(version);
        let wants = [a(0, 3), a(1, 3)];
        pair.used(&wants);
        pair.used(&wants);
        pair.session.epoch = epoch;
        let (plan, answer) = pair.ask(&wants);
        assert_eq!((answer.error.value(), answer.session_id), (71, 0));
        assert!(reopens(&pair.session.handle_answer(&plan, answer)));
        // It survives at the broker, so that leaving it there would leak it.
        assert_eq!(pair.broker.sessions.len(), 1);
        assert_eq!(pair.state(), (1, 0));
        assert_eq!(pair.used(&wants).len(), 2);
        assert_eq!((pair.state(), pair.broker.sessions.len()), ((2, 1), 1));
    }
}

#[test]
fn an_unknown_id_is_70_and_a_new_session_is_opened() {
    for version in VERSIONS {
        let mut pair = pair(version);
        let wants = [a(0, 3), a(1, 3)];
        pair.used(&wants);
        pair.broker.sessions.clear();
        let (plan, answer) = pair.ask(&wants);
        assert_eq!((answer.error.value(), answer.session_id), (70, 0));
        let outcome = pair.session.handle_answer(&plan, answer);
        assert!(matches!(outcome, Outcome::Reopen { refresh: false, .. }), "{outcome:?}");
        assert_eq!(pair.state(), (0, 0));
        assert_eq!(pair.used(&wants).len(), 2);
        assert_eq!(pair.state(), (2, 1));
    }
}

#[test]
fn a_forgotten_partition_is_gone_and_forgotten_once() {
    for version in VERSIONS {
        let mut pair = pair(version);
        pair.used(&[a(0, 10), a(1, 10), b(0, 10)]);
        let (plan, answer) = pair.ask(&[a(1, 10)]);
        let forgotten: Vec<_> = plan.forget.iter().map(|forget| (forget.topic, forget.partition)).collect();
        assert_eq!(forgotten, [(name("facts-a"), 0), (name("facts-b"), 0)]);
        assert!(plan.send.is_empty());
        assert_eq!(used(pair.session.handle_answer(&plan, answer)), []);
        assert_eq!(pair.held(), [(1, 10)]);
        assert!(pair.session.holds(name("facts-a"), 1) && !pair.session.holds(name("facts-b"), 0));
        let (plan, _) = pair.ask(&[a(1, 10)]);
        assert!(plan.forget.is_empty() && plan.send.is_empty());
    }
}

#[test]
fn a_session_with_nothing_wanted_is_drained_and_then_closed() {
    for (version, closes_empty) in [(12, false), (18, false), (12, true), (18, true)] {
        let mut pair = pair(version);
        pair.broker.closes_empty = closes_empty;
        pair.used(&[a(0, 10), a(1, 10)]);
        let (plan, answer) = pair.ask(&[]);
        assert_eq!(plan.forget.len(), 2);
        assert_eq!(used(pair.session.handle_answer(&plan, answer)), []);
        assert_eq!((pair.session.is_open(), pair.session.len()), (!closes_empty, 0));
        assert_eq!(pair.session.close().is_some(), !closes_empty);
    }
}

#[test]
fn closing_ends_the_session_and_its_id_is_unknown_from_then_on() {
    for version in VERSIONS {
        let mut pair = pair(version);
        pair.used(&[a(0, 3)]);
        let plan = pair.session.close().unwrap();
        assert_eq!((plan.session_id, plan.epoch), (1, -1));
        let response = pair.broker.handle(version, &super::request(&plan, version));
        assert_eq!((response.error_code, response.session_id, response.responses.len()), (0, 0, 0));
        assert!(pair.broker.sessions.is_empty());
        assert!(!pair.session.is_open() && pair.session.close().is_none());
        // What is fetched next opens a new one.
        assert_eq!(pair.used(&[a(0, 3)]).len(), 1);
        assert_eq!(pair.state(), (2, 1));
    }
}

#[test]
fn closing_what_the_broker_no_longer_knows_is_no_error() {
    let mut pair = pair(18);
    pair.used(&[a(0, 3)]);
    pair.broker.sessions.clear();
    let plan = pair.session.close().unwrap();
    let response = pair.broker.handle(18, &super::request(&plan, 18));
    assert_eq!(response.error_code, 0);
}

#[test]
fn a_broken_session_can_still_be_closed() {
    let mut pair = pair(18);
    pair.used(&[a(0, 3)]);
    let plan = pair.session.build(&[a(0, 4)]);
    pair.session.handle_failure(&plan);
    assert!(pair.session.is_open());
    let plan = pair.session.close().unwrap();
    assert_eq!((plan.session_id, plan.epoch), (1, -1));
}

#[test]
fn a_lost_answer_closes_the_old_session_and_opens_a_new_one() {
    for version in VERSIONS {
        let mut pair = pair(version);
        let wants = [a(0, 3), a(1, 3)];
        pair.used(&wants);
        let (plan, _) = pair.ask(&wants);
        pair.session.handle_failure(&plan);
        assert_eq!((pair.state(), pair.session.lost_in_a_row()), ((1, 0), 1));
        assert_eq!(pair.used(&wants).len(), 2);
        assert_eq!((pair.state(), pair.session.lost_in_a_row()), ((2, 1), 0));
        assert_eq!(pair.broker.sessions.keys().copied().collect::<Vec<_>>(), [2]);
    }
}

#[test]
fn the_sentinel_is_never_sent() {
    let mut pair = pair(18);
    pair.broker.cache_full = true;
    let mut epochs = Vec::new();
    for round in 0..4 {
        let (plan, answer) = pair.ask(&[a(0, 3)]);
        epochs.push((plan.session_id, plan.epoch));
        match round {
            1 => pair.session.handle_failure(&plan),
            _ => drop(pair.session.handle_answer(&plan, answer)),
        }
        assert!(pair.session.close().is_none());
    }
    assert_eq!(epochs, [(0, 0); 4]);
}

#[test]
fn a_topic_that_loses_its_id_moves_the_session_to_names_without_being_refused_first() {
    let mut pair = pair(18);
    pair.used(&[a(0, 3), b(0, 3)]);
    let wants = [a(0, 3), want("facts-b", Uuid::nil(), 0, 3)];
    let (plan, answer) = pair.ask(&wants);
    assert_eq!((plan.session_id, plan.epoch, plan.by_id, *plan.versions().end()), (1, 0, false, 12));
    assert_eq!(answer.error.value(), 0);
    assert_eq!(used(pair.session.handle_answer(&plan, answer)).len(), 2);
    assert_eq!((pair.state(), pair.broker.sessions.len()), ((2, 1), 1));
    // And back, when the id is known.
    let (plan, answer) = pair.ask(&[a(0, 3), b(0, 3)]);
    assert_eq!((plan.session_id, plan.epoch, plan.by_id, *plan.versions().end()), (2, 0, true, 18));
    assert_eq!(used(pair.session.handle_answer(&plan, answer)).len(), 2);
}

#[test]
fn one_topic_without_an_id_keeps_the_whole_session_to_names() {
    let mut pair = pair(18);
    let wants = [a(0, 3), want("facts-b", Uuid::nil(), 0, 3)];
    for _ in 0..3 {
        let (plan, answer) = pair.ask(&wants);
        assert!(!plan.by_id);
        assert_eq!(used(pair.session.handle_answer(&plan, answer)).len(), 2);
    }
    assert_eq!(pair.state(), (1, 3));
    // Dropping the nameless one needs no forgetting: the session is opened anew, by id.
    let (plan, answer) = pair.ask(&[a(0, 3)]);
    assert!(plan.by_id && plan.is_full() && plan.session_id == 1);
    assert_eq!(used(pair.session.handle_answer(&plan, answer)).len(), 1);
}

#[test]
fn naming_refused_with_106_reopens_and_asks_for_metadata() {
    let mut pair = pair(18);
    let wants = [a(0, 3)];
    pair.used(&wants);
    pair.broker.sessions.get_mut(&1).unwrap().by_id = false;
    let (plan, answer) = pair.ask(&wants);
    assert_eq!(answer.error.value(), 106);
    // The broker did not use up the epoch, and it does not matter: the session is opened anew.
    assert_eq!(pair.broker.sessions[&1].epoch, 1);
    let outcome = pair.session.handle_answer(&plan, answer);
    assert!(matches!(outcome, Outcome::Reopen { refresh: true, .. }), "{outcome:?}");
    assert_eq!(pair.state(), (1, 0));
    assert_eq!(pair.used(&wants).len(), 1);
    assert_eq!(pair.broker.sessions.keys().copied().collect::<Vec<_>>(), [2]);
}

#[test]
fn the_same_partition_twice_is_asked_for_once() {
    for version in VERSIONS {
        let mut pair = pair(version);
        let wants = [a(0, 3), a(1, 4), a(0, 9)];
        assert_eq!(pair.used(&wants).len(), 2);
        assert_eq!(pair.held(), [(0, 3), (1, 4)]);
        let (plan, answer) = pair.ask(&wants);
        assert!(plan.send.is_empty());
        assert_eq!(used(pair.session.handle_answer(&plan, answer)).len(), 2);
        assert!(pair.broker.complaints.is_empty(), "{:?}", pair.broker.complaints);
    }
}

#[test]
fn an_unknown_partition_is_error_3_in_every_answer_until_it_is_forgotten() {
    for version in VERSIONS {
        let mut pair = pair(version);
        pair.used(&[a(0, 10)]);
        for _ in 0..3 {
            assert_eq!(pair.used(&[a(0, 10), a(7, 0)]), [(name("facts-a"), 7, 3, false)]);
        }
        assert_eq!(pair.used(&[a(0, 10)]), []);
    }
}

#[test]
fn a_full_cache_gives_data_without_a_session() {
    for version in VERSIONS {
        let mut pair = pair(version);
        pair.broker.cache_full = true;
        for _ in 0..3 {
            let (plan, answer) = pair.ask(&[a(0, 3), a(1, 10)]);
            assert_eq!((plan.session_id, plan.epoch, plan.send.len()), (0, 0, 2));
            assert_eq!(used(pair.session.handle_answer(&plan, answer)).len(), 2);
            assert_eq!((pair.session.is_open(), pair.session.len()), (false, 0));
        }
        pair.broker.cache_full = false;
        pair.used(&[a(0, 3), a(1, 10)]);
        assert_eq!(pair.state(), (1, 1));
    }
}

#[test]
fn a_throttled_opening_opens_nothing_and_is_no_loss() {
    for version in VERSIONS {
        let mut pair = pair(version);
        pair.broker.throttle = true;
        for _ in 0..2 {
            let (plan, answer) = pair.ask(&[a(0, 3)]);
            assert!(plan.is_full() && answer.session_id == 0 && !answer.throttle.is_zero());
            assert!(matches!(pair.session.handle_answer(&plan, answer), Outcome::Throttled));
            assert_eq!((pair.state(), pair.session.lost_in_a_row()), ((0, 0), 0));
        }
        pair.broker.throttle = false;
        assert_eq!(pair.used(&[a(0, 3)]).len(), 1);
    }
}

#[test]
fn a_throttled_answer_in_a_session_uses_up_its_epoch_and_its_changes_are_done() {
    for version in VERSIONS {
        let mut pair = pair(version);
        pair.used(&[a(0, 3), a(1, 3)]);
        pair.broker.throttle = true;
        assert!(matches!(pair.exchange(&[a(0, 5), b(0, 1)]), Outcome::Throttled));
        assert_eq!((pair.state(), pair.held()), ((1, 2), vec![(0, 5), (0, 1)]));
        pair.broker.throttle = false;
        let (plan, answer) = pair.ask(&[a(0, 5), b(0, 1)]);
        assert!(!plan.is_full() && plan.send.is_empty() && plan.forget.is_empty());
        assert_eq!(used(pair.session.handle_answer(&plan, answer)).len(), 2);
    }
}

#[test]
fn a_topic_never_known_is_told_per_partition_and_does_not_end_the_session() {
    for (version, code) in [(12, 3), (18, 100)] {
        let mut pair = pair(version);
        let unknown = want("facts-unknown", Uuid::from_u128(9), 0, 0);
        let wants = [a(0, 10), unknown];
        for _ in 0..3 {
            assert!(pair.used(&wants).contains(&(name("facts-unknown"), 0, code, false)));
        }
        assert_eq!(pair.state(), (1, 3));
    }
}

#[test]
fn a_topic_deleted_in_a_session_is_3() {
    for version in VERSIONS {
        let mut pair = pair(version);
        pair.used(&[a(0, 10), b(0, 10)]);
        pair.broker.topics.remove("facts-a");
        assert_eq!(pair.used(&[a(0, 10), b(0, 10)]), [(name("facts-a"), 0, 3, false)]);
        assert_eq!(pair.state(), (1, 2));
    }
}

#[test]
fn a_topic_made_again_in_a_session_is_103_by_id_and_silent_by_name() {
    for (version, got) in [(12, (0, true)), (18, (103, false))] {
        let mut pair = pair(version);
        pair.used(&[a(0, 10)]);
        pair.broker.topics.insert("facts-a".to_owned(), Topic { id: Uuid::from_u128(0xaa), ends: vec![11] });
        assert_eq!(pair.used(&[a(0, 10)]), [(name("facts-a"), 0, got.0, got.1)]);
    }
}

#[test]
fn an_old_id_is_replaced_by_the_new_one_in_one_request() {
    for version in VERSIONS {
        let mut pair = pair(version);
        pair.used(&[a(0, 10), b(0, 10)]);
        let new = Uuid::from_u128(0xaa);
        pair.broker.topics.insert("facts-a".to_owned(), Topic { id: new, ends: vec![11] });
        let wants = [want("facts-a", new, 0, 0), b(0, 10)];
        let (plan, answer) = pair.ask(&wants);
        assert_eq!((plan.send.len(), plan.forget.len()), (1, 1));
        assert_eq!((plan.send[0].topic_id, plan.forget[0].topic_id), (new, A));
        // By name the two are one, and forgetting it would undo adding it.
        let request = super::request(&plan, version);
        assert_eq!(request.forgotten_topics_data.len(), usize::from(version >= 13));
        assert_eq!(used(pair.session.handle_answer(&plan, answer)), [(name("facts-a"), 0, 0, true)]);
        assert_eq!(pair.broker.sessions[&1].parts.len(), 2);
        assert_eq!((pair.state(), pair.session.len()), ((1, 2), 2));
        assert!(pair.broker.complaints.is_empty(), "{:?}", pair.broker.complaints);
    }
}

#[test]
fn the_epoch_after_the_last_is_1() {
    let mut pair = pair(18);
    let wants = [a(0, 10)];
    pair.used(&wants);
    pair.session.epoch = i32::MAX;
    pair.broker.sessions.get_mut(&1).unwrap().epoch = i32::MAX;
    assert_eq!(pair.used(&wants), []);
    assert_eq!(pair.state(), (1, 1));
    assert_eq!(pair.used(&wants), []);
    assert_eq!(pair.state(), (1, 2));
}

#[test]
fn a_full_answer_that_leaves_something_out_is_not_used_and_its_session_is_closed() {
    let mut pair = pair(18);
    let (plan, mut answer) = pair.ask(&[a(0, 3), a(1, 3)]);
    answer.partitions.pop();
    assert!(reopens(&pair.session.handle_answer(&plan, answer)));
    assert_eq!(pair.state(), (1, 0));
    assert_eq!(pair.used(&[a(0, 3), a(1, 3)]).len(), 2);
    assert_eq!(pair.broker.sessions.len(), 1);
}

#[test]
fn wanted_order_is_request_order_and_neighbours_share_a_topic() {
    let mut session = FetchSession::new();
    let plan = session.build(&[b(1, 0), b(0, 0), a(0, 0), b(2, 0)]);
    let request = super::request(&plan, 18);
    let listed: Vec<_> = request
        .topics
        .iter()
        .map(|topic| (topic.topic_id, topic.partitions.iter().map(|one| one.partition).collect::<Vec<_>>()))
        .collect();
    assert_eq!(listed, [(B, vec![1, 0]), (A, vec![0]), (B, vec![2])]);
}

#[test]
fn versions_without_sessions_get_the_whole_list_each_time() {
    let mut pair = pair(6);
    for _ in 0..3 {
        let (plan, answer) = pair.ask(&[a(0, 3), a(1, 3)]);
        assert!(plan.is_full() && plan.send.len() == 2);
        assert_eq!(used(pair.session.handle_answer(&plan, answer)).len(), 2);
        assert!(!pair.session.is_open());
    }
}

#[test]
fn an_answer_to_an_older_plan_changes_nothing() {
    let mut pair = pair(18);
    let wants = [a(0, 3)];
    pair.used(&wants);
    let (old, late) = pair.ask(&wants);
    pair.session.handle_failure(&old);
    let plan = pair.session.build(&wants);
    assert_eq!(used(pair.session.handle_answer(&old, late.clone())), []);
    pair.session.handle_failure(&old);
    assert!(pair.session.outstanding);
    let answer = super::answer(&pair.broker.handle(18, &super::request(&plan, 18)), 18);
    assert_eq!(used(pair.session.handle_answer(&plan, answer.clone())).len(), 1);
    // Nor does its own answer, twice.
    assert_eq!(used(pair.session.handle_answer(&plan, answer)), []);
    assert_eq!(pair.state(), (2, 1));
}

#[test]
fn losses_in_a_row_are_counted_until_an_answer_is_used() {
    let mut pair = pair(18);
    for lost in 1..4 {
        let plan = pair.session.build(&[a(0, 3)]);
        let refused = super::answer(&FetchResponse::default().with_error_code(-1), 18);
        assert!(reopens(&pair.session.handle_answer(&plan, refused)));
        assert_eq!(pair.session.lost_in_a_row(), lost);
    }
    pair.used(&[a(0, 3)]);
    assert_eq!(pair.session.lost_in_a_row(), 0);
}
