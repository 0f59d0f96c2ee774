//! From what brokers tell about a log to the stretch of it that is read. Pure.

use kafka_meta::TopicName;

use super::spec::{Order, ScanFrom, ScanUntil};
use crate::lookup::Target;

/// What was found out about one partition.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Bounds {
    /// The first offset of the log.
    pub earliest: i64,
    /// The end of the log, as far as the reader may see.
    pub latest: i64,
    /// Where the time in `from` falls; `None` behind every record, or not asked.
    pub from: Option<i64>,
    /// Where the time in `until` falls.
    pub until: Option<i64>,
}

/// The times to be looked up: of `from`, of `until`.
pub(super) fn times(order: &Order) -> [Option<Target>; 2] {
    let from = match order.from {
        ScanFrom::Timestamp(millis) => Some(Target::Timestamp(millis)),
        _ => None,
    };
    let until = match order.until {
        Some(ScanUntil::Timestamp(millis)) => Some(Target::Timestamp(millis)),
        _ => None,
    };
    [from, until]
}

/// The same target for each partition.
pub(super) fn targets(topic: TopicName, partitions: &[i32], target: Target) -> Vec<(TopicName, i32, Target)> {
    partitions.iter().map(|partition| (topic, *partition, target)).collect()
}

impl Bounds {
    /// Start and end of what is read of `partition`; no end for a tail. Both lie within the log, and the end not
    /// before the start.
    pub(super) fn stretch(&self, order: &Order, partition: i32) -> (i64, Option<i64>) {
        let earliest = self.earliest.min(self.latest);
        let start = match &order.from {
            ScanFrom::Earliest => earliest,
            ScanFrom::Latest => self.latest,
            ScanFrom::Offset(offset) => *offset,
            ScanFrom::Offsets(offsets) => offsets.get(&partition).copied().unwrap_or(earliest),
            ScanFrom::Timestamp(_) => self.from.unwrap_or(self.latest),
        };
        let start = start.clamp(earliest, self.latest);
        let end = order.until.as_ref().map(|until| match until {
            ScanUntil::Latest => self.latest,
            ScanUntil::Offset(offset) => *offset,
            ScanUntil::Offsets(offsets) => offsets.get(&partition).copied().unwrap_or(self.latest),
            ScanUntil::Timestamp(_) => self.until.unwrap_or(self.latest),
        });
        (start, end.map(|end| end.min(self.latest).max(start)))
    }
}
