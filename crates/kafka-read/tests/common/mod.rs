//! Golden vectors: finding them, reading their JSON, comparing records, and a reader that acts as a consumer does.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use kafka_read::batch::{
    AbortedFilter, BatchError, Limits, RawBatch, RawRecord, RecordSet, Verdict, resync, scan,
};
use kafka_read::{Timestamp, TimestampType};
use serde_json::Value;

pub mod sha256;

/// The folder of golden vectors.
pub fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden").join(folder)
}

/// A vector: its name, its bytes, its JSON.
pub struct Vector {
    pub name: String,
    pub data: Bytes,
    pub json: Value,
}

/// Every vector of a folder, by name; at least one.
pub fn vectors(folder: &str) -> Vec<Vector> {
    let folder = golden(folder);
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "bin"))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no vectors in {}", folder.display());
    names
        .into_iter()
        .map(|path| Vector {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            data: Bytes::from(std::fs::read(&path).unwrap()),
            json: serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap(),
        })
        .collect()
}

pub fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Compares a key or value with `NAME_hex`, or `NAME_len` and `NAME_sha256`.
pub fn assert_part(part: Option<&[u8]>, name: &str, json: &Value, what: &str) {
    let Some(text) = json.get(format!("{name}_hex")) else {
        let part = part.unwrap_or_else(|| panic!("{what}: {name} is null"));
        assert_eq!(part.len() as u64, json[format!("{name}_len")].as_u64().unwrap(), "{what}: {name}");
        assert_eq!(sha256::hex(part), json[format!("{name}_sha256")].as_str().unwrap(), "{what}: {name}");
        return;
    };
    assert_eq!(part.map(<[u8]>::to_vec), text.as_str().map(hex), "{what}: {name}");
}

/// Compares everything about a record that the JSON tells.
pub fn assert_record(record: &RawRecord<'_>, json: &Value, what: &str) {
    assert_eq!(record.offset, json["offset"].as_i64().unwrap(), "{what}");
    assert_eq!(record.timestamp.millis(), json["timestamp"].as_i64().unwrap(), "{what}");
    if let Some(kind) = json["timestamp_type"].as_str() {
        let kind = match kind {
            "NoTimestampType" => TimestampType::None,
            "CreateTime" => TimestampType::CreateTime,
            "LogAppendTime" => TimestampType::LogAppendTime,
            other => panic!("{what}: {other}"),
        };
        assert_eq!(record.timestamp, Timestamp::new(record.timestamp.millis(), kind), "{what}");
    }
    assert_part(record.key, "key", json, what);
    assert_part(record.value, "value", json, what);
    if let Some(headers) = json["headers"].as_array() {
        let wanted: Vec<_> = headers
            .iter()
            .map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].as_str().map(hex)))
            .collect();
        let seen: Vec<_> = record
            .headers
            .iter()
            .map(|header| (header.key.into_owned(), header.value.map(|value| value.to_vec())))
            .collect();
        assert_eq!(seen, wanted, "{what}");
    }
}

/// What a consumer makes of one partition of an answer.
#[derive(Default)]
pub struct Outcome {
    pub sets: Vec<RecordSet>,
    /// What was stepped past, and what stopped it, in order.
    pub events: Vec<String>,
    pub position: i64,
}

impl Outcome {
    pub fn offsets(&self) -> Vec<i64> {
        self.sets.iter().flat_map(|set| set.iter().map(|record| record.offset)).collect()
    }
}

/// Reads `data` from `position` as a consumer does: filter, CRC, open, step past what is damaged.
pub fn consume(
    data: &Bytes,
    position: i64,
    check_crcs: bool,
    limits: &Limits,
    aborted: Vec<(i64, i64)>,
) -> Outcome {
    let mut filter = AbortedFilter::new(aborted);
    let mut outcome = Outcome { position, ..Outcome::default() };
    let mut start = 0;
    loop {
        let mut batches = scan(data.slice(start..));
        let lost = loop {
            match batches.next() {
                None => {
                    if batches.tail_len() > 0 {
                        outcome.events.push(format!("tail {}", batches.tail_len()));
                    }
                    return outcome;
                }
                Some(Err(damage)) => {
                    outcome.events.push(format!("{:?}", damage.what));
                    break (start + damage.position, damage.claimed_next);
                }
                Some(Ok(batch)) => {
                    let at = start + batches.position() - batch.bytes.len();
                    match step(&batch, &mut outcome, &mut filter, check_crcs, limits) {
                        Step::On => {}
                        Step::Stop => return outcome,
                        Step::Lost => break (at, Some(batch.header.next_offset())),
                    }
                }
            }
        };
        // The header is not to be trusted: on at the next good batch, else by its claim.
        match resync(data, lost.0) {
            Some(at) => start = at,
            None => {
                outcome.position = outcome.position.max(lost.1.unwrap_or(outcome.position));
                outcome.events.push("lost".to_owned());
                return outcome;
            }
        }
    }
}

enum Step {
    On,
    Stop,
    Lost,
}

fn step(
    batch: &RawBatch,
    outcome: &mut Outcome,
    filter: &mut AbortedFilter,
    check_crcs: bool,
    limits: &Limits,
) -> Step {
    let header = &batch.header;
    if header.next_offset() <= outcome.position {
        return Step::On;
    }
    if batch.verify(check_crcs).is_err() {
        outcome.events.push("Crc".to_owned());
        return Step::Lost;
    }
    if filter.decide(header, || batch.control()) == Verdict::Deliver {
        match batch.open(limits, outcome.position) {
            Ok(set) => outcome.sets.push(set),
            Err(BatchError::Damaged(reason)) => outcome.events.push(format!("{reason:?}")),
            Err(BatchError::TooLarge { .. }) => {
                outcome.events.push("stop: too large".to_owned());
                return Step::Stop;
            }
            Err(BatchError::UnsupportedCodec { id }) => {
                outcome.events.push(format!("stop: codec {id}"));
                return Step::Stop;
            }
            Err(other) => panic!("{other}"),
        }
    }
    outcome.position = header.next_offset();
    Step::On
}
