//! Time per record of each step a batch passes, on one batch of about 1 MiB in cache.
//!
//! Prints the best and the median of many runs; meant for comparing two builds on one idle machine, not for gating.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation
)]

use std::hint::black_box;
use std::time::Instant;

use kafka_meta::TopicName;
use kafka_read::batch::write::{BatchOptions, BatchWriter, HeaderParts};
use kafka_read::batch::{Codec, Limits, RawBatch, RecordSet, scan};
use kafka_read::{Records, Slice};

const SIZE: usize = 1 << 20;
const HEADERS: HeaderParts<'static> = &[
    (b"trace-id", Some(b"0123456789abcdef")),
    (b"content-type", Some(b"application/json")),
    (b"source", Some(b"orders")),
];

fn batch(codec: Codec, value: usize, headers: bool) -> RawBatch {
    let mut writer = BatchWriter::new(BatchOptions { codec, ..BatchOptions::default() });
    let mut payload = vec![0u8; value];
    let mut index = 0u64;
    while writer.len() < SIZE {
        // Half text, half noise, so that the codecs have work to do.
        for (at, byte) in payload.iter_mut().enumerate() {
            let noise =
                index.wrapping_mul(6_364_136_223_846_793_005).rotate_left(at as u32 * 7).to_le_bytes()[3];
            *byte = if at % 2 == 0 { b"an event of some kind, "[at % 23] } else { noise };
        }
        let key = index.to_be_bytes();
        let headers = if headers { HEADERS } else { &[] };
        writer.push(1_700_000_000_000 + index.cast_signed(), Some(&key), Some(&payload), headers).unwrap();
        index += 1;
    }
    scan(writer.finish().unwrap().freeze()).next().unwrap().unwrap()
}

/// Events of about 300 bytes with ids, times and addresses, such as compress to a third or a fourth.
fn events(codec: Codec) -> RawBatch {
    let mut writer = BatchWriter::new(BatchOptions { codec, ..BatchOptions::default() });
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut index = 0;
    while writer.len() < SIZE {
        let event = format!(
            r#"{{"event_id":"{:08x}-{:08x}","user_id":{},"type":"{}","time":"2026-11-29T12:{:02}:{:02}.{:03}Z","url":"https://shop.example.com/{}/{}?ref={}","agent":"Mozilla/5.0 (X11; Linux x86_64) Firefox/{}.0","session":"{:08x}{:08x}","amount":{}.{:02},"currency":"EUR"}}"#,
            random(),
            random(),
            random() % 100_000,
            ["view", "click", "buy", "search"][random() as usize % 4],
            random() % 60,
            random() % 60,
            random() % 1_000,
            ["item", "list", "cart"][random() as usize % 3],
            random() % 10_000,
            random() % 50,
            90 + random() % 20,
            random(),
            random(),
            random() % 500,
            random() % 100,
        );
        writer.push(index, Some(&random().to_be_bytes()), Some(event.as_bytes()), &[]).unwrap();
        index += 1;
    }
    scan(writer.finish().unwrap().freeze()).next().unwrap().unwrap()
}

fn slice(set: RecordSet) -> Slice {
    Slice {
        topic: TopicName::new("bench"),
        partition: 0,
        ticket: 0,
        previous: 0,
        next: set.last_offset().unwrap() + 1,
        next_epoch: None,
        set,
        high_watermark: 0,
        last_stable_offset: 0,
        log_start_offset: 0,
    }
}

/// Best and median of the time `work` takes, per record, in ns.
fn time(name: &str, records: usize, mut work: impl FnMut()) {
    let mut samples: Vec<f64> = (0..301)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_nanos() as f64 / records as f64
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    println!("  {name:<34} {:>8.2} best {:>8.2} median ns/record", samples[0], samples[samples.len() / 2]);
}

fn main() {
    let limits = Limits::default();
    for (value, headers) in [(100, false), (1024, false), (100, true)] {
        let raw = batch(Codec::None, value, headers);
        let set = raw.open(&limits, 0).unwrap();
        let records = set.len();
        println!("{value} B values, {} headers, {records} records", if headers { 3 } else { 0 });
        time("verify (CRC)", records, || raw.verify(true).unwrap());
        time("open (walk)", records, || {
            black_box(raw.open(&limits, 0).unwrap());
        });
        let all = Records::from_slices(vec![slice(set.clone())]);
        time("iterate, borrowed", records, || {
            for record in &all {
                black_box((
                    record.offset,
                    record.timestamp,
                    record.key,
                    record.value,
                    record.headers.is_empty(),
                ));
            }
        });
        time("iterate, borrowed, whole record", records, || {
            for record in &all {
                black_box(&record);
            }
        });
        time("iterate, owned, dropped at once", records, || {
            for record in all.clone() {
                black_box(&record);
            }
        });
        time("owned into a Vec of 500 at a time", records, || {
            let mut iter = all.clone().into_iter();
            let mut kept = Vec::with_capacity(500);
            loop {
                kept.extend(iter.by_ref().take(500));
                if black_box(&kept).is_empty() {
                    break;
                }
                kept.clear();
            }
        });
        time("split into 500s", records, || {
            let mut rest = set.clone();
            while !rest.is_empty() {
                black_box(rest.split_to(500));
            }
        });
        let mut writer = BatchWriter::with_capacity(BatchOptions::default(), SIZE + 4096);
        time("write", records, || {
            writer = BatchWriter::with_capacity(BatchOptions::default(), SIZE + 4096);
            for record in set.iter() {
                let headers: HeaderParts<'_> = if headers { HEADERS } else { &[] };
                writer.push(record.timestamp.millis(), record.key, record.value, headers).unwrap();
            }
        });
    }
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let raw = events(codec);
        let Ok(set) = raw.open(&limits, 0) else { continue };
        println!("{} of JSON-like events, ratio {:.2}", codec.name(), SIZE as f64 / raw.bytes.len() as f64);
        time("open (inflate and walk)", set.len(), || {
            black_box(raw.open(&limits, 0).unwrap());
        });
    }
}
