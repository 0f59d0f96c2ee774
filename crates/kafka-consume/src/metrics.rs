//! What a consumer counts, as plain numbers to be exported by whatever the application uses.

use std::time::Duration;

use crate::engine::Core;
use crate::member::orders::Counts;

/// Counters since the consumer was made, and where its partitions stand.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConsumerMetrics {
    /// Records handed out by polls and streams, less those put back (`records-consumed-total`).
    pub records: u64,
    /// Bytes of record batches accepted from brokers, as they came over the wire (`bytes-consumed-total`).
    pub bytes: u64,
    /// Fetch requests sent (`fetch-total`).
    pub fetches: u64,
    /// Fetch requests that failed as a whole: disconnected, timed out, not decodable.
    pub fetch_errors: u64,
    /// Time from request to answer, all fetches together; long polls included.
    pub fetch_time: Duration,
    /// Time from request to answer of the fetch answered last (`fetch-latency`).
    pub last_fetch_latency: Duration,
    /// Fetch sessions opened anew after a broker had dropped them.
    pub sessions_reopened: u64,
    /// Bytes held now: fetched or inflated and not yet handed out.
    pub buffered_bytes: usize,
    /// Damaged batches passed over.
    pub skipped_batches: u64,
    /// Damaged batches asked for once more.
    pub refetched_batches: u64,
    /// Requests for a partition that were repeated after an error.
    pub retries: u64,
    /// Positions set by the reset policy.
    pub resets: u64,
    /// Log truncations noticed.
    pub truncations: u64,
    /// Buffers of paused partitions dropped to make room.
    pub dropped_buffers: u64,
    /// Partitions that will not move without the caller.
    pub stopped_partitions: usize,
    /// Reconciliations that moved partitions (`rebalance-total`); 0 for a manual consumer, as the next four.
    pub rebalances: u64,
    /// Times the group membership was lost.
    pub memberships_lost: u64,
    /// Rebalance callbacks begun for the third time or more in a row: polls are dropped while they run.
    pub callback_restarts: u64,
    /// Auto-commits answered.
    pub auto_commits: u64,
    /// Auto-commits refused or failed, per partition where the coordinator told.
    pub auto_commit_failures: u64,
    /// Every assigned partition, in order of topic and partition.
    pub partitions: Vec<PartitionMetrics>,
}

/// Where one assigned partition stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionMetrics {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Offset of the next record to be handed out.
    pub position: Option<i64>,
    /// Offsets between the position and the end this reader can reach (`records-lag`).
    pub lag: Option<i64>,
    /// Offsets between the start of the log and the position (`records-lead`).
    pub lead: Option<i64>,
    /// End of the replicated log.
    pub high_watermark: Option<i64>,
    /// Up to where every transaction is decided.
    pub last_stable_offset: Option<i64>,
    /// First offset the log still has.
    pub log_start: Option<i64>,
    /// Bytes held for it.
    pub buffered_bytes: usize,
    /// Whether it is paused.
    pub paused: bool,
    /// The follower it is read from, if not the leader (`preferred-read-replica`).
    pub preferred_read_replica: Option<i32>,
}

impl ConsumerMetrics {
    pub(crate) fn of(core: &Core) -> ConsumerMetrics {
        let counts = &core.counts;
        let committed_only = core.settings.committed_only;
        let mut partitions = Vec::new();
        core.visit(|partition| {
            let position = partition.position().map(|pos| pos.offset);
            let beyond = |from: Option<i64>, to: Option<i64>| Some(to?.saturating_sub(from?).max(0));
            partitions.push(PartitionMetrics {
                topic: partition.topic.as_str().to_owned(),
                partition: partition.index,
                position,
                lag: beyond(position, partition.end(committed_only)),
                lead: beyond(partition.log_start, position),
                high_watermark: partition.high_watermark,
                last_stable_offset: partition.last_stable_offset,
                log_start: partition.log_start,
                buffered_bytes: partition.queue.bytes,
                paused: partition.paused,
                preferred_read_replica: partition.preferred.map(|preferred| preferred.node),
            });
        });
        partitions.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        ConsumerMetrics {
            records: counts.records,
            bytes: counts.bytes,
            fetches: counts.fetches,
            fetch_errors: counts.fetch_errors,
            fetch_time: Duration::from_nanos(counts.fetch_nanos),
            last_fetch_latency: Duration::from_nanos(counts.last_fetch_nanos),
            sessions_reopened: counts.sessions_reopened,
            buffered_bytes: core.buffered_bytes(),
            skipped_batches: counts.skipped_batches,
            refetched_batches: counts.refetched_batches,
            retries: counts.retries,
            resets: counts.resets,
            truncations: counts.truncations,
            dropped_buffers: counts.dropped_buffers,
            stopped_partitions: core.stopped().len(),
            partitions,
            ..ConsumerMetrics::default()
        }
    }

    pub(crate) fn with_member(mut self, counts: &Counts) -> ConsumerMetrics {
        self.rebalances = counts.rebalances;
        self.memberships_lost = counts.lost;
        self.callback_restarts = counts.callback_restarts;
        self.auto_commits = counts.commits;
        self.auto_commit_failures = counts.commit_failures;
        self
    }
}
