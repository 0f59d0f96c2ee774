//! Where leaders and coordinators are: one connection per node, made when needed, thrown away when it fails.
//!
//! What it is not: a cache that may be stale. Whoever is told "not the leader" asks again and finds the next
//! one.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kafka_meta::ErrorCode;
use kafka_meta::transport::Connector;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest, TopicName};
use kafka_protocol::protocol::{Request, StrBytes};
use tokio::time::Instant;
use uuid::Uuid;

use crate::client::Client;
use crate::failure::{Failure, Result};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Connections to the nodes of a cluster.
pub(crate) struct Routes {
    connector: Arc<dyn Connector>,
    bootstrap: String,
    addresses: HashMap<i32, String>,
    clients: HashMap<i32, Client>,
    leaders: HashMap<(String, i32), i32>,
    ids: HashMap<String, Uuid>,
}

/// Whether to ask again.
pub(crate) enum Verdict<T> {
    Done(T),
    Again(Failure),
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A broker's refusal, as text.
pub(crate) fn refused(code: i16, what: impl Into<String>) -> Failure {
    Failure::new(format!("{}: {}", what.into(), ErrorCode::from(code)))
}

impl Routes {
    pub(crate) fn new(connector: Arc<dyn Connector>, bootstrap: &str) -> Self {
        Self {
            connector,
            bootstrap: bootstrap.to_owned(),
            addresses: HashMap::new(),
            clients: HashMap::new(),
            leaders: HashMap::new(),
            ids: HashMap::new(),
        }
    }

    /// A partition's leader.
    pub(crate) async fn leader(&mut self, topic: &str, partition: i32) -> Result<i32> {
        let key = (topic.to_owned(), partition);
        if let Some(&leader) = self.leaders.get(&key) {
            return Ok(leader);
        }
        let mut client = Client::connect_with(&self.connector, &self.bootstrap).await?;
        let wanted = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
        let request =
            MetadataRequest::default().with_topics(Some(vec![wanted])).with_allow_auto_topic_creation(false);
        let answer = client.call(12, &request).await?;
        for broker in &answer.brokers {
            self.addresses.insert(broker.node_id.0, format!("{}:{}", broker.host, broker.port));
        }
        for found in &answer.topics {
            if found.error_code != 0 {
                return Err(refused(found.error_code, format!("metadata of {topic}")));
            }
            self.ids.insert(topic.to_owned(), found.topic_id);
            for seen in found.partitions.iter().filter(|seen| seen.leader_id.0 >= 0) {
                self.leaders.insert((topic.to_owned(), seen.partition_index), seen.leader_id.0);
            }
        }
        self.leaders
            .get(&key)
            .copied()
            .ok_or_else(|| Failure::new(format!("{topic}-{partition} has no leader")))
    }

    /// Forgets who leads the partition.
    pub(crate) fn forget_leader(&mut self, topic: &str, partition: i32) {
        self.leaders.remove(&(topic.to_owned(), partition));
    }

    /// The coordinator of a group (0) or a transactional id (1).
    pub(crate) async fn coordinator(&mut self, kind: i8, key: &str) -> Result<i32> {
        let mut client = Client::connect_with(&self.connector, &self.bootstrap).await?;
        let request =
            FindCoordinatorRequest::default().with_key_type(kind).with_coordinator_keys(vec![text(key)]);
        let answer = client.call(4, &request).await?;
        let found = answer.coordinators.first().ok_or_else(|| Failure::new("an empty answer"))?;
        if found.error_code != 0 {
            return Err(refused(found.error_code, format!("coordinator of {key}")));
        }
        self.addresses.insert(found.node_id.0, format!("{}:{}", found.host, found.port));
        Ok(found.node_id.0)
    }

    /// Sends a request to a node. After any failure its connection is a new one.
    pub(crate) async fn call<R: Request>(
        &mut self,
        node: i32,
        at_most: i16,
        request: &R,
    ) -> Result<R::Response> {
        // Taken out: if this future is dropped half-way, the connection goes with it.
        let mut client = match self.clients.remove(&node) {
            Some(client) => client,
            None => {
                let address = self.addresses.get(&node);
                let address = address.ok_or_else(|| Failure::new(format!("no address of node {node}")))?;
                Client::connect_with(&self.connector, address).await?
            }
        };
        let answer = client.call(at_most, request).await?;
        self.clients.insert(node, client);
        Ok(answer)
    }
}

/// Asks until it is done, for at most a minute.
pub(crate) async fn until<T, F>(what: &str, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Verdict<T>>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await? {
            Verdict::Done(value) => return Ok(value),
            Verdict::Again(failure) if Instant::now() > deadline => {
                return Err(Failure::because(what, failure));
            }
            Verdict::Again(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
