//! Topics made, grown and deleted by administrators, and what a cluster says of itself.

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::{
    BrokerId, CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeClusterRequest,
};

use super::raw::{Raw, RawBroker, View, batch_of, fresh, name, now_ms, produce, text};

fn topic(topic: &str, partitions: i32, replicas: i16) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(replicas)
}

fn placed(new: CreatableTopic, partitions: &[&[i32]]) -> CreatableTopic {
    let assigned = (0..).zip(partitions).map(|(index, nodes)| {
        CreatableReplicaAssignment::default()
            .with_partition_index(index)
            .with_broker_ids(nodes.iter().copied().map(BrokerId).collect())
    });
    new.with_assignments(assigned.collect())
}

fn with_config(new: CreatableTopic, key: &str, value: &str) -> CreatableTopic {
    let config = CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)));
    new.with_configs(vec![config])
}

async fn create(node: &mut Raw, topics: Vec<CreatableTopic>, validate: bool) -> Vec<CreatableTopicResult> {
    let request = CreateTopicsRequest::default()
        .with_timeout_ms(10_000)
        .with_topics(topics.clone())
        .with_validate_only(validate);
    let mut found = node.call(7, &request).await.topics;
    // Answered in any order.
    let place = |answer: &CreatableTopicResult| topics.iter().position(|topic| topic.name == answer.name);
    found.sort_by_key(place);
    found
}

async fn delete(node: &mut Raw, topic: &str) -> i16 {
    let state = DeleteTopicState::default().with_name(Some(name(topic)));
    let request = DeleteTopicsRequest::default().with_timeout_ms(10_000).with_topics(vec![state]);
    node.call(6, &request).await.responses[0].error_code
}

async fn grow(node: &mut Raw, topic: &str, count: i32, validate: bool) -> (i16, String) {
    let wanted =
        CreatePartitionsTopic::default().with_name(name(topic)).with_count(count).with_assignments(None);
    let request = CreatePartitionsRequest::default()
        .with_topics(vec![wanted])
        .with_timeout_ms(10_000)
        .with_validate_only(validate);
    let found = node.call(3, &request).await.results.remove(0);
    (found.error_code, found.error_message.map(|text| text.to_string()).unwrap_or_default())
}

pub async fn each_new_topic_is_answered_with_its_own_code(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let taken = view.create_on(&[&[1]]).await;
    let mut any = view.any().await;
    let wanted = [
        (topic(&taken, 1, 1), 36, "already exists"),
        (topic("bad name", 1, 1), 17, ""),
        (topic("", 1, 1), 17, ""),
        (topic(&fresh("none"), 0, 1), 37, ""),
        (topic(&fresh("wide"), 1, 9), 38, ""),
        (topic(&fresh("zero"), 1, 0), 38, ""),
        (placed(topic(&fresh("far"), -1, -1), &[&[77]]), 39, ""),
        (placed(topic(&fresh("twice"), -1, -1), &[&[1, 1]]), 39, ""),
        (placed(topic(&fresh("both"), 1, 1), &[&[1]]), 42, ""),
        (with_config(topic(&fresh("odd"), 1, 1), "no.such.config", "1"), 40, "no.such.config"),
        (with_config(topic(&fresh("wrong"), 1, 1), "retention.ms", "soon"), 40, "retention.ms"),
    ];
    let topics = wanted.iter().map(|(topic, _, _)| topic.clone()).collect();
    for (answer, (topic, code, words)) in create(&mut any, topics, false).await.iter().zip(&wanted) {
        assert_eq!(answer.error_code, *code, "{:?} {:?}", topic.name, answer.error_message);
        let message = answer.error_message.as_deref().unwrap_or_default();
        assert!(message.contains(words), "{message}");
    }
    let twice = fresh("twice");
    let answers = create(&mut any, vec![topic(&twice, 1, 1), topic(&twice, 2, 1)], false).await;
    assert!(answers.iter().all(|answer| answer.error_code == 42), "{answers:?}");
}

pub async fn a_new_topic_is_answered_with_its_id_numbers_and_settings(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let mut any = view.any().await;
    let (plain, set) = (fresh("plain"), fresh("set"));
    let topics = || vec![topic(&plain, -1, -1), with_config(topic(&set, 2, 2), "retention.ms", "5000")];
    // Looking whether it would work makes nothing.
    let answers = create(&mut any, topics(), true).await;
    // The id is made up: the topic will have another one.
    let ids: Vec<_> = answers.iter().map(|answer| answer.topic_id).collect();
    assert!(answers.iter().all(|answer| answer.error_code == 0 && !answer.topic_id.is_nil()));
    assert_eq!((answers[1].num_partitions, answers[1].replication_factor), (2, 2));
    assert_eq!(view.topic(&plain).await.error_code, 3);

    let answers = create(&mut any, topics(), false).await;
    assert_eq!((answers[0].num_partitions, answers[0].replication_factor), (1, 1));
    assert_eq!((answers[1].num_partitions, answers[1].replication_factor), (2, 2));
    for answer in &answers {
        assert!(!answer.topic_id.is_nil() && !ids.contains(&answer.topic_id));
        assert_eq!((answer.error_code, answer.topic_config_error_code), (0, 0));
    }
    let retention = |answer: &CreatableTopicResult| {
        let configs = answer.configs.as_ref().unwrap();
        let found = configs.iter().find(|config| config.name.as_str() == "retention.ms").unwrap();
        (found.value.as_ref().unwrap().to_string(), found.config_source)
    };
    assert_eq!(retention(&answers[0]), ("604800000".to_owned(), 5));
    assert_eq!(retention(&answers[1]), ("5000".to_owned(), 1));
}

pub async fn partitions_are_only_ever_added(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let grown = view.create_on(&[&[1], &[1]]).await;
    let mut any = view.any().await;
    for count in [0, 1, 2] {
        let (code, message) = grow(&mut any, &grown, count, false).await;
        assert_eq!(code, 37, "{message}");
        assert!(!message.is_empty());
    }
    assert_eq!(grow(&mut any, "no-such-topic", 3, false).await.0, 3);
    assert_eq!(grow(&mut any, &grown, 4, true).await.0, 0);
    assert_eq!(view.topic(&grown).await.partitions.len(), 2);
    assert_eq!(grow(&mut any, &grown, 4, false).await.0, 0);
    for _ in 0..200 {
        if view.topic(&grown).await.partitions.len() == 4 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the new partitions do not show");
}

pub async fn a_deleted_topic_is_unknown_and_comes_back_as_another(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[1]]).await;
    let before = view.topic(&topic).await.topic_id;
    let mut any = view.any().await;
    assert_eq!(delete(&mut any, &topic).await, 0);
    assert_eq!(delete(&mut any, &topic).await, 3);
    view.gone(&topic).await;
    view.create_named(&topic, &[&[1]]).await;
    let after = view.topic(&topic).await.topic_id;
    assert_ne!(before, after);
    // By the id of the one before.
    let state = DeleteTopicState::default().with_topic_id(before);
    let request = DeleteTopicsRequest::default().with_timeout_ms(10_000).with_topics(vec![state]);
    assert_eq!(any.call(6, &request).await.responses[0].error_code, 100);
}

pub async fn a_topic_that_is_only_compacted_keeps_its_records(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let compacted = fresh("compacted");
    let new = with_config(placed(topic(&compacted, -1, -1), &[&[1]]), "cleanup.policy", "compact");
    assert_eq!(create(&mut view.any().await, vec![new], false).await[0].error_code, 0);
    let mut leader = view.node(1).await;
    // Compaction asks for a key.
    let record = || batch_of(&[(Some(b"k"), b"v", now_ms())], -1, -1, -1, false);
    while produce(&mut leader, &compacted, 0, record()).await.error_code != 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let part = DeleteRecordsPartition::default().with_partition_index(0).with_offset(1);
    let wanted = DeleteRecordsTopic::default().with_name(name(&compacted)).with_partitions(vec![part]);
    let request = DeleteRecordsRequest::default().with_timeout_ms(10_000).with_topics(vec![wanted]);
    let answer = leader.call(2, &request).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 44);
}

pub async fn a_cluster_names_its_brokers_and_its_id(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let mut ids = Vec::new();
    for node in view.nodes.keys() {
        let answer = view.node(*node).await.call(1, &DescribeClusterRequest::default()).await;
        assert_eq!(answer.error_code, 0);
        let mut brokers: Vec<_> = answer.brokers.iter().map(|broker| broker.broker_id.0).collect();
        brokers.sort_unstable();
        assert_eq!(brokers, [1, 2, 3]);
        for broker in &answer.brokers {
            assert_eq!(view.nodes[&broker.broker_id.0].1, u16::try_from(broker.port).unwrap());
            assert_eq!(broker.rack.as_deref(), Some(&*format!("r{}", broker.broker_id.0)));
        }
        assert!(brokers.contains(&answer.controller_id.0));
        ids.push(answer.cluster_id.to_string());
    }
    assert!(ids.iter().all(|id| !id.is_empty() && *id == ids[0]));
}
