//! Groups on the embedded broker, with live members of both protocols.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use kafka_admin::{CommittedOffset, ErrorCode, ErrorKind, GroupFilter, GroupState, GroupType};
use kafka_meta::wire::protocol::messages::ApiKey;
use support::{classic, consumer, kinds, one, stable, start};
use testkit::embedded::Release;

fn partitions(topic: &str, count: i32) -> Vec<(String, i32)> {
    (0..count).map(|index| (topic.to_owned(), index)).collect()
}

#[tokio::test(start_paused = true)]
async fn groups_of_both_protocols_are_described_with_their_members() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic("t", 4);
    let mut new = consumer(&admin, "new", "t").await;
    let mut old = classic(&admin, "old", "t").await.instance_id("inst");
    let found = polling!(new, stable(&admin, "new", 1));
    assert_eq!(found.group_type, GroupType::Consumer);
    assert_eq!((found.assignor.as_str(), found.protocol_type.as_str()), ("uniform", "consumer"));
    assert_eq!(found.group_epoch, found.target_epoch);
    assert_eq!(Some(found.coordinator), kafka.coordinator("new"));
    let member = &found.members[0];
    // The id is told as of the last poll that ended.
    new.poll().await.unwrap();
    assert_eq!(member.member_id, new.member_id());
    assert_eq!(member.topics, ["t"]);
    assert_eq!(
        (&member.assignment, member.target.as_ref()),
        (&partitions("t", 4), Some(&partitions("t", 4)))
    );
    assert_eq!((member.instance_id.as_deref(), member.is_classic), (None, Some(false)));
    assert!(member.epoch.is_some_and(|epoch| epoch > 0));

    let found = polling!(old, stable(&admin, "old", 1));
    assert_eq!(found.group_type, GroupType::Classic);
    assert_eq!((found.assignor.as_str(), found.protocol_type.as_str()), ("range", "consumer"));
    assert_eq!((found.group_epoch, found.target_epoch), (None, None));
    let member = &found.members[0];
    assert_eq!(
        (member.topics.clone(), member.assignment.clone()),
        (vec!["t".to_owned()], partitions("t", 4))
    );
    assert_eq!((member.instance_id.as_deref(), member.epoch, &member.target), (Some("inst"), None, &None));

    // Order is the caller's; what is not there costs nobody else a result.
    let all = admin.describe_groups(["old", "nobody", "new", ""]).await.unwrap();
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["old", "nobody", "new", ""]);
    let missing = Some(ErrorKind::Broker(ErrorCode::GROUP_ID_NOT_FOUND));
    assert_eq!(kinds(&all), [None, missing, None, Some(ErrorKind::InvalidRequest)]);
    let error = all[1].1.as_ref().unwrap_err();
    assert_eq!(error.group(), Some("nobody"));
}

#[tokio::test(start_paused = true)]
async fn brokers_without_the_new_request_describe_groups_as_of_old() {
    for release in [Release::V3_7, Release::V3_9] {
        let (kafka, admin) = start(1).await;
        kafka.set_release(release);
        kafka.set_consumer_protocol(false);
        kafka.create_topic("t", 1);
        let mut old = classic(&admin, "old", "t").await;
        let found = polling!(old, stable(&admin, "old", 1));
        assert_eq!(found.members[0].assignment, partitions("t", 1));
        let missing = one(admin.describe_groups(["nobody"]).await.unwrap()).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Broker(ErrorCode::GROUP_ID_NOT_FOUND));
        let listed = admin.list_groups().await.unwrap().all().unwrap();
        assert_eq!((listed[0].group_id.as_str(), listed[0].state.clone()), ("old", Some(GroupState::Stable)));
        let by_type = admin.list_groups_matching(GroupFilter::new().group_type(GroupType::Classic)).await;
        match release {
            // A broker that knows no types would answer as if nothing had been filtered.
            Release::V3_7 => assert_eq!(by_type.unwrap_err().kind(), ErrorKind::UnsupportedApi),
            _ => assert_eq!(by_type.unwrap().groups.len(), 1),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_broker_is_asked_for_its_groups() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic("t", 1);
    for node in 1..=3 {
        let group = format!("stored-{node}");
        kafka.move_coordinator(&group, node);
        kafka.commit(&group, "t", 0, 5);
    }
    let mut member = consumer(&admin, "live", "t").await;
    polling!(member, stable(&admin, "live", 1));
    let listed = admin.list_groups().await.unwrap().all().unwrap();
    let names: Vec<_> = listed.iter().map(|group| group.group_id.as_str()).collect();
    assert_eq!(names, ["live", "stored-1", "stored-2", "stored-3"]);
    assert_eq!(listed[2].coordinator, 2);
    assert_eq!(listed[1].state, Some(GroupState::Empty));
    assert_eq!(
        (listed[0].group_type.clone(), &*listed[0].protocol_type),
        (Some(GroupType::Consumer), "consumer")
    );

    let only = |filter| async { admin.list_groups_matching(filter).await.unwrap().all().unwrap().len() };
    assert_eq!(only(GroupFilter::new().state(GroupState::Stable)).await, 1);
    assert_eq!(only(GroupFilter::new().state(GroupState::Stable).state(GroupState::Empty)).await, 4);
    assert_eq!(only(GroupFilter::new().group_type(GroupType::Classic)).await, 3);

    // One that loads is asked again; one that refuses hides nobody else's.
    let fault = kafka.fault(ApiKey::ListGroups).node(2).times(2).error(14);
    assert_eq!(admin.list_groups().await.unwrap().all().unwrap().len(), 4);
    assert_eq!(fault.hits(), 2);
    let _denied = kafka.fault(ApiKey::ListGroups).node(2).error(31);
    let partial = admin.list_groups().await.unwrap();
    assert_eq!(partial.groups.len(), 3);
    assert_eq!((partial.errors[0].0, partial.errors[0].1.kind()), (2, ErrorKind::Authorization));
    assert!(partial.all().is_err());
}

#[tokio::test(start_paused = true)]
async fn offsets_are_set_for_a_group_without_members_and_a_member_starts_there() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic("t", 2);
    for partition in 0..2 {
        kafka.append_records("t", partition, (0..10).map(|_| ("k", "v")));
    }
    let wanted = [
        (("t", 0), CommittedOffset::new(7).with_leader_epoch(0).with_metadata("moved")),
        (("t", 1), CommittedOffset::new(9)),
        (("t", 9), CommittedOffset::new(1)),
        (("t", 0), CommittedOffset::new(1)),
        (("u", 0), CommittedOffset::new(-1)),
    ];
    let results = admin.alter_group_offsets("g", wanted).await.unwrap();
    let invalid = Some(ErrorKind::InvalidRequest);
    assert_eq!(kinds(&results), [None, None, Some(ErrorKind::UnknownTopic), invalid, invalid]);
    let stored = admin.list_group_offsets("g").await.unwrap();
    assert_eq!(stored.len(), 2);
    let first = stored[0].1.as_ref().unwrap();
    assert_eq!((first.offset, first.leader_epoch, first.metadata.as_deref()), (7, Some(0), Some("moved")));
    let some = admin.list_group_offsets_of("g", [("t", 1), ("u", 3)]).await.unwrap();
    assert_eq!(some[0].1.as_ref().unwrap().as_ref().unwrap().offset, 9);
    assert!(some[1].1.as_ref().unwrap().is_none());

    let mut member = consumer(&admin, "g", "t").await.auto_commit(false);
    let mut read = Vec::new();
    while read.len() < 4 {
        read.extend(member.poll().await.unwrap().iter().map(|record| (record.partition, record.offset)));
    }
    read.sort_unstable();
    assert_eq!(read, [(0, 7), (0, 8), (0, 9), (1, 9)]);

    // The group has a member now.
    let refused = one(admin.alter_group_offsets("g", [(("t", 0), CommittedOffset::new(0))]).await.unwrap());
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broker(ErrorCode::UNKNOWN_MEMBER_ID));
    assert_eq!((error.group(), error.topic(), error.partition()), (Some("g"), Some("t"), Some(0)));
    assert!(error.to_string().contains("has members"), "{error}");
    let in_use = one(admin.delete_group_offsets("g", [("t", 0)]).await.unwrap()).unwrap_err();
    assert_eq!(in_use.kind(), ErrorKind::Broker(ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC));
    let busy = one(admin.delete_groups(["g"]).await.unwrap()).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Broker(ErrorCode::NON_EMPTY_GROUP));

    member.leave().await.unwrap();
    one(admin.delete_group_offsets("g", [("t", 0)]).await.unwrap()).unwrap();
    assert_eq!(admin.list_group_offsets("g").await.unwrap().len(), 1);
    let deleted = admin.delete_groups(["g", "g2"]).await.unwrap();
    assert_eq!(kinds(&deleted), [None, Some(ErrorKind::Broker(ErrorCode::GROUP_ID_NOT_FOUND))]);
    assert!(admin.list_group_offsets("g").await.unwrap().is_empty());
    assert_eq!(admin.list_group_offsets("").await.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[tokio::test(start_paused = true)]
async fn members_are_removed_one_by_one_and_all_together() {
    let (kafka, admin) = start(1).await;
    kafka.create_topic("t", 4);
    let mut parked = consumer(&admin, "g", "t").await.instance_id("inst");
    polling!(parked, stable(&admin, "g", 1));
    parked.leave().await.unwrap();
    let away = one(admin.describe_groups(["g"]).await.unwrap()).unwrap();
    assert_eq!(away.members[0].epoch, Some(-2));
    let removed = admin.remove_members("g", ["nobody", "inst"]).await.unwrap();
    assert_eq!(kinds(&removed), [Some(ErrorKind::Broker(ErrorCode::UNKNOWN_MEMBER_ID)), None]);
    assert_eq!(one(admin.describe_groups(["g"]).await.unwrap()).unwrap().state, GroupState::Empty);

    let mut first = classic(&admin, "c", "t").await;
    polling!(first, stable(&admin, "c", 1));
    let mut second = classic(&admin, "c", "t").await.instance_id("two");
    let both = async { polling!(second, stable(&admin, "c", 2)) };
    polling!(first, both);
    first.poll().await.unwrap();
    let id = first.member_id().to_owned();
    let mut removed = admin.remove_all_members("c").await.unwrap();
    removed.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(kinds(&removed), [None, None]);
    assert!(removed.iter().any(|(name, _)| *name == id) && removed.iter().any(|(name, _)| name == "two"));
    assert!(kafka.group_members("c").is_empty());
    // Whoever is alive comes back by itself.
    polling!(first, stable(&admin, "c", 1));
    let missing = admin.remove_all_members("none").await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Broker(ErrorCode::GROUP_ID_NOT_FOUND));
}
