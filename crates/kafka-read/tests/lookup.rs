//! Look-ups of offsets and leader epochs against the embedded broker, on a paused clock.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use kafka_meta::client::Via;
use kafka_meta::wire::protocol::messages::{ApiKey, ListOffsetsResponse};
use kafka_meta::{Cluster, ErrorCode, ErrorKind, Result, TopicName};
use kafka_read::Visibility;
use kafka_read::epochs::{AskEpoch, EpochEnd, ask_epochs};
use kafka_read::lookup::{Ask, Found, Target, ask_node, find};
use testkit::embedded::{Embedded, TopicSpec};
use tokio::time::Instant;

const TOPIC: &str = "orders";

struct Setup {
    kafka: Embedded,
    cluster: Cluster,
}

/// Three nodes, a topic of three partitions with a leader on each.
async fn setup() -> Setup {
    setup_of_versions(1, 10).await
}

/// As [`setup`], the nodes knowing only these versions of ListOffsets.
async fn setup_of_versions(lowest: i16, highest: i16) -> Setup {
    let kafka = Embedded::start(3);
    for node in 1..=3 {
        kafka.set_versions(node, ApiKey::ListOffsets, Some((lowest, highest)));
    }
    kafka.create_topic_with(TOPIC, TopicSpec::new(3).with_replicas(3));
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    Setup { kafka, cluster }
}

fn within(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

impl Setup {
    async fn find(
        &self,
        visibility: Visibility,
        targets: &[(i32, Target)],
        seconds: u64,
    ) -> Result<Vec<Option<Found>>> {
        let topic = TopicName::new(TOPIC);
        let list = targets.iter().map(|(partition, target)| (topic, *partition, *target)).collect();
        let found = find(&self.cluster, visibility, list, within(seconds)).await?;
        Ok(targets.iter().map(|(partition, _)| found[&(topic, *partition)]).collect())
    }

    /// The offsets of all three partitions' ends.
    async fn ends(&self) -> Result<Vec<i64>> {
        let targets = [0, 1, 2].map(|partition| (partition, Target::Latest));
        let found = self.find(Visibility::CommittedOnly, &targets, 60).await?;
        Ok(found.into_iter().map(|found| found.unwrap().offset).collect())
    }

    async fn at(&self, visibility: Visibility, target: Target) -> Option<(i64, i64)> {
        let found = self.find(visibility, &[(0, target)], 10).await.unwrap()[0];
        found.map(|found| (found.timestamp, found.offset))
    }

    fn lookups(&self) -> usize {
        self.kafka.requests_of(ApiKey::ListOffsets).len()
    }

    async fn ask(&self, visibility: Visibility, target: Target) -> Result<()> {
        let (leader, _) = self.kafka.leader(TOPIC, 0).unwrap();
        let ask = Ask { topic: TopicName::new(TOPIC), partition: 0, leader_epoch: None, target };
        ask_node(&self.cluster, &Via::control(), leader, visibility, vec![ask], within(5)).await.map(drop)
    }
}

#[tokio::test(start_paused = true)]
async fn timestamps_and_ends_are_found_as_a_broker_keeps_them() {
    let setup = setup().await;
    setup.kafka.append_at(TOPIC, 0, &[1000, 1001, 9000, 9001, 5000, 5001]);
    let all = Visibility::All;
    assert_eq!(setup.at(all, Target::Latest).await, Some((-1, 6)));
    assert_eq!(setup.at(all, Target::Earliest).await, Some((-1, 0)));
    assert_eq!(setup.at(all, Target::MaxTimestamp).await, Some((9001, 3)));
    assert_eq!(setup.at(all, Target::Timestamp(0)).await, Some((1000, 0)));
    assert_eq!(setup.at(all, Target::Timestamp(1002)).await, Some((9000, 2)));
    assert_eq!(setup.at(all, Target::Timestamp(5001)).await, Some((9000, 2)));
    assert_eq!(setup.at(all, Target::Timestamp(9002)).await, None);
    setup.kafka.delete_records(TOPIC, 0, 4);
    assert_eq!(setup.at(all, Target::Earliest).await.unwrap().1, 4);
    let empty = [(1, Target::Latest), (2, Target::Earliest)];
    let found = setup.find(all, &empty, 10).await.unwrap();
    assert_eq!(found.iter().map(|found| found.unwrap().offset).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(setup.find(all, &[(1, Target::MaxTimestamp)], 10).await.unwrap(), [None]);
}

#[tokio::test(start_paused = true)]
async fn committed_only_ends_at_the_last_stable_offset() {
    let setup = setup().await;
    setup.kafka.append_at(TOPIC, 0, &[1000]);
    let mut open = setup.kafka.begin("t");
    open.append(TOPIC, 0, ["a", "b"]);
    let latest = |visibility| setup.at(visibility, Target::Latest);
    assert_eq!(latest(Visibility::CommittedOnly).await.unwrap().1, 1);
    assert_eq!(latest(Visibility::All).await.unwrap().1, 3);
    assert_eq!(setup.at(Visibility::CommittedOnly, Target::Timestamp(1001)).await, None);
    open.commit();
    assert_eq!(latest(Visibility::CommittedOnly).await.unwrap().1, 4);
}

#[tokio::test(start_paused = true)]
async fn every_leader_is_asked_once_and_at_the_same_time() {
    let setup = setup().await;
    assert_eq!(setup.ends().await.unwrap(), [0, 0, 0]);
    let seen = setup.kafka.requests_of(ApiKey::ListOffsets);
    assert_eq!(seen.len(), 3);
    let mut nodes: Vec<_> = seen.iter().map(|seen| seen.node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 2, 3]);
    setup.kafka.fault(ApiKey::ListOffsets).always().delay(Duration::from_secs(2));
    let start = Instant::now();
    setup.ends().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_moved_leader_is_followed() {
    let setup = setup().await;
    setup.kafka.append_at(TOPIC, 0, &[1, 2, 3]);
    setup.ends().await.unwrap();
    let (leader, _) = setup.kafka.leader(TOPIC, 0).unwrap();
    setup.kafka.move_leader(TOPIC, 0, leader % 3 + 1);
    let start = Instant::now();
    assert_eq!(setup.ends().await.unwrap(), [3, 0, 0]);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(setup.lookups() <= 8, "{}", setup.lookups());
}

#[tokio::test(start_paused = true)]
async fn an_election_is_waited_for() {
    let setup = setup().await;
    setup.ends().await.unwrap();
    let (leader, _) = setup.kafka.leader(TOPIC, 0).unwrap();
    setup.kafka.set_leader_unknown(TOPIC, 0);
    let (ends, ()) = tokio::join!(setup.ends(), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        setup.kafka.move_leader(TOPIC, 0, leader);
    });
    assert_eq!(ends.unwrap(), [0, 0, 0]);
    let metadata = setup.kafka.requests_of(ApiKey::Metadata).len();
    assert!(metadata < 40, "{metadata} metadata requests in 5 s");
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_by_the_elected_one() {
    let setup = setup().await;
    setup.ends().await.unwrap();
    let (leader, _) = setup.kafka.leader(TOPIC, 0).unwrap();
    setup.kafka.kill_node(leader);
    let (ends, ()) = tokio::join!(setup.ends(), async {
        tokio::time::sleep(Duration::from_secs(9)).await;
        setup.kafka.fail_over(leader);
    });
    assert_eq!(ends.unwrap(), [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn passing_codes_are_asked_again_with_pauses_and_a_final_one_is_not() {
    for code in [3, 5, 6, 7, 9, 56, 74, 75, 78, -1] {
        let setup = setup().await;
        let fault = setup.kafka.fault(ApiKey::ListOffsets).times(3).error(code);
        let start = Instant::now();
        setup.find(Visibility::All, &[(0, Target::Latest)], 60).await.unwrap();
        assert_eq!((fault.hits(), setup.lookups()), (3, 4), "{code}");
        assert!(start.elapsed() >= Duration::from_millis(300), "{code}: {:?}", start.elapsed());
    }
    let setup = setup().await;
    setup.kafka.fault(ApiKey::ListOffsets).always().error(29);
    let error = setup.find(Visibility::All, &[(0, Target::Latest)], 60).await.unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Authorization, Some(TOPIC)));
    assert_eq!(setup.lookups(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_code_that_never_passes_costs_the_deadline_and_few_requests() {
    let setup = setup().await;
    setup.kafka.fault(ApiKey::ListOffsets).always().error(78);
    let start = Instant::now();
    let error = setup.find(Visibility::All, &[(0, Target::Latest)], 20).await.unwrap_err();
    assert_eq!((error.kind(), error.partition()), (ErrorKind::Timeout, Some(0)));
    assert!(error.to_string().contains("OFFSET_NOT_AVAILABLE"), "{error}");
    assert_eq!(start.elapsed().as_secs(), 20);
    assert!(setup.lookups() < 40, "{}", setup.lookups());
}

#[tokio::test(start_paused = true)]
async fn lost_connections_and_missing_partitions_are_asked_again() {
    let setup = setup().await;
    setup.kafka.append_at(TOPIC, 0, &[1, 2]);
    setup.kafka.fault(ApiKey::ListOffsets).times(2).drop_connection_before();
    setup.kafka.fault(ApiKey::ListOffsets).skip(2).times(1).cut_answer(11);
    setup.kafka.fault(ApiKey::ListOffsets).skip(3).times(1).map(|answer: &mut ListOffsetsResponse| {
        answer.topics.clear();
    });
    let found = setup.find(Visibility::All, &[(0, Target::Latest)], 60).await.unwrap();
    assert_eq!(found[0].unwrap().offset, 2);
    assert_eq!(setup.lookups(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_does_not_exist_is_named_within_seconds() {
    let setup = setup().await;
    let start = Instant::now();
    let missing = vec![(TopicName::new("no-such-topic"), 4, Target::Latest)];
    let error = find(&setup.cluster, Visibility::All, missing, within(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownTopic);
    assert_eq!((error.topic(), error.partition()), (Some("no-such-topic"), Some(4)));
    let error =
        setup.find(Visibility::All, &[(0, Target::Latest), (9, Target::Latest)], 60).await.unwrap_err();
    assert_eq!((error.kind(), error.partition()), (ErrorKind::UnknownTopic, Some(9)));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_topic_created_a_moment_later_is_found() {
    let setup = setup().await;
    let topic = TopicName::new("young");
    let young = find(&setup.cluster, Visibility::All, vec![(topic, 0, Target::Latest)], within(60));
    let (found, ()) = tokio::join!(young, async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        setup.kafka.create_topic("young", 1);
    });
    assert_eq!(found.unwrap()[&(topic, 0)].unwrap().offset, 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_too_old_for_the_question_is_not_asked() {
    let setup = setup_of_versions(1, 6).await;
    setup.ask(Visibility::CommittedOnly, Target::Latest).await.unwrap();
    let error = setup.ask(Visibility::All, Target::MaxTimestamp).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedApi);
    let error = setup.find(Visibility::All, &[(0, Target::MaxTimestamp)], 60).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedApi);
    assert_eq!(setup.lookups(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_version_a_broker_may_limit_us_to_works() {
    for highest in 1..=10 {
        let setup = setup_of_versions(1, highest).await;
        setup.kafka.append_at(TOPIC, 0, &[10, 20]);
        assert_eq!(setup.at(Visibility::All, Target::Timestamp(15)).await, Some((20, 1)), "{highest}");
        assert!(setup.kafka.requests_of(ApiKey::ListOffsets).iter().all(|seen| seen.version == highest));
    }
}

#[tokio::test(start_paused = true)]
async fn asks_of_one_node_are_answered_in_their_order_with_an_error_each() {
    let setup = setup().await;
    let (leader, epoch) = setup.kafka.leader(TOPIC, 1).unwrap();
    let topic = TopicName::new(TOPIC);
    let ask = |partition, leader_epoch| Ask { topic, partition, leader_epoch, target: Target::Latest };
    let other = (0..3).find(|index| setup.kafka.leader(TOPIC, *index).unwrap().0 != leader).unwrap();
    let asks = vec![ask(other, None), ask(1, Some(epoch)), ask(77, None)];
    let via = Via::control();
    let found = ask_node(&setup.cluster, &via, leader, Visibility::All, asks, within(5)).await.unwrap();
    assert_eq!(found[0], (topic, other, Err(ErrorCode::NOT_LEADER_OR_FOLLOWER)));
    assert_eq!(found[1].2.unwrap().unwrap().offset, 0);
    assert_eq!(found[2], (topic, 77, Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)));
    let newer = vec![ask(1, Some(epoch + 1))];
    let found = ask_node(&setup.cluster, &via, leader, Visibility::All, newer, within(5)).await.unwrap();
    assert_eq!(found[0].2, Err(ErrorCode::UNKNOWN_LEADER_EPOCH));
}

#[tokio::test(start_paused = true)]
async fn a_leader_epochs_end_is_told() {
    let setup = setup().await;
    setup.kafka.append_at(TOPIC, 0, &[1, 2, 3]);
    let (leader, first) = setup.kafka.leader(TOPIC, 0).unwrap();
    setup.kafka.move_leader(TOPIC, 0, leader % 3 + 1);
    let (leader, second) = setup.kafka.leader(TOPIC, 0).unwrap();
    setup.kafka.append_at(TOPIC, 0, &[4]);
    let topic = TopicName::new(TOPIC);
    let ask =
        |leader_epoch| AskEpoch { topic, partition: 0, current_leader_epoch: Some(second), leader_epoch };
    let via = Via::control();
    let end = async |epoch| {
        let answer = ask_epochs(&setup.cluster, &via, leader, vec![ask(epoch)], within(5)).await.unwrap();
        answer[0].2.unwrap()
    };
    assert_eq!(end(first).await, EpochEnd { epoch: first, end_offset: 3 });
    assert_eq!(end(second).await, EpochEnd { epoch: second, end_offset: 4 });
    assert_eq!(end(second + 5).await, EpochEnd { epoch: -1, end_offset: -1 });
    setup.kafka.set_versions(leader, ApiKey::OffsetForLeaderEpoch, Some((2, 2)));
    let again = Cluster::connect_with(setup.kafka.config()).await.unwrap();
    let error = ask_epochs(&again, &via, leader, vec![ask(0)], within(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedApi);
}
