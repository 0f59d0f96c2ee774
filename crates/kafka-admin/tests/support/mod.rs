//! What the tests on the embedded broker share.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

use std::fmt::Debug;
use std::time::Duration;

use kafka_admin::{Admin, Cluster, ErrorKind, GroupDescription, GroupState, Result};
use kafka_consume::{ClassicConsumer, ConsumerConfig, GroupConsumer};
use testkit::embedded::Embedded;

pub async fn start(nodes: i32) -> (Embedded, Admin) {
    let kafka = Embedded::start(nodes);
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    (kafka, Admin::new(cluster))
}

pub fn quick() -> ConsumerConfig {
    ConsumerConfig::new().max_wait_ms(20)
}

pub async fn consumer(admin: &Admin, group: &str, topic: &str) -> GroupConsumer {
    GroupConsumer::subscribe(admin.cluster().clone(), quick(), group, [topic]).await.unwrap()
}

pub async fn classic(admin: &Admin, group: &str, topic: &str) -> ClassicConsumer {
    ClassicConsumer::subscribe(admin.cluster().clone(), quick(), group, [topic]).await.unwrap()
}

/// The one result of a call about one item.
pub fn one<K: Debug, T>(mut results: Vec<(K, Result<T>)>) -> Result<T> {
    assert_eq!(results.len(), 1);
    results.remove(0).1
}

pub fn kinds<K, T>(results: &[(K, Result<T>)]) -> Vec<Option<ErrorKind>> {
    results.iter().map(|(_, result)| result.as_ref().err().map(kafka_admin::Error::kind)).collect()
}

/// The group once it is stable with this many members, each with something assigned.
pub async fn stable(admin: &Admin, group: &str, members: usize) -> GroupDescription {
    for _ in 0..600 {
        if let Ok(found) = one(admin.describe_groups([group]).await.unwrap())
            && found.state == GroupState::Stable
            && found.members.len() == members
            && found.members.iter().all(|member| !member.assignment.is_empty())
        {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{group} did not become stable");
}

/// Polls a member for as long as `until` takes.
#[macro_export]
macro_rules! polling {
    ($member:expr, $until:expr) => {{
        let until = $until;
        tokio::pin!(until);
        loop {
            tokio::select! {
                found = &mut until => break found,
                polled = $member.poll() => { polled.unwrap(); }
            }
        }
    }};
}
