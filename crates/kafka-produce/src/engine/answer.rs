//! What became of what was sent. Pure.
//!
//! | what comes back | what it means |
//! |---|---|
//! | 0 | written |
//! | 46, with idempotence | written before, under an answer that was lost; where is not known |
//! | 45 for a batch whose successor was acknowledged | the same |
//! | retriable (3, 5, 6, 7, 19, 20, 56, 74, 75, 100, …), a lost answer | sent again under the same sequences |
//! | 10, 18 for more than one record | split in halves, which share its sequences; but not when an earlier attempt may have been written |
//! | 45 behind a batch that is outstanding | that one first, then this one again |
//! | 45 or 59 otherwise | never written; the partition begins anew under another epoch, and it goes again |
//! | 47 without transactions | somebody else's epoch: another producer id, and it goes again |
//! | 87 with the records it is about | those fail for their own reason, the others of the batch for theirs |
//! | anything else | the batch fails |
//!
//! In a transaction nothing begins anew: where the table says so the batch fails, and with it all that is queued for
//! its partition, for the transaction can only be aborted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_meta::{Error, ErrorCode, ErrorKind};

use super::partition::{Batch, Content, Flight};
use super::{Engine, Hint, split};
use crate::config::Acks;
use crate::delivery::Outcome;
use crate::producer_id::Identity;
use crate::sequence::State;

/// A partition's part of an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub error: ErrorCode,
    pub base_offset: i64,
    /// −1 unless the topic has log append time.
    pub append_time: i64,
    /// The broker's own words.
    pub message: Option<String>,
    /// Records that are wrong, by their place in the batch.
    pub record_errors: Vec<(i32, Option<String>)>,
    pub hint: Option<Hint>,
}

/// What became of one parcel.
#[derive(Debug)]
pub(crate) enum Answer {
    Replied(Reply),
    /// It may have been written.
    Lost(Error),
    /// It did not leave.
    Unsent(Error),
    /// It cannot be sent.
    Unpackable(Error),
}

/// What became of a shipment: by place in the engine and ticket.
pub(crate) type Verdicts = Vec<(usize, u64, Answer)>;

impl Engine {
    /// A shipment has come to its end. `mute`: the broker wants nothing for so long.
    pub fn handle_answers(&mut self, now: Instant, node: i32, verdicts: Verdicts, mute: Duration) {
        if let Some(sender) = self.nodes.get_mut(&node) {
            sender.in_flight = sender.in_flight.saturating_sub(1);
            if !mute.is_zero() {
                sender.muted_until = sender.muted_until.max(Some(now + mute));
            }
        }
        self.wake(Some(node));
        for (at, ticket, answer) in verdicts {
            let Some(mut flight) = self.parts.get_mut(at).and_then(|part| part.land(ticket)) else {
                continue;
            };
            flight.batch.doubtful |= match &answer {
                Answer::Lost(_) => true,
                Answer::Replied(reply) => is_half_written(reply.error),
                Answer::Unsent(_) | Answer::Unpackable(_) => false,
            };
            match answer {
                Answer::Replied(reply) => self.handle_reply(now, at, flight, reply),
                Answer::Lost(error) => self.again(now, at, flight, error),
                Answer::Unsent(error) if is_hopeless(&error) => self.fail(now, at, &flight, error),
                Answer::Unsent(error) => self.again(now, at, flight, error),
                Answer::Unpackable(error) => self.fail(now, at, &flight, error),
            }
            self.touch(at);
        }
        self.admit(now);
    }

    fn handle_reply(&mut self, now: Instant, at: usize, flight: Flight, reply: Reply) {
        let (idempotent, transactional) = (self.settings.idempotent, self.settings.transactional);
        let Some(part) = self.parts.get_mut(at) else { return };
        let behind = part.is_behind(flight.batch.key());
        let position = flight.batch.position;
        let proven = position.is_some_and(|position| part.sequences.is_written(position))
            && reply.error == ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
        let error = || {
            let error = Error::broker(reply.error, "produce").with_partition(part.topic, part.index);
            match &reply.message {
                Some(message) => error.with_detail(format!("{}: {message}", reply.error)),
                None => error,
            }
        };
        match reply.error {
            code if code.is_none()
                || proven
                || idempotent && code == ErrorCode::DUPLICATE_SEQUENCE_NUMBER =>
            {
                let known = code.is_none() && self.settings.acks != Acks::None;
                let base_offset = if known { reply.base_offset } else { -1 };
                let append_time = Some(reply.append_time).filter(|time| code.is_none() && *time >= 0);
                if let Some(position) = position {
                    part.sequences.acknowledged(position + u64::from(flight.batch.count));
                }
                part.vouched = Some((part.sequences.identity.producer_id, now));
                part.backoff.reset();
                part.not_before = None;
                if !flight.given_up {
                    self.finish(&flight.batch, Outcome::Done { base_offset, append_time });
                }
            }
            ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE
                if flight.batch.count > 1 && !flight.given_up && !flight.batch.doubtful =>
            {
                let error = error();
                self.split(now, at, flight, error);
            }
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER if idempotent && behind => {
                let error = error();
                self.again(now, at, flight, error);
            }
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode::UNKNOWN_PRODUCER_ID
                if idempotent && !transactional =>
            {
                let error = error();
                if part.sequences.state() == State::Good {
                    tracing::error!(%error, "the broker has lost acknowledged records, or this producer's state");
                }
                part.sequences.gap();
                self.again(now, at, flight, error);
            }
            ErrorCode::INVALID_PRODUCER_EPOCH if idempotent && !transactional => {
                let error = error();
                part.sequences.gap();
                if part.sequences.identity == self.identity {
                    self.identity = Identity::NONE;
                    self.effects.supervisor = true;
                }
                self.again(now, at, flight, error);
            }
            code if code.is_retriable() => {
                let error = error();
                if is_about_leaders(code) {
                    self.effects.refresh = true;
                }
                self.effects.hints.extend(reply.hint);
                self.again(now, at, flight, error);
            }
            ErrorCode::INVALID_RECORD | ErrorCode::INVALID_TIMESTAMP if !reply.record_errors.is_empty() => {
                let error = error();
                let outcome = each(&reply, &error);
                self.give_up(now, at, &flight, outcome);
            }
            _ => {
                let error = error();
                self.fail(now, at, &flight, error);
            }
        }
    }

    /// Sends a batch again, if there is time.
    fn again(&mut self, now: Instant, at: usize, flight: Flight, error: Error) {
        let Flight { mut batch, given_up, .. } = flight;
        let Some(part) = self.parts.get_mut(at) else { return };
        if given_up {
            // Whether it was written is not known, unless the partition has a gap already.
            part.sequences.given_up();
            return;
        }
        if now >= batch.created + self.settings.delivery_timeout {
            batch.last_error = Some(error);
            self.expire(now, at, &batch);
            return;
        }
        if let Some(reason) = self.dropping.clone() {
            let flight = Flight { ticket: 0, node: -1, batch, given_up };
            self.fail(now, at, &flight, reason);
            return;
        }
        let content_is_gone = matches!(batch.content, Content::Away);
        if content_is_gone {
            let flight = Flight { ticket: 0, node: -1, batch, given_up };
            self.fail(now, at, &flight, error);
            return;
        }
        let delay = part.backoff.next(self.random.f64());
        part.not_before = Some(now + delay);
        tracing::debug!(topic = %part.topic, partition = part.index, %error, attempts = batch.attempts, "a batch is sent again");
        batch.attempts = batch.attempts.saturating_add(1);
        batch.last_error = Some(error);
        part.put_back(batch);
        self.counts.retries += 1;
    }

    fn fail(&mut self, now: Instant, at: usize, flight: &Flight, error: Error) {
        let error = match self.parts.get(at) {
            Some(part) => error.with_partition(part.topic, part.index),
            None => error,
        };
        self.give_up(now, at, flight, Outcome::Failed(error));
    }

    /// A batch has an outcome, and its sequences are spent.
    fn give_up(&mut self, now: Instant, at: usize, flight: &Flight, outcome: Outcome) {
        let Some(part) = self.parts.get_mut(at) else { return };
        if flight.batch.position.is_some() {
            part.sequences.given_up();
        }
        let error = outcome.error().cloned();
        if !flight.given_up {
            if let Some(error) = &error {
                tracing::warn!(%error, records = flight.batch.count, "a batch failed");
            }
            self.finish(&flight.batch, outcome);
        }
        // Nothing of this partition could be committed any more, and its new batches would wait for ever.
        if self.settings.transactional
            && let Some(error) = error
        {
            self.fail_queue(now, at, &error);
        }
    }

    fn split(&mut self, now: Instant, at: usize, flight: Flight, error: Error) {
        if let Some(reason) = self.dropping.clone() {
            self.fail(now, at, &flight, reason);
            return;
        }
        let Flight { batch, ticket, node, given_up } = flight;
        let halves = match &batch.content {
            Content::Packed(bytes, _) => split::halves(bytes, self.settings.codec, self.settings.level),
            _ => None,
        };
        let Some((first, second)) = halves else {
            let flight = Flight { batch, ticket, node, given_up };
            self.fail(now, at, &flight, error);
            return;
        };
        let Some(part) = self.parts.get_mut(at) else { return };
        tracing::info!(%error, records = batch.count, "a batch is too large for the broker: split");
        self.counts.splits += 1;
        let count = u32::try_from(first.record_count()).unwrap_or(0).min(batch.count);
        let half = |content, from: u32, count: u32, charge: usize, len: usize| Batch {
            born: batch.born,
            first: batch.first + from,
            count,
            total: batch.total,
            delivery: Arc::clone(&batch.delivery),
            content: Content::Open(content),
            created: batch.created,
            charge,
            len,
            ordinal: batch.ordinal,
            position: batch.position.map(|position| position + u64::from(from)),
            attempts: batch.attempts.saturating_add(1),
            doubtful: false,
            closed: true,
            urgent: true,
            last_error: Some(error.clone()),
        };
        let charge = batch.charge / 2;
        let (first_len, second_len) = (first.len(), second.len());
        let second = half(second, count, batch.count - count, batch.charge - charge, second_len);
        let first = half(first, 0, count, charge, first_len);
        part.put_back(first);
        part.put_back(second);
    }
}

/// No later attempt can cure it.
fn is_hopeless(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Authentication
            | ErrorKind::Tls
            | ErrorKind::UnsupportedApi
            | ErrorKind::InvalidRequest
            | ErrorKind::Closed
    )
}

/// The leader has it, the replicas perhaps not.
fn is_half_written(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::REQUEST_TIMED_OUT | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND)
}

/// What a newer picture of the cluster can cure.
fn is_about_leaders(code: ErrorCode) -> bool {
    matches!(code.value(), 3 | 5 | 6 | 9 | 13 | 56 | 72 | 74 | 75 | 100 | 103)
}

/// Java's rule (KIP-467): a record the broker names fails for its own reason, the others because of it.
fn each(reply: &Reply, error: &Error) -> Outcome {
    let partition = (error.topic().map(kafka_meta::TopicName::new), error.partition());
    let named = |error: Error| match partition {
        (Some(topic), Some(index)) => error.with_partition(topic, index),
        _ => error,
    };
    let mut own = HashMap::new();
    for (place, message) in &reply.record_errors {
        let Ok(place) = u32::try_from(*place) else { continue };
        let words = message.as_ref().or(reply.message.as_ref());
        let detail = match words {
            Some(words) => format!("{}: {words}", reply.error),
            None => reply.error.to_string(),
        };
        own.insert(place, named(Error::broker(reply.error, "produce")).with_detail(detail));
    }
    let others = named(Error::broker(reply.error, "produce")).with_detail(format!(
        "{}: other records of its batch are invalid; this one may be sent again",
        reply.error
    ));
    Outcome::FailedEach { own: Arc::new(own), others }
}
