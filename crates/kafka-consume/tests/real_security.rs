//! Consumers and members on real brokers' secured listeners: reading goes on over sessions that end, over users that
//! vanish and come back, and over rights that are missing until they are granted.
#![cfg(all(feature = "tls", feature = "scram"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;

use kafka_consume::{
    ClassicConsumer, Cluster, ClusterConfig, Consumer, ConsumerConfig, ErrorKind, GroupConsumer, Position,
    Sasl, TlsConfig, Token,
};
use support::{LIMIT, Oracle, one, poll_error, read_some, read_to};
use testkit::Kafka;
use testkit::kafka::{self, Certificates, Operation, Resource, unsecured_token};
use testkit::produce::Writer;
use tokio::time::{Instant, timeout};

/// SASL_SSL as alice, who may do everything.
async fn alice(kafka: &Kafka) -> Cluster {
    let sasl = Sasl::scram_sha_512("alice", "alice-secret");
    Cluster::connect_with(secured(kafka, sasl)).await.unwrap()
}

fn secured(kafka: &Kafka, sasl: Sasl) -> ClusterConfig {
    let tls = TlsConfig::new().with_ca_file(Certificates::make().unwrap().authority());
    ClusterConfig::new(&kafka.listener("SASLS").unwrap()).with_tls(tls).with_sasl(sasl)
}

fn quick() -> ConsumerConfig {
    ConsumerConfig::new().max_wait_ms(100)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_goes_on_over_sessions_of_seconds_and_members_stay_in_their_group() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .secured()
        .unwrap()
        .quick_groups()
        .property("connections.max.reauth.ms", "3000")
        .start()
        .await
        .unwrap();
    kafka.create_topic("t", 2, 1, &[]).await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    let cluster = alice(&kafka).await;
    let mut reader = Consumer::new(cluster.clone(), quick());
    reader.assign(support::partitions("t", 2), Position::Earliest).await.unwrap();
    let mut member =
        GroupConsumer::subscribe(cluster.clone(), quick(), "next-generation", ["t"]).await.unwrap();
    let mut classic = ClassicConsumer::subscribe(cluster.clone(), quick(), "classic", ["t"]).await.unwrap();

    let bootstrap = kafka.bootstrap();
    let total = 300_u64;
    let writing = tokio::spawn(async move {
        let mut writer = Writer::new(&bootstrap);
        for number in 0..total {
            for partition in 0..2 {
                writer.numbers("t", partition, number..number + 1).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let wanted = usize::try_from(total).unwrap() * 2;
    let mut oracles = [Oracle::strict(), Oracle::strict(), Oracle::strict()];
    let start = Instant::now();
    let reading = timeout(LIMIT, async {
        // Several sessions' worth, and everything that was written.
        while oracles.iter().any(|oracle| oracle.count < wanted) || start.elapsed() < Duration::from_secs(15)
        {
            oracles[0].take_all(&reader.poll().await.expect("no error surfaces"));
            oracles[1].take_all(&member.poll().await.expect("no error surfaces"));
            oracles[2].take_all(&classic.poll().await.expect("no error surfaces"));
        }
    });
    assert!(reading.await.is_ok(), "{oracles:?}");
    writing.await.unwrap();
    assert_eq!(reader.metrics().fetch_errors, 0, "no connection was lost to an ended session");
    for results in [member.commit().await.unwrap(), classic.commit().await.unwrap()] {
        assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    }
    member.leave().await.unwrap();
    classic.leave().await.unwrap();
}

async fn carol_in(kafka: &Kafka) -> Cluster {
    let config = secured(kafka, Sasl::scram_sha_512("carol", "carol-secret"));
    let connecting = timeout(LIMIT, async {
        loop {
            // The credentials reach the broker a moment after they were taken.
            if let Ok(cluster) = Cluster::connect_with(config.clone()).await {
                return cluster;
            }
        }
    });
    connecting.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_vanishes_is_an_authentication_error_and_the_same_consumer_reads_on_when_it_is_back() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .secured()
        .unwrap()
        .property("connections.max.reauth.ms", "2000")
        .start()
        .await
        .unwrap();
    kafka.create_topic("t", 1, 1, &[]).await.unwrap();
    kafka.carol(true).await.unwrap();
    let cluster = carol_in(&kafka).await;
    let mut writer = Writer::new(&kafka.bootstrap());
    writer.numbers("t", 0, 0..10).await.unwrap();
    let mut consumer = Consumer::new(cluster.clone(), quick());
    consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
    assert_eq!(read_some(&mut consumer, 10).await.len(), 10);

    kafka.carol(false).await.unwrap();
    let error = poll_error(&mut consumer).await;
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
    let start = Instant::now();
    let error = cluster.partitions("t").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());

    kafka.carol(true).await.unwrap();
    writer.numbers("t", 0, 10..20).await.unwrap();
    let mut all = Vec::new();
    let read = timeout(LIMIT, async {
        while all.len() < 10 {
            match consumer.poll().await {
                Ok(records) => all.extend(records),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Authentication, "{error}"),
            }
        }
    });
    read.await.expect("reads on");
    let offsets: Vec<i64> = all.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, (10..20).collect::<Vec<_>>());
}

/// The first error of a member's polls.
macro_rules! member_error {
    ($member:expr) => {
        timeout(LIMIT, async {
            loop {
                match $member.poll().await {
                    Ok(records) => assert!(records.is_empty()),
                    Err(error) => break error,
                }
            }
        })
        .await
        .expect("an error comes")
    };
}

/// Subscribes as soon as the right that was granted has reached the coordinator.
macro_rules! member_in {
    ($kind:ident, $cluster:expr, $group:expr) => {
        timeout(LIMIT, async {
            loop {
                match $kind::subscribe($cluster.clone(), quick(), $group, ["closed"]).await {
                    Ok(member) => break member,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Authorization, "{error}"),
                }
            }
        })
        .await
        .expect("subscribes once it may")
    };
}

/// Reads ten records with a member that may still be refused at first.
macro_rules! member_reads {
    ($member:expr) => {
        timeout(LIMIT, async {
            let mut count = 0;
            while count < 10 {
                match $member.poll().await {
                    Ok(records) => count += records.len(),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Authorization, "{error}"),
                }
            }
            assert_eq!(count, 10);
        })
        .await
        .expect("reads once it may")
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_rights_are_named_and_heal_when_granted() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().secured().unwrap().with_acls().quick_groups().start().await.unwrap();
    kafka.create_topic("closed", 1, 1, &[]).await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    Writer::new(&kafka.bootstrap()).numbers("closed", 0, 0..10).await.unwrap();
    let cluster = Cluster::connect_with(secured(&kafka, Sasl::plain("bob", "bob-secret"))).await.unwrap();

    let error = cluster.partitions("closed").await.unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Authorization, Some("closed")));
    let mut consumer = Consumer::new(cluster.clone(), quick());
    // Whether the assignment or the first poll tells is not the point.
    let error = match consumer.assign(one("closed", 0), Position::Earliest).await {
        Err(error) => error,
        Ok(()) => poll_error(&mut consumer).await,
    };
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Authorization, Some("closed")), "{error}");
    // Whether subscribing or the first poll tells is not the point either.
    let error = match GroupConsumer::subscribe(cluster.clone(), quick(), "bobs-new", ["closed"]).await {
        Err(error) => error,
        Ok(mut member) => member_error!(member),
    };
    assert_eq!(error.kind(), ErrorKind::Authorization, "{error}");
    assert!(error.to_string().contains("GROUP_AUTHORIZATION_FAILED"), "{error}");
    let error = match ClassicConsumer::subscribe(cluster.clone(), quick(), "bobs-old", ["closed"]).await {
        Err(error) => error,
        Ok(mut member) => member_error!(member),
    };
    // The topic's refusal may come first: both rights are missing.
    assert_eq!(error.kind(), ErrorKind::Authorization, "{error}");

    kafka.allow("bob", Resource::Group("bobs-new"), Operation::Read).await.unwrap();
    kafka.allow("bob", Resource::Group("bobs-old"), Operation::Read).await.unwrap();
    let mut member = member_in!(GroupConsumer, cluster, "bobs-new");
    let mut classic = member_in!(ClassicConsumer, cluster, "bobs-old");
    // The coordinator of KIP-848 names no topic; the classic member learns it from metadata.
    let error = member_error!(member);
    assert_eq!(error.kind(), ErrorKind::Authorization, "{error}");
    assert!(error.to_string().contains("TOPIC_AUTHORIZATION_FAILED"), "{error}");
    let error = member_error!(classic);
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Authorization, Some("closed")), "{error}");

    kafka.allow("bob", Resource::Topic("closed"), Operation::Read).await.unwrap();
    if consumer.assignment().is_empty() {
        consumer.assign(one("closed", 0), Position::Earliest).await.unwrap();
    }
    let ends = [(("closed".to_owned(), 0), 10)].into();
    let mut oracle = Oracle::strict();
    let healed = timeout(LIMIT, async {
        // Refusals that were on their way may still come out.
        while oracle.count < 10 {
            match consumer.poll().await {
                Ok(records) => oracle.take_all(&records),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Authorization, "{error}"),
            }
        }
    });
    healed.await.expect("reads once it may");
    read_to(&mut consumer, &ends, &mut oracle).await;

    member_reads!(member);
    member_reads!(classic);
    member.leave().await.unwrap();
    classic.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_versions_of_kafka_let_in_the_same_ways() {
    if !kafka::enabled() {
        return;
    }
    for version in ["3.9.1", "4.4.0"] {
        let kafka = Kafka::builder().version(version).secured().unwrap().start().await.unwrap();
        kafka.create_topic("t", 1, 1, &[]).await.unwrap();
        kafka.ready_for_groups().await.unwrap();
        Writer::new(&kafka.bootstrap()).numbers("t", 0, 0..10).await.unwrap();
        let token = || async { Ok(Token::new(unsecured_token("alice", 3_600))) };
        let made = Certificates::make().unwrap();
        let mutual = TlsConfig::new()
            .with_ca_file(made.authority())
            .with_identity_files(made.client(), made.client_key());
        for (way, config) in [
            ("PLAIN", secured(&kafka, Sasl::plain("alice", "alice-secret"))),
            ("SCRAM-SHA-256", secured(&kafka, Sasl::scram_sha_256("alice", "alice-secret"))),
            ("SCRAM-SHA-512", secured(&kafka, Sasl::scram_sha_512("alice", "alice-secret"))),
            ("OAUTHBEARER", secured(&kafka, Sasl::oauthbearer(token))),
            ("mutual TLS", ClusterConfig::new(&kafka.listener("MTLS").unwrap()).with_tls(mutual)),
        ] {
            let cluster = Cluster::connect_with(config).await;
            let cluster = cluster.unwrap_or_else(|error| panic!("{version}, {way}: {error}"));
            let mut consumer = Consumer::new(cluster, quick().group_id("g"));
            consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
            assert_eq!(read_some(&mut consumer, 10).await.len(), 10, "{version}, {way}");
            assert!(consumer.commit().await.unwrap().iter().all(|(_, result)| result.is_ok()));
        }
        let error = Cluster::connect_with(secured(&kafka, Sasl::plain("alice", "wrong"))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Authentication, "{version}: {error}");
    }
}
