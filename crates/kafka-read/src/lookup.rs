//! Looking up offsets: the ends of a log, and where a timestamp falls in it (ListOffsets).
//!
//! [`ask_node`] is one request to one leader; [`find`] knows no leader in advance, asks each its part, and asks
//! again what a moved leader or a lost connection left open. What this is not: it moves no position, applies no
//! reset policy, and speaks no wire; that is [`kafka_meta::client::offsets`].

use std::collections::HashMap;

use futures::stream::{FuturesUnordered, StreamExt};
use kafka_meta::client::{Backoff, Leader, To, Via, offsets};
use kafka_meta::{Cluster, Result, TopicName};
use tokio::time::Instant;

use crate::Visibility;
use search::Search;

pub use kafka_meta::client::offsets::{Answer, Ask, Found, Target};

mod search;

/// Sends one ListOffsets request; see [`kafka_meta::client::offsets::ask`]. Under `CommittedOnly` the end of the log
/// is the last stable offset.
///
/// # Errors
///
/// As there.
pub async fn ask_node(
    cluster: &Cluster,
    via: &Via,
    node: i32,
    visibility: Visibility,
    asks: Vec<Ask>,
    deadline: Instant,
) -> Result<Vec<(TopicName, i32, Answer)>> {
    let committed_only = visibility == Visibility::CommittedOnly;
    offsets::ask(cluster, via, To::Node(node), committed_only, asks, deadline).await
}

/// Finds offsets wherever the partitions' leaders are: each leader is asked its part, at the same time as the
/// others, and what a moved leader, an election or a lost connection leaves open is asked again until `deadline`.
/// A partition named twice is looked up once, for its last target.
///
/// Dropping the future abandons the look-up.
///
/// # Errors
///
/// The first failure that asking again cannot change, naming topic and partition: `UnknownTopic` once fresh
/// metadata has denied it twice, `Authorization`, `UnsupportedApi`, `InvalidRequest`. `Timeout`, naming a
/// partition that is still open, with the last reason as its source.
pub async fn find(
    cluster: &Cluster,
    visibility: Visibility,
    targets: Vec<(TopicName, i32, Target)>,
    deadline: Instant,
) -> Result<HashMap<(TopicName, i32), Option<Found>>> {
    let mut search = Search::new(targets)?;
    let via = Via::control();
    let mut backoff = Backoff::new(search::BACKOFF, search::BACKOFF_MAX);
    let mut flight = FuturesUnordered::new();
    let mut due = Instant::now();
    while !search.is_done() {
        let now = Instant::now();
        if now >= deadline {
            return Err(search.timed_out());
        }
        if search.is_waiting() && due <= now {
            let fresh = search.is_stale();
            let snapshot = if fresh {
                match cluster.refreshed(&search.topics(), deadline).await {
                    Ok(snapshot) => snapshot,
                    Err(error) => {
                        search.handle_no_metadata(error)?;
                        due = Instant::now() + backoff.next(fastrand::f64());
                        continue;
                    }
                }
            } else {
                cluster.snapshot()
            };
            let leader = |topic, partition| Leader::of(&snapshot, topic, partition);
            for (node, asks) in search.poll_output(Instant::now().into_std(), fresh, leader)? {
                let attempt = deadline.min(Instant::now() + cluster.config().request_timeout());
                let answer = ask_node(cluster, &via, node, visibility, asks.clone(), attempt);
                flight.push(async move { (asks, answer.await) });
            }
            if search.is_waiting() {
                // An old picture is no reason to wait for a new one; a new one without a leader is.
                due = Instant::now() + if fresh { backoff.next(fastrand::f64()) } else { Default::default() };
                continue;
            }
        }
        tokio::select! {
            Some((asks, answer)) = flight.next() => {
                let waiting = search.is_waiting();
                match answer {
                    Ok(answers) => search.handle_answers(answers)?,
                    Err(error) => search.handle_failure(&asks, error)?,
                }
                if search.is_waiting() && !waiting {
                    due = Instant::now() + backoff.next(fastrand::f64());
                }
            }
            () = tokio::time::sleep_until(due.min(deadline)), if search.is_waiting() => {}
            () = tokio::time::sleep_until(deadline) => {}
        }
    }
    Ok(search.into_found())
}

#[cfg(test)]
mod tests;
