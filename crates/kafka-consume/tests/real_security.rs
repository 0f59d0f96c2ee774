//! Consumers and members on real brokers' secured listeners: reading goes on over sessions that end, over users that
//! vanish and come back, and over rights that are missing until they are granted.
#![cfg(all(feature = "tls", feature = "scram"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;

use bytes::Bytes;
use kafka_consume::{
    ClassicConsumer, Cluster, ClusterConfig, Consumer, ConsumerConfig, ErrorKind, GroupConsumer, Position,
    Sasl, TlsConfig,
};
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::{AlterUserScramCredentialsRequest, CreateAclsRequest};
use kafka_protocol::protocol::StrBytes;
use support::{LIMIT, Oracle, one, poll_error, read_some, read_to};
use testkit::Kafka;
use testkit::kafka::{self, Certificates};
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

/// PBKDF2 of "carol-secret".
const SALT: &[u8] = b"salt-of-the-test";
const SALTED: [u8; 64] = [
    203, 4, 122, 224, 140, 230, 161, 246, 147, 117, 211, 183, 168, 239, 180, 205, 104, 76, 54, 63, 124, 130,
    5, 100, 223, 47, 92, 116, 143, 251, 77, 193, 105, 101, 21, 83, 172, 179, 181, 122, 122, 5, 52, 140, 73,
    157, 130, 218, 25, 66, 118, 251, 162, 4, 62, 186, 214, 191, 193, 98, 129, 65, 55, 126,
];

async fn carol(kafka: &Kafka, exists: bool) {
    let name = StrBytes::from_static_str("carol");
    let request = if exists {
        let credential = ScramCredentialUpsertion::default()
            .with_name(name)
            .with_mechanism(2)
            .with_iterations(4_096)
            .with_salt(Bytes::from_static(SALT))
            .with_salted_password(Bytes::from_static(&SALTED));
        AlterUserScramCredentialsRequest::default().with_upsertions(vec![credential])
    } else {
        let credential = ScramCredentialDeletion::default().with_name(name).with_mechanism(2);
        AlterUserScramCredentialsRequest::default().with_deletions(vec![credential])
    };
    let answer = kafka.client(1).await.unwrap().call_at(0, &request).await.unwrap();
    assert_eq!(answer.results[0].error_code, 0);
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
    carol(&kafka, true).await;
    let cluster = carol_in(&kafka).await;
    let mut writer = Writer::new(&kafka.bootstrap());
    writer.numbers("t", 0, 0..10).await.unwrap();
    let mut consumer = Consumer::new(cluster.clone(), quick());
    consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
    assert_eq!(read_some(&mut consumer, 10).await.len(), 10);

    carol(&kafka, false).await;
    let error = poll_error(&mut consumer).await;
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
    let start = Instant::now();
    let error = cluster.partitions("t").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());

    carol(&kafka, true).await;
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

const TOPIC: i8 = 2;
const GROUP: i8 = 3;
const READ: i8 = 3;

async fn allow_bob(kafka: &Kafka, kind: i8, name: &'static str) {
    let acl = AclCreation::default()
        .with_resource_type(kind)
        .with_resource_name(StrBytes::from_static_str(name))
        .with_resource_pattern_type(3)
        .with_principal(StrBytes::from_static_str("User:bob"))
        .with_host(StrBytes::from_static_str("*"))
        .with_operation(READ)
        .with_permission_type(3);
    let request = CreateAclsRequest::default().with_creations(vec![acl]);
    let answer = kafka.client(1).await.unwrap().call_at(3, &request).await.unwrap();
    assert_eq!(answer.results[0].error_code, 0, "{:?}", answer.results[0].error_message);
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

    allow_bob(&kafka, GROUP, "bobs-new").await;
    allow_bob(&kafka, GROUP, "bobs-old").await;
    let mut member = member_in!(GroupConsumer, cluster, "bobs-new");
    let mut classic = member_in!(ClassicConsumer, cluster, "bobs-old");
    // The coordinator of KIP-848 names no topic; the classic member learns it from metadata.
    let error = member_error!(member);
    assert_eq!(error.kind(), ErrorKind::Authorization, "{error}");
    assert!(error.to_string().contains("TOPIC_AUTHORIZATION_FAILED"), "{error}");
    let error = member_error!(classic);
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Authorization, Some("closed")), "{error}");

    allow_bob(&kafka, TOPIC, "closed").await;
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
