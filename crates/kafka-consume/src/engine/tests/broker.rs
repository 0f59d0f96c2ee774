//! Logs and brokers as a consumer meets them, as plain values: fetch sessions, byte limits, epochs, divergence,
//! transactions, followers. Not here: time, loss, delay; `rig.rs` brings them.

use std::collections::{BTreeMap, HashSet};

use bytes::{Bytes, BytesMut};
use kafka_meta::client::{Broker as Node, Partition, Snapshot, Topic};
use kafka_meta::wire::fetch::{
    AbortedTransaction, EpochEnd, FetchAnswer, FetchedPartition, LeaderHint, TopicRef,
};
use kafka_meta::{ErrorCode, TopicName};
use kafka_read::batch::write::{self, BatchOptions, BatchWriter};
use kafka_read::batch::{Codec, Control};
use kafka_read::lookup::{Ask, Found, Target};
use uuid::Uuid;

use crate::engine::FetchOrder;
use crate::session::Want;

pub(super) type Key = (TopicName, i32);

/// What is wrong with a stored batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Damage {
    /// A byte of a value was flipped.
    Crc,
    /// The checksum is right and the first record's length is not.
    Frame,
    /// The format number is none.
    Magic,
}

#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub base: i64,
    pub next: i64,
    pub bytes: Bytes,
    /// Offset and stamp of each record; none of a marker's.
    pub records: Vec<(i64, u64)>,
    pub producer: Option<i64>,
    pub damaged: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Log {
    pub id: Uuid,
    pub leader: i32,
    pub epoch: i32,
    pub replicas: Vec<i32>,
    pub start: i64,
    pub end: i64,
    pub batches: Vec<Stored>,
    /// Epoch and where it begins.
    pub epochs: Vec<(i32, i64)>,
    /// Producer, first offset, offset of the marker.
    pub aborted: Vec<(i64, i64, i64)>,
    /// First offset and marker of every decided transaction.
    decided: Vec<(i64, i64)>,
    /// Producer and first offset.
    pub open: Option<(i64, i64)>,
    /// Every record it ever held.
    pub history: HashSet<(i64, u64)>,
}

impl Log {
    pub fn new(id: Uuid, leader: i32, replicas: &[i32]) -> Self {
        Log {
            id,
            leader,
            epoch: 0,
            replicas: replicas.to_vec(),
            start: 0,
            end: 0,
            batches: Vec::new(),
            epochs: vec![(0, 0)],
            aborted: Vec::new(),
            decided: Vec::new(),
            open: None,
            history: HashSet::new(),
        }
    }

    fn options(&self, codec: Codec, producer: Option<i64>) -> BatchOptions {
        BatchOptions {
            base_offset: self.end,
            leader_epoch: self.epoch,
            codec,
            producer_id: producer.unwrap_or(-1),
            producer_epoch: if producer.is_some() { 0 } else { -1 },
            base_sequence: if producer.is_some() { 0 } else { -1 },
            transactional: producer.is_some(),
            ..BatchOptions::default()
        }
    }

    /// Appends one batch of records at these distances from its base, each `size` bytes and stamped.
    pub fn append(&mut self, stamp: &mut u64, deltas: &[i32], size: usize, codec: Codec, txn: Option<i64>) {
        let mut writer = BatchWriter::new(self.options(codec, txn));
        let mut records = Vec::new();
        for delta in deltas {
            *stamp += 1;
            let mut value = stamp.to_be_bytes().to_vec();
            value.resize(size.max(8), 7);
            writer.push_at(*delta, 1_000, None, Some(&value), &[]).unwrap();
            records.push((self.end + i64::from(*delta), *stamp));
        }
        self.history.extend(records.iter().copied());
        if let Some(producer) = txn
            && self.open.is_none()
        {
            self.open = Some((producer, self.end));
        }
        let next = self.end + i64::from(deltas.last().copied().unwrap_or(0)) + 1;
        self.store(writer.finish().unwrap(), next, records, txn);
    }

    fn store(&mut self, bytes: BytesMut, next: i64, records: Vec<(i64, u64)>, producer: Option<i64>) {
        let base = self.end;
        let bytes = bytes.freeze();
        self.batches.push(Stored { base, next, bytes, records, producer, damaged: false });
        self.end = next;
    }

    /// Ends the open transaction with a marker.
    pub fn decide(&mut self, commit: bool) {
        let Some((producer, first)) = self.open.take() else { return };
        self.decided.push((first, self.end));
        let options = self.options(Codec::None, Some(producer));
        let control = if commit { Control::Commit } else { Control::Abort };
        let marker = write::end_marker(options, control, 0, 1_000).unwrap();
        if !commit {
            self.aborted.push((producer, first, self.end));
        }
        self.store(marker, self.end + 1, Vec::new(), Some(producer));
    }

    /// Leaves a hole behind the end, as compaction does.
    pub fn hole(&mut self, len: i64) {
        let begun = self.epochs.last().map_or(0, |(_, start)| *start);
        if let Some(last) = self.batches.last_mut()
            && last.base >= begun
        {
            last.next += len;
            let mut bytes = BytesMut::from(&last.bytes[..]);
            let delta = i32::try_from(last.next - 1 - last.base).unwrap();
            bytes[23..27].copy_from_slice(&delta.to_be_bytes());
            write::seal(&mut bytes);
            last.bytes = bytes.freeze();
            self.end = last.next;
        }
    }

    pub fn damage(&mut self, at: usize, damage: Damage) {
        let Some(batch) = self.batches.get_mut(at) else { return };
        let mut bytes = BytesMut::from(&batch.bytes[..]);
        match damage {
            Damage::Crc => {
                let last = bytes.len() - 2;
                bytes[last] ^= 0xff;
            }
            Damage::Frame => {
                bytes[61] ^= 0x55;
                write::seal(&mut bytes);
            }
            Damage::Magic => bytes[16] = 9,
        }
        batch.bytes = bytes.freeze();
        batch.damaged = true;
    }

    /// An unclean election: everything at and above `to` is gone, another node leads.
    pub fn truncate(&mut self, to: i64, leader: i32) {
        // A transaction goes with its marker, so that none is left undecided.
        let cut = |to: i64| {
            self.decided.iter().filter(|(first, marker)| *first < to && *marker >= to).map(|one| one.0).min()
        };
        let mut to = to;
        while let Some(first) = cut(to) {
            to = first;
        }
        self.batches.retain(|batch| batch.next <= to);
        self.end = self.batches.last().map_or(self.start, |batch| batch.next);
        self.open = self.open.filter(|(_, first)| *first < self.end);
        let end = self.end;
        self.aborted.retain(|(_, _, marker)| *marker < end);
        self.decided.retain(|(_, marker)| *marker < end);
        self.epochs.retain(|(_, start)| *start < end);
        self.lead(leader);
    }

    /// A new leader, in the next epoch.
    pub fn lead(&mut self, leader: i32) {
        self.leader = leader;
        self.epoch += 1;
        self.epochs.push((self.epoch, self.end));
        if !self.replicas.contains(&leader) {
            self.replicas.push(leader);
        }
    }

    pub fn delete_before(&mut self, start: i64) {
        self.start = self.start.max(start.min(self.end));
        let start = self.start;
        self.batches.retain(|batch| batch.next > start);
    }

    /// The end for this reader.
    pub fn end_for(&self, committed_only: bool) -> i64 {
        let stable = self.open.map_or(self.end, |(_, first)| first);
        if committed_only { stable } else { self.end }
    }

    /// Whether a reader must get this batch's records.
    pub fn is_visible(&self, batch: &Stored, committed_only: bool) -> bool {
        let aborted = |producer: i64| {
            self.aborted
                .iter()
                .any(|(id, first, marker)| *id == producer && (*first..*marker).contains(&batch.base))
        };
        let hidden = committed_only && batch.producer.is_some_and(aborted);
        !batch.damaged && !hidden
    }

    /// The records a reader must get from `[from, to)`.
    pub fn visible(&self, from: i64, to: i64, committed_only: bool) -> Vec<(i64, u64)> {
        let from = from.max(self.start);
        self.batches
            .iter()
            .filter(|batch| batch.next > from && batch.base < to && self.is_visible(batch, committed_only))
            .flat_map(|batch| batch.records.iter().copied())
            .filter(|(offset, _)| (from..to).contains(offset))
            .collect()
    }

    fn epoch_end(&self, asked: i32) -> Option<EpochEnd> {
        let Some(at) = self.epochs.iter().rposition(|(epoch, _)| *epoch <= asked) else {
            // An epoch before all that are known ended where they begin.
            return self.epochs.first().map(|(_, start)| EpochEnd { epoch: asked, end_offset: *start });
        };
        let end_offset = self.epochs.get(at + 1).map_or(self.end, |(_, start)| *start);
        Some(EpochEnd { epoch: self.epochs[at].0, end_offset })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    epoch: i32,
    parts: Vec<(Want, Option<i64>)>,
}

/// A whole cluster at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    pub logs: BTreeMap<Key, Log>,
    pub(super) sessions: BTreeMap<(i32, i32), Session>,
    pub(super) last_session: i32,
    /// No session is given to anybody.
    pub sessionless: bool,
    /// A leader sends readers with a rack to this node.
    pub replica: Option<i32>,
    /// Codes to answer for a partition, whatever it asks.
    pub refusals: BTreeMap<Key, ErrorCode>,
    /// Nodes known to metadata.
    pub nodes: Vec<i32>,
    /// The offset last refused as out of range.
    pub refused: BTreeMap<Key, i64>,
}

pub(super) fn blank(topic: TopicRef, partition: i32) -> FetchedPartition {
    FetchedPartition {
        topic,
        partition,
        error: ErrorCode::NONE,
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
        aborted: Vec::new(),
        diverging: None,
        current_leader: None,
        preferred_read_replica: None,
        records: Bytes::new(),
    }
}

pub(super) fn answer(session_id: i32, partitions: Vec<FetchedPartition>) -> FetchAnswer {
    let throttle = std::time::Duration::ZERO;
    FetchAnswer { throttle, error: ErrorCode::NONE, session_id, partitions, endpoints: Vec::new() }
}

impl Cluster {
    pub fn snapshot(&self, generation: u64) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.generation = generation;
        for id in &self.nodes {
            let broker = Node { id: *id, host: "h".to_owned(), port: 9, rack: None };
            snapshot.brokers.insert(*id, broker);
        }
        let mut topics: BTreeMap<TopicName, Topic> = BTreeMap::new();
        for ((name, index), log) in &self.logs {
            let topic = topics.entry(*name).or_insert_with(|| Topic {
                name: *name,
                id: log.id,
                internal: false,
                error: ErrorCode::NONE,
                partitions: Vec::new(),
            });
            topic.partitions.push(Partition {
                index: *index,
                leader: Some(log.leader),
                leader_epoch: Some(log.epoch),
                replicas: log.replicas.clone(),
                isr: log.replicas.clone(),
                offline: Vec::new(),
                error: ErrorCode::NONE,
            });
        }
        snapshot.with_topics(topics.into_values())
    }

    pub fn expire_sessions(&mut self) {
        self.sessions.clear();
    }

    /// Carries a fetch out. `None`: nothing to tell yet, a broker would hold it back.
    pub fn fetch(&mut self, order: &FetchOrder, hold: bool) -> Option<FetchAnswer> {
        let (node, plan) = (order.node, &order.plan);
        let refuse = |code| Some(FetchAnswer { error: code, ..answer(0, Vec::new()) });
        if plan.epoch == -1 {
            self.sessions.remove(&(node, plan.session_id));
            return Some(answer(0, Vec::new()));
        }
        let full = plan.epoch == 0;
        let mut session = if full {
            Session { epoch: 0, parts: plan.send.iter().map(|want| (want.clone(), None)).collect() }
        } else {
            match self.sessions.get(&(node, plan.session_id)) {
                None => return refuse(ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
                Some(session) if session.epoch != plan.epoch => {
                    return refuse(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
                }
                Some(session) => session.clone(),
            }
        };
        if !full {
            for want in &plan.send {
                let same = |held: &(Want, Option<i64>)| {
                    held.0.topic_id == want.topic_id && held.0.partition == want.partition
                };
                match session.parts.iter_mut().find(|held| same(held)) {
                    Some(held) => held.0 = want.clone(),
                    None => session.parts.push((want.clone(), None)),
                }
            }
            for gone in &plan.forget {
                session
                    .parts
                    .retain(|(held, _)| held.topic_id != gone.topic_id || held.partition != gone.partition);
            }
        }
        let mut left = usize::try_from(order.settings.max_bytes).unwrap();
        let mut given = false;
        let mut parts = Vec::new();
        let mut told = Vec::new();
        for (want, known) in &session.parts {
            let (part, taken) = self.read(order, want, left, !given);
            given |= !part.records.is_empty();
            left = left.saturating_sub(taken);
            let news = !part.error.is_none()
                || !part.records.is_empty()
                || part.diverging.is_some()
                || part.preferred_read_replica.is_some();
            told.push(part.high_watermark);
            if full || news || *known != Some(part.high_watermark) {
                parts.push((news, part));
            }
        }
        if hold && !order.parting && !parts.iter().any(|(news, _)| *news) {
            return None;
        }
        for (held, told) in session.parts.iter_mut().zip(told) {
            held.1 = Some(told);
        }
        let mut id = plan.session_id;
        if full {
            self.sessions.remove(&(node, plan.session_id));
            if self.sessionless {
                return Some(answer(0, parts.into_iter().map(|(_, part)| part).collect()));
            }
            self.last_session += 1;
            id = self.last_session;
        }
        session.epoch = if full { 1 } else { plan.epoch + 1 };
        self.sessions.insert((node, id), session);
        Some(answer(id, parts.into_iter().map(|(_, part)| part).collect()))
    }

    fn read(
        &mut self,
        order: &FetchOrder,
        want: &Want,
        left: usize,
        first: bool,
    ) -> (FetchedPartition, usize) {
        let key = (want.topic, want.partition);
        let mut part = blank(TopicRef::Id(want.topic_id), want.partition);
        let committed_only = order.settings.committed_only;
        let Some(log) = self.logs.get(&key) else {
            part.error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            return (part, 0);
        };
        let leads = log.leader == order.node;
        part.error = match want.leader_epoch {
            _ if self.refusals.contains_key(&key) => self.refusals[&key],
            _ if log.id != want.topic_id => ErrorCode::INCONSISTENT_TOPIC_ID,
            _ if !leads && !log.replicas.contains(&order.node) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            Some(epoch) if epoch < log.epoch => ErrorCode::FENCED_LEADER_EPOCH,
            Some(epoch) if epoch > log.epoch => ErrorCode::UNKNOWN_LEADER_EPOCH,
            _ => ErrorCode::NONE,
        };
        if !part.error.is_none() {
            if !self.refusals.contains_key(&key) && part.error == ErrorCode::FENCED_LEADER_EPOCH {
                part.current_leader = Some(LeaderHint { node: log.leader, epoch: log.epoch });
            }
            return (part, 0);
        }
        if leads && !order.settings.rack.is_empty() && self.replica.is_some_and(|node| node != order.node) {
            part.preferred_read_replica = self.replica.filter(|node| log.replicas.contains(node));
        }
        part.high_watermark = log.end;
        part.last_stable_offset = log.end_for(true);
        part.log_start_offset = log.start;
        if part.preferred_read_replica.is_some() {
            return (part, 0);
        }
        if let Some(end) = want.last_fetched_epoch.and_then(|epoch| log.epoch_end(epoch))
            && (end.epoch < want.last_fetched_epoch.unwrap() || end.end_offset < want.offset)
        {
            part.diverging = Some(end);
            return (part, 0);
        }
        if want.offset < log.start || want.offset > log.end {
            self.refused.insert(key, want.offset);
            let topic = part.topic.clone();
            part = blank(topic, want.partition);
            part.error = ErrorCode::OFFSET_OUT_OF_RANGE;
            return (part, 0);
        }
        let most = usize::try_from(want.max_bytes).unwrap().min(left);
        let end = log.end_for(committed_only);
        let mut records = BytesMut::new();
        for batch in log.batches.iter().filter(|batch| batch.next > want.offset && batch.base < end) {
            let room = most.saturating_sub(records.len());
            if records.is_empty() && first {
                records.extend_from_slice(&batch.bytes);
                continue;
            }
            records.extend_from_slice(&batch.bytes[..room.min(batch.bytes.len())]);
            if room <= batch.bytes.len() {
                break;
            }
        }
        if committed_only {
            let aborted = log.aborted.iter().filter(|(_, _, marker)| *marker >= want.offset);
            part.aborted = aborted
                .map(|(producer_id, first_offset, _)| AbortedTransaction {
                    producer_id: *producer_id,
                    first_offset: *first_offset,
                })
                .collect();
        }
        let taken = records.len();
        part.records = records.freeze();
        (part, taken)
    }

    /// Answers one question of ListOffsets.
    pub fn find(&self, node: i32, ask: &Ask, committed_only: bool) -> Result<Option<Found>, ErrorCode> {
        let Some(log) = self.logs.get(&(ask.topic, ask.partition)) else {
            return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        };
        if log.leader != node {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        let offset = match ask.target {
            Target::Earliest => log.start,
            Target::Latest => log.end_for(committed_only),
            Target::Timestamp(_) | Target::MaxTimestamp => return Ok(None),
        };
        Ok(Some(Found { offset, timestamp: -1, leader_epoch: Some(log.epoch) }))
    }
}
