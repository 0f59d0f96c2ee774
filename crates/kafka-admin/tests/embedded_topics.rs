//! Topics on the embedded broker: one result per item, in the order asked, whatever happens on the way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use kafka_admin::{Admin, Cluster, ErrorCode, ErrorKind, NewPartitions, NewTopic, RecordsToDelete};
use kafka_meta::wire::protocol::messages::ApiKey;
use testkit::embedded::Embedded;

async fn start(nodes: i32) -> (Embedded, Admin) {
    let kafka = Embedded::start(nodes);
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    (kafka, Admin::new(cluster))
}

#[tokio::test(start_paused = true)]
async fn each_topic_has_its_own_result_in_the_order_asked() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic("taken", 1);
    let topics = [
        NewTopic::new("b").partitions(3).replication_factor(2),
        NewTopic::new("taken"),
        NewTopic::new("a").assignment([[2, 3], [3, 1]]),
        NewTopic::new("b"),
        NewTopic::new("wide").replication_factor(9),
        NewTopic::new("both").partitions(2).assignment([[1]]),
    ];
    let results = admin.create_topics(topics).await.unwrap();
    let names: Vec<_> = results.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["b", "taken", "a", "b", "wide", "both"]);
    let kinds: Vec<_> =
        results.iter().map(|(_, result)| result.as_ref().err().map(|error| error.kind())).collect();
    assert_eq!(kinds[0], None);
    assert_eq!(kinds[1], Some(ErrorKind::Broker(ErrorCode::TOPIC_ALREADY_EXISTS)));
    assert_eq!(kinds[2], None);
    assert_eq!(kinds[3], Some(ErrorKind::InvalidRequest));
    assert_eq!(kinds[4], Some(ErrorKind::Broker(ErrorCode::INVALID_REPLICATION_FACTOR)));
    assert_eq!(kinds[5], Some(ErrorKind::InvalidRequest));
    let text = results[1].1.as_ref().unwrap_err().to_string();
    assert!(text.contains("taken") && text.contains("already exists"), "{text}");
    let made = results[0].1.as_ref().unwrap();
    assert_eq!((made.partitions, made.replication_factor), (Some(3), Some(2)));

    let described = admin.describe_topics(["a", "nope", "b"]).await.unwrap();
    let a = described[0].1.as_ref().unwrap();
    assert_eq!(a.partitions.iter().map(|part| part.replicas.clone()).collect::<Vec<_>>(), [[2, 3], [3, 1]]);
    assert_eq!(described[1].1.as_ref().unwrap_err().kind(), ErrorKind::UnknownTopic);
    assert_eq!(described[2].1.as_ref().unwrap().id, made.id.unwrap());
    let listed = admin.list_topics().await.unwrap();
    assert_eq!(listed.iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), ["a", "b", "taken"]);

    let deleted = admin.delete_topics(["a", "nope"]).await.unwrap();
    assert!(deleted[0].1.is_ok());
    assert_eq!(deleted[1].1.as_ref().unwrap_err().kind(), ErrorKind::UnknownTopic);
}

#[tokio::test(start_paused = true)]
async fn records_are_deleted_at_each_leader() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic("t", 3);
    for partition in 0..3 {
        kafka.append_records("t", partition, [("k", "v"), ("k", "v"), ("k", "v")]);
    }
    let wanted = [
        (("t", 0), RecordsToDelete::before(2)),
        (("t", 1), RecordsToDelete::all()),
        (("t", 2), RecordsToDelete::before(9)),
        (("t", 0), RecordsToDelete::before(1)),
    ];
    let results = admin.delete_records(wanted).await.unwrap();
    assert_eq!(*results[0].1.as_ref().unwrap(), 2);
    assert_eq!(*results[1].1.as_ref().unwrap(), 3);
    assert_eq!(results[2].1.as_ref().unwrap_err().kind(), ErrorKind::OffsetOutOfRange);
    assert_eq!(results[3].1.as_ref().unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert_eq!(kafka.count(ApiKey::DeleteRecords), 3);
    let _ = (Duration::ZERO, NewPartitions::from(3));
}
