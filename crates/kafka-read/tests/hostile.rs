//! No bytes make the reader panic, loop, or hand out an offset twice.
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
use common::{consume, vectors};
use kafka_read::batch::write::{BatchOptions, BatchWriter, assign, seal};
use kafka_read::batch::{BatchError, Codec, Limits, RawBatch, Reason, resync, resync_within, scan};
use proptest::prelude::*;

const LIMITS: Limits = Limits { max_batch_bytes: 1 << 20 };

/// Reads as a consumer does, and touches every byte handed out.
fn read(data: Bytes) {
    for check_crcs in [true, false] {
        let outcome = consume(&data, 0, check_crcs, &LIMITS, vec![(1, 0)]);
        let mut last = -1;
        for set in &outcome.sets {
            assert_eq!(set.iter().count(), set.len());
            for record in set.iter() {
                assert!(record.offset > last, "{} after {last}", record.offset);
                last = record.offset;
                let _ = (record.key, record.value, record.headers.iter().count());
            }
        }
        assert!(last < outcome.position || outcome.position == 0);
    }
}

fn three_batches() -> Vec<Vec<u8>> {
    [0, 3, 6].map(|base| batch(base, b"value").to_vec()).to_vec()
}

fn batch(base: i64, value: &[u8]) -> Bytes {
    let mut writer = BatchWriter::new(BatchOptions { base_offset: base, ..BatchOptions::default() });
    for _ in 0..3 {
        writer.push(0, Some(b"key"), Some(value), &[]).unwrap();
    }
    writer.finish().unwrap().freeze()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_without_a_panic(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        read(Bytes::from(data));
    }

    /// Bytes that look like a batch as far as the walk, so that it is reached.
    #[test]
    fn any_records_section_is_read_without_a_panic(
        section in proptest::collection::vec(any::<u8>(), 0..120),
        count in -1i32..6,
        attributes in 0u8..64,
        last_delta in -1i32..6,
    ) {
        let mut data = vec![0; 61];
        data.extend_from_slice(&section);
        let length = i32::try_from(data.len() - 12).unwrap();
        data[8..12].copy_from_slice(&length.to_be_bytes());
        data[16] = 2;
        data[22] = attributes;
        data[23..27].copy_from_slice(&last_delta.to_be_bytes());
        data[57..61].copy_from_slice(&count.to_be_bytes());
        seal(&mut data);
        read(Bytes::from(data));
    }

    #[test]
    fn any_v0_or_v1_message_is_read_without_a_panic(
        body in proptest::collection::vec(any::<u8>(), 0..80),
        magic in 0u8..2,
        attributes in 0u8..16,
    ) {
        let mut data = vec![0; 16];
        data.extend_from_slice(&[magic, attributes]);
        data.extend_from_slice(&body);
        let length = i32::try_from(data.len() - 12).unwrap();
        data[8..12].copy_from_slice(&length.to_be_bytes());
        read(Bytes::from(data));
    }

    #[test]
    fn a_flipped_byte_anywhere_costs_at_most_its_own_batch(at in 0usize..400, flip in 1u8..=255) {
        let batches = three_batches();
        let size = batches[0].len();
        let mut data = batches.concat();
        let at = at % data.len();
        data[at] ^= flip;
        let outcome = consume(&Bytes::from(data.clone()), 0, true, &LIMITS, Vec::new());
        read(Bytes::from(data));
        let (hit, field) = (at / size, at % size);
        // Base offset and epoch are outside the CRC; a length may claim a batch cut at the byte limit.
        if field >= 17 {
            let lost = i64::try_from(hit).unwrap() * 3;
            let wanted: Vec<_> = (0..9).filter(|offset| !(lost..lost + 3).contains(offset)).collect();
            prop_assert_eq!(outcome.offsets(), wanted);
        }
    }
}

#[test]
fn vectors_cut_at_every_length_are_read_without_a_panic() {
    for vector in vectors("batches/v2").into_iter().chain(vectors("batches/legacy")) {
        if vector.data.len() < 1_000 {
            for end in 0..vector.data.len() {
                read(vector.data.slice(..end));
            }
        }
    }
}

#[test]
fn packed_vectors_with_a_flipped_byte_are_read_without_a_panic() {
    for vector in vectors("batches/v2").into_iter().filter(|vector| vector.data.len() < 300) {
        for at in 61..vector.data.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut data = vector.data.to_vec();
                data[at] ^= flip;
                seal(&mut data);
                read(Bytes::from(data));
            }
        }
    }
}

#[test]
fn every_cut_of_the_data_ends_in_a_silent_tail() {
    let data = Bytes::from(three_batches().concat());
    let size = data.len() / 3;
    for end in 0..=data.len() {
        let mut batches = scan(data.slice(..end));
        assert_eq!(batches.by_ref().filter(Result::is_ok).count(), end / size, "{end}");
        assert_eq!(batches.tail_len(), end % size);
        assert!(batches.next().is_none());
    }
}

#[test]
fn a_tail_that_cannot_have_been_cut_tells_where_it_claims_to_end() {
    let mut data = batch(6, b"value").to_vec();
    data[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    let mut batches = scan(Bytes::from([batch(3, b"value").to_vec(), data.clone()].concat()));
    assert_eq!(batches.tail_as_damage(), None);
    assert_eq!(batches.by_ref().count(), 1);
    let damage = batches.tail_as_damage().unwrap();
    assert_eq!((damage.position, damage.what), (batches.position(), Reason::Length));
    assert_eq!(damage.claimed_next, Some(9));
    // Too short for a header: no claim. Nothing left: no damage.
    let mut batches = scan(Bytes::copy_from_slice(&data[..40]));
    assert!(batches.next().is_none());
    assert_eq!(batches.tail_as_damage().unwrap().claimed_next, None);
    let mut batches = scan(batch(3, b"value"));
    assert_eq!(batches.by_ref().count(), 1);
    assert_eq!(batches.tail_as_damage(), None);
    // What ended in damage has no tail.
    data[8..12].fill(0);
    let mut batches = scan(Bytes::from(data));
    assert!(batches.next().unwrap().is_err());
    assert_eq!(batches.tail_as_damage(), None);
}

#[test]
fn a_batch_inside_a_value_is_not_taken_for_the_next_one() {
    // A topic that holds copies of batches: the damaged one's value is itself a good batch.
    let nested = batch(1_000, b"inner");
    let mut damaged = batch(0, &nested).to_vec();
    damaged[40] ^= 1;
    let good = damaged.len();
    let data = Bytes::from([damaged, batch(3, b"value").to_vec()].concat());
    assert_eq!(resync(&data, 0), Some(good));
    assert_eq!(resync_within(&data, 0, 0..500), Some(good));
    assert_ne!(resync_within(&data, 0, 500..2_000), Some(good));
}

#[test]
fn resync_reads_a_bounded_amount_of_hostile_data() {
    // Every place claims to be a batch that reaches to the end.
    let mut data = vec![2u8; 1 << 20];
    for at in (0..data.len() - 61).step_by(61) {
        let length = i32::try_from(data.len() - at - 12).unwrap();
        data[at..at + 8].fill(0);
        data[at + 8..at + 12].copy_from_slice(&length.to_be_bytes());
        data[at + 23..at + 27].fill(0);
    }
    assert_eq!(resync(&Bytes::from(data), 0), None);
}

#[test]
fn a_base_offset_near_the_end_of_all_offsets_is_damage_and_not_an_overflow() {
    for base in [i64::MAX, i64::MAX - 1, i64::MAX - 2] {
        let mut data = batch(0, b"value").to_vec();
        assign(&mut data, base, 0);
        let damage = scan(Bytes::from(data)).next().unwrap().unwrap_err();
        assert_eq!(damage.what, Reason::OffsetRange);
    }
    let mut data = batch(0, b"value").to_vec();
    assign(&mut data, i64::MAX - 3, 0);
    let last = scan(Bytes::from(data)).next().unwrap().unwrap();
    assert_eq!(last.open(&LIMITS, 0).unwrap().last_offset(), Some(i64::MAX - 1));
}

#[test]
fn a_codec_that_does_not_exist_is_named() {
    let mut data = batch(0, b"value").to_vec();
    data[22] |= 6;
    let batch: RawBatch = scan(Bytes::from(data)).next().unwrap().unwrap();
    let error = batch.open(&LIMITS, 0).unwrap_err();
    assert_eq!(error, BatchError::UnsupportedCodec { id: 6 });
    assert!(error.to_string().contains("codec 6"), "{error}");
    assert_eq!(batch.header.codec(), Err(6));
    assert_eq!(Codec::from_id(7), None);
}
