//! Recorded fetches of real brokers, asked again of the embedded one.
//!
//! The logs are rebuilt from the recorded answers, each recorded request is sent in the recorded order, and the
//! answers must be equal but for topic ids, session ids and addresses.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::HashMap;
use std::path::Path;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, FetchRequest, FetchResponse};
use kafka_protocol::protocol::Decodable;
use serde_json::Value;
use testkit::embedded::{Embedded, Release, TopicSpec};
use uuid::Uuid;

mod behaviours;
use behaviours::raw::Raw;

struct Recorded {
    file: String,
    version: i16,
    request: FetchRequest,
    response: FetchResponse,
    /// Names of the answer's partitions, in order; `None` for an id nobody knows.
    names: Vec<Option<String>>,
}

fn recorded(release: &str) -> Vec<Recorded> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/fetch").join(release);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    assert!(files.len() > 200, "no golden answers");
    let read = |path: &std::path::PathBuf| {
        let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let version = i16::try_from(json["version"].as_i64().unwrap()).unwrap();
        let mut body = unhex(json["request_body_hex"].as_str().unwrap());
        let request = FetchRequest::decode(&mut body, version).unwrap();
        let mut body = Bytes::from(std::fs::read(path.with_extension("bin")).unwrap());
        let response = FetchResponse::decode(&mut body, version).unwrap();
        let names = json["partitions"].as_array().unwrap().iter();
        let names = names.map(|part| part["topic"].as_str().map(str::to_owned)).collect();
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        Recorded { file, version, request, response, names }
    };
    files.iter().map(read).collect()
}

fn unhex(text: &str) -> Bytes {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect::<Vec<u8>>().into()
}

fn case<'a>(all: &'a [Recorded], name: &str) -> &'a FetchResponse {
    &all.iter().find(|one| one.file == name).unwrap_or_else(|| panic!("no {name}")).response
}

fn records(response: &FetchResponse, at: usize) -> Bytes {
    behaviours::raw::parts(response)[at].records.clone().unwrap()
}

/// The recorded cluster: two nodes in racks r1 and r2, and the topics of the recordings.
fn rebuild(all: &[Recorded], release: Release) -> Embedded {
    let kafka = Embedded::start(2);
    kafka.set_release(release);
    kafka.set_rack_aware(true);
    kafka.set_rack(1, "r1");
    kafka.set_rack(2, "r2");
    let here = |placed: Vec<Vec<i32>>| TopicSpec::new(0).with_placement(placed);
    for (topic, placed) in [
        ("g-plain", vec![vec![1], vec![1]]),
        ("g-empty", vec![vec![1]]),
        ("g-append", vec![vec![1]]),
        ("g-start", vec![vec![1]]),
        ("g-big", vec![vec![1]]),
        ("g-epoch", vec![vec![1, 2]]),
        ("g-node2", vec![vec![2]]),
        ("g-rf2", vec![vec![1, 2]]),
        ("g-seg", vec![vec![1]]),
        ("g-txn", vec![vec![1]]),
    ] {
        assert!(kafka.create_topic_with(topic, here(placed)));
    }
    let plain = case(all, "v16-plain-all");
    kafka.append("g-plain", 0, records(plain, 0));
    kafka.append("g-plain", 1, records(plain, 1));
    kafka.append("g-append", 0, records(case(all, "v16-log-append-time"), 0));
    kafka.append("g-seg", 0, records(case(all, "v16-segment-end"), 0));
    kafka.roll_segment("g-seg", 0);
    kafka.append_at("g-seg", 0, &[1]);
    kafka.append("g-txn", 0, records(case(all, "v16-txn-uncommitted"), 0));
    kafka.append_at("g-rf2", 0, &[1, 2, 3, 4]);
    // What lies below the log start was never recorded.
    kafka.append_at("g-start", 0, &[1; 6]);
    kafka.append("g-start", 0, records(case(all, "v16-log-start-7"), 0));
    kafka.delete_records("g-start", 0, 7);
    // Of the second batch only the beginning was recorded.
    kafka.append("g-big", 0, records(case(all, "v16-max-bytes-zero"), 0));
    let more = usize::try_from(45 - kafka.log_end("g-big", 0)).unwrap();
    kafka.append_records("g-big", 0, (0..more).map(|_| (b"k", vec![b'v'; 200])));
    let epochs = records(case(all, "v16-leader-epochs"), 0);
    let half = epochs.len() / 2;
    kafka.append("g-epoch", 0, epochs.slice(..half));
    kafka.move_leader("g-epoch", 0, 2);
    kafka.move_leader("g-epoch", 0, 1);
    kafka.append("g-epoch", 0, epochs.slice(half..));
    kafka
}

/// An answer without what differs from run to run, topics by name.
fn comparable(answer: &FetchResponse, names: &HashMap<Uuid, String>, file: &str) -> String {
    let mut answer = answer.clone();
    for endpoint in &mut answer.node_endpoints {
        endpoint.host = behaviours::raw::text("host");
        endpoint.port = 1;
    }
    answer.session_id = i32::from(answer.session_id != 0);
    for topic in &mut answer.responses {
        if let Some(name) = names.get(&topic.topic_id) {
            topic.topic = behaviours::raw::name(name);
            topic.topic_id = Uuid::nil();
        }
        for part in &mut topic.partitions {
            // A null and an empty set of records mean the same.
            let records = part.records.take().unwrap_or_default();
            let mut told = BytesMut::new();
            if file.contains("partial-tail") {
                told.put_slice(&records[..1901]);
                told.put_slice(records.len().to_string().as_bytes());
            } else {
                told.put_slice(&records);
            }
            part.records = Some(told.freeze());
        }
    }
    format!("{answer:#?}")
}

/// How many of the recordings are answered differently; `spoil` changes the cluster before they are asked.
async fn replay(folder: &str, release: Release, spoil: impl FnOnce(&Embedded)) -> Vec<String> {
    let all = recorded(folder);
    let kafka = rebuild(&all, release);
    spoil(&kafka);
    let connector = kafka.connector();
    let mut node = Raw::connect(&connector, "node-1.embedded", 9092).await.unwrap();
    // Recorded ids and ours, by name.
    let mut recorded_names: HashMap<Uuid, String> = HashMap::new();
    for one in all.iter().filter(|one| one.version >= 13) {
        let ids =
            one.response.responses.iter().flat_map(|topic| topic.partitions.iter().map(|_| topic.topic_id));
        for (id, name) in ids.zip(&one.names) {
            recorded_names.extend(name.clone().map(|name| (id, name)));
        }
    }
    let own_names: HashMap<Uuid, String> =
        recorded_names.values().map(|name| (kafka.topic_id(name), name.clone())).collect();
    let mut sessions: HashMap<i32, i32> = HashMap::new();
    let mut different = Vec::new();
    for one in &all {
        let mut request = one.request.clone();
        let own = |id: Uuid| recorded_names.get(&id).map_or(id, |name| kafka.topic_id(name));
        for topic in &mut request.topics {
            topic.topic_id = own(topic.topic_id);
        }
        for topic in &mut request.forgotten_topics_data {
            topic.topic_id = own(topic.topic_id);
        }
        request.session_id = sessions.get(&request.session_id).copied().unwrap_or(request.session_id);
        let answer = node.call(one.version, &request).await;
        if one.response.session_id != 0 {
            sessions.insert(one.response.session_id, answer.session_id);
        }
        let (real, ours) = (
            comparable(&one.response, &recorded_names, &one.file),
            comparable(&answer, &own_names, &one.file),
        );
        if real != ours {
            different.push(format!("{}\nreal {real}\nours {ours}", one.file));
        }
    }
    different
}

#[tokio::test(start_paused = true)]
async fn fetches_recorded_from_4_3_1_are_answered_alike() {
    let different = replay("4.3.1", Release::V4_3, |_| {}).await;
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn fetches_recorded_from_3_9_1_are_answered_alike() {
    let different = replay("3.9.1", Release::V3_9, |_| {}).await;
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_spoilt_answer_is_noticed() {
    let mut n = 0;
    let different = replay("4.3.1", Release::V4_3, |kafka| {
        kafka.fault(ApiKey::Fetch).every(10).always().map(move |answer: &mut FetchResponse| {
            n += 1;
            match answer.responses.first_mut().and_then(|topic| topic.partitions.first_mut()) {
                Some(part) if n % 2 == 0 => part.high_watermark += 1,
                Some(part) => part.records = Some(Bytes::from_static(b"spoilt")),
                None => answer.error_code = 99,
            }
        });
    })
    .await;
    assert!(different.len() >= 26, "only {} of 27 were noticed", different.len());
}
