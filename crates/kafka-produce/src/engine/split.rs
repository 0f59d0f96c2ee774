//! A packed batch in two. Pure.

use bytes::Bytes;
use kafka_read::batch::write::{BatchOptions, BatchWriter};
use kafka_read::batch::{Codec, Limits, scan};

/// The records of a batch of this producer's own in two batches, the first no larger than the second; `None` when
/// it cannot be read, which would be a defect.
pub(super) fn halves(batch: &Bytes, codec: Codec, level: Option<i32>) -> Option<(BatchWriter, BatchWriter)> {
    let raw = scan(batch.clone()).next()?.ok()?;
    let set = raw.open(&Limits::default(), i64::MIN).ok()?;
    let options = || BatchOptions { codec, level, ..BatchOptions::default() };
    let (mut first, mut second) = (BatchWriter::new(options()), BatchWriter::new(options()));
    let middle = set.len() / 2;
    for (at, record) in set.iter().enumerate() {
        let headers: Vec<_> = record.headers.iter().collect();
        let headers: Vec<_> =
            headers.iter().map(|header| (header.key.as_bytes(), header.value.as_deref())).collect();
        let half = if at < middle { &mut first } else { &mut second };
        half.push(record.timestamp.millis(), record.key, record.value, &headers).ok()?;
    }
    (!first.is_empty()).then_some((first, second))
}
