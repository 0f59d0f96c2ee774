//! A record's size, its copy, its next position.

use bytes::Bytes;
use kafka_meta::TopicName;

use super::{Record, Timestamp, TimestampType};
use crate::Headers;

fn record() -> Record {
    let batch = Bytes::from_static(b"..key.value..");
    Record {
        topic: TopicName::new("orders"),
        partition: 3,
        leader_epoch: Some(7),
        offset: 41,
        timestamp: Timestamp::new(-1, TimestampType::CreateTime),
        key: Some(batch.slice(2..5)),
        value: Some(batch.slice(6..11)),
        headers: [("a", Some("1")), ("a", None), ("", Some(""))].into_iter().collect(),
    }
}

#[test]
fn a_record_fits_136_bytes_and_crosses_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    crosses::<Record>();
    assert!(size_of::<Record>() <= 136, "{}", size_of::<Record>());
    assert_eq!(size_of::<Timestamp>(), 9);
}

#[test]
fn a_detached_record_is_equal_and_shares_nothing() {
    let record = record();
    let copy = record.clone().detach();
    assert_eq!(copy, record);
    assert_ne!(copy.key.as_ref().unwrap().as_ptr(), record.key.as_ref().unwrap().as_ptr());
    let bare = Record { key: None, value: Some(Bytes::new()), headers: Headers::new(), ..record };
    assert_eq!(bare.clone().detach(), bare);
}

#[test]
fn the_next_offset_carries_the_epoch_of_the_record_passed() {
    let next = record().next_offset();
    assert_eq!((next.offset, next.leader_epoch), (42, Some(7)));
}
