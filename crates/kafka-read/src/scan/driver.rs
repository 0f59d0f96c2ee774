//! The one task of a scan or tail: it asks the brokers what the core wants to know, has batches worked on, and
//! waits. It decides nothing. The lock is held for one synchronous step of the core, never across an await.
//!
//! It ends when everything has been read or has failed, and is aborted when the stream is dropped; with it go all
//! requests in flight and the connections.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::task::AtomicWaker;
use kafka_meta::client::{Lane, Owner, Snapshot, To};
use kafka_meta::wire::fetch as wire;
use kafka_meta::wire::protocol::messages::FetchRequest;
use kafka_meta::{Cluster, Error, ErrorKind, Result};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Order;
use super::bounds::{Bounds, targets, times};
use super::core::{Core, Output, WIRE_WAIT};
use super::plan::FetchOrder;
use super::work::{Part, Settings, Worked};
use crate::fetch;
use crate::lookup::{self, Target};

/// What the stream and its driver share.
#[derive(Debug)]
pub(super) struct Shared {
    core: Mutex<Core>,
    /// The driver waits here.
    pub bell: Notify,
    /// The stream's task.
    pub waker: AtomicWaker,
}

impl Shared {
    pub(super) fn new(core: Core) -> Self {
        Shared { core: Mutex::new(core), bell: Notify::new(), waker: AtomicWaker::new() }
    }

    /// One step of the core.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let result = step(&mut core);
        let news = std::mem::take(&mut core.effects.news);
        let room = std::mem::take(&mut core.effects.room);
        drop(core);
        if news {
            self.waker.wake();
        }
        if room {
            self.bell.notify_one();
        }
        result
    }
}

/// Something that was waited for.
enum Done {
    Listed(Result<Vec<i32>>),
    Confirmed(Result<Arc<Snapshot>>),
    Resolved(Vec<i32>, Result<BTreeMap<i32, Bounds>>),
    Looked {
        partition: i32,
        ticket: u64,
        result: Result<Bounds>,
    },
    Fetched {
        order: Box<FetchOrder>,
        result: Result<(wire::FetchAnswer, usize)>,
        took: Duration,
    },
    Worked(Box<Part>, Worked),
    /// The thread that worked on a batch is gone.
    Broken,
}

struct Driver {
    shared: Arc<Shared>,
    cluster: Cluster,
    order: Order,
    settings: Settings,
    owner: Owner,
    inline_only: bool,
}

/// See the module.
pub(super) async fn run(shared: Arc<Shared>, cluster: Cluster) {
    let (order, settings) = shared.with(|core| (core.order.clone(), core.settings.clone()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let inline_only =
        cores == 1 || matches!(Handle::current().runtime_flavor(), RuntimeFlavor::CurrentThread);
    let owner = cluster.owner();
    let interest = cluster.interest();
    interest.set([order.topic]);
    let driver = Driver { shared, cluster, order, settings, owner, inline_only };
    driver.run().await;
    // However it ended, the stream must look.
    driver.shared.waker.wake();
}

impl Driver {
    async fn run(&self) {
        let mut generations = self.cluster.watch();
        let mut seen = None;
        let mut flight: FuturesUnordered<BoxFuture<'_, Done>> = FuturesUnordered::new();
        loop {
            let mut rung = pin!(self.shared.bell.notified());
            rung.as_mut().enable();
            let now = Instant::now();
            generations.borrow_and_update();
            let snapshot = self.cluster.snapshot();
            let fresh = seen.replace(snapshot.generation) != Some(snapshot.generation);
            let (outputs, over, next) = self.shared.with(|core| {
                if fresh {
                    core.handle_snapshot(now.into_std(), &snapshot);
                }
                let mut outputs = Vec::new();
                while let Some(output) = core.poll_output(now.into_std(), fastrand::f64()) {
                    outputs.push(output);
                }
                (outputs, core.is_over(), core.next_deadline(now.into_std()))
            });
            if over {
                return;
            }
            self.tell_cluster();
            for output in outputs {
                flight.push(self.carry_out(output));
            }
            tokio::select! {
                () = rung => {}
                changed = generations.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                Some(done) = flight.next() => self.handle(done),
                () = until(next.map(Instant::from_std)) => {}
            }
        }
    }

    /// What the last steps left for the cluster to know.
    fn tell_cluster(&self) {
        let (refresh, hints) = self.shared.with(|core| {
            (std::mem::take(&mut core.effects.refresh), std::mem::take(&mut core.effects.hints))
        });
        for hint in hints {
            self.cluster.leader_hint(self.order.topic, hint.partition, hint.node, hint.epoch, hint.endpoint);
        }
        if refresh {
            self.cluster.refresh();
        }
    }

    fn carry_out(&self, output: Output) -> BoxFuture<'_, Done> {
        match output {
            Output::List => Box::pin(async { Done::Listed(self.list().await) }),
            Output::Confirm => Box::pin(async {
                let deadline = Instant::now() + self.order.timeout;
                Done::Confirmed(self.cluster.refreshed(&[self.order.topic], deadline).await)
            }),
            Output::Resolve(partitions) => Box::pin(async {
                let result = self.bounds(&partitions, times(&self.order)).await;
                Done::Resolved(partitions, result)
            }),
            Output::Look { partition, ticket } => Box::pin(async move {
                let found = self.bounds(&[partition], [None; 2]).await;
                let result = found.and_then(|mut found| {
                    found.remove(&partition).ok_or_else(|| {
                        Error::new(ErrorKind::Other, self.order.operation()).with_detail("no offsets came")
                    })
                });
                Done::Looked { partition, ticket, result }
            }),
            Output::Fetch(order) => Box::pin(self.fetch(order)),
            Output::Work { part, heavy } => Box::pin(self.work(part, heavy)),
        }
    }

    fn handle(&self, done: Done) {
        let now = Instant::now().into_std();
        let random = fastrand::f64();
        let snapshot = matches!(done, Done::Listed(_)).then(|| self.cluster.snapshot());
        self.shared.with(|core| match done {
            Done::Listed(result) => {
                if let Some(snapshot) = snapshot {
                    core.handle_listed(result, &snapshot, now);
                }
            }
            Done::Confirmed(result) => core.handle_confirmed(now, result.ok().as_deref()),
            Done::Resolved(partitions, result) => core.handle_resolved(now, &partitions, result),
            Done::Looked { partition, ticket, result } => {
                core.handle_looked(now, random, partition, ticket, result);
            }
            Done::Fetched { order, result: Ok((answer, bytes)), took } => {
                core.handle_answer(now, random, &order, answer, (bytes, took));
            }
            Done::Fetched { order, result: Err(error), .. } => {
                core.handle_fetch_failure(now, random, &order, &error);
            }
            Done::Worked(part, worked) => core.handle_worked(*part, worked),
            Done::Broken => {
                let error = Error::new(ErrorKind::Closed, core.order.operation())
                    .with_detail("the runtime has been shut down");
                core.fail_all(&error);
            }
        });
    }

    async fn list(&self) -> Result<Vec<i32>> {
        self.order.check()?;
        let deadline = Instant::now() + self.order.timeout;
        match timeout_at(deadline, self.cluster.partitions(self.order.topic.as_str())).await {
            Ok(result) => result,
            Err(_) => Err(Error::new(ErrorKind::Timeout, self.order.operation())
                .with_topic(self.order.topic)
                .with_detail("no broker told the topic's partitions in time")),
        }
    }

    async fn bounds(
        &self,
        partitions: &[i32],
        [from, until]: [Option<Target>; 2],
    ) -> Result<BTreeMap<i32, Bounds>> {
        let deadline = Instant::now() + self.order.timeout;
        let find = |target: Option<Target>| async move {
            let Some(target) = target else { return Ok(Default::default()) };
            let targets = targets(self.order.topic, partitions, target);
            lookup::find(&self.cluster, self.order.visibility(), targets, deadline).await
        };
        let (earliest, latest, from, until) = tokio::try_join!(
            find(Some(Target::Earliest)),
            find(Some(Target::Latest)),
            find(from),
            find(until)
        )?;
        let bounds = partitions.iter().map(|partition| {
            let key = (self.order.topic, *partition);
            let offset = |found: &std::collections::HashMap<_, Option<lookup::Found>>| {
                found.get(&key).copied().flatten().map(|found| found.offset)
            };
            let bounds = Bounds {
                earliest: offset(&earliest).unwrap_or(0),
                latest: offset(&latest).unwrap_or(0),
                from: offset(&from),
                until: offset(&until),
            };
            (*partition, bounds)
        });
        Ok(bounds.collect())
    }

    async fn fetch(&self, order: Box<FetchOrder>) -> Done {
        let started = Instant::now();
        let deadline = started + self.cluster.config().request_timeout() + WIRE_WAIT;
        let answer = self
            .cluster
            .call_raw::<FetchRequest, _>(
                To::Node(order.node),
                &self.owner.via(Lane::Fetch),
                deadline,
                fetch::versions(!order.topic_id.is_nil()),
                |version| Ok(fetch::request(version, &order.wants, &order.settings)),
            )
            .await;
        let result = answer.and_then(|raw| {
            let bytes = raw.body.len();
            Ok((wire::decode(raw.version, raw.body)?, bytes))
        });
        Done::Fetched { order, result, took: started.elapsed() }
    }

    async fn work(&self, part: Box<Part>, heavy: bool) -> Done {
        // The connections' tasks need a turn to write the next requests before this one computes.
        tokio::task::yield_now().await;
        let mut part = part;
        if !heavy || self.inline_only {
            let worked = part.work(&self.settings);
            return Done::Worked(part, worked);
        }
        let settings = self.settings.clone();
        let task = tokio::task::spawn_blocking(move || {
            let worked = part.work(&settings);
            (part, worked)
        });
        task.await.map_or(Done::Broken, |(part, worked)| Done::Worked(part, worked))
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
