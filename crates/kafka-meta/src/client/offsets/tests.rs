//! Versions and the request's shape.

use kafka_protocol::messages::ListOffsetsRequest;
use kafka_protocol::protocol::Encodable;

use super::{Ask, NEWEST, Target, topics, versions};
use crate::{ErrorKind, TopicName};

fn ask(target: Target) -> Ask {
    Ask { topic: TopicName::new("orders"), partition: 0, leader_epoch: None, target }
}

#[test]
fn a_target_is_only_sent_in_versions_that_know_it() {
    assert_eq!(versions(false, &[ask(Target::Latest), ask(Target::Timestamp(5))]), 1..=NEWEST);
    assert_eq!(versions(true, &[ask(Target::Earliest)]), 2..=NEWEST);
    assert_eq!(versions(false, &[ask(Target::Latest), ask(Target::MaxTimestamp)]), 7..=NEWEST);
}

#[test]
fn asks_are_grouped_by_topic_and_every_version_encodes() {
    let mut second = ask(Target::Earliest);
    second.partition = 1;
    let other = Ask { topic: TopicName::new("refunds"), ..second.clone() };
    let topics = topics(&[ask(Target::Timestamp(7)), other, second]).unwrap();
    assert_eq!(topics.iter().map(|topic| topic.partitions.len()).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(topics[0].partitions[0].timestamp, 7);
    assert_eq!(topics[0].partitions[1].timestamp, -2);
    let request = ListOffsetsRequest::default().with_topics(topics).with_timeout_ms(9);
    for version in 1..=NEWEST {
        request.encode(&mut bytes::BytesMut::new(), version).unwrap();
    }
}

#[test]
fn a_negative_timestamp_is_refused() {
    let error = topics(&[ask(Target::Timestamp(-1))]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}
