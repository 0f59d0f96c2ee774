//! The secured listeners let in whom they should, and Kafka's own client proves it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use testkit::Kafka;
use testkit::java::Java;
use testkit::kafka::{self, Certificates};
use testkit::produce::{Message, Writer};

#[tokio::test]
async fn every_listener_takes_its_clients_and_no_others() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().secured().unwrap().start().await.unwrap();
    let made = Certificates::make().unwrap();
    kafka.create_topic("t", 1, 1, &[]).await.unwrap();
    Writer::new(&kafka.bootstrap()).send("t", 0, [Message::value("v")]).await.unwrap();

    let jaas = |module: &str, password: &str| {
        format!(
            "org.apache.kafka.common.security.{module} required username=\"alice\" password=\"{password}\";"
        )
    };
    let plain = jaas("plain.PlainLoginModule", "alice-secret");
    let wrong = jaas("plain.PlainLoginModule", "wrong");
    let scram = jaas("scram.ScramLoginModule", "alice-secret");
    let authority = made.authority().display().to_string();
    let trust = [("ssl.truststore.type", "PEM"), ("ssl.truststore.location", authority.as_str())];
    let key = std::fs::read_to_string(made.client_key()).unwrap();
    let certificate = std::fs::read_to_string(made.client()).unwrap();
    let own = [
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.key", key.as_str()),
        ("ssl.keystore.certificate.chain", certificate.as_str()),
    ];
    let sasl = |mechanism, config| [("sasl.mechanism", mechanism), ("sasl.jaas.config", config)];
    let with = |protocol, parts: &[&[(&'static str, &str)]]| {
        let mut all = vec![("security.protocol".to_owned(), String::from(protocol))];
        all.extend(parts.concat().iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        all
    };
    let cases = [
        ("SASLP", with("SASL_PLAINTEXT", &[&sasl("PLAIN", &plain)]), true),
        ("SASLP", with("SASL_PLAINTEXT", &[&sasl("PLAIN", &wrong)]), false),
        ("SASLP", with("SASL_PLAINTEXT", &[&sasl("SCRAM-SHA-512", &scram)]), true),
        ("TLS", with("SSL", &[&trust]), true),
        ("MTLS", with("SSL", &[&trust, &own]), true),
        ("MTLS", with("SSL", &[&trust]), false),
        ("SASLS", with("SASL_SSL", &[&trust, &sasl("SCRAM-SHA-256", &scram)]), true),
    ];
    for (listener, config, welcome) in cases {
        let java = Java::at(&kafka.listener(listener).unwrap(), kafka.version().unwrap()).await.unwrap();
        let config: Vec<(&str, &str)> =
            config.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let read = java.read_with(&["t"], false, &config).await;
        match (read, welcome) {
            (Ok(records), true) => assert_eq!(records.len(), 1, "{listener}"),
            (Err(failure), false) => {
                let text = failure.to_string();
                assert!(text.contains("Authentication") || text.contains("Ssl"), "{listener}: {text}");
            }
            (Ok(_), false) => panic!("{listener} let in whom it should not"),
            (Err(failure), true) => panic!("{listener}: {failure}"),
        }
    }
}
