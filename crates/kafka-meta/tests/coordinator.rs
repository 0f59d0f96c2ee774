//! Finding coordinators.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kafka_meta::client::CoordinatorKind::{Group, Transaction};
use kafka_meta::{Cluster, ErrorKind};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use support::{MODERN, Reaction, Request, Script, answer, api_versions, basics};

const FIND: i16 = 10;
const ONE: &[(i32, &str, u16)] = &[(1, "one", 9092)];

fn soon(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

/// An answer for the key asked for, in any version.
fn found(request: &Request, node: i32, code: i16) -> Reaction {
    let asked: FindCoordinatorRequest = request.decode();
    let (node, host) = (BrokerId(node), StrBytes::from_static_str("two"));
    if request.version < 4 {
        let response = FindCoordinatorResponse::default()
            .with_error_code(code)
            .with_node_id(node)
            .with_host(host)
            .with_port(9092);
        return answer(request, &response);
    }
    let coordinator = Coordinator::default()
        .with_key(asked.coordinator_keys[0].clone())
        .with_node_id(node)
        .with_host(host)
        .with_port(9092)
        .with_error_code(code);
    answer(request, &FindCoordinatorResponse::default().with_coordinators(vec![coordinator]))
}

async fn with(code: impl Fn(usize) -> i16 + Send + Sync + 'static) -> (Arc<Script>, Cluster) {
    let count = AtomicUsize::new(0);
    let script = Script::new(move |request| match request.key {
        FIND => found(request, 2, code(count.fetch_add(1, Ordering::SeqCst))),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    (script, cluster)
}

#[tokio::test(start_paused = true)]
async fn many_callers_share_one_look_up_and_its_answer_is_kept() {
    let (script, cluster) = with(|_| 0).await;
    let calls = (0..20).map(|_| cluster.coordinator(Group, "g", soon(5)));
    for node in futures::future::join_all(calls).await {
        assert_eq!(node.unwrap(), 2);
    }
    assert_eq!(cluster.coordinator(Group, "g", soon(5)).await.unwrap(), 2);
    assert_eq!(script.requests(FIND).len(), 1);
    // The coordinator can be reached although metadata has not named it.
    assert_eq!(cluster.snapshot().brokers.get(&2).unwrap().host, "two");
    cluster.coordinator(Transaction, "g", soon(5)).await.unwrap();
    let kinds: Vec<_> = script
        .requests(FIND)
        .iter()
        .map(|request| request.decode::<FindCoordinatorRequest>().key_type)
        .collect();
    assert_eq!(kinds, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_a_coordinator_yet_is_asked_again_with_back_off() {
    let (script, cluster) = with(|asked| if asked < 4 { 15 } else { 0 }).await;
    let start = Instant::now();
    assert_eq!(cluster.coordinator(Group, "g", soon(30)).await.unwrap(), 2);
    assert_eq!(script.requests(FIND).len(), 5);
    let took = start.elapsed();
    assert!((1_200..2_000).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn no_coordinator_in_time_is_a_timeout_that_names_the_group() {
    let (script, cluster) = with(|_| 15).await;
    let error = cluster.coordinator(Group, "g", soon(10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("\"g\""), "{error}");
    assert!(script.requests(FIND).len() <= 16, "{}", script.requests(FIND).len());
    // Nobody waits any more: nobody asks any more.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = script.requests(FIND).len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(script.requests(FIND).len(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_an_error_at_once() {
    let (script, cluster) = with(|_| 30).await;
    let error = cluster.coordinator(Group, "g", soon(30)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authorization);
    assert!(error.to_string().contains("GROUP_AUTHORIZATION_FAILED"), "{error}");
    assert_eq!(script.requests(FIND).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_the_coordinator_known_can_be_forgotten() {
    let (script, cluster) = with(|_| 0).await;
    cluster.coordinator(Group, "g", soon(5)).await.unwrap();
    cluster.forget_coordinator(Group, "g", 3);
    cluster.coordinator(Group, "g", soon(5)).await.unwrap();
    assert_eq!(script.requests(FIND).len(), 1);
    cluster.forget_coordinator(Group, "g", 2);
    cluster.coordinator(Group, "g", soon(5)).await.unwrap();
    assert_eq!(script.requests(FIND).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn forgetting_and_asking_in_a_loop_makes_no_storm() {
    let (script, cluster) = with(|_| 0).await;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        let node = cluster.coordinator(Group, "g", soon(5)).await.unwrap();
        cluster.forget_coordinator(Group, "g", node);
    }
    let asked = script.requests(FIND).len();
    assert!((8..=20).contains(&asked), "{asked} in 10 s");
}

#[tokio::test(start_paused = true)]
async fn an_old_broker_is_asked_in_its_own_words() {
    let script = Script::new(|request| match request.key {
        FIND => found(request, 2, 0),
        18 => answer(request, &api_versions(&[(3, 0, 8), (10, 0, 2), (18, 0, 4)])),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    assert_eq!(cluster.coordinator(Transaction, "t", soon(5)).await.unwrap(), 2);
    assert_eq!(script.requests(FIND)[0].version, 2);
}

#[tokio::test(start_paused = true)]
async fn a_look_up_outlives_a_broker_that_hangs_up() {
    let count = AtomicUsize::new(0);
    let script = Script::new(move |request| match request.key {
        FIND if count.fetch_add(1, Ordering::SeqCst) < 2 => Reaction::Close,
        FIND => found(request, 2, 0),
        18 => answer(request, &api_versions(MODERN)),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    assert_eq!(cluster.coordinator(Group, "g", soon(30)).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_broker_does_not_hold_up_the_look_up() {
    let two: &[(i32, &str, u16)] = &[(1, "one", 9092), (2, "two", 9092)];
    let script = Script::new(move |request| match request.key {
        FIND if request.host == "one" => Reaction::Silence,
        FIND => found(request, 2, 0),
        _ => basics(request, two).unwrap(),
    });
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    for group in ["a", "b", "c", "d"] {
        cluster.coordinator(Group, group, soon(25)).await.unwrap();
    }
}
