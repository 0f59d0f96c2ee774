//! A tail on the embedded broker under the paused clock: where it begins, what it follows, what it outlives.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

mod scan_support;

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kafka_meta::wire::protocol::messages::ApiKey;
use kafka_read::{Cluster, ErrorKind, Loss, ScanFrom, TailSpec, Visibility, tail};
use scan_support::{Ledger, fill, until};
use testkit::embedded::{Embedded, Release, TopicSpec};
use tokio::time::{Instant, timeout};

async fn cluster(broker: &Embedded) -> Cluster {
    Cluster::connect_with(broker.config()).await.unwrap()
}

fn started(partitions: usize) -> impl FnMut(&Ledger) -> bool {
    move |ledger| ledger.partitions.len() == partitions
}

fn three() -> Embedded {
    let broker = Embedded::start(3);
    broker.create_topic_with("t", TopicSpec::new(3).with_replicas(3));
    for partition in 0..3 {
        fill(&broker, "t", partition, 5, 10);
    }
    broker
}

#[tokio::test(start_paused = true)]
async fn nothing_written_after_the_first_progress_is_missed() {
    let broker = three();
    let mut events = tail(cluster(&broker).await, TailSpec::new("t"));
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, started(3)).await;
    assert_eq!(ledger.of(1).bounds, Some((50, 50)));
    for round in 1..=20 {
        for partition in 0..3 {
            fill(&broker, "t", partition, 1, 3);
        }
        until(&mut events, &mut ledger, |ledger| ledger.count() == round * 9).await;
        tokio::time::sleep(Duration::from_millis(round as u64 * 37)).await;
    }
    for partition in 0..3 {
        assert_eq!(ledger.of(partition).offsets(), (50..110).collect::<Vec<_>>());
    }
    let fetches: Vec<_> =
        broker.requests_of(ApiKey::Fetch).into_iter().map(|seen| seen.fetch.unwrap()).collect();
    assert!(fetches.iter().all(|fetch| (fetch.session_id, fetch.session_epoch) == (0, -1)));
}

#[tokio::test(start_paused = true)]
async fn it_begins_where_it_is_told_to() {
    let broker = three();
    broker.append_at("t", 0, &[5_000_000_000_000, 6_000_000_000_000]);
    let first = |spec: TailSpec, wanted: usize| {
        let broker = broker.clone();
        async move {
            let mut events = tail(cluster(&broker).await, spec.partitions([0]));
            let mut ledger = Ledger::default();
            until(&mut events, &mut ledger, |ledger| {
                ledger.count() >= wanted && ledger.position(0) == broker.high_watermark("t", 0)
            })
            .await;
            ledger.of(0).offsets()
        }
    };
    assert!(first(TailSpec::new("t"), 0).await.is_empty());
    assert_eq!(first(TailSpec::new("t").last(3), 3).await, [49, 50, 51]);
    assert!(first(TailSpec::new("t").last(0), 0).await.is_empty());
    assert_eq!(first(TailSpec::new("t").last(1_000), 52).await.len(), 52);
    assert_eq!(first(TailSpec::new("t").from(ScanFrom::Offset(40)), 12).await.len(), 12);
    assert_eq!(first(TailSpec::new("t").from(ScanFrom::Offset(40)).last(20), 12).await.len(), 12);
    assert_eq!(first(TailSpec::new("t").from(ScanFrom::Earliest), 52).await.len(), 52);
    assert_eq!(first(TailSpec::new("t").from(ScanFrom::Timestamp(5_500_000_000_000)), 1).await, [51]);
    assert_eq!(first(TailSpec::new("t").last(2).key("k9"), 2).await, [39, 49]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_tail_asks_each_broker_twice_a_second_and_says_nothing() {
    for release in [Release::V3_9, Release::V4_3] {
        for visibility in [Visibility::All, Visibility::CommittedOnly] {
            let broker = three();
            broker.set_release(release);
            // An open transaction: the stable offset stays below the high watermark.
            let mut open = broker.begin("open");
            open.append("t", 0, ["x"]);
            let mut events = tail(cluster(&broker).await, TailSpec::new("t").visibility(visibility));
            let mut ledger = Ledger::default();
            until(&mut events, &mut ledger, started(3)).await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            broker.clear_requests();
            assert!(timeout(Duration::from_secs(20), events.next()).await.is_err(), "{ledger:?}");
            let fetches = broker.count(ApiKey::Fetch);
            assert!((100..=135).contains(&fetches), "{fetches} fetches of three brokers in 20 s");
            open.commit();
            let wanted = usize::from(visibility == Visibility::CommittedOnly);
            until(&mut events, &mut ledger, |ledger| ledger.position(0) == 52).await;
            assert_eq!(ledger.of(0).records.len(), wanted);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn added_partitions_are_read_from_their_first_record() {
    let broker = three();
    let age = Duration::from_secs(20);
    let cluster = Cluster::connect_with(broker.config().with_metadata_max_age(age)).await.unwrap();
    let mut events = tail(cluster.clone(), TailSpec::new("t"));
    let mut named = tail(cluster, TailSpec::new("t").partitions([0]));
    let (mut ledger, mut of_named) = (Ledger::default(), Ledger::default());
    until(&mut events, &mut ledger, started(3)).await;
    until(&mut named, &mut of_named, started(1)).await;
    broker.add_partitions("t", 5);
    fill(&broker, "t", 3, 2, 10);
    fill(&broker, "t", 4, 1, 10);
    fill(&broker, "t", 0, 1, 1);
    // With the next refresh of the metadata.
    let start = Instant::now();
    until(&mut events, &mut ledger, |ledger| ledger.count() == 31).await;
    assert!(start.elapsed() <= Duration::from_secs(21), "{:?}", start.elapsed());
    assert_eq!(ledger.of(3).offsets(), (0..20).collect::<Vec<_>>());
    until(&mut named, &mut of_named, |ledger| ledger.position(0) == 51).await;
    assert!(timeout(Duration::from_secs(60), named.next()).await.is_err());
    assert_eq!(of_named.partitions.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn leaders_that_move_and_brokers_that_die_cost_nothing() {
    let broker = three();
    let mut events = tail(cluster(&broker).await, TailSpec::new("t"));
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, started(3)).await;
    for round in 0..12 {
        match round % 4 {
            0 => {
                let (leader, _) = broker.leader("t", 1).unwrap();
                broker.move_leader("t", 1, leader % 3 + 1);
            }
            1 => {
                broker.kill_node(2);
                broker.fail_over(2);
            }
            2 => {
                broker.start_node(2);
            }
            _ => {
                broker.drop_connections(1);
            }
        }
        for partition in 0..3 {
            fill(&broker, "t", partition, 1, 2);
        }
        until(&mut events, &mut ledger, |ledger| ledger.count() == (round + 1) * 6).await;
    }
    for partition in 0..3 {
        assert_eq!(ledger.of(partition).offsets(), (50..74).collect::<Vec<_>>());
        assert!(ledger.of(partition).lost.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn trouble_is_told_in_time_and_outlived() {
    let broker = three();
    let mut events = tail(cluster(&broker).await, TailSpec::new("t").timeout(Duration::from_secs(10)));
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, started(3)).await;
    let (leader, _) = broker.leader("t", 1).unwrap();
    broker.set_leader_unknown("t", 1);
    let start = Instant::now();
    for minute in 1..=3 {
        let error = events.next().await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.partition()), (ErrorKind::Timeout, Some(1)));
        assert!(error.is_retriable());
        let waited = start.elapsed().as_secs_f64();
        assert!((waited - 10.0 * f64::from(minute)).abs() < 5.0, "{waited}");
    }
    broker.move_leader("t", 1, leader);
    fill(&broker, "t", 1, 1, 5);
    until(&mut events, &mut ledger, |ledger| ledger.count() == 5).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_changes_is_told() {
    let broker = three();
    let mut events = tail(cluster(&broker).await, TailSpec::new("t").from(ScanFrom::Earliest));
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, |ledger| ledger.count() == 150).await;
    // Cut below the reader.
    let epoch = broker.leader("t", 0).unwrap().1;
    broker.truncate("t", 0, 30, epoch + 1);
    fill(&broker, "t", 0, 1, 5);
    until(&mut events, &mut ledger, |ledger| ledger.of(0).records.len() == 55).await;
    assert_eq!(ledger.of(0).lost, [(30..50, 30, Loss::Truncated)]);
    assert_eq!(ledger.of(0).offsets()[50..], [30, 31, 32, 33, 34]);
    // Everything deleted, and more than the reader had.
    let hold = broker.fault(ApiKey::Fetch).node(broker.leader("t", 1).unwrap().0).always().error(6);
    fill(&broker, "t", 1, 10, 10);
    broker.delete_records("t", 1, 120);
    hold.remove();
    until(&mut events, &mut ledger, |ledger| ledger.position(1) == 150).await;
    let (offsets, position, loss) = ledger.of(1).lost[0].clone();
    assert_eq!((offsets.end, position, loss), (120, 120, Loss::Deleted));
    // The topic made anew.
    broker.recreate_topic("t");
    fill(&broker, "t", 2, 1, 7);
    until(&mut events, &mut ledger, |ledger| ledger.of(2).records.len() == 57).await;
    assert_eq!(ledger.of(2).lost, [(0..50, 0, Loss::Recreated)]);
    assert_eq!(ledger.of(2).offsets()[50..], [0, 1, 2, 3, 4, 5, 6]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_ends_the_tail() {
    let broker = three();
    let mut events = tail(cluster(&broker).await, TailSpec::new("t"));
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, started(3)).await;
    broker.delete_topic("t");
    let rest = timeout(Duration::from_secs(30), events.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(rest.len(), 3);
    assert!(rest.iter().all(|item| item.as_ref().unwrap_err().kind() == ErrorKind::UnknownTopic));
    let mut nowhere = tail(cluster(&broker).await, TailSpec::new("nowhere"));
    assert_eq!(nowhere.next().await.unwrap().unwrap_err().kind(), ErrorKind::UnknownTopic);
    assert!(nowhere.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn two_tails_and_a_scan_on_one_cluster_do_not_wait_for_each_other() {
    let broker = three();
    let cluster = cluster(&broker).await;
    let mut one = tail(cluster.clone(), TailSpec::new("t"));
    let mut other = tail(cluster.clone(), TailSpec::new("t"));
    let (mut first, mut second) = (Ledger::default(), Ledger::default());
    until(&mut one, &mut first, started(3)).await;
    until(&mut other, &mut second, started(3)).await;
    // Both are parked at the brokers now.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = Instant::now();
    let scanned = scan_support::drain(kafka_read::scan(cluster, kafka_read::ScanSpec::new("t"))).await;
    assert_eq!(scanned.count(), 150);
    // Looking the partitions up may wait its turn; the fetches may not.
    assert!(start.elapsed() < Duration::from_millis(300), "{:?}", start.elapsed());
    assert!(one.next().now_or_never().is_none());
}

/// Random writes, transactions, moves and faults under a tail: each visible record once, in order, and the position
/// at the log's end. `TAIL_SEED=n` repeats one.
#[tokio::test(start_paused = true)]
async fn random_lives_of_a_tail_lose_and_repeat_nothing() {
    let seeds = match std::env::var("TAIL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..60).collect::<Vec<u64>>(),
    };
    for seed in seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let broker = three();
        let committed = random.bool();
        let visibility = if committed { Visibility::CommittedOnly } else { Visibility::All };
        let spec = TailSpec::new("t")
            .visibility(visibility)
            .from(ScanFrom::Earliest)
            .buffer_bytes([1, 3_000, 32 << 20][random.usize(0..3)]);
        let mut events = tail(cluster(&broker).await, spec);
        let mut ledger = Ledger::default();
        until(&mut events, &mut ledger, started(3)).await;
        // Offsets of records that are to come, by partition.
        let mut wanted: Vec<Vec<i64>> = vec![(0..50).collect(); 3];
        for step in 0..random.i32(5..60) {
            let partition = random.i32(0..3);
            let at = partition as usize;
            match random.u8(0..12) {
                0..4 => {
                    let (base, count) = (broker.log_end("t", partition), random.usize(1..20));
                    fill(&broker, "t", partition, 1, count);
                    wanted[at].extend(base..base + count as i64);
                }
                4 | 5 => {
                    let mut txn = broker.begin(&format!("tx-{step}"));
                    let base = txn.append("t", partition, ["a", "b", "c"]);
                    let commit = random.bool();
                    if commit || !committed {
                        wanted[at].extend(base..base + 3);
                    }
                    if commit { txn.commit() } else { txn.abort() }
                }
                6 => {
                    broker.move_leader("t", partition, random.i32(1..4));
                }
                7 => {
                    broker.drop_connections(random.i32(1..4));
                }
                8 => {
                    let code = [6, 9, 56, 74, 75, 78, -1][random.usize(0..7)];
                    broker.fault(ApiKey::Fetch).times(random.u64(1..5)).error(code);
                }
                9 => {
                    broker.fault(ApiKey::Fetch).times(2).cut_answer(random.usize(0..300));
                }
                10 => {
                    let node = random.i32(1..4);
                    broker.kill_node(node);
                    broker.fail_over(node);
                    tokio::time::sleep(Duration::from_millis(random.u64(0..3_000))).await;
                    broker.start_node(node);
                }
                _ => tokio::time::sleep(Duration::from_millis(random.u64(0..2_000))).await,
            }
            while let Some(Some(item)) = events.next().now_or_never() {
                ledger.take(item);
            }
        }
        until(&mut events, &mut ledger, |ledger| {
            (0..3).all(|one| ledger.position(one) == broker.high_watermark("t", one))
        })
        .await;
        for (partition, wanted) in wanted.iter().enumerate() {
            let account = ledger.of(partition as i32);
            assert_eq!(&account.offsets(), wanted, "seed {seed}, partition {partition}");
            assert!(account.lost.is_empty() && account.malformed.is_empty() && account.error.is_none());
        }
    }
}
