//! Modelled brokers around an engine: logs that check sequences as brokers do, connections that answer in order
//! and break, leaders that move. Nothing happens by itself; the test says what is next.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use kafka_meta::client::{Partition, Snapshot, Topic};
use kafka_meta::{Error, ErrorCode, ErrorKind, TopicName};
use kafka_read::batch::{Limits, scan};

use super::super::{Answer, Engine, Next, Outstanding, Reply, Sent, Settings, Verdicts, pack};
use crate::config::ProducerConfig;
use crate::delivery::{Delivery, Placement, Written};
use crate::producer_id::Identity;
use crate::record::ProducerRecord;
use crate::transaction::Admit;

pub const TOPIC: &str = "t";

#[derive(Clone, Debug, Default)]
struct ProducerState {
    epoch: i16,
    recent: VecDeque<(i32, i32, i64)>,
}

/// A partition's log, the same on every replica.
#[derive(Debug, Default)]
pub struct Log {
    pub values: Vec<String>,
    producers: HashMap<i64, ProducerState>,
}

impl Log {
    /// What a leader does with a batch.
    pub fn append(&mut self, batch: &Bytes) -> Result<i64, i16> {
        let raw = scan(batch.clone()).next().unwrap().unwrap();
        raw.verify(true).unwrap();
        let header = &raw.header;
        let set = raw.open(&Limits::default(), i64::MIN).unwrap();
        let (first, count) = (header.base_sequence, header.record_count);
        let last = (i64::from(first) + i64::from(count) - 1) & 0x7fff_ffff;
        let last = i32::try_from(last).unwrap();
        if header.producer_id >= 0 {
            let fresh = ProducerState { epoch: header.producer_epoch, recent: VecDeque::new() };
            let known = self.producers.contains_key(&header.producer_id);
            let state = self.producers.entry(header.producer_id).or_insert(fresh);
            if header.producer_epoch < state.epoch {
                return Err(47);
            }
            if header.producer_epoch > state.epoch {
                if first != 0 {
                    return Err(45);
                }
                *state = ProducerState { epoch: header.producer_epoch, recent: VecDeque::new() };
            }
            if let Some((_, _, base)) = state.recent.iter().find(|(f, l, _)| (*f, *l) == (first, last)) {
                return Ok(*base);
            }
            if let Some((_, seen, _)) = state.recent.back() {
                if i64::from(first) != ((i64::from(*seen) + 1) & 0x7fff_ffff) {
                    return Err(45);
                }
            } else if known && first != 0 {
                return Err(45);
            }
            let base = i64::try_from(self.values.len()).unwrap();
            state.recent.push_back((first, last, base));
            while state.recent.len() > 5 {
                state.recent.pop_front();
            }
        }
        let base = i64::try_from(self.values.len()).unwrap();
        self.values
            .extend(set.iter().map(|record| String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
        Ok(base)
    }
}

/// A request on its way.
#[derive(Debug)]
pub struct Request {
    pub batches: Vec<(usize, u64, i32, Bytes)>,
    /// The broker's answer, once it has one.
    pub replies: Option<Vec<Reply>>,
}

/// A record's future.
#[derive(Clone, Debug)]
pub enum Future {
    Place(Arc<Placement>),
    Outcome(Arc<Delivery>, u32),
}

/// See the module's head.
pub struct Rig {
    pub engine: Engine,
    pub now: Instant,
    pub logs: Vec<Log>,
    pub leaders: Vec<Option<i32>>,
    epochs: Vec<i32>,
    pub connections: BTreeMap<i32, VecDeque<Request>>,
    /// What broke and was not told yet.
    pub lost: BTreeMap<i32, VecDeque<Request>>,
    ids: i64,
}

pub fn config() -> ProducerConfig {
    ProducerConfig::new().batch_size(400).linger_ms(5)
}

impl Rig {
    /// A topic that is known and a producer that has its id.
    pub fn new(config: &ProducerConfig, partitions: usize) -> Rig {
        Rig::with(Settings::new(config, false), partitions)
    }

    pub fn with(settings: Settings, partitions: usize) -> Rig {
        let mut rig = Rig {
            engine: Engine::new(settings, 7),
            now: Instant::now(),
            logs: (0..partitions).map(|_| Log::default()).collect(),
            leaders: (0..partitions).map(|at| i32::try_from(at % 3).ok()).collect(),
            epochs: vec![0; partitions],
            connections: BTreeMap::new(),
            lost: BTreeMap::new(),
            ids: 100,
        };
        // The engine learns of a topic by the first record for it.
        rig.engine.topics.entry(TopicName::new(TOPIC)).or_default();
        rig.show_picture();
        rig.give_identity();
        rig
    }

    pub fn give_identity(&mut self) {
        self.ids += 1;
        self.engine.handle_identity(Identity { producer_id: self.ids, epoch: 0 });
    }

    pub fn show_picture(&mut self) {
        let partitions =
            self.leaders.iter().zip(&self.epochs).enumerate().map(|(at, (leader, epoch))| Partition {
                index: i32::try_from(at).unwrap(),
                leader: *leader,
                leader_epoch: Some(*epoch),
                replicas: vec![0, 1, 2],
                isr: vec![0, 1, 2],
                offline: Vec::new(),
                error: ErrorCode::NONE,
            });
        let topic = Topic {
            name: TopicName::new(TOPIC),
            id: uuid::Uuid::from_u128(1),
            internal: false,
            error: ErrorCode::NONE,
            partitions: partitions.collect(),
        };
        let picture = Snapshot::default().with_topics([topic]);
        self.engine.handle_picture(self.now, &picture);
        self.follow();
    }

    pub fn move_leader(&mut self, partition: usize, node: Option<i32>) {
        self.leaders[partition] = node;
        self.epochs[partition] += 1;
    }

    pub fn advance(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.engine.handle_time(self.now);
        self.follow();
    }

    /// What the driver does after each step.
    pub fn follow(&mut self) {
        let effects = std::mem::take(&mut self.engine.effects);
        for finish in effects.finished {
            finish.tell();
        }
        for (placement, place) in effects.placed {
            placement.tell(place);
        }
        if self.engine.wants_identity() {
            self.give_identity();
        }
    }

    pub fn send(&mut self, record: ProducerRecord) -> Result<Future, Error> {
        let sent = self.engine.handle_send(self.now, record, 0);
        self.follow();
        Ok(match sent? {
            Sent::Placed(place) => Future::Outcome(place.delivery, place.index),
            Sent::Waiting(placement) => Future::Place(placement),
        })
    }

    pub fn send_to(&mut self, partition: i32, value: &str) -> Future {
        self.send(ProducerRecord::new(TOPIC).partition(partition).value(value.to_owned())).unwrap()
    }

    /// The node's sender takes what is due and puts it on its connection. How many batches went.
    pub fn ship(&mut self, node: i32) -> usize {
        let mut admit = |_, _| Admit::Go { max_produce_version: 13, transactional: false };
        let next = self.engine.poll_request(self.now, node, &mut admit);
        self.follow();
        let Next::Send(shipment) = next else { return 0 };
        let mut request = Request { batches: Vec::new(), replies: None };
        for parcel in shipment.parcels {
            let bytes = pack(parcel.content, parcel.stamp).unwrap();
            self.engine.handle_packed(parcel.part, parcel.ticket, bytes.clone(), parcel.stamp);
            request.batches.push((parcel.part, parcel.ticket, parcel.partition, bytes));
        }
        let count = request.batches.len();
        if self.lost.get(&node).is_some_and(|lost| !lost.is_empty()) {
            // Nothing overtakes what may have been lost.
            self.tell(node, &request, |_| Answer::Unsent(Error::new(ErrorKind::Disconnected, "produce")));
        } else {
            self.connections.entry(node).or_default().push_back(request);
        }
        count
    }

    fn tell(&mut self, node: i32, request: &Request, answer: impl Fn(usize) -> Answer) {
        let verdicts: Verdicts = request
            .batches
            .iter()
            .enumerate()
            .map(|(at, (part, ticket, _, _))| (*part, *ticket, answer(at)))
            .collect();
        self.engine.handle_answers(self.now, node, verdicts, Duration::ZERO);
        self.follow();
    }

    /// The broker works on the oldest request it has not worked on; `before` may refuse a batch, `after` may spoil
    /// the answer of one that was appended.
    pub fn work(
        &mut self,
        node: i32,
        mut before: impl FnMut(i32, &Bytes) -> Option<i16>,
        mut after: impl FnMut(i32) -> Option<i16>,
    ) -> bool {
        let Some(queue) = self.connections.get_mut(&node) else { return false };
        let Some(request) = queue.iter_mut().find(|request| request.replies.is_none()) else { return false };
        let mut replies = Vec::new();
        for (_, _, partition, bytes) in &request.batches {
            let at = usize::try_from(*partition).unwrap();
            let result = if self.leaders[at] != Some(node) {
                Err(6)
            } else if let Some(code) = before(*partition, bytes) {
                Err(code)
            } else {
                let result = self.logs[at].append(bytes);
                match after(*partition) {
                    Some(code) if result.is_ok() => Err(code),
                    _ => result,
                }
            };
            replies.push(match result {
                Ok(base_offset) => Reply { base_offset, append_time: -1, ..Reply::default() },
                Err(code) => Reply { error: ErrorCode::from(code), base_offset: -1, ..Reply::default() },
            });
        }
        request.replies = Some(replies);
        true
    }

    /// The oldest answer arrives.
    pub fn arrive(&mut self, node: i32) -> bool {
        let Some(queue) = self.connections.get_mut(&node) else { return false };
        if queue.front().is_none_or(|request| request.replies.is_none()) {
            return false;
        }
        let request = queue.pop_front().unwrap();
        let replies = request.replies.clone().unwrap();
        self.tell(node, &request, |at| Answer::Replied(replies[at].clone()));
        true
    }

    /// Sends, works and answers once.
    pub fn round(&mut self, node: i32) {
        self.ship(node);
        while self.work(node, |_, _| None, |_| None) {}
        while self.arrive(node) {}
    }

    /// The connection breaks: whatever has no answer is lost, worked on or not.
    pub fn break_off(&mut self, node: i32) {
        let broken = self.connections.remove(&node).unwrap_or_default();
        self.lost.entry(node).or_default().extend(broken);
    }

    /// The sender notices one loss.
    pub fn notice(&mut self, node: i32) -> bool {
        let Some(request) = self.lost.get_mut(&node).and_then(VecDeque::pop_front) else { return false };
        self.tell(node, &request, |_| Answer::Lost(Error::new(ErrorKind::Disconnected, "produce")));
        true
    }

    /// A record's outcome, if it has one.
    pub fn outcome(&self, future: &Future) -> Option<Result<Written, Error>> {
        match future {
            Future::Place(placement) => match placement.place().now_or_never()? {
                Ok(place) => place.delivery.outcome(place.index).now_or_never(),
                Err(error) => Some(Err(error)),
            },
            Future::Outcome(delivery, index) => delivery.outcome(*index).now_or_never(),
        }
    }

    pub fn offset(&self, future: &Future) -> i64 {
        self.outcome(future).expect("no outcome").expect("failed").offset
    }

    pub fn kind(&self, future: &Future) -> ErrorKind {
        self.outcome(future).expect("no outcome").expect_err("written").kind()
    }
}

/// Whether everything in a flush has its outcome.
pub fn is_settled(outstanding: &[Outstanding]) -> bool {
    crate::shared::settled(outstanding.to_vec()).now_or_never().is_some()
}
