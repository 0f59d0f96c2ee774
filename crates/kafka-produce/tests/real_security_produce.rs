//! Producers on real brokers' secured listeners: records and transactions over SASL_SSL and over sessions that end, and
//! rights that are missing until they are granted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use kafka_consume::{Consumer, ConsumerConfig, Position};
use kafka_meta::{Cluster, ClusterConfig, Error, ErrorKind, Sasl, TlsConfig, Token};
use kafka_produce::{Producer, ProducerConfig, ProducerRecord};
use testkit::Kafka;
use testkit::kafka::Operation::Write;
use testkit::kafka::Resource::{Topic, TransactionalId};
use testkit::kafka::{self, Certificates, unsecured_token};
use tokio::time::{Instant, timeout};

const LIMIT: Duration = Duration::from_secs(100);

fn record(topic: &str, value: usize) -> ProducerRecord {
    ProducerRecord::new(topic).partition(0).value(value.to_string())
}

/// The values of a partition that committed readers see.
async fn values(kafka: &Kafka, topic: &str, count: usize) -> Vec<usize> {
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new().max_wait_ms(100));
    consumer.assign([(topic.to_owned(), 0)], Position::Earliest).await.unwrap();
    let mut all = Vec::new();
    let reading = timeout(LIMIT, async {
        while all.len() < count {
            let records = consumer.poll().await.unwrap();
            all.extend(
                records
                    .into_iter()
                    .map(|record| String::from_utf8_lossy(&record.value.unwrap()).parse::<usize>().unwrap()),
            );
        }
    });
    reading.await.expect("everything that was acknowledged is there");
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_and_transactions_go_over_sasl_ssl_and_over_sessions_that_end() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .secured()
        .unwrap()
        .property("connections.max.reauth.ms", "2500")
        .start()
        .await
        .unwrap();
    kafka.create_topic("plain", 1, 1, &[]).await.unwrap();
    kafka.create_topic("whole", 1, 1, &[]).await.unwrap();
    kafka.ready_for_transactions().await.unwrap();
    let tls = TlsConfig::new().with_ca_file(Certificates::make().unwrap().authority());
    let config = ClusterConfig::new(&kafka.listener("SASLS").unwrap())
        .with_tls(tls)
        .with_sasl(Sasl::scram_sha_512("alice", "alice-secret"));
    let cluster = Cluster::connect_with(config).await.unwrap();
    let plain = Producer::new(cluster.clone(), ProducerConfig::new());
    let whole = Producer::transactional(cluster, ProducerConfig::new(), "copy").await.unwrap();
    let start = Instant::now();
    let (mut sent, mut committed) = (0, 0);
    // Three sessions' worth, on connections that stay.
    while start.elapsed() < Duration::from_secs(8) {
        plain.send(record("plain", sent)).await.expect("no error surfaces");
        sent += 1;
        whole.begin_transaction().await.unwrap();
        for _ in 0..5 {
            whole.send(record("whole", committed)).await.expect("no error surfaces");
            committed += 1;
        }
        whole.commit_transaction().await.expect("no error surfaces");
    }
    plain.close().await.unwrap();
    whole.close().await.unwrap();
    assert_eq!(values(&kafka, "plain", sent).await, (0..sent).collect::<Vec<_>>());
    assert_eq!(values(&kafka, "whole", committed).await, (0..committed).collect::<Vec<_>>());
}

async fn connect_as(kafka: &Kafka, user: &'static str) -> Cluster {
    let sasl = Sasl::oauthbearer(move || async move { Ok(Token::new(unsecured_token(user, 3_600))) });
    let config = ClusterConfig::new(&kafka.listener("SASLP").unwrap()).with_sasl(sasl);
    Cluster::connect_with(config).await.unwrap()
}

#[track_caller]
fn is_denied(error: &Error, code: &str) {
    assert_eq!(error.kind(), ErrorKind::Authorization, "{error}");
    assert!(error.to_string().contains(code), "{error}");
}

/// Sends until the right that was granted is known here, which takes a few seconds at most.
async fn sent_once_it_may(producer: &Producer, topic: &str, value: usize) {
    let sending = timeout(Duration::from_secs(20), async {
        while let Err(error) = producer.send(record(topic, value)).await {
            is_denied(&error, "AUTHORIZATION_FAILED");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    sending.await.expect("the same producer writes once it may");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_rights_are_named_and_heal_when_granted() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().secured().unwrap().with_acls().start().await.unwrap();
    kafka.create_topic("closed", 1, 1, &[]).await.unwrap();
    kafka.create_topic("open", 1, 1, &[]).await.unwrap();
    kafka.ready_for_transactions().await.unwrap();
    let quick = || ProducerConfig::new().max_block_ms(20_000);

    // Who may write nothing gets no producer id either.
    let nobody = Producer::new(connect_as(&kafka, "nobody").await, quick());
    let error = nobody.send(record("closed", 0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authorization, "{error}");

    let producer = Producer::new(connect_as(&kafka, "writer").await, quick());
    kafka.allow("writer", Topic("open"), Write).await.unwrap();
    for round in 0..2 {
        let error = producer.send(record("closed", 0)).await.unwrap_err();
        is_denied(&error, "TOPIC_AUTHORIZATION_FAILED");
        assert_eq!(error.topic(), Some("closed"), "{error}");
        producer.send(record("open", round)).await.expect("the other topic is none of its business");
    }
    kafka.allow("writer", Topic("closed"), Write).await.unwrap();
    sent_once_it_may(&producer, "closed", 0).await;
    kafka.allow("nobody", Topic("closed"), Write).await.unwrap();
    sent_once_it_may(&nobody, "closed", 1).await;
    assert_eq!(values(&kafka, "closed", 2).await, [0, 1]);

    let cluster = connect_as(&kafka, "whole").await;
    kafka.allow("whole", Topic("open"), Write).await.unwrap();
    let error = Producer::transactional(cluster.clone(), quick(), "locked").await.expect_err("refused");
    is_denied(&error, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED");
    assert_eq!(error.transactional_id(), Some("locked"), "{error}");
    kafka.allow("whole", TransactionalId("locked"), Write).await.unwrap();
    let producer = Producer::transactional(cluster, quick(), "locked").await.unwrap();
    producer.begin_transaction().await.unwrap();
    let error = producer.send(record("closed", 2)).await.unwrap_err();
    is_denied(&error, "TOPIC_AUTHORIZATION_FAILED");
    assert_eq!(error.topic(), Some("closed"), "{error}");
    assert!(producer.commit_transaction().await.is_err(), "nothing half-committed");
    producer.abort_transaction().await.unwrap();
    kafka.allow("whole", Topic("closed"), Write).await.unwrap();
    let committing = timeout(Duration::from_secs(15), async {
        loop {
            producer.begin_transaction().await.unwrap();
            match producer.send(record("closed", 2)).await {
                Ok(_) => break producer.commit_transaction().await.unwrap(),
                Err(error) => is_denied(&error, "TOPIC_AUTHORIZATION_FAILED"),
            }
            producer.abort_transaction().await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    committing.await.expect("the same producer writes once it may");
    assert_eq!(values(&kafka, "closed", 3).await, [0, 1, 2]);
}
