//! Bytes nobody would send in good faith.

use std::error::Error as _;

use bytes::{BufMut, Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{FetchAnswer, MAX_VERSION, MIN_VERSION, Malformed, decode};
use super::golden::vectors;
use crate::ErrorKind;

fn damage(version: i16, body: impl Into<Bytes>) -> Malformed {
    let error = decode(version, body.into()).expect_err("damage read as an answer");
    assert_eq!(error.kind(), ErrorKind::Other);
    *error
        .source()
        .and_then(|source| source.downcast_ref().copied().map(Box::new))
        .expect("a source of our own")
}

fn varint(body: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        body.put_u8((value as u8) | 0x80);
        value >>= 7;
    }
    body.put_u8(value as u8);
}

/// Throttle, error and session id of a healthy answer.
fn head(version: i16) -> BytesMut {
    let mut body = BytesMut::new();
    body.put_i32(0);
    if version >= 7 {
        body.put_i16(0);
        body.put_i32(0);
    }
    body
}

/// Whatever was read, it takes no more memory than a fixed multiple of the bytes it came from.
fn assert_bounded(answer: &FetchAnswer, body: usize) {
    let records: usize = answer.partitions.iter().map(|partition| partition.records.len()).sum();
    assert!(records <= body);
    let partitions = answer.partitions.capacity() * size_of_val(answer.partitions.first().unwrap());
    let aborted: usize = answer.partitions.iter().map(|partition| partition.aborted.capacity() * 16).sum();
    assert!(partitions + aborted <= 16 * body + 1_024, "{partitions} + {aborted} of {body}");
}

#[test]
fn a_count_beyond_the_bytes_left_is_refused_wherever_it_stands() {
    for version in [4, 11] {
        let mut topics = head(version);
        topics.put_i32(i32::MAX);
        assert!(matches!(
            damage(version, topics),
            Malformed::Count { what: "topics", claimed: 0x7fff_ffff, .. }
        ));

        let mut partitions = head(version);
        partitions.put_i32(1);
        partitions.put_i16(1);
        partitions.put_u8(b't');
        partitions.put_i32(2);
        partitions.put_bytes(0, 40);
        assert!(matches!(
            damage(version, partitions),
            Malformed::Count { what: "partitions", claimed: 2, .. }
        ));
    }
    for version in [12, 13, 18] {
        // The 14 bytes that make the general codec ask for 12.9 GB.
        let mut topics = head(version);
        varint(&mut topics, u32::MAX);
        assert!(matches!(damage(version, topics), Malformed::Count { what: "topics", .. }));
    }
    let mut aborted = head(18);
    varint(&mut aborted, 2);
    aborted.put_u128(1);
    varint(&mut aborted, 2);
    aborted.put_bytes(0, 4 + 2 + 8 + 8 + 8);
    varint(&mut aborted, 4);
    aborted.put_bytes(0, 50);
    assert!(matches!(
        damage(18, aborted),
        Malformed::Count { what: "aborted transactions", claimed: 3, left: 50, .. }
    ));

    let mut nodes = head(18);
    varint(&mut nodes, 1);
    varint(&mut nodes, 1);
    varint(&mut nodes, 0);
    varint(&mut nodes, 5);
    varint(&mut nodes, u32::MAX);
    nodes.put_bytes(0, 100);
    assert!(matches!(damage(18, nodes), Malformed::Count { what: "node endpoints", left: 0, .. }));
}

#[test]
fn a_tagged_field_cannot_reach_beyond_its_own_size() {
    let mut body = head(13);
    varint(&mut body, 2);
    body.put_u128(1);
    varint(&mut body, 2);
    body.put_bytes(0, 4 + 2 + 8 + 8 + 8);
    varint(&mut body, 0);
    body.put_i32(-1);
    varint(&mut body, 0);
    // One tagged field: a diverging epoch of 12 bytes that says it has 5.
    varint(&mut body, 1);
    varint(&mut body, 0);
    varint(&mut body, 5);
    body.put_bytes(0, 30);
    assert!(matches!(damage(13, body), Malformed::Truncated { needed: 8, left: 1, .. }));
}

#[test]
fn nulls_and_lengths_that_cannot_be_are_refused() {
    let mut null_topics = head(4);
    null_topics.put_i32(-1);
    assert!(matches!(damage(4, null_topics), Malformed::Length { length: -1, .. }));
    let mut negative = head(4);
    negative.put_i32(-2);
    assert!(matches!(damage(4, negative), Malformed::Length { length: -2, .. }));
    let mut null_topics = head(12);
    varint(&mut null_topics, 0);
    assert!(matches!(damage(12, null_topics), Malformed::Length { length: -1, .. }));
    let mut endless = head(12);
    endless.put_bytes(0xff, 9);
    assert!(matches!(damage(12, endless), Malformed::Varint { position: 10 }));
    let mut name = head(4);
    name.put_i32(1);
    name.put_i16(2);
    name.put_slice(&[0xc3, 0x28]);
    name.put_bytes(0, 4);
    assert!(matches!(damage(4, name), Malformed::Utf8 { position: 10 }));
}

#[test]
fn a_version_outside_the_range_is_not_attempted() {
    for version in [MIN_VERSION - 1, MAX_VERSION + 1, i16::MIN, i16::MAX] {
        let error = decode(version, Bytes::from_static(&[0; 64])).expect_err("no such version");
        assert_eq!(error.kind(), ErrorKind::UnsupportedApi);
    }
}

proptest! {
    #[test]
    fn random_bytes_are_read_within_bounds(version in 4..=18i16, body in vec(any::<u8>(), 0..300)) {
        if let Ok(answer) = decode(version, body.clone().into()) && !answer.partitions.is_empty() {
            assert_bounded(&answer, body.len());
        }
    }

    #[test]
    fn damaged_answers_are_read_within_bounds(
        pick in any::<proptest::sample::Index>(),
        hits in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let vectors = SMALL.with(Clone::clone);
        let (version, body) = &vectors[pick.index(vectors.len())];
        let mut body = body.to_vec();
        for (at, value) in hits {
            let at = at.index(body.len());
            body[at] = value;
        }
        let size = body.len();
        if let Ok(answer) = decode(*version, body.into()) && !answer.partitions.is_empty() {
            assert_bounded(&answer, size);
        }
    }
}

thread_local! {
    /// The recorded answers short enough that a random hit lands outside the records.
    static SMALL: std::rc::Rc<Vec<(i16, Bytes)>> = std::rc::Rc::new(
        vectors()
            .into_iter()
            .filter(|vector| vector.body.len() < 600)
            .map(|vector| (vector.version, vector.body))
            .collect(),
    );
}
