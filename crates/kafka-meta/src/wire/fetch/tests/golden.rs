//! Answers recorded from real brokers: every field as their JSON says, and every cut refused.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::protocol::{Decodable, StrBytes};
use serde_json::Value;
use uuid::Uuid;

use super::super::{
    AbortedTransaction, EpochEnd, FetchAnswer, FetchedPartition, LeaderHint, Malformed, NodeEndpoint,
    TopicRef, decode,
};
use super::codec::from_codec;
use crate::ErrorCode;

pub(super) struct Vector {
    pub(super) name: String,
    pub(super) version: i16,
    pub(super) body: Bytes,
    json: Value,
}

/// Every recorded answer, both broker versions.
pub(super) fn vectors() -> Vec<Vector> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/fetch");
    let mut files: Vec<PathBuf> = ["3.9.1", "4.3.1"]
        .iter()
        .flat_map(|broker| std::fs::read_dir(root.join(broker)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            Vector {
                name: path.display().to_string(),
                version: json["version"].as_i64().unwrap() as i16,
                body: std::fs::read(path.with_extension("bin")).unwrap().into(),
                json,
            }
        })
        .collect()
}

/// Kafka prints ids in unpadded URL-safe base 64.
fn id(text: &str) -> Uuid {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut value = 0u128;
    for (at, digit) in text.bytes().enumerate() {
        let bits = DIGITS.iter().position(|&known| known == digit).unwrap() as u128;
        // The 22nd digit carries two bits of the id and four of padding.
        value = if at == 21 { value << 2 | bits >> 4 } else { value << 6 | bits };
    }
    Uuid::from_u128(value)
}

fn long(value: &Value, missing: i64) -> i64 {
    if value.is_null() { missing } else { value.as_i64().unwrap() }
}

fn int(value: &Value, missing: i32) -> i32 {
    long(value, missing.into()) as i32
}

/// The answer as the JSON beside it tells it, and the sizes of its records (their bytes are not in the JSON).
fn expected(json: &Value) -> (FetchAnswer, Vec<usize>) {
    let response = &json["response"];
    let mut sizes = Vec::new();
    let mut answer = FetchAnswer {
        throttle: Duration::from_millis(response["throttleTimeMs"].as_u64().unwrap()),
        error: ErrorCode::from(int(&response["errorCode"], 0) as i16),
        session_id: int(&response["sessionId"], 0),
        partitions: Vec::new(),
        endpoints: Vec::new(),
    };
    for topic in response["responses"].as_array().unwrap() {
        let name = match topic["topic"].as_str() {
            Some(name) => TopicRef::Name(StrBytes::from_string(name.to_owned())),
            None => TopicRef::Id(id(topic["topicId"].as_str().unwrap())),
        };
        for partition in topic["partitions"].as_array().unwrap() {
            sizes.push(partition["recordsSizeInBytes"].as_u64().unwrap() as usize);
            let aborted = partition["abortedTransactions"].as_array().into_iter().flatten();
            let diverging = &partition["divergingEpoch"];
            let leader = &partition["currentLeader"];
            answer.partitions.push(FetchedPartition {
                topic: name.clone(),
                partition: int(&partition["partitionIndex"], -1),
                error: ErrorCode::from(int(&partition["errorCode"], -1) as i16),
                high_watermark: long(&partition["highWatermark"], -1),
                last_stable_offset: long(&partition["lastStableOffset"], -1),
                log_start_offset: long(&partition["logStartOffset"], -1),
                aborted: aborted
                    .map(|one| AbortedTransaction {
                        producer_id: one["producerId"].as_i64().unwrap(),
                        first_offset: one["firstOffset"].as_i64().unwrap(),
                    })
                    .collect(),
                diverging: diverging.is_object().then(|| EpochEnd {
                    epoch: int(&diverging["epoch"], -1),
                    end_offset: long(&diverging["endOffset"], -1),
                }),
                current_leader: leader.is_object().then(|| LeaderHint {
                    node: int(&leader["leaderId"], -1),
                    epoch: int(&leader["leaderEpoch"], -1),
                }),
                preferred_read_replica: Some(int(&partition["preferredReadReplica"], -1))
                    .filter(|&id| id >= 0),
                records: Bytes::new(),
            });
        }
    }
    for endpoint in response["nodeEndpoints"].as_array().into_iter().flatten() {
        answer.endpoints.push(NodeEndpoint {
            node: int(&endpoint["nodeId"], -1),
            host: endpoint["host"].as_str().unwrap().to_owned(),
            port: endpoint["port"].as_u64().unwrap() as u16,
            rack: endpoint["rack"].as_str().map(str::to_owned),
        });
    }
    (answer, sizes)
}

#[test]
fn recorded_answers_read_as_their_json_says() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 484);
    let (mut hints, mut aborted, mut diverging, mut replicas) = (0, 0, 0, 0);
    for Vector { name, version, body, json } in vectors {
        let mut read = decode(version, body.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (expected, sizes) = expected(&json);
        for (partition, size) in read.partitions.iter_mut().zip(sizes) {
            let records = std::mem::take(&mut partition.records);
            assert_eq!(records.len(), size, "{name}");
            if size > 0 {
                let range = body.as_ptr_range();
                assert!(range.contains(&records.as_ptr()), "{name}: the records were copied");
            }
            hints += usize::from(partition.current_leader.is_some());
            aborted += partition.aborted.len();
            diverging += usize::from(partition.diverging.is_some());
            replicas += usize::from(partition.preferred_read_replica.is_some());
        }
        assert_eq!(read, expected, "{name}");
    }
    // The vectors must reach every optional field, or this test shows nothing about them.
    assert!(hints > 0 && aborted > 0 && diverging > 0 && replicas > 0);
}

#[test]
fn recorded_answers_read_as_the_codec_reads_them() {
    for Vector { name, version, body, .. } in vectors() {
        let theirs = FetchResponse::decode(&mut body.clone(), version).unwrap();
        assert_eq!(decode(version, body).unwrap(), from_codec(&theirs, version), "{name}");
    }
}

#[test]
fn an_answer_cut_at_any_byte_is_an_error() {
    let mut cuts = 0;
    for Vector { name, version, body, .. } in vectors() {
        // Inside the records one cut is as good as another.
        let step = if body.len() > 2_000 { 97 } else { 1 };
        for end in (0..body.len()).step_by(step) {
            let error = decode(version, body.slice(..end)).expect_err(&format!("{name} cut at {end}"));
            let source = error.source().and_then(|source| source.downcast_ref::<Malformed>());
            assert!(source.is_some(), "{name} cut at {end}: {error}");
            cuts += 1;
        }
    }
    assert!(cuts > 50_000, "{cuts}");
}

#[test]
fn bytes_behind_the_answer_are_left_alone() {
    for Vector { name, version, body, .. } in vectors().into_iter().take(20) {
        let longer = Bytes::from([&body[..], &[7, 7, 7]].concat());
        assert_eq!(decode(version, longer).unwrap(), decode(version, body).unwrap(), "{name}");
    }
}
