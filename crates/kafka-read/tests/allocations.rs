//! What reading allocates: nothing per record, a handful per batch, and never by what hostile bytes claim.
//!
//! One test only, since the counters are the process's. `unsafe` is needed to stand before the system's allocator;
//! it counts and passes on.
#![cfg(all(
    feature = "gzip",
    feature = "snappy",
    feature = "lz4",
    any(feature = "zstd", feature = "zstd-rust")
))]
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation
)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use common::{golden, vectors};
use kafka_meta::TopicName;
use kafka_read::batch::write::{BatchOptions, BatchWriter, seal};
use kafka_read::batch::{Codec, Limits, RawBatch, scan};
use kafka_read::{Records, Slice};

static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's own promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's own promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        BYTES.fetch_add(size, Relaxed);
        // SAFETY: the caller's own promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations made by `work`, and their bytes.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = (COUNT.load(Relaxed), BYTES.load(Relaxed));
    let result = work();
    (result, COUNT.load(Relaxed) - before.0, BYTES.load(Relaxed) - before.1)
}

fn batch(codec: Codec, records: usize) -> RawBatch {
    let mut writer = BatchWriter::new(BatchOptions { codec, ..BatchOptions::default() });
    for index in 0..records {
        let value = format!("value of record {index}");
        writer.push(0, Some(b"key"), Some(value.as_bytes()), &[(b"name", Some(b"header"))]).unwrap();
    }
    scan(writer.finish().unwrap().freeze()).next().unwrap().unwrap()
}

fn claimed(section: &[u8], count: i32, attributes: u8) -> RawBatch {
    let mut data = vec![0; 61];
    data.extend_from_slice(section);
    let length = i32::try_from(data.len() - 12).unwrap();
    data[8..12].copy_from_slice(&length.to_be_bytes());
    data[16] = 2;
    data[22] = attributes;
    data[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
    data[57..61].copy_from_slice(&count.to_be_bytes());
    seal(&mut data);
    scan(Bytes::from(data)).next().unwrap().unwrap()
}

fn nothing_is_allocated_per_record() {
    let limits = Limits::default();
    let raw = batch(Codec::None, 5_000);
    let (set, opening, _) = counted(|| raw.open(&limits, 0).unwrap());
    assert!(opening <= 4, "{opening} to open a batch of 5,000 records");
    let slice = Slice {
        topic: TopicName::new("t"),
        partition: 0,
        ticket: 0,
        previous: 0,
        next: 5_000,
        next_epoch: None,
        set,
        high_watermark: 0,
        last_stable_offset: 0,
        log_start_offset: 0,
    };
    let records = Records::from_slices(vec![slice]);
    let (sum, borrowing, _) =
        counted(|| records.iter().map(|record| record.value.unwrap().len()).sum::<usize>());
    assert!(sum > 0);
    assert_eq!(borrowing, 0);
    let (count, owning, _) = counted(|| records.into_iter().filter(|record| record.key.is_some()).count());
    assert_eq!(count, 5_000);
    assert!(owning <= 2, "{owning} for 5,000 owned records");
}

fn claims_are_not_believed() {
    let limits = Limits::default();
    // Two thousand million records in no bytes.
    let (result, _, bytes) = counted(|| claimed(&[], i32::MAX, 0).open(&limits, 0));
    assert!(result.is_err() && bytes < 4_096, "{bytes}");
    // A raw snappy block that declares 4 GiB - 1.
    let (result, _, bytes) = counted(|| claimed(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0], 1, 2).open(&limits, 0));
    assert!(result.is_err() && bytes < 4_096, "{bytes}");
    // An lz4 frame of 4 MiB blocks with a block of a few bytes, and a declared content of 2^62 bytes.
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x68, 0x70];
    frame.extend_from_slice(&(1u64 << 62).to_le_bytes());
    let sum = twox_hash::XxHash32::oneshot(0, &frame[4..]).to_le_bytes()[1];
    frame.push(sum);
    frame.extend_from_slice(&[3, 0, 0, 0, 0x20, 1, 2]);
    let (result, _, bytes) = counted(|| claimed(&frame, 1, 3).open(&limits, 0));
    assert!(result.is_err() && bytes < 256 << 10, "{bytes}");
    // A header count that claims everything.
    let frame = [14, 0, 0, 0, 1, 1, 0xfe, 0xff];
    let (result, _, bytes) = counted(|| claimed(&frame, 1, 0).open(&limits, 0));
    assert!(result.is_err() && bytes < 4_096, "{bytes}");
}

fn a_bomb_costs_no_more_than_the_limit_a_few_times_over() {
    assert!(golden("batches/corrupt").is_dir());
    let limits = Limits { max_batch_bytes: 1 << 20 };
    for vector in vectors("batches/corrupt").into_iter().filter(|vector| vector.name.starts_with("bomb-")) {
        for raw in scan(vector.data.clone()).map(Result::unwrap) {
            let packed = raw.bytes.len();
            let (_, _, bytes) = counted(|| raw.open(&limits, 0).map(|set| set.len()));
            // The first buffer, its doublings up to the limit, and what the decoder keeps for itself.
            assert!(bytes < (8 << 20) + 8 * packed, "{} {bytes}", vector.name);
        }
    }
}

#[test]
fn reading_allocates_by_data_and_never_by_record_or_claim() {
    nothing_is_allocated_per_record();
    claims_are_not_believed();
    a_bomb_costs_no_more_than_the_limit_a_few_times_over();
}
