//! Settings of topics, brokers and groups.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResult;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
};

use super::raw::{Raw, RawBroker, View, fresh, name, text};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

async fn alter(node: &mut Raw, kind: i8, of: &str, ops: &[(&str, i8, Option<&str>)]) -> (i16, String) {
    alter_as(node, kind, of, ops, false).await
}

async fn alter_as(
    node: &mut Raw,
    kind: i8,
    of: &str,
    ops: &[(&str, i8, Option<&str>)],
    validate: bool,
) -> (i16, String) {
    let ops = ops.iter().map(|(key, operation, value)| {
        AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(*operation)
            .with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(of))
        .with_configs(ops.collect());
    let request =
        IncrementalAlterConfigsRequest::default().with_resources(vec![resource]).with_validate_only(validate);
    let found = node.call(1, &request).await.responses.remove(0);
    (found.error_code, found.error_message.map(|text| text.to_string()).unwrap_or_default())
}

async fn describe(node: &mut Raw, kind: i8, of: &str) -> DescribeConfigsResult {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(of))
        .with_configuration_keys(None);
    let request =
        DescribeConfigsRequest::default().with_resources(vec![resource]).with_include_synonyms(true);
    node.call(4, &request).await.results.remove(0)
}

/// Name → value and source.
fn values(found: &DescribeConfigsResult) -> BTreeMap<String, (String, i8)> {
    let value = |value: &Option<kafka_protocol::protocol::StrBytes>| {
        value.as_ref().map(ToString::to_string).unwrap_or_default()
    };
    let entries = found.configs.iter();
    entries.map(|entry| (entry.name.to_string(), (value(&entry.value), entry.config_source))).collect()
}

/// Waits until a node tells this value and source.
async fn told(node: &mut Raw, kind: i8, of: &str, key: &str, value: &str, source: i8) {
    let mut last = None;
    for _ in 0..200 {
        last = values(&describe(node, kind, of).await).get(key).cloned();
        if last.as_ref().is_some_and(|(told, from)| told == value && *from == source) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{key} of {of} is {last:?}");
}

pub async fn a_topics_settings_name_where_they_come_from(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[1]]).await;
    let mut any = view.any().await;
    told(&mut any, TOPIC, &topic, "retention.ms", "604800000", 5).await;
    assert_eq!(alter(&mut any, TOPIC, &topic, &[("retention.ms", SET, Some("5000"))]).await.0, 0);
    told(&mut any, TOPIC, &topic, "retention.ms", "5000", 1).await;
    let found = describe(&mut any, TOPIC, &topic).await;
    let entry = found.configs.iter().find(|entry| entry.name.as_str() == "retention.ms").unwrap();
    assert!(!entry.read_only && !entry.is_sensitive);
    let first = &entry.synonyms[0];
    assert_eq!((first.name.as_str(), first.source), ("retention.ms", 1));
    assert_eq!(alter(&mut any, TOPIC, &topic, &[("retention.ms", DELETE, None)]).await.0, 0);
    told(&mut any, TOPIC, &topic, "retention.ms", "604800000", 5).await;
}

pub async fn lists_are_changed_by_entries(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[1]]).await;
    let mut any = view.any().await;
    let policy = "cleanup.policy";
    assert_eq!(alter(&mut any, TOPIC, &topic, &[(policy, APPEND, Some("compact"))]).await.0, 0);
    told(&mut any, TOPIC, &topic, policy, "delete,compact", 1).await;
    assert_eq!(alter(&mut any, TOPIC, &topic, &[(policy, APPEND, Some("compact"))]).await.0, 0);
    assert_eq!(alter(&mut any, TOPIC, &topic, &[(policy, SUBTRACT, Some("delete"))]).await.0, 0);
    told(&mut any, TOPIC, &topic, policy, "compact", 1).await;
    let (code, message) = alter(&mut any, TOPIC, &topic, &[("retention.ms", APPEND, Some("1"))]).await;
    assert_eq!(code, 40, "{message}");
}

pub async fn a_wrong_change_is_refused_and_changes_nothing(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[1]]).await;
    let mut any = view.any().await;
    let unknown = [("retention.ms", SET, Some("5000")), ("no.such.config", SET, Some("1"))];
    let (code, message) = alter(&mut any, TOPIC, &topic, &unknown).await;
    assert_eq!(code, 40);
    assert!(message.contains("no.such.config"), "{message}");
    let (code, message) = alter(&mut any, TOPIC, &topic, &[("retention.ms", SET, Some("soon"))]).await;
    assert_eq!(code, 40);
    assert!(message.contains("retention.ms"), "{message}");
    assert_eq!(alter_as(&mut any, TOPIC, &topic, &[("retention.ms", SET, Some("5000"))], true).await.0, 0);
    told(&mut any, TOPIC, &topic, "retention.ms", "604800000", 5).await;
    assert_eq!(alter(&mut any, TOPIC, "no-such-topic", &[("retention.ms", SET, Some("5"))]).await.0, 3);
    assert_eq!(describe(&mut any, TOPIC, "no-such-topic").await.error_code, 3);
    assert_eq!(alter(&mut any, 99, "x", &[("retention.ms", SET, Some("5"))]).await.0, 42);
}

pub async fn a_broker_answers_for_itself(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let mut one = view.node(1).await;
    let found = values(&describe(&mut one, BROKER, "1").await);
    assert_eq!(found["node.id"].0, "1");
    assert_eq!(describe(&mut one, BROKER, "2").await.error_code, 42);
    assert_eq!(describe(&mut one, BROKER, "not-a-number").await.error_code, 42);
    let key = "message.max.bytes";
    assert_eq!(found[key], ("1048588".to_owned(), 5));
    assert_eq!(alter(&mut one, BROKER, "1", &[(key, SET, Some("2000000"))]).await, (0, String::new()));
    told(&mut one, BROKER, "1", key, "2000000", 2).await;
    assert_eq!(alter(&mut one, BROKER, "", &[(key, SET, Some("2000000"))]).await.0, 0);
    told(&mut view.node(2).await, BROKER, "2", key, "2000000", 3).await;
    for of in ["1", ""] {
        assert_eq!(alter(&mut one, BROKER, of, &[(key, DELETE, None)]).await.0, 0);
    }
    told(&mut one, BROKER, "1", key, "1048588", 5).await;
}

const SESSION: &str = "consumer.session.timeout.ms";
const HEARTBEAT: &str = "consumer.heartbeat.interval.ms";

pub async fn a_groups_settings_have_the_brokers_limits(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let mut any = view.any().await;
    let group = fresh("group");
    let inherited = values(&describe(&mut any, GROUP, &group).await);
    assert_eq!(inherited[SESSION].0, "45000");
    assert_eq!(inherited[HEARTBEAT].0, "5000");
    assert!([4, 5].contains(&inherited[SESSION].1));
    let refused = [
        (SESSION, "44999", "greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "60001", "less than or equal to group.consumer.max.session.timeout.ms"),
        (HEARTBEAT, "4999", "greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (HEARTBEAT, "15001", "less than or equal to group.consumer.max.heartbeat.interval.ms"),
        ("consumer.nope", "1", "consumer.nope"),
        (SESSION, "soon", SESSION),
    ];
    for (key, value, words) in refused {
        let (code, message) = alter(&mut any, GROUP, &group, &[(key, SET, Some(value))]).await;
        assert_eq!(code, 40, "{key} {value} {message}");
        assert!(message.contains(words), "{key} {value} {message}");
    }
    assert_eq!(alter(&mut any, GROUP, "", &[(SESSION, SET, Some("50000"))]).await.0, 42);
    assert_eq!(alter(&mut any, GROUP, &group, &[(SESSION, SET, Some("50000"))]).await.0, 0);
    told(&mut any, GROUP, &group, SESSION, "50000", 8).await;
}

pub async fn a_groups_heartbeat_interval_is_in_force_at_once(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[1]]).await;
    let group = fresh("group");
    let mut node = view.coordinator(0, &group).await;
    let join = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(text(&group).into())
        .with_member_id(text("m"))
        .with_rebalance_timeout_ms(60_000)
        .with_subscribed_topic_names(Some(vec![name(&topic)]))
        .with_topic_partitions(Some(Vec::new()));
    let joined = node.call(1, &join).await;
    assert_eq!((joined.error_code, joined.heartbeat_interval_ms), (0, 5000));
    assert_eq!(alter(&mut node, GROUP, &group, &[(HEARTBEAT, SET, Some("7000"))]).await.0, 0);
    let beat = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(text(&group).into())
        .with_member_id(text("m"))
        .with_rebalance_timeout_ms(-1)
        .with_subscribed_topic_names(None)
        .with_topic_partitions(None);
    for _ in 0..200 {
        let answer = node.call(1, &beat.clone().with_member_epoch(joined.member_epoch)).await;
        assert_eq!(answer.error_code, 0);
        if answer.heartbeat_interval_ms == 7000 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the interval is not in force");
}
