//! The proxy in front of the embedded broker: no JVM, so in every test run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use testkit::embedded::{Embedded, TopicSpec};

mod proxy_verbs;

#[tokio::test]
async fn every_verb_does_what_it_says() {
    let kafka = Embedded::tcp(2).await.unwrap();
    assert!(kafka.create_topic_with("t", TopicSpec::new(2).with_placement(vec![vec![1], vec![1]])));
    let id = kafka.topic_id("t");
    proxy_verbs::every_verb_does_what_it_says(&kafka.bootstrap(), id).await;
}
