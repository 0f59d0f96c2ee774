//! Groups listed, described, emptied and deleted by administrators.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::consumer_group_describe_response::{Assignment, DescribedGroup};
use kafka_protocol::messages::describe_groups_response::DescribedGroup as ClassicDescribed;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest, LeaveGroupRequest,
    ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
};

use super::raw::{Raw, RawBroker, View, fresh, name, text};
use super::{classic_groups, consumer_groups};

/// A subscription to the topic "t" as consumers write it: version 0, one topic, no user data.
const SUBSCRIPTION: &[u8] = &[0, 0, 0, 0, 0, 1, 0, 1, b't', 255, 255, 255, 255];

async fn describe(node: &mut Raw, group: &str) -> DescribedGroup {
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![text(group).into()]);
    let mut found = node.call(1, &request).await.groups;
    assert_eq!(found.len(), 1);
    found.remove(0)
}

async fn describe_classic(node: &mut Raw, version: i16, group: &str) -> ClassicDescribed {
    let request = DescribeGroupsRequest::default().with_groups(vec![text(group).into()]);
    node.call(version, &request).await.groups.remove(0)
}

/// Group → protocol type, state, group type.
async fn list(node: &mut Raw, states: &[&str], types: &[&str]) -> BTreeMap<String, [String; 3]> {
    let names = |list: &[&str]| list.iter().map(|name| text(name)).collect();
    let request =
        ListGroupsRequest::default().with_states_filter(names(states)).with_types_filter(names(types));
    let answer = node.call(5, &request).await;
    assert_eq!(answer.error_code, 0);
    let groups = answer.groups.into_iter();
    groups
        .map(|group| {
            let told = [group.protocol_type, group.group_state, group.group_type];
            (group.group_id.to_string(), told.map(|text| text.to_string()))
        })
        .collect()
}

async fn delete(node: &mut Raw, group: &str) -> i16 {
    let request = DeleteGroupsRequest::default().with_groups_names(vec![text(group).into()]);
    node.call(2, &request).await.results[0].error_code
}

/// The code of the whole answer, or the partition's.
async fn delete_offset(node: &mut Raw, group: &str, topic: &str, partition: i32) -> (i16, Option<i16>) {
    let part = OffsetDeleteRequestPartition::default().with_partition_index(partition);
    let wanted = OffsetDeleteRequestTopic::default().with_name(name(topic)).with_partitions(vec![part]);
    let request = OffsetDeleteRequest::default().with_group_id(text(group).into()).with_topics(vec![wanted]);
    let answer = node.call(0, &request).await;
    (answer.error_code, answer.topics.first().map(|topic| topic.partitions[0].error_code))
}

async fn commit(node: &mut Raw, group: &str, topic: &str, member: (&str, i32)) -> i16 {
    let part = OffsetCommitRequestPartition::default().with_partition_index(0).with_committed_offset(1);
    let wanted = OffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![part]);
    let request = OffsetCommitRequest::default()
        .with_group_id(text(group).into())
        .with_member_id(text(member.0))
        .with_generation_id_or_member_epoch(member.1)
        .with_topics(vec![wanted]);
    node.call(9, &request).await.topics[0].partitions[0].error_code
}

/// How many offsets the group has stored.
async fn stored(node: &mut Raw, group: &str) -> usize {
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(text(group).into())
        .with_member_id(None)
        .with_member_epoch(-1)
        .with_topics(None);
    let request = OffsetFetchRequest::default().with_groups(vec![group]);
    node.call(9, &request).await.groups[0].topics.iter().map(|topic| topic.partitions.len()).sum()
}

async fn remove(node: &mut Raw, group: &str, instance: &str) -> (i16, i16) {
    let member = MemberIdentity::default().with_group_instance_id(Some(text(instance)));
    let request = LeaveGroupRequest::default().with_group_id(text(group).into()).with_members(vec![member]);
    let answer = node.call(5, &request).await;
    (answer.error_code, answer.members[0].error_code)
}

fn indexes(assignment: &Assignment) -> Vec<i32> {
    let mut indexes: Vec<_> =
        assignment.topic_partitions.iter().flat_map(|topic| topic.partitions.clone()).collect();
    indexes.sort_unstable();
    indexes
}

/// A classic group of one member, stable, subscribed to "t".
async fn classic(view: &View, group: &str, instance: Option<&str>) -> classic_groups::Member {
    let mut member = classic_groups::member(view, group).await;
    member.metadata = SUBSCRIPTION;
    member.instance = instance.map(str::to_owned);
    member.join().await;
    let id = member.id.clone();
    assert_eq!(member.sync(&[(&id, b"mine")]).await.error_code, 0);
    member
}

pub async fn a_group_of_the_new_protocol_is_described_with_epochs_and_targets(cluster: &mut dyn RawBroker) {
    let mut g = consumer_groups::setup(cluster).await;
    let joined = g.join("first").await;
    let owned: Vec<i32> = (0..6).collect();
    let epoch = joined.member_epoch;
    assert_eq!(g.beat("first", epoch, Some(&owned)).await.error_code, 0);
    let group = g.name.clone();
    let found = describe(&mut g.node, &group).await;
    assert_eq!((found.error_code, found.error_message), (0, None));
    assert_eq!((found.group_id.as_str(), found.group_state.as_str()), (&*group, "Stable"));
    assert_eq!((found.group_epoch, found.assignment_epoch), (epoch, epoch));
    assert_eq!(found.assignor_name.as_str(), "uniform");
    let member = &found.members[0];
    assert_eq!((member.member_id.as_str(), member.member_epoch), ("first", epoch));
    assert_eq!((member.client_id.as_str(), &member.client_host[..1]), ("raw", "/"));
    assert_eq!((member.instance_id.as_ref(), member.rack_id.as_ref()), (None, None));
    let names: Vec<_> = member.subscribed_topic_names.iter().map(|name| name.to_string()).collect();
    assert_eq!(names, [g.topic.clone()]);
    assert_eq!(member.subscribed_topic_regex.as_deref().unwrap_or_default(), "");
    let topic = &member.assignment.topic_partitions[0];
    assert_eq!((topic.topic_id, topic.topic_name.as_str()), (g.id, &*g.topic));
    assert_eq!((indexes(&member.assignment), indexes(&member.target_assignment)), (owned.clone(), owned));
    assert_eq!(member.member_type, 1);
    // The older request calls it unknown.
    let classic = describe_classic(&mut g.node, 6, &group).await;
    assert_eq!((classic.error_code, classic.group_state.as_str()), (69, "Dead"));
    let classic = describe_classic(&mut g.node, 5, &group).await;
    assert_eq!((classic.error_code, classic.group_state.as_str()), (0, "Dead"));

    // A second member: the first has to give up half.
    g.join("second").await;
    assert_eq!(g.beat("first", epoch, None).await.error_code, 0);
    // It is described with what it has not given up yet, a moment behind the answers: once that is replicated.
    let mut seen = (0, 0);
    for _ in 0..200 {
        let found = describe(&mut g.node, &group).await;
        let first = found.members.iter().find(|member| member.member_id.as_str() == "first").unwrap();
        seen = (indexes(&first.assignment).len(), indexes(&first.target_assignment).len());
        if seen == (6, 3) {
            assert_eq!(found.group_state.as_str(), "Reconciling");
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(seen, (6, 3));
    for member in ["first", "second"] {
        assert_eq!(g.leave(member).await, 0);
    }
    let found = describe(&mut g.node, &group).await;
    assert_eq!((found.error_code, found.group_state.as_str(), found.members.len()), (0, "Empty", 0));
}

pub async fn a_classic_group_is_described_with_its_members_bytes(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let group = fresh("group");
    let mut member = classic(&view, &group, None).await;
    let id = member.id.clone();
    let mut node = view.coordinator(0, &group).await;
    let found = describe_classic(&mut node, 6, &group).await;
    assert_eq!((found.error_code, found.group_state.as_str()), (0, "Stable"));
    assert_eq!((found.protocol_type.as_str(), found.protocol_data.as_str()), ("consumer", "range"));
    let one = &found.members[0];
    assert_eq!((one.member_id.as_str(), one.client_id.as_str(), &one.client_host[..1]), (&*id, "raw", "/"));
    assert_eq!((&one.member_metadata[..], &one.member_assignment[..]), (SUBSCRIPTION, &b"mine"[..]));
    // The newer request says that it is none of its own.
    let other = describe(&mut node, &group).await;
    assert_eq!((other.error_code, other.members.len()), (69, 0));
    assert_eq!(member.beat().await, 0);
    let request = LeaveGroupRequest::default()
        .with_group_id(text(&group).into())
        .with_members(vec![MemberIdentity::default().with_member_id(text(&id))]);
    assert_eq!(node.call(5, &request).await.members[0].error_code, 0);
    let found = describe_classic(&mut node, 6, &group).await;
    assert_eq!((found.error_code, found.group_state.as_str(), found.members.len()), (0, "Empty", 0));
}

pub async fn an_unknown_group_is_dead_up_to_v5_and_69_after(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let group = fresh("group");
    let mut node = view.coordinator(0, &group).await;
    let found = describe_classic(&mut node, 5, &group).await;
    assert_eq!((found.error_code, found.group_state.as_str()), (0, "Dead"));
    let found = describe_classic(&mut node, 6, &group).await;
    assert_eq!((found.error_code, found.group_state.as_str()), (69, "Dead"));
    assert!(found.error_message.is_some());
    assert_eq!(describe(&mut node, &group).await.error_code, 69);
    assert_eq!(delete(&mut node, &group).await, 69);
    assert_eq!(delete_offset(&mut node, &group, "t", 0).await.0, 69);
    for id in view.nodes.keys() {
        let mut other = view.node(*id).await;
        if *id != view.coordinator_id(0, &group).await {
            assert_eq!(describe(&mut other, &group).await.error_code, 16);
            assert_eq!(describe_classic(&mut other, 5, &group).await.error_code, 16);
            assert_eq!(delete(&mut other, &group).await, 16);
        }
    }
}

pub async fn groups_are_listed_by_their_coordinator_with_state_and_type(cluster: &mut dyn RawBroker) {
    let mut g = consumer_groups::setup(cluster).await;
    g.join("m").await;
    let group = g.name.clone();
    let mut seen = 0;
    for id in g.view.nodes.keys() {
        seen += usize::from(list(&mut g.view.node(*id).await, &[], &[]).await.contains_key(&group));
    }
    assert_eq!(seen, 1);
    let told = list(&mut g.node, &[], &[]).await.remove(&group).unwrap();
    assert_eq!((&*told[0], &*told[2]), ("consumer", "consumer"));
    assert!(["Stable", "Reconciling"].contains(&&*told[1]), "{told:?}");
    assert!(list(&mut g.node, &[&told[1]], &["consumer"]).await.contains_key(&group));
    assert!(list(&mut g.node, &[], &["Consumer"]).await.contains_key(&group));
    assert!(!list(&mut g.node, &["Empty"], &[]).await.contains_key(&group));
    assert!(!list(&mut g.node, &[], &["classic"]).await.contains_key(&group));

    // One that only stores offsets is a classic one without a protocol.
    let simple = fresh("group");
    let mut node = g.view.coordinator(0, &simple).await;
    assert_eq!(commit(&mut node, &simple, &g.topic, ("", -1)).await, 0);
    let told = list(&mut node, &[], &[]).await.remove(&simple).unwrap();
    assert_eq!(told.map(|text| text.to_string()), ["", "Empty", "classic"].map(str::to_owned));
    let found = describe_classic(&mut node, 5, &simple).await;
    assert_eq!(
        (found.error_code, found.group_state.as_str(), found.protocol_type.as_str()),
        (0, "Empty", "")
    );
}

pub async fn only_a_group_without_members_can_be_deleted(cluster: &mut dyn RawBroker) {
    let mut g = consumer_groups::setup(cluster).await;
    let joined = g.join("m").await;
    let group = g.name.clone();
    assert_eq!(commit(&mut g.node, &group, &g.topic, ("m", joined.member_epoch)).await, 0);
    assert_eq!(delete(&mut g.node, &group).await, 68);
    assert_eq!(g.leave("m").await, 0);
    assert_eq!(stored(&mut g.node, &group).await, 1);
    assert_eq!(delete(&mut g.node, &group).await, 0);
    assert_eq!(stored(&mut g.node, &group).await, 0);
    assert_eq!(describe(&mut g.node, &group).await.error_code, 69);

    let group = fresh("group");
    let member = classic(&g.view, &group, None).await;
    let mut node = g.view.coordinator(0, &group).await;
    assert_eq!(delete(&mut node, &group).await, 68);
    drop(member);
}

pub async fn offsets_of_a_topic_in_use_cannot_be_deleted(cluster: &mut dyn RawBroker) {
    let mut g = consumer_groups::setup(cluster).await;
    let other = g.view.create_on(&[&[1]]).await;
    let joined = g.join("m").await;
    let group = g.name.clone();
    for topic in [&g.topic.clone(), &other] {
        assert_eq!(commit(&mut g.node, &group, topic, ("m", joined.member_epoch)).await, 0);
    }
    let topic = g.topic.clone();
    assert_eq!(delete_offset(&mut g.node, &group, &topic, 0).await, (0, Some(86)));
    assert_eq!(delete_offset(&mut g.node, &group, &other, 0).await, (0, Some(0)));
    // One that is not stored is no error; a partition that is not there is.
    assert_eq!(delete_offset(&mut g.node, &group, &other, 0).await, (0, Some(0)));
    assert_eq!(delete_offset(&mut g.node, &group, &other, 9).await, (0, Some(3)));
    assert_eq!(stored(&mut g.node, &group).await, 1);
    assert_eq!(g.leave("m").await, 0);
    assert_eq!(delete_offset(&mut g.node, &group, &topic, 0).await, (0, Some(0)));
    assert_eq!(stored(&mut g.node, &group).await, 0);
}

pub async fn a_static_member_is_removed_by_its_instance(cluster: &mut dyn RawBroker) {
    let mut g = consumer_groups::setup(cluster).await;
    let request = g.join_request("m").with_instance_id(Some(text("inst")));
    assert_eq!(g.send(&request).await.error_code, 0);
    let group = g.name.clone();
    assert_eq!(remove(&mut g.node, &group, "nobody").await, (0, 25));
    assert_eq!(remove(&mut g.node, &group, "inst").await, (0, 0));
    assert_eq!(remove(&mut g.node, &group, "inst").await, (0, 25));
    assert_eq!(g.beat("m", 1, None).await.error_code, 25);

    let group = fresh("group");
    let mut member = classic(&g.view, &group, Some("inst")).await;
    let mut node = g.view.coordinator(0, &group).await;
    assert_eq!(remove(&mut node, &group, "nobody").await, (0, 25));
    assert_eq!(remove(&mut node, &group, "inst").await, (0, 0));
    assert_eq!(member.beat().await, 25);
}
