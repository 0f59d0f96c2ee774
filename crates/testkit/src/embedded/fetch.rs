//! Fetch v4 to v18 as a broker answers it.
//!
//! The session's bookkeeping happens on arrival, the reading when the answer is due: at once when data, an
//! error of the log layer, a divergence or a redirect is there, else at the end of the wait. An error of the
//! broker's own check (unknown partition or id) does not cut the wait.

use std::time::Duration;

use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::api::{Api, Call, Started, Waiting, millis};
use super::log::Read;
use super::requests::FetchSeen;
use super::session::{Asked, Cached, Shared, next_epoch};
use super::world::{Partition, World};

/// The broker's own cap on one answer (`fetch.max.bytes`).
const BROKER_MAX_BYTES: usize = 55 * 1024 * 1024;
/// Whole-answer errors of a session.
const SESSION_ERRORS: [i16; 3] = [70, 71, 106];

enum Context {
    Refused(i16),
    Sessionless(Vec<Asked>),
    Full { asked: Vec<Asked> },
    Incremental { session: Shared, id: i32, epoch: i32 },
}

struct Work {
    context: Context,
    by_id: bool,
    deadline: Instant,
    waits: bool,
    min_bytes: usize,
    max_bytes: usize,
    read_committed: bool,
    rack: String,
}

/// What one partition gives at this moment.
struct Outcome {
    asked: Asked,
    data: PartitionData,
    read: Read,
    /// Found by the broker's own check: sorted behind the others and no reason to answer early.
    unknown: bool,
    /// A reason to answer at once.
    urgent: bool,
}

fn asked(request: &FetchRequest, world: &World, by_id: bool) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    for topic in &request.topics {
        let (name, id) = identity(world, by_id, &topic.topic, topic.topic_id);
        for partition in &topic.partitions {
            let new = Asked {
                topic: name.clone(),
                id,
                partition: partition.partition,
                leader_epoch: partition.current_leader_epoch,
                offset: partition.fetch_offset,
                last_fetched_epoch: partition.last_fetched_epoch,
                max_bytes: partition.partition_max_bytes,
            };
            match all.iter_mut().find(|known| known.same_partition(&new)) {
                Some(known) => *known = new,
                None => all.push(new),
            }
        }
    }
    all
}

fn forgotten(request: &FetchRequest, world: &World, by_id: bool) -> Vec<Asked> {
    let mut all = Vec::new();
    for topic in &request.forgotten_topics_data {
        let (name, id) = identity(world, by_id, &topic.topic, topic.topic_id);
        for partition in &topic.partitions {
            all.push(Asked {
                topic: name.clone(),
                id,
                partition: *partition,
                leader_epoch: -1,
                offset: -1,
                last_fetched_epoch: -1,
                max_bytes: 0,
            });
        }
    }
    all
}

fn identity(world: &World, by_id: bool, name: &str, id: Uuid) -> (Option<String>, Uuid) {
    if by_id { (world.ids.get(&id).cloned(), id) } else { (Some(name.to_owned()), Uuid::nil()) }
}

impl Api for FetchRequest {
    const REFUSES_BY_ITSELF: bool = true;

    /// Of an incremental request also those that its session holds: it asks for them without naming them.
    fn topics(&self, world: &World) -> Vec<String> {
        let named = self.topics.iter().filter_map(|topic| world.resolve(&topic.topic, topic.topic_id));
        let mut all: Vec<String> = named.collect();
        if self.session_epoch > 0 {
            for session in world.nodes.values().filter_map(|node| node.sessions.find(self.session_id)) {
                all.extend(lock(&session).partitions.iter().filter_map(|cached| cached.asked.topic.clone()));
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    fn fetch_seen(&self, world: &World) -> Option<FetchSeen> {
        let name = |name: &str, id: Uuid| {
            if id.is_nil() {
                name.to_owned()
            } else {
                world.resolve(name, id).unwrap_or_else(|| id.to_string())
            }
        };
        let mut seen = FetchSeen {
            session_id: self.session_id,
            session_epoch: self.session_epoch,
            max_wait: wait(self.max_wait_ms),
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            read_committed: self.isolation_level == 1,
            rack: self.rack_id.to_string(),
            ..FetchSeen::default()
        };
        for topic in &self.topics {
            for partition in &topic.partitions {
                let topic = name(&topic.topic, topic.topic_id);
                seen.partitions.push((topic, partition.partition, partition.fetch_offset));
            }
        }
        for topic in &self.forgotten_topics_data {
            for partition in &topic.partitions {
                seen.forgotten.push((name(&topic.topic, topic.topic_id), *partition));
            }
        }
        Some(seen)
    }

    fn refuse(&self, _call: &Call, code: i16) -> FetchResponse {
        FetchResponse::default().with_error_code(code)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<FetchResponse> {
        if let Some(error) = &call.effects.error
            && SESSION_ERRORS.contains(&error.code)
        {
            return Started::Done(self.refuse(call, error.code));
        }
        let by_id = call.version >= 13;
        let max_wait = wait(self.max_wait_ms);
        let work = Work {
            context: open_context(&self, world, call, by_id),
            by_id,
            deadline: call.now.checked_add(max_wait).unwrap_or(call.now),
            waits: !max_wait.is_zero(),
            min_bytes: usize::try_from(self.min_bytes).unwrap_or(0).min(BROKER_MAX_BYTES),
            max_bytes: usize::try_from(self.max_bytes).unwrap_or(0).min(BROKER_MAX_BYTES),
            read_committed: self.isolation_level == 1,
            rack: self.rack_id.to_string(),
        };
        Started::Wait(Box::new(work))
    }

    fn throttle(response: &mut FetchResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn wait(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn open_context(request: &FetchRequest, world: &mut World, call: &Call, by_id: bool) -> Context {
    let wanted = asked(request, world, by_id);
    let forget = forgotten(request, world, by_id);
    let Some(node) = world.nodes.get_mut(&call.node) else { return Context::Refused(-1) };
    let cache = &mut node.sessions;
    if request.session_epoch == 0 || request.session_epoch == -1 {
        // A full request closes whatever session it names, known or not.
        cache.remove(request.session_id);
        return if request.session_epoch == 0 {
            Context::Full { asked: wanted }
        } else {
            Context::Sessionless(wanted)
        };
    }
    let Some(session) = cache.find(request.session_id) else { return Context::Refused(70) };
    let mut held = lock(&session);
    if held.epoch != request.session_epoch {
        return Context::Refused(71);
    }
    if held.by_id != by_id {
        return Context::Refused(106);
    }
    held.update(wanted.clone(), &forget);
    if held.partitions.is_empty() {
        cache.remove(request.session_id);
        return Context::Sessionless(wanted);
    }
    held.epoch = next_epoch(held.epoch);
    drop(held);
    Context::Incremental { session, id: request.session_id, epoch: request.session_epoch }
}

fn lock(session: &Shared) -> std::sync::MutexGuard<'_, super::session::Session> {
    session.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Waiting<FetchResponse> for Work {
    fn poll(&mut self, world: &mut World, call: &Call, now: Instant) -> Option<FetchResponse> {
        if let Context::Refused(code) = self.context {
            return Some(FetchResponse::default().with_error_code(code));
        }
        if let Some(throttle) = call.effects.throttle {
            let response = FetchResponse::default().with_throttle_time_ms(millis(throttle));
            let id = if let Context::Incremental { id, .. } = &self.context { *id } else { 0 };
            return Some(response.with_session_id(id));
        }
        let wanted = self.wanted(world);
        let outcomes = self.read(world, call, wanted);
        let bytes: usize = outcomes.iter().map(|outcome| outcome.read.size).sum();
        let due = !self.waits
            || now >= self.deadline
            || bytes >= self.min_bytes
            || outcomes.iter().any(|outcome| outcome.urgent)
            || outcomes.iter().all(|outcome| outcome.unknown);
        due.then(|| self.answer(world, call, outcomes))
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.deadline)
    }
}

impl Work {
    /// Everything to serve, in order; ids that have become known since are resolved once and for all.
    fn wanted(&mut self, world: &World) -> Vec<Asked> {
        match &mut self.context {
            Context::Refused(_) => Vec::new(),
            Context::Sessionless(asked) | Context::Full { asked } => asked.clone(),
            Context::Incremental { session, .. } => {
                let mut session = lock(session);
                for cached in &mut session.partitions {
                    if cached.asked.topic.is_none() {
                        cached.asked.topic = world.ids.get(&cached.asked.id).cloned();
                    }
                }
                session.partitions.iter().map(|cached| cached.asked.clone()).collect()
            }
        }
    }

    fn read(&self, world: &World, call: &Call, wanted: Vec<Asked>) -> Vec<Outcome> {
        let mut good = Vec::new();
        let mut unknown = Vec::new();
        let mut left = self.max_bytes;
        let mut whole_first = true;
        for asked in wanted {
            let topic = asked.topic.as_ref().and_then(|name| world.topics.get(name));
            let partition = topic.and_then(|topic| topic.partition(asked.partition));
            let Some(partition) = partition else {
                let code = if asked.topic.is_none() { 100 } else { 3 };
                let mut data = failed(asked.partition, code);
                data.aborted_transactions = Some(Vec::new());
                unknown.push(Outcome { asked, data, read: Read::default(), unknown: true, urgent: false });
                continue;
            };
            let recreated = self.by_id && topic.is_some_and(|topic| topic.id != asked.id);
            let forced =
                call.effects.error.as_ref().filter(|error| {
                    error.topic.is_none() || error.topic.as_deref() == asked.topic.as_deref()
                });
            let outcome = if let Some(error) = forced {
                Err(error.code)
            } else if recreated {
                Err(103)
            } else {
                self.read_partition(world, call, partition, &asked, left, whole_first)
            };
            match outcome {
                Ok((data, read, urgent)) => {
                    left = left.saturating_sub(read.size);
                    whole_first = whole_first && read.size == 0;
                    good.push(Outcome { asked, data, read, unknown: false, urgent });
                }
                Err(code) => {
                    let mut data = failed(asked.partition, code);
                    if call.version >= 16 && (code == 6 || code == 74) {
                        data.current_leader = LeaderIdAndEpoch::default()
                            .with_leader_id(partition.leader.unwrap_or(-1).into())
                            .with_leader_epoch(partition.leader_epoch);
                    }
                    good.push(Outcome { asked, data, read: Read::default(), unknown: false, urgent: true });
                }
            }
        }
        good.append(&mut unknown);
        good
    }

    fn read_partition(
        &self,
        world: &World,
        call: &Call,
        partition: &Partition,
        asked: &Asked,
        left: usize,
        whole_first: bool,
    ) -> Result<(PartitionData, Read, bool), i16> {
        if !partition.replicas.contains(&call.node) {
            return Err(6);
        }
        check_epoch(partition, asked.leader_epoch)?;
        let leads = partition.leader == Some(call.node);
        if !leads && call.version < 11 {
            return Err(6);
        }
        let log = &partition.log;
        let lag = partition.lags.get(&call.node).filter(|_| !leads);
        let end = lag.map_or(log.end, |lag| lag.end.min(log.end));
        let high_watermark = lag.map_or(i64::MAX, |lag| lag.high_watermark).min(partition.high_watermark());
        let stable = log.stable(high_watermark);
        let mut data = PartitionData::default()
            .with_partition_index(asked.partition)
            .with_high_watermark(high_watermark)
            .with_last_stable_offset(stable)
            .with_log_start_offset(log.start)
            .with_aborted_transactions(None);
        if leads
            && call.version >= 11
            && world.rack_aware
            && let Some(replica) = preferred(world, partition, call.node, &self.rack, asked.offset)
        {
            data.preferred_read_replica = replica.into();
            return Ok((data, Read::default(), true));
        }
        if asked.last_fetched_epoch >= 0 {
            let (epoch, epoch_end) = log.epoch_end(asked.last_fetched_epoch);
            if epoch < 0 || epoch_end < 0 || asked.offset < log.start {
                return Err(1);
            }
            if epoch < asked.last_fetched_epoch || epoch_end < asked.offset {
                data.diverging_epoch = EpochEndOffset::default().with_epoch(epoch).with_end_offset(epoch_end);
                return Ok((data, Read::default(), true));
            }
        }
        if asked.offset < log.start || asked.offset > end {
            return Err(1);
        }
        let upper = if self.read_committed { stable } else { high_watermark }.min(end);
        let max_bytes = usize::try_from(asked.max_bytes).unwrap_or(0).min(left);
        let read = if asked.offset < upper {
            log.read(asked.offset, upper, max_bytes, whole_first)
        } else {
            Read::default()
        };
        if self.read_committed {
            // The list reaches to the end of the segment, beyond what the limits let through; at the last stable
            // offset nothing is read and nothing listed.
            let to = if asked.offset < upper { log.segment_end(asked.offset, end) } else { asked.offset };
            let touched = log.aborted(asked.offset, to);
            let touched = touched.map(|aborted| {
                AbortedTransaction::default()
                    .with_producer_id(aborted.producer_id.into())
                    .with_first_offset(aborted.first)
            });
            data.aborted_transactions = Some(touched.collect());
        }
        let waits = world.node(call.node).is_none_or(|node| node.versions.waits_above_stable);
        let urgent = read.older_segment || !waits && self.read_committed && asked.offset > stable;
        Ok((data, read, urgent))
    }

    fn answer(&mut self, world: &mut World, call: &Call, outcomes: Vec<Outcome>) -> FetchResponse {
        let mut response = FetchResponse::default();
        let mut kept = Vec::new();
        match &mut self.context {
            Context::Refused(_) => {}
            Context::Sessionless(_) => kept = outcomes,
            Context::Full { .. } => {
                let cached = outcomes.iter().map(remembered).collect();
                let node = world.nodes.get_mut(&call.node);
                let opened = node.and_then(|node| node.sessions.open(self.by_id, cached));
                response.session_id = opened.unwrap_or(0);
                kept = outcomes;
            }
            Context::Incremental { session, id, epoch } => {
                let mut session = lock(session);
                if session.epoch != next_epoch(*epoch) {
                    // Another request has used the session while this one waited.
                    return response.with_error_code(71);
                }
                response.session_id = *id;
                for outcome in outcomes {
                    let Some(at) = session
                        .partitions
                        .iter()
                        .position(|cached| cached.asked.same_partition(&outcome.asked))
                    else {
                        continue;
                    };
                    let now = remembered(&outcome);
                    let Some(cached) = session.partitions.get_mut(at) else { continue };
                    let changed = cached.high_watermark != now.high_watermark
                        || cached.last_stable_offset != now.last_stable_offset
                        || cached.log_start_offset != now.log_start_offset;
                    *cached = now;
                    if outcome.read.size > 0 {
                        // Served partitions queue behind the others.
                        let served = session.partitions.remove(at);
                        session.partitions.push(served);
                    }
                    if changed || outcome.read.size > 0 || outcome.urgent || outcome.unknown {
                        kept.push(outcome);
                    }
                }
            }
        }
        fill(&mut response, world, call, self.by_id, kept);
        response
    }
}

/// What a session keeps of an answer; an error is said again next time, so nothing of it is kept.
fn remembered(outcome: &Outcome) -> Cached {
    let mut cached = Cached::new(outcome.asked.clone());
    if outcome.data.error_code == 0 {
        cached.high_watermark = outcome.data.high_watermark;
        cached.last_stable_offset = outcome.data.last_stable_offset;
        cached.log_start_offset = outcome.data.log_start_offset;
    }
    cached
}

fn fill(response: &mut FetchResponse, world: &World, call: &Call, by_id: bool, outcomes: Vec<Outcome>) {
    for outcome in outcomes {
        let mut data = outcome.data;
        data.records = Some(outcome.read.concat());
        let hinted = data.current_leader.leader_id.0;
        if let Some(node) = world.node(hinted).filter(|_| call.version >= 16)
            && !response.node_endpoints.iter().any(|endpoint| endpoint.node_id.0 == hinted)
        {
            let endpoint = NodeEndpoint::default()
                .with_node_id(hinted.into())
                .with_host(StrBytes::from_string(node.host.clone()))
                .with_port(i32::from(node.port))
                .with_rack(node.rack.clone().map(StrBytes::from_string));
            response.node_endpoints.push(endpoint);
        }
        let name = outcome.asked.topic.unwrap_or_default();
        // Only neighbours are grouped: a topic may come more than once, as from a broker.
        let grouped = response.responses.last_mut().filter(|last| {
            if by_id { last.topic_id == outcome.asked.id } else { last.topic.as_str() == name }
        });
        if let Some(last) = grouped {
            last.partitions.push(data);
            continue;
        }
        let mut topic = FetchableTopicResponse::default().with_partitions(vec![data]);
        if by_id {
            topic.topic_id = outcome.asked.id;
        } else {
            topic.topic = StrBytes::from_string(name).into();
        }
        response.responses.push(topic);
    }
}

fn failed(partition: i32, code: i16) -> PartitionData {
    PartitionData::default()
        .with_partition_index(partition)
        .with_error_code(code)
        .with_high_watermark(-1)
        .with_aborted_transactions(None)
}

/// A broker's check of the leader epoch a request carries; −1 is not checked.
pub(super) fn check_epoch(partition: &Partition, asked: i32) -> Result<(), i16> {
    match asked {
        epoch if epoch < 0 || epoch == partition.leader_epoch => Ok(()),
        epoch if epoch < partition.leader_epoch => Err(74),
        _ => Err(75),
    }
}

/// The rack-aware selector: the most caught-up in-sync replica of the client's rack, unless that is the leader's
/// own rack.
fn preferred(world: &World, partition: &Partition, leader: i32, rack: &str, offset: i64) -> Option<i32> {
    let in_rack =
        |id: i32| world.node(id).is_some_and(|node| node.running && node.rack.as_deref() == Some(rack));
    if rack.is_empty() || in_rack(leader) || offset < partition.log.start {
        return None;
    }
    let end =
        |id: i32| partition.lags.get(&id).map_or(partition.log.end, |lag| lag.end.min(partition.log.end));
    let fit = partition.isr.iter().copied().filter(|id| in_rack(*id) && end(*id) >= offset);
    fit.max_by_key(|id| end(*id))
}
