//! Whole Fetch answers of real brokers: what is delivered and where the position ends is what Java makes of them.
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

use common::{assert_record, consume, vectors};
use kafka_meta::wire::fetch;
use kafka_read::batch::Limits;

fn read_folder(folder: &str) {
    let (mut partitions, mut records) = (0, 0);
    for vector in vectors(folder) {
        let version = i16::try_from(vector.json["version"].as_i64().unwrap()).unwrap();
        let answer = fetch::decode(version, vector.data.clone())
            .unwrap_or_else(|error| panic!("{}: {error}", vector.name));
        let expected = vector.json["partitions"].as_array().cloned().unwrap_or_default();
        assert_eq!(answer.partitions.len(), expected.len(), "{}", vector.name);
        for (part, json) in answer.partitions.iter().zip(&expected) {
            let what = format!("{} partition {}", vector.name, part.partition);
            assert_eq!(i64::from(part.partition), json["partition"].as_i64().unwrap(), "{what}");
            // An error, or an offset the capture did not track: nothing to deliver.
            let (Some(from), Some(after)) = (json["fetch_offset"].as_i64(), json["position_after"].as_i64())
            else {
                continue;
            };
            let aborted = part.aborted.iter().map(|txn| (txn.producer_id, txn.first_offset)).collect();
            let outcome = consume(&part.records, from, true, &Limits::default(), aborted);
            let deliver = json["deliver"].as_array().unwrap();
            let seen: Vec<_> = outcome.sets.iter().flat_map(|set| set.iter()).collect();
            assert_eq!(seen.len(), deliver.len(), "{what}: {:?}", outcome.events);
            for (record, java) in seen.iter().zip(deliver) {
                assert_record(record, java, &what);
            }
            let epochs = outcome
                .sets
                .iter()
                .flat_map(|set| set.iter().map(|_| i64::from(set.leader_epoch().unwrap_or(-1))));
            for (epoch, java) in epochs.zip(deliver) {
                assert_eq!(epoch, java["leader_epoch"].as_i64().unwrap_or(-1), "{what}");
            }
            assert_eq!(outcome.position, after, "{what}");
            partitions += 1;
            records += seen.len();
        }
    }
    assert!(partitions > 100 && records > 1_000, "{partitions} partitions, {records} records");
}

#[test]
fn answers_of_kafka_4_3_1_are_read_as_java_reads_them() {
    read_folder("fetch/4.3.1");
}

#[test]
fn answers_of_kafka_3_9_1_are_read_as_java_reads_them() {
    read_folder("fetch/3.9.1");
}
