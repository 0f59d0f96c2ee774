//! Offsets of a group without members.

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use kafka_protocol::messages::{FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest};

use super::raw::{Raw, RawBroker, fresh, name, text};
use super::sessions::setup;

async fn commit(
    node: &mut Raw,
    group: &str,
    member: (&str, i32),
    at: (&str, i32, i64),
    metadata: &str,
) -> i16 {
    let (topic, partition, offset) = at;
    let entry = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(offset)
        .with_committed_leader_epoch(7)
        .with_committed_metadata(Some(text(metadata)));
    let topic = OffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![entry]);
    let request = OffsetCommitRequest::default()
        .with_group_id(text(group).into())
        .with_member_id(text(member.0))
        .with_generation_id_or_member_epoch(member.1)
        .with_topics(vec![topic]);
    node.call(9, &request).await.topics[0].partitions[0].error_code
}

async fn fetch(node: &mut Raw, group: &str, topics: Option<&[(&str, &[i32])]>) -> OffsetFetchResponseGroup {
    let topics = topics.map(|topics| {
        let wanted = topics.iter().map(|(topic, partitions)| {
            OffsetFetchRequestTopics::default()
                .with_name(name(topic))
                .with_partition_indexes(partitions.to_vec())
        });
        wanted.collect()
    });
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(text(group).into())
        .with_member_id(None)
        .with_member_epoch(-1)
        .with_topics(topics);
    let request = OffsetFetchRequest::default().with_groups(vec![group]).with_require_stable(true);
    node.call(9, &request).await.groups.remove(0)
}

pub async fn an_anonymous_commit_is_stored_and_read_back(cluster: &mut dyn RawBroker) {
    let s = setup(cluster).await;
    let group = fresh("group");
    let mut node = s.view.coordinator(0, &group).await;
    let nobody = ("", -1);
    assert_eq!(commit(&mut node, &group, nobody, (&s.topic, 0, 1), "noted").await, 0);
    // With nobody in the group the epoch alone makes a commit anonymous.
    assert_eq!(commit(&mut node, &group, ("made-up", -1), (&s.topic, 1, 5), "").await, 0);
    assert_eq!(commit(&mut node, &group, ("made-up", 3), (&s.topic, 1, 6), "").await, 25);
    assert_eq!(commit(&mut node, &group, ("", 0), (&s.topic, 1, 6), "").await, 25);
    // A broker checks neither the sign of an offset nor its range.
    assert_eq!(commit(&mut node, &group, nobody, (&s.topic, 2, -5), "").await, 0);
    let all = fetch(&mut node, &group, None).await;
    assert_eq!(all.error_code, 0);
    let mut found: Vec<_> = all.topics[0]
        .partitions
        .iter()
        .map(|part| {
            (part.partition_index, part.committed_offset, part.committed_leader_epoch, part.error_code)
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(0, 1, 7, 0), (1, 5, 7, 0), (2, -5, 7, 0)]);
}

pub async fn what_was_never_committed_is_minus_one_without_error(cluster: &mut dyn RawBroker) {
    let s = setup(cluster).await;
    let group = fresh("group");
    let mut node = s.view.coordinator(0, &group).await;
    let none = fetch(&mut node, &group, None).await;
    assert_eq!((none.error_code, none.topics.len()), (0, 0));
    let wanted: [(&str, &[i32]); 2] = [(&s.topic, &[0, 99]), ("no-such-topic", &[0])];
    let listed = fetch(&mut node, &group, Some(&wanted)).await;
    let entries: Vec<_> = listed.topics.iter().flat_map(|topic| &topic.partitions).collect();
    assert_eq!(entries.len(), 3);
    for entry in entries {
        assert_eq!((entry.committed_offset, entry.committed_leader_epoch, entry.error_code), (-1, -1, 0));
    }
    let nothing = fetch(&mut node, &group, Some(&[])).await;
    assert_eq!((nothing.error_code, nothing.topics.len()), (0, 0));
}

pub async fn an_unknown_topic_and_long_metadata_are_refused(cluster: &mut dyn RawBroker) {
    let s = setup(cluster).await;
    let group = fresh("group");
    let mut node = s.view.coordinator(0, &group).await;
    let nobody = ("", -1);
    assert_eq!(commit(&mut node, &group, nobody, ("no-such-topic", 0, 1), "").await, 3);
    assert_eq!(commit(&mut node, &group, nobody, (&s.topic, 77, 1), "").await, 3);
    assert_eq!(commit(&mut node, &group, nobody, (&s.topic, 0, 1), &"m".repeat(4096)).await, 0);
    assert_eq!(commit(&mut node, &group, nobody, (&s.topic, 0, 2), &"m".repeat(4097)).await, 12);
}

pub async fn another_node_is_not_the_coordinator(cluster: &mut dyn RawBroker) {
    let s = setup(cluster).await;
    let group = fresh("group");
    drop(s.view.coordinator(0, &group).await);
    let right = s.view.coordinator_id(0, &group).await;
    for other in s.view.nodes.keys().filter(|id| **id != right) {
        let mut node = s.view.node(*other).await;
        assert_eq!(commit(&mut node, &group, ("", -1), (&s.topic, 0, 1), "").await, 16);
        assert_eq!(fetch(&mut node, &group, None).await.error_code, 16);
    }
}

pub async fn each_key_of_a_coordinator_look_up_is_answered(cluster: &mut dyn RawBroker) {
    let s = setup(cluster).await;
    let (one, two) = (fresh("group"), fresh("group"));
    drop(s.view.coordinator(0, &one).await);
    let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text(&one), text(&two)]);
    let answer = s.view.any().await.call(4, &request).await;
    let keys: Vec<_> =
        answer.coordinators.iter().map(|entry| (entry.key.to_string(), entry.error_code)).collect();
    assert_eq!(keys.len(), 2);
    assert!(keys.contains(&(one.clone(), 0)) && keys.contains(&(two, 0)));
    let single = FindCoordinatorRequest::default().with_key(text(&one)).with_key_type(0);
    let answer = s.view.any().await.call(3, &single).await;
    assert_eq!((answer.error_code, answer.error_message.unwrap().to_string()), (0, "NONE".to_owned()));
}
