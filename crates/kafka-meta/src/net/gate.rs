//! When an address that failed may be tried again, pure.
//!
//! An address starts open. A failure closes its gate for a while, longer with each; one answered request opens
//! it for good. Connecting alone does not: a broker that accepts and then hangs up would be hammered.

use std::time::{Duration, Instant};

use crate::client::Backoff;

/// One address's gate.
#[derive(Debug)]
pub(crate) struct Gate {
    backoff: Backoff,
    /// For refused credentials and certificates: they rarely heal soon, and accounts are locked for insisting.
    refused: Backoff,
    until: Option<Instant>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Gate {
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            refused: Backoff::new(Duration::from_millis(250), Duration::from_secs(4)),
            until: None,
        }
    }

    /// The moment from which the address may be tried; `None` for now.
    pub(crate) fn opens(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// Whether nobody has tried for so long that what was learned is worth nothing.
    pub(crate) fn is_forgotten(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until + Duration::from_secs(60))
    }

    /// An attempt failed, or was refused. Several lanes that fail together count once.
    pub(crate) fn failed(&mut self, now: Instant, random: f64, refused: bool) {
        if self.opens(now).is_none() {
            let backoff = if refused { &mut self.refused } else { &mut self.backoff };
            self.until = Some(now + backoff.next(random));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Gate;

    #[test]
    fn attempts_thin_out_and_failures_at_the_same_time_count_once() {
        let mut now = Instant::now();
        let mut gate = Gate::new();
        assert_eq!(gate.opens(now), None);
        let mut waits = Vec::new();
        for _ in 0..8 {
            gate.failed(now, 0.5, false);
            let opens = gate.opens(now).unwrap();
            gate.failed(now, 0.5, false);
            assert_eq!(gate.opens(now), Some(opens));
            waits.push(opens - now);
            now = opens;
            assert_eq!(gate.opens(now), None);
        }
        assert_eq!(waits[..3], [50, 100, 200].map(Duration::from_millis));
        assert_eq!(waits[7], Duration::from_secs(1));
        assert!(!gate.is_forgotten(now));
        assert!(gate.is_forgotten(now + Duration::from_secs(60)));
    }
}
