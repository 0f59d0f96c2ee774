//! Any bytes as a Fetch answer: an error or an answer within bounds, never a panic, never memory that the bytes do
//! not pay for.
//!
//! The first byte chooses the version, the rest is the body; a recorded answer of version V is a seed with the byte
//! V - 4 in front.

#![no_main]

use bytes::Bytes;
use kafka_meta::wire::fetch::{FetchedPartition, MIN_VERSION, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&first, body)) = data.split_first() else { return };
    let version = MIN_VERSION + i16::from(first % 15);
    let body = Bytes::copy_from_slice(body);
    let Ok(answer) = decode(version, body.clone()) else { return };

    let inside = |slice: &[u8]| {
        let (outer, inner) = (body.as_ptr_range(), slice.as_ptr_range());
        slice.is_empty() || (outer.start <= inner.start && inner.end <= outer.end)
    };
    let mut taken = answer.partitions.capacity() * size_of::<FetchedPartition>();
    let mut records = 0;
    for partition in &answer.partitions {
        assert!(inside(&partition.records), "records that are not the body's");
        records += partition.records.len();
        taken += partition.aborted.capacity() * 16;
    }
    assert!(records <= body.len(), "records of {records} bytes in {}", body.len());
    assert!(taken <= 16 * body.len() + 1_024, "{taken} bytes for {}", body.len());

    assert_eq!(decode(version, body.clone()).ok(), Some(answer), "the same bytes, another answer");
});
