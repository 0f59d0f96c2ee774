//! The next fetch of one broker: which partitions, how many bytes. Pure.
//!
//! No session: each request names all it wants, and nothing stays at the broker. A partition that is full, waits
//! or is done is simply not named.

use std::time::Instant;

use kafka_meta::{Error, ErrorCode};
use uuid::Uuid;

use super::core::{Core, Node, WIRE_WAIT};
use super::partition::Reason;
use crate::fetch::{Asked, FetchSettings, Retry, Want};

/// The most bytes of one answer.
const MAX_BYTES: usize = 8 << 20;
/// The most bytes of one partition in it.
const PARTITION_BYTES: usize = 1 << 20;

/// A fetch to send.
#[derive(Clone, Debug)]
pub(super) struct FetchOrder {
    pub node: i32,
    pub topic_id: Uuid,
    pub wants: Vec<Want>,
    pub settings: FetchSettings,
    /// Bytes set aside for the answer.
    pub reserved: usize,
}

impl Node {
    fn new() -> Self {
        Node { in_flight: false, retry: Retry::default(), muted: None, hollow: 0, used: 0 }
    }
}

impl Core {
    /// A fetch for a broker that can take one.
    pub(super) fn poll_fetch(&mut self, now: Instant, random: f64) -> Option<FetchOrder> {
        let mut sources = Vec::new();
        for partition in self.partitions.values_mut() {
            if partition.preferred.is_some_and(|(_, until)| until <= now) {
                partition.preferred = None;
            }
            if !partition.is_wanting() || !partition.retry.is_due(now) {
                continue;
            }
            match partition.source(now) {
                Some(node) => sources.push(node),
                None => {
                    let error = Error::broker(ErrorCode::LEADER_NOT_AVAILABLE, "fetch")
                        .with_partition(self.topic, partition.index)
                        .with_offset(partition.fetch.offset);
                    partition.suffer(now, Reason::Error(error));
                    partition.retry.fail(now, random);
                    self.effects.refresh = true;
                }
            }
        }
        sources.sort_unstable();
        sources.dedup();
        for node in &sources {
            self.nodes.entry(*node).or_insert_with(Node::new);
        }
        sources.into_iter().find_map(|node| self.order(now, node))
    }

    /// Each broker's part of the budget.
    fn share(&self) -> usize {
        (self.order.buffer_bytes / self.nodes.len().max(1)).max(1)
    }

    /// The partitions of a broker whose share is used up wait for the caller, which is no trouble of theirs.
    fn excuse(&mut self, now: Instant, id: i32) {
        for partition in self.partitions.values_mut().filter(|one| one.source(now) == Some(id)) {
            partition.trouble = None;
        }
    }

    fn order(&mut self, now: Instant, id: i32) -> Option<FetchOrder> {
        let share = self.share();
        let topic_id = self.topic_id;
        let node = self.nodes.get_mut(&id)?;
        if node.in_flight || !node.retry.is_due(now) || node.muted.is_some_and(|until| until > now) {
            return None;
        }
        let most = MAX_BYTES.min(share);
        // A quarter, so that a small share has room for a fetch beside what waits to be taken.
        let each = PARTITION_BYTES.min(most / 4).max(1);
        let free = share.saturating_sub(node.used);
        // An answer over the share comes alone, or nothing would ever come.
        let bytes = if node.used == 0 { most } else { most.min(free) };
        if bytes < each {
            self.starved = true;
            self.excuse(now, id);
            return None;
        }
        let mut shunning = false;
        let mut wants: Vec<(u64, bool, Want)> = Vec::new();
        let full = each.saturating_mul(2).max(share / self.partitions.len().max(1));
        for partition in self.partitions.values_mut() {
            if partition.source(now) != Some(id) || !partition.is_wanting() || !partition.retry.is_due(now) {
                continue;
            }
            if partition.queued >= full {
                self.starved = true;
                partition.trouble = None;
                continue;
            }
            shunning |= partition.shun.is_some_and(|until| until > now);
            let hungry = partition
                .cut
                .is_some_and(|((offset, _), times)| offset == partition.fetch.offset && times >= 2);
            let want = Want {
                topic: self.topic,
                topic_id,
                partition: partition.index,
                offset: partition.fetch.offset,
                leader_epoch: partition.leader.and_then(|leader| leader.epoch),
                last_fetched_epoch: partition.fetch.epoch,
                max_bytes: i32::try_from(each).unwrap_or(i32::MAX),
            };
            wants.push((partition.served, hungry, want));
        }
        // One whose batch was cut twice behind others' data is asked for alone: the first batch of an answer is
        // always sent whole.
        if let Some(at) = wants.iter().position(|(_, hungry, _)| *hungry) {
            wants = vec![wants.swap_remove(at)];
        }
        // Those that were served longest ago come first.
        wants.sort_by_key(|(served, ..)| *served);
        if wants.is_empty() {
            return None;
        }
        for (_, _, want) in &wants {
            if let Some(partition) = self.partitions.get_mut(&want.partition) {
                partition.asked =
                    Some(Asked { node: id, ticket: partition.ticket, offset: partition.fetch.offset });
            }
        }
        node.in_flight = true;
        node.used += bytes;
        Some(FetchOrder {
            node: id,
            topic_id,
            wants: wants.into_iter().map(|(_, _, want)| want).collect(),
            settings: FetchSettings {
                max_wait_ms: i32::try_from(WIRE_WAIT.as_millis()).unwrap_or(500),
                min_bytes: 1,
                max_bytes: i32::try_from(bytes).unwrap_or(i32::MAX),
                committed_only: self.order.committed_only,
                rack: if shunning { String::new() } else { self.rack.clone() },
            },
            reserved: bytes,
        })
    }
}
