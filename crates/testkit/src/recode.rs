//! RECODE: record batches taken apart, changed and put together again with a good CRC.
//!
//! ```no_run
//! # fn f(proxy: &testkit::Proxy) {
//! use kafka_protocol::messages::ApiKey;
//!
//! // As the log cleaner leaves batches: the last record gone, the offsets they span unchanged.
//! proxy.on(ApiKey::Fetch).recode_batches(|_topic, _partition, batch| batch.records.pop().is_some());
//! # }
//! ```
//!
//! What it is not: independent. It reads and writes with the workspace's own batch code, which golden vectors
//! and Java hold to the truth elsewhere. Control batches, old formats and a cut tail pass as they are.

use bytes::{Bytes, BytesMut};
use kafka_read::batch::write::{BatchOptions, BatchWriter};
use kafka_read::batch::{Codec, Limits, RawBatch, scan};

use crate::produce::Message;

/// A batch of format v2, taken apart.
#[derive(Debug, Clone)]
pub struct Batch {
    /// What its header says; the offsets it spans stay if the records change.
    pub options: BatchOptions,
    /// Its records with their offsets.
    pub records: Vec<(i64, Message)>,
}

/// The batches as `change` leaves them, or `None` if it says for each that it changed nothing.
pub fn recode(records: &Bytes, mut change: impl FnMut(&mut Batch) -> bool) -> Option<Bytes> {
    let mut out = BytesMut::with_capacity(records.len());
    let mut changed = false;
    let mut passed = 0;
    for raw in scan(records.clone()) {
        let Ok(raw) = raw else { break };
        passed += raw.bytes.len();
        let rewritten = take_apart(&raw)
            .and_then(|mut batch| if change(&mut batch) { put_together(&batch) } else { None });
        match rewritten {
            Some(bytes) => {
                changed = true;
                out.extend_from_slice(&bytes);
            }
            None => out.extend_from_slice(&raw.bytes),
        }
    }
    // Whatever could not be read, a cut tail first of all.
    out.extend_from_slice(records.get(passed..).unwrap_or_default());
    changed.then(|| out.freeze())
}

fn take_apart(raw: &RawBatch) -> Option<Batch> {
    let header = &raw.header;
    if header.magic != 2 || header.is_control() {
        return None;
    }
    let set = raw.open(&Limits::default(), 0).ok()?;
    let records = set.iter().map(|record| {
        let headers = record.headers.iter();
        let headers =
            headers.map(|header| (header.key.as_bytes().to_vec(), header.value.map(|value| value.to_vec())));
        let message = Message {
            timestamp: Some(record.timestamp.millis()),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: headers.collect(),
        };
        (record.offset, message)
    });
    let options = BatchOptions {
        base_offset: header.base_offset,
        leader_epoch: header.leader_epoch.unwrap_or(-1),
        codec: header.codec().ok()?,
        level: None,
        timestamp_type: header.timestamp_type(),
        max_timestamp: Some(header.max_timestamp),
        base_timestamp: Some(header.base_timestamp),
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        transactional: header.is_transactional(),
        control: false,
        last_offset_delta: Some(header.last_offset_delta),
    };
    Some(Batch { records: records.collect(), options })
}

fn put_together(batch: &Batch) -> Option<BytesMut> {
    let mut options = batch.options.clone();
    if batch.records.is_empty() {
        // As the log cleaner writes a batch it keeps for its producer's sake alone.
        options.codec = Codec::None;
    }
    let base = options.base_offset;
    let first = options.base_timestamp;
    let mut writer = BatchWriter::new(options);
    for (offset, message) in &batch.records {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            message.headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
        let delta = i32::try_from(offset.checked_sub(base)?).ok()?;
        let timestamp = message.timestamp.or(first).unwrap_or(-1);
        writer.push_at(delta, timestamp, message.key.as_deref(), message.value.as_deref(), &headers).ok()?;
    }
    writer.finish().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::produce::{batch, numbered};

    fn values(records: &Bytes) -> Vec<(i64, Option<Vec<u8>>)> {
        let mut all = Vec::new();
        for raw in scan(records.clone()) {
            let raw = raw.unwrap();
            raw.verify(true).unwrap();
            let set = raw.open(&Limits::default(), 0).unwrap();
            all.extend(set.iter().map(|record| (record.offset, record.value.map(<[u8]>::to_vec))));
        }
        all
    }

    #[test]
    fn what_is_not_changed_is_the_same_bytes() {
        let one =
            batch(BatchOptions { codec: Codec::Zstd, ..BatchOptions::default() }, numbered(0, 0..3)).unwrap();
        assert_eq!(recode(&one, |_| false), None);
    }

    #[test]
    fn removed_records_leave_a_hole_and_the_span_stays() {
        let options = BatchOptions { base_offset: 10, codec: Codec::Lz4, ..BatchOptions::default() };
        let message = Message::value("v").key("k").header("h", "1").null_header("h").at(5);
        let mut two = batch(options.clone(), [message.clone(), message.clone(), message]).unwrap().to_vec();
        two.extend(batch(BatchOptions { base_offset: 13, ..options }, numbered(0, 0..2)).unwrap());
        // A tail that the broker cut off.
        two.extend([0, 0, 0]);
        let two = Bytes::from(two);
        let changed = recode(&two, |batch| {
            assert_eq!(
                batch.options.last_offset_delta,
                Some(if batch.options.base_offset == 10 { 2 } else { 1 })
            );
            batch.records.pop();
            true
        })
        .unwrap();
        assert_eq!(values(&changed).iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [10, 11, 13]);
        let nexts: Vec<i64> = scan(changed.clone()).map(|raw| raw.unwrap().header.next_offset()).collect();
        assert_eq!(nexts, [13, 15]);
        assert!(changed.ends_with(&[0, 0, 0]));
        let empty = recode(&changed, |batch| {
            batch.records.clear();
            true
        });
        assert!(values(&empty.unwrap()).is_empty());
    }
}
