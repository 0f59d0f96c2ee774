//! Whether the caller is alive: the promise is "at most the rebalance timeout between polls". Pure.
//!
//! A poll under way counts as alive however long it lasts, a poll that ended or was dropped starts the clock.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Liveness {
    limit: Duration,
    /// Polls under way; a leave counts as one.
    polling: u32,
    last: Option<Instant>,
}

impl Liveness {
    pub fn new(limit: Duration) -> Self {
        Liveness { limit, polling: 0, last: None }
    }

    pub fn poll_began(&mut self, now: Instant) {
        self.polling += 1;
        self.last = Some(now);
    }

    pub fn poll_ended(&mut self, now: Instant) {
        self.polling = self.polling.saturating_sub(1);
        self.last = Some(now);
    }

    /// A sign of life outside a poll.
    pub fn touch(&mut self, now: Instant) {
        self.last = Some(now);
    }

    /// When the caller will have been silent for too long; `None` while it polls, or before it ever has.
    pub fn expires_at(&self) -> Option<Instant> {
        (self.polling == 0).then(|| self.last.map(|last| last + self.limit)).flatten()
    }

    pub fn is_expired(&self, now: Instant) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }
}
