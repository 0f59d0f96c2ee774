//! Where the sequences of one partition stand, and what an answer says about them. Pure.
//!
//! Brokers keep, per producer id and partition, an epoch and the last sequence, and take nothing but its successor: that is
//! what keeps order and refuses doubles. So a partition goes through these states:
//! - *good*: everything sent so far is acknowledged or outstanding (in flight, or to be sent again);
//! - *unresolved*: a batch with sequences was given up and nobody knows whether it was written. Outstanding ones
//!   go on under their sequences, for their answers tell: an acknowledged successor proves that it was (good
//!   again), `OUT_OF_ORDER` for the first of them that it was not (gap). New batches wait;
//! - *gap*: brokers wait for a sequence that will never come. Nothing is sent. When nothing is in flight any
//!   more the partition starts again at 0 under a newer epoch (KIP-360); what `OUT_OF_ORDER` refused was never
//!   written, so it may be sent under it.
//!
//! Positions count records since the epoch's beginning; a sequence is a position modulo 2³¹, which is how
//! sequences wrap to 0 after `i32::MAX`.

use crate::producer_id::Identity;

/// See the module's head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    Good,
    Unresolved,
    Gap,
}

/// The sequences of one partition.
#[derive(Debug)]
pub(crate) struct Sequences {
    /// Whose sequences they are.
    pub identity: Identity,
    next: u64,
    /// Batches that took positions.
    taken: u64,
    /// Everything before this position was written.
    written: u64,
    state: State,
}

/// The sequence at a position.
pub(crate) fn sequence(position: u64) -> i32 {
    i32::try_from(position & 0x7fff_ffff).unwrap_or(0)
}

impl Sequences {
    pub fn new() -> Sequences {
        Sequences { identity: Identity::NONE, next: 0, taken: 0, written: 0, state: State::Good }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Takes the positions of a new batch.
    pub fn take(&mut self, records: u32) -> u64 {
        let position = self.next;
        self.next += u64::from(records);
        self.taken += 1;
        position
    }

    /// How many batches took positions so far: the number of the one that took them last.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether a batch from `position` on must have been written, since one behind it was. Brokers remember five
    /// batches; of one they have forgotten they say `OUT_OF_ORDER`.
    pub fn is_written(&self, position: u64) -> bool {
        position < self.written
    }

    /// The batch that ends before `end` was acknowledged: everything before was written.
    pub fn acknowledged(&mut self, end: u64) {
        self.written = self.written.max(end);
        if self.state == State::Unresolved {
            self.state = State::Good;
        }
    }

    /// A batch with positions was given up.
    pub fn given_up(&mut self) {
        if self.state == State::Good {
            self.state = State::Unresolved;
        }
    }

    /// The broker's sequence is another than the one of the first outstanding batch.
    pub fn gap(&mut self) {
        self.state = State::Gap;
    }

    /// Starts again at 0. Nothing may be outstanding under the old identity.
    pub fn restart(&mut self, identity: Identity) {
        *self = Sequences { identity, next: 0, taken: 0, written: 0, state: State::Good };
    }
}

#[cfg(test)]
mod tests {
    use super::{Sequences, State, sequence};

    #[test]
    fn sequences_wrap_to_zero_after_the_largest() {
        assert_eq!(sequence(0x7fff_ffff), i32::MAX);
        assert_eq!(sequence(0x8000_0000), 0);
        assert_eq!(sequence(0x1_8000_0001), 1);
    }

    #[test]
    fn only_an_acknowledged_successor_or_an_end_resolves_what_was_given_up() {
        let mut sequences = Sequences::new();
        assert_eq!((sequences.take(3), sequences.take(2)), (0, 3));
        sequences.acknowledged(3);
        assert_eq!(sequences.state(), State::Good);
        assert!(sequences.is_written(2) && !sequences.is_written(3));
        sequences.given_up();
        assert_eq!(sequences.state(), State::Unresolved);
        sequences.acknowledged(5);
        assert_eq!(sequences.state(), State::Good);
        sequences.given_up();
        sequences.gap();
        sequences.acknowledged(5);
        assert_eq!(sequences.state(), State::Gap, "a gap does not close by itself");
        sequences.restart(sequences.identity);
        assert_eq!((sequences.state(), sequences.take(1)), (State::Good, 0));
    }
}
