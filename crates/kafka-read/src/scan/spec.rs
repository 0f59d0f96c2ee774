//! What is to be read: the public specifications of a scan and of a tail, and the one form the core takes.
//!
//! A specification is plain data: fields may be set directly, or through the setters of the same names. Nothing is
//! checked before the first poll of the stream.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kafka_meta::{Error, ErrorKind, Result, TopicName};

use crate::Visibility;
use crate::batch::Limits;

/// Bytes a scan or tail may hold that the caller has not taken yet: fetched, in flight, inflated.
const BUFFER_BYTES: usize = 32 << 20;
/// A longer one is none, and must not overflow the clock.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// As Java's `default.api.timeout.ms`.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Where reading begins in each partition.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum ScanFrom {
    /// The first record still in the log.
    #[default]
    Earliest,
    /// The end of the log as it is when the first poll looks it up: only what is written later.
    Latest,
    /// This offset, in every partition. One that the log has no longer stands for the first it has; one beyond the
    /// end for the end.
    Offset(i64),
    /// An offset for each partition named, e.g. where an earlier page ended; the others begin at the first record.
    Offsets(BTreeMap<i32, i64>),
    /// The first record, in log order, whose timestamp is this or later, in milliseconds since the epoch; the end
    /// when there is none. What follows is read whatever its timestamp: see [`ScanSpec::until`].
    Timestamp(i64),
}

/// Where a scan ends in each partition; the end itself is not read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum ScanUntil {
    /// The end of the log as it is when the first poll looks it up: the high watermark, or the last stable offset
    /// under [`Visibility::CommittedOnly`].
    #[default]
    Latest,
    /// Before this offset, in every partition; at most the end of the log.
    Offset(i64),
    /// Before an offset for each partition named, e.g. where a later page began; the others to the end of the log.
    Offsets(BTreeMap<i32, i64>),
    /// Before the first record, in log order, whose timestamp is this or later, in milliseconds since the epoch.
    Timestamp(i64),
}

/// A bounded stretch of a topic: what [`scan`](crate::scan()) reads.
///
/// Its ends are fixed when the scan begins; what is written later is not read. All settings go together: first the
/// stretch `from`–`until` of each partition, of that the records with the `key`, of those the `last` so many.
///
/// ```
/// use kafka_read::{ScanFrom, ScanSpec, ScanUntil, Visibility};
///
/// let page = ScanSpec::new("orders").partitions([0, 1]).last(50);
/// let day = ScanSpec::new("orders")
///     .visibility(Visibility::CommittedOnly)
///     .from(ScanFrom::Timestamp(1_700_000_000_000))
///     .until(ScanUntil::Timestamp(1_700_086_400_000));
/// # let _ = (page, day);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScanSpec {
    /// The topic.
    pub topic: String,
    /// Which records of transactions are read; all of them by default, as somebody who looks at a log wants to see
    /// what is in it. Transaction markers are never records.
    pub visibility: Visibility,
    /// The partitions; `None`, the default, for all that the topic has when the scan begins. A scan of no
    /// partitions (an empty list) ends at once.
    pub partitions: Option<Vec<i32>>,
    /// Where to begin in each partition; [`ScanFrom::Earliest`] by default.
    pub from: ScanFrom,
    /// Where to end in each partition; [`ScanUntil::Latest`] by default.
    ///
    /// Times are turned into offsets when the scan begins. Producers' timestamps need not rise along the log, and a
    /// time bound is a place in the log, not a filter: between the places everything is read. So adjoining
    /// ranges of time never share a record and never miss one. A range whose end lies before its beginning in the
    /// log is empty.
    pub until: ScanUntil,
    /// Only the last so many records of **each partition** within the stretch, however many markers, holes and
    /// aborted records lie between them: fewer come only where the stretch has fewer. They are found by reading
    /// backwards in growing steps, so at most a few times what is handed out is read. `None` (default): all of them.
    pub last: Option<u64>,
    /// Only records with exactly this key; `None` (default) for all. All partitions are read for it: which one a
    /// key went to depends on its producer's partitioner. Name it in `partitions` when you know.
    pub key: Option<Bytes>,
    /// Whether checksums are verified; by default they are.
    pub check_crcs: bool,
    /// The most bytes one packed batch may inflate to, 128 MiB by default. A larger one is handed over as
    /// [`Malformed`](crate::ScanEvent::Malformed).
    pub max_batch_bytes: usize,
    /// Bytes that may be held for a caller who is slow: fetched, asked for, inflated. 32 MiB by default; each
    /// broker has an equal share. One answer of each broker, and two inflated batches, may exceed it.
    pub buffer_bytes: usize,
    /// How long a partition may be out of reach, or make no progress, before it ends with an error; 60 s by
    /// default. Waiting for a slow caller does not count.
    pub timeout: Duration,
}

impl ScanSpec {
    /// All of a topic, as it is when the scan begins.
    pub fn new(topic: impl Into<String>) -> Self {
        ScanSpec {
            topic: topic.into(),
            visibility: Visibility::All,
            partitions: None,
            from: ScanFrom::Earliest,
            until: ScanUntil::Latest,
            last: None,
            key: None,
            check_crcs: true,
            max_batch_bytes: Limits::default().max_batch_bytes,
            buffer_bytes: BUFFER_BYTES,
            timeout: TIMEOUT,
        }
    }

    /// Sets where each partition ends.
    #[must_use]
    pub fn until(mut self, until: ScanUntil) -> Self {
        self.until = until;
        self
    }

    pub(crate) fn into_order(self) -> Order {
        Order {
            topic: TopicName::new(&self.topic),
            committed_only: self.visibility == Visibility::CommittedOnly,
            partitions: self.partitions,
            from: self.from,
            until: Some(self.until),
            last: self.last,
            key: self.key,
            check_crcs: self.check_crcs,
            limits: Limits { max_batch_bytes: self.max_batch_bytes },
            buffer_bytes: self.buffer_bytes,
            timeout: self.timeout.min(LONGEST),
        }
    }
}

/// What [`tail`](crate::tail()) follows: like a [`ScanSpec`] without an end.
///
/// ```
/// use kafka_read::{ScanFrom, TailSpec};
///
/// let live = TailSpec::new("orders");
/// let with_context = TailSpec::new("orders").last(10);
/// let since = TailSpec::new("orders").from(ScanFrom::Timestamp(1_700_000_000_000));
/// # let _ = (live, with_context, since);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TailSpec {
    /// The topic.
    pub topic: String,
    /// As [`ScanSpec::visibility`]: all by default.
    pub visibility: Visibility,
    /// The partitions; `None`, the default, for all of the topic, those added later included (from their first
    /// record on).
    pub partitions: Option<Vec<i32>>,
    /// Where to begin in each partition; [`ScanFrom::Latest`] by default.
    pub from: ScanFrom,
    /// Begin so many records before the present end of **each partition**, as [`ScanSpec::last`] has it, and go on
    /// from there. `from` is then the earliest place to begin, and `Latest` means the first record of the log.
    pub last: Option<u64>,
    /// As [`ScanSpec::key`].
    pub key: Option<Bytes>,
    /// As [`ScanSpec::check_crcs`].
    pub check_crcs: bool,
    /// As [`ScanSpec::max_batch_bytes`].
    pub max_batch_bytes: usize,
    /// As [`ScanSpec::buffer_bytes`].
    pub buffer_bytes: usize,
    /// How long a partition may be out of reach before the stream says so with an error, and how often it says so
    /// again; 60 s by default. It goes on trying.
    pub timeout: Duration,
}

impl TailSpec {
    /// What is written to a topic from now on.
    pub fn new(topic: impl Into<String>) -> Self {
        let scan = ScanSpec::new(topic);
        TailSpec {
            topic: scan.topic,
            visibility: scan.visibility,
            partitions: None,
            from: ScanFrom::Latest,
            last: None,
            key: None,
            check_crcs: true,
            max_batch_bytes: scan.max_batch_bytes,
            buffer_bytes: scan.buffer_bytes,
            timeout: scan.timeout,
        }
    }

    pub(crate) fn into_order(self) -> Order {
        let from = match self.from {
            ScanFrom::Latest if self.last.is_some() => ScanFrom::Earliest,
            from => from,
        };
        let scan = ScanSpec {
            visibility: self.visibility,
            partitions: self.partitions,
            from,
            last: self.last,
            key: self.key,
            check_crcs: self.check_crcs,
            max_batch_bytes: self.max_batch_bytes,
            buffer_bytes: self.buffer_bytes,
            timeout: self.timeout,
            ..ScanSpec::new(self.topic)
        };
        Order { until: None, ..scan.into_order() }
    }
}

macro_rules! setters {
    ($($spec:ident),*) => {$(
        impl $spec {
            /// Sets which records of transactions are read.
            #[must_use]
            pub fn visibility(mut self, visibility: Visibility) -> Self {
                self.visibility = visibility;
                self
            }

            /// Names the partitions; the others are left alone.
            #[must_use]
            pub fn partitions(mut self, partitions: impl IntoIterator<Item = i32>) -> Self {
                self.partitions = Some(partitions.into_iter().collect());
                self
            }

            /// Sets where each partition begins.
            #[must_use]
            pub fn from(mut self, from: ScanFrom) -> Self {
                self.from = from;
                self
            }

            /// Only the last `n` records of each partition.
            #[must_use]
            pub fn last(mut self, n: u64) -> Self {
                self.last = Some(n);
                self
            }

            /// Only records with exactly this key.
            #[must_use]
            pub fn key(mut self, key: impl Into<Bytes>) -> Self {
                self.key = Some(key.into());
                self
            }

            /// Sets whether checksums are verified.
            #[must_use]
            pub fn check_crcs(mut self, check: bool) -> Self {
                self.check_crcs = check;
                self
            }

            /// Sets the most bytes one packed batch may inflate to.
            #[must_use]
            pub fn max_batch_bytes(mut self, bytes: usize) -> Self {
                self.max_batch_bytes = bytes;
                self
            }

            /// Sets how many bytes may be held for a slow caller.
            #[must_use]
            pub fn buffer_bytes(mut self, bytes: usize) -> Self {
                self.buffer_bytes = bytes;
                self
            }

            /// Sets how long a partition may be out of reach.
            #[must_use]
            pub fn timeout(mut self, timeout: Duration) -> Self {
                self.timeout = timeout;
                self
            }
        }
    )*};
}
setters!(ScanSpec, TailSpec);

/// A specification of either kind, as the core takes it.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub topic: TopicName,
    pub committed_only: bool,
    pub partitions: Option<Vec<i32>>,
    pub from: ScanFrom,
    /// `None` follows for ever.
    pub until: Option<ScanUntil>,
    pub last: Option<u64>,
    pub key: Option<Bytes>,
    pub check_crcs: bool,
    pub limits: Limits,
    pub buffer_bytes: usize,
    pub timeout: Duration,
}

impl Order {
    pub(crate) fn visibility(&self) -> Visibility {
        if self.committed_only { Visibility::CommittedOnly } else { Visibility::All }
    }

    pub(crate) fn follows(&self) -> bool {
        self.until.is_none()
    }

    /// What no broker needs to be asked about.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: &'static str| {
            Err(Error::new(ErrorKind::InvalidRequest, self.operation()).with_detail(what))
        };
        if self.topic.is_empty() {
            return wrong("the topic has no name");
        }
        if matches!(self.from, ScanFrom::Timestamp(..0)) {
            return wrong("the timestamp in `from` is negative");
        }
        if matches!(self.until, Some(ScanUntil::Timestamp(..0))) {
            return wrong("the timestamp in `until` is negative");
        }
        Ok(())
    }

    /// What errors call it.
    pub(crate) fn operation(&self) -> &'static str {
        if self.follows() { "tail" } else { "scan" }
    }
}
