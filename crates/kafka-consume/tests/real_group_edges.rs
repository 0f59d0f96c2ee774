//! Edges of a membership that only a real coordinator shows: patterns it cannot parse, look-ups outside a pattern,
//! an assignment before the metadata, partitions that come late, and a static leader that comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod group_support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use group_support::{AnyMember, Kind, Owned, PATIENCE, Seen, Topics};
use kafka_consume::{
    Assignor, ClassicConsumer, Cluster, ClusterConfig, ConsumerConfig, ErrorKind, GroupConsumer, OffsetReset,
};
use kafka_protocol::messages::{ApiKey, ConsumerGroupHeartbeatRequest, MetadataRequest};
use testkit::{Kafka, Proxy, kafka};

async fn kafka() -> &'static Kafka {
    let kafka =
        Kafka::shared(|| Kafka::builder().quick_groups().property("group.initial.rebalance.delay.ms", "0"));
    let kafka = kafka.await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    kafka
}

fn config() -> ConsumerConfig {
    ConsumerConfig::new().max_wait_ms(50).with_session_timeout_ms(20_000).with_heartbeat_interval_ms(500)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_s12_end_offsets_of_a_topic_outside_the_pattern_disturb_nothing() {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    let mut inside = Topics::create(kafka, &["s12-one", "s12-two"], 1, 1).await;
    let mut outside = Topics::create(kafka, &["outside-s12"], 1, 1).await;
    inside.write(10).await;
    outside.write(7).await;
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let mut member = GroupConsumer::subscribe_pattern(cluster, config(), "s12", "s12-.*").await.unwrap();
    let mut seen = Seen::default();
    let deadline = Instant::now() + PATIENCE;
    for round in 1..=3 {
        while seen.read() < inside.total() {
            assert!(Instant::now() < deadline, "round {round}: {} of {}", seen.read(), inside.total());
            seen.take(&member.poll().await.unwrap());
        }
        // By name, while what is read is asked for by id.
        let ends = member.end_offsets([("outside-s12".to_owned(), 0)]).await.unwrap();
        assert_eq!(ends[&("outside-s12".to_owned(), 0)], 7);
        inside.write(10).await;
    }
    while seen.read() < inside.total() {
        assert!(Instant::now() < deadline, "{} of {}", seen.read(), inside.total());
        seen.take(&member.poll().await.unwrap());
    }
    seen.assert_each_once(&inside.all, 40);
    member.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_s14_a_pattern_the_broker_cannot_parse_is_told_in_its_words_and_can_be_replaced() {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    let topics = Topics::create(kafka, &["s14"], 2, 1).await;
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let mut member = GroupConsumer::subscribe_pattern(cluster, config(), "s14", "(t.*c").await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    let error = loop {
        assert!(Instant::now() < deadline, "not refused");
        if let Err(error) = member.poll().await {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.to_string().contains("(t.*c"), "{error}");
    // It stays refused, and is not asked about without end.
    assert_eq!(member.poll().await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    member.resubscribe(["s14"]).unwrap();
    while member.assignment().into_iter().collect::<Owned>() != topics.all {
        assert!(Instant::now() < deadline, "not replaced");
        member.poll().await.unwrap();
    }
    member.leave().await.unwrap();
    // And one that is never replaced can leave.
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let mut member = GroupConsumer::subscribe_pattern(cluster, config(), "s14-b", "(t.*c").await.unwrap();
    while member.poll().await.is_ok() {
        assert!(Instant::now() < deadline, "not refused");
    }
    member.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fb14_a_topic_whose_metadata_comes_late_costs_no_other_partition() {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    let mut known = Topics::create(kafka, &["f14-known"], 2, 1).await;
    let mut late = Topics::create(kafka, &["f14-late"], 2, 1).await;
    let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
    let (late_id, known_id) =
        (kafka.topic_id("f14-late").await.unwrap(), kafka.topic_id("f14-known").await.unwrap());
    let stripped = proxy.on(ApiKey::Metadata).edit::<MetadataRequest>(move |_, answer| {
        let before = answer.topics.len();
        let is_late = |name: Option<&str>| name == Some("f14-late");
        answer.topics.retain(|topic| {
            !is_late(topic.name.as_ref().map(|name| name.as_str())) && topic.topic_id != late_id
        });
        answer.topics.len() != before
    });
    let cluster = Cluster::connect(&proxy.bootstrap()).await.unwrap();
    let mut member =
        GroupConsumer::subscribe(cluster, config(), "f14", ["f14-known", "f14-late"]).await.unwrap();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Seen::default()));
    member = member.on_rebalance(group_support::Watching { member: 0, seen: seen.clone() });
    known.write(10).await;
    late.write(10).await;
    let deadline = Instant::now() + PATIENCE;
    let poll_until = async |member: &mut GroupConsumer, total: usize, heartbeats: usize| {
        let before = proxy.count(ApiKey::ConsumerGroupHeartbeat);
        loop {
            assert!(Instant::now() < deadline, "{} of {total}", seen.lock().unwrap().read());
            // What is unknown for long is told; it heals by itself.
            match member.poll().await {
                Ok(records) => seen.lock().unwrap().take(&records),
                Err(error) => assert_eq!(error.kind(), ErrorKind::UnknownTopic, "{error}"),
            }
            let beats = proxy.count(ApiKey::ConsumerGroupHeartbeat) - before;
            if seen.lock().unwrap().read() >= total && beats >= heartbeats {
                return;
            }
        }
    };
    poll_until(&mut member, 20, 4).await;
    known.write(10).await;
    poll_until(&mut member, 40, 2).await;
    assert!(stripped.hits() > 0);
    assert_eq!(seen.lock().unwrap().of(0), known.all, "what cannot be named is not owned");
    stripped.remove();
    poll_until(&mut member, 40 + 20, 0).await;
    known.write(10).await;
    late.write(10).await;
    poll_until(&mut member, 100, 0).await;
    {
        let seen = seen.lock().unwrap();
        seen.assert_each_once(&known.all, 30);
        seen.assert_each_once(&late.all, 20);
        assert!(seen.revoked.is_empty(), "{:?}", seen.revoked);
    }
    // On the wire: once the known topic is said to be owned, every list of owned partitions has it.
    let mut owned_once = false;
    for beat in proxy.log().iter().filter_map(|seen| seen.request::<ConsumerGroupHeartbeatRequest>()) {
        let Some(owned) = beat.topic_partitions else { continue };
        let ids: BTreeSet<_> = owned.iter().map(|topic| topic.topic_id).collect();
        assert!(!owned_once || ids.contains(&known_id), "{owned:?}");
        owned_once |= ids.contains(&known_id);
    }
    assert!(owned_once);
    member.leave().await.unwrap();
}

/// One member, alone in its group, whose topic grows from two partitions to four while records come.
async fn grows(kafka: &Kafka, name: &str, kind: Kind, reset: OffsetReset) {
    let mut topics = Topics::create(kafka, &[name], 2, 1).await;
    let mut cluster = ClusterConfig::new(&kafka.bootstrap());
    if matches!(kind, Kind::Classic(_)) {
        // Its leader notices with a refresh; the broker of a KIP-848 group notices by itself.
        cluster = cluster.with_metadata_max_age(Duration::from_secs(1));
    }
    let cluster = Cluster::connect_with(cluster).await.unwrap();
    let from_the_start = reset != OffsetReset::Latest;
    let config = config().auto_offset_reset(reset);
    let mut member = AnyMember::subscribe(kind, cluster, config, name, &topics.names).await.unwrap();
    let mut seen = Seen::default();
    let deadline = Instant::now() + PATIENCE;
    while !(0..2).all(|partition| member.position(name, partition).is_some()) {
        assert!(Instant::now() < deadline, "{name}: nothing is owned");
        seen.take(&member.poll().await.unwrap());
    }
    topics.write(10).await;
    while seen.read() < 20 {
        assert!(Instant::now() < deadline, "{name}: {} of 20", seen.read());
        seen.take(&member.poll().await.unwrap());
    }
    kafka.create_partitions(name, 4).await.unwrap();
    let made: Owned = (2..4).map(|partition| (name.to_owned(), partition)).collect();
    topics.write_to(&made, 10).await;
    while !(2..4).all(|partition| member.position(name, partition).is_some()) {
        assert!(Instant::now() < deadline, "{name}: the new ones are not read");
        seen.take(&member.poll().await.unwrap());
    }
    topics.write(10).await;
    topics.write_to(&made, 10).await;
    let last = |seen: &Seen, key| seen.records.get(key).and_then(|of| of.keys().last().copied());
    while seen.read() < 40 || made.iter().any(|key| last(&seen, key) != Some(19)) {
        assert!(Instant::now() < deadline, "{name}: {:?}", seen.records);
        seen.take(&member.poll().await.unwrap());
    }
    seen.assert_each_once(&topics.all, 20);
    for key in &made {
        let read = &seen.records[key];
        let first = *read.keys().next().unwrap();
        // What was written before the partition was this member's may be passed over, nothing after it.
        assert!(if from_the_start { first == 0 } else { first <= 10 }, "{name}: from {first}");
        assert_eq!(read.keys().copied().collect::<Vec<_>>(), (first..20).collect::<Vec<_>>(), "{name}");
        assert!(read.values().all(|times| *times == 1), "{name}: {read:?}");
    }
    member.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fb11_partitions_that_come_late_start_where_the_policy_says() {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    let classic = || Kind::Classic(vec![Assignor::CooperativeSticky]);
    let last_hour = || OffsetReset::ByDuration(Duration::from_secs(3_600));
    tokio::join!(
        grows(kafka, "f11-new-latest", Kind::Consumer, OffsetReset::Latest),
        grows(kafka, "f11-new-hour", Kind::Consumer, last_hour()),
        grows(kafka, "f11-classic-latest", classic(), OffsetReset::Latest),
        grows(kafka, "f11-classic-hour", classic(), last_hour()),
    );
}

async fn classic(kafka: &Kafka, group: &str, assignor: Assignor, instance: &str) -> ClassicConsumer {
    // The metadata's age is the default of five minutes: nothing is noticed by waiting.
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let member = ClassicConsumer::subscribe(cluster, config(), group, [group]).await.unwrap();
    member.assignors([assignor]).instance_id(instance)
}

/// Both poll until they share so many partitions, each having some.
async fn share(what: &str, members: &mut [ClassicConsumer; 2], wanted: usize, seen: &mut Seen) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let [one, other] = members;
        let (one, other) = tokio::join!(one.poll(), other.poll());
        seen.take(&one.unwrap());
        seen.take(&other.unwrap());
        let shares: Vec<Owned> =
            members.iter().map(|member| member.assignment().into_iter().collect()).collect();
        let all: Owned = shares.iter().flatten().cloned().collect();
        assert_eq!(all.len(), shares.iter().map(BTreeSet::len).sum::<usize>(), "{what}: owned twice");
        if all.len() == wanted && shares.iter().all(|share| !share.is_empty()) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {shares:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_b32_a_returning_static_leader_sees_what_was_made_while_it_was_away_and_else_moves_nothing() {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    for assignor in [Assignor::Range, Assignor::CooperativeSticky] {
        let name = format!("returning-{}", assignor.name());
        let mut topics = Topics::create(kafka, &[&name], 4, 1).await;
        let mut seen = Seen::default();
        let mut leader = classic(kafka, &name, assignor, "leads").await;
        let deadline = Instant::now() + PATIENCE;
        while leader.assignment().len() != 4 {
            assert!(Instant::now() < deadline, "{name}: nothing is owned");
            seen.take(&leader.poll().await.unwrap());
        }
        let mut members = [leader, classic(kafka, &name, assignor, "stays").await];
        share(&name, &mut members, 4, &mut seen).await;
        topics.write(10).await;
        while seen.read() < 40 {
            share(&name, &mut members, 4, &mut seen).await;
            assert!(Instant::now() < deadline, "{name}: {} of 40", seen.read());
        }
        let generation = members[1].group_metadata().unwrap().generation_id;

        // Nothing happens while it is away: nothing moves.
        members[0].leave().await.unwrap();
        members[0] = classic(kafka, &name, assignor, "leads").await;
        share(&name, &mut members, 4, &mut seen).await;
        let later = Instant::now() + Duration::from_secs(2);
        while Instant::now() < later {
            share(&name, &mut members, 4, &mut seen).await;
        }
        assert_eq!(members[0].group_metadata().unwrap().generation_id, generation, "{name}");
        assert_eq!(members[1].group_metadata().unwrap().generation_id, generation, "{name}");

        // Two partitions are made: they are somebody's soon after its return.
        members[0].leave().await.unwrap();
        kafka.create_partitions(&name, 6).await.unwrap();
        members[0] = classic(kafka, &name, assignor, "leads").await;
        share(&name, &mut members, 6, &mut seen).await;
        assert!(members[0].group_metadata().unwrap().generation_id > generation, "{name}");
        let made: Owned = (4..6).map(|partition| (name.clone(), partition)).collect();
        topics.write(10).await;
        topics.write_to(&made, 10).await;
        while seen.read() < 100 {
            share(&name, &mut members, 6, &mut seen).await;
            assert!(Instant::now() < deadline, "{name}: {} of 100", seen.read());
        }
        seen.assert_each_once(&topics.all, 20);
        seen.assert_each_once(&made, 10);
        for mut member in members {
            member.leave().await.unwrap();
        }
    }
}
