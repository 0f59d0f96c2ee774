//! Following a topic: [`tail`].
//!
//! The machine is that of [`scan`](crate::scan()), without an end; what differs (partitions that are added, topics
//! that are made anew, troubles that are told and outlived) is decided in its core. What this is not: a consumer.
//! It has no position to store and cannot seek; dropping the stream is the end of it.

use futures::Stream;
use kafka_meta::{Cluster, Result};

use crate::scan::{EventStream, ScanEvent, TailSpec};

/// Follows a topic: what is written to it from now on, or from where the spec says.
///
/// The first poll looks up where to begin; the [`Progress`](ScanEvent::Progress) that is the first event of each
/// partition tells that nothing written later will be missed. Then events come as of a scan, for ever. An idle tail
/// yields nothing and holds one request at each broker. Partitions that are added to the topic are taken in, unless
/// the spec names the partitions.
///
/// Dropping the stream, at any time, stops all work and closes its connections; brokers keep nothing.
///
/// # Errors
///
/// `Timeout`, each time a partition has been out of reach for the spec's `timeout`: the tail goes on trying. Any
/// other error that names a partition ends that partition alone, as when the topic is deleted (`UnknownTopic`). The
/// stream ends when no partition is left, or with an error that names none. A log that is cut or deleted from
/// under the reader is a [`Lost`](ScanEvent::Lost), not an error.
///
/// ```no_run
/// use futures::TryStreamExt;
/// use kafka_read::{Cluster, ScanEvent, TailSpec, tail};
///
/// # async fn example() -> kafka_read::Result<()> {
/// let cluster = Cluster::connect("127.0.0.1:9092").await?;
/// let mut events = tail(cluster, TailSpec::new("orders").last(10));
/// while let Some(event) = events.try_next().await? {
///     if let ScanEvent::Record(record) = event {
///         println!("{}-{} @{}", record.topic, record.partition, record.offset);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub fn tail(cluster: Cluster, spec: TailSpec) -> impl Stream<Item = Result<ScanEvent>> + Send + Unpin {
    EventStream::new(cluster, spec.into_order())
}
