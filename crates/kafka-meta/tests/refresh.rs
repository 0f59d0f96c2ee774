//! The picture stays fresh, whatever the brokers do, and nobody is hammered.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kafka_meta::client::{Broker, Snapshot};
use kafka_meta::{Cluster, ErrorCode, ErrorKind, TopicName};
use tokio::time::Instant;

use support::{Reaction, Request, Script, answer, basics, brokers, with_topics};

const METADATA: i16 = 3;
const TWO: &[(i32, &str, u16)] = &[(1, "one", 9092), (2, "two", 9092)];

fn soon(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

fn orders() -> TopicName {
    TopicName::new("orders")
}

/// A number a test turns while its brokers look at it.
type Stage = Arc<AtomicUsize>;

fn orders_at(request: &Request, list: &[(i32, &str, u16)], leader: (i32, i32)) -> Reaction {
    let known = HashMap::from([("orders", vec![leader])]);
    answer(request, &with_topics(request, brokers(list), &known))
}

async fn until(cluster: &Cluster, limit: Duration, condition: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
    let mut watch = cluster.watch();
    let waiting = async {
        loop {
            let snapshot = cluster.snapshot();
            if condition(&snapshot) {
                return snapshot;
            }
            watch.changed().await.unwrap();
        }
    };
    tokio::time::timeout(limit, waiting).await.expect("the picture never came to be as expected")
}

#[tokio::test(start_paused = true)]
async fn an_interest_keeps_its_topics_fresh_at_the_age_set_and_no_more_often() {
    let stage = Stage::default();
    let leader = stage.clone();
    let script = Script::new(move |request| match request.key {
        METADATA if leader.load(Ordering::SeqCst) == 1 => orders_at(request, TWO, (2, 1)),
        METADATA => orders_at(request, TWO, (1, 1)),
        _ => basics(request, TWO).unwrap(),
    });
    let config = script.config("one:9092").with_metadata_max_age(Duration::from_secs(60));
    let cluster = Cluster::connect_with(config).await.unwrap();
    let interest = cluster.interest();
    interest.set([orders()]);
    until(&cluster, Duration::from_secs(1), |snapshot| snapshot.topic(orders()).is_some()).await;
    stage.store(1, Ordering::SeqCst);
    let moved = |snapshot: &Snapshot| snapshot.partition(orders(), 0).unwrap().leader == Some(2);
    until(&cluster, Duration::from_secs(61), moved).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked = script.requests(METADATA).len();
    assert!((12..=14).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn asking_for_refreshes_in_a_loop_is_one_request_a_second() {
    let script = Script::new(|request| basics(request, TWO).unwrap());
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    let before = script.requests(METADATA).len();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        cluster.refresh();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let asked = script.requests(METADATA).len() - before;
    assert!((50..=85).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn a_topic_created_later_is_noticed_soon() {
    let stage = Stage::default();
    let created = stage.clone();
    let script = Script::new(move |request| match request.key {
        METADATA if created.load(Ordering::SeqCst) == 1 => orders_at(request, TWO, (1, 0)),
        _ => basics(request, TWO).unwrap(),
    });
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    let interest = cluster.interest();
    interest.set([orders()]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(cluster.snapshot().topic(orders()).unwrap().error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    stage.store(1, Ordering::SeqCst);
    until(&cluster, Duration::from_secs(2), |snapshot| snapshot.partition(orders(), 0).is_some()).await;
    // While it was missing it was asked about once a second, not more.
    assert!(script.requests(METADATA).len() < 50);
    // Withdrawn, it is not asked about at all.
    stage.store(0, Ordering::SeqCst);
    cluster.refreshed(&[], soon(5)).await.unwrap();
    drop(interest);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = script.requests(METADATA).len();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(script.requests(METADATA).len(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_broker_does_not_freeze_the_picture() {
    let script = Script::new(|request| match (request.key, request.host.as_str()) {
        (METADATA, "one") if request.connection > 0 => Reaction::Silence,
        (METADATA, "one") if request.correlation > 1 => Reaction::Silence,
        _ => basics(request, TWO).unwrap(),
    });
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    for _ in 0..5 {
        cluster.refreshed(&[], soon(12)).await.unwrap();
    }
    // It is not waited for again and again.
    let start = Instant::now();
    for _ in 0..5 {
        cluster.refreshed(&[], soon(12)).await.unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn when_no_known_broker_answers_the_bootstrap_addresses_are_asked_again() {
    let stage = Stage::default();
    let (now, reachable) = (stage.clone(), stage.clone());
    let script = Script::refusing(
        move |host, _| match reachable.load(Ordering::SeqCst) {
            0 => true,
            _ => host == "front" || host == "new",
        },
        move |request| match now.load(Ordering::SeqCst) {
            0 => basics(request, TWO).unwrap(),
            _ if request.host == "one" || request.host == "two" => Reaction::Close,
            _ => basics(request, &[(5, "new", 9092)]).unwrap(),
        },
    );
    let cluster = Cluster::connect_with(script.config("front:9092")).await.unwrap();
    cluster.refreshed(&[], soon(5)).await.unwrap();
    stage.store(1, Ordering::SeqCst);
    cluster.refresh();
    until(&cluster, Duration::from_secs(5), |snapshot| snapshot.brokers.contains_key(&5)).await;
    assert_eq!(cluster.snapshot().brokers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_asks_for_a_new_start_gets_one() {
    let stage = Stage::default();
    let now = stage.clone();
    let script = Script::new(move |request| match (request.key, now.load(Ordering::SeqCst)) {
        (METADATA, 1) if request.host == "front" => answer(request, &brokers(&[(5, "new", 9092)])),
        (METADATA, 1) if request.host != "new" => answer(request, &brokers(TWO).with_error_code(129)),
        (METADATA, 1) => answer(request, &brokers(&[(5, "new", 9092)])),
        _ => basics(request, TWO).unwrap(),
    });
    let cluster = Cluster::connect_with(script.config("front:9092")).await.unwrap();
    stage.store(1, Ordering::SeqCst);
    cluster.refresh();
    until(&cluster, Duration::from_secs(5), |snapshot| snapshot.brokers.contains_key(&5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_down_for_long_is_asked_about_once_a_second_and_found_again() {
    let stage = Stage::default();
    let up = stage.clone();
    let script =
        Script::refusing(move |_, _| up.load(Ordering::SeqCst) != 1, |request| basics(request, TWO).unwrap());
    let cluster = Cluster::connect_with(script.config("front:9092")).await.unwrap();
    stage.store(1, Ordering::SeqCst);
    // What is connected stays connected in this script: only nodes not dialled yet are down.
    let owner = cluster.owner();
    let via = owner.via(kafka_meta::client::Lane::Group);
    let before = script.attempts().len();
    let start = Instant::now();
    let mut errors = 0;
    while start.elapsed() < Duration::from_secs(100) {
        let request = kafka_protocol::messages::HeartbeatRequest::default();
        let to = kafka_meta::client::To::Node(2);
        let error = cluster.call(to, &via, soon(30), request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected);
        errors += 1;
    }
    let attempts = script.attempts().len() - before;
    assert!(attempts <= 400 && errors <= 130, "{attempts} attempts, {errors} errors in 100 s");
    stage.store(2, Ordering::SeqCst);
    let start = Instant::now();
    cluster.versions(2, &via, soon(5)).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_leader_hint_is_published_at_once_and_asks_for_a_refresh() {
    let script = Script::new(|request| match request.key {
        METADATA => orders_at(request, TWO, (1, 3)),
        _ => basics(request, TWO).unwrap(),
    });
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    let snapshot = cluster.refreshed(&[orders()], soon(5)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = script.requests(METADATA).len();
    let endpoint = Broker { id: 7, host: "seven".to_owned(), port: 9092, rack: None };
    assert!(!cluster.leader_hint(orders(), 0, 7, 3, Some(endpoint.clone())));
    assert!(cluster.leader_hint(orders(), 0, 7, 4, Some(endpoint)));
    let hinted = cluster.snapshot();
    assert!(hinted.generation > snapshot.generation);
    assert_eq!(hinted.partition(orders(), 0).unwrap().leader, Some(7));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(script.requests(METADATA).len(), asked + 1);
    // Metadata is behind: the hint is not undone.
    assert_eq!(cluster.snapshot().partition(orders(), 0).unwrap().leader_epoch, Some(4));
}

#[tokio::test(start_paused = true)]
async fn a_newer_epoch_makes_the_leader_unknown_until_metadata_names_it() {
    let stage = Stage::default();
    let now = stage.clone();
    let script = Script::new(move |request| match (request.key, now.load(Ordering::SeqCst)) {
        (METADATA, 0) => orders_at(request, TWO, (1, 3)),
        (METADATA, _) => orders_at(request, TWO, (2, 4)),
        _ => basics(request, TWO).unwrap(),
    });
    let cluster = Cluster::connect_with(script.config("one:9092")).await.unwrap();
    let interest = cluster.interest();
    interest.set([orders()]);
    cluster.refreshed(&[orders()], soon(5)).await.unwrap();
    cluster.epoch_seen(orders(), 0, 4);
    assert_eq!(cluster.snapshot().partition(orders(), 0).unwrap().leader, None);
    stage.store(1, Ordering::SeqCst);
    let found = |snapshot: &Snapshot| snapshot.partition(orders(), 0).unwrap().leader == Some(2);
    until(&cluster, Duration::from_secs(3), found).await;
}

#[test]
fn a_blocked_caller_does_not_stop_the_background_work_on_a_runtime_of_its_own() {
    let drivers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let caller = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let script = Script::new(|request| match request.key {
        METADATA => orders_at(request, TWO, (1, 3)),
        _ => basics(request, TWO).unwrap(),
    });
    let config = script.config("one:9092").with_runtime(drivers.handle().clone());
    caller.block_on(async {
        let cluster = Cluster::connect_with(config).await.unwrap();
        let interest = cluster.interest();
        interest.set([orders()]);
        // No await: this runtime is blocked, and the picture is fetched all the same.
        let start = std::time::Instant::now();
        while cluster.snapshot().topic(orders()).is_none() {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
    });
}
