//! Groups of the new protocol (KIP-848): what a coordinator answers to heartbeats and commits.
//!
//! The cluster computes targets without the interval that newer brokers wait between two of them.

use std::collections::BTreeSet;
use std::time::Duration;

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, OffsetCommitRequest, OffsetFetchRequest,
};
use uuid::Uuid;

use super::raw::{Raw, RawBroker, View, fresh, name, text};

pub struct Group {
    pub view: View,
    pub node: Raw,
    pub name: String,
    pub topic: String,
    pub id: Uuid,
}

type Owned<'a> = Option<&'a [i32]>;

/// A group that does not exist yet and a topic of six partitions.
pub async fn setup(cluster: &dyn RawBroker) -> Group {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[1], &[1], &[1], &[1], &[1], &[1]]).await;
    let name = fresh("group");
    let node = view.coordinator(0, &name).await;
    let id = view.topic(&topic).await.topic_id;
    // A topic that is made just before a join may not be known to the coordinator yet.
    tokio::time::sleep(Duration::from_millis(300)).await;
    Group { view, node, name, topic, id }
}

impl Group {
    fn request(&self, member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(text(&self.name).into())
            .with_member_id(text(member))
            .with_member_epoch(epoch)
            .with_rebalance_timeout_ms(-1)
            .with_subscribed_topic_names(None)
            .with_topic_partitions(None)
    }

    pub fn join_request(&self, member: &str) -> ConsumerGroupHeartbeatRequest {
        self.request(member, 0)
            .with_rebalance_timeout_ms(60_000)
            .with_subscribed_topic_names(Some(vec![name(&self.topic)]))
            .with_topic_partitions(Some(Vec::new()))
    }

    fn owned(&self, partitions: &[i32]) -> Option<Vec<TopicPartitions>> {
        if partitions.is_empty() {
            return Some(Vec::new());
        }
        Some(vec![TopicPartitions::default().with_topic_id(self.id).with_partitions(partitions.to_vec())])
    }

    pub async fn send(&mut self, request: &ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse {
        self.node.call(1, request).await
    }

    pub async fn join(&mut self, member: &str) -> ConsumerGroupHeartbeatResponse {
        let request = self.join_request(member);
        let answer = self.send(&request).await;
        assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
        answer
    }

    pub async fn beat(
        &mut self,
        member: &str,
        epoch: i32,
        owned: Owned<'_>,
    ) -> ConsumerGroupHeartbeatResponse {
        let mut request = self.request(member, epoch);
        request.topic_partitions = owned.and_then(|owned| self.owned(owned));
        self.send(&request).await
    }

    pub async fn leave(&mut self, member: &str) -> i16 {
        self.beat(member, -1, None).await.error_code
    }

    async fn commit(&mut self, version: i16, member: &str, epoch: i32, partition: i32) -> i16 {
        let entry =
            OffsetCommitRequestPartition::default().with_partition_index(partition).with_committed_offset(1);
        let topic =
            OffsetCommitRequestTopic::default().with_name(name(&self.topic)).with_partitions(vec![entry]);
        let request = OffsetCommitRequest::default()
            .with_group_id(text(&self.name).into())
            .with_member_id(text(member))
            .with_generation_id_or_member_epoch(epoch)
            .with_topics(vec![topic]);
        self.node.call(version, &request).await.topics[0].partitions[0].error_code
    }

    async fn fetch(&mut self, member: Option<&str>, epoch: i32) -> i16 {
        let group = OffsetFetchRequestGroup::default()
            .with_group_id(text(&self.name).into())
            .with_member_id(member.map(text))
            .with_member_epoch(epoch)
            .with_topics(None);
        let request = OffsetFetchRequest::default().with_groups(vec![group]);
        self.node.call(9, &request).await.groups[0].error_code
    }
}

/// The partitions of an answer; `None`: nothing new is said.
fn given(answer: &ConsumerGroupHeartbeatResponse) -> Option<BTreeSet<i32>> {
    let assignment = answer.assignment.as_ref()?;
    Some(assignment.topic_partitions.iter().flat_map(|topic| topic.partitions.clone()).collect())
}

fn set(partitions: impl IntoIterator<Item = i32>) -> BTreeSet<i32> {
    partitions.into_iter().collect()
}

pub async fn a_join_with_a_wrong_field_is_42_or_112(cluster: &mut dyn RawBroker) {
    let mut g = setup(cluster).await;
    let good = g.join_request("m");
    let mut bad = vec![
        good.clone().with_member_id(text("")),
        good.clone().with_member_id(text(" ")),
        good.clone().with_rebalance_timeout_ms(-1),
        good.clone().with_topic_partitions(None),
        good.clone().with_topic_partitions(g.owned(&[0])),
        good.clone().with_subscribed_topic_names(None),
        good.clone().with_instance_id(Some(text(""))),
        good.clone().with_rack_id(Some(text(""))),
        good.clone().with_member_epoch(-2),
        good.clone().with_member_epoch(-3),
    ];
    for request in bad.drain(..) {
        let answer = g.send(&request).await;
        assert_eq!(answer.error_code, 42, "{request:?}");
        assert!(answer.error_message.is_some());
        assert_eq!((answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment), (0, 0, None));
    }
    for assignor in ["sticky", ""] {
        let request = good.clone().with_server_assignor(Some(text(assignor)));
        assert_eq!(g.send(&request).await.error_code, 112);
    }
    for epoch in [5, -1] {
        assert_eq!(g.beat("m", epoch, None).await.error_code, 69, "no such group");
    }
    let made = g.node.call(0, &good.clone().with_member_id(text(""))).await;
    assert_eq!(made.error_code, 0);
    assert_eq!(made.member_id.unwrap().len(), 22);
}

pub async fn an_assignment_is_told_once_and_repeated_to_a_full_request(cluster: &mut dyn RawBroker) {
    let mut g = setup(cluster).await;
    let joined = g.join("a").await;
    assert_eq!(given(&joined), Some(set(0..6)));
    assert!(joined.heartbeat_interval_ms > 0);
    let epoch = joined.member_epoch;
    for _ in 0..2 {
        let answer = g.beat("a", epoch, None).await;
        assert_eq!((answer.error_code, answer.member_epoch, given(&answer)), (0, epoch, None));
    }
    assert_eq!(given(&g.beat("a", epoch, Some(&[0, 1, 2, 3, 4, 5])).await), None);
    let mut full = g.join_request("a").with_member_epoch(epoch);
    full.topic_partitions = g.owned(&[0, 1, 2, 3, 4, 5]);
    assert_eq!(given(&g.send(&full).await), Some(set(0..6)));
}

pub async fn an_empty_list_of_topics_is_accepted(cluster: &mut dyn RawBroker) {
    let mut g = setup(cluster).await;
    let request = g.join_request("a").with_subscribed_topic_names(Some(Vec::new()));
    let answer = g.send(&request).await;
    assert_eq!((answer.error_code, given(&answer)), (0, Some(set([]))));
    // The subscription changes later.
    let mut request = g.request("a", answer.member_epoch);
    request.subscribed_topic_names = Some(vec![name(&g.topic)]);
    assert_eq!(given(&g.send(&request).await), Some(set(0..6)));
}

pub async fn a_second_member_waits_until_the_first_has_given_up(cluster: &mut dyn RawBroker) {
    let mut g = setup(cluster).await;
    let old = g.join("a").await.member_epoch;
    assert_eq!(g.beat("a", old, Some(&[0, 1, 2, 3, 4, 5])).await.error_code, 0);
    let b = g.join("b").await;
    assert_eq!(given(&b), Some(set([])));
    let new = b.member_epoch;
    assert!(new > old);
    // A is told to keep three, at its old epoch.
    let told = g.beat("a", old, None).await;
    assert_eq!(told.member_epoch, old);
    let kept = given(&told).unwrap();
    assert_eq!(kept.len(), 3);
    let kept: Vec<i32> = kept.into_iter().collect();
    // Not acknowledged: no error, not repeated, and B still waits.
    for owned in [None, Some(&[0, 1, 2, 3, 4, 5][..])] {
        let answer = g.beat("a", old, owned).await;
        assert_eq!((answer.error_code, answer.member_epoch, given(&answer)), (0, old, None));
    }
    let waiting = g.beat("b", new, None).await;
    assert_eq!((waiting.member_epoch, given(&waiting)), (new, None));
    // The acknowledgement moves A to the new epoch; sent again because its answer was lost, it is accepted.
    assert_eq!(g.beat("a", old, Some(&kept)).await.member_epoch, new);
    let again = g.beat("a", old, Some(&kept)).await;
    assert_eq!((again.error_code, again.member_epoch), (0, new));
    assert_eq!(g.beat("a", old, None).await.error_code, 110);
    assert_eq!(g.beat("a", new + 1, None).await.error_code, 110);
    assert_eq!(g.beat("a", new, None).await.error_code, 0, "a 110 removes nobody");
    let got = given(&g.beat("b", new, None).await).unwrap();
    assert_eq!(got.len(), 3);
    assert!(kept.iter().all(|partition| !got.contains(partition)));
    // B leaves; A gets everything again.
    assert_eq!(g.leave("b").await, 0);
    assert_eq!(g.leave("b").await, 25);
    assert_eq!(g.beat("b", new, None).await.error_code, 25);
    assert_eq!(given(&g.beat("a", new, None).await), Some(set(0..6)));
}

pub async fn epoch_0_of_a_live_member_is_a_rejoin(cluster: &mut dyn RawBroker) {
    let mut g = setup(cluster).await;
    let first = g.join("a").await;
    let again = g.join("a").await;
    assert_eq!((again.member_epoch, given(&again)), (first.member_epoch, Some(set(0..6))));
}

pub async fn a_static_member_is_replaced_only_after_it_has_parked(cluster: &mut dyn RawBroker) {
    let mut g = setup(cluster).await;
    let instance = |request: ConsumerGroupHeartbeatRequest| request.with_instance_id(Some(text("i")));
    let a = instance(g.join_request("a"));
    let epoch = g.send(&a).await.member_epoch;
    let b = instance(g.join_request("b"));
    assert_eq!(g.send(&b).await.error_code, 111);
    let stranger = instance(g.request("b", epoch));
    assert_eq!(g.send(&stranger).await.error_code, 82);
    assert_eq!(g.beat("a", epoch, None).await.error_code, 0, "without its instance id it is not checked");
    let unknown = g.request("a", epoch).with_instance_id(Some(text("x")));
    assert_eq!(g.send(&unknown).await.error_code, 25);
    let park = instance(g.request("a", -2));
    let parked = g.send(&park).await;
    assert_eq!((parked.error_code, parked.member_epoch), (0, -2));
    let beat = instance(g.request("a", epoch));
    assert_eq!(g.send(&beat).await.error_code, 110);
    let taken = g.send(&b).await;
    assert_eq!((taken.error_code, taken.member_epoch, given(&taken)), (0, epoch, Some(set(0..6))));
    assert_eq!(g.send(&beat).await.error_code, 82);
    assert_eq!(g.commit(9, "a", epoch, 0).await, 25);
    let gone = instance(g.request("b", -1));
    assert_eq!(g.send(&gone).await.error_code, 0);
}

pub async fn a_members_commits_are_checked_by_id_and_epoch(cluster: &mut dyn RawBroker) {
    let mut g = setup(cluster).await;
    let epoch = g.join("a").await.member_epoch;
    assert_eq!(g.commit(9, "a", epoch, 0).await, 0);
    for (member, other, code) in [
        ("", -1, 25),
        ("x", epoch, 25),
        ("a", epoch + 1, 113),
        ("a", epoch - 1, 113),
        ("a", -1, 113),
        ("a", 0, 113),
    ] {
        assert_eq!(g.commit(9, member, other, 0).await, code, "{member:?} {other}");
    }
    assert_eq!(g.commit(8, "a", epoch, 0).await, 35);
    for (member, other, code) in [
        (None, -1, 0),
        (Some("a"), epoch, 0),
        (Some(""), -1, 25),
        (Some("x"), epoch, 25),
        (Some("a"), epoch + 1, 113),
    ] {
        assert_eq!(g.fetch(member, other).await, code, "{member:?} {other}");
    }
    assert_eq!(g.leave("a").await, 0);
    assert_eq!(g.commit(9, "a", epoch, 0).await, 25);
    assert_eq!(g.commit(9, "", -1, 0).await, 0, "nobody is left");
}

pub async fn after_an_acknowledgement_the_old_epoch_commits_only_what_is_kept(cluster: &mut dyn RawBroker) {
    let mut g = setup(cluster).await;
    let old = g.join("a").await.member_epoch;
    g.beat("a", old, Some(&[0, 1, 2, 3, 4, 5])).await;
    let new = g.join("b").await.member_epoch;
    let kept: Vec<i32> = given(&g.beat("a", old, None).await).unwrap().into_iter().collect();
    let lost = (0..6).find(|partition| !kept.contains(partition)).unwrap();
    assert_eq!(g.commit(9, "a", old, lost).await, 0, "told, not acknowledged");
    assert_eq!(g.commit(9, "a", new, lost).await, 113, "the coming epoch");
    assert_eq!(g.beat("a", old, Some(&kept)).await.member_epoch, new);
    assert_eq!(g.commit(9, "a", old, kept[0]).await, 0);
    assert_eq!(g.commit(9, "a", old, lost).await, 113);
    assert_eq!(g.commit(9, "a", new, lost).await, 0, "who owns what is not checked");
}

pub async fn a_pattern_is_resolved_after_the_first_answer(cluster: &mut dyn RawBroker) {
    let mut g = setup(cluster).await;
    let mut request = g.join_request("a").with_subscribed_topic_names(None);
    for bad in ["t[", "(?=x)"] {
        request.subscribed_topic_regex = Some(text(bad));
        assert_eq!(g.send(&request).await.error_code, 128, "{bad}");
    }
    g.leave("a").await;
    request.subscribed_topic_regex = Some(text(&format!("{}.*", g.topic)));
    let joined = g.send(&request).await;
    assert_eq!((joined.error_code, given(&joined)), (0, Some(set([]))));
    let mut epoch = joined.member_epoch;
    // The resolution may come some seconds later when the topic is new.
    let got = pattern_gives(&mut g, "a", &mut epoch, &[]).await;
    assert_eq!(got, set(0..6));
    // Another member with the same pattern gets its share, though the group has no topic more.
    request.member_id = text("b");
    let other = g.send(&request).await.member_epoch;
    let mut other = g.beat("b", other, Some(&[])).await.member_epoch;
    let owned: Vec<i32> = got.into_iter().collect();
    let kept: Vec<i32> = pattern_gives(&mut g, "a", &mut epoch, &owned).await.into_iter().collect();
    assert_eq!(kept.len(), 3);
    g.beat("a", epoch, Some(&kept)).await;
    let theirs = pattern_gives(&mut g, "b", &mut other, &[]).await;
    assert_eq!(kept.into_iter().chain(theirs).collect::<BTreeSet<_>>(), set(0..6));
}

/// Beats until something is assigned, which is not what is owned.
async fn pattern_gives(g: &mut Group, member: &str, epoch: &mut i32, owned: &[i32]) -> BTreeSet<i32> {
    for _ in 0..300 {
        let answer = g.beat(member, *epoch, Some(owned)).await;
        assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
        *epoch = answer.member_epoch;
        if let Some(got) = given(&answer).filter(|got| !got.is_empty() && *got != set(owned.iter().copied()))
        {
            return got;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never assigned");
}

pub async fn a_topic_made_later_is_assigned_then(cluster: &mut dyn RawBroker) {
    let mut g = setup(cluster).await;
    let later = fresh("later");
    let request = g.join_request("a").with_subscribed_topic_names(Some(vec![name(&later)]));
    let joined = g.send(&request).await;
    assert_eq!((joined.error_code, given(&joined)), (0, Some(set([]))));
    g.view.create_named(&later, &[&[1], &[1]]).await;
    let mut epoch = joined.member_epoch;
    for _ in 0..100 {
        let answer = g.beat("a", epoch, None).await;
        assert_eq!(answer.error_code, 0);
        epoch = answer.member_epoch;
        if let Some(got) = given(&answer) {
            assert_eq!(got, set(0..2));
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never assigned");
}
