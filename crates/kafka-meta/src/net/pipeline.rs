//! One connection's requests and answers, pure.
//!
//! What this is not: it owns no socket and reads no clock. The driver hands in answers and time, and takes out
//! frames to write and the moment to look again.
//!
//! States of a request: *waiting* (not a byte written), then *in flight* from the moment its frame is handed
//! out until its answer comes. A request whose caller has gone is dropped while waiting; once in flight it keeps
//! its place, because the broker answers in order and its answer has to be matched to be thrown away.
//!
//! Invariants:
//! - Answers match the oldest request in flight. Anything else means that the two sides no longer agree where
//!   they are, and the connection is of no more use.
//! - Only the oldest request in flight has a time limit, counted from when it became the oldest: the broker has
//!   not begun on the others. When it passes, the connection is stalled, whoever asked.
//! - While the pipeline is held only what was put in first is handed out: a login's own messages.
//! - A broker that throttles (KIP-219) answers first and mutes the socket afterwards: the answer is delivered
//!   at once and nothing new is handed out until the time is over.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};

use crate::wire::guard;

/// Java closes a connection that has been idle for nine minutes, just before a broker's ten.
pub(crate) const IDLE: Duration = Duration::from_secs(540);

/// How many requests may wait in front of one connection before callers wait for room.
pub(crate) const QUEUE: usize = 32;

/// Where an answer goes.
pub(crate) trait Reply {
    /// Whether nobody waits for it any more.
    fn is_abandoned(&self) -> bool;

    /// The request goes out, and no answer will come.
    fn sent(self);
}

/// A request ready to send, but for its correlation id.
#[derive(Debug)]
pub(crate) struct Submission<T> {
    /// The whole frame, length included, with room for the correlation id at bytes 8 to 12.
    pub(crate) frame: BytesMut,
    pub(crate) shape: AnswerShape,
    /// How long the broker may take once it can have begun.
    pub(crate) patience: Duration,
    pub(crate) reply: T,
}

/// What has to be known of an answer before it is decoded.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct AnswerShape {
    /// Its header ends with tagged fields.
    pub(crate) tagged_header: bool,
    /// Its body starts with a throttle time the client has to keep (KIP-219).
    pub(crate) throttles: bool,
    /// The broker does not answer (Produce without acknowledgement).
    pub(crate) absent: bool,
}

#[derive(Debug)]
struct InFlight<T> {
    correlation: i32,
    shape: AnswerShape,
    patience: Duration,
    reply: T,
}

/// Why a connection has to be given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// Too short for a correlation id, or its header does not end.
    Malformed,
    /// An answer nobody has asked for.
    Unasked,
    /// An answer to another request than the oldest.
    OutOfStep { expected: i32, found: i32 },
    /// The oldest request has waited for too long.
    Stalled,
    /// Nothing was asked for a long time.
    Idle,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Pipeline<T> {
    /// Goes before all that waits, held or not.
    first: VecDeque<Submission<T>>,
    held: bool,
    waiting: VecDeque<Submission<T>>,
    in_flight: VecDeque<InFlight<T>>,
    next_correlation: i32,
    oldest_since: Instant,
    throttled_until: Option<Instant>,
    active: Instant,
}

impl<T: Reply> Pipeline<T> {
    pub(crate) fn new(now: Instant) -> Self {
        Pipeline {
            first: VecDeque::new(),
            held: false,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            // 0 is the handshake's.
            next_correlation: 1,
            oldest_since: now,
            throttled_until: None,
            active: now,
        }
    }

    /// Takes a request on.
    pub(crate) fn submit(&mut self, now: Instant, submission: Submission<T>) {
        self.active = now;
        self.waiting.push_back(submission);
    }

    /// Takes a request on that goes before all others, even while they are held.
    pub(crate) fn submit_first(&mut self, now: Instant, submission: Submission<T>) {
        self.active = now;
        self.first.push_back(submission);
    }

    /// Keeps requests back, or lets them go on. Those in flight are not concerned.
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Whether a request waits or is in flight.
    pub(crate) fn is_in_use(&self) -> bool {
        !(self.first.is_empty() && self.waiting.is_empty() && self.in_flight.is_empty())
    }

    /// The next frame to write; the caller must write all of it.
    pub(crate) fn poll_frame(&mut self, now: Instant) -> Option<Bytes> {
        if self.throttled_until.is_some_and(|until| now < until) {
            return None;
        }
        self.throttled_until = None;
        loop {
            let next = match self.first.pop_front() {
                None if self.held => None,
                None => self.waiting.pop_front(),
                first => first,
            };
            let Submission { mut frame, shape, patience, reply } = next?;
            if reply.is_abandoned() {
                continue;
            }
            let correlation = self.next_correlation;
            self.next_correlation = correlation.checked_add(1).unwrap_or(1);
            if let Some(place) = frame.get_mut(8..12) {
                place.copy_from_slice(&correlation.to_be_bytes());
            }
            self.active = now;
            if shape.absent {
                reply.sent();
                return Some(frame.freeze());
            }
            if self.in_flight.is_empty() {
                self.oldest_since = now;
            }
            self.in_flight.push_back(InFlight { correlation, shape, patience, reply });
            return Some(frame.freeze());
        }
    }

    /// An answer has come, its length prefix removed: whose it is, and its body.
    pub(crate) fn handle_frame(&mut self, now: Instant, mut frame: Bytes) -> Result<(T, Bytes), Fault> {
        let found = frame.try_get_i32().map_err(|_| Fault::Malformed)?;
        let Some(oldest) = self.in_flight.front() else {
            return Err(Fault::Unasked);
        };
        if oldest.correlation != found {
            return Err(Fault::OutOfStep { expected: oldest.correlation, found });
        }
        let body = if oldest.shape.tagged_header {
            let header = guard::tagged_fields_len(&frame).ok_or(Fault::Malformed)?;
            frame.split_off(header)
        } else {
            frame
        };
        if oldest.shape.throttles
            && let Ok(millis) = body.as_ref().try_get_i32()
            && let Ok(millis) = u64::try_from(millis)
            && millis > 0
        {
            let until = now + Duration::from_millis(millis);
            self.throttled_until = self.throttled_until.max(Some(until));
        }
        self.oldest_since = now;
        self.active = now;
        self.in_flight.pop_front().map(|request| (request.reply, body)).ok_or(Fault::Unasked)
    }

    /// Whether throttling alone keeps a request from being sent.
    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.throttled_until.is_some_and(|until| now < until) && !self.waiting.is_empty()
    }

    /// Whether another request may be taken on.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < QUEUE
    }

    /// When to look again without any input. Never a moment that has passed unless [`Pipeline::handle_time`] or
    /// [`Pipeline::poll_frame`] has something to do about it.
    pub(crate) fn next_deadline(&self, now: Instant) -> Instant {
        let throttled = self
            .throttled_until
            .filter(|until| now < *until && !(self.waiting.is_empty() && self.first.is_empty()));
        let alone = match self.in_flight.front() {
            Some(oldest) => self.oldest_since + oldest.patience,
            None => self.active + IDLE,
        };
        throttled.map_or(alone, |until| until.min(alone))
    }

    /// Whether time alone has ended the connection.
    pub(crate) fn handle_time(&self, now: Instant) -> Result<(), Fault> {
        match self.in_flight.front() {
            Some(oldest) if now >= self.oldest_since + oldest.patience => Err(Fault::Stalled),
            Some(_) => Ok(()),
            None if self.waiting.is_empty() && now >= self.active + IDLE => Err(Fault::Idle),
            None => Ok(()),
        }
    }

    /// The connection is over: everybody still waiting.
    pub(crate) fn into_replies(self) -> impl Iterator<Item = T> {
        let sent = self.in_flight.into_iter().map(|request| request.reply);
        let unsent = self.first.into_iter().chain(self.waiting);
        sent.chain(unsent.map(|request| request.reply))
    }
}

#[cfg(test)]
mod tests;
