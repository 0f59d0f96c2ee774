//! The settings of a consumer, and the two choices made per partition: where to start and where to go on
//! when the position is outside the log.
//!
//! Defaults equal the Java consumer's where Java has the setting; each departure gives its reason at the field.

mod properties;

use std::time::Duration;

use kafka_meta::{Error, ErrorKind, Result};
use kafka_read::Visibility;

/// Where a partition starts.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Position {
    /// The first record the log still has.
    Earliest,
    /// The end of the log: the last stable offset under [`Visibility::CommittedOnly`], else the high watermark.
    Latest,
    /// This offset; outside the log, `auto_offset_reset` decides.
    Offset(i64),
    /// The first record at or after this time, in milliseconds since the epoch; a time younger than every
    /// record leads to the log end.
    Timestamp(i64),
    /// The group's committed offset, else the position inside. Needs a `group_id`.
    Committed(Box<Position>),
}

/// Where to go on when there is no position, or when it lies outside the log (`auto.offset.reset`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum OffsetReset {
    /// The first record the log still has.
    Earliest,
    /// The end of the log; records written before are not read.
    Latest,
    /// Nowhere: the partition stops with an error that names it, until a seek.
    None,
    /// The first record no older than this (KIP-1106); the log end when no record is that young.
    ByDuration(Duration),
}

/// Which protocol a group member speaks (`group.protocol`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum GroupProtocol {
    /// KIP-848 where the coordinator serves it, else the classic protocol.
    #[default]
    Auto,
    /// KIP-848, and nothing else.
    Consumer,
    /// JoinGroup and SyncGroup, and nothing else.
    Classic,
}

/// How a consumer reads; a plain struct, so that `..ConsumerConfig::new()` works.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// The group whose offset storage is used (`group.id`). Default: none; `commit`, `committed` and
    /// `Position::Committed` then answer `InvalidRequest`.
    pub group_id: Option<String>,
    /// What of a transaction's records is read (`isolation.level`). Default: [`Visibility::CommittedOnly`],
    /// unlike Java: a consumer is usually a pipeline stage that must not see what a transaction abandoned.
    pub visibility: Visibility,
    /// How long `poll` waits for a record, in milliseconds, and the most a broker holds a fetch back
    /// (`fetch.max.wait.ms`; never more than 500 on the wire, so that a seek or a pause takes effect soon).
    /// 0 makes `poll` return at once; the brokers then wait 500, since fetches run in the background.
    /// Default: 500.
    pub max_wait_ms: u32,
    /// How many bytes a broker waits for before it answers a fetch early (`fetch.min.bytes`). Default: 1.
    /// 0 is sent as 1: fetches run in the background, and an answer that never waits would make them spin.
    pub min_bytes: i32,
    /// The most bytes of one fetch answer, first batch excepted (`fetch.max.bytes`). Default: 8 MiB, unlike
    /// Java's 50 MiB: an answer stays in the processor's cache, and one broker cannot take the whole buffer.
    pub max_bytes: i32,
    /// The most bytes of one partition in a fetch answer, first batch excepted
    /// (`max.partition.fetch.bytes`). Default: 1 MiB.
    pub partition_max_bytes: i32,
    /// The most records one `poll` returns (`max.poll.records`); the rest stays buffered. Default: 500.
    pub max_poll_records: usize,
    /// Bytes that may be buffered, in flight and inflated ahead, all partitions together. Default: 64 MiB
    /// (librdkafka's `queued.max.messages.kbytes`; Java has no such bound). One answer may exceed it, alone.
    pub fetch_buffer_bytes: usize,
    /// Whether a group member commits by itself (`enable.auto.commit`); its `auto_commit` has the last word. A
    /// manual consumer never does. Default: true.
    pub auto_commit: bool,
    /// How often a group member commits by itself, in milliseconds (`auto.commit.interval.ms`); a manual
    /// consumer never does. Default: 5,000.
    pub auto_commit_interval_ms: u32,
    /// Where to go on without a position (`auto.offset.reset`). Default: [`OffsetReset::Earliest`], unlike
    /// Java's `latest`, which silently skips what was written before the first start.
    pub auto_offset_reset: OffsetReset,
    /// Whether each batch's checksum is verified (`check.crcs`). Default: true.
    pub check_crcs: bool,
    /// The most bytes one batch may inflate to; a larger one stops its partition with an error naming this
    /// setting. Default: 128 MiB. Java has no limit: a batch of a few kilobytes can exhaust its heap.
    pub max_batch_bytes: usize,
    /// The bound of every call that asks the cluster, in milliseconds (`default.api.timeout.ms`).
    /// Default: 60,000.
    pub api_timeout_ms: u32,
    /// This client's rack (`client.rack`): fetches go to a replica in it where the brokers' selector
    /// allows (KIP-392). Default: the cluster's own, if set.
    pub rack: Option<String>,
    /// The longest a group member may take between polls, and to finish a rebalance, in milliseconds
    /// (`max.poll.interval.ms`). Default: 300,000.
    pub rebalance_timeout_ms: i32,
    /// How long a classic member may be silent before the group gives its partitions away, in milliseconds
    /// (`session.timeout.ms`). Classic groups only. Default: 45,000.
    pub session_timeout_ms: i32,
    /// How often a classic member beats, in milliseconds (`heartbeat.interval.ms`). Classic groups only.
    /// Default: 3,000.
    pub heartbeat_interval_ms: i32,
    /// Which protocol a negotiated group member speaks (`group.protocol`). Default: [`GroupProtocol::Auto`].
    pub group_protocol: GroupProtocol,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        ConsumerConfig {
            group_id: None,
            visibility: Visibility::CommittedOnly,
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 8 << 20,
            partition_max_bytes: 1 << 20,
            max_poll_records: 500,
            fetch_buffer_bytes: 64 << 20,
            auto_commit: true,
            auto_commit_interval_ms: 5_000,
            auto_offset_reset: OffsetReset::Earliest,
            check_crcs: true,
            max_batch_bytes: 128 << 20,
            api_timeout_ms: 60_000,
            rack: None,
            rebalance_timeout_ms: 300_000,
            session_timeout_ms: 45_000,
            heartbeat_interval_ms: 3_000,
            group_protocol: GroupProtocol::Auto,
        }
    }
}

impl ConsumerConfig {
    /// The defaults.
    pub fn new() -> Self {
        ConsumerConfig::default()
    }

    /// Sets [`group_id`](Self::group_id).
    pub fn group_id(mut self, group: impl Into<String>) -> Self {
        self.group_id = Some(group.into());
        self
    }

    /// Sets [`visibility`](Self::visibility).
    pub fn visibility(mut self, visibility: Visibility) -> Self {
        self.visibility = visibility;
        self
    }

    /// Sets [`max_wait_ms`](Self::max_wait_ms).
    pub fn max_wait_ms(mut self, millis: u32) -> Self {
        self.max_wait_ms = millis;
        self
    }

    /// Sets [`min_bytes`](Self::min_bytes).
    pub fn min_bytes(mut self, bytes: i32) -> Self {
        self.min_bytes = bytes;
        self
    }

    /// Sets [`max_bytes`](Self::max_bytes).
    pub fn max_bytes(mut self, bytes: i32) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets [`partition_max_bytes`](Self::partition_max_bytes).
    pub fn partition_max_bytes(mut self, bytes: i32) -> Self {
        self.partition_max_bytes = bytes;
        self
    }

    /// Sets [`max_poll_records`](Self::max_poll_records).
    pub fn max_poll_records(mut self, records: usize) -> Self {
        self.max_poll_records = records;
        self
    }

    /// Sets [`fetch_buffer_bytes`](Self::fetch_buffer_bytes).
    pub fn fetch_buffer_bytes(mut self, bytes: usize) -> Self {
        self.fetch_buffer_bytes = bytes;
        self
    }

    /// Sets [`auto_commit`](Self::auto_commit).
    pub fn auto_commit(mut self, on: bool) -> Self {
        self.auto_commit = on;
        self
    }

    /// Sets [`auto_commit_interval_ms`](Self::auto_commit_interval_ms).
    pub fn auto_commit_interval_ms(mut self, millis: u32) -> Self {
        self.auto_commit_interval_ms = millis;
        self
    }

    /// Sets [`auto_offset_reset`](Self::auto_offset_reset).
    pub fn auto_offset_reset(mut self, reset: OffsetReset) -> Self {
        self.auto_offset_reset = reset;
        self
    }

    /// Sets [`check_crcs`](Self::check_crcs).
    pub fn check_crcs(mut self, check: bool) -> Self {
        self.check_crcs = check;
        self
    }

    /// Sets [`max_batch_bytes`](Self::max_batch_bytes).
    pub fn max_batch_bytes(mut self, bytes: usize) -> Self {
        self.max_batch_bytes = bytes;
        self
    }

    /// Sets [`api_timeout_ms`](Self::api_timeout_ms).
    pub fn api_timeout_ms(mut self, millis: u32) -> Self {
        self.api_timeout_ms = millis;
        self
    }

    /// Sets [`rack`](Self::rack).
    pub fn rack(mut self, rack: impl Into<String>) -> Self {
        self.rack = Some(rack.into());
        self
    }

    /// Sets [`rebalance_timeout_ms`](Self::rebalance_timeout_ms).
    pub fn with_rebalance_timeout_ms(mut self, millis: i32) -> Self {
        self.rebalance_timeout_ms = millis;
        self
    }

    /// Sets [`session_timeout_ms`](Self::session_timeout_ms).
    pub fn with_session_timeout_ms(mut self, millis: i32) -> Self {
        self.session_timeout_ms = millis;
        self
    }

    /// Sets [`heartbeat_interval_ms`](Self::heartbeat_interval_ms).
    pub fn with_heartbeat_interval_ms(mut self, millis: i32) -> Self {
        self.heartbeat_interval_ms = millis;
        self
    }

    /// Sets [`group_protocol`](Self::group_protocol).
    pub fn with_group_protocol(mut self, protocol: GroupProtocol) -> Self {
        self.group_protocol = protocol;
        self
    }

    /// Whether the settings can work together; checked before any I/O.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |detail: &'static str| {
            Err(Error::new(ErrorKind::InvalidRequest, "consumer settings").with_detail(detail))
        };
        if self.group_id.as_deref().is_some_and(|group| group.trim().is_empty()) {
            return refuse("group_id is blank");
        }
        if self.min_bytes < 0 {
            return refuse("min_bytes is negative");
        }
        if self.max_bytes < 1 {
            return refuse("max_bytes must be at least 1");
        }
        if self.partition_max_bytes < 1 {
            return refuse("partition_max_bytes must be at least 1");
        }
        if self.max_poll_records < 1 {
            return refuse("max_poll_records must be at least 1");
        }
        if self.fetch_buffer_bytes < 1 {
            return refuse("fetch_buffer_bytes must be at least 1");
        }
        if usize::try_from(self.min_bytes).is_ok_and(|min| min > self.fetch_buffer_bytes) {
            return refuse("min_bytes is over fetch_buffer_bytes: no fetch could ever ask for that much");
        }
        if self.min_bytes > self.max_bytes {
            return refuse("min_bytes is over max_bytes");
        }
        if self.max_batch_bytes < 1 {
            return refuse("max_batch_bytes must be at least 1");
        }
        if self.api_timeout_ms < 1 {
            return refuse("api_timeout_ms must be at least 1");
        }
        if self.auto_commit_interval_ms < 1 {
            return refuse("auto_commit_interval_ms must be at least 1");
        }
        Ok(())
    }

    /// The longest a broker may hold a fetch back.
    pub(crate) fn wire_wait(&self) -> Duration {
        let millis = if self.max_wait_ms == 0 { 500 } else { self.max_wait_ms.min(500) };
        Duration::from_millis(u64::from(millis))
    }

    pub(crate) fn api_timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.api_timeout_ms))
    }
}

#[cfg(test)]
mod tests {
    use kafka_meta::ErrorKind;

    use super::ConsumerConfig;

    #[test]
    fn contradictory_settings_are_refused() {
        assert!(ConsumerConfig::new().check().is_ok());
        for config in [
            ConsumerConfig::new().group_id("  "),
            ConsumerConfig::new().max_poll_records(0),
            ConsumerConfig::new().min_bytes(2).max_bytes(1),
            ConsumerConfig::new().partition_max_bytes(0),
            ConsumerConfig::new().fetch_buffer_bytes(0),
        ] {
            assert_eq!(config.check().unwrap_err().kind(), ErrorKind::InvalidRequest);
        }
    }

    #[test]
    fn the_wire_wait_is_at_most_half_a_second() {
        assert_eq!(ConsumerConfig::new().max_wait_ms(10_000).wire_wait().as_millis(), 500);
        assert_eq!(ConsumerConfig::new().max_wait_ms(20).wire_wait().as_millis(), 20);
    }
}
