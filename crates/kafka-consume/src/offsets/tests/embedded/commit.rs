//! What is stored is what is read, and refusals come per partition.

use kafka_meta::wire::protocol::messages::ApiKey;
use kafka_meta::{ErrorCode, ErrorKind, TopicName};

use super::{committed_offset, setup, within};
use crate::offsets::tests::key;
use crate::offsets::{GroupOffsets, Identity};

#[tokio::test(start_paused = true)]
async fn offset_epoch_and_metadata_come_back_as_stored() {
    let setup = setup().await;
    let full = committed_offset(7).with_leader_epoch(0).with_metadata("note");
    let list = vec![(key(0), full.clone()), (key(1), committed_offset(9))];
    setup.group.commit(list, Identity::anonymous(), within(10)).await.unwrap();
    let found = setup.group.committed(vec![key(0), key(1), key(2)], None, within(10)).await.unwrap();
    assert_eq!(found[&key(0)], Some(full));
    assert_eq!(found[&key(1)], Some(committed_offset(9)));
    assert_eq!(found[&key(2)], None);
    assert_eq!(setup.commits_sent(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_live_group_refuses_an_anonymous_commit_per_partition_and_still_lets_it_read() {
    let setup = setup().await;
    setup.commit_all(&[(0, 3)]).await;
    setup.kafka.set_group_live(super::GROUP, true);
    let results = setup.commit(&[(0, 5), (1, 6)]).await.unwrap();
    assert_eq!(results.len(), 2);
    for (_, result) in results {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Broker(ErrorCode::UNKNOWN_MEMBER_ID));
    }
    assert_eq!(setup.commits_sent(), 2, "a refusal is not retried");
    assert_eq!(setup.committed(&[0, 1]).await.unwrap(), [Some(3), None]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_topic_is_refused_after_a_grace_and_the_others_are_stored() {
    let setup = setup().await;
    let gone = (TopicName::new("no-such-topic"), 0);
    let list = vec![(gone, committed_offset(1)), (key(0), committed_offset(2))];
    let results = setup.group.commit(list, Identity::anonymous(), within(60)).await.unwrap();
    let error = results[0].1.as_ref().unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some("no-such-topic")));
    assert!(results[1].1.is_ok());
    assert_eq!(setup.stored(0), Some(2));
    assert!(setup.commits_sent() < 20, "{}", setup.commits_sent());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_for_nothing_for_a_negative_offset_or_for_no_group() {
    let setup = setup().await;
    assert!(setup.commit(&[]).await.unwrap().is_empty());
    assert!(setup.commit(&[(0, -1)]).await.unwrap()[0].1.is_err());
    let nameless = GroupOffsets::new(setup.cluster.clone(), &setup.cluster.owner(), "");
    let list = vec![(key(0), committed_offset(1))];
    let error = nameless.commit(list, Identity::anonymous(), within(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    let error = nameless.committed(vec![key(0)], None, within(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(setup.commits_sent() + setup.sent(ApiKey::OffsetFetch), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_commits_at_once_are_few_requests_and_the_last_one_stays() {
    let setup = setup().await;
    setup.commit_all(&[(0, 0)]).await;
    let many = (1..=100).map(|offset| {
        let group = setup.group.clone();
        async move {
            let list = vec![(key(0), committed_offset(offset))];
            group.commit(list, Identity::anonymous(), within(10)).await
        }
    });
    for outcome in futures::future::join_all(many).await {
        assert!(outcome.unwrap()[0].1.is_ok());
    }
    assert_eq!(setup.stored(0), Some(100));
    assert!(setup.commits_sent() <= 4, "{}", setup.commits_sent());
}
