//! What time alone does: batches and waiting records that have waited for too long. Pure.

use std::time::Instant;

use kafka_meta::{Error, ErrorCode, ErrorKind};

use super::partition::Batch;
use super::{Engine, Waiting};
use crate::delivery::Outcome;

impl Engine {
    /// Gives up what is too late.
    pub fn handle_time(&mut self, now: Instant) {
        self.timer = None;
        let timeout = self.settings.delivery_timeout;
        for at in 0..self.parts.len() {
            let Some(part) = self.parts.get_mut(at) else { break };
            let late = |batch: &Batch| now >= batch.created + timeout;
            let mut expired = Vec::new();
            let queued = part.queue.iter().take_while(|batch| late(batch)).count();
            let mut gone: Vec<_> = part.queue.drain(..queued).collect();
            for flight in part.flights.iter_mut().filter(|flight| !flight.given_up && late(&flight.batch)) {
                // It stays: its answer may still tell whether it was written.
                flight.given_up = true;
                expired.push(husk(&mut flight.batch));
            }
            expired.append(&mut gone);
            let any = !expired.is_empty();
            for batch in &expired {
                self.expire(now, at, batch);
            }
            if any {
                self.touch(at);
            }
        }
        self.admit(now);
        while let Some(first) = self.line.front()
            && now >= first.until
            && let Some(first) = self.line.pop_front()
        {
            let error = Error::new(ErrorKind::Timeout, "send")
                .with_detail("no room in buffer_memory within max_block_ms");
            let error = first.blame(error);
            self.effects.placed.push((first.placement, Err(error)));
        }
        let mut late = Vec::new();
        for topic in self.topics.values_mut() {
            let expired = topic.waiting.iter().take_while(|waiting| now >= waiting.until).count();
            late.extend(topic.waiting.drain(..expired).map(|waiting| (waiting, topic.known, topic.error)));
        }
        for (waiting, known, code) in late {
            self.refuse(waiting, known, code);
        }
        self.admit(now);
    }

    /// When [`Engine::handle_time`] has something to do next.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let timeout = self.settings.delivery_timeout;
        let batches = self.parts.iter().flat_map(|part| {
            let flying = part.flights.iter().filter(|flight| !flight.given_up).map(|flight| &flight.batch);
            flying.take(1).chain(part.queue.front()).map(|batch| batch.created + timeout)
        });
        let topics = self.topics.values().filter_map(|topic| topic.waiting.front());
        let waiting = self.line.front().into_iter().chain(topics).map(|waiting| waiting.until);
        self.timer = batches.chain(waiting).min();
        self.timer
    }

    /// Something has to be given up at `at`: the supervisor is told unless it looks before that anyway.
    pub(super) fn arm(&mut self, at: Instant) {
        if self.timer.is_none_or(|timer| at < timer) {
            self.timer = Some(at);
            self.effects.supervisor = true;
        }
    }

    pub(super) fn expire(&mut self, now: Instant, at: usize, batch: &Batch) {
        let Some(part) = self.parts.get_mut(at) else { return };
        let flying = part.flights.iter().any(|flight| flight.batch.key() == batch.key());
        if batch.position.is_some() && !flying {
            part.sequences.given_up();
        }
        let mut error = Error::new(ErrorKind::Timeout, "produce").with_partition(part.topic, part.index);
        error = match (&batch.last_error, part.leader) {
            (Some(last), _) => error.with_detail("delivery_timeout_ms has passed").with_source(last.clone()),
            (None, None) => {
                error.with_detail("delivery_timeout_ms has passed, and the partition has no leader")
            }
            (None, Some(_)) => error.with_detail("delivery_timeout_ms has passed"),
        };
        tracing::warn!(%error, records = batch.count, attempts = batch.attempts, "a batch failed");
        self.finish(batch, Outcome::Failed(error.clone()));
        // New batches of a transaction would wait behind it for ever.
        if self.settings.transactional {
            self.fail_queue(now, at, &error);
        }
    }

    pub(super) fn refuse(&mut self, waiting: Waiting, known: bool, code: ErrorCode) {
        self.used = self.used.saturating_sub(waiting.charge);
        let error = match (known, waiting.record.partition) {
            (true, Some(_)) => {
                Error::new(ErrorKind::UnknownTopic, "send").with_detail("the topic has no such partition")
            }
            _ if code.is_none() => Error::new(ErrorKind::Timeout, "send")
                .with_detail("nothing was learnt about the topic within max_block_ms"),
            _ => Error::broker(code, "send"),
        };
        let error = waiting.blame(error);
        self.effects.placed.push((waiting.placement, Err(error)));
    }
}

/// What an expired flight's outcome is told by; the flight keeps what its answer is judged by.
fn husk(batch: &mut Batch) -> Batch {
    let charge = std::mem::take(&mut batch.charge);
    Batch {
        born: batch.born,
        first: batch.first,
        count: batch.count,
        total: batch.total,
        delivery: std::sync::Arc::clone(&batch.delivery),
        content: super::Content::Away,
        created: batch.created,
        charge,
        len: batch.len,
        position: batch.position,
        ordinal: batch.ordinal,
        attempts: batch.attempts,
        doubtful: batch.doubtful,
        closed: true,
        urgent: true,
        last_error: batch.last_error.clone(),
    }
}
