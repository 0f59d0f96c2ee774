//! Exponential back-off with jitter, pure: randomness comes in as an argument.

use std::time::Duration;

/// Delays that double from `base` to `max`, each within ±20 % of its nominal length.
///
/// The jitter keeps clients that lost the same broker from coming back in step.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Starts at `base`; `max` bounds the delays, jitter included.
    pub fn new(base: Duration, max: Duration) -> Self {
        Backoff { base, max, failures: 0 }
    }

    /// The next delay; `random` is in `0.0..1.0`, anything else is clamped.
    pub fn next(&mut self, random: f64) -> Duration {
        // 2^20 times any sensible base is past any sensible maximum.
        let factor = 1u32 << self.failures.min(20);
        self.failures = self.failures.saturating_add(1);
        let nominal = self.base.saturating_mul(factor).min(self.max);
        let random = if random.is_finite() { random.clamp(0.0, 1.0) } else { 0.5 };
        nominal.mul_f64(0.8 + 0.4 * random).min(self.max)
    }

    /// How many delays have been taken since the last reset.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;
    use std::time::Duration;

    #[test]
    fn delays_double_stay_within_jitter_and_never_pass_the_maximum() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for nominal in [100u64, 200, 400, 800, 1000, 1000] {
            let mut low = backoff.clone();
            let shortest = low.next(0.0);
            let longest = backoff.next(1.0);
            assert_eq!(shortest, Duration::from_millis(nominal * 8 / 10));
            assert_eq!(longest, Duration::from_millis((nominal * 12 / 10).min(1000)));
        }
        for _ in 0..100 {
            assert!(backoff.next(f64::NAN) <= Duration::from_secs(1));
        }
        backoff.reset();
        assert_eq!(backoff.next(0.5), Duration::from_millis(100));
    }
}
