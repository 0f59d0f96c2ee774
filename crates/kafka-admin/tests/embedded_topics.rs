//! Topics on the embedded broker: one result per item, in the order asked, whatever happens on the way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use kafka_admin::{ErrorCode, ErrorKind, NewPartitions, NewTopic, RecordsToDelete};
use kafka_meta::wire::protocol::messages::ApiKey;
use support::{kinds, start};

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
}

#[tokio::test(start_paused = true)]
async fn partitions_are_added_where_the_caller_says() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic("a", 1);
    kafka.create_topic("b", 2);
    let wanted = [
        ("a", NewPartitions::increase_to(3).assignment([[2], [3]])),
        ("b", NewPartitions::from(2)),
        ("nope", NewPartitions::from(2)),
    ];
    let looked = admin.validate_partitions(wanted.clone()).await.unwrap();
    let expected =
        [None, Some(ErrorKind::Broker(ErrorCode::INVALID_PARTITIONS)), Some(ErrorKind::UnknownTopic)];
    assert_eq!(kinds(&looked), expected);
    assert_eq!(kinds(&admin.create_partitions(wanted).await.unwrap()), expected);
    let described = admin.describe_topics(["a"]).await.unwrap();
    let leaders: Vec<_> =
        described[0].1.as_ref().unwrap().partitions.iter().map(|part| part.leader).collect();
    assert_eq!(leaders[1..], [Some(2), Some(3)]);
    // A number will do.
    assert_eq!(kinds(&admin.create_partitions([("b", 5)]).await.unwrap()), [None]);
}

#[tokio::test(start_paused = true)]
async fn what_is_only_validated_is_not_made() {
    let (_kafka, admin) = start(3).await;
    let topics =
        || [NewTopic::new("t").partitions(2).config("retention.ms", "5000"), NewTopic::new("bad name")];
    let looked = admin.validate_topics(topics()).await.unwrap();
    let invalid = Some(ErrorKind::Broker(ErrorCode::INVALID_TOPIC_EXCEPTION));
    assert_eq!(kinds(&looked), [None, invalid]);
    assert_eq!(looked[0].1.as_ref().unwrap().id, None);
    assert!(admin.list_topics().await.unwrap().is_empty());
    let made = admin.create_topics(topics()).await.unwrap();
    let configs = made[0].1.as_ref().unwrap().configs.as_ref().unwrap();
    let retention = configs.iter().find(|entry| entry.name == "retention.ms").unwrap();
    assert_eq!(retention.value.as_deref(), Some("5000"));
}

#[tokio::test(start_paused = true)]
async fn the_cluster_is_described() {
    let (kafka, admin) = start(3).await;
    kafka.set_rack(2, "r2");
    let found = admin.describe_cluster().await.unwrap();
    assert_eq!(found.cluster_id, "embedded");
    assert_eq!(found.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(found.nodes[1].rack.as_deref(), Some("r2"));
    assert_eq!(found.controller, Some(1));
}
