//! ListOffsets.

use kafka_protocol::messages::ListOffsetsRequest;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};

use super::raw::{RawBroker, Txn, batch_at, list, name, produce};
use super::sessions::setup;

pub async fn each_target_finds_its_offset(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for stamps in [[1000, 1001], [9000, 9001], [5000, 5001]] {
        produce(&mut s.leader, &s.topic, 1, batch_at(&stamps)).await;
    }
    let none = (-1, -1, -1);
    for (timestamp, full, empty) in [
        (-1, (-1, 6, 0), (-1, 0, 0)),
        (-2, (-1, 0, 0), (-1, 0, 0)),
        (-3, (9001, 3, 0), none),
        (-4, (-1, 0, 0), (-1, 0, 0)),
        (-5, none, none),
        (0, (1000, 0, 0), none),
        (1002, (9000, 2, 0), none),
        (5001, (9000, 2, 0), none),
        (9002, none, none),
    ] {
        for (partition, expected) in [(1, full), (2, empty)] {
            let found = list(&mut s.leader, 9, &s.topic, partition, timestamp, false).await;
            assert_eq!(found.error_code, 0);
            assert_eq!(
                (found.timestamp, found.offset, found.leader_epoch),
                expected,
                "{timestamp} of {partition}"
            );
        }
    }
}

pub async fn a_target_above_the_version_is_35(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for (version, timestamp, code) in
        [(6, -3, 35), (7, -3, 0), (7, -4, 35), (8, -4, 0), (8, -5, 35), (9, -5, 0)]
    {
        let found = list(&mut s.leader, version, &s.topic, 0, timestamp, false).await;
        assert_eq!(found.error_code, code, "{timestamp} in v{version}");
    }
}

pub async fn old_versions_name_no_epoch_and_unknown_things_are_errors(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let found = list(&mut s.leader, 3, &s.topic, 0, -1, false).await;
    assert_eq!((found.error_code, found.offset, found.leader_epoch), (0, 1, -1));
    assert_eq!(list(&mut s.leader, 7, &s.topic, 77, -1, false).await.error_code, 3);
    assert_eq!(list(&mut s.leader, 7, "no-such-topic", 0, -1, false).await.error_code, 3);
    let asked = ListOffsetsPartition::default().with_partition_index(0).with_timestamp(-1);
    let asked = asked.with_current_leader_epoch(99);
    let topic = ListOffsetsTopic::default().with_name(name(&s.topic)).with_partitions(vec![asked]);
    let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
    assert_eq!(s.leader.call(7, &request).await.topics[0].partitions[0].error_code, 75);
}

pub async fn an_open_transaction_hides_everything_from_committed_readers(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut txn = Txn::begin(&s.view).await;
    txn.add(&s.topic, 1).await;
    assert_eq!(txn.produce(&mut s.leader, &s.topic, 1, &[b"a", b"b"]).await, 0);
    assert_eq!(list(&mut s.leader, 7, &s.topic, 1, -1, true).await.offset, 0);
    assert_eq!(list(&mut s.leader, 7, &s.topic, 1, -1, false).await.offset, 2);
    assert_eq!(list(&mut s.leader, 7, &s.topic, 1, 0, true).await.offset, -1);
    assert_eq!(list(&mut s.leader, 7, &s.topic, 1, -3, true).await.offset, -1);
    assert_eq!(list(&mut s.leader, 7, &s.topic, 1, -2, true).await.offset, 0);
    txn.end(true).await;
}
