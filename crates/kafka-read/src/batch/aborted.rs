//! Which batches of an answer belong to aborted transactions (KIP-98), decided from headers alone.
//!
//! Works on one partition of one answer: the broker's list names every aborted transaction that overlaps the
//! returned data, and may name some that begin after it. A marker without an entry (its transaction began before
//! the data) and an entry without a marker (it ends after the data) are both normal. Invariant: a producer is in
//! `aborted` from its transaction's first offset to its abort marker.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use super::{BatchHeader, Control};

/// What to do with a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Its records are for the application.
    Deliver,
    /// Only its offsets count: the position moves past it.
    Skip,
}

/// The aborted transactions of one partition of one answer.
#[derive(Clone, Debug, Default)]
pub struct AbortedFilter {
    /// Transactions not reached yet, the lowest first offset on top.
    waiting: BinaryHeap<Reverse<(i64, i64)>>,
    /// Producers inside an aborted transaction.
    aborted: HashSet<i64>,
}

impl AbortedFilter {
    /// A filter over the answer's list of (producer id, first offset); an empty list lets all data pass.
    pub fn new(list: Vec<(i64, i64)>) -> Self {
        let waiting = list.into_iter().map(|(producer, first)| Reverse((first, producer))).collect();
        AbortedFilter { waiting, aborted: HashSet::new() }
    }

    /// Takes the batches in log order. `control` is asked for only where it matters: a marker of a producer that
    /// is inside an aborted transaction.
    pub fn decide(&mut self, header: &BatchHeader, control: impl FnOnce() -> Option<Control>) -> Verdict {
        if header.producer_id >= 0 {
            while let Some(Reverse((first, producer))) = self.waiting.peek().copied()
                && first <= header.last_offset()
            {
                self.aborted.insert(producer);
                self.waiting.pop();
            }
        }
        if header.is_control() {
            if self.aborted.contains(&header.producer_id) && control() == Some(Control::Abort) {
                self.aborted.remove(&header.producer_id);
            }
            return Verdict::Skip;
        }
        if header.is_transactional() && self.aborted.contains(&header.producer_id) {
            Verdict::Skip
        } else {
            Verdict::Deliver
        }
    }
}
