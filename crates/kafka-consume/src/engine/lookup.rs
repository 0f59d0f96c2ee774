//! Where a partition starts: questions to leaders (ListOffsets) and to the group's storage, and their answers.
//! Pure.
//!
//! Only an answer that says "none" lets a policy decide; an error, a timeout or a missing entry is asked
//! again. A late answer is dropped by its ticket, so a seek in between wins.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_meta::{CommittedOffset, Error, ErrorCode, ErrorKind, TopicName};
use kafka_read::lookup;
use tracing::{debug, info};

use super::core::{Core, Id};
use super::meta::target_of;
use crate::buffer::{Kind, Slot};
use crate::config::Position;
use crate::position::{Partition, Pos, State, Target, Why};

/// One partition's part of a question.
#[derive(Debug)]
pub(crate) struct Question {
    pub id: Id,
    pub ticket: u64,
    /// Unique: a question put again voids the one before.
    pub seq: u64,
    pub topic: TopicName,
    pub partition: i32,
}

/// A question to send.
#[derive(Debug)]
pub(crate) enum LookupOrder {
    /// ListOffsets to one leader; the asks are in the order of the questions.
    Offsets { node: i32, questions: Vec<Question>, asks: Vec<lookup::Ask> },
    /// The group's committed offsets.
    Committed { questions: Vec<Question> },
}

impl Core {
    /// What is due to be looked up. `wall` is the time since the epoch, for policies by age.
    pub fn poll_lookups(&mut self, now: Instant, wall: Duration) -> Vec<LookupOrder> {
        if self.is_closed() {
            return Vec::new();
        }
        let mut by_node: BTreeMap<i32, (Vec<Question>, Vec<lookup::Ask>)> = BTreeMap::new();
        let mut committed = Vec::new();
        let mut blind = Vec::new();
        let seq = self.next_seq();
        for (id, partition) in self.each_mut() {
            let State::Seeking { target, .. } = &partition.state else { continue };
            if partition.looking.is_some() || partition.held || !partition.retry.is_due(now) {
                continue;
            }
            let (ticket, topic) = (partition.ticket, partition.topic);
            let question = Question { id, ticket, seq, topic, partition: partition.index };
            let target = match target {
                Target::Committed(_) => {
                    partition.looking = Some(seq);
                    committed.push(question);
                    continue;
                }
                Target::Earliest => lookup::Target::Earliest,
                Target::Latest => lookup::Target::Latest,
                Target::Timestamp(millis) => lookup::Target::Timestamp(*millis),
                Target::Age(age) => lookup::Target::Timestamp(millis(wall.saturating_sub(*age))),
            };
            let Some(leader) = partition.leader else {
                blind.push(id);
                continue;
            };
            partition.looking = Some(seq);
            let (questions, asks) = by_node.entry(leader.node).or_default();
            asks.push(lookup::Ask {
                topic: partition.topic,
                partition: partition.index,
                leader_epoch: leader.epoch,
                target,
            });
            questions.push(question);
        }
        for id in blind {
            self.retry_later(now, id);
            self.effects.refresh = true;
        }
        let mut orders: Vec<LookupOrder> = by_node
            .into_iter()
            .map(|(node, (questions, asks))| LookupOrder::Offsets { node, questions, asks })
            .collect();
        if !committed.is_empty() {
            orders.push(LookupOrder::Committed { questions: committed });
        }
        orders
    }

    /// When the supervisor has to look again though nothing rings: a look-up is due, or what metadata said
    /// has lasted.
    pub fn next_supervision_at(&self) -> Option<Instant> {
        let lookup = self
            .each()
            .filter(|(_, partition)| {
                matches!(partition.state, State::Seeking { .. })
                    && partition.looking.is_none()
                    && !partition.held
            })
            .filter_map(|(_, partition)| partition.retry.at)
            .min();
        [lookup, self.next_review_at()].into_iter().flatten().min()
    }

    /// One partition's answer to ListOffsets.
    pub fn handle_found(
        &mut self,
        now: Instant,
        question: &Question,
        answer: Result<Option<lookup::Found>, ErrorCode>,
    ) {
        let Some(partition) = self.seeking(question) else { return };
        let State::Seeking { target, why } = &mut partition.state else { return };
        match answer {
            Ok(Some(found)) => {
                let why = *why;
                self.place(question.id, Pos::at(found.offset), why);
            }
            // No record is that young: the log end is where the next one will be.
            Ok(None) if matches!(target, Target::Timestamp(_) | Target::Age(_)) => {
                *target = Target::Latest;
                self.effects.supervisor = true;
            }
            Ok(None) => self.retry_later(now, question.id),
            Err(code) => self.handle_lookup_error(now, question, code),
        }
    }

    /// One partition's answer from the group's storage; `None` is the storage saying there is none.
    pub fn handle_committed(&mut self, now: Instant, question: &Question, answer: Option<&CommittedOffset>) {
        let Some(partition) = self.seeking(question) else { return };
        let State::Seeking { target: Target::Committed(otherwise), why } = &partition.state else { return };
        let (why, otherwise) = (*why, otherwise.as_deref().cloned());
        if let Some(stored) = answer {
            self.place(question.id, Pos { offset: stored.offset, epoch: stored.leader_epoch }, why);
            return;
        }
        info!(topic = %question.topic, partition = question.partition, start = ?otherwise,
            "the group has no committed offset");
        let Some(otherwise) = otherwise else {
            match target_of(&self.settings.reset) {
                Some(target) => self.look_for(question.id, target),
                None => {
                    let error = Error::new(ErrorKind::NoOffset, "committed offsets")
                        .with_partition(question.topic, question.partition);
                    self.halt(now, question.id, error);
                }
            }
            return;
        };
        match otherwise {
            Position::Offset(offset) => self.place(question.id, Pos::at(offset), why),
            Position::Earliest => self.look_for(question.id, Target::Earliest),
            Position::Latest => self.look_for(question.id, Target::Latest),
            Position::Timestamp(millis) => self.look_for(question.id, Target::Timestamp(millis)),
            Position::Committed(otherwise) => {
                self.look_for(question.id, Target::Committed(Some(otherwise)));
            }
        }
    }

    /// A whole question failed: nothing is known of any of its partitions.
    pub fn handle_lookup_failure(&mut self, now: Instant, questions: &[Question], error: &Error) {
        let lasting = matches!(
            error.kind(),
            ErrorKind::Authorization
                | ErrorKind::Authentication
                | ErrorKind::UnsupportedApi
                | ErrorKind::InvalidRequest
                | ErrorKind::Tls
        );
        for question in questions {
            if self.seeking(question).is_none() {
                continue;
            }
            self.retry_later(now, question.id);
            if lasting {
                let error = error.clone().with_partition(question.topic, question.partition);
                self.tell(now, question.id, error, true);
            }
        }
        self.counts.retries += 1;
        self.effects.refresh = true;
        debug!(%error, "a look-up failed and will be repeated");
    }

    fn handle_lookup_error(&mut self, now: Instant, question: &Question, code: ErrorCode) {
        self.counts.retries += 1;
        self.retry_later(now, question.id);
        match code {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::REPLICA_NOT_AVAILABLE
            | ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::OFFSET_NOT_AVAILABLE
            | ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::UNKNOWN_LEADER_EPOCH
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::UNKNOWN_SERVER_ERROR => self.effects.refresh = true,
            code => {
                let error =
                    Error::broker(code, "list offsets").with_partition(question.topic, question.partition);
                self.tell(now, question.id, error, true);
            }
        }
    }

    /// The partition the question is about, if it still waits for that answer.
    fn seeking(&mut self, question: &Question) -> Option<&mut Partition> {
        let partition = self.current(question.id, question.ticket)?;
        if partition.looking != Some(question.seq) {
            return None;
        }
        partition.looking = None;
        matches!(partition.state, State::Seeking { .. }).then_some(partition)
    }

    fn look_for(&mut self, id: Id, sought: Target) {
        if let Some(partition) = self.get_mut(id)
            && let State::Seeking { target, .. } = &mut partition.state
        {
            *target = sought;
            partition.retry.clear();
        }
        self.effects.supervisor = true;
    }

    pub(super) fn retry_later(&mut self, now: Instant, id: Id) {
        let random = self.random();
        if let Some(partition) = self.get_mut(id) {
            partition.retry.fail(now, random);
        }
        self.effects.supervisor = true;
    }

    /// The look-up is over. What is still buffered from before a reset is handed out first.
    fn place(&mut self, id: Id, pos: Pos, why: Why) {
        let seq = self.next_seq();
        let Some(partition) = self.get_mut(id) else { return };
        partition.state = State::Fetching;
        partition.fetch = Some(pos);
        partition.origin = Some(pos);
        partition.retry.clear();
        partition.fault = None;
        if partition.is_drained() {
            partition.consumed = Some(pos);
        } else {
            let slot = Slot { seq, answer: 0, bytes: 0, inflated: 0, end: pos.offset, kind: Kind::Jump(pos) };
            partition.queue.push_back(slot);
        }
        let (topic, index) = (partition.topic, partition.index);
        if why == Why::Reset {
            self.counts.resets += 1;
            info!(%topic, partition = index, offset = pos.offset, "reset the position by policy");
        }
        self.enter_ring(id);
        self.effects.fetchers = true;
        self.effects.supervisor = true;
        self.effects.settled = true;
    }

    /// The fetch position cannot be used: the policy looks for another, behind what is buffered.
    pub(super) fn reset(&mut self, now: Instant, id: Id, error: Error) {
        let target = target_of(&self.settings.reset);
        let Some(target) = target else {
            self.halt_behind_buffer(now, id, error);
            return;
        };
        let random = self.random();
        if let Some(partition) = self.get_mut(id) {
            partition.state = State::Seeking { target, why: Why::Reset };
            partition.asked = None;
            partition.retry.clear();
            // The log that refuses the position it has just named itself is not asked at full speed.
            let again = partition.strays.is_failing();
            partition.strays.fail(now, random);
            if again {
                partition.retry.at = partition.strays.at;
            }
        }
        self.effects.supervisor = true;
    }

    /// Stops the partition once what is buffered has been handed out.
    pub(super) fn halt_behind_buffer(&mut self, now: Instant, id: Id, error: Error) {
        let seq = self.next_seq();
        let Some(partition) = self.get_mut(id) else { return };
        if partition.queue.is_empty() {
            self.halt(now, id, error);
            return;
        }
        let end = partition.fetch.map_or(0, |pos| pos.offset);
        partition.state = State::Stopped;
        partition.asked = None;
        partition.queue.push_back(Slot {
            seq,
            answer: 0,
            bytes: 0,
            inflated: 0,
            end,
            kind: Kind::Halt(error),
        });
        self.enter_ring(id);
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
