//! The proxy in front of real brokers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use testkit::{Kafka, kafka};

mod proxy_verbs;

#[tokio::test]
async fn every_verb_does_what_it_says() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().nodes(2).start().await.unwrap();
    let id = kafka.create_topic_on("t", &[&[1], &[1]], &[]).await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    proxy_verbs::every_verb_does_what_it_says(&kafka.bootstrap(), id).await;
}
