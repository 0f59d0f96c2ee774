//! A member's background task: sends what its core wants sent, brings answers, metadata and time in, and stores
//! what auto-commit wants stored. It decides nothing.
//!
//! It runs whether or not anybody polls: heartbeats do not depend on the caller's loop.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kafka_meta::client::{CoordinatorKind, Lane, To, Via};
use kafka_meta::{ErrorKind, Result};
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest,
    LeaveGroupRequest, SyncGroupRequest,
};
use tokio::time::Instant;

use super::cell::Cell;
use super::core::Core;
use super::orders::{CommitOrder, Order};
use super::protocol::{Answer, Request};
use crate::driver::until;
use crate::shared::Shared;

/// See the module. Ends when the member has left or its consumer is closed.
pub(crate) async fn run(shared: Arc<Shared>) {
    let Some(cell) = shared.member.get() else { return };
    let mut generations = shared.cluster.watch();
    let mut seen = None;
    let mut under_way: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    let driver = Driver { join: shared.owner.via(Lane::Join), group: shared.owner.via(Lane::Group) };
    loop {
        let mut rung = pin!(cell.bell.notified());
        rung.as_mut().enable();
        let generation = *generations.borrow_and_update();
        let now = Instant::now().into_std();
        #[cfg(test)]
        super::sabotage::turn(now);
        if seen != Some(generation) {
            seen = Some(generation);
            let snapshot = shared.cluster.snapshot();
            cell.with(&shared, |core| core.handle_snapshot(now, &snapshot));
        }
        if shared.take_touched() {
            cell.with(&shared, |core| core.touch(now));
        }
        let (orders, next) = cell.with(&shared, |core| {
            core.tick(now);
            let orders: Vec<Order> = std::iter::from_fn(|| core.poll_order()).collect();
            (orders, core.next_deadline())
        });
        for order in orders {
            driver.carry_out(&shared, cell, order, &under_way);
        }
        if shared.is_closed() || (cell.look(Core::has_left) && under_way.is_empty()) {
            return;
        }
        tokio::select! {
            () = rung => {}
            changed = generations.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Some(()) = under_way.next() => {}
            () = until(next.map(Instant::from_std)) => {}
        }
    }
}

struct Driver {
    join: Via,
    group: Via,
}

impl Driver {
    fn carry_out(
        &self,
        shared: &Arc<Shared>,
        cell: &Cell,
        order: Order,
        under_way: &FuturesUnordered<BoxFuture<'static, ()>>,
    ) {
        match order {
            Order::Send { ticket, lane, within, request } => {
                let via = if lane == Lane::Join { self.join.clone() } else { self.group.clone() };
                let shared = Arc::clone(shared);
                under_way.push(Box::pin(async move {
                    let answer = send(&shared, &via, Instant::now() + within, request).await;
                    if let Some(cell) = shared.member.get() {
                        let now = Instant::now().into_std();
                        cell.with(&shared, |core| core.handle_answer(now, ticket, answer, fastrand::f64()));
                    }
                }));
            }
            Order::Commit(order) => {
                let shared = Arc::clone(shared);
                under_way.push(Box::pin(async move { store(&shared, order).await }));
            }
            Order::ForgetCoordinator => {
                let node = cell.coordinator.load(Ordering::Acquire);
                shared.cluster.forget_coordinator(CoordinatorKind::Group, &cell.group, node);
            }
            Order::Interest(topics) => cell.interest.set(topics),
            Order::Refresh => shared.cluster.refresh(),
            Order::Adopt { identity, owned } => {
                if let Some(offsets) = &shared.offsets {
                    offsets.adopt(identity, owned.into_iter().collect::<BTreeSet<_>>());
                }
            }
        }
    }
}

async fn store(shared: &Arc<Shared>, order: CommitOrder) {
    let Some(offsets) = &shared.offsets else { return };
    let deadline = Instant::now() + order.within;
    let result = offsets.commit(order.offsets.clone(), order.identity, deadline).await;
    if let Some(cell) = shared.member.get() {
        let now = Instant::now().into_std();
        cell.with(shared, |core| core.handle_commit(now, order.number, &order.offsets, &result));
    }
}

/// Sends one request to the group's coordinator.
async fn send(shared: &Shared, via: &Via, deadline: Instant, request: Request) -> Result<Answer> {
    let Some(cell) = shared.member.get() else { return Err(super::cell::closed()) };
    let cluster = &shared.cluster;
    let node = cluster.coordinator(CoordinatorKind::Group, &cell.group, deadline).await?;
    cell.coordinator.store(node, Ordering::Release);
    let to = To::Node(node);
    let answer = match request {
        Request::ConsumerHeartbeat(request) => cluster
            .call_with::<ConsumerGroupHeartbeatRequest, _>(to, via, deadline, 1..=1, |_| Ok(request))
            .await
            .map(|(_, answer)| Answer::ConsumerHeartbeat(answer)),
        Request::Join(request) => cluster
            .call_with::<JoinGroupRequest, _>(to, via, deadline, 5..=9, |version| {
                let mut request = request;
                if version < 8 {
                    request.reason = None;
                }
                Ok(request)
            })
            .await
            .map(|(_, answer)| Answer::Join(answer)),
        Request::Sync(request) => cluster
            .call_with::<SyncGroupRequest, _>(to, via, deadline, 3..=5, |version| {
                let mut request = request;
                if version < 5 {
                    request.protocol_type = None;
                    request.protocol_name = None;
                }
                Ok(request)
            })
            .await
            .map(|(_, answer)| Answer::Sync(answer)),
        Request::Heartbeat(request) => cluster
            .call_with::<HeartbeatRequest, _>(to, via, deadline, 3..=4, |_| Ok(request))
            .await
            .map(|(_, answer)| Answer::Heartbeat(answer)),
        Request::Leave(request) => cluster
            .call_with::<LeaveGroupRequest, _>(to, via, deadline, 3..=5, |version| {
                let mut request = request;
                if version < 5 {
                    for member in &mut request.members {
                        member.reason = None;
                    }
                }
                Ok(request)
            })
            .await
            .map(|_| Answer::Leave),
        Request::Describe(request) => cluster
            .call_with::<DescribeGroupsRequest, _>(to, via, deadline, 3..=6, |_| Ok(request))
            .await
            .map(|(_, answer)| Answer::Describe(answer)),
    };
    if let Err(error) = &answer
        && matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::Timeout)
    {
        // It may be gone for good: the next attempt asks who coordinates now.
        cluster.forget_coordinator(CoordinatorKind::Group, &cell.group, node);
    }
    answer
}
