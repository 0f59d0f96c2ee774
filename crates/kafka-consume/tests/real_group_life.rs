//! What members live through on a real broker without anybody's fault: handlers that take long, static members
//! that come back, auto-commit at its three moments, patterns, other subscriptions, more partitions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod group_support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use group_support::{AnyMember, Kind, PATIENCE, Seen, Topics, Watching};
use kafka_consume::{
    Assignor, ClassicConsumer, Cluster, ClusterConfig, ConsumerConfig, ErrorKind, GroupConsumer,
};
use testkit::{Kafka, kafka};

async fn kafka() -> &'static Kafka {
    let kafka =
        Kafka::shared(|| Kafka::builder().quick_groups().property("group.initial.rebalance.delay.ms", "0"));
    let kafka = kafka.await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    kafka
}

fn kinds() -> [(&'static str, Kind); 2] {
    [("new", Kind::Consumer), ("classic", Kind::Classic(vec![Assignor::CooperativeSticky]))]
}

fn config() -> ConsumerConfig {
    ConsumerConfig::new().max_wait_ms(50).with_session_timeout_ms(6_000).with_heartbeat_interval_ms(1_000)
}

struct Watched {
    member: AnyMember,
    seen: Arc<Mutex<Seen>>,
}

impl Watched {
    async fn new(
        kafka: &Kafka,
        kind: &Kind,
        config: ConsumerConfig,
        group: &str,
        topics: &[&str],
    ) -> Watched {
        let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
        let topics: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
        let member = AnyMember::subscribe(kind.clone(), cluster, config, group, &topics).await.unwrap();
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let member = member.on_rebalance(Watching { member: 0, seen: Arc::clone(&seen) });
        Watched { member, seen }
    }

    async fn poll_until(&mut self, what: &str, condition: impl Fn(&Seen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(&self.seen.lock().unwrap()) {
            assert!(Instant::now() < deadline, "{what} does not come: {:?}", self.member.assignment());
            let records = self.member.poll().await.unwrap();
            self.seen.lock().unwrap().take(&records);
        }
    }

    fn lost(&self) -> u32 {
        self.seen.lock().unwrap().calls.values().map(|calls| calls.2).sum()
    }
}

async fn committed(kafka: &Kafka, group: &str) -> HashMap<(String, i32), i64> {
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let mut reader = kafka_consume::Consumer::new(cluster, ConsumerConfig::new().group_id(group));
    let topics = kafka_consume::Position::Earliest;
    reader.assign([(group.to_owned(), 0), (group.to_owned(), 1)], topics).await.unwrap();
    let all = reader.committed().await.unwrap();
    all.into_iter().map(|(key, offset)| (key, offset.offset)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_slower_than_the_session_keeps_its_partitions_and_one_over_the_rebalance_timeout_loses_them_once()
 {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    for (name, kind) in kinds() {
        let topic = format!("slow-{name}");
        let mut topics = Topics::create(kafka, &[&topic], 2, 1).await;
        topics.write(10).await;
        let config = config().with_rebalance_timeout_ms(14_000);
        let mut slow = Watched::new(kafka, &kind, config, &topic, &[&topic]).await;
        slow.poll_until("the first records", |seen| seen.read() == 20).await;
        tokio::time::sleep(Duration::from_secs(9)).await;
        topics.write(10).await;
        slow.poll_until("records after a slow handler", |seen| seen.read() == 40).await;
        assert_eq!(slow.lost(), 0, "{name}: the session is 6 s, the promise 14 s");
        tokio::time::sleep(Duration::from_secs(16)).await;
        topics.write(10).await;
        slow.poll_until("records after too slow a handler", |seen| seen.read() == 60).await;
        assert_eq!(slow.lost(), 1, "{name}");
        slow.member.leave().await.unwrap();
        let stored = committed(kafka, &topic).await;
        assert_eq!(stored.values().copied().collect::<Vec<_>>(), [30, 30], "{name}");
    }
}

#[test]
fn a_handler_that_blocks_its_thread_keeps_its_partitions_with_the_drivers_elsewhere() {
    if !kafka::enabled() {
        return;
    }
    let drivers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let here = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kafka = drivers.block_on(kafka());
    here.block_on(async {
        let mut topics = Topics::create(kafka, &["blocking"], 2, 1).await;
        topics.write(10).await;
        let cluster = ClusterConfig::new(&kafka.bootstrap()).with_runtime(drivers.handle().clone());
        let cluster = Cluster::connect_with(cluster).await.unwrap();
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let member = GroupConsumer::subscribe(cluster, config(), "blocking", ["blocking"]).await.unwrap();
        let watching = Watching { member: 0, seen: Arc::clone(&seen) };
        let mut member = Watched { member: AnyMember::Consumer(member.on_rebalance(watching)), seen };
        member.poll_until("the first records", |seen| seen.read() == 20).await;
        std::thread::sleep(Duration::from_secs(9));
        topics.write(10).await;
        member.poll_until("records after it", |seen| seen.read() == 40).await;
        assert_eq!(member.lost(), 0);
        member.member.leave().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_member_parks_and_returns_to_the_same_partitions() {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    for (name, kind) in kinds() {
        let topic = format!("static-{name}");
        let topics = Topics::create(kafka, &[&topic], 4, 1).await;
        let mut stays = Watched::new(kafka, &kind, config(), &topic, &[&topic]).await;
        stays.member = stays.member.instance_id("stays");
        stays.poll_until("everything", |seen| seen.of(0) == topics.all).await;
        let mut goes = Watched::new(kafka, &kind, config(), &topic, &[&topic]).await;
        goes.member = goes.member.instance_id("goes");
        let deadline = Instant::now() + PATIENCE;
        while goes.member.assignment().len() != 2 || stays.member.assignment().len() != 2 {
            assert!(Instant::now() < deadline, "{name}: no half each");
            stays.member.poll().await.unwrap();
            goes.member.poll().await.unwrap();
        }
        let (mine, theirs) = (goes.member.assignment(), stays.member.assignment());
        goes.member.leave().await.unwrap();
        let mut back = Watched::new(kafka, &kind, config(), &topic, &[&topic]).await;
        back.member = back.member.instance_id("goes");
        while back.member.assignment().len() != 2 {
            assert!(Instant::now() < deadline, "{name}: not back");
            stays.member.poll().await.unwrap();
            back.member.poll().await.unwrap();
        }
        assert_eq!(back.member.assignment(), mine, "{name}");
        assert_eq!(stays.member.assignment(), theirs, "{name}");
        assert_eq!(stays.lost(), 0);
        if kind_is_new(&kind) {
            // A second one of the same name is kept out, may ask again, and gets in once the first has parked.
            let mut second = Watched::new(kafka, &kind, config(), &topic, &[&topic]).await;
            second.member = second.member.instance_id("goes");
            let refused = loop {
                if let Err(error) = second.member.poll().await {
                    break error;
                }
                assert!(Instant::now() < deadline, "not refused");
            };
            assert_eq!(refused.kind(), ErrorKind::UnreleasedInstanceId, "{refused}");
            assert!(refused.is_retriable() && !refused.is_fatal());
            back.member.leave().await.unwrap();
            while second.member.assignment() != mine {
                assert!(Instant::now() < deadline, "not admitted");
                let _ = second.member.poll().await;
                stays.member.poll().await.unwrap();
            }
        }
        stays.member.leave().await.unwrap();
    }
}

fn kind_is_new(kind: &Kind) -> bool {
    matches!(kind, Kind::Consumer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_are_stored_by_timer_at_a_revocation_and_at_the_leave() {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    for (name, kind) in kinds() {
        let topic = format!("commits-{name}");
        let mut topics = Topics::create(kafka, &[&topic], 2, 1).await;
        topics.write(10).await;
        let mut first =
            Watched::new(kafka, &kind, config().auto_commit_interval_ms(500), &topic, &[&topic]).await;
        first.poll_until("the records", |seen| seen.read() == 20).await;
        let deadline = Instant::now() + PATIENCE;
        while committed(kafka, &topic).await.values().sum::<i64>() != 20 {
            assert!(Instant::now() < deadline, "{name}: the timer stores nothing");
            first.member.poll().await.unwrap();
        }
        first.member.leave().await.unwrap();

        topics.write(10).await;
        let rare = config().auto_commit_interval_ms(600_000);
        let mut second = Watched::new(kafka, &kind, rare.clone(), &topic, &[&topic]).await;
        second.poll_until("the new records", |seen| seen.read() == 20).await;
        let mut third = Watched::new(kafka, &kind, rare, &topic, &[&topic]).await;
        while third.member.assignment().len() != 1 || second.member.assignment().len() != 1 {
            assert!(Instant::now() < deadline, "{name}: no rebalance");
            second.member.poll().await.unwrap();
            third.poll_until("a poll", |_| true).await;
            let records = third.member.poll().await.unwrap();
            assert!(records.is_empty(), "{name}: what was revoked is stored before it goes");
        }
        assert_eq!(committed(kafka, &topic).await.values().sum::<i64>(), 30, "{name}: only what went");
        second.member.leave().await.unwrap();
        assert_eq!(committed(kafka, &topic).await.values().sum::<i64>(), 40, "{name}");
        third.member.leave().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_notice_new_topics_and_never_match_internal_ones() {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    let quick = ClusterConfig::new(&kafka.bootstrap()).with_metadata_max_age(Duration::from_secs(2));
    kafka.create_topic("pattern-a", 2, 1, &[]).await.unwrap();
    kafka.create_topic("no-pattern-b", 2, 1, &[]).await.unwrap();
    let group = Cluster::connect_with(quick.clone()).await.unwrap();
    let classic = Cluster::connect_with(quick).await.unwrap();
    let mut broker =
        GroupConsumer::subscribe_pattern(group, config(), "by-broker", "pattern-.*").await.unwrap();
    let mut client =
        ClassicConsumer::subscribe_pattern(classic, config(), "by-client", "pattern-.*|__.*").await.unwrap();
    let mut deadline = Instant::now() + PATIENCE;
    while broker.assignment().len() != 2 || client.assignment().len() != 2 {
        assert!(Instant::now() < deadline, "{:?} {:?}", broker.assignment(), client.assignment());
        broker.poll().await.unwrap();
        client.poll().await.unwrap();
    }
    kafka.create_topic("pattern-c", 1, 1, &[]).await.unwrap();
    deadline = Instant::now() + PATIENCE;
    while broker.assignment().len() != 3 || client.assignment().len() != 3 {
        assert!(Instant::now() < deadline, "{:?} {:?}", broker.assignment(), client.assignment());
        broker.poll().await.unwrap();
        client.poll().await.unwrap();
    }
    broker.leave().await.unwrap();
    client.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_topics_and_more_partitions_are_taken_up() {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    kafka.create_topic("grow", 2, 1, &[]).await.unwrap();
    kafka.create_topic("other", 1, 1, &[]).await.unwrap();
    let quick = ClusterConfig::new(&kafka.bootstrap()).with_metadata_max_age(Duration::from_secs(2));
    let (one, two) =
        (Cluster::connect_with(quick.clone()).await.unwrap(), Cluster::connect_with(quick).await.unwrap());
    let mut new = GroupConsumer::subscribe(one, config(), "grow-new", ["grow"]).await.unwrap();
    let mut classic = ClassicConsumer::subscribe(two, config(), "grow-classic", ["grow"]).await.unwrap();
    for (step, wanted) in [2_usize, 4, 5, 1].into_iter().enumerate() {
        match step {
            1 => kafka.create_partitions("grow", 4).await.unwrap(),
            2 => {
                new.resubscribe(["grow", "other"]).unwrap();
                classic.resubscribe(["grow", "other"]).unwrap();
            }
            3 => {
                new.resubscribe(["other"]).unwrap();
                classic.resubscribe(["other"]).unwrap();
            }
            _ => {}
        }
        let deadline = Instant::now() + PATIENCE;
        while new.assignment().len() != wanted || classic.assignment().len() != wanted {
            assert!(
                Instant::now() < deadline,
                "step {step}: {:?} {:?}",
                new.assignment(),
                classic.assignment()
            );
            new.poll().await.unwrap();
            classic.poll().await.unwrap();
        }
    }
    new.leave().await.unwrap();
    classic.leave().await.unwrap();
}
