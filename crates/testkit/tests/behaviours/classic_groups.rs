//! Groups of the classic protocol: joins, syncs, beats, commits and leaves.
//!
//! The cluster does not hold the first generation of an empty group back.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ApiVersionsRequest, DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, OffsetCommitRequest, SyncGroupRequest, SyncGroupResponse,
};
use tokio::time::Instant;

use super::raw::{Raw, RawBroker, View, fresh, name, text};

pub struct Member {
    pub node: Raw,
    group: String,
    pub id: String,
    pub instance: Option<String>,
    protocols: Vec<&'static str>,
    pub metadata: &'static [u8],
    rebalance_ms: i32,
    generation: i32,
}

pub async fn member(view: &View, group: &str) -> Member {
    Member {
        node: view.coordinator(0, group).await,
        group: group.to_owned(),
        id: String::new(),
        instance: None,
        protocols: vec!["range"],
        metadata: b"m",
        rebalance_ms: 60_000,
        generation: -1,
    }
}

impl Member {
    fn request(&self) -> JoinGroupRequest {
        let protocols = self.protocols.iter().map(|name| {
            let protocol = JoinGroupRequestProtocol::default().with_name(text(name));
            protocol.with_metadata(Bytes::from_static(self.metadata))
        });
        JoinGroupRequest::default()
            .with_group_id(text(&self.group).into())
            .with_session_timeout_ms(10_000)
            .with_rebalance_timeout_ms(self.rebalance_ms)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
            .with_protocol_type(text("consumer"))
            .with_protocols(protocols.collect())
    }

    /// Joins, taking the id it is told to take.
    pub async fn join(&mut self) -> JoinGroupResponse {
        loop {
            let request = self.request();
            let answer = self.node.call(9, &request).await;
            self.id = answer.member_id.to_string();
            if answer.error_code != 79 {
                assert_eq!(answer.error_code, 0);
                self.generation = answer.generation_id;
                return answer;
            }
        }
    }

    fn sync_request(&self, assignments: &[(&str, &[u8])]) -> SyncGroupRequest {
        let assignments = assignments.iter().map(|(id, assignment)| {
            let given = SyncGroupRequestAssignment::default().with_member_id(text(id));
            given.with_assignment(Bytes::copy_from_slice(assignment))
        });
        SyncGroupRequest::default()
            .with_group_id(text(&self.group).into())
            .with_generation_id(self.generation)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
            .with_protocol_type(Some(text("consumer")))
            .with_protocol_name(Some(text("range")))
            .with_assignments(assignments.collect())
    }

    pub async fn sync(&mut self, assignments: &[(&str, &[u8])]) -> SyncGroupResponse {
        let request = self.sync_request(assignments);
        self.node.call(5, &request).await
    }

    async fn beat_as(&mut self, id: &str, generation: i32, instance: Option<&str>) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(text(&self.group).into())
            .with_generation_id(generation)
            .with_member_id(text(id))
            .with_group_instance_id(instance.map(text));
        self.node.call(4, &request).await.error_code
    }

    pub async fn beat(&mut self) -> i16 {
        let (id, generation) = (self.id.clone(), self.generation);
        self.beat_as(&id, generation, None).await
    }

    async fn commit_as(&mut self, topic: &str, id: &str, generation: i32) -> i16 {
        let entry = OffsetCommitRequestPartition::default().with_partition_index(0).with_committed_offset(1);
        let topic = OffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![entry]);
        let request = OffsetCommitRequest::default()
            .with_group_id(text(&self.group).into())
            .with_member_id(text(id))
            .with_generation_id_or_member_epoch(generation)
            .with_topics(vec![topic]);
        self.node.call(9, &request).await.topics[0].partitions[0].error_code
    }

    async fn leave_as(&mut self, id: &str, instance: Option<&str>) -> (i16, i16) {
        let leaver =
            MemberIdentity::default().with_member_id(text(id)).with_group_instance_id(instance.map(text));
        let request =
            LeaveGroupRequest::default().with_group_id(text(&self.group).into()).with_members(vec![leaver]);
        let answer = self.node.call(5, &request).await;
        (answer.error_code, answer.members[0].error_code)
    }

    /// Joins alone and takes an assignment: a stable group of one.
    async fn settle(&mut self) {
        let joined = self.join().await;
        assert_eq!(joined.leader.to_string(), self.id);
        let id = self.id.clone();
        assert_eq!(self.sync(&[(&id, b"mine")]).await.assignment.as_ref(), b"mine");
    }

    /// Beats until it is told to rejoin.
    async fn until_rebalance(&mut self) {
        for _ in 0..200 {
            match self.beat().await {
                27 => return,
                code => assert_eq!(code, 0),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no rebalance");
    }
}

pub async fn an_empty_member_id_joins_at_once_up_to_v3_and_is_79_after(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    for version in [2, 3, 4, 9] {
        let mut m = member(&view, &fresh("group")).await;
        let request = m.request();
        let answer = m.node.call(version, &request).await;
        assert!(!answer.member_id.is_empty());
        if version < 4 {
            assert_eq!((answer.error_code, answer.generation_id), (0, 1));
            assert_eq!(answer.leader, answer.member_id);
            continue;
        }
        assert_eq!(answer.error_code, 79);
        m.id = "stranger".to_owned();
        let request = m.request();
        assert_eq!(m.node.call(version, &request).await.error_code, 25);
        m.id = answer.member_id.to_string();
        assert_eq!(m.join().await.members.len(), 1);
    }
    let mut fixed = member(&view, &fresh("group")).await;
    fixed.instance = Some("inst".to_owned());
    let request = fixed.request();
    let answer = fixed.node.call(5, &request).await;
    assert_eq!(answer.error_code, 0);
    assert!(answer.member_id.starts_with("inst"));
}

pub async fn a_join_that_does_not_fit_is_refused(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let group = fresh("group");
    let mut first = member(&view, &group).await;
    first.settle().await;
    let mut other = member(&view, &group).await;
    let good = other.request();
    let mut protocol = good.clone();
    protocol.protocols[0].name = text("zzz");
    for (request, code) in [
        (protocol, 23),
        (good.clone().with_protocol_type(text("connect")), 23),
        (good.clone().with_protocols(Vec::new()), 23),
        (good.clone().with_session_timeout_ms(5_999), 26),
        (good.clone().with_session_timeout_ms(1_800_001), 26),
    ] {
        assert_eq!(other.node.call(3, &request).await.error_code, code);
    }
}

pub async fn a_generation_is_joined_synced_and_beaten_for(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let mut m = member(&view, &fresh("group")).await;
    let joined = m.join().await;
    assert_eq!((joined.generation_id, joined.members.len(), joined.skip_assignment), (1, 1, false));
    assert_eq!(joined.protocol_name.unwrap().to_string(), "range");
    assert_eq!(joined.members[0].metadata.as_ref(), b"m");
    assert_eq!(m.beat().await, 0, "between join and sync");
    let wrong = m.sync_request(&[]).with_protocol_name(Some(text("zzz")));
    assert_eq!(m.node.call(5, &wrong).await.error_code, 23);
    let id = m.id.clone();
    let synced = m.sync(&[(&id, b"mine")]).await;
    assert_eq!((synced.error_code, synced.assignment.as_ref()), (0, &b"mine"[..]));
    assert_eq!(m.sync(&[]).await.assignment.as_ref(), b"mine", "again while stable");
    assert_eq!(m.beat().await, 0);
    for generation in [0, 2] {
        assert_eq!(m.beat_as(&id, generation, None).await, 22);
    }
    assert_eq!(m.beat_as("stranger", 1, None).await, 25);
}

pub async fn a_second_member_makes_a_new_generation_of_both(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let group = fresh("group");
    let (mut a, mut b) = (member(&view, &group).await, member(&view, &group).await);
    a.settle().await;
    let (second, first) = tokio::join!(b.join(), async {
        a.until_rebalance().await;
        a.join().await
    });
    assert_eq!((first.generation_id, second.generation_id), (2, 2));
    assert_eq!((first.leader.to_string(), second.leader.to_string()), (a.id.clone(), a.id.clone()));
    assert_eq!((first.members.len(), second.members.len()), (2, 0));
    // The follower's sync waits for the leader's.
    let asked = Instant::now();
    let (a_id, b_id) = (a.id.clone(), b.id.clone());
    let (follower, leader) = tokio::join!(b.sync(&[]), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        a.sync(&[(&a_id, b"one"), (&b_id, b"two")]).await
    });
    assert!(asked.elapsed() >= Duration::from_millis(290));
    assert_eq!((leader.assignment.as_ref(), follower.assignment.as_ref()), (&b"one"[..], &b"two"[..]));
}

pub async fn a_waiting_join_blocks_its_socket(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let group = fresh("group");
    let (mut a, mut b) = (member(&view, &group).await, member(&view, &group).await);
    a.settle().await;
    let request = b.request();
    b.id = b.node.call(9, &request).await.member_id.to_string();
    let request = b.request();
    let join = b.node.send(9, &request).await;
    let software = ApiVersionsRequest::default()
        .with_client_software_name(text("raw"))
        .with_client_software_version(text("1"));
    let behind = b.node.send(3, &software).await;
    assert!(tokio::time::timeout(Duration::from_millis(300), b.node.frame()).await.is_err());
    a.until_rebalance().await;
    a.join().await;
    assert_eq!(b.node.receive::<JoinGroupRequest>(9).await.unwrap().0, join);
    assert_eq!(b.node.receive::<ApiVersionsRequest>(3).await.unwrap().0, behind);
}

pub async fn a_member_that_does_not_rejoin_is_left_behind(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let group = fresh("group");
    let (mut a, mut b) = (member(&view, &group).await, member(&view, &group).await);
    a.rebalance_ms = 1500;
    b.rebalance_ms = 1500;
    a.settle().await;
    let asked = Instant::now();
    let joined = b.join().await;
    assert!(asked.elapsed() >= Duration::from_millis(1400));
    assert_eq!((joined.generation_id, joined.members.len()), (2, 1));
    assert_eq!(a.beat().await, 25);
    let request = a.request();
    assert_eq!(a.node.call(9, &request).await.error_code, 25);
}

pub async fn a_members_commits_are_checked_by_generation_and_state(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[1]]).await;
    let group = fresh("group");
    let (mut a, mut b) = (member(&view, &group).await, member(&view, &group).await);
    a.settle().await;
    let id = a.id.clone();
    for (who, generation, code) in
        [(id.as_str(), 1, 0), (id.as_str(), 0, 22), (id.as_str(), 2, 22), ("stranger", 1, 25), ("", -1, 25)]
    {
        assert_eq!(a.commit_as(&topic, who, generation).await, code, "{who} {generation}");
    }
    let (_, ()) = tokio::join!(b.join(), async {
        a.until_rebalance().await;
        assert_eq!(a.commit_as(&topic, &id, 1).await, 0, "the old generation, while joins are collected");
        a.join().await;
    });
    assert_eq!(a.commit_as(&topic, &id, 2).await, 27, "joined, not synced");
    assert_eq!(a.sync(&[]).await.error_code, 0);
    assert_eq!(a.commit_as(&topic, &id, 2).await, 0);
}

pub async fn leaving_is_answered_for_each_member(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let group = fresh("group");
    let mut m = member(&view, &group).await;
    m.settle().await;
    let id = m.id.clone();
    assert_eq!(m.leave_as("", Some("nobody")).await, (0, 25));
    assert_eq!(m.leave_as(&id, None).await, (0, 0));
    assert_eq!(m.leave_as(&id, None).await, (0, 25));
    m.id = String::new();
    m.instance = Some("inst".to_owned());
    m.settle().await;
    assert_eq!(m.leave_as("", Some("inst")).await, (0, 0));
    let old = LeaveGroupRequest::default().with_group_id(text(&group).into()).with_member_id(text(&id));
    assert_eq!(m.node.call(2, &old).await.error_code, 25);
}

pub async fn a_static_member_that_returns_keeps_the_generation(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let group = fresh("group");
    let topic = view.create_on(&[&[1]]).await;
    let mut m = member(&view, &group).await;
    m.instance = Some("inst".to_owned());
    m.settle().await;
    let old = m.id.clone();
    m.id = String::new();
    // Another list of topics changes nothing for the broker.
    m.metadata = b"other topics";
    let back = m.join().await;
    assert_eq!((back.generation_id, back.skip_assignment, back.members.len()), (1, true, 1));
    assert_ne!(m.id, old);
    assert_eq!(back.leader.to_string(), m.id);
    assert_eq!(m.sync(&[]).await.assignment.as_ref(), b"mine");
    assert_eq!(m.beat_as(&old, 1, Some("inst")).await, 82);
    assert_eq!(m.beat_as(&old, 1, None).await, 25);
    assert_eq!(m.commit_as(&topic, &old, 1).await, 25);
    m.id = String::new();
    let request = m.request();
    let earlier = m.node.call(5, &request).await;
    assert_eq!((earlier.error_code, earlier.generation_id, earlier.members.len()), (0, 1, 0));
    assert_ne!(earlier.leader, earlier.member_id);
}

pub async fn a_stable_group_is_described_with_what_its_members_have(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let group = fresh("group");
    let mut m = member(&view, &group).await;
    m.instance = Some("inst".to_owned());
    let request = DescribeGroupsRequest::default().with_groups(vec![text(&group).into()]);
    let before = m.node.call(5, &request).await.groups.remove(0);
    assert_eq!((before.error_code, before.group_state.as_str(), before.members.len()), (0, "Dead", 0));
    m.settle().await;
    let stable = m.node.call(5, &request).await.groups.remove(0);
    assert_eq!((stable.error_code, stable.group_state.as_str()), (0, "Stable"));
    assert_eq!((stable.protocol_type.as_str(), stable.protocol_data.as_str()), ("consumer", "range"));
    let one = &stable.members[0];
    assert_eq!((one.member_id.as_str(), one.group_instance_id.as_deref()), (m.id.as_str(), Some("inst")));
    assert_eq!((one.member_metadata.as_ref(), one.member_assignment.as_ref()), (&b"m"[..], &b"mine"[..]));
    // Who takes the place of a static member has what that one had.
    m.id = String::new();
    m.join().await;
    let back = m.node.call(5, &request).await.groups.remove(0);
    assert_eq!((back.group_state.as_str(), back.members.len()), ("Stable", 1));
    assert_eq!(back.members[0].member_id.as_str(), m.id);
    assert_eq!(back.members[0].member_assignment.as_ref(), b"mine");
    // While members gather, what they want is not told, and what they had is.
    let mut other = member(&view, &group).await;
    let joins = tokio::spawn(async move { other.join().await.generation_id });
    m.until_rebalance().await;
    let gathering = m.node.call(5, &request).await.groups.remove(0);
    assert_eq!(gathering.group_state.as_str(), "PreparingRebalance");
    assert!(gathering.members.iter().all(|member| member.member_metadata.is_empty()));
    assert!(gathering.members.iter().any(|member| member.member_assignment.as_ref() == b"mine"));
    m.join().await;
    assert!(joins.await.unwrap() > 1);
}
