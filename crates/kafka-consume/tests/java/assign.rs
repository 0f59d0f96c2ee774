//! The Java suites' manual assignment: PlaintextConsumerAssignTest.
//!
//! What is shared with its neighbours is in `real_java_cases.rs`.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn java_a01_a02_nothing_is_committed_before_a_position_is_known() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "a01").await;
    writer.numbers("a01", 0, 0..10_000).await.unwrap();
    let mut consumer = consumer(kafka, ConsumerConfig::new().group_id("a01")).await;
    // Dropped before the look-up can have been answered.
    assert!(consumer.assign(one("a01", 0), Position::Earliest).now_or_never().is_none());
    let stored = consumer.commit_offsets(std::iter::empty()).await.unwrap();
    assert!(stored.is_empty());
    assert!(consumer.committed().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn java_a03_commit_of_all_consumed() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "a03").await;
    writer.numbers("a03", 0, 0..10_000).await.unwrap();
    let config = ConsumerConfig::new().group_id("a03");
    let mut consumer = assigned(kafka, "a03", Position::Latest, config).await;
    consumer.seek("a03", 0, 0).unwrap();
    read_some(&mut consumer, 10_000).await;
    consumer.commit().await.unwrap();
    assert_eq!(consumer.committed().await.unwrap()[&key("a03")].offset, 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_a04_a05_assign_and_consume_without_a_group() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "a04").await;
    writer.send("a04", 0, numbered(0, 0..10)).await.unwrap();
    let mut consumer = assigned(kafka, "a04", Position::Earliest, ConsumerConfig::new()).await;
    assert_eq!(read_some(&mut consumer, 10).await[0].offset, 0);
    assert_eq!(consumer.position("a04", 0), Some(10));
    consumer.seek("a04", 0, 1).unwrap();
    assert_eq!(read_some(&mut consumer, 9).await[0].offset, 1);
    assert_eq!(consumer.position("a04", 0), Some(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn java_a06_a07_a08_committed_offsets_of_another_consumer() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "a06").await;
    writer.send("a06", 0, numbered(0, 0..110)).await.unwrap();
    let config = || ConsumerConfig::new().group_id("a06").max_poll_records(100);
    let mut first = assigned(kafka, "a06", Position::Earliest, config()).await;
    read_some(&mut first, 100).await;
    first.commit().await.unwrap();
    let second = assigned(kafka, "a06", Position::Earliest, config()).await;
    for _ in 0..2 {
        assert_eq!(second.committed().await.unwrap()[&key("a06")].offset, 100);
    }
    first.commit_offsets([(key("a06"), CommittedOffset::new(10))]).await.unwrap();
    first.close().await.unwrap();
    let position = Position::Committed(Box::new(Position::Latest));
    let mut third = assigned(kafka, "a06", position, config()).await;
    assert_eq!(third.position("a06", 0), Some(10));
    assert_eq!(read_some(&mut third, 100).await[0].offset, 10);
    third.seek_to_committed().await.unwrap();
    assert_eq!(read_some(&mut third, 100).await[0].offset, 10);
}
