//! The settings on the pages of `docs/security` connect to real brokers, by Java's names and by librdkafka's; and what a
//! client does while it is refused: few attempts, and no secret in any log line.
#![cfg(all(feature = "tls", feature = "scram"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_consume::{Cluster, ClusterConfig, ErrorKind, Sasl, Token, parse_properties};
use testkit::Kafka;
use testkit::kafka::{self, Certificates, unsecured_token};

/// The blocks of settings of a page.
fn blocks(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```properties\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_settings_of_each_page_connect() {
    for block in blocks("oidc.md") {
        // Against an issuer: real_oidc.rs.
        ClusterConfig::from_properties(parse_properties(&block)).unwrap();
    }
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().secured().unwrap().start().await.unwrap();
    let made = Certificates::make().unwrap();
    let client = |end: &str| made.client().with_extension(end).display().to_string();
    for (page, listener) in
        [("tls.md", "TLS"), ("mutual-tls.md", "MTLS"), ("plain.md", "SASLS"), ("scram.md", "SASLS")]
    {
        let all = blocks(page);
        assert_eq!(all.len(), 2, "{page}");
        for block in all {
            let text = block
                .replace("kafka.example:9093", &kafka.listener(listener).unwrap())
                .replace("/etc/kafka/ca.pem", &made.authority().display().to_string())
                .replace("/etc/kafka/billing.crt", &client("crt"))
                .replace("/etc/kafka/billing.key", &client("key"))
                .replace("/etc/kafka/billing.pem", &client("pem"))
                .replace("billing", "alice")
                .replace("a password", "alice-secret");
            let config = ClusterConfig::from_properties(parse_properties(&text)).unwrap();
            let cluster = Cluster::connect_with(config).await;
            let cluster = cluster.unwrap_or_else(|error| panic!("{page}: {error}\n{block}"));
            assert_eq!(cluster.snapshot().brokers.len(), 1, "{page}");
        }
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_login_is_not_insisted_on_and_no_secret_is_in_any_line() {
    if !kafka::enabled() {
        return;
    }
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(lines).unwrap();
    let kafka = Kafka::builder()
        .secured()
        .unwrap()
        .property("connections.max.reauth.ms", "1500")
        .start()
        .await
        .unwrap();
    kafka.carol(true).await.unwrap();
    let config = ClusterConfig::new(&kafka.listener("SASLP").unwrap())
        .with_sasl(Sasl::scram_sha_512("carol", "carol-secret"))
        .with_request_timeout(Duration::from_secs(20));
    let cluster = loop {
        match Cluster::connect_with(config.clone()).await {
            Ok(cluster) => break cluster,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Authentication, "{error}"),
        }
    };
    kafka.carol(false).await.unwrap();
    // A caller in a loop, for ten seconds.
    let calling = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            if let Err(error) = cluster.partitions("t").await
                && error.kind() == ErrorKind::Authentication
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    assert!(calling.await.is_err());
    let server = std::fs::read_to_string(kafka.server_log(1).unwrap()).unwrap();
    let refusals = server.lines().filter(|line| line.contains("Failed authentication")).count();
    assert!((1..=15).contains(&refusals), "{refusals} attempts in ten seconds");
    let text = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(text.contains("authentication failed"), "the log is alive");
    assert!(!text.contains("carol-secret") && !text.contains("c=biws"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_as_somebody_else_is_refused_and_a_new_connection_takes_over() {
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
    let changed = Arc::new(AtomicBool::new(false));
    let who = changed.clone();
    // A token without an end is asked for at each login.
    let sasl = Sasl::oauthbearer(move || {
        let user = if who.load(Ordering::Relaxed) { "bob" } else { "alice" };
        async move {
            let soon = std::time::SystemTime::now() + Duration::from_secs(1);
            Ok(Token::new(unsecured_token(user, 3_600)).with_expiry(soon))
        }
    });
    let config = ClusterConfig::new(&kafka.listener("SASLP").unwrap()).with_sasl(sasl);
    let cluster = Cluster::connect_with(config).await.unwrap();
    kafka.create_topic("t", 1, 1, &[]).await.unwrap();
    changed.store(true, Ordering::Relaxed);
    let server = kafka.server_log(1).unwrap();
    let refused = tokio::time::timeout(Duration::from_secs(30), async {
        while !std::fs::read_to_string(&server).unwrap().contains("Cannot change principals") {
            // Whoever it is now is let in by a new connection, so nothing surfaces.
            cluster.partitions("t").await.expect("what heals by itself is no error");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    refused.await.expect("the broker refuses another principal on the same connection");
    for _ in 0..20 {
        cluster.partitions("t").await.expect("the new connection is one of somebody else's");
    }
}
