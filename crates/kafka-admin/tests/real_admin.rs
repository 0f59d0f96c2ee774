//! Administration of real brokers, beside Java's own tools: what one side does the other one sees, and both tell the
//! same of topics, settings, offsets and groups.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;

use kafka_admin::{
    Admin, AlterConfigOp, Cluster, CommittedOffset, ConfigResource, ConfigSource, ErrorCode, ErrorKind,
    GroupFilter, GroupState, GroupType, NewTopic, OffsetSpec,
};
use support::{classic, consumer, kinds, one, stable};
use testkit::java::Java;
use testkit::produce::Writer;
use testkit::{Kafka, kafka};
use tokio::time::Instant;

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
const CONFIGS: &str = "kafka.admin.ConfigCommand";
const OFFSETS: &str = "org.apache.kafka.tools.GetOffsetShell";

const SESSION: &str = "consumer.session.timeout.ms";
const HEARTBEAT: &str = "consumer.heartbeat.interval.ms";

async fn admin(kafka: &Kafka) -> Admin {
    Admin::new(Cluster::connect(&kafka.bootstrap()).await.unwrap())
}

/// Whether one of the lines has all of these words.
fn has(lines: &[String], words: &[&str]) -> bool {
    lines.iter().any(|line| words.iter().all(|word| line.contains(word)))
}

async fn topics_and_settings(admin: &Admin, java: &Java) {
    let wanted = [
        NewTopic::new("orders").partitions(3).replication_factor(3).config("retention.ms", "3600000"),
        NewTopic::new("placed").assignment([[2, 1], [3, 2]]),
        NewTopic::new("plain"),
        NewTopic::new("bad name"),
        NewTopic::new("wide").replication_factor(9),
        NewTopic::new("odd").config("no.such.config", "1"),
    ];
    let looked = admin.validate_topics(wanted.clone()).await.unwrap();
    let made = admin.create_topics(wanted).await.unwrap();
    let refused = |code| Some(ErrorKind::Broker(code));
    let expected = [
        None,
        None,
        None,
        refused(ErrorCode::INVALID_TOPIC_EXCEPTION),
        refused(ErrorCode::INVALID_REPLICATION_FACTOR),
        refused(ErrorCode::INVALID_CONFIG),
    ];
    assert_eq!((kinds(&looked), kinds(&made)), (expected.to_vec(), expected.to_vec()));
    let text = made[5].1.as_ref().unwrap_err().to_string();
    assert!(text.contains("no.such.config"), "{text}");
    let orders = made[0].1.as_ref().unwrap();
    assert_eq!((orders.partitions, orders.replication_factor), (Some(3), Some(3)));
    let again = one(admin.create_topics([NewTopic::new("orders")]).await.unwrap()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Broker(ErrorCode::TOPIC_ALREADY_EXISTS));

    let described = admin.describe_topics(["placed", "orders", "nope"]).await.unwrap();
    assert_eq!(kinds(&described), [None, None, Some(ErrorKind::UnknownTopic)]);
    let placed = described[0].1.as_ref().unwrap();
    assert_eq!((placed.partitions[0].leader, &placed.partitions[0].replicas[..]), (Some(2), &[2, 1][..]));
    assert_eq!(described[1].1.as_ref().unwrap().id, orders.id.unwrap());

    let lines = java.command(TOPICS, &["--describe"]).await.unwrap();
    let id = format!("TopicId: {}", java_id(orders.id.unwrap()));
    let head = ["Topic: orders", "PartitionCount: 3", "ReplicationFactor: 3", "retention.ms=3600000", &id];
    assert!(has(&lines, &head), "{lines:#?}");
    assert!(has(&lines, &["Topic: placed", "Partition: 1", "Leader: 3", "Replicas: 3,2"]), "{lines:#?}");

    let listed: Vec<_> =
        admin.list_topics().await.unwrap().into_iter().filter(|topic| !topic.internal).collect();
    let listed: Vec<_> = listed.iter().map(|topic| (topic.name.as_str(), topic.partitions)).collect();
    assert_eq!(listed, [("orders", 3), ("placed", 2), ("plain", 1)]);

    let topic = ConfigResource::topic("orders");
    let ops = vec![
        AlterConfigOp::set("max.message.bytes", "50000"),
        AlterConfigOp::append("cleanup.policy", "compact"),
    ];
    let changes = [
        (topic.clone(), ops),
        (ConfigResource::broker(2), vec![AlterConfigOp::set("message.max.bytes", "2000000")]),
        (ConfigResource::topic("plain"), vec![AlterConfigOp::set("retention.ms", "soon")]),
    ];
    let changed = admin.incremental_alter_configs(changes).await.unwrap();
    assert_eq!(kinds(&changed), [None, None, refused(ErrorCode::INVALID_CONFIG)]);
    let lines = java.command(CONFIGS, &["--describe", "--entity-type", "topics", "--entity-name", "orders"]);
    let lines = lines.await.unwrap();
    for (name, value) in
        [("max.message.bytes", "50000"), ("cleanup.policy", "delete,compact"), ("retention.ms", "3600000")]
    {
        assert!(has(&lines, &[&format!("{name}={value}")]), "{lines:#?}");
        // Each broker learns of it in its own time.
        let told = async || one(admin.describe_configs([topic.clone()]).await.unwrap()).unwrap();
        until(name, async || told().await.value(name) == Some(value)).await;
        assert_eq!(told().await.get(name).unwrap().source, ConfigSource::Topic);
    }
    let brokers =
        admin.describe_configs([ConfigResource::broker(2), ConfigResource::broker(3)]).await.unwrap();
    assert_eq!(brokers[0].1.as_ref().unwrap().value("node.id"), Some("2"));
    assert_eq!(brokers[1].1.as_ref().unwrap().value("node.id"), Some("3"));

    let grown = admin.create_partitions([("plain", 4), ("orders", 2)]).await.unwrap();
    assert_eq!(kinds(&grown), [None, refused(ErrorCode::INVALID_PARTITIONS)]);
    let text = grown[1].1.as_ref().unwrap_err().to_string();
    assert!(text.contains("orders") && text.contains("3"), "{text}");
    let cluster = admin.describe_cluster().await.unwrap();
    assert_eq!(cluster.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [1, 2, 3]);
}

/// Ids as Java shows them: URL-safe base64 without padding.
fn java_id(id: kafka_admin::Uuid) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = id.as_u128();
    let sextet = |at: u32| {
        let shifted = if at == 21 { bits << 4 } else { bits >> (122 - 6 * at) };
        char::from(ALPHABET[usize::try_from(shifted & 63).unwrap()])
    };
    (0..22).map(sextet).collect()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn records(kafka: &Kafka, admin: &Admin, java: &Java) {
    let mut writer = Writer::new(&kafka.bootstrap());
    for partition in 0..3 {
        writer.numbers("orders", partition, 0..10).await.unwrap();
    }
    let ends: Vec<_> = (0..3).map(|partition| (("orders", partition), OffsetSpec::Latest)).collect();
    let found = admin.list_offsets(ends.clone()).await.unwrap();
    assert!(found.iter().all(|(_, result)| result.as_ref().unwrap().unwrap().offset == 10), "{found:?}");
    // A topic with two policies lets its records be deleted.
    let deleted =
        admin.delete_records([(("orders", 0), 4), (("orders", 1), 99), (("nope", 0), 1)]).await.unwrap();
    assert_eq!(kinds(&deleted), [None, Some(ErrorKind::OffsetOutOfRange), Some(ErrorKind::UnknownTopic)]);
    assert_eq!(*deleted[0].1.as_ref().unwrap(), 4);
    let early = admin
        .list_offsets([(("orders", 0), OffsetSpec::Earliest), (("orders", 1), OffsetSpec::MaxTimestamp)]);
    let early = early.await.unwrap();
    assert_eq!(early[0].1.as_ref().unwrap().unwrap().offset, 4);
    assert!(early[1].1.as_ref().unwrap().unwrap().timestamp.is_some());
    let lines = java.command(OFFSETS, &["--topic", "orders", "--time", "earliest"]).await.unwrap();
    for line in ["orders:0:4", "orders:1:0", "orders:2:0"] {
        assert!(has(&lines, &[line]), "{lines:#?}");
    }
}

async fn groups(admin: &Admin, java: &Java) {
    // Offsets are set, Java's tool tells the same, and a member starts there.
    let wanted =
        (0..3).map(|partition| (("orders", partition), CommittedOffset::new(i64::from(partition) + 6)));
    let set = admin.alter_group_offsets("new", wanted).await.unwrap();
    assert_eq!(kinds(&set), [None, None, None]);
    let stored = admin.list_group_offsets("new").await.unwrap();
    let stored: Vec<_> = stored.iter().map(|(key, found)| (key.1, found.as_ref().unwrap().offset)).collect();
    assert_eq!(stored, [(0, 6), (1, 7), (2, 8)]);
    let lines = java.consumer_groups(&["--describe", "--group", "new"]).await.unwrap();
    for (partition, offset, lag) in [("0", "6", "4"), ("1", "7", "3"), ("2", "8", "2")] {
        let fields = |line: &String| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields.starts_with(&["new", "orders", partition, offset, "10", lag])
        };
        assert!(lines.iter().any(fields), "{lines:#?}");
    }

    let mut new = consumer(admin, "new", "orders").await.auto_commit(false);
    let mut read = Vec::new();
    while read.len() < 9 {
        read.extend(new.poll().await.unwrap().iter().map(|record| (record.partition, record.offset)));
    }
    read.sort_unstable();
    assert_eq!(read, [(0, 6), (0, 7), (0, 8), (0, 9), (1, 7), (1, 8), (1, 9), (2, 8), (2, 9)]);
    let mut old = classic(admin, "old", "orders").await.instance_id("inst");
    let both =
        async { polling!(new, async { (stable(admin, "new", 1).await, stable(admin, "old", 1).await) }) };
    let (new_seen, old_seen) = polling!(old, both);
    let all: Vec<_> = (0..3).map(|index| ("orders".to_owned(), index)).collect();
    for (seen, kind, assignor) in
        [(&new_seen, GroupType::Consumer, "uniform"), (&old_seen, GroupType::Classic, "range")]
    {
        assert_eq!((&seen.group_type, seen.assignor.as_str()), (&kind, assignor));
        let member = &seen.members[0];
        assert_eq!((&member.assignment, &member.topics[..]), (&all, &["orders".to_owned()][..]));
        assert_eq!(member.host, "/127.0.0.1");
    }
    assert_eq!(new_seen.members[0].is_classic, Some(false));
    assert_eq!(old_seen.members[0].instance_id.as_deref(), Some("inst"));

    // The same by Java's tool, while both go on polling.
    let told = async {
        polling!(new, async {
            let members =
                java.consumer_groups(&["--describe", "--members", "--group", "new", "--group", "old"]);
            let members = members.await.unwrap();
            let listed = java.consumer_groups(&["--list", "--state"]).await.unwrap();
            let ours = admin.list_groups().await.unwrap().all().unwrap();
            (members, listed, ours)
        })
    };
    let (members, listed, ours) = polling!(old, told);
    for (group, seen) in [("new", &new_seen), ("old", &old_seen)] {
        let member = &seen.members[0];
        assert!(has(&members, &[group, &member.member_id, &member.client_id]), "{members:#?}");
        assert!(has(&listed, &[group, "Stable"]), "{listed:#?}");
        let own = ours.iter().find(|listing| listing.group_id == group).unwrap();
        assert_eq!(
            (&own.state, &own.group_type),
            (&Some(GroupState::Stable), &Some(seen.group_type.clone()))
        );
    }
    let classic_only = GroupFilter::new().group_type(GroupType::Classic).state(GroupState::Stable);
    let filtered = admin.list_groups_matching(classic_only).await.unwrap().all().unwrap();
    assert_eq!(filtered.iter().map(|group| group.group_id.as_str()).collect::<Vec<_>>(), ["old"]);

    // With members it is not for outsiders to change.
    let refused = admin.alter_group_offsets("new", [(("orders", 0), CommittedOffset::new(0))]).await.unwrap();
    let error = one(refused).unwrap_err();
    assert_eq!((error.kind(), error.group()), (ErrorKind::Broker(ErrorCode::UNKNOWN_MEMBER_ID), Some("new")));
    let used = admin.delete_group_offsets("new", [("orders", 0), ("plain", 0)]).await.unwrap();
    assert_eq!(kinds(&used), [Some(ErrorKind::Broker(ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC)), None]);
    let busy = admin.delete_groups(["new", "old", "none"]).await.unwrap();
    let full = Some(ErrorKind::Broker(ErrorCode::NON_EMPTY_GROUP));
    assert_eq!(kinds(&busy), [full, full, Some(ErrorKind::Broker(ErrorCode::GROUP_ID_NOT_FOUND))]);
    let removed = admin.remove_members("old", ["inst", "nobody"]).await.unwrap();
    assert_eq!(kinds(&removed), [None, Some(ErrorKind::Broker(ErrorCode::UNKNOWN_MEMBER_ID))]);

    new.leave().await.unwrap();
    drop(old);
    until("the groups to be empty", async || {
        let found = admin.describe_groups(["new", "old"]).await.unwrap();
        found.iter().all(|(_, group)| group.as_ref().unwrap().state == GroupState::Empty)
    })
    .await;
    assert_eq!(kinds(&admin.delete_groups(["old", "new"]).await.unwrap()), [None, None]);
    assert!(admin.list_group_offsets("new").await.unwrap().is_empty());
}

/// A group's session timeout: refused below the broker's floor with the broker's words, above it in force at once.
async fn group_settings(admin: &Admin) {
    let group = ConfigResource::group("short");
    let set = |session: &str, heartbeat: &str| {
        let ops = [AlterConfigOp::set(SESSION, session), AlterConfigOp::set(HEARTBEAT, heartbeat)];
        admin.incremental_alter_configs([(group.clone(), ops)])
    };
    let error = one(set("4000", "1000").await.unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broker(ErrorCode::INVALID_CONFIG));
    let words =
        "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms";
    assert!(error.to_string().contains(words), "{error}");
    one(set("5000", "700").await.unwrap()).unwrap();
    until("the group's setting", async || {
        let told = one(admin.describe_configs([group.clone()]).await.unwrap()).unwrap();
        told.get(SESSION).is_some_and(|entry| {
            entry.value.as_deref() == Some("5000") && entry.source == ConfigSource::Group
        })
    })
    .await;
    let mut member = consumer(admin, "short", "orders").await;
    polling!(member, stable(admin, "short", 1));
    // It never says goodbye.
    drop(member);
    let left = Instant::now();
    until("the session to end", async || {
        let found = one(admin.describe_groups(["short"]).await.unwrap()).unwrap();
        found.members.is_empty()
    })
    .await;
    // The broker's own setting is 30 s.
    assert!(left.elapsed() < Duration::from_secs(15), "{:?}", left.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_javas_tools() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .nodes(3)
        .property("group.initial.rebalance.delay.ms", "0")
        .property("group.consumer.min.session.timeout.ms", "5000")
        .property("group.consumer.session.timeout.ms", "30000")
        .property("group.consumer.min.heartbeat.interval.ms", "500")
        .property("group.consumer.heartbeat.interval.ms", "1000")
        .start()
        .await
        .unwrap();
    let (admin, java) = (admin(&kafka).await, Java::new(&kafka).await.unwrap());
    topics_and_settings(&admin, &java).await;
    records(&kafka, &admin, &java).await;
    groups(&admin, &java).await;
    group_settings(&admin).await;
    let deleted = admin.delete_topics(["orders", "nope", "placed"]).await.unwrap();
    assert_eq!(kinds(&deleted), [None, Some(ErrorKind::UnknownTopic), None]);
    until("the topic to go", async || {
        let found = one(admin.describe_topics(["orders"]).await.unwrap());
        found.is_err_and(|error| error.kind() == ErrorKind::UnknownTopic)
    })
    .await;
    one(admin.create_topics([NewTopic::new("orders")]).await.unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_of_3_9_are_asked_as_of_old() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .version("3.9.1")
        .property("group.initial.rebalance.delay.ms", "0")
        .start()
        .await
        .unwrap();
    let admin = admin(&kafka).await;
    one(admin.create_topics([NewTopic::new("t").partitions(2)]).await.unwrap()).unwrap();
    // Two: an empty group that loses its last offset is gone by itself.
    let both = [(("t", 0), CommittedOffset::new(0)), (("t", 1), CommittedOffset::new(0))];
    assert_eq!(kinds(&admin.alter_group_offsets("g", both).await.unwrap()), [None, None]);
    let mut member = classic(&admin, "g", "t").await;
    let found = polling!(member, stable(&admin, "g", 1));
    assert_eq!((found.group_type, found.members[0].assignment.len()), (GroupType::Classic, 2));
    let missing = one(admin.describe_groups(["none"]).await.unwrap()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Broker(ErrorCode::GROUP_ID_NOT_FOUND));
    let listed = admin.list_groups_matching(GroupFilter::new().group_type(GroupType::Classic)).await.unwrap();
    assert_eq!(listed.all().unwrap().len(), 1);
    let group = ConfigResource::group("g");
    let refused = admin.incremental_alter_configs([(group.clone(), [AlterConfigOp::set(SESSION, "50000")])]);
    assert_eq!(one(refused.await.unwrap()).unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert_eq!(
        one(admin.describe_configs([group]).await.unwrap()).unwrap_err().kind(),
        ErrorKind::InvalidRequest
    );
    member.leave().await.unwrap();
    one(admin.delete_group_offsets("g", [("t", 0)]).await.unwrap()).unwrap();
    one(admin.delete_groups(["g"]).await.unwrap()).unwrap();
    one(admin.delete_topics(["t"]).await.unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_of_4_4_say_it_in_other_words() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().version("4.4.0").start().await.unwrap();
    let admin = admin(&kafka).await;
    let set = [(ConfigResource::group("g"), [AlterConfigOp::set(SESSION, "4000")])];
    let error = one(admin.incremental_alter_configs(set).await.unwrap()).unwrap_err();
    assert_eq!((error.kind(), error.group()), (ErrorKind::Broker(ErrorCode::INVALID_CONFIG), Some("g")));
    assert!(error.to_string().contains("must be in the range 45000 to 60000"), "{error}");
    one(admin.create_topics([NewTopic::new("t")]).await.unwrap()).unwrap();
    let set = admin.alter_group_offsets("g", [(("t", 0), CommittedOffset::new(0))]).await.unwrap();
    assert_eq!(kinds(&set), [None]);
    let found = one(admin.describe_groups(["g"]).await.unwrap()).unwrap();
    assert_eq!((found.group_type, found.state), (GroupType::Classic, GroupState::Empty));
    one(admin.delete_groups(["g"]).await.unwrap()).unwrap();
}
