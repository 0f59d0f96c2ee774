//! The handle every client of the workspace shares.

mod snapshot;

use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;

use kafka_protocol::protocol::Request;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::{CoordinatorKind, RawAnswer, To};
use crate::net::{Owner, Via};
use crate::wire::versions::ApiVersions;
use crate::{ClusterConfig, Error, ErrorKind, Result, TopicName};

pub use snapshot::{Broker, Endpoint, Partition, Snapshot, Topic};

/// A Kafka cluster: its brokers, topics and connections. Cheap to clone; every client of one program should
/// share one.
#[derive(Clone, Debug)]
pub struct Cluster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ClusterConfig,
    generation: watch::Sender<u64>,
}

/// Keeps topics in the background refresh for as long as it lives.
#[derive(Debug)]
pub struct Interest {}

impl Interest {
    /// Replaces the topics this interest covers; the missing ones are asked for soon.
    pub fn set(&self, _topics: impl IntoIterator<Item = TopicName>) {}

    /// Covers every topic of the cluster.
    pub fn set_all(&self) {}
}

fn not_built() -> Error {
    Error::new(ErrorKind::Other, "not built yet")
}

impl Cluster {
    /// Connects to the first of `bootstrap` (`"host:9092,host2:9092"`) that answers. Dropping the future
    /// abandons the attempt.
    pub async fn connect(bootstrap: &str) -> Result<Cluster> {
        Cluster::connect_with(ClusterConfig::new(bootstrap)).await
    }

    /// Connects with a configuration. Dropping the future abandons the attempt.
    pub async fn connect_with(config: ClusterConfig) -> Result<Cluster> {
        Ok(Cluster { inner: Arc::new(Inner { config, generation: watch::Sender::new(0) }) })
    }

    /// The partitions of a topic, in order. Dropping the future abandons the wait.
    pub async fn partitions(&self, topic: &str) -> Result<Vec<i32>> {
        Err(not_built().with_topic(topic))
    }
}

#[doc(hidden)]
impl Cluster {
    /// A new owner: a set of connections of its own.
    pub fn owner(&self) -> Owner {
        Owner::new()
    }

    /// Sends a request in the best version both sides know and waits for the answer. `deadline` covers
    /// connecting, sending and waiting. Dropping the future never leaves half a frame on the wire; a late answer
    /// is dropped.
    pub async fn call<R>(&self, _to: To, _via: &Via, _deadline: Instant, _request: R) -> Result<R::Response>
    where
        R: Request + Send,
        R::Response: Send,
    {
        Err(not_built())
    }

    /// As [`Cluster::call`], the request built once the version is known; `versions` is what the caller can
    /// handle. Answers the version used as well.
    pub async fn call_with<R, F>(
        &self,
        _to: To,
        _via: &Via,
        _deadline: Instant,
        _versions: RangeInclusive<i16>,
        _build: F,
    ) -> Result<(i16, R::Response)>
    where
        R: Request + Send,
        R::Response: Send,
        F: FnOnce(i16) -> Result<R> + Send,
    {
        Err(not_built())
    }

    /// As [`Cluster::call_with`], the answer's body left undecoded.
    pub async fn call_raw<R, F>(
        &self,
        _to: To,
        _via: &Via,
        _deadline: Instant,
        _versions: RangeInclusive<i16>,
        _build: F,
    ) -> Result<RawAnswer>
    where
        R: Request + Send,
        F: FnOnce(i16) -> Result<R> + Send,
    {
        Err(not_built())
    }

    /// What a node advertises, finalized features included. Connects if need be; dropping the future abandons
    /// the wait, not the connection.
    pub async fn versions(&self, _node: i32, _via: &Via, _deadline: Instant) -> Result<Arc<ApiVersions>> {
        Err(not_built())
    }

    /// The newest picture of the cluster.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::default()
    }

    /// The generation of the newest snapshot, as it changes.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.inner.generation.subscribe()
    }

    /// A new interest, covering nothing yet.
    pub fn interest(&self) -> Interest {
        Interest {}
    }

    /// Asks for an early refresh; coalesced, rate limited, never blocks.
    pub fn refresh(&self) {}

    /// A snapshot fetched after this call that covers `topics` (what is wrong with one is inside). Dropping the
    /// future abandons the wait.
    pub async fn refreshed(&self, _topics: &[TopicName], _deadline: Instant) -> Result<Arc<Snapshot>> {
        Err(not_built())
    }

    /// A broker said who leads a partition now (KIP-951). Ignored unless newer than what is known, or when the
    /// node's address is not known; asks for a refresh as well. Answers whether it was taken.
    pub fn leader_hint(
        &self,
        _topic: TopicName,
        _partition: i32,
        _node: i32,
        _epoch: i32,
        _endpoint: Option<Endpoint>,
    ) -> bool {
        false
    }

    /// A newer leader epoch was seen elsewhere: the leader known is not trusted until metadata catches up.
    pub fn epoch_seen(&self, _topic: TopicName, _partition: i32, _epoch: i32) {}

    /// The coordinator's node id. Cached; asked again with back-off while the cluster has none. Dropping the
    /// future abandons the wait.
    pub async fn coordinator(&self, _kind: CoordinatorKind, _key: &str, _deadline: Instant) -> Result<i32> {
        Err(not_built())
    }

    /// Forgets the coordinator, if `node` is still the one cached.
    pub fn forget_coordinator(&self, _kind: CoordinatorKind, _key: &str, _node: i32) {}

    /// How the cluster is reached.
    pub fn config(&self) -> &ClusterConfig {
        &self.inner.config
    }

    /// Spawns background work where the cluster's own runs: the configured runtime, else the current one.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match &self.inner.config.runtime {
            Some(handle) => handle.spawn(future),
            None => tokio::spawn(future),
        }
    }
}
