//! Field bugs about brokers, sessions, clocks and ends, on the embedded broker under the paused clock. Names
//! begin with the ids of `docs/testing.md`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use kafka_consume::{Cluster, Consumer, ConsumerConfig, ErrorKind, Position};
use kafka_protocol::messages::{ApiKey, FetchResponse};
use support::{LIMIT, Offsets, Oracle, one, partitions, poll_until, read_some, read_to, stay_empty};
use testkit::embedded::{Embedded, TopicSpec};
use tokio::time::{Instant, timeout};

fn fill(broker: &Embedded, topic: &str, partition: i32, batches: usize, each: usize) {
    for _ in 0..batches {
        broker.append_records(topic, partition, (0..each).map(|n| (format!("k{n}"), format!("v{n}"))));
    }
}

async fn consumer(broker: &Embedded, config: ConsumerConfig) -> Consumer {
    let config_of_cluster = broker.config().with_request_timeout(Duration::from_secs(5));
    Consumer::new(Cluster::connect_with(config_of_cluster).await.unwrap(), config)
}

async fn from_start(broker: &Embedded, topic: &str, count: i32, config: ConsumerConfig) -> Consumer {
    let mut consumer = consumer(broker, config).await;
    consumer.assign(partitions(topic, count), Position::Earliest).await.unwrap();
    consumer
}

fn ends(topic: &str, count: i32, end: i64) -> Offsets {
    partitions(topic, count).into_iter().map(|key| (key, end)).collect()
}

#[tokio::test(start_paused = true)]
async fn fb36_a_broker_with_a_new_address_is_found_again() {
    let broker = Embedded::start(3);
    broker.create_topic("t", 6);
    let mut consumer = from_start(&broker, "t", 6, ConsumerConfig::new()).await;
    let mut oracle = Oracle::strict();
    let mut end = 0;
    for addresses in [
        // A new one; the old one refuses.
        vec![(2, "10.0.0.2", 9_092)],
        // Two brokers swap theirs.
        vec![(2, "10.0.0.3", 9_092), (3, "10.0.0.2", 9_092)],
        vec![(1, "10.9.0.1", 1), (2, "10.9.0.2", 2), (3, "10.0.0.3", 9_092)],
    ] {
        for (node, host, port) in addresses {
            assert!(broker.set_address(node, host, port));
        }
        for partition in 0..6 {
            fill(&broker, "t", partition, 5, 10);
        }
        end += 50;
        let start = Instant::now();
        read_to(&mut consumer, &ends("t", 6, end), &mut oracle).await;
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn fb40_lost_sessions_are_invisible() {
    for code in [70, 71, 106] {
        let broker = Embedded::start(2);
        broker.create_topic("t", 8);
        for partition in 0..8 {
            fill(&broker, "t", partition, 50, 5);
        }
        broker.fault(ApiKey::Fetch).every(3).always().error(code);
        broker.fault(ApiKey::Fetch).every(7).always().drop_connection_after();
        let config = ConsumerConfig::new().partition_max_bytes(1_000).max_bytes(4_000);
        let mut consumer = from_start(&broker, "t", 8, config).await;
        let mut oracle = Oracle::strict();
        read_to(&mut consumer, &ends("t", 8, 250), &mut oracle).await;
        assert_eq!(oracle.count, 2_000);
        assert!(consumer.metrics().sessions_reopened > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn fb40_sessions_are_opened_once_kept_and_closed() {
    let broker = Embedded::start(2);
    broker.create_topic("t", 8);
    for partition in 0..8 {
        fill(&broker, "t", partition, 20, 5);
    }
    let config = ConsumerConfig::new().max_poll_records(7);
    let mut consumer = from_start(&broker, "t", 8, config).await;
    let mut oracle = Oracle::strict();
    read_to(&mut consumer, &ends("t", 8, 100), &mut oracle).await;
    stay_empty(&mut consumer, Duration::from_secs(10)).await;
    let mut opened: BTreeMap<i32, usize> = BTreeMap::new();
    for seen in broker.requests_of(ApiKey::Fetch) {
        let fetch = seen.fetch.unwrap();
        if fetch.session_epoch == 0 {
            *opened.entry(seen.node).or_default() += 1;
        }
        assert!(fetch.forgotten.is_empty(), "partitions keep their place while their data is buffered");
    }
    assert_eq!(opened, [(1, 1), (2, 1)].into(), "(0, 0) once per broker");
    assert_eq!((broker.sessions(1), broker.sessions(2)), (1, 1));
    consumer.close().await.unwrap();
    assert_eq!((broker.sessions(1), broker.sessions(2)), (0, 0), "closed with the consumer");
}

#[tokio::test(start_paused = true)]
async fn fb40_brokers_without_sessions_and_full_caches_serve_as_well() {
    for none in [false, true] {
        let broker = Embedded::start(2);
        broker.create_topic("t", 4);
        for partition in 0..4 {
            fill(&broker, "t", partition, 10, 5);
        }
        for node in [1, 2] {
            broker.set_session_slots(node, 2);
        }
        if none {
            broker.fault(ApiKey::Fetch).always().map(|answer: &mut FetchResponse| answer.session_id = 0);
        }
        let mut readers = Vec::new();
        for _ in 0..20 {
            readers.push(from_start(&broker, "t", 4, ConsumerConfig::new()).await);
        }
        let reading = readers.into_iter().map(|mut consumer| async move {
            let mut oracle = Oracle::strict();
            read_to(&mut consumer, &ends("t", 4, 50), &mut oracle).await;
            assert_eq!(oracle.count, 200);
            consumer
        });
        let mut readers = futures::future::join_all(reading).await;
        assert!(broker.sessions(1) <= 2 && broker.sessions(2) <= 2);
        broker.clear_requests();
        stay_empty(&mut readers[0], Duration::from_secs(10)).await;
        let fetches = broker.count(ApiKey::Fetch);
        assert!(fetches <= 20 * 2 * 22, "{fetches} fetches of twenty readers in ten seconds");
    }
}

/// A quota's answer is empty, uses up an epoch and mutes the connection, here for longer than a request may take.
#[tokio::test(start_paused = true)]
async fn fb40_throttled_answers_cost_time_and_nothing_else() {
    let broker = Embedded::start(2);
    broker.create_topic("t", 4);
    for partition in 0..4 {
        fill(&broker, "t", partition, 20, 5);
    }
    broker.fault(ApiKey::Fetch).every(4).always().throttle(Duration::from_secs(10));
    let config = ConsumerConfig::new().partition_max_bytes(500).max_bytes(1_000);
    let mut consumer = from_start(&broker, "t", 4, config).await;
    let mut oracle = Oracle::strict();
    read_to(&mut consumer, &ends("t", 4, 100), &mut oracle).await;
    assert_eq!((oracle.count, consumer.metrics().fetch_errors), (400, 0));
    broker.clear_requests();
    stay_empty(&mut consumer, Duration::from_secs(60)).await;
    let fetches = broker.count(ApiKey::Fetch);
    assert!(fetches <= 2 * 5 * 5, "{fetches} fetches in a minute: four, then ten seconds of silence");
}

#[tokio::test(start_paused = true)]
async fn fb42_a_dead_leader_costs_its_own_partition_only() {
    let broker = Embedded::start(3);
    let mut placed = vec![vec![2]];
    placed.extend((0..100).map(|n| vec![if n % 2 == 0 { 1 } else { 3 }]));
    broker.create_topic_with("t", TopicSpec::new(1).with_placement(placed));
    let mut consumer = from_start(&broker, "t", 101, ConsumerConfig::new()).await;
    for partition in 0..101 {
        fill(&broker, "t", partition, 1, 10);
    }
    let mut oracle = Oracle::strict();
    read_to(&mut consumer, &ends("t", 101, 10), &mut oracle).await;
    broker.stop_node(2);
    broker.clear_requests();
    let mut end = 10;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        for partition in 1..101 {
            fill(&broker, "t", partition, 1, 10);
        }
        end += 10;
        let mut wanted = ends("t", 101, end);
        wanted.remove(&("t".to_owned(), 0));
        let round = Instant::now();
        read_to(&mut consumer, &wanted, &mut oracle).await;
        assert!(round.elapsed() < Duration::from_secs(2), "the others wait: {:?}", round.elapsed());
        stay_empty(&mut consumer, Duration::from_secs(1)).await;
    }
    let metadata = broker.count(ApiKey::Metadata);
    assert!(metadata < 120, "{metadata} metadata requests in a minute");
    assert!(consumer.stopped().is_empty(), "nothing surfaces");
    broker.start_node(2);
    fill(&broker, "t", 0, 1, 10);
    let back = Instant::now();
    let only: Offsets = [(("t".to_owned(), 0), 20)].into();
    read_to(&mut consumer, &only, &mut oracle).await;
    assert!(back.elapsed() < Duration::from_secs(2), "resumed in {:?}", back.elapsed());
}

#[tokio::test(start_paused = true)]
async fn fb42_a_leader_that_denies_it_is_not_stormed() {
    let broker = Embedded::start(2);
    broker.create_topic_with("bad", TopicSpec::new(1).with_placement(vec![vec![1]]));
    broker.create_topic_with("good", TopicSpec::new(1).with_placement(vec![vec![1]]));
    let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
    consumer.assign([("bad".to_owned(), 0), ("good".to_owned(), 0)], Position::Earliest).await.unwrap();
    for code in [3, 5, 6, 9, 56, 74, 75, 78, 100, 103, -1] {
        let denied = broker.fault(ApiKey::Fetch).topic("bad").always().error(code);
        poll_until(&mut consumer, "the first refusal", |_| denied.hits() > 0).await;
        broker.clear_requests();
        let start = Instant::now();
        stay_empty(&mut consumer, Duration::from_secs(20)).await;
        let seconds = start.elapsed().as_secs() as usize + 1;
        let (fetches, metadata) = (broker.count(ApiKey::Fetch), broker.count(ApiKey::Metadata));
        assert!(fetches <= seconds * 5 + 10, "{code}: {fetches} fetches in {seconds} s");
        assert!(metadata <= seconds * 2 + 10, "{code}: {metadata} metadata requests in {seconds} s");
        fill(&broker, "good", 0, 1, 5);
        let round = Instant::now();
        assert_eq!(read_some(&mut consumer, 5).await[0].topic, "good");
        assert!(round.elapsed() < Duration::from_secs(1), "{code}: the good one waits {:?}", round.elapsed());
        denied.remove();
        fill(&broker, "bad", 0, 1, 5);
        let round = Instant::now();
        assert_eq!(read_some(&mut consumer, 5).await[0].topic, "bad");
        assert!(round.elapsed() < Duration::from_secs(3), "{code}: healed after {:?}", round.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn fb42_with_every_broker_down_nothing_spins() {
    let broker = Embedded::start(2);
    broker.create_topic("t", 4);
    for partition in 0..4 {
        fill(&broker, "t", partition, 1, 10);
    }
    let mut consumer = from_start(&broker, "t", 4, ConsumerConfig::new()).await;
    let mut oracle = Oracle::strict();
    read_to(&mut consumer, &ends("t", 4, 10), &mut oracle).await;
    for node in [1, 2] {
        broker.kill_node(node);
    }
    let errors = consumer.metrics().fetch_errors;
    let (real, before) = (std::time::Instant::now(), Instant::now());
    stay_empty(&mut consumer, Duration::from_secs(60)).await;
    assert!(before.elapsed() >= Duration::from_secs(60));
    let attempts = consumer.metrics().fetch_errors - errors;
    assert!(attempts <= 2 * 80, "{attempts} attempts of two fetchers in a minute");
    // A minute of the paused clock costs a moment unless something spins; generous for a loaded machine.
    assert!(real.elapsed() < Duration::from_secs(20), "{:?}", real.elapsed());
    for node in [1, 2] {
        broker.start_node(node);
    }
    for partition in 0..4 {
        fill(&broker, "t", partition, 1, 10);
    }
    let back = Instant::now();
    read_to(&mut consumer, &ends("t", 4, 20), &mut oracle).await;
    assert!(back.elapsed() < Duration::from_secs(3), "{:?}", back.elapsed());
}

/// A host that slept: the monotonic clock jumps, and everything is overdue at once.
#[tokio::test(start_paused = true)]
async fn fb43_a_jump_of_the_clock_makes_no_storm() {
    let broker = Embedded::start(2);
    broker.create_topic("t", 4);
    let mut consumer = from_start(&broker, "t", 4, ConsumerConfig::new()).await;
    let (mut oracle, mut end) = (Oracle::strict(), 0);
    for jump in [120, 3_600, 100_000] {
        consumer.poll().await.unwrap();
        broker.clear_requests();
        tokio::time::advance(Duration::from_secs(jump)).await;
        for partition in 0..4 {
            fill(&broker, "t", partition, 1, 10);
        }
        end += 10;
        read_to(&mut consumer, &ends("t", 4, end), &mut oracle).await;
        stay_empty(&mut consumer, Duration::from_secs(5)).await;
        let requests = broker.requests().len();
        assert!(requests < 100, "{requests} requests after {jump} s were skipped");
    }
}

/// Wall clocks jump, so no core may read one; nor any other clock, or a test could not bring the time.
#[test]
fn fb43_no_core_reads_a_clock() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut cores = vec!["position.rs", "buffer.rs", "session.rs", "session/plan.rs"]
        .into_iter()
        .map(|name| source.join(name))
        .collect::<Vec<_>>();
    cores.extend(std::fs::read_dir(source.join("engine")).unwrap().filter_map(|entry| {
        let path = entry.unwrap().path();
        path.extension().is_some_and(|extension| extension == "rs").then_some(path)
    }));
    assert!(cores.len() > 8);
    for path in cores {
        let text = std::fs::read_to_string(&path).unwrap();
        for clock in ["Instant::now", "SystemTime", "tokio::time", ".elapsed()"] {
            assert!(!text.contains(clock), "{} reads a clock: {clock}", path.display());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fb44_calls_dropped_at_any_moment_break_nothing() {
    let broker = Embedded::start(2);
    broker.create_topic("t", 4);
    for partition in 0..4 {
        fill(&broker, "t", partition, 100, 5);
    }
    for api in [ApiKey::Fetch, ApiKey::ListOffsets, ApiKey::OffsetFetch, ApiKey::OffsetCommit] {
        broker.fault(api).always().delay_answer(Duration::from_millis(20));
    }
    let config = ConsumerConfig::new().group_id("g").partition_max_bytes(500).max_bytes(1_000);
    let mut consumer = from_start(&broker, "t", 4, config).await;
    consumer.commit().await.unwrap();
    let connections = broker.connections();
    let mut random = fastrand::Rng::with_seed(44);
    let (mut oracle, wanted) = (Oracle::strict(), ends("t", 4, 500));
    let read = timeout(Duration::from_secs(3_600), async {
        while !support::is_at(&consumer, &wanted) {
            let patience = Duration::from_micros(random.u64(0..40_000));
            match random.u8(0..8) {
                0 => drop(timeout(patience, consumer.commit()).await),
                1 => drop(timeout(patience, consumer.committed()).await),
                2 => drop(timeout(patience, consumer.end_offsets(one("t", 0))).await),
                _ => {
                    if let Ok(records) = timeout(patience, consumer.poll()).await {
                        oracle.take_all(&records.unwrap());
                    }
                }
            }
        }
    });
    read.await.expect("it comes to its end");
    assert_eq!(oracle.count, 2_000);
    assert_eq!(broker.connections(), connections, "no connection broke");
    consumer.commit().await.unwrap();
    assert_eq!(
        (0..4).filter_map(|partition| broker.committed("g", "t", partition)).collect::<Vec<_>>(),
        [500; 4]
    );
    assert_eq!(consumer.metrics().fetch_errors, 0);
}

#[tokio::test(start_paused = true)]
async fn fb46_the_buffer_keeps_its_budget_whatever_the_backlog() {
    let broker = Embedded::start(3);
    broker.create_topic("t", 200);
    let value = "x".repeat(1_000);
    for partition in 0..200 {
        for _ in 0..5 {
            broker.append_records("t", partition, (0..10).map(|n| (n.to_string(), value.clone())));
        }
    }
    let budget = 1 << 20;
    let config =
        ConsumerConfig::new().fetch_buffer_bytes(budget).partition_max_bytes(64 * 1024).max_poll_records(50);
    let mut consumer = from_start(&broker, "t", 200, config).await;
    let (mut oracle, wanted, mut most) = (Oracle::strict(), ends("t", 200, 50), 0);
    while !support::is_at(&consumer, &wanted) {
        oracle.take_all(&timeout(LIMIT, consumer.poll()).await.unwrap().unwrap());
        // A slow handler: everything that may arrive has arrived.
        tokio::time::sleep(Duration::from_millis(50)).await;
        most = most.max(consumer.metrics().buffered_bytes);
    }
    assert_eq!(oracle.count, 10_000);
    assert!(most <= budget + 64 * 1024, "{most} bytes buffered");
    assert!(most > budget / 8, "{most} bytes: it reads ahead");
}

/// The brokers that were there first hold the whole budget for answers that never come.
#[tokio::test(start_paused = true)]
async fn fb46_a_broker_that_comes_late_gets_its_share_of_the_budget() {
    let broker = Embedded::start(12);
    broker.create_topic_with(
        "idle",
        TopicSpec::new(1).with_placement((1..12).map(|node| vec![node]).collect()),
    );
    broker.create_topic_with("late", TopicSpec::new(1).with_placement(vec![vec![12]]));
    let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
    for partition in 0..11 {
        consumer.assign_more([(("idle".to_owned(), partition), Position::Earliest)]).await.unwrap();
        consumer.poll().await.unwrap();
    }
    consumer.assign_more([(("late".to_owned(), 0), Position::Earliest)]).await.unwrap();
    fill(&broker, "late", 0, 1, 10);
    let start = Instant::now();
    assert_eq!(read_some(&mut consumer, 10).await.len(), 10);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn fb46_ten_thousand_partitions_cost_what_changes() {
    let broker = Embedded::start(3);
    broker.create_topic("t", 10_000);
    let real = std::time::Instant::now();
    let mut consumer = from_start(&broker, "t", 10_000, ConsumerConfig::new()).await;
    consumer.poll().await.unwrap();
    stay_empty(&mut consumer, Duration::from_secs(2)).await;
    broker.clear_requests();
    stay_empty(&mut consumer, Duration::from_secs(5)).await;
    let fetches = broker.requests_of(ApiKey::Fetch);
    assert!(fetches.len() <= 3 * 12, "{} fetches in five seconds", fetches.len());
    let named: usize = fetches.iter().map(|seen| seen.fetch.as_ref().unwrap().partitions.len()).sum();
    assert_eq!(named, 0, "an idle session names nobody");

    fill(&broker, "t", 77, 1, 10);
    assert_eq!(read_some(&mut consumer, 10).await.len(), 10);
    broker.clear_requests();
    broker.move_leader("t", 77, 1 + broker.leader("t", 77).unwrap().0 % 3);
    fill(&broker, "t", 77, 1, 10);
    assert_eq!(read_some(&mut consumer, 10).await.len(), 10);
    let moved = broker.requests_of(ApiKey::Fetch);
    let named: usize = moved.iter().map(|seen| seen.fetch.as_ref().unwrap().partitions.len()).sum();
    assert!(named < 20, "one leader moved and {named} partitions were named");
    consumer.close().await.unwrap();
    println!("ten thousand partitions: {:?}", real.elapsed());
}

#[derive(Clone, Copy, Debug)]
enum Brokers {
    Up,
    Frozen,
    Down,
}

#[tokio::test(start_paused = true)]
async fn fb49_close_keeps_its_time_from_anywhere() {
    let mut random = fastrand::Rng::with_seed(49);
    for round in 0..200 {
        let state = [Brokers::Up, Brokers::Frozen, Brokers::Down][round % 3];
        let broker = Embedded::start(2);
        broker.create_topic("t", 4);
        for partition in 0..4 {
            fill(&broker, "t", partition, 5, 5);
        }
        let delay = Duration::from_millis(10);
        for api in [ApiKey::Fetch, ApiKey::ListOffsets, ApiKey::Metadata] {
            broker.fault(api).always().delay_answer(delay);
        }
        let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
        let life = timeout(Duration::from_millis(random.u64(0..120)), async {
            consumer.assign(partitions("t", 4), Position::Earliest).await.unwrap();
            loop {
                consumer.poll().await.unwrap();
            }
        });
        let _ = life.await;
        for node in [1, 2] {
            match state {
                Brokers::Up => {}
                Brokers::Frozen => drop(broker.freeze_node(node)),
                Brokers::Down => drop(broker.kill_node(node)),
            }
        }
        let start = Instant::now();
        consumer.close().await.unwrap();
        assert!(
            start.elapsed() < Duration::from_millis(2_500),
            "round {round}, {state:?}: {:?}",
            start.elapsed()
        );
        assert_eq!(consumer.poll().await.unwrap_err().kind(), ErrorKind::Closed);
        consumer.close().await.unwrap();
        broker.clear_requests();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(
            broker.count(ApiKey::Fetch) + broker.count(ApiKey::ListOffsets),
            0,
            "round {round}, {state:?}"
        );
        if matches!(state, Brokers::Up) {
            assert_eq!(broker.sessions(1) + broker.sessions(2), 0, "round {round}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fb49_start_and_stop_fifty_times_in_one_process() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    for round in 0..50 {
        fill(&broker, "t", 0, 1, 5);
        let config = ConsumerConfig::new().group_id("g");
        let mut consumer = Consumer::new(cluster.clone(), config);
        let position = Position::Committed(Box::new(Position::Earliest));
        consumer.assign(one("t", 0), position).await.unwrap();
        assert_eq!(read_some(&mut consumer, 5).await[0].offset, round * 5);
        consumer.commit().await.unwrap();
        if round % 2 == 0 {
            consumer.close().await.unwrap();
        }
    }
    drop(cluster);
    // Only what a broker takes to see that its clients are gone.
    tokio::time::sleep(Duration::from_secs(2)).await;
    broker.clear_requests();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(broker.requests().len(), 0, "no ghost asks");
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(tasks <= 2, "{tasks} tasks are left");
}

/// One broker up at a time, swapped twice: what is known is gone each time, the bootstrap addresses are not.
#[tokio::test(start_paused = true)]
async fn java_x10_rebootstrap() {
    let broker = Embedded::start(2);
    broker.create_topic_with("t", TopicSpec::new(1).with_placement(vec![vec![1, 2]]));
    broker.stop_node(2);
    let mut consumer = from_start(&broker, "t", 1, ConsumerConfig::new()).await;
    let mut oracle = Oracle::strict();
    fill(&broker, "t", 0, 1, 10);
    read_to(&mut consumer, &ends("t", 1, 10), &mut oracle).await;
    for (end, up, down) in [(20, 2, 1), (30, 1, 2)] {
        broker.stop_node(down);
        stay_empty(&mut consumer, Duration::from_secs(1)).await;
        broker.start_node(up);
        fill(&broker, "t", 0, 1, 10);
        let start = Instant::now();
        read_to(&mut consumer, &ends("t", 1, end), &mut oracle).await;
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
    assert_eq!(oracle.count, 30);
}
