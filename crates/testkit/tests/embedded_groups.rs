//! Groups of the embedded cluster under its control handle: sessions, timeouts, moves and refusals.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatRequest, JoinGroupRequest,
    SyncGroupRequest,
};
use testkit::embedded::Embedded;

mod behaviours;
use behaviours::raw::{Raw, name, text};

async fn connect(kafka: &Embedded) -> Raw {
    let node = kafka.coordinator("g").unwrap();
    Raw::connect(&kafka.connector(), &format!("node-{node}.embedded"), 9092).await.unwrap()
}

fn cluster() -> Embedded {
    let kafka = Embedded::start(2);
    kafka.create_topic("t", 4);
    kafka.set_group_timing(Duration::from_secs(6), Duration::from_secs(1));
    kafka
}

fn heartbeat(member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    let request = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(text("g").into())
        .with_member_id(text(member))
        .with_member_epoch(epoch);
    if epoch > 0 {
        return request
            .with_rebalance_timeout_ms(-1)
            .with_subscribed_topic_names(None)
            .with_topic_partitions(None);
    }
    request
        .with_rebalance_timeout_ms(4000)
        .with_subscribed_topic_names(Some(vec![name("t")]))
        .with_topic_partitions(Some(Vec::new()))
}

async fn beat(raw: &mut Raw, member: &str, epoch: i32) -> ConsumerGroupHeartbeatResponse {
    raw.call(1, &heartbeat(member, epoch)).await
}

fn ids(kafka: &Embedded) -> Vec<String> {
    kafka.group_members("g").into_iter().map(|member| member.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_silent_member_is_gone_after_its_session() {
    let kafka = cluster();
    let mut raw = connect(&kafka).await;
    let epoch = beat(&mut raw, "a", 0).await.member_epoch;
    assert_eq!(kafka.group_members("g")[0].assigned.len(), 4);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(beat(&mut raw, "a", epoch).await.error_code, 0);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(ids(&kafka), ["a"]);
    assert!(kafka.until(Duration::from_millis(1100), |kafka| ids(kafka).is_empty()).await);
    assert_eq!(beat(&mut raw, "a", epoch).await.error_code, 25);
    assert_eq!(beat(&mut raw, "a", 0).await.error_code, 0);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_give_up_in_time_is_gone() {
    let kafka = cluster();
    let mut raw = connect(&kafka).await;
    let epoch = beat(&mut raw, "a", 0).await.member_epoch;
    beat(&mut raw, "b", 0).await;
    assert_eq!(beat(&mut raw, "a", epoch).await.assignment.unwrap().topic_partitions[0].partitions.len(), 2);
    assert_eq!(kafka.group_members("g")[0].revoking.len(), 2);
    for second in 0..6 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let code = beat(&mut raw, "a", epoch).await.error_code;
        assert_eq!(code, if second < 3 { 0 } else { 25 }, "after {second}");
        let b = kafka.group_members("g").into_iter().find(|member| member.id == "b").unwrap();
        beat(&mut raw, "b", b.epoch).await;
    }
    assert_eq!(kafka.group_members("g")[0].assigned.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_target_may_come_after_an_interval() {
    let kafka = cluster();
    kafka.set_assignment_interval(Duration::from_secs(1));
    let mut raw = connect(&kafka).await;
    let a = beat(&mut raw, "a", 0).await;
    assert_eq!(a.assignment.unwrap().topic_partitions[0].partitions.len(), 4);
    let b = beat(&mut raw, "b", 0).await;
    assert_eq!(b.member_epoch, a.member_epoch, "not computed yet");
    assert!(b.assignment.unwrap().topic_partitions.is_empty());
    assert!(beat(&mut raw, "a", a.member_epoch).await.assignment.is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(beat(&mut raw, "b", b.member_epoch).await.member_epoch > a.member_epoch);
    assert!(beat(&mut raw, "a", a.member_epoch).await.assignment.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_moved_coordinator_keeps_the_members_and_starts_their_sessions_anew() {
    let kafka = cluster();
    let mut raw = connect(&kafka).await;
    let epoch = beat(&mut raw, "a", 0).await.member_epoch;
    let old = kafka.coordinator("g").unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    kafka.move_coordinator("g", 3 - old);
    assert_eq!(beat(&mut raw, "a", epoch).await.error_code, 16);
    let mut raw = connect(&kafka).await;
    kafka.set_coordinator_warming(&[16, 14]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut codes = Vec::new();
    for _ in 0..3 {
        codes.push(beat(&mut raw, "a", epoch).await.error_code);
    }
    assert_eq!(codes, [16, 14, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_protocol_that_is_off_is_listed_and_refused_without_a_word() {
    let kafka = cluster();
    kafka.set_consumer_protocol(false);
    let answer = beat(&mut connect(&kafka).await, "a", 0).await;
    assert_eq!((answer.error_code, answer.error_message), (35, None));
}

fn join(member: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
    JoinGroupRequest::default()
        .with_group_id(text("g").into())
        .with_session_timeout_ms(6000)
        .with_rebalance_timeout_ms(4000)
        .with_member_id(text(member))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

#[tokio::test(start_paused = true)]
async fn a_group_with_members_is_closed_to_the_other_protocol_until_it_is_empty() {
    let kafka = cluster();
    let mut raw = connect(&kafka).await;
    kafka.commit("g", "t", 0, 7);
    beat(&mut raw, "a", 0).await;
    assert_eq!(raw.call(3, &join("")).await.error_code, 23);
    kafka.remove_member("g", "a");
    let joined = raw.call(3, &join("")).await;
    assert_eq!(joined.error_code, 0);
    assert_eq!(beat(&mut raw, "b", 0).await.error_code, 69);
    kafka.remove_member("g", &joined.member_id);
    assert_eq!(beat(&mut raw, "b", 0).await.error_code, 0);
    assert_eq!(kafka.committed("g", "t", 0), Some(7), "offsets stay");
}

#[tokio::test(start_paused = true)]
async fn the_first_generation_may_wait_for_more_members() {
    let kafka = cluster();
    kafka.set_initial_rebalance_delay(Duration::from_secs(3));
    let (mut one, mut two) = (connect(&kafka).await, connect(&kafka).await);
    let (request, asked) = (join(""), tokio::time::Instant::now());
    let (first, second) = tokio::join!(one.call(3, &request), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        two.call(3, &join("")).await
    });
    assert_eq!(asked.elapsed().as_secs(), 3);
    assert_eq!((first.generation_id, second.generation_id), (1, 1));
    assert_eq!(first.members.len() + second.members.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_classic_member_that_falls_silent_makes_the_others_rejoin() {
    let kafka = cluster();
    let (mut one, mut two) = (connect(&kafka).await, connect(&kafka).await);
    let first = one.call(3, &join("")).await;
    let request = join("");
    let (second, _) = tokio::join!(two.call(3, &request), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        one.call(3, &join(&first.member_id)).await
    });
    assert_eq!(second.generation_id, 2);
    // A member that never asks for its assignment would be gone after the rebalance timeout.
    for (raw, id) in [(&mut one, &first.member_id), (&mut two, &second.member_id)] {
        let request = SyncGroupRequest::default().with_group_id(text("g").into()).with_generation_id(2);
        assert_eq!(raw.call(3, &request.with_member_id(id.clone())).await.error_code, 0);
    }
    let alive = HeartbeatRequest::default()
        .with_group_id(text("g").into())
        .with_generation_id(2)
        .with_member_id(second.member_id.clone());
    let mut codes = Vec::new();
    for _ in 0..7 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        codes.push(two.call(3, &alive).await.error_code);
    }
    assert!(codes.contains(&27), "{codes:?}");
}
