//! The embedded formats, byte for byte against recorded ones, and against bytes nobody honest would write.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::super::{Assignment, Assignor, Subscription, java};
use super::golden::read_sticky_user_data;
use super::{hex, partitions, recorded, strings, unhex};

fn opt_bytes(value: &Value) -> Option<Bytes> {
    value.as_str().map(|text| Bytes::from(unhex(text)))
}

fn opt_generation(value: &Value) -> Option<i32> {
    value.as_i64().map(|generation| generation as i32).filter(|generation| *generation >= 0)
}

fn subscription(value: &Value) -> Subscription {
    Subscription {
        topics: strings(&value["topics"]),
        user_data: opt_bytes(&value["user_data_hex"]),
        owned: partitions(&value["owned"]),
        generation: opt_generation(&value["generation"]),
        rack: value["rack"].as_str().map(str::to_owned),
    }
}

fn decode_subscription(text: &Value) -> kafka_meta::Result<Subscription> {
    Subscription::decode(&Bytes::from(unhex(text.as_str().unwrap())))
}

fn decode_assignment(text: &Value) -> kafka_meta::Result<Assignment> {
    Assignment::decode(&Bytes::from(unhex(text.as_str().unwrap())))
}

#[test]
fn every_recorded_line_is_written_and_read_as_java_does() {
    let mut seen = std::collections::BTreeMap::new();
    for line in recorded("protocol.jsonl") {
        let what = line["what"].as_str().unwrap();
        *seen.entry(what.to_owned()).or_insert(0) += 1;
        match what {
            "subscription" => {
                let input = subscription(&line["input"]);
                for (version, bytes) in line["hex"].as_object().unwrap() {
                    let ours = input.encode_as(version.parse().unwrap()).unwrap();
                    assert_eq!(hex(&ours), bytes.as_str().unwrap(), "{line}");
                    let expected = subscription(&line["read_back"][version]);
                    assert_eq!(decode_subscription(bytes).unwrap(), expected, "{line}");
                }
            }
            "assignment" => {
                let input = Assignment {
                    partitions: partitions(&line["input"]["partitions"]),
                    user_data: opt_bytes(&line["input"]["user_data_hex"]),
                };
                for (version, bytes) in line["hex"].as_object().unwrap() {
                    let ours = input.encode_as(version.parse().unwrap()).unwrap();
                    assert_eq!(hex(&ours), bytes.as_str().unwrap(), "{line}");
                    let read = decode_assignment(bytes).unwrap();
                    assert_eq!(read.partitions, partitions(&line["read_back"]), "{line}");
                    assert_eq!(read.user_data, input.user_data);
                }
            }
            "decode-subscription" => match line.get("read_back") {
                Some(expected) => {
                    assert_eq!(decode_subscription(&line["hex"]).unwrap(), subscription(expected), "{line}");
                }
                None => assert!(decode_subscription(&line["hex"]).is_err(), "{line}"),
            },
            "decode-assignment" => match line.get("read_back") {
                Some(expected) => {
                    let read = decode_assignment(&line["hex"]).unwrap();
                    assert_eq!(read.partitions, partitions(&expected["partitions"]), "{line}");
                    assert_eq!(read.user_data, opt_bytes(&expected["user_data_hex"]), "{line}");
                }
                None => assert!(decode_assignment(&line["hex"]).is_err(), "{line}"),
            },
            "cooperative-user-data" => {
                let generation = line["generation"].as_i64().unwrap() as i32;
                let ours = Assignor::CooperativeSticky.user_data(generation).unwrap();
                assert_eq!(hex(&ours), line["hex"].as_str().unwrap());
            }
            "sticky-user-data" => sticky_user_data(&line),
            other => panic!("nothing reads {other}"),
        }
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
}

/// We write none of it; the recorded lines show that topics leave a Java map in the order we think.
fn sticky_user_data(line: &Value) {
    let Some(bytes) = line["hex"].as_str() else { return };
    let (read, generation) = read_sticky_user_data(&unhex(bytes));
    assert_eq!(i64::from(generation), line["generation"].as_i64().unwrap());
    let mut topics: Vec<String> = Vec::new();
    for (topic, _) in partitions(&line["partitions"]) {
        if !topics.contains(&topic) {
            topics.push(topic);
        }
    }
    let order = java::map_order(topics.iter().map(|topic| (java::string_hash(topic), topic.as_str())));
    let mut written: Vec<&str> = read.iter().map(|(topic, _)| topic.as_str()).collect();
    written.dedup();
    assert_eq!(written, order, "{line}");
}

#[test]
fn eager_assignors_add_no_user_data() {
    assert_eq!(Assignor::Range.user_data(7), None);
    assert_eq!(Assignor::RoundRobin.user_data(7), None);
}

#[test]
fn a_cut_at_any_byte_is_an_error_and_not_a_shorter_list() {
    let whole = Subscription {
        topics: vec!["orders".into(), "payments".into()],
        user_data: Some(Bytes::from_static(b"data")),
        owned: vec![("orders".into(), 0), ("orders".into(), 3)],
        generation: Some(4),
        rack: Some("a".into()),
    };
    let bytes = whole.encode().unwrap();
    assert_eq!(Subscription::decode(&bytes).unwrap(), whole);
    for len in 0..bytes.len() {
        assert!(Subscription::decode(&bytes.slice(..len)).is_err(), "{len}");
    }
    let whole = Assignment { partitions: whole.owned, user_data: None };
    let bytes = whole.encode().unwrap();
    for len in 0..bytes.len() {
        assert!(Assignment::decode(&bytes.slice(..len)).is_err(), "{len}");
    }
}

#[test]
fn a_count_beyond_the_bytes_that_follow_is_refused() {
    // Versions, then two thousand million topics, or partitions of one topic.
    for bytes in ["00037fffffff00000000", "000000000001000174 7fffffff00000000"] {
        let bytes = Bytes::from(unhex(&bytes.replace(' ', "")));
        assert!(Assignment::decode(&bytes).is_err());
        assert!(Subscription::decode(&bytes).is_err());
    }
}

#[test]
fn a_name_too_long_for_the_format_is_an_error() {
    let partitions = vec![("x".repeat(40_000), 0)];
    assert!(Assignment { partitions: partitions.clone(), user_data: None }.encode().is_err());
    assert!(Subscription { owned: partitions, ..Subscription::default() }.encode().is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 0_u8..5) {
        let mut framed = vec![0, version];
        framed.extend(bytes);
        let framed = Bytes::from(framed);
        _ = Subscription::decode(&framed);
        _ = Assignment::decode(&framed);
    }
}
