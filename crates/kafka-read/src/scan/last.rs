//! Finds where the last so many records of a partition begin. Pure.
//!
//! Offsets tell little: markers, holes, aborted and filtered records take some without being handed out. So a
//! window before the end is read and counted, and when it holds too few, one twice as long before it, down to the
//! floor. What was counted is not kept, only where it lies.
//!
//! Invariant: all windows counted so far together hold `after` records and reach from `high` to the end.

use std::collections::VecDeque;

/// A first window shorter than this saves nothing: a batch is read whole.
const LEAST: i64 = 100;

#[derive(Debug)]
pub(super) struct Search {
    wanted: u64,
    floor: i64,
    low: i64,
    high: i64,
    /// Records in the windows behind this one.
    after: u64,
    /// First offset and number of the runs of records in this window that may be among the last ones.
    runs: VecDeque<(i64, u64)>,
    total: u64,
}

/// What a counted window says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Counted {
    /// Read from this offset, leaving out the first so many records.
    Begin { offset: i64, skip: u64 },
    /// Count the window that begins here.
    Further(i64),
}

impl Search {
    /// Looks for the last `wanted` records of `[floor, end)`.
    pub(super) fn new(wanted: u64, floor: i64, end: i64) -> Self {
        let step = i64::try_from(wanted).unwrap_or(i64::MAX).max(LEAST);
        let low = end.saturating_sub(step).max(floor);
        Search { wanted, floor, low, high: end, after: 0, runs: VecDeque::new(), total: 0 }
    }

    /// Where the window to be counted begins.
    pub(super) fn low(&self) -> i64 {
        self.low
    }

    /// Where it ends.
    pub(super) fn high(&self) -> i64 {
        self.high
    }

    /// Takes a run of records of the window, in log order.
    pub(super) fn take(&mut self, first: i64, count: u64) {
        self.runs.push_back((first, count));
        self.total += count;
        let missing = self.wanted.saturating_sub(self.after);
        while let Some((_, front)) = self.runs.front().copied()
            && self.total - front >= missing
        {
            self.total -= front;
            self.runs.pop_front();
        }
    }

    /// The window has been read to its end.
    pub(super) fn finish(&mut self) -> Counted {
        let missing = self.wanted.saturating_sub(self.after);
        if self.total >= missing {
            let offset = self.runs.front().map_or(self.high, |(first, _)| *first);
            return Counted::Begin { offset, skip: self.total - missing };
        }
        if self.low <= self.floor {
            return Counted::Begin { offset: self.floor, skip: 0 };
        }
        self.after += self.total;
        self.total = 0;
        self.runs.clear();
        let step = self.high.saturating_sub(self.low).saturating_mul(2);
        self.high = self.low;
        self.low = self.low.saturating_sub(step).max(self.floor);
        Counted::Further(self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, Search};

    /// Counts `records` the way a partition would, in runs of `run`; answers where reading begins and how many
    /// windows it took.
    fn begin(records: &[i64], run: usize, wanted: u64, floor: i64, end: i64) -> (Vec<i64>, usize) {
        let mut search = Search::new(wanted, floor, end);
        for windows in 1..100 {
            let window: Vec<i64> = records
                .iter()
                .copied()
                .filter(|offset| (search.low()..search.high()).contains(offset))
                .collect();
            for run in window.chunks(run) {
                search.take(run[0], run.len() as u64);
            }
            if let Counted::Begin { offset, skip } = search.finish() {
                let rest = records.iter().copied().filter(|at| *at >= offset && *at < end);
                return (rest.skip(usize::try_from(skip).unwrap()).collect(), windows);
            }
        }
        panic!("it does not end");
    }

    #[test]
    fn a_dense_log_takes_one_window() {
        let records: Vec<i64> = (0..10_000).collect();
        for run in [1, 7, 500] {
            let (found, windows) = begin(&records, run, 250, 0, 10_000);
            assert_eq!((found, windows), ((9_750..10_000).collect(), 1));
        }
    }

    #[test]
    fn holes_of_any_shape_are_looked_behind() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let end = random.i64(0..5_000);
            let floor = random.i64(0..=end);
            let kept = random.u32(1..60);
            let records: Vec<i64> = (floor..end).filter(|_| random.u32(0..kept) == 0).collect();
            let wanted = random.usize(0..300);
            let (found, _) = begin(&records, random.usize(1..20), wanted as u64, floor, end);
            assert_eq!(found, records[records.len().saturating_sub(wanted)..]);
        }
    }
}
