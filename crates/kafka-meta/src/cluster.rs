//! The handle every client of the workspace shares, and the picture of the cluster behind it.
//!
//! `snapshot` is the picture, `merge` makes it from answers (`answer`), `refresh` knows when to ask and `driver`
//! asks; `call` sends one request; `coordinators` finds and caches coordinators; `shared` holds it together.

mod answer;
mod call;
mod coordinators;
mod driver;
mod merge;
mod refresh;
mod shared;
mod snapshot;

use std::collections::HashMap;
use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kafka_protocol::protocol::Request;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::client::{CoordinatorKind, RawAnswer, To};
use crate::net::{Owner, Via};
use crate::wire::versions::{self, ApiVersions};
use crate::{ClusterConfig, Error, ErrorCode, Result, TopicName};
use answer::Answer;
use shared::Shared;

pub use call::{Lease, Placing, Submitted};
pub use snapshot::{Broker, Endpoint, Partition, Snapshot, Topic};

/// What bounds a call whose caller names no time, as Java's `default.api.timeout.ms`.
const API_TIMEOUT: Duration = Duration::from_secs(60);

/// A Kafka cluster: its brokers, topics and connections. Cheap to clone; every client of one program should
/// share one.
///
/// Dropping it never blocks and needs no runtime; connections and background work end when the last clone, and
/// every client made from one, is gone.
#[derive(Clone, Debug)]
pub struct Cluster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    driver: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The permit is kept for a driver that is not listening at this moment.
        self.shared.stop.notify_one();
    }
}

/// Keeps topics in the background refresh for as long as it lives.
#[derive(Debug)]
pub struct Interest {
    shared: Arc<Shared>,
    id: u64,
}

impl Interest {
    /// Replaces the topics this interest covers; the missing ones are asked for soon, and so are those that the
    /// last answer refused.
    pub fn set(&self, topics: impl IntoIterator<Item = TopicName>) {
        let topics: Vec<TopicName> = topics.into_iter().collect();
        let forgot = {
            let mut state = self.shared.state();
            let forgot = state.picture.forget_denied(&topics);
            if forgot {
                state.refresh.forgot();
            }
            state.refresh.set_interest(self.id, topics);
            forgot
        };
        if forgot {
            self.shared.published();
        }
        self.shared.nudge.notify_one();
    }

    /// Covers every topic of the cluster.
    pub fn set_all(&self) {
        self.shared.state().refresh.set_interest_all(self.id);
        self.shared.nudge.notify_one();
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.shared.state().refresh.drop_interest(self.id);
    }
}

impl Cluster {
    /// Connects to the first of `bootstrap` (`"host:9092,host2:9092"`) that answers. Dropping the future
    /// abandons the attempt.
    pub async fn connect(bootstrap: &str) -> Result<Cluster> {
        Cluster::connect_with(ClusterConfig::new(bootstrap)).await
    }

    /// Connects with a configuration. While nobody answers it tries again, for as long as a request may take;
    /// what no later attempt can cure (refused credentials, a port that speaks TLS) ends it at once. Dropping
    /// the future abandons the attempt.
    pub async fn connect_with(config: ClusterConfig) -> Result<Cluster> {
        let bootstrap = config.addresses()?;
        let deadline = Instant::now() + config.request_timeout;
        let shared = Arc::new(Shared::new(config, bootstrap));
        let cluster = Cluster { inner: Arc::new(Inner { shared, driver: Mutex::default() }) };
        cluster.run();
        let round = cluster.shared().want(&[]);
        let waiting = call::wait_for_round(cluster.shared(), round, deadline, true);
        waiting.await.map_err(|error| error.with_operation("connect"))?;
        Ok(cluster)
    }

    /// The partitions of a topic, in order. Dropping the future abandons the wait.
    pub async fn partitions(&self, topic: &str) -> Result<Vec<i32>> {
        let deadline = Instant::now() + API_TIMEOUT;
        let name = TopicName::new(topic);
        let mut unknown = 0;
        loop {
            let snapshot = self.refreshed(&[name], deadline).await?;
            let found = snapshot.topic(name);
            let code = found.map_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, |topic| topic.error);
            match found {
                Some(found) if code.is_none() => {
                    return Ok(found.partitions.iter().map(|partition| partition.index).collect());
                }
                _ => {}
            }
            // A broker may be behind for a moment, after a start or a creation; it is believed in the end.
            unknown += u32::from(code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            if unknown >= 3 || !code.is_retriable() {
                return Err(Error::broker(code, "partitions").with_topic(name));
            }
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Sees to it that the background work runs. It may have died with the runtime it was on.
    fn run(&self) {
        let mut driver = self.inner.driver.lock().unwrap_or_else(PoisonError::into_inner);
        if driver.as_ref().is_none_or(JoinHandle::is_finished) {
            *driver = Some(self.spawn(driver::run(self.shared().clone())));
        }
    }
}

#[doc(hidden)]
impl Cluster {
    /// A new owner: a set of connections of its own.
    pub fn owner(&self) -> Owner {
        Owner::new(self.shared().dialer.room())
    }

    /// Sends a request in the best version both sides know and waits for the answer. `deadline` covers
    /// connecting, sending and waiting. Dropping the future never leaves half a frame on the wire; a late answer
    /// is dropped.
    pub async fn call<R>(&self, to: To, via: &Via, deadline: Instant, request: R) -> Result<R::Response>
    where
        R: Request + Send,
        R::Response: Send,
    {
        let (_, response) =
            self.call_with(to, via, deadline, versions::usable::<R>(), |_| Ok(request)).await?;
        Ok(response)
    }

    /// As [`Cluster::call`], the request built once the version is known; `versions` is what the caller can
    /// handle. Answers the version used as well.
    pub async fn call_with<R, F>(
        &self,
        to: To,
        via: &Via,
        deadline: Instant,
        versions: RangeInclusive<i16>,
        build: F,
    ) -> Result<(i16, R::Response)>
    where
        R: Request + Send,
        R::Response: Send,
        F: FnOnce(i16) -> Result<R> + Send,
    {
        let answer = self.call_raw(to, via, deadline, versions, build).await?;
        Ok((answer.version, crate::wire::guard::decode(R::KEY, answer.version, answer.body)?))
    }

    /// As [`Cluster::call_with`], the answer's body left undecoded.
    pub async fn call_raw<R, F>(
        &self,
        to: To,
        via: &Via,
        deadline: Instant,
        versions: RangeInclusive<i16>,
        build: F,
    ) -> Result<RawAnswer>
    where
        R: Request + Send,
        F: FnOnce(i16) -> Result<R> + Send,
    {
        self.run();
        call::call_raw(self.shared(), to, via, deadline, versions, build).await
    }

    /// The first half of [`Cluster::call_raw`]: until the request has its place on the connection, so that what
    /// is submitted later goes out later. An error means that nothing was sent. Dropping the future before it has
    /// its place sends nothing.
    pub async fn submit<R, F>(
        &self,
        to: To,
        via: &Via,
        deadline: Instant,
        versions: RangeInclusive<i16>,
        placing: Placing,
        build: F,
    ) -> Result<Submitted>
    where
        R: Request + Send,
        F: FnOnce(i16) -> Result<R> + Send,
    {
        self.run();
        let submitted = call::submit(self.shared(), to, via, deadline, versions, placing, build).await;
        submitted.inspect_err(|error| call::suspicious(self.shared(), error))
    }

    /// What a node advertises, finalized features included. Connects if need be; dropping the future abandons
    /// the wait, not the connection.
    pub async fn versions(&self, node: i32, via: &Via, deadline: Instant) -> Result<Arc<ApiVersions>> {
        self.run();
        let candidate = call::choose(self.shared(), To::Node(node), via, deadline).await?;
        let connection = call::connect(self.shared(), &candidate, via, deadline).await?;
        Ok(connection.versions.clone())
    }

    /// The newest picture of the cluster.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared().snapshot()
    }

    /// The generation of the newest snapshot, as it changes.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.shared().generation.subscribe()
    }

    /// A new interest, covering nothing yet.
    pub fn interest(&self) -> Interest {
        let id = self.shared().state().refresh.interest();
        Interest { shared: self.shared().clone(), id }
    }

    /// Asks for an early refresh; coalesced, rate limited, never blocks.
    pub fn refresh(&self) {
        self.shared().suspect();
    }

    /// A snapshot fetched after this call that covers `topics` (what is wrong with one is inside). Dropping the
    /// future abandons the wait.
    pub async fn refreshed(&self, topics: &[TopicName], deadline: Instant) -> Result<Arc<Snapshot>> {
        self.run();
        let round = self.shared().want(topics);
        call::wait_for_round(self.shared(), round, deadline, false).await?;
        Ok(self.snapshot())
    }

    /// Topics as one broker knows them now, past the shared picture; `None` is every topic there is. What is wrong
    /// with one is inside. Makes no topic by asking. Dropping the future abandons the wait.
    pub async fn topics(
        &self,
        via: &Via,
        topics: Option<&[TopicName]>,
        deadline: Instant,
    ) -> Result<Vec<Topic>> {
        let build = |_| Ok(answer::request(topics));
        let (version, response) = self.call_with(To::Any, via, deadline, answer::FROM..=13, build).await?;
        let answer = Answer::read(version, response);
        match answer.error {
            ErrorCode::NONE => Ok(answer.topics),
            code => Err(Error::broker(code, "metadata")),
        }
    }

    /// The names of topics known by their ids only, as a member whose broker evaluates a pattern gets them. An id
    /// that no topic has, or whose name may not be known to this client, is left out. Dropping the future
    /// abandons the wait.
    pub async fn topic_names(&self, ids: &[Uuid], deadline: Instant) -> Result<HashMap<Uuid, TopicName>> {
        let build = |_| Ok(answer::request_by_id(ids));
        let via = Via::control();
        let (version, response) = self.call_with(To::Any, &via, deadline, answer::BY_ID..=13, build).await?;
        let topics = Answer::read(version, response).topics.into_iter();
        Ok(topics.filter(|topic| topic.error.is_none()).map(|topic| (topic.id, topic.name)).collect())
    }

    /// A broker said who leads a partition now (KIP-951). Ignored unless newer than what is known, or when the
    /// node's address is not known; asks for a refresh as well. Answers whether it was taken.
    pub fn leader_hint(
        &self,
        topic: TopicName,
        partition: i32,
        node: i32,
        epoch: i32,
        endpoint: Option<Endpoint>,
    ) -> bool {
        let shared = self.shared();
        let taken = shared.state().picture.leader_hint(topic, partition, node, epoch, endpoint);
        if taken {
            shared.published();
        }
        shared.suspect();
        taken
    }

    /// A newer leader epoch was seen elsewhere: the leader known is not trusted until metadata catches up.
    pub fn epoch_seen(&self, topic: TopicName, partition: i32, epoch: i32) {
        let shared = self.shared();
        let news = shared.state().picture.epoch_seen(topic, partition, epoch);
        if news {
            shared.published();
            shared.suspect();
        }
    }

    /// The coordinator's node id. Cached; asked again with back-off while the cluster has none. Dropping the
    /// future abandons the wait.
    pub async fn coordinator(&self, kind: CoordinatorKind, key: &str, deadline: Instant) -> Result<i32> {
        self.run();
        coordinators::find(self.shared(), kind, key, deadline).await
    }

    /// Forgets the coordinator, if `node` is still the one cached.
    pub fn forget_coordinator(&self, kind: CoordinatorKind, key: &str, node: i32) {
        self.shared().coordinators.forget(kind, key, node);
    }

    /// How the cluster is reached.
    pub fn config(&self) -> &ClusterConfig {
        &self.shared().config
    }

    /// Spawns background work where the cluster's own runs: the configured runtime, else the current one.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match &self.config().runtime {
            Some(handle) => handle.spawn(future),
            None => tokio::spawn(future),
        }
    }
}
