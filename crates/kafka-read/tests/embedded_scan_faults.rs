//! What goes wrong around a scan, on the embedded broker under the paused clock: leaders that move and die, logs
//! that are cut and deleted, topics that go, callers that are slow or leave.
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

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use kafka_meta::transport::{BoxStream, Connector};
use kafka_meta::wire::protocol::messages::{ApiKey, ListOffsetsResponse};
use kafka_read::{Cluster, ErrorKind, Loss, ScanEvent, ScanFrom, ScanSpec, scan};
use scan_support::{Ledger, drain, fill, read, until};
use testkit::embedded::{Embedded, TopicSpec};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout};

fn small() -> ScanSpec {
    // A few batches an answer, so that there is a middle.
    ScanSpec::new("t").buffer_bytes(3_000)
}

async fn cluster(broker: &Embedded) -> Cluster {
    Cluster::connect_with(broker.config()).await.unwrap()
}

/// Three nodes, three partitions on all of them, 100 batches of 10 records each.
fn three() -> Embedded {
    let broker = Embedded::start(3);
    broker.create_topic_with("t", TopicSpec::new(3).with_replicas(3));
    for partition in 0..3 {
        fill(&broker, "t", partition, 100, 10);
    }
    broker
}

fn is_whole(ledger: &Ledger, partitions: std::ops::Range<i32>, end: i64) {
    assert!(ledger.all_done(), "{ledger:?}");
    for partition in partitions {
        assert_eq!(ledger.of(partition).offsets(), (0..end).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn leaders_that_move_cost_nothing() {
    let broker = three();
    let mut events = scan(cluster(&broker).await, small());
    let mut ledger = Ledger::default();
    for round in 1..8 {
        until(&mut events, &mut ledger, |ledger| ledger.count() >= round * 350).await;
        for partition in 0..3 {
            let (leader, _) = broker.leader("t", partition).unwrap();
            broker.move_leader("t", partition, leader % 3 + 1);
        }
    }
    while let Some(item) = events.next().await {
        ledger.take(item);
    }
    is_whole(&ledger, 0..3, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_dead_broker_costs_its_partitions_a_while_and_the_others_nothing() {
    let broker = three();
    let mut events = scan(cluster(&broker).await, small());
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, |ledger| ledger.count() > 300).await;
    let (dead, _) = broker.leader("t", 0).unwrap();
    broker.kill_node(dead);
    // Whoever does not need it is read to the end.
    let spared: Vec<i32> = (0..3).filter(|one| broker.leader("t", *one).unwrap().0 != dead).collect();
    assert!(!spared.is_empty());
    until(&mut events, &mut ledger, |ledger| spared.iter().all(|one| ledger.is_done(*one))).await;
    assert!(!ledger.of(0).done);
    broker.fail_over(dead);
    while let Some(item) = events.next().await {
        ledger.take(item);
    }
    is_whole(&ledger, 0..3, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_partition_out_of_reach_is_an_error_after_the_timeout() {
    let broker = three();
    broker.set_leader_unknown("t", 1);
    let start = Instant::now();
    let ledger = read(&broker, ScanSpec::new("t").timeout(Duration::from_secs(7))).await;
    let error = ledger.of(1).error.as_ref().unwrap();
    assert_eq!((error.kind(), error.topic(), error.partition()), (ErrorKind::Timeout, Some("t"), Some(1)));
    assert!(start.elapsed() >= Duration::from_secs(7) && start.elapsed() < Duration::from_secs(9));
    assert!(ledger.of(0).done && ledger.of(2).done);
    assert_eq!(ledger.count(), 2_000);

    // In the middle of it as well; the error says where and why.
    let broker = three();
    let mut events = scan(cluster(&broker).await, small().timeout(Duration::from_secs(7)));
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, |ledger| ledger.count() > 300).await;
    broker.set_leader_unknown("t", 1);
    while let Some(item) = events.next().await {
        ledger.take(item);
    }
    let error = ledger.of(1).error.as_ref().unwrap();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Timeout, Some(ledger.of(1).position)));
    assert!(std::error::Error::source(error).is_some());
    assert_eq!(ledger.of(1).offsets(), (0..ledger.of(1).position).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn each_retriable_error_is_outlived_and_others_name_their_partition() {
    for code in [3, 5, 6, 7, 9, 56, 74, 75, 78, 100, 103, -1] {
        let broker = three();
        broker.fault(ApiKey::Fetch).skip(2).times(4).error(code);
        broker.fault(ApiKey::ListOffsets).times(1).error(6);
        let ledger = read(&broker, small()).await;
        is_whole(&ledger, 0..3, 1_000);
    }
    let broker = three();
    broker.fault(ApiKey::Fetch).skip(2).times(1).error(29);
    let ledger = read(&broker, small()).await;
    let failed: Vec<_> = ledger.partitions.values().filter_map(|account| account.error.as_ref()).collect();
    assert!(!failed.is_empty());
    assert!(failed.iter().all(|error| error.kind() == ErrorKind::Authorization && error.offset().is_some()));
}

#[tokio::test(start_paused = true)]
async fn broken_connections_and_quotas_are_outlived() {
    let broker = three();
    broker.fault(ApiKey::Fetch).every(3).times(10).drop_connection_after();
    broker.fault(ApiKey::Fetch).every(5).times(10).drop_connection_before();
    broker.fault(ApiKey::Fetch).every(4).times(5).throttle(Duration::from_secs(2));
    is_whole(&read(&broker, small()).await, 0..3, 1_000);
}

#[tokio::test(start_paused = true)]
async fn records_deleted_ahead_of_the_reader_are_told() {
    let broker = three();
    let mut events = scan(cluster(&broker).await, small());
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, |ledger| ledger.count() > 90).await;
    broker.delete_records("t", 1, 700);
    broker.delete_records("t", 2, 1_000);
    while let Some(item) = events.next().await {
        ledger.take(item);
    }
    assert!(ledger.all_done());
    for (partition, start) in [(1, 700), (2, 1_000)] {
        let account = ledger.of(partition);
        let (offsets, position, loss) = account.lost[0].clone();
        assert_eq!((offsets.end, position, loss), (start, start, Loss::Deleted));
        let wanted: Vec<i64> = (0..offsets.start).chain(start..1_000).collect();
        assert_eq!((account.offsets(), account.position), (wanted, 1_000));
    }
    assert!(ledger.of(0).lost.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_cut_is_told_and_the_scan_ends() {
    // Below the reader: what it had of the rest is void, and the new log is read up to the old end, or its own.
    for regrown in [0, 50] {
        let broker = three();
        let mut events = scan(cluster(&broker).await, small().partitions([0]));
        let mut ledger = Ledger::default();
        until(&mut events, &mut ledger, |ledger| ledger.position(0) >= 500).await;
        let epoch = broker.leader("t", 0).unwrap().1;
        broker.truncate("t", 0, 300, epoch + 1);
        fill(&broker, "t", 0, regrown, 10);
        while let Some(item) = events.next().await {
            ledger.take(item);
        }
        assert!(ledger.all_done(), "{ledger:?}");
        let account = ledger.of(0);
        let (offsets, position, loss) = account.lost[0].clone();
        assert_eq!((offsets.start, position, loss), (300, 300, Loss::Truncated), "{regrown}");
        assert_eq!(account.position, 300 + regrown as i64 * 10);
        let behind: Vec<i64> = account.offsets().into_iter().skip(offsets.end as usize).collect();
        assert_eq!(behind, (300..300 + regrown as i64 * 10).collect::<Vec<_>>());
    }
    // Ahead of the reader: the end comes nearer.
    let broker = three();
    let mut events = scan(cluster(&broker).await, small().partitions([0]));
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, |ledger| ledger.position(0) >= 50).await;
    let epoch = broker.leader("t", 0).unwrap().1;
    broker.truncate("t", 0, 800, epoch + 1);
    while let Some(item) = events.next().await {
        ledger.take(item);
    }
    is_whole(&ledger, 0..1, 800);
    assert_eq!(ledger.of(0).lost, [(800..1_000, 800, Loss::Truncated)]);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_goes_is_an_error_of_each_partition() {
    for again in [false, true] {
        let broker = three();
        let mut events = scan(cluster(&broker).await, small());
        let mut ledger = Ledger::default();
        until(&mut events, &mut ledger, |ledger| ledger.count() > 90).await;
        if again {
            broker.recreate_topic("t");
        } else {
            broker.delete_topic("t");
        }
        let start = Instant::now();
        while let Some(item) = events.next().await {
            ledger.take(item);
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        for partition in 0..3 {
            let error = ledger.of(partition).error.as_ref().unwrap();
            assert_eq!(error.kind(), ErrorKind::UnknownTopic, "{again}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_preferred_replica_is_read_and_its_lag_is_outlived() {
    let broker = Embedded::start(3);
    for node in 1..=3 {
        broker.set_rack(node, &format!("r{node}"));
    }
    broker.set_rack_aware(true);
    broker.create_topic_with("t", TopicSpec::new(1).with_placement(vec![vec![1, 2, 3]]));
    fill(&broker, "t", 0, 100, 10);
    let config = || broker.config().with_rack("r2");
    let spec = || ScanSpec::new("t").buffer_bytes(3_000);
    let ledger = drain(scan(Cluster::connect_with(config()).await.unwrap(), spec())).await;
    is_whole(&ledger, 0..1, 1_000);
    let by_node = |node| broker.requests_of(ApiKey::Fetch).iter().filter(|seen| seen.node == node).count();
    assert!(by_node(2) > 4 && by_node(1) < 3, "{} {}", by_node(1), by_node(2));
    // A follower that stands still half-way is left for the leader.
    broker.set_follower("t", 0, 2, Some((500, 500)));
    let ledger = drain(scan(Cluster::connect_with(config()).await.unwrap(), spec())).await;
    is_whole(&ledger, 0..1, 1_000);
    assert!(ledger.of(0).lost.is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_broker_waits_for_another() {
    let broker = three();
    let held = broker.fault(ApiKey::Fetch).node(broker.leader("t", 0).unwrap().0).always().hold();
    let mut events = scan(cluster(&broker).await, small());
    let mut ledger = Ledger::default();
    let others = until(&mut events, &mut ledger, |ledger| [1, 2].iter().all(|one| ledger.is_done(*one)));
    timeout(Duration::from_secs(5), others).await.expect("held up");
    held.remove();
    while let Some(item) = events.next().await {
        ledger.take(item);
    }
    is_whole(&ledger, 0..3, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_slow_caller_bounds_what_is_fetched() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 2);
    let big = "x".repeat(1_000);
    for _ in 0..500 {
        for partition in 0..2 {
            broker.append_records("t", partition, (0..10).map(|_| ("k", big.as_str())));
        }
    }
    let limit = 256 << 10;
    let mut events = scan(cluster(&broker).await, ScanSpec::new("t").buffer_bytes(limit));
    let mut ledger = Ledger::default();
    until(&mut events, &mut ledger, |ledger| ledger.count() > 10).await;
    for _ in 0..5 {
        // Longer than the timeout: waiting for the caller is not a trouble.
        tokio::time::sleep(Duration::from_secs(100)).await;
        let asked: i64 = (0..2)
            .map(|partition| {
                let all = broker.requests_of(ApiKey::Fetch).into_iter().filter_map(|seen| seen.fetch);
                let of_it =
                    all.flat_map(|fetch| fetch.partitions).filter(|(_, index, _)| *index == partition);
                of_it.map(|(_, _, offset)| offset).max().unwrap_or(0)
            })
            .sum();
        let taken = ledger.count() as i64;
        assert!((asked - taken) * 1_000 <= 2 * limit as i64, "{asked} asked for, {taken} taken");
        let more = ledger.count() + 700;
        until(&mut events, &mut ledger, |ledger| ledger.count() >= more).await;
    }
    while let Some(item) = events.next().await {
        ledger.take(item);
    }
    is_whole(&ledger, 0..2, 5_000);
}

/// Counts the streams that are open.
#[derive(Debug)]
struct Counting(Arc<dyn Connector>, Arc<AtomicI64>);

struct Counted(BoxStream, Arc<AtomicI64>);

impl Connector for Counting {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<BoxStream>> {
        async move {
            let stream = self.0.connect(host, port).await?;
            self.1.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(Counted(stream, self.1.clone())) as BoxStream)
        }
        .boxed()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_leaves_nothing_wherever_it_was() {
    let broker = three();
    let open = Arc::new(AtomicI64::new(0));
    let connector = Arc::new(Counting(broker.connector(), open.clone()));
    let cluster = Cluster::connect_with(broker.config().with_connector(connector)).await.unwrap();
    // What the cluster itself keeps open, after a look-up at each node.
    drain(scan(cluster.clone(), ScanSpec::new("t"))).await;
    let quiet = |open: &AtomicI64| open.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = quiet(&open);
    for events in (0..40).chain([500, 1_500, 2_999]) {
        let mut stream = scan(cluster.clone(), small());
        for _ in 0..events {
            stream.next().await.unwrap().unwrap();
        }
        drop(stream);
        // Polled once, and dropped while it waits.
        let mut stream = scan(cluster.clone(), small());
        assert!(stream.next().now_or_never().is_none());
        drop(stream);
        // Never polled at all.
        drop(scan(cluster.clone(), small()));
        let gone = timeout(Duration::from_secs(5), async {
            while quiet(&open) > before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(gone.await.is_ok(), "after {events}: {} connections, {before} before", quiet(&open));
    }
    broker.clear_requests();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(broker.count(ApiKey::Fetch), 0, "nobody fetches any more");
    for node in 1..=3 {
        assert_eq!(broker.sessions(node), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_position_while_the_last_are_looked_for_starts_the_search_again() {
    let broker = three();
    let mut events = scan(cluster(&broker).await, small().partitions([0]).last(900));
    let mut ledger = Ledger::default();
    // The search begins; before anything is handed over most of it is deleted.
    assert!(events.next().now_or_never().is_none());
    let begun = broker.until(Duration::from_secs(5), |kafka| kafka.count(ApiKey::Fetch) > 1).await;
    assert!(begun);
    broker.delete_records("t", 0, 600);
    while let Some(item) = events.next().await {
        ledger.take(item);
    }
    assert!(ledger.all_done(), "{ledger:?}");
    let offsets = ledger.of(0).offsets();
    assert_eq!(offsets.last(), Some(&999));
    assert!(offsets.windows(2).all(|two| two[1] > two[0]));
}

#[tokio::test(start_paused = true)]
async fn offsets_that_never_come_do_not_hang_the_scan() {
    let broker = three();
    broker.fault(ApiKey::ListOffsets).always().map(|answer: &mut ListOffsetsResponse| answer.topics.clear());
    let start = Instant::now();
    let ledger =
        read(&broker, ScanSpec::new("t").from(ScanFrom::Earliest).timeout(Duration::from_secs(5))).await;
    assert!(start.elapsed() < Duration::from_secs(20));
    for partition in 0..3 {
        assert_eq!(ledger.partitions[&partition].error.as_ref().unwrap().kind(), ErrorKind::Timeout);
    }
}

#[test]
fn a_runtime_that_ends_is_an_error_not_a_hang() {
    let driving = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let calling = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    calling.block_on(async {
        let broker = three();
        let config = broker.config().with_runtime(driving.handle().clone());
        let cluster = Cluster::connect_with(config).await.unwrap();
        let mut events = scan(cluster, small());
        let Some(Ok(ScanEvent::Progress { .. })) = events.next().await else { panic!() };
        driving.shutdown_background();
        let rest = timeout(Duration::from_secs(60), events.collect::<Vec<_>>()).await.unwrap();
        assert_eq!(rest.last().unwrap().as_ref().unwrap_err().kind(), ErrorKind::Closed);
    });
}
