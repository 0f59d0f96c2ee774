//! Administration over SASL_SSL, and rights that are missing until they are granted: one result per item, each refusal
//! naming what it is about.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use kafka_admin::{Admin, NewTopic};
use kafka_meta::{Cluster, ClusterConfig, Error, ErrorKind, Sasl, TlsConfig, Token};
use testkit::Kafka;
use testkit::kafka::Operation::{Create, Describe};
use testkit::kafka::Resource::{Group, Topic};
use testkit::kafka::{self, Certificates, unsecured_token};

async fn connect(kafka: &Kafka, sasl: Sasl) -> Admin {
    let tls = TlsConfig::new().with_ca_file(Certificates::make().unwrap().authority());
    let config = ClusterConfig::new(&kafka.listener("SASLS").unwrap()).with_tls(tls).with_sasl(sasl);
    Admin::new(Cluster::connect_with(config).await.unwrap())
}

#[track_caller]
fn is_denied(error: &Error, code: &str) {
    assert_eq!(error.kind(), ErrorKind::Authorization, "{error}");
    assert!(error.to_string().contains(code), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_go_over_sasl_ssl_and_each_refusal_is_its_items_own() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().secured().unwrap().with_acls().start().await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    let admin = connect(&kafka, Sasl::scram_sha_256("alice", "alice-secret")).await;
    let made = admin.create_topics([NewTopic::new("a"), NewTopic::new("b")]).await.unwrap();
    assert!(made.iter().all(|(_, result)| result.is_ok()), "{made:?}");
    assert!(admin.list_topics().await.unwrap().iter().any(|topic| topic.name == "a"));

    let token = || async { Ok(Token::new(unsecured_token("clerk", 3_600))) };
    let clerk = connect(&kafka, Sasl::oauthbearer(token)).await;
    kafka.allow("clerk", Topic("mine"), Create).await.unwrap();
    let made = clerk.create_topics([NewTopic::new("mine"), NewTopic::new("other")]).await.unwrap();
    assert!(made[0].1.is_ok(), "{made:?}");
    let error = made[1].1.as_ref().unwrap_err();
    is_denied(error, "TOPIC_AUTHORIZATION_FAILED");
    assert_eq!(error.topic(), Some("other"), "{error}");
    let deleted = clerk.delete_topics(["mine"]).await.unwrap();
    is_denied(deleted[0].1.as_ref().unwrap_err(), "TOPIC_AUTHORIZATION_FAILED");

    let described = clerk.describe_groups(["locked"]).await.unwrap();
    let error = described[0].1.as_ref().unwrap_err();
    is_denied(error, "GROUP_AUTHORIZATION_FAILED");
    assert_eq!(error.group(), Some("locked"), "{error}");
    let error = clerk.list_group_offsets("locked").await.unwrap_err();
    is_denied(&error, "GROUP_AUTHORIZATION_FAILED");
    assert_eq!(error.group(), Some("locked"), "{error}");
    kafka.allow("clerk", Group("locked"), Describe).await.unwrap();
    let listed = tokio::time::timeout(Duration::from_secs(30), clerk.list_group_offsets("locked")).await;
    assert!(listed.unwrap().unwrap().is_empty(), "allowed now");
}
