//! Idempotent and transactional producers, as far as a reader's tests lean on them.

use std::time::Duration;

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, ConsumerGroupHeartbeatRequest, EndTxnRequest,
    EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse, OffsetCommitRequest, OffsetFetchRequest,
    TxnOffsetCommitRequest,
};

use super::raw::{Raw, RawBroker, View, batch_of, fresh, name, now_ms, produce_request, text};
use super::sessions::setup;

pub struct Producer {
    pub coordinator: Raw,
    pub id: String,
    pub producer_id: i64,
    pub epoch: i16,
}

pub async fn init(
    coordinator: &mut Raw,
    id: &str,
    producer: (i64, i16),
    timeout: i32,
) -> InitProducerIdResponse {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(text(id).into()))
        .with_transaction_timeout_ms(timeout)
        .with_producer_id(producer.0.into())
        .with_producer_epoch(producer.1);
    loop {
        let answer = coordinator.call(4, &request).await;
        // What a coordinator says that has just started, or still writes markers.
        if ![14, 15, 16, 51].contains(&answer.error_code) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Producer {
    pub async fn begin(view: &View) -> Producer {
        let id = fresh("txn");
        let mut coordinator = view.coordinator(1, &id).await;
        let answer = init(&mut coordinator, &id, (-1, -1), 60_000).await;
        assert_eq!(answer.error_code, 0);
        Producer { coordinator, id, producer_id: answer.producer_id.0, epoch: answer.producer_epoch }
    }

    pub async fn add(&mut self, version: i16, topic: &str, partition: i32) -> i16 {
        let new = AddPartitionsToTxnTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(text(&self.id).into())
            .with_v3_and_below_producer_id(self.producer_id.into())
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(vec![new]);
        loop {
            let answer = self.coordinator.call(version, &request).await;
            let code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code;
            if code != 51 {
                return code;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn produce(&self, leader: &mut Raw, version: i16, topic: &str, sequence: i32) -> i16 {
        let batch = batch_of(&[(None, b"x", now_ms())], self.producer_id, self.epoch, sequence, true);
        let request = produce_request(topic, 1, batch).with_transactional_id(Some(text(&self.id).into()));
        loop {
            let code = leader.call(version, &request).await.responses[0].partition_responses[0].error_code;
            if code != 51 {
                return code;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn end(&mut self, version: i16, epoch: i16, commit: bool) -> EndTxnResponse {
        let request = EndTxnRequest::default()
            .with_transactional_id(text(&self.id).into())
            .with_producer_id(self.producer_id.into())
            .with_producer_epoch(epoch)
            .with_committed(commit);
        loop {
            let answer = self.coordinator.call(version, &request).await;
            if answer.error_code != 51 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub async fn a_repeated_batch_is_answered_alike_and_a_gap_is_45(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let request = InitProducerIdRequest::default().with_producer_id((-1).into()).with_producer_epoch(-1);
    let request = request.with_transaction_timeout_ms(60_000);
    let empty = request.clone().with_transactional_id(Some(text("").into()));
    assert_eq!(s.leader.call(4, &empty.with_producer_id((-1).into())).await.error_code, 42);
    let answer = s.leader.call(4, &request.with_transactional_id(None)).await;
    assert_eq!(answer.error_code, 0);
    let id = answer.producer_id.0;
    let write = |sequence: i32| {
        let batch = batch_of(&[(None, b"x", now_ms()), (None, b"y", now_ms())], id, 0, sequence, false);
        produce_request(&s.topic, 1, batch)
    };
    for (sequence, code, offset) in [(0, 0, 0), (2, 0, 2), (0, 0, 0), (2, 0, 2), (7, 45, -1), (4, 0, 4)] {
        let answer = s.leader.call(9, &write(sequence)).await;
        let part = &answer.responses[0].partition_responses[0];
        assert_eq!((part.error_code, part.base_offset), (code, offset), "sequence {sequence}");
    }
}

pub async fn a_partition_that_was_not_added_is_48_then_120_then_added_by_itself(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut producer = Producer::begin(&s.view).await;
    assert_eq!(producer.produce(&mut s.leader, 9, &s.topic, 0).await, 48);
    assert_eq!(producer.produce(&mut s.leader, 11, &s.topic, 0).await, 120);
    assert_eq!(producer.produce(&mut s.leader, 12, &s.topic, 0).await, 0);
    let epoch = producer.epoch;
    assert_eq!(producer.end(5, epoch, true).await.error_code, 0);
    s.view.settled(&s.topic, 1, 2).await;
}

pub async fn ending_again_by_the_old_protocol(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut producer = Producer::begin(&s.view).await;
    let epoch = producer.epoch;
    assert_eq!(producer.end(3, epoch, true).await.error_code, 48, "nothing in it");
    for commit in [true, false] {
        assert_eq!(producer.add(3, &s.topic, 1).await, 0);
        assert_eq!(producer.produce(&mut s.leader, 9, &s.topic, i32::from(!commit)).await, 0);
        assert_eq!(producer.end(3, epoch, commit).await.error_code, 0);
        s.view.settled(&s.topic, 1, if commit { 2 } else { 4 }).await;
        if commit {
            assert_eq!(producer.end(3, epoch, true).await.error_code, 0);
            assert_eq!(producer.end(3, epoch, false).await.error_code, 48);
        }
    }
}

pub async fn ending_by_the_new_protocol_raises_the_epoch(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut producer = Producer::begin(&s.view).await;
    let old = producer.epoch;
    assert_eq!(producer.produce(&mut s.leader, 12, &s.topic, 0).await, 0);
    let ended = producer.end(5, old, true).await;
    assert_eq!(
        (ended.error_code, ended.producer_id.0, ended.producer_epoch),
        (0, producer.producer_id, old + 1)
    );
    s.view.settled(&s.topic, 1, 2).await;
    let again = producer.end(5, old, true).await;
    assert_eq!((again.error_code, again.producer_epoch), (0, old + 1), "a lost answer is asked for again");
    assert_eq!(producer.end(5, old, false).await.error_code, 48);
    assert_eq!(producer.end(5, old + 1, true).await.error_code, 48);
    assert_eq!(producer.produce(&mut s.leader, 12, &s.topic, 1).await, 47, "the old epoch");
    producer.epoch = old + 1;
    assert_eq!(producer.produce(&mut s.leader, 12, &s.topic, 1).await, 45, "sequences start again");
    assert_eq!(producer.produce(&mut s.leader, 12, &s.topic, 0).await, 0);
    assert_eq!(producer.end(5, old + 1, false).await.error_code, 0);
}

pub async fn a_fenced_producer_is_47_or_90(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut producer = Producer::begin(&s.view).await;
    assert_eq!(producer.add(3, &s.topic, 1).await, 0);
    assert_eq!(producer.produce(&mut s.leader, 9, &s.topic, 0).await, 0);
    let id = producer.id.clone();
    let newer = init(&mut producer.coordinator, &id, (-1, -1), 60_000).await;
    assert_eq!((newer.error_code, newer.producer_id.0), (0, producer.producer_id));
    assert!(newer.producer_epoch > producer.epoch);
    s.view.settled(&s.topic, 1, 2).await;
    let epoch = producer.epoch;
    assert_eq!(producer.produce(&mut s.leader, 9, &s.topic, 1).await, 47);
    assert_eq!(producer.add(3, &s.topic, 1).await, 90);
    assert_eq!(producer.add(1, &s.topic, 1).await, 47);
    assert_eq!(producer.end(3, epoch, true).await.error_code, 90);
    assert_eq!(producer.end(1, epoch, true).await.error_code, 47);
}

pub async fn a_timeout_over_the_limit_is_50_and_an_unknown_topic_is_3(cluster: &mut dyn RawBroker) {
    let s = setup(cluster).await;
    let mut producer = Producer::begin(&s.view).await;
    assert_eq!(producer.add(3, "no-such-topic", 0).await, 3);
    let id = producer.id.clone();
    assert_eq!(init(&mut producer.coordinator, &id, (-1, -1), 900_001).await.error_code, 50);
}

impl Producer {
    async fn add_offsets(&mut self, group: &str) -> i16 {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(text(&self.id).into())
            .with_producer_id(self.producer_id.into())
            .with_producer_epoch(self.epoch)
            .with_group_id(text(group).into());
        loop {
            let code = self.coordinator.call(3, &request).await.error_code;
            if code != 51 {
                return code;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn commit_offset(
        &self,
        coordinator: &mut Raw,
        version: i16,
        (group, member, generation): (&str, &str, i32),
        (topic, partition, offset): (&str, i32, i64),
    ) -> i16 {
        let entry = TxnOffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset);
        let topic =
            TxnOffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![entry]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(text(&self.id).into())
            .with_group_id(text(group).into())
            .with_producer_id(self.producer_id.into())
            .with_producer_epoch(self.epoch)
            .with_member_id(text(member))
            .with_generation_id(generation)
            .with_topics(vec![topic]);
        loop {
            let code = coordinator.call(version, &request).await.topics[0].partitions[0].error_code;
            if code != 51 {
                return code;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Offset and code of one partition; `None` when it is left out.
async fn offset(
    coordinator: &mut Raw,
    group: &str,
    topic: &str,
    listed: bool,
    stable: bool,
) -> Option<(i64, i16)> {
    let wanted = OffsetFetchRequestTopics::default().with_name(name(topic)).with_partition_indexes(vec![0]);
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(text(group).into())
        .with_member_id(None)
        .with_member_epoch(-1)
        .with_topics(listed.then(|| vec![wanted]));
    let request = OffsetFetchRequest::default().with_groups(vec![group]).with_require_stable(stable);
    let answer = coordinator.call(9, &request).await.groups.remove(0);
    let part = answer.topics.first()?.partitions.first()?;
    Some((part.committed_offset, part.error_code))
}

async fn plain_commit(coordinator: &mut Raw, group: &str, topic: &str, at: i64) {
    let entry = OffsetCommitRequestPartition::default().with_partition_index(0).with_committed_offset(at);
    let topic = OffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![entry]);
    let request = OffsetCommitRequest::default()
        .with_group_id(text(group).into())
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    assert_eq!(coordinator.call(9, &request).await.topics[0].partitions[0].error_code, 0);
}

/// Waits until the group's offset is stable again; what it is then.
async fn stable(coordinator: &mut Raw, group: &str, topic: &str) -> i64 {
    loop {
        match offset(coordinator, group, topic, true, true).await {
            Some((_, 88)) => tokio::time::sleep(Duration::from_millis(20)).await,
            found => return found.unwrap().0,
        }
    }
}

pub async fn a_transactions_offset_is_unstable_until_it_ends(cluster: &mut dyn RawBroker) {
    let s = setup(cluster).await;
    let (group, nobody) = (fresh("group"), -1);
    let mut coordinator = s.view.coordinator(0, &group).await;
    let mut producer = Producer::begin(&s.view).await;
    let (who, topic) = ((group.as_str(), "", nobody), s.topic.as_str());
    assert_eq!(producer.commit_offset(&mut coordinator, 3, who, (topic, 0, 5)).await, 48);
    assert_eq!(producer.commit_offset(&mut coordinator, 4, who, (topic, 0, 5)).await, 120);
    assert_eq!(producer.add_offsets(&group).await, 0);
    assert_eq!(producer.commit_offset(&mut coordinator, 3, who, (topic, 0, 5)).await, 0);
    assert_eq!(producer.commit_offset(&mut coordinator, 3, who, ("no-such-topic", 0, 5)).await, 3);
    assert_eq!(offset(&mut coordinator, &group, topic, true, true).await, Some((-1, 88)));
    assert_eq!(offset(&mut coordinator, &group, topic, true, false).await, Some((-1, 0)));
    assert_eq!(offset(&mut coordinator, &group, topic, false, true).await, None, "only pending: left out");
    let epoch = producer.epoch;
    assert_eq!(producer.end(3, epoch, true).await.error_code, 0);
    assert_eq!(stable(&mut coordinator, &group, topic).await, 5);
    // The next one is aborted.
    assert_eq!(producer.add_offsets(&group).await, 0);
    assert_eq!(producer.commit_offset(&mut coordinator, 3, who, (topic, 0, 9)).await, 0);
    assert_eq!(offset(&mut coordinator, &group, topic, true, false).await, Some((5, 0)));
    assert_eq!(offset(&mut coordinator, &group, topic, false, true).await, Some((-1, 88)));
    assert_eq!(producer.end(3, epoch, false).await.error_code, 0);
    assert_eq!(stable(&mut coordinator, &group, topic).await, 5);
}

pub async fn a_plain_commit_wins_over_an_earlier_one_in_a_transaction(cluster: &mut dyn RawBroker) {
    let s = setup(cluster).await;
    let group = fresh("group");
    let mut coordinator = s.view.coordinator(0, &group).await;
    let mut producer = Producer::begin(&s.view).await;
    assert_eq!(producer.add_offsets(&group).await, 0);
    let who = (group.as_str(), "", -1);
    assert_eq!(producer.commit_offset(&mut coordinator, 3, who, (&s.topic, 0, 5)).await, 0);
    plain_commit(&mut coordinator, &group, &s.topic, 3).await;
    let epoch = producer.epoch;
    assert_eq!(producer.end(3, epoch, true).await.error_code, 0);
    assert_eq!(stable(&mut coordinator, &group, &s.topic).await, 3);
}

pub async fn a_members_identity_is_checked_inside_a_transaction(cluster: &mut dyn RawBroker) {
    let s = setup(cluster).await;
    let group = fresh("group");
    let mut coordinator = s.view.coordinator(0, &group).await;
    let request = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(text(&group).into())
        .with_member_id(text("m"))
        .with_rebalance_timeout_ms(60_000)
        .with_subscribed_topic_names(Some(vec![name(&s.topic)]))
        .with_topic_partitions(Some(Vec::new()));
    let joined = coordinator.call(1, &request).await;
    assert_eq!(joined.error_code, 0);
    let epoch = joined.member_epoch;
    let mut producer = Producer::begin(&s.view).await;
    for (member, generation, code) in
        [("m", epoch, 0), ("m", epoch + 1, 22), ("m", epoch - 1, 22), ("x", epoch, 25), ("", -1, 0)]
    {
        // By the newest protocol the group is added by itself.
        let who = (group.as_str(), member, generation);
        let answer = producer.commit_offset(&mut coordinator, 5, who, (&s.topic, 0, 5)).await;
        assert_eq!(answer, code, "{member:?} {generation}");
    }
    let epoch = producer.epoch;
    assert_eq!(producer.end(5, epoch, true).await.error_code, 0);
    assert_eq!(stable(&mut coordinator, &group, &s.topic).await, 5);
}
