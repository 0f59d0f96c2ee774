//! Topics named by id: unknown, deleted and recreated ones.

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    DeleteTopicsRequest, MetadataRequest, delete_topics_request::DeleteTopicState,
};
use uuid::Uuid;

use super::raw::{Ask, RawBroker, View, batch, name, parts, produce, size};
use super::sessions::setup;

async fn delete(view: &View, topic: &str) {
    let state = DeleteTopicState::default().with_name(Some(name(topic)));
    let request = DeleteTopicsRequest::default().with_timeout_ms(10_000).with_topics(vec![state]);
    assert_eq!(view.any().await.call(6, &request).await.responses[0].error_code, 0);
    view.gone(topic).await;
}

pub async fn an_unknown_topic_is_3_by_name_and_100_by_id(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let nowhere = Uuid::from_u128(0x1111_2222_3333_4444_5555_6666_7777_8888);
    for (version, id, code) in
        [(12, nowhere, 3), (13, nowhere, 100), (16, nowhere, 100), (16, Uuid::nil(), 100)]
    {
        let answer = Ask::new(version).add("no-such-topic", id, 0, 0).of(&mut s.leader).await;
        let part = parts(&answer)[0];
        assert_eq!((part.error_code, part.high_watermark), (code, -1));
    }
}

pub async fn a_deleted_topic_in_a_session_is_3(cluster: &mut dyn RawBroker) {
    for version in [12, 16] {
        let mut s = setup(cluster).await;
        let id = Ask::new(version).session(0, 0).add(&s.topic, s.id, 0, 1).of(&mut s.leader).await.session_id;
        delete(&s.view, &s.topic).await;
        let answer = Ask::new(version).session(id, 1).of(&mut s.leader).await;
        assert_eq!(parts(&answer)[0].error_code, 3, "v{version}");
    }
}

pub async fn a_recreated_topic_in_a_session_is_served_by_name_and_103_by_id(cluster: &mut dyn RawBroker) {
    for version in [12, 16] {
        let mut s = setup(cluster).await;
        let id = Ask::new(version).session(0, 0).add(&s.topic, s.id, 0, 1).of(&mut s.leader).await.session_id;
        let node = s.view.topic(&s.topic).await.partitions[0].leader_id.0;
        delete(&s.view, &s.topic).await;
        s.view.create_named(&s.topic, &[&[node]]).await;
        for value in [b"a", b"b"] {
            assert_eq!(produce(&mut s.leader, &s.topic, 0, batch(&[value])).await.error_code, 0);
        }
        let answer = Ask::new(version).session(id, 1).of(&mut s.leader).await;
        let part = parts(&answer)[0];
        if version < 13 {
            assert_eq!(part.error_code, 0);
            assert!(size(part) > 0, "the new topic's records from the old position");
        } else {
            assert_eq!(part.error_code, 103);
        }
        let sessionless = Ask::new(16).add(&s.topic, s.id, 0, 0).of(&mut s.leader).await;
        assert_eq!(parts(&sessionless)[0].error_code, 100);
    }
}

pub async fn metadata_by_an_old_id_is_100(cluster: &mut dyn RawBroker) {
    let s = setup(cluster).await;
    delete(&s.view, &s.topic).await;
    let wanted = MetadataRequestTopic::default().with_topic_id(s.id);
    let request = MetadataRequest::default().with_topics(Some(vec![wanted]));
    let answer = s.view.any().await.call(12, &request).await;
    assert_eq!(answer.topics[0].error_code, 100);
}

pub async fn an_unknown_id_in_a_session_is_repeated_behind_the_good_ones_until_replaced(
    cluster: &mut dyn RawBroker,
) {
    let mut s = setup(cluster).await;
    let nowhere = Uuid::from_u128(0x1111_2222_3333_4444_5555_6666_7777_8888);
    let ask = Ask::new(16).session(0, 0).add("", nowhere, 0, 0).add(&s.topic, s.id, 0, 0);
    let first = ask.of(&mut s.leader).await;
    let id = first.session_id;
    assert_eq!(parts(&first).iter().map(|part| part.error_code).collect::<Vec<_>>(), [0, 100]);
    let second = Ask::new(16).session(id, 1).of(&mut s.leader).await;
    assert_eq!(parts(&second).iter().map(|part| part.error_code).collect::<Vec<_>>(), [0, 100]);
    let replaced =
        Ask::new(16).session(id, 2).forget("", nowhere, 0).add(&s.topic, s.id, 1, 0).of(&mut s.leader).await;
    assert_eq!(parts(&replaced).iter().map(|part| part.error_code).collect::<Vec<_>>(), [0, 0]);
}
