//! Moved controllers, leaders and coordinators, lost answers, silence: what passes is asked again, what does not is
//! told per item, and every call ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;

use kafka_admin::{CommittedOffset, ErrorCode, ErrorKind, NewTopic, OffsetSpec};
use kafka_meta::wire::protocol::messages::{ApiKey, DeleteTopicsResponse};
use support::{kinds, one, start};
use testkit::embedded::TopicSpec;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_none_any_more_is_asked_for_again() {
    let (kafka, admin) = start(3).await;
    let fault = kafka.fault(ApiKey::CreateTopics).times(3).error(41);
    one(admin.create_topics([NewTopic::new("t")]).await.unwrap()).unwrap();
    assert_eq!(fault.hits(), 3);
    kafka.fault(ApiKey::DeleteTopics).times(2).error(89);
    one(admin.delete_topics(["t"]).await.unwrap()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_told_when_the_next_attempt_is_refused() {
    let (kafka, admin) = start(3).await;
    kafka.fault(ApiKey::CreateTopics).times(1).drop_connection_after();
    let error = one(admin.create_topics([NewTopic::new("t")]).await.unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broker(ErrorCode::TOPIC_ALREADY_EXISTS));
    assert!(error.to_string().contains("earlier attempt"), "{error}");
    // Where the request was lost and not its answer, nobody notices.
    kafka.fault(ApiKey::CreateTopics).times(1).drop_connection_before();
    one(admin.create_topics([NewTopic::new("u")]).await.unwrap()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_moved_leader_is_followed() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic_with("t", TopicSpec::new(3).with_replicas(3));
    kafka.append_records("t", 0, [("k", "v")]);
    admin.list_offsets([(("t", 0), OffsetSpec::Latest)]).await.unwrap();
    kafka.move_leader("t", 0, 3);
    let wanted = [
        (("t", 0), OffsetSpec::Latest),
        (("t", 1), OffsetSpec::Earliest),
        (("t", 2), OffsetSpec::MaxTimestamp),
        (("t", 7), OffsetSpec::Latest),
        (("nope", 0), OffsetSpec::Latest),
        (("t", 1), OffsetSpec::Timestamp(-5)),
    ];
    let found = admin.list_offsets(wanted).await.unwrap();
    let unknown = Some(ErrorKind::UnknownTopic);
    assert_eq!(kinds(&found), [None, None, None, unknown, unknown, Some(ErrorKind::InvalidRequest)]);
    assert_eq!(found[0].1.as_ref().unwrap().unwrap().offset, 1);
    assert!(found[2].1.as_ref().unwrap().is_none());
    assert_eq!(one(admin.delete_records([(("t", 0), 1)]).await.unwrap()).unwrap(), 1);

    // Open transactions count unless committed records are asked for.
    let mut open = kafka.begin("tx");
    open.append("t", 1, ["v"]);
    let latest = [(("t", 1), OffsetSpec::Latest)];
    assert!(one(admin.list_offsets(latest).await.unwrap()).unwrap().unwrap().offset > 0);
    assert_eq!(one(admin.list_committed_offsets(latest).await.unwrap()).unwrap().unwrap().offset, 0);
    open.abort();
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_moves_or_loads_is_waited_for() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic("t", 1);
    kafka.set_coordinator_not_available(2);
    kafka.set_coordinator_warming(&[16, 14, 14]);
    let wanted = [(("t", 0), CommittedOffset::new(4))];
    one(admin.alter_group_offsets("g", wanted.clone()).await.unwrap()).unwrap();
    let here = kafka.coordinator("g").unwrap();
    kafka.move_coordinator("g", here % 3 + 1);
    one(admin.alter_group_offsets("g", wanted).await.unwrap()).unwrap();
    kafka.set_coordinator_warming(&[14]);
    assert_eq!(kafka.committed("g", "t", 0), Some(4));
    one(admin.describe_groups(["g"]).await.unwrap()).unwrap();
    kafka.fault(ApiKey::DeleteGroups).times(2).drop_connection_before();
    one(admin.delete_groups(["g"]).await.unwrap()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn silence_ends_at_the_timeout_and_costs_others_nothing() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic_with("t", TopicSpec::new(2).with_placement(vec![vec![1], vec![2]]));
    let admin = admin.with_timeout(Duration::from_secs(5));
    let _held = kafka.fault(ApiKey::ListOffsets).node(2).hold();
    let started = Instant::now();
    let wanted = [(("t", 0), OffsetSpec::Latest), (("t", 1), OffsetSpec::Latest)];
    let found = admin.list_offsets(wanted).await.unwrap();
    assert_eq!(kinds(&found), [None, Some(ErrorKind::Timeout)]);
    assert_eq!(found[1].1.as_ref().unwrap_err().partition(), Some(1));
    assert!(started.elapsed() <= Duration::from_millis(5100), "{:?}", started.elapsed());

    // Nobody answers about anything: the call as a whole has failed.
    let _all = kafka.fault(ApiKey::CreateTopics).hold();
    let error = admin.create_topics([NewTopic::new("x")]).await.unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Timeout, Some("x")));
    assert!(error.to_string().contains("not known"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_request_keeps_nobody_elses_connection() {
    let (kafka, admin) = start(1).await;
    kafka.create_topic("t", 1);
    let held = kafka.fault(ApiKey::CreateTopics).hold();
    let making = admin.create_topics([NewTopic::new("slow")]);
    tokio::pin!(making);
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut making).await.is_err());
    // The shared connection is another one.
    let started = Instant::now();
    assert_eq!(admin.cluster().partitions("t").await.unwrap(), [0]);
    assert!(started.elapsed() < Duration::from_secs(1));
    held.release();
    one(making.await.unwrap()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_disturbs_no_later_one() {
    let (kafka, admin) = start(1).await;
    let held = kafka.fault(ApiKey::CreateTopics).times(1).hold();
    {
        let making = admin.create_topics([NewTopic::new("first")]);
        assert!(tokio::time::timeout(Duration::from_secs(1), making).await.is_err());
    }
    held.release();
    one(admin.create_topics([NewTopic::new("second")]).await.unwrap()).unwrap();
    // What had been sent was carried out.
    assert!(kafka.until(Duration::from_secs(5), |kafka| kafka.high_watermark("first", 0) == 0).await);
    let names: Vec<_> = admin.list_topics().await.unwrap().into_iter().map(|topic| topic.name).collect();
    assert_eq!(names, ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn a_topic_the_broker_leaves_out_is_refused_and_the_others_are_not() {
    let (kafka, admin) = start(1).await;
    kafka.create_topic("a", 1);
    kafka.create_topic("b", 1);
    kafka.fault(ApiKey::DeleteTopics).map(|answer: &mut DeleteTopicsResponse| {
        answer.responses.retain(|topic| topic.name.as_ref().is_some_and(|name| name.as_str() == "b"));
    });
    let deleted = admin.delete_topics(["a", "b"]).await.unwrap();
    assert_eq!(kinds(&deleted), [Some(ErrorKind::Broker(ErrorCode::UNKNOWN_SERVER_ERROR)), None]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_gone_fails_the_call_in_time() {
    let (kafka, admin) = start(2).await;
    for node in 1..=2 {
        kafka.kill_node(node);
    }
    let admin = admin.with_timeout(Duration::from_secs(3));
    let started = Instant::now();
    assert!(admin.describe_cluster().await.is_err());
    assert!(admin.list_topics().await.is_err());
    assert!(admin.list_groups().await.is_err());
    assert!(admin.describe_groups(["g"]).await.is_err());
    assert!(started.elapsed() <= Duration::from_millis(12_500), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_died_is_replaced_and_what_was_never_sent_is_not_doubted() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic_with("taken", TopicSpec::new(1).with_placement(vec![vec![2]]));
    kafka.kill_node(1);
    let replaced = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        kafka.fail_over(1);
    };
    let (made, ()) =
        tokio::join!(admin.create_topics([NewTopic::new("t"), NewTopic::new("taken")]), replaced);
    let made = made.unwrap();
    assert_eq!(kinds(&made), [None, Some(ErrorKind::Broker(ErrorCode::TOPIC_ALREADY_EXISTS))]);
    let text = made[1].1.as_ref().unwrap_err().to_string();
    assert!(!text.contains("earlier"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_died_costs_other_groups_nothing() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic_with("t", TopicSpec::new(1).with_placement(vec![vec![1]]));
    for (group, node) in [("alive", 1), ("dead", 3)] {
        kafka.move_coordinator(group, node);
        kafka.commit(group, "t", 0, 5);
    }
    admin.describe_groups(["alive", "dead"]).await.unwrap();
    kafka.kill_node(3);
    let hurried = admin.clone().with_timeout(Duration::from_secs(3));
    let found = hurried.describe_groups(["dead", "alive"]).await.unwrap();
    assert_eq!(kinds(&found), [Some(ErrorKind::Timeout), None]);
    assert_eq!(found[0].1.as_ref().unwrap_err().group(), Some("dead"));
    let replaced = async {
        tokio::time::sleep(Duration::from_secs(12)).await;
        kafka.fail_over(3);
    };
    let (found, ()) = tokio::join!(admin.describe_groups(["dead"]), replaced);
    one(found.unwrap()).unwrap();
}
