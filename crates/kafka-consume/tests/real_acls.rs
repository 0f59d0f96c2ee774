//! Java's cases of authorisation (Z09, Z20 to Z53) against real brokers with ACLs: each refusal names its resource,
//! stops only what it concerns, and heals when the right is granted.
//!
//! Every test has a user of its own, by a token in that name, and topics and groups of its own: they share a cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;

use kafka_consume::{
    ClassicConsumer, Cluster, ClusterConfig, CommittedOffset, Consumer, ConsumerConfig, Error, ErrorKind,
    GroupConsumer, Position, Sasl, Token,
};
use support::{LIMIT, Oracle, one, partitions, poll_error};
use testkit::Kafka;
use testkit::kafka::Operation::{Describe, Read, Write};
use testkit::kafka::Resource::{Group, Topic, Topics};
use testkit::kafka::{self, Operation, Resource, unsecured_token};
use testkit::produce::Writer;
use tokio::time::timeout;

async fn cluster() -> &'static Kafka {
    let build = || Kafka::builder().secured().unwrap().with_acls().quick_groups();
    let kafka = Kafka::shared(build).await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    kafka
}

async fn connect_as(kafka: &Kafka, user: &'static str) -> Cluster {
    let sasl = Sasl::oauthbearer(move || async move { Ok(Token::new(unsecured_token(user, 3_600))) });
    let config = ClusterConfig::new(&kafka.listener("SASLP").unwrap()).with_sasl(sasl);
    Cluster::connect_with(config).await.unwrap()
}

fn quick() -> ConsumerConfig {
    ConsumerConfig::new().max_wait_ms(100)
}

fn in_group(group: &str) -> ConsumerConfig {
    quick().group_id(group)
}

/// A topic of one partition with ten records.
async fn topic(kafka: &Kafka, name: &str) {
    kafka.create_topic(name, 1, 1, &[]).await.unwrap();
    Writer::new(&kafka.bootstrap()).numbers(name, 0, 0..10).await.unwrap();
}

async fn allow(kafka: &Kafka, user: &str, rights: &[(Resource<'_>, Operation)]) {
    for (resource, operation) in rights {
        kafka.allow(user, *resource, *operation).await.unwrap();
    }
}

#[track_caller]
fn names_topic(error: &Error, topic: &str) {
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Authorization, Some(topic)), "{error}");
    assert!(error.to_string().contains("TOPIC_AUTHORIZATION_FAILED"), "{error}");
}

#[track_caller]
fn names_group(error: &Error, group: &str) {
    assert_eq!((error.kind(), error.group()), (ErrorKind::Authorization, Some(group)), "{error}");
    assert!(error.to_string().contains("GROUP_AUTHORIZATION_FAILED"), "{error}");
}

/// The error of an assignment, or of the first poll that has one.
async fn assign_error(consumer: &mut Consumer, topic: &str, position: Position) -> Error {
    match consumer.assign(one(topic, 0), position).await {
        Err(error) => error,
        Ok(()) => poll_error(consumer).await,
    }
}

/// Reads the ten records of a topic with whatever polls; only refusals may come before.
macro_rules! reads_ten {
    ($consumer:expr, $topic:expr) => {{
        let mut oracle = Oracle::strict();
        let reading = timeout(LIMIT, async {
            while oracle.count < 10 {
                match $consumer.poll().await {
                    Ok(records) => {
                        for record in &records {
                            assert_eq!(record.topic.as_str(), $topic);
                            oracle.take(&record);
                        }
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Authorization, "{error}"),
                }
            }
        });
        assert!(reading.await.is_ok(), "{} of ten records of {}", oracle.count, $topic);
    }};
}

/// The first error of polls that may bring records.
macro_rules! first_error {
    ($consumer:expr) => {
        timeout(LIMIT, async {
            loop {
                if let Err(error) = $consumer.poll().await {
                    break error;
                }
            }
        })
        .await
        .expect("an error comes")
    };
}

/// A member on a group it may read.
macro_rules! member {
    ($kind:ident, $cluster:expr, $group:expr, $($topic:expr),+) => {
        $kind::subscribe($cluster.clone(), quick(), $group, [$($topic),+]).await.unwrap()
    };
}

#[tokio::test]
async fn java_z20_to_z26_assigned_by_hand() {
    if !kafka::enabled() {
        return;
    }
    let kafka = cluster().await;
    topic(kafka, "z20").await;
    let cluster = connect_as(kafka, "hand").await;

    let mut alone = Consumer::new(cluster.clone(), quick());
    names_topic(&assign_error(&mut alone, "z20", Position::Earliest).await, "z20");

    // To describe and to write are not to read.
    for right in [Describe, Write] {
        allow(kafka, "hand", &[(Topic("z20"), right), (Group("z24"), Read)]).await;
        let mut consumer = Consumer::new(cluster.clone(), in_group("z24"));
        names_topic(&assign_error(&mut consumer, "z20", Position::Earliest).await, "z20");
        kafka.forbid("hand").await.unwrap();
    }

    allow(kafka, "hand", &[(Topic("z20"), Read)]).await;
    // The position is the group's, and the group may not be looked at.
    let mut stored = Consumer::new(cluster.clone(), in_group("z21"));
    let committed = Position::Committed(Box::new(Position::Earliest));
    names_group(&assign_error(&mut stored, "z20", committed.clone()).await, "z21");
    // Z22: a group that is not used is no hindrance.
    alone.assign(one("z20", 0), Position::Latest).await.unwrap();
    alone.seek_to_beginning(one("z20", 0)).await.unwrap();
    reads_ten!(alone, "z20");

    allow(kafka, "hand", &[(Group("z21"), Read)]).await;
    if stored.assignment().is_empty() {
        stored.assign(one("z20", 0), committed).await.unwrap();
    }
    reads_ten!(stored, "z20");
}

#[tokio::test]
async fn java_z27_to_z32_patterns() {
    if !kafka::enabled() {
        return;
    }
    let kafka = cluster().await;
    topic(kafka, "z27-topic").await;
    let cluster = connect_as(kafka, "patterns").await;
    allow(kafka, "patterns", &[(Group("z27-new"), Read), (Group("z27-old"), Read)]).await;
    let mut new =
        GroupConsumer::subscribe_pattern(cluster.clone(), quick(), "z27-new", "z27-.*").await.unwrap();
    let mut old =
        ClassicConsumer::subscribe_pattern(cluster.clone(), quick(), "z27-old", "z27-.*").await.unwrap();
    // Z27: nothing matches that may be seen, and that is no error.
    let joined = timeout(LIMIT, async {
        while new.group_metadata().is_err() || old.group_metadata().is_err() {
            assert!(new.poll().await.expect("no error").is_empty());
            assert!(old.poll().await.expect("no error").is_empty());
        }
    });
    joined.await.expect("both join");
    assert!(new.assignment().is_empty() && old.assignment().is_empty());

    // Z28: seen and not to be read.
    allow(kafka, "patterns", &[(Topic("z27-topic"), Describe)]).await;
    names_topic(&first_error!(new), "z27-topic");
    names_topic(&first_error!(old), "z27-topic");

    // Z29, Z32.
    allow(kafka, "patterns", &[(Topic("z27-topic"), Read)]).await;
    reads_ten!(new, "z27-topic");
    reads_ten!(old, "z27-topic");
    new.leave().await.unwrap();
    old.leave().await.unwrap();
}

#[tokio::test]
async fn java_z30_z31_internal_topics_never_match() {
    if !kafka::enabled() {
        return;
    }
    let kafka = cluster().await;
    topic(kafka, "z30-topic").await;
    let cluster = connect_as(kafka, "internal").await;
    let rights = [(Group("z30-new"), Read), (Group("z30-old"), Read), (Topic("z30-topic"), Read)];
    allow(kafka, "internal", &rights).await;
    // Even with every right to it.
    allow(kafka, "internal", &[(Topic("__consumer_offsets"), Read)]).await;
    let pattern = "z30-topic|__consumer_offsets";
    let mut new =
        GroupConsumer::subscribe_pattern(cluster.clone(), quick(), "z30-new", pattern).await.unwrap();
    let mut old =
        ClassicConsumer::subscribe_pattern(cluster.clone(), quick(), "z30-old", pattern).await.unwrap();
    reads_ten!(new, "z30-topic");
    reads_ten!(old, "z30-topic");
    assert_eq!(
        (new.assignment(), old.assignment()),
        (partitions("z30-topic", 1), partitions("z30-topic", 1))
    );
    new.leave().await.unwrap();
    old.leave().await.unwrap();
}

#[tokio::test]
async fn java_z33_z34_a_topic_that_is_hidden_and_then_absent() {
    if !kafka::enabled() {
        return;
    }
    let kafka = cluster().await;
    let cluster = connect_as(kafka, "absent").await;
    names_topic(&cluster.partitions("z33").await.unwrap_err(), "z33");
    // Reading never creates a topic, whatever the rights.
    allow(kafka, "absent", &[(Topic("z33"), Operation::All), (Resource::Cluster, Operation::Create)]).await;
    let error = cluster.partitions("z33").await.unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some("z33")), "{error}");
    topic(kafka, "z33").await;
    let mut consumer = Consumer::new(cluster, quick());
    consumer.assign(one("z33", 0), Position::Earliest).await.unwrap();
    reads_ten!(consumer, "z33");
}

#[tokio::test]
async fn java_z35_to_z40_commits() {
    if !kafka::enabled() {
        return;
    }
    let kafka = cluster().await;
    topic(kafka, "z35").await;
    topic(kafka, "z35-open").await;
    let cluster = connect_as(kafka, "commits").await;
    let mut consumer = Consumer::new(cluster.clone(), in_group("z35"));
    // A known offset needs no look-up, so no right either.
    let both = [("z35".to_owned(), 0), ("z35-open".to_owned(), 0)];
    consumer.assign(both, Position::Offset(5)).await.unwrap();
    let commit = async |consumer: &mut Consumer, topics: &[&str]| {
        let offsets = topics.iter().map(|topic| (((*topic).to_owned(), 0), CommittedOffset::new(5)));
        consumer.commit_offsets(offsets.collect::<Vec<_>>()).await
    };
    // Z35: no right at all.
    names_group(&commit(&mut consumer, &["z35"]).await.unwrap_err(), "z35");
    // Z39: the topic's is not enough.
    allow(kafka, "commits", &[(Topic("z35"), Read)]).await;
    names_group(&commit(&mut consumer, &["z35"]).await.unwrap_err(), "z35");
    kafka.forbid("commits").await.unwrap();

    // Z36, Z37, Z38: the refusal is that topic's alone.
    allow(kafka, "commits", &[(Group("z35"), Read), (Topic("z35-open"), Read)]).await;
    for right in [None, Some(Write), Some(Describe)] {
        if let Some(right) = right {
            allow(kafka, "commits", &[(Topic("z35"), right)]).await;
        }
        let results = commit(&mut consumer, &["z35", "z35-open"]).await.unwrap();
        names_topic(results[0].1.as_ref().unwrap_err(), "z35");
        assert_eq!(results[0].1.as_ref().unwrap_err().partition(), Some(0));
        assert!(results[1].1.is_ok(), "{:?}", results[1].1);
    }
    // Z40.
    allow(kafka, "commits", &[(Topic("z35"), Read)]).await;
    let results = commit(&mut consumer, &["z35", "z35-open"]).await.unwrap();
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
}

#[tokio::test]
async fn java_z41_to_z45_committed_offsets() {
    if !kafka::enabled() {
        return;
    }
    let kafka = cluster().await;
    topic(kafka, "z41").await;
    let cluster = connect_as(kafka, "committed").await;
    let committed = Position::Committed(Box::new(Position::Earliest));
    let mut consumer = Consumer::new(cluster.clone(), in_group("z41"));
    // Z41, Z43: whatever the group allows, the topic is looked at first.
    names_topic(&assign_error(&mut consumer, "z41", committed.clone()).await, "z41");
    allow(kafka, "committed", &[(Group("z41"), Read)]).await;
    names_topic(&assign_error(&mut consumer, "z41", committed.clone()).await, "z41");
    kafka.forbid("committed").await.unwrap();
    // Z42.
    allow(kafka, "committed", &[(Topic("z41"), Read)]).await;
    let mut consumer = Consumer::new(cluster.clone(), in_group("z41"));
    names_group(&assign_error(&mut consumer, "z41", committed.clone()).await, "z41");
    kafka.forbid("committed").await.unwrap();
    // Z44: to describe the topic is enough for a position.
    allow(kafka, "committed", &[(Group("z41"), Read), (Topic("z41"), Describe)]).await;
    let mut consumer = Consumer::new(cluster.clone(), in_group("z41"));
    consumer.assign(one("z41", 0), committed.clone()).await.unwrap();
    assert_eq!(consumer.position("z41", 0), Some(0));
    assert!(consumer.committed().await.unwrap().is_empty());
    // Z45.
    allow(kafka, "committed", &[(Topic("z41"), Read)]).await;
    reads_ten!(consumer, "z41");
    consumer.commit().await.unwrap();
    assert_eq!(consumer.committed().await.unwrap()[&("z41".to_owned(), 0)].offset, 10);
    // What is taken away later is named as well.
    kafka.forbid("committed").await.unwrap();
    names_group(&consumer.committed().await.unwrap_err(), "z41");
}

#[tokio::test]
async fn java_z48_z49_z50_look_ups_and_a_consumer_that_asks_nothing() {
    if !kafka::enabled() {
        return;
    }
    let kafka = cluster().await;
    topic(kafka, "z48").await;
    let cluster = connect_as(kafka, "lookups").await;
    let mut consumer = Consumer::new(cluster.clone(), in_group("z48"));
    names_topic(&cluster.partitions("z48").await.unwrap_err(), "z48");
    names_topic(&consumer.offsets_for_times([(("z48".to_owned(), 0), 0)]).await.unwrap_err(), "z48");
    names_topic(&consumer.end_offsets(one("z48", 0)).await.unwrap_err(), "z48");
    consumer.close().await.unwrap();

    allow(kafka, "lookups", &[(Topic("z48"), Describe)]).await;
    let consumer = Consumer::new(cluster.clone(), quick());
    assert_eq!(cluster.partitions("z48").await.unwrap(), [0]);
    let times = consumer.offsets_for_times([(("z48".to_owned(), 0), 0)]).await.unwrap();
    assert!(times[&("z48".to_owned(), 0)].is_some());
    assert_eq!(consumer.end_offsets(one("z48", 0)).await.unwrap()[&("z48".to_owned(), 0)], 10);
}

#[tokio::test]
async fn java_z09_prefixes_wildcards_and_two_users() {
    if !kafka::enabled() {
        return;
    }
    let kafka = cluster().await;
    topic(kafka, "z09-a").await;
    topic(kafka, "z09-b").await;
    let prefixed = connect_as(kafka, "prefixed").await;
    let anything = connect_as(kafka, "anything").await;
    let nothing = connect_as(kafka, "nothing").await;
    allow(kafka, "prefixed", &[(Topics("z09-a"), Read), (Group("z09"), Read)]).await;
    allow(kafka, "anything", &[(Topic("*"), Read), (Group("*"), Read)]).await;
    let mut consumer = Consumer::new(prefixed, in_group("z09"));
    consumer.assign(one("z09-a", 0), Position::Earliest).await.unwrap();
    reads_ten!(consumer, "z09-a");
    names_topic(&consumer.end_offsets(one("z09-b", 0)).await.unwrap_err(), "z09-b");
    let mut member = member!(GroupConsumer, anything, "z09-other", "z09-b");
    reads_ten!(member, "z09-b");
    member.leave().await.unwrap();
    // The rights of the others are not this one's.
    let error = GroupConsumer::subscribe(nothing, quick(), "z09-none", ["z09-b"]).await;
    names_group(&error.expect_err("refused"), "z09-none");
}

#[tokio::test]
async fn by_hand_a_denied_topic_stops_itself_and_a_right_that_goes_and_comes_back_loses_nothing() {
    if !kafka::enabled() {
        return;
    }
    let kafka = cluster().await;
    topic(kafka, "own-a").await;
    topic(kafka, "own-b").await;
    let cluster = connect_as(kafka, "both").await;
    allow(kafka, "both", &[(Topic("own-a"), Read), (Topic("own-b"), Describe)]).await;
    let mut consumer = Consumer::new(cluster, quick());
    let both = [("own-a".to_owned(), 0), ("own-b".to_owned(), 0)];
    consumer.assign(both, Position::Earliest).await.unwrap();
    let (mut oracle, mut told) = (Oracle::strict(), None);
    let reading = timeout(Duration::from_secs(20), async {
        while oracle.count < 10 || told.is_none() {
            match consumer.poll().await {
                Ok(records) => oracle.take_all(&records),
                Err(error) => told = Some(error),
            }
        }
    });
    reading.await.expect("the one is read, the other is told");
    names_topic(&told.unwrap(), "own-b");
    // Nothing of the other is held up by it.
    let mut writer = Writer::new(&kafka.bootstrap());
    writer.numbers("own-a", 0, 10..20).await.unwrap();
    let reading = timeout(Duration::from_secs(20), async {
        while oracle.count < 20 {
            oracle.take_all(&consumer.poll().await.expect("it was told"));
        }
    });
    reading.await.expect("the other topic flows");

    kafka.forbid("both").await.unwrap();
    // Written afterwards: a fetch that was let in may still bring what comes while it waits.
    names_topic(&poll_error(&mut consumer).await, "own-a");
    writer.numbers("own-a", 0, 20..30).await.unwrap();
    allow(kafka, "both", &[(Topic("own-a"), Read), (Topic("own-b"), Read)]).await;
    let reading = timeout(LIMIT, async {
        while oracle.count < 40 {
            match consumer.poll().await {
                Ok(records) => oracle.take_all(&records),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Authorization, "{error}"),
            }
        }
    });
    reading.await.expect("both topics are read to their ends, each record once");
}

/// A member of a granted and a denied topic reads the one, is told of the other, and reads both once it may.
macro_rules! reads_what_it_may {
    ($kind:ident, $kafka:expr, $user:literal, $group:literal, $open:literal, $closed:literal) => {{
        let kafka = $kafka;
        topic(kafka, $open).await;
        topic(kafka, $closed).await;
        let cluster = connect_as(kafka, $user).await;
        allow(kafka, $user, &[(Group($group), Read), (Topic($open), Read)]).await;
        let mut member = member!($kind, cluster, $group, $open, $closed);
        names_topic(&first_error!(member), $closed);
        reads_ten!(member, $open);
        assert_eq!(member.assignment(), partitions($open, 1));

        // Z53: the group's right goes while the member lives, and comes back.
        kafka.forbid($user).await.unwrap();
        allow(kafka, $user, &[(Topic($open), Read)]).await;
        names_group(&first_error!(member), $group);
        let results = member.commit().await;
        names_group(&results.unwrap_err(), $group);
        allow(kafka, $user, &[(Group($group), Read), (Topic($closed), Read)]).await;
        reads_ten!(member, $closed);
        let committed = timeout(LIMIT, async {
            loop {
                match member.commit().await {
                    Ok(results) => break results,
                    Err(error) => {
                        assert!(
                            matches!(error.kind(), ErrorKind::Authorization | ErrorKind::Fenced),
                            "{error}"
                        );
                        let _ = member.poll().await;
                    }
                }
            }
        });
        let results = committed.await.expect("commits once it may");
        assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
        member.leave().await.unwrap();
    }};
}

#[tokio::test]
async fn java_z51_z52_z53_a_member_reads_what_it_may_and_the_rest_once_it_may() {
    if !kafka::enabled() {
        return;
    }
    let kafka = cluster().await;
    reads_what_it_may!(GroupConsumer, kafka, "member-new", "z51-new", "z51-new-open", "z51-new-closed");
    reads_what_it_may!(ClassicConsumer, kafka, "member-old", "z51-old", "z51-old-open", "z51-old-closed");
}
