//! Reading a bounded stretch of a topic: [`scan`].
//!
//! `spec` says what is read, `event` what comes out; `core` and its neighbours decide, `driver` asks the brokers,
//! `stream` hands over. [`tail`](crate::tail()) is the same machine without an end. What this is not: it keeps no
//! position for later, knows no group, and opens no fetch session. Its requests say (0, −1), "no session", so
//! that nothing is left at the brokers by a reader who does not come back.

use futures::Stream;
use kafka_meta::{Cluster, Result};

mod answer;
mod bounds;
mod core;
mod driver;
mod event;
mod last;
mod partition;
mod plan;
mod settle;
mod spec;
mod stream;
mod work;

pub use event::{Loss, ScanEvent};
pub(crate) use spec::Order;
pub use spec::{ScanFrom, ScanSpec, ScanUntil, TailSpec};
pub(crate) use stream::EventStream;

/// Reads a bounded stretch of a topic and tells how far it is.
///
/// Nothing happens before the stream is first polled. Then the bounds are looked up and fixed, each broker is read
/// over a connection of its own with one request in flight, and events come: first a
/// [`Progress`](ScanEvent::Progress) per partition, then records in the order of each partition's log, with
/// progress after each stretch; a [`PartitionDone`](ScanEvent::PartitionDone) where a partition has been read to
/// its end. The stream ends when all partitions are done. What passes by itself (leaders that move, brokers that
/// restart, replicas that lag) is not told.
///
/// The stream holds at most [`buffer_bytes`](ScanSpec::buffer_bytes) ahead of its caller. Dropping it, at any time,
/// stops all work and closes its connections; brokers keep nothing.
///
/// # Errors
///
/// An error that names a partition ends that partition alone, after all that was read of it; the others go on, and
/// so does the stream. `Timeout` when a partition was out of reach for the spec's `timeout` (the reason is its
/// source), `UnknownTopic`, `Authorization`, and what else no repetition cures. An error without a partition is the
/// last item: the topic does not exist, the spec is contradictory (`InvalidRequest`), the credentials are refused.
///
/// ```no_run
/// use futures::TryStreamExt;
/// use kafka_read::{Cluster, ScanEvent, ScanSpec, scan};
///
/// # async fn example() -> kafka_read::Result<()> {
/// let cluster = Cluster::connect("127.0.0.1:9092").await?;
/// let mut events = scan(cluster, ScanSpec::new("orders").last(100));
/// while let Some(event) = events.try_next().await? {
///     match event {
///         ScanEvent::Record(record) => println!("{} {:?}", record.offset, record.value),
///         ScanEvent::Malformed { offsets, error, .. } => eprintln!("{offsets:?}: {error}"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub fn scan(cluster: Cluster, spec: ScanSpec) -> impl Stream<Item = Result<ScanEvent>> + Send + Unpin {
    EventStream::new(cluster, spec.into_order())
}

#[cfg(test)]
mod tests;
