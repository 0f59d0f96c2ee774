//! Settings on the embedded broker, and what a group's own settings do to its members.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;

use kafka_admin::{AlterConfigOp, ConfigResource, ConfigSource, ErrorCode, ErrorKind};
use kafka_meta::wire::protocol::messages::ApiKey;
use support::{consumer, kinds, one, stable, start};
use tokio::time::Instant;

const SESSION: &str = "consumer.session.timeout.ms";
const HEARTBEAT: &str = "consumer.heartbeat.interval.ms";

#[tokio::test(start_paused = true)]
async fn single_settings_change_and_the_others_stay() {
    let (kafka, admin) = start(3).await;
    kafka.create_topic("t", 1);
    let topic = ConfigResource::topic("t");
    let changes = [
        (
            topic.clone(),
            vec![
                AlterConfigOp::set("retention.ms", "5000"),
                AlterConfigOp::append("cleanup.policy", "compact"),
            ],
        ),
        (ConfigResource::broker(2), vec![AlterConfigOp::set("message.max.bytes", "2000000")]),
        (ConfigResource::topic("nope"), vec![AlterConfigOp::delete("retention.ms")]),
        (ConfigResource::group("g"), vec![AlterConfigOp::set("no.such", "1")]),
        (ConfigResource::broker(9), vec![AlterConfigOp::delete("message.max.bytes")]),
        (topic.clone(), vec![]),
    ];
    let results = admin.incremental_alter_configs(changes).await.unwrap();
    let invalid = Some(ErrorKind::Broker(ErrorCode::INVALID_CONFIG));
    let expected = [
        None,
        None,
        Some(ErrorKind::UnknownTopic),
        invalid,
        Some(ErrorKind::Disconnected),
        Some(ErrorKind::InvalidRequest),
    ];
    assert_eq!(kinds(&results), expected);
    let text = results[4].1.as_ref().unwrap_err().to_string();
    assert!(text.contains("broker 9"), "{text}");

    let described =
        admin.describe_configs([topic.clone(), ConfigResource::broker(2), ConfigResource::broker(1)]);
    let described = described.await.unwrap();
    let config = described[0].1.as_ref().unwrap();
    let retention = config.get("retention.ms").unwrap();
    assert_eq!((retention.value.as_deref(), retention.source), (Some("5000"), ConfigSource::Topic));
    assert_eq!(retention.synonyms[1].source, ConfigSource::Default);
    assert_eq!(config.value("cleanup.policy"), Some("delete,compact"));
    assert_eq!(config.get("segment.ms").unwrap().source, ConfigSource::Default);
    let own = |at: usize| described[at].1.as_ref().unwrap().get("message.max.bytes").unwrap().source;
    assert_eq!((own(1), own(2)), (ConfigSource::Broker, ConfigSource::Default));
    // Each broker was asked about itself.
    let asked: Vec<_> = kafka.requests_of(ApiKey::DescribeConfigs).iter().map(|seen| seen.node).collect();
    assert!(asked.contains(&1) && asked.contains(&2), "{asked:?}");

    let back = admin.incremental_alter_configs([(topic.clone(), [AlterConfigOp::delete("retention.ms")])]);
    one(back.await.unwrap()).unwrap();
    let looked = admin.validate_configs([(topic.clone(), [AlterConfigOp::set("retention.ms", "1")])]);
    one(looked.await.unwrap()).unwrap();
    let config = one(admin.describe_configs([topic]).await.unwrap()).unwrap();
    assert_eq!(config.value("retention.ms"), Some("604800000"));
}

/// "To shorten it, alter the group's own config — IncrementalAlterConfigs on a GROUP config resource, which
/// kafka-admin exposes as `ConfigResource::group(..)` — after an operator has lowered the broker's floor."
#[tokio::test(start_paused = true)]
async fn the_session_of_a_group_is_shortened_by_its_own_setting_after_the_floor_is_lowered() {
    let (kafka, admin) = start(1).await;
    kafka.create_topic("t", 2);
    let group = ConfigResource::group("g");
    let shorten = || {
        let ops = [AlterConfigOp::set(SESSION, "4000"), AlterConfigOp::set(HEARTBEAT, "1000")];
        admin.incremental_alter_configs([(group.clone(), ops)])
    };
    let error = one(shorten().await.unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broker(ErrorCode::INVALID_CONFIG));
    let words =
        "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms";
    assert!(error.to_string().contains(words), "{error}");

    kafka.set_group_session_limits(Duration::from_secs(3), Duration::from_secs(60));
    kafka.set_group_heartbeat_limits(Duration::from_millis(500), Duration::from_secs(15));
    one(shorten().await.unwrap()).unwrap();
    let config = one(admin.describe_configs([group]).await.unwrap()).unwrap();
    assert_eq!(config.value(SESSION), Some("4000"));
    assert_eq!(config.get(SESSION).unwrap().source, ConfigSource::Group);

    let mut gone = consumer(&admin, "g", "t").await;
    polling!(gone, stable(&admin, "g", 1));
    let mut heir = consumer(&admin, "g", "t").await;
    // It never says goodbye: its group waits for the session to end, and no longer.
    drop(gone);
    let left = Instant::now();
    polling!(heir, async {
        let heir_alone = async {
            loop {
                let found = stable(&admin, "g", 1).await;
                if found.members[0].assignment.len() == 2 {
                    return;
                }
            }
        };
        heir_alone.await;
    });
    assert!(left.elapsed() < Duration::from_secs(7), "{:?}", left.elapsed());
    // Others keep the broker's.
    let other = one(admin.describe_configs([ConfigResource::group("h")]).await.unwrap()).unwrap();
    assert_eq!(other.value(SESSION), Some("45000"));
}
