//! The next fetch of one broker: which partitions, how many bytes, or what to wait for. Pure.
//!
//! A partition that must not be fetched (paused, full, in back-off, leaving) is simply not wanted: the session
//! then forgets it once, and names it again when it comes back. So a full or broken partition neither makes a
//! long poll return at once again and again nor slows its neighbours.

use std::time::Instant;

use super::core::{Core, Node};
use crate::position::{Asked, State};
use crate::session::{FetchSettings, Plan, Want};

/// A fetch to send.
#[derive(Debug)]
pub(crate) struct FetchOrder {
    pub node: i32,
    pub plan: Plan,
    pub settings: FetchSettings,
    /// Bytes set aside for the answer.
    pub reserved: usize,
    /// Only empties or closes the session: nobody waits for data.
    pub parting: bool,
}

/// What a broker's fetcher does next.
#[derive(Debug)]
pub(crate) enum FetchStep {
    Send(Box<FetchOrder>),
    /// Nothing to ask until something changes, or until this time.
    Wait(Option<Instant>),
    /// Nothing is assigned on this broker and no session is left: the fetcher ends.
    Retire,
}

impl Core {
    /// Brokers that need a fetcher and have none; each is answered once.
    pub fn poll_fetchers(&mut self, now: Instant) -> Vec<i32> {
        if self.is_closed() {
            return Vec::new();
        }
        self.end_leases(now);
        let mut sources: Vec<i32> = self
            .each()
            .filter(|(_, partition)| partition.fetch.is_some())
            .filter_map(|(_, partition)| partition.source(now))
            .collect();
        sources.sort_unstable();
        sources.dedup();
        sources.retain(|node| {
            let node = self.nodes.entry(*node).or_insert_with(Node::new);
            !std::mem::replace(&mut node.running, true)
        });
        sources
    }

    /// What the fetcher of `node` does now.
    pub fn poll_fetch(&mut self, now: Instant, node: i32) -> FetchStep {
        if self.is_closed() {
            return self.part(node);
        }
        match self.nodes.get(&node) {
            None => return FetchStep::Retire,
            Some(state) => {
                if let Some(at) = state.retry.at.max(state.muted).filter(|at| *at > now) {
                    return FetchStep::Wait(Some(at));
                }
            }
        }
        let Gathered { wants, assigned, shunning, wake } = self.gather(now, node);
        if wants.is_empty() {
            let leaving = self.nodes.get(&node).is_some_and(|state| {
                state.session.held().any(|(topic, index)| {
                    self.named(topic, index)
                        .and_then(|id| self.get(id))
                        .is_none_or(|partition| partition.source(now) != Some(node))
                })
            });
            if leaving {
                return self.order(node, &wants, Asking { bytes: 0, rack: false, parting: true });
            }
            if !assigned {
                return self.part(node);
            }
            return FetchStep::Wait(wake);
        }
        let Some(bytes) = self.room() else {
            // A back-off that ends changes nothing without room; taking records does.
            self.starved = true;
            return FetchStep::Wait(None);
        };
        self.order(node, &wants, Asking { bytes, rack: !shunning, parting: false })
    }

    /// Bytes the next answer may have; `None` when the buffer must be drained first.
    fn room(&mut self) -> Option<usize> {
        let share = (self.budget.limit() / self.nodes.len().max(1)).max(1);
        let most = usize::try_from(self.settings.max_bytes).unwrap_or(1).min(share);
        let least = usize::try_from(self.settings.partition_max_bytes).unwrap_or(1).min(most);
        if self.budget.free() < least && !self.budget.is_idle() {
            self.drop_paused_buffers();
        }
        if self.budget.free() >= least {
            return Some(most.min(self.budget.free()));
        }
        // An answer over the budget comes alone, or nothing would ever come.
        self.budget.is_idle().then_some(most)
    }

    /// Buffers of paused partitions make room first: nobody waits for them. Their positions stay.
    fn drop_paused_buffers(&mut self) {
        let paused: Vec<usize> = self
            .each()
            .filter(|(_, partition)| {
                // A partition that looks for a new position keeps what its log may have no longer.
                (partition.paused || partition.held)
                    && !partition.queue.is_empty()
                    && !matches!(partition.state, State::Seeking { .. })
            })
            .map(|(id, _)| id)
            .collect();
        for id in paused {
            self.counts.dropped_buffers += 1;
            self.drop_buffer(id);
        }
    }

    /// The partitions to ask `node` for, in the order it should fill its answer.
    fn gather(&mut self, now: Instant, node: i32) -> Gathered {
        let most = i32::try_from(self.settings.budget).unwrap_or(i32::MAX);
        let max_bytes = self.settings.partition_max_bytes.min(most);
        let mut assigned = false;
        let mut shunning = false;
        let mut wake: Option<Instant> = None;
        let mut wants: Vec<(u64, Want, bool)> = Vec::new();
        let mut expired = false;
        for (_, partition) in self.each_mut() {
            if partition.preferred.is_some_and(|preferred| preferred.until <= now) {
                partition.preferred = None;
                expired = true;
            }
            if partition.source(now) != Some(node) {
                continue;
            }
            assigned = true;
            partition.asked = None;
            let Some(fetch) = partition.fetch else { continue };
            if !partition.is_fetchable() || partition.full {
                continue;
            }
            if let Some(at) = partition.retry.at.filter(|at| *at > now) {
                wake = Some(wake.map_or(at, |wake| wake.min(at)));
                continue;
            }
            shunning |= partition.shun.is_some_and(|until| until > now);
            partition.asked = Some(Asked { node, ticket: partition.ticket, offset: fetch.offset });
            wants.push((
                partition.served,
                Want {
                    topic: partition.topic,
                    topic_id: partition.topic_id,
                    partition: partition.index,
                    offset: fetch.offset,
                    leader_epoch: partition.leader.and_then(|leader| leader.epoch),
                    last_fetched_epoch: fetch.epoch,
                    max_bytes,
                },
                partition.tail.is_some_and(|((offset, _), times)| offset == fetch.offset && times >= 2),
            ));
        }
        // One whose batch was cut twice behind others' data is asked for alone: a session keeps the order of its
        // partitions, and those that come back to it come last.
        if wants.iter().any(|(.., hungry)| *hungry) {
            wants.retain(|(.., hungry)| *hungry);
        }
        // Those that were served longest ago come first, so that none waits behind a busy one for ever.
        wants.sort_by_key(|(served, ..)| *served);
        // Back to the leader, whose fetcher may have ended for want of partitions.
        self.effects.fetchers |= expired;
        self.effects.supervisor |= expired;
        Gathered { wants: wants.into_iter().map(|(_, want, _)| want).collect(), assigned, shunning, wake }
    }

    fn order(&mut self, node: i32, wants: &[Want], asking: Asking) -> FetchStep {
        let Asking { bytes, rack, parting } = asking;
        let settings = FetchSettings {
            max_wait_ms: if parting {
                0
            } else {
                i32::try_from(self.settings.wire_wait.as_millis()).unwrap_or(500)
            },
            min_bytes: if parting { 0 } else { self.settings.min_bytes },
            max_bytes: i32::try_from(bytes).unwrap_or(i32::MAX),
            committed_only: self.settings.committed_only,
            rack: if rack { self.settings.rack.clone() } else { String::new() },
        };
        let Some(state) = self.nodes.get_mut(&node) else { return FetchStep::Retire };
        let plan = state.session.build(wants);
        state.in_flight = true;
        if !self.departed.is_empty() {
            self.forget_departed();
        }
        self.budget.reserve(bytes);
        self.counts.fetches += 1;
        FetchStep::Send(Box::new(FetchOrder { node, plan, settings, reserved: bytes, parting }))
    }

    /// Ends the session, then the fetcher.
    fn part(&mut self, node: i32) -> FetchStep {
        let Some(state) = self.nodes.get_mut(&node) else { return FetchStep::Retire };
        if state.retry.at.is_none()
            && let Some(plan) = state.session.close()
        {
            state.in_flight = true;
            let settings = FetchSettings {
                // With the usual wait: a broker is known that never answers a closing fetch with none.
                max_wait_ms: i32::try_from(self.settings.wire_wait.as_millis()).unwrap_or(500),
                min_bytes: 1,
                max_bytes: self.settings.max_bytes,
                committed_only: self.settings.committed_only,
                rack: self.settings.rack.clone(),
            };
            return FetchStep::Send(Box::new(FetchOrder {
                node,
                plan,
                settings,
                reserved: 0,
                parting: true,
            }));
        }
        self.nodes.remove(&node);
        FetchStep::Retire
    }
}

struct Asking {
    bytes: usize,
    rack: bool,
    parting: bool,
}

struct Gathered {
    wants: Vec<Want>,
    assigned: bool,
    /// A replica failed a moment ago: no redirect is wanted.
    shunning: bool,
    wake: Option<Instant>,
}
