//! Real brokers' secured listeners: who gets in with what, and what each refusal is called.
#![cfg(all(feature = "tls", feature = "scram"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use kafka_meta::{Cluster, ClusterConfig, ErrorKind, Sasl, TlsConfig, Token};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use testkit::Kafka;
use testkit::kafka::{self, Certificates, unsecured_token};
use tokio::time::Instant;

fn bearer(seconds: i64) -> Sasl {
    Sasl::oauthbearer(move || async move { Ok(Token::new(unsecured_token("alice", seconds))) })
}

fn at(kafka: &Kafka, listener: &str) -> ClusterConfig {
    ClusterConfig::new(&kafka.listener(listener).unwrap())
        .with_connect_timeout(Duration::from_secs(20))
        .with_request_timeout(Duration::from_secs(20))
}

async fn refused(what: &str, config: ClusterConfig, kind: ErrorKind, words: &str) {
    let start = Instant::now();
    let Err(error) = Cluster::connect_with(config.clone()).await else { panic!("{what} got in") };
    assert_eq!(error.kind(), kind, "{what}: {error}");
    let text = format!("{error} {error:?} {config:?}");
    assert!(text.contains(words), "{what}: {error}");
    assert!(!text.contains("-secret") && !text.contains("eyJ"), "{what}: {text}");
    assert!(start.elapsed() < Duration::from_secs(60), "{what}: {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_way_in_lets_in_its_own_and_calls_each_refusal_by_its_name() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .listener("PLAINONLY", "SASL_PLAINTEXT")
        .secured()
        .unwrap()
        .property("listener.name.plainonly.sasl.enabled.mechanisms", "PLAIN")
        .property(
            "listener.name.plainonly.plain.sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=\"alice-secret\";",
        )
        .start()
        .await
        .unwrap();
    kafka.create_topic("t", 2, 1, &[]).await.unwrap();
    let made = Certificates::make().unwrap();
    let tls = TlsConfig::new().with_ca_file(made.authority());
    let mechanisms = [
        ("PLAIN", Sasl::plain("alice", "alice-secret")),
        ("SCRAM-SHA-256", Sasl::scram_sha_256("alice", "alice-secret")),
        ("SCRAM-SHA-512", Sasl::scram_sha_512("alice", "alice-secret")),
        ("OAUTHBEARER", bearer(3_600)),
    ];
    for (name, sasl) in mechanisms {
        for config in [
            at(&kafka, "SASLP").with_sasl(sasl.clone()),
            at(&kafka, "SASLS").with_tls(tls.clone()).with_sasl(sasl),
        ] {
            let cluster =
                Cluster::connect_with(config).await.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(cluster.partitions("t").await.unwrap(), [0, 1], "{name}");
        }
    }
    let mutual = tls.clone().with_identity_files(made.client(), made.client_key());
    Cluster::connect_with(at(&kafka, "TLS").with_tls(tls.clone())).await.unwrap();
    Cluster::connect_with(at(&kafka, "MTLS").with_tls(mutual)).await.unwrap();

    let authentication = ErrorKind::Authentication;
    for (what, sasl, words) in [
        ("wrong password, PLAIN", Sasl::plain("alice", "bob-secret"), "Invalid username or password"),
        ("wrong password, SCRAM", Sasl::scram_sha_256("alice", "bob-secret"), "invalid credentials"),
        ("unknown user, PLAIN", Sasl::plain("carol", "carol-secret"), "Invalid username or password"),
        ("unknown user, SCRAM", Sasl::scram_sha_512("carol", "carol-secret"), "invalid credentials"),
        ("expired token", bearer(-600), "invalid_token"),
    ] {
        refused(what, at(&kafka, "SASLP").with_sasl(sasl.clone()), authentication, words).await;
        let secured = at(&kafka, "SASLS").with_tls(tls.clone()).with_sasl(sasl);
        refused(what, secured, authentication, words).await;
    }
    let scram = Sasl::scram_sha_256("alice", "alice-secret");
    refused("mechanism", at(&kafka, "PLAINONLY").with_sasl(scram.clone()), authentication, "PLAIN").await;
    let clear = ClusterConfig::new(&kafka.bootstrap()).with_sasl(scram.clone());
    refused("login on a plain port", clear, authentication, "no SASL login").await;
    let quick = |config: ClusterConfig| config.with_request_timeout(Duration::from_secs(3));
    refused("no login", quick(at(&kafka, "SASLP")), ErrorKind::Disconnected, "may expect SASL").await;
    refused("clear text to TLS", at(&kafka, "TLS"), ErrorKind::Tls, "speaks TLS").await;
    let config = quick(at(&kafka, "SASLP").with_tls(tls.clone()).with_sasl(scram));
    refused("TLS to clear text", config, ErrorKind::Tls, "does this port speak TLS?").await;
    refused("no certificate", at(&kafka, "MTLS").with_tls(tls), ErrorKind::Tls, "misses one").await;
    let stranger = TlsConfig::new().with_ca_file(made.stranger());
    refused("stranger", at(&kafka, "TLS").with_tls(stranger), ErrorKind::Tls, "no trusted authority").await;
    let named = TlsConfig::new().with_ca_file(made.authority()).with_server_name("kafka.example");
    refused("name", at(&kafka, "TLS").with_tls(named), ErrorKind::Tls, "another name").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_created_while_the_client_waits_gets_in() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().secured().unwrap().start().await.unwrap();
    let config = at(&kafka, "SASLP").with_sasl(Sasl::scram_sha_512("carol", "carol-secret"));
    refused("nobody yet", config.clone(), ErrorKind::Authentication, "invalid credentials").await;
    let insisting = tokio::spawn(async move {
        loop {
            match Cluster::connect_with(config.clone()).await {
                Ok(cluster) => return cluster,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Authentication, "{error}"),
            }
        }
    });
    kafka.carol(true).await.unwrap();
    let cluster = tokio::time::timeout(Duration::from_secs(30), insisting).await.unwrap().unwrap();
    assert_eq!(cluster.snapshot().brokers.len(), 1);
}

/// An authority's and a server's files in a folder, under the same names each time.
fn certify(folder: &Path, authority: &str) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, authority);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    std::fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
    let server = key.serialize_pem() + &certificate.pem() + &issuer.pem();
    std::fs::write(folder.join("server.pem"), server).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_new_certificates_is_followed_by_the_same_cluster() {
    if !kafka::enabled() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("kafka-meta-renewed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    certify(&folder, "first");
    let server = folder.join("server.pem").display().to_string();
    let kafka = Kafka::builder()
        .listener("RENEWED", "SSL")
        .property("listener.name.renewed.ssl.keystore.type", "PEM")
        .property("listener.name.renewed.ssl.keystore.location", server)
        .start()
        .await
        .unwrap();
    let tls = TlsConfig::new().with_ca_file(folder.join("ca.pem"));
    let cluster = Cluster::connect_with(at(&kafka, "RENEWED").with_tls(tls)).await.unwrap();
    cluster.refreshed(&[], Instant::now() + Duration::from_secs(30)).await.unwrap();

    certify(&folder, "second");
    kafka.restart_node(1).await.unwrap();
    cluster.refreshed(&[], Instant::now() + Duration::from_secs(60)).await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}
