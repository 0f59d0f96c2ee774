//! Every record set Kafka's own code has written is read as it was meant: header fields, records, control types.
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

use common::{assert_record, vectors};
use kafka_read::batch::{BatchHeader, Codec, Control, Limits, scan};
use serde_json::Value;

fn assert_header(header: &BatchHeader, json: &Value, what: &str) {
    assert_eq!(u64::from(header.magic), json["magic"].as_u64().unwrap(), "{what}");
    assert_eq!(u64::from(header.crc), json["crc"].as_u64().unwrap(), "{what}");
    assert_eq!(header.size as u64, json["size"].as_u64().unwrap(), "{what}");
    assert_eq!(header.last_offset(), json["last_offset"].as_i64().unwrap(), "{what}");
    assert_eq!(header.next_offset(), json["next_offset"].as_i64().unwrap(), "{what}");
    assert_eq!(i64::from(header.attributes), json["attributes"].as_i64().unwrap(), "{what}");
    assert_eq!(header.max_timestamp, json["max_timestamp"].as_i64().unwrap(), "{what}");
    let codec = header.codec().map(Codec::name).unwrap();
    assert_eq!(codec, json["compression"].as_str().unwrap(), "{what}");
    if header.magic < 2 {
        return;
    }
    assert_eq!(header.base_offset, json["base_offset"].as_i64().unwrap(), "{what}");
    assert_eq!(i64::from(header.last_offset_delta), json["last_offset_delta"].as_i64().unwrap(), "{what}");
    assert_eq!(
        i64::from(header.leader_epoch.unwrap_or(-1)),
        json["partition_leader_epoch"].as_i64().unwrap(),
        "{what}"
    );
    assert_eq!(header.producer_id, json["producer_id"].as_i64().unwrap(), "{what}");
    assert_eq!(i64::from(header.producer_epoch), json["producer_epoch"].as_i64().unwrap(), "{what}");
    assert_eq!(i64::from(header.base_sequence), json["base_sequence"].as_i64().unwrap(), "{what}");
    assert_eq!(header.is_transactional(), json["is_transactional"].as_bool().unwrap(), "{what}");
    assert_eq!(header.is_control(), json["is_control"].as_bool().unwrap(), "{what}");
    assert_eq!(i64::from(header.record_count), json["count"].as_i64().unwrap(), "{what}");
}

fn read_folder(folder: &str) {
    for vector in vectors(folder) {
        let mut batches = scan(vector.data.clone());
        for (index, json) in vector.json["batches"].as_array().unwrap().iter().enumerate() {
            let what = format!("{} batch {index}", vector.name);
            assert_eq!(batches.position() as u64, json["position"].as_u64().unwrap(), "{what}");
            let batch = batches.next().unwrap_or_else(|| panic!("{what} is missing")).unwrap();
            assert_header(&batch.header, json, &what);
            batch.verify(true).unwrap_or_else(|error| panic!("{what}: {error}"));
            let set = batch.open(&Limits::default(), 0).unwrap_or_else(|error| panic!("{what}: {error}"));
            let records = json["records"].as_array().unwrap();
            assert_eq!(set.len(), records.len(), "{what}");
            for (record, json) in set.iter().zip(records) {
                assert_record(&record, json, &what);
            }
            let wanted = match json["control_type"].as_str() {
                Some("ABORT") => Some(Control::Abort),
                Some("COMMIT") => Some(Control::Commit),
                Some(_) => Some(Control::Unknown),
                None => None,
            };
            assert_eq!(batch.control(), wanted, "{what}");
        }
        assert!(batches.next().is_none(), "{}", vector.name);
        assert_eq!(batches.tail_len(), 0, "{}", vector.name);
    }
}

#[test]
fn format_v2_is_read_as_java_wrote_it() {
    read_folder("batches/v2");
}

#[test]
fn formats_v0_and_v1_are_read_as_java_wrote_them() {
    read_folder("batches/legacy");
}

#[test]
fn reading_from_any_offset_gives_the_records_from_there_on() {
    for vector in vectors("batches/v2").into_iter().chain(vectors("batches/legacy")) {
        for batch in scan(vector.data.clone()).map(Result::unwrap) {
            let all: Vec<_> = batch
                .open(&Limits::default(), i64::MIN)
                .unwrap()
                .iter()
                .map(|record| record.offset)
                .collect();
            let next = batch.header.next_offset();
            let edges = all.iter().copied().take(20).chain(all.iter().copied().rev().take(5));
            for from in edges.flat_map(|offset| [offset, offset.saturating_add(1)]).chain([next]) {
                let set = batch.open(&Limits::default(), from).unwrap();
                let wanted: Vec<_> = all.iter().copied().filter(|offset| *offset >= from).collect();
                assert_eq!(
                    set.iter().map(|record| record.offset).collect::<Vec<_>>(),
                    wanted,
                    "{} {from}",
                    vector.name
                );
                assert_eq!(set.first_offset(), wanted.first().copied());
                assert_eq!(set.last_offset(), wanted.last().copied());
            }
        }
    }
}
