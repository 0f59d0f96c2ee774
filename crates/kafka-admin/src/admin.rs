//! The handle, and what its calls have in common.
//!
//! An `Admin` has connections of its own: a broker may take its time over a request here (a topic that is being
//! made, records that are being deleted everywhere) and answers a connection's requests in turn, so nothing of
//! the cluster's consumers and producers may wait behind one.

use std::future::Future;
use std::ops::RangeInclusive;
use std::time::Duration;

use kafka_meta::client::{Lane, Owner, Placing, To, Via};
use kafka_meta::wire::guard;
use kafka_meta::wire::protocol::protocol::Request;
use kafka_meta::{Cluster, Result, TopicName};
use tokio::time::Instant;

use crate::plan::{Asked, Failure, Plan, Settled, whole};
use crate::run::{Batch, run};

/// As Java's `default.api.timeout.ms`.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The longest timeout that is obeyed as given.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Asks a cluster to change, and what it is like. Cheap to clone; clones share connections, which close when
/// the last clone is dropped.
///
/// See the [crate's page](crate) for what all calls have in common. Java's `Admin` has the same operations under
/// the same names, with `Consumer` in some of them.
#[derive(Clone, Debug)]
pub struct Admin {
    cluster: Cluster,
    owner: Owner,
    timeout: Duration,
}

/// One call of an [`Admin`].
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub cluster: &'a Cluster,
    pub via: Via,
    pub deadline: Instant,
}

impl Admin {
    /// An admin of `cluster`. Connects to nobody before the first call.
    pub fn new(cluster: Cluster) -> Admin {
        Admin { owner: cluster.owner(), cluster, timeout: TIMEOUT }
    }

    /// Bounds every call from here on, retries included. Default: 60 s (Java: `default.api.timeout.ms`). A single
    /// request is bounded by the cluster's request timeout as well.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Admin {
        self.timeout = timeout.min(LONGEST);
        self
    }

    /// The cluster that is asked.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) fn call(&self) -> Call<'_> {
        Call {
            cluster: &self.cluster,
            via: self.owner.via(Lane::Control),
            deadline: Instant::now() + self.timeout,
        }
    }
}

impl Call<'_> {
    /// Carries a plan out; an error only where nobody could be asked about any item.
    pub(crate) async fn carry_out<T, F, Fut>(&self, plan: Plan<T>, ask: F) -> Result<Vec<Result<T>>>
    where
        F: Fn(Batch) -> Fut,
        Fut: Future<Output = Asked<T>>,
    {
        whole(self.carry_out_each(plan, ask).await)
    }

    /// As [`Call::carry_out`], for a caller that has a second way to ask.
    pub(crate) async fn carry_out_each<T, F, Fut>(&self, plan: Plan<T>, ask: F) -> Vec<Settled<T>>
    where
        F: Fn(Batch) -> Fut,
        Fut: Future<Output = Asked<T>>,
    {
        run(self.cluster, self.deadline, plan, ask).await
    }

    /// Sends a request over this admin's own connections, in the best version both sides know from `oldest` on.
    pub(crate) async fn send<R>(
        &self,
        to: To,
        deadline: Instant,
        oldest: i16,
        request: R,
    ) -> std::result::Result<(i16, R::Response), Failure>
    where
        R: Request + Send,
        R::Response: Send,
    {
        self.send_within(to, deadline, oldest..=i16::MAX, request).await
    }

    /// As [`Call::send`], in one of these versions.
    pub(crate) async fn send_within<R>(
        &self,
        to: To,
        deadline: Instant,
        versions: RangeInclusive<i16>,
        request: R,
    ) -> std::result::Result<(i16, R::Response), Failure>
    where
        R: Request + Send,
        R::Response: Send,
    {
        let placing = Placing { answered: true, behind: None };
        let build = |_| Ok(request);
        let submitted = self.cluster.submit(to, &self.via, deadline, versions, placing, build).await;
        let submitted = submitted.map_err(|error| Failure { error, sent: false })?;
        let answer = submitted.answer().await?;
        Ok((answer.version, guard::decode(R::KEY, answer.version, answer.body)?))
    }
}

/// Results beside the keys they belong to.
pub(crate) fn keyed<K, T>(keys: Vec<K>, results: Vec<Result<T>>) -> Vec<(K, Result<T>)> {
    keys.into_iter().zip(results).collect()
}

/// Partitions as callers name them, and as we do.
pub(crate) fn interned(partitions: &[(String, i32)]) -> Vec<(TopicName, i32)> {
    partitions.iter().map(|(topic, index)| (TopicName::new(topic), *index)).collect()
}
