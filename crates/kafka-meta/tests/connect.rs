//! From a bootstrap list to a picture of the cluster.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::HashMap;
use std::time::Duration;

use kafka_meta::{Cluster, ErrorKind, TopicName};
use kafka_protocol::messages::MetadataRequest;
use tokio::time::Instant;

use support::{MODERN, Reaction, Script, answer, api_versions, basics, brokers, with_topics};

#[tokio::test(start_paused = true)]
async fn the_first_address_may_be_down() {
    let script = Script::refusing(
        |host, _| host != "down",
        |request| basics(request, &[(1, "one", 9092), (2, "two", 9092)]).unwrap(),
    );
    let cluster = Cluster::connect_with(script.config("down:9092,one:9092")).await.unwrap();
    let snapshot = cluster.snapshot();
    assert_eq!(snapshot.brokers.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(snapshot.cluster_id.as_deref(), Some("test-cluster"));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_down_is_an_error_within_the_time_allowed_and_not_a_storm() {
    let script = Script::refusing(|_, _| false, |_| Reaction::Close);
    let start = Instant::now();
    let config = script.config("a:1,b:2").with_request_timeout(Duration::from_secs(30));
    let error = Cluster::connect_with(config).await.unwrap_err();
    // What is wrong, rather than that finding out took all the time.
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    let attempts = script.attempts().len();
    assert!((20..=90).contains(&attempts), "{attempts} attempts in 30 s");
}

#[tokio::test(start_paused = true)]
async fn brokers_that_accept_and_hang_up_are_not_hammered() {
    let script = Script::new(|_| Reaction::Close);
    let error = Cluster::connect_with(script.config("a:1,b:2")).await.unwrap_err();
    assert!(error.to_string().contains("hung up"), "{error}");
    let attempts = script.attempts().len();
    assert!((20..=90).contains(&attempts), "{attempts} attempts in 30 s");
}

#[tokio::test(start_paused = true)]
async fn brokers_that_hang_up_after_the_handshake_are_not_hammered() {
    let script = Script::new(|request| match request.key {
        18 => answer(request, &api_versions(MODERN)),
        _ => Reaction::Close,
    });
    Cluster::connect_with(script.config("a:1")).await.unwrap_err();
    let attempts = script.attempts().len();
    assert!((15..=60).contains(&attempts), "{attempts} attempts in 30 s");
}

#[tokio::test(start_paused = true)]
async fn a_port_that_speaks_tls_is_named_at_once() {
    let script = Script::new(|_| Reaction::Raw(vec![0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x46]));
    let start = Instant::now();
    let error = Cluster::connect_with(script.config("a:9093")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
    assert!(error.to_string().contains("this port speaks TLS"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_frame_over_the_cap_is_refused_before_it_is_read() {
    let script = Script::new(|_| Reaction::Raw(vec![0x7f, 0xff, 0xff, 0xff]));
    let error = Cluster::connect_with(script.config("a:9092")).await.unwrap_err();
    assert!(error.to_string().contains("over the cap"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_know_the_newest_handshake_is_asked_again_on_the_same_connection() {
    let script = Script::new(|request| match (request.key, request.version) {
        (18, 0..=2) => answer(request, &api_versions(MODERN)),
        // As recorded: a version 0 body behind a header without tags.
        (18, _) => Reaction::Answer(support::encode(&api_versions(&[(18, 0, 2)]).with_error_code(35), 0)),
        _ => basics(request, &[(1, "one", 9092)]).unwrap(),
    });
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    assert_eq!(cluster.snapshot().brokers.len(), 1);
    let handshakes = script.requests(18);
    assert_eq!(handshakes.iter().map(|request| request.version).collect::<Vec<_>>(), [4, 2]);
    assert_eq!(handshakes[0].connection, handshakes[1].connection);
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_connection_becomes_the_brokers_own() {
    let script = Script::new(|request| basics(request, &[(1, "one", 9092)]).unwrap());
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    cluster.refreshed(&[], deadline).await.unwrap();
    assert_eq!(script.attempts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn asking_about_a_topic_never_creates_it() {
    let known = HashMap::from([("orders", vec![(1, 3), (1, 4)])]);
    let script = Script::new(move |request| match request.key {
        3 => answer(request, &with_topics(request, brokers(&[(1, "one", 9092)]), &known)),
        _ => basics(request, &[]).unwrap(),
    });
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    assert_eq!(cluster.partitions("orders").await.unwrap(), [0, 1]);
    let error = cluster.partitions("nope").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownTopic);
    assert_eq!(error.topic(), Some("nope"));
    let name = TopicName::new("orders");
    assert_eq!(cluster.snapshot().partition(name, 1).unwrap().leader_epoch, Some(4));
    for request in script.requests(3) {
        assert!(!request.decode::<MetadataRequest>().allow_auto_topic_creation);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_cluster_ends_its_connections() {
    let script = Script::new(|request| basics(request, &[(1, "one", 9092)]).unwrap());
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    let other = cluster.clone();
    drop(cluster);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(script.open(), 1);
    drop(other);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(script.open(), 0);
}

#[test]
fn a_cluster_may_outlive_its_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let script = Script::new(|request| basics(request, &[(1, "one", 9092)]).unwrap());
    let cluster = runtime.block_on(Cluster::connect_with(script.config("one:9092"))).unwrap();
    let (interest, owner) = (cluster.interest(), cluster.owner());
    drop(runtime);
    interest.set([TopicName::new("orders")]);
    cluster.refresh();
    drop((interest, owner));
    // Another runtime: the background work and the connections start anew.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        cluster.refreshed(&[], Instant::now() + Duration::from_secs(5)).await.unwrap();
    });
    drop(runtime);
    drop(cluster);
}
