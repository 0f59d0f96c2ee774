//! One broker's fetcher: a task with a connection of its own that keeps one fetch in flight whenever the
//! budget allows, whether or not anybody polls.
//!
//! The order of a round: the answer's headers give the next offsets, the next request goes out, and only then
//! are the checksums of the last answer computed. So the broker works while this side does.
//!
//! It decides nothing; the core does. It ends when nothing is assigned on its broker, or with the consumer.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use kafka_meta::client::{Lane, RawAnswer, To, Via};
use kafka_meta::wire::fetch;
use kafka_meta::{Error, Result};
use kafka_protocol::messages::FetchRequest;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::driver::until;
use crate::engine::{FetchOrder, FetchStep, Settings, Work, check};
use crate::shared::Shared;

/// Work on an answer is cut into stretches of about this many bytes, so that other tasks of a small runtime
/// get their turn: about 0.2 ms each.
const STRETCH: usize = 1 << 20;

/// See the module.
pub(crate) async fn run(shared: Arc<Shared>, node: i32) {
    let fetcher = Fetcher {
        via: shared.owner.via(Lane::Fetch),
        settings: shared.with(|core| core.settings.clone()),
        shared,
        node,
    };
    fetcher.run().await;
}

struct Fetcher {
    shared: Arc<Shared>,
    node: i32,
    via: Via,
    settings: Settings,
}

impl Fetcher {
    async fn run(&self) {
        let mut unchecked: Vec<Work> = Vec::new();
        loop {
            let mut rung = pin!(self.shared.fetchers.notified());
            rung.as_mut().enable();
            let step = self.shared.with(|core| core.poll_fetch(Instant::now().into_std(), self.node));
            match step {
                FetchStep::Send(order) => unchecked = self.fetch(&order, unchecked).await,
                FetchStep::Wait(_) | FetchStep::Retire if !unchecked.is_empty() => {
                    self.settle(std::mem::take(&mut unchecked)).await;
                    if matches!(step, FetchStep::Retire) {
                        return;
                    }
                }
                FetchStep::Wait(at) => {
                    tokio::select! {
                        () = rung => {}
                        () = until(at.map(Instant::from_std)) => {}
                    }
                }
                FetchStep::Retire => return,
            }
        }
    }

    /// Sends one fetch, checks the last answer while it is under way, and takes the new answer's headers.
    async fn fetch(&self, order: &FetchOrder, unchecked: Vec<Work>) -> Vec<Work> {
        let started = Instant::now();
        let mut call = pin!(self.call(order, started));
        let mut answer = match futures::poll!(call.as_mut()) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        };
        if !unchecked.is_empty() {
            // The connection's task needs a turn to write the request before this one computes.
            yield_now().await;
            self.settle(unchecked).await;
        }
        let answer = match answer.take() {
            Some(answer) => answer,
            None => call.await,
        };
        let now = Instant::now();
        let took = now.saturating_duration_since(started);
        let result = answer.and_then(|raw| {
            let bytes = raw.body.len();
            Ok((fetch::decode(raw.version, raw.body)?, bytes))
        });
        match result {
            Ok((answer, bytes)) => {
                self.shared.with(|core| core.handle_answer(now.into_std(), order, answer, bytes, took))
            }
            Err(error) => {
                self.fail(order, &error);
                Vec::new()
            }
        }
    }

    async fn call(&self, order: &FetchOrder, started: Instant) -> Result<RawAnswer> {
        let deadline = started + self.shared.cluster.config().request_timeout() + self.settings.wire_wait;
        self.shared
            .cluster
            .call_raw::<FetchRequest, _>(
                To::Node(self.node),
                &self.via,
                deadline,
                order.plan.versions(),
                |version| Ok(order.plan.request(version, &order.settings)),
            )
            .await
    }

    fn fail(&self, order: &FetchOrder, error: &Error) {
        let now = Instant::now().into_std();
        self.shared.with(|core| core.handle_fetch_failure(now, order, error));
    }

    /// Checks what an answer holds and puts it into its places.
    async fn settle(&self, works: Vec<Work>) {
        let mut since = 0;
        for work in works {
            since += work.bytes;
            let checked = check(work, &self.settings);
            self.shared.with(|core| core.fill(Instant::now().into_std(), checked));
            if since >= STRETCH {
                since = 0;
                yield_now().await;
            }
        }
    }
}
