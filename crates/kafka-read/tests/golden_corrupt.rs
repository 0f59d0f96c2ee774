//! Every damaged, hostile or foreign-made record set ends in one known way.
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

use common::{Outcome, Vector, assert_record, consume, vectors};
use kafka_read::batch::Limits;

fn ranges(offsets: &[i64]) -> String {
    let mut parts: Vec<(i64, i64)> = Vec::new();
    for offset in offsets {
        match parts.last_mut() {
            Some(last) if last.1 + 1 == *offset => last.1 = *offset,
            _ => parts.push((*offset, *offset)),
        }
    }
    parts
        .iter()
        .map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") })
        .collect::<Vec<_>>()
        .join(",")
}

fn line(outcome: &Outcome) -> String {
    format!("{} [{}] {}", ranges(&outcome.offsets()), outcome.events.join(", "), outcome.position)
}

/// The outcomes, kept beside this file; reviewed by hand against what Java does (`testdata/README.md`).
const EXPECTED: &str = include_str!("golden_corrupt/expected.txt");

fn outcomes(vector: &Vector) -> (Outcome, Outcome) {
    let from = vector.json["fetch_offset"].as_i64().unwrap();
    let limits = Limits::default();
    (
        consume(&vector.data, from, true, &limits, Vec::new()),
        consume(&vector.data, from, false, &limits, Vec::new()),
    )
}

#[test]
fn each_damaged_set_ends_as_the_table_says() {
    let mut wanted: Vec<_> = EXPECTED.lines().filter(|line| !line.starts_with('#')).collect();
    let mut seen = Vec::new();
    for vector in vectors("batches/corrupt") {
        let (checked, unchecked) = outcomes(&vector);
        let (checked, unchecked) = (line(&checked), line(&unchecked));
        let outcome = if checked == unchecked { checked } else { format!("{checked} | {unchecked}") };
        let text = format!("{}: {outcome}", vector.name);
        seen.push(text.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    seen.sort_unstable();
    wanted.sort_unstable();
    for (seen, wanted) in seen.iter().zip(&wanted) {
        assert_eq!(seen, wanted);
    }
    assert_eq!(seen.len(), wanted.len());
}

#[test]
fn what_is_delivered_is_what_java_delivers_at_that_offset() {
    for vector in vectors("batches/corrupt").into_iter().filter(|vector| !vector.name.starts_with("bomb-")) {
        let (checked, unchecked) = outcomes(&vector);
        for (outcome, json) in [(checked, "check_crcs_true"), (unchecked, "check_crcs_false")] {
            let Some(records) = vector.json[json]["records"].as_array() else { continue };
            for set in &outcome.sets {
                for record in set.iter() {
                    // Java gives an offset twice where it goes back; the first is meant.
                    let java = records.iter().find(|java| java["offset"] == record.offset);
                    // A cut message in a v1 wrapper shifts Java's offsets; ours is refused.
                    if let Some(java) = java {
                        assert_record(&record, java, &vector.name);
                    }
                }
            }
        }
    }
}

#[test]
fn offsets_rise_strictly_and_never_pass_the_position() {
    for vector in vectors("batches/corrupt").into_iter().filter(|vector| !vector.name.starts_with("bomb-")) {
        let (checked, unchecked) = outcomes(&vector);
        for outcome in [checked, unchecked] {
            let offsets = outcome.offsets();
            assert!(offsets.is_sorted_by(|a, b| a < b), "{}: {offsets:?}", vector.name);
            assert!(offsets.last().is_none_or(|last| *last < outcome.position), "{}", vector.name);
        }
    }
}

#[test]
fn a_bomb_is_read_when_the_limit_allows_it() {
    let limits = Limits { max_batch_bytes: 256 << 20 };
    let mut bombs = 0;
    for vector in vectors("batches/corrupt").iter().filter(|vector| vector.data.len() < 1 << 20) {
        let java = vector.json["check_crcs_true"]["records"].as_array().unwrap();
        let total: u64 = java.iter().filter_map(|record| record["value_len"].as_u64()).sum();
        if total < 128 << 20 {
            continue;
        }
        bombs += 1;
        let outcome = consume(&vector.data, 0, true, &limits, Vec::new());
        let lengths =
            outcome.sets.iter().flat_map(|set| set.iter().map(|record| record.value.unwrap().len() as u64));
        assert!(
            lengths.eq(java.iter().map(|record| record["value_len"].as_u64().unwrap())),
            "{}",
            vector.name
        );
        assert_eq!(outcome.position, vector.json["check_crcs_true"]["position_after"].as_i64().unwrap());
    }
    assert_eq!(bombs, 5);
}
