//! What the writer writes, the reader reads: every codec, header field, and old format.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation
)]
#![cfg(all(
    feature = "gzip",
    feature = "snappy",
    feature = "lz4",
    any(feature = "zstd", feature = "zstd-rust")
))]

mod common;

use bytes::Bytes;
use common::vectors;
use kafka_read::TimestampType;
use kafka_read::batch::write::legacy::{Message, put_message, put_wrapper};
use kafka_read::batch::write::{BatchOptions, BatchWriter, assign, set_producer, stamp};
use kafka_read::batch::{BatchError, Codec, Limits, RawBatch, scan};
use proptest::prelude::*;

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn only(bytes: impl Into<Bytes>) -> RawBatch {
    let mut batches = scan(bytes.into());
    let batch = batches.next().unwrap().unwrap();
    assert!(batches.next().is_none() && batches.tail_len() == 0);
    batch
}

#[derive(Clone, Debug, PartialEq)]
struct Written {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

fn written() -> impl Strategy<Value = Written> {
    let part = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200));
    let headers = proptest::collection::vec(("[a-zäß]{0,9}", part()), 0..4);
    (1i64..1 << 20, any::<i64>(), part(), part(), headers).prop_map(
        |(offset, timestamp, key, value, headers)| Written { offset, timestamp, key, value, headers },
    )
}

fn read(batch: &RawBatch) -> Vec<Written> {
    let set = batch.open(&Limits::default(), i64::MIN).unwrap();
    set.iter()
        .map(|record| Written {
            offset: record.offset,
            timestamp: record.timestamp.millis(),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .iter()
                .map(|header| (header.key.into_owned(), header.value.map(|value| value.to_vec())))
                .collect(),
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_survive_every_codec(
        mut records in proptest::collection::vec(written(), 0..40),
        base in 0i64..1 << 50,
        codec in proptest::sample::select(&CODECS[..]),
    ) {
        let mut writer = BatchWriter::new(BatchOptions { base_offset: base, codec, ..BatchOptions::default() });
        let mut delta = -1;
        for record in &mut records {
            // Offsets rise by what was drawn, so there are holes.
            delta += i32::try_from(record.offset).unwrap();
            record.offset = base + i64::from(delta);
            let headers: Vec<_> = record.headers.iter().map(|(key, value)| (key.as_bytes(), value.as_deref())).collect();
            writer.push_at(delta, record.timestamp, record.key.as_deref(), record.value.as_deref(), &headers).unwrap();
        }
        let before = writer.len();
        let bytes = writer.finish().unwrap();
        if codec == Codec::None {
            prop_assert_eq!(bytes.len(), before);
        }
        let batch = only(bytes);
        prop_assert!(batch.verify(true).is_ok());
        prop_assert_eq!(batch.header.codec(), Ok(codec));
        prop_assert_eq!(batch.header.last_offset(), base + i64::from(delta.max(0)));
        prop_assert_eq!(read(&batch), records);
    }

    #[test]
    fn old_formats_survive_every_codec(
        mut records in proptest::collection::vec(written(), 1..20),
        magic in 0u8..2,
        codec in proptest::sample::select(&CODECS[..4]),
    ) {
        let mut offset = 0;
        for record in &mut records {
            offset += record.offset;
            record.offset = offset;
            record.headers.clear();
            if magic == 0 {
                record.timestamp = -1;
            }
        }
        let messages: Vec<_> = records
            .iter()
            .map(|record| Message {
                offset: record.offset,
                timestamp: record.timestamp,
                key: record.key.clone().map(Bytes::from),
                value: record.value.clone().map(Bytes::from),
            })
            .collect();
        let mut out = Vec::new();
        if codec == Codec::None {
            messages.iter().for_each(|message| put_message(&mut out, magic, 0, message));
        } else {
            put_wrapper(&mut out, magic, codec, None, &messages).unwrap();
        }
        let batches: Vec<_> = scan(Bytes::from(out)).map(Result::unwrap).collect();
        prop_assert!(batches.iter().all(|batch| batch.verify(true).is_ok()));
        prop_assert_eq!(batches.iter().flat_map(read).collect::<Vec<_>>(), records);
        prop_assert_eq!(batches.last().unwrap().header.next_offset(), offset + 1);
    }
}

#[test]
fn java_s_own_uncompressed_batches_are_written_byte_for_byte() {
    let mut compared = 0;
    for vector in vectors("batches/v2") {
        for batch in scan(vector.data.clone()).map(Result::unwrap) {
            let header = &batch.header;
            if header.magic != 2 || header.codec() != Ok(Codec::None) || header.attributes & 0x40 != 0 {
                continue;
            }
            let mut writer = BatchWriter::new(BatchOptions {
                base_offset: header.base_offset,
                leader_epoch: header.leader_epoch.unwrap_or(-1),
                timestamp_type: header.timestamp_type(),
                max_timestamp: Some(header.max_timestamp),
                base_timestamp: Some(header.base_timestamp),
                producer_id: header.producer_id,
                producer_epoch: header.producer_epoch,
                base_sequence: header.base_sequence,
                transactional: header.is_transactional(),
                control: header.is_control(),
                last_offset_delta: Some(header.last_offset_delta),
                ..BatchOptions::default()
            });
            // Under log append time the records' own timestamps cannot be seen.
            if header.timestamp_type() == TimestampType::LogAppendTime {
                continue;
            }
            for record in batch.open(&Limits::default(), 0).unwrap().iter() {
                let headers: Vec<_> =
                    record.headers.iter().map(|header| (header.key.into_owned(), header.value)).collect();
                let headers: Vec<_> =
                    headers.iter().map(|(key, value)| (key.as_bytes(), value.as_deref())).collect();
                let delta = i32::try_from(record.offset - header.base_offset).unwrap();
                writer.push_at(delta, record.timestamp.millis(), record.key, record.value, &headers).unwrap();
            }
            assert_eq!(writer.finish().unwrap(), batch.bytes, "{}", vector.name);
            compared += 1;
        }
    }
    assert!(compared >= 10, "{compared}");
}

#[test]
fn what_a_leader_changes_at_append_leaves_the_batch_good() {
    let mut writer = BatchWriter::new(BatchOptions::default());
    writer.push(5, None, Some(b"v"), &[]).unwrap();
    let mut bytes = writer.finish().unwrap();
    assign(&mut bytes, 70, 3);
    assert!(only(bytes.clone()).verify(true).is_ok());
    stamp(&mut bytes, 1_234);
    set_producer(&mut bytes, 9, 2, 11);
    let batch = only(bytes);
    batch.verify(true).unwrap();
    assert_eq!((batch.header.base_offset, batch.header.leader_epoch), (70, Some(3)));
    assert_eq!(
        (batch.header.producer_id, batch.header.producer_epoch, batch.header.base_sequence),
        (9, 2, 11)
    );
    let set = batch.open(&Limits::default(), 0).unwrap();
    let record = set.iter().next().unwrap();
    assert_eq!((record.offset, record.timestamp.millis()), (70, 1_234));
    assert_eq!(record.timestamp.kind(), TimestampType::LogAppendTime);
}

#[test]
fn a_wrapper_tells_its_lowest_offset_although_its_header_has_the_last() {
    let messages = [10, 11, 15].map(|offset| Message { offset, ..Message::default() });
    for magic in [0, 1] {
        let mut out = Vec::new();
        put_wrapper(&mut out, magic, Codec::Snappy, None, &messages).unwrap();
        put_message(&mut out, magic, 0, &Message { offset: 16, ..Message::default() });
        let lowest: Vec<_> =
            scan(Bytes::from(out)).map(|batch| batch.unwrap().lowest_offset(&Limits::default())).collect();
        assert_eq!(lowest, [10, 16]);
    }
}

#[test]
fn a_wrapper_stamped_by_the_broker_gives_every_record_its_time() {
    let messages = [1, 2].map(|offset| Message { offset, timestamp: 5, ..Message::default() });
    let mut out = Vec::new();
    put_wrapper(&mut out, 1, Codec::Gzip, Some(99), &messages).unwrap();
    let set = only(out).open(&Limits::default(), 0).unwrap();
    assert!(set.iter().all(|record| record.timestamp.millis() == 99));
    assert!(set.iter().all(|record| record.timestamp.kind() == TimestampType::LogAppendTime));
}

#[test]
fn inflating_stops_at_the_limit() {
    for codec in &CODECS[1..] {
        let mut writer = BatchWriter::new(BatchOptions { codec: *codec, ..BatchOptions::default() });
        writer.push(0, None, Some(&vec![0; 300_000]), &[]).unwrap();
        let batch = only(writer.finish().unwrap());
        let limits = Limits { max_batch_bytes: 299_999 };
        assert_eq!(batch.open(&limits, 0).unwrap_err(), BatchError::TooLarge { limit: 299_999 }, "{codec:?}");
        assert_eq!(batch.open(&Limits { max_batch_bytes: 301_000 }, 0).unwrap().len(), 1);
    }
}

#[test]
fn a_set_tells_what_memory_it_keeps() {
    for codec in CODECS {
        let mut writer = BatchWriter::new(BatchOptions { codec, ..BatchOptions::default() });
        for _ in 0..100 {
            writer.push(0, None, Some(&[7; 1_000]), &[]).unwrap();
        }
        let set = only(writer.finish().unwrap()).open(&Limits::default(), 50).unwrap();
        assert_eq!(set.shares_frame(), codec == Codec::None);
        match codec {
            Codec::None => assert!((50_000..51_000).contains(&set.memory()), "{}", set.memory()),
            // The whole buffer, records in front included.
            _ => assert!((100_000..130_000).contains(&set.memory()), "{codec:?} {}", set.memory()),
        }
        let copy = set.copied();
        assert!(!copy.shares_frame() && copy.memory() < 51_000);
        assert!(copy.iter().map(|record| record.offset).eq(set.iter().map(|record| record.offset)));
    }
}
