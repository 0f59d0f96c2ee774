//! The session against recorded exchanges, against the facts noted from real brokers, and against a model of a
//! broker's side of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_possible_wrap)]

mod broker;
mod facts;
mod golden;
mod property;
mod script;

use kafka_meta::TopicName;
use kafka_meta::wire::fetch::{FetchAnswer, decode};
use kafka_meta::wire::protocol::messages::{FetchRequest, FetchResponse};
use kafka_meta::wire::protocol::protocol::{Decodable, Encodable};
use uuid::Uuid;

use super::{FetchSettings, Plan, Want};

fn settings() -> FetchSettings {
    FetchSettings {
        max_wait_ms: 50,
        min_bytes: 1,
        max_bytes: 52_428_800,
        committed_only: false,
        rack: String::new(),
    }
}

fn want(topic: &str, topic_id: Uuid, partition: i32, offset: i64) -> Want {
    Want {
        topic: TopicName::new(topic),
        topic_id,
        partition,
        offset,
        leader_epoch: None,
        last_fetched_epoch: None,
        max_bytes: 1_048_576,
    }
}

/// The plan's request as bytes: whatever the session says has to be sayable in the version it is said in.
fn request_bytes(plan: &Plan, version: i16) -> Vec<u8> {
    assert!(plan.versions().contains(&version), "{plan:?} in version {version}");
    let mut bytes = Vec::new();
    plan.request(version, &settings()).encode(&mut bytes, version).unwrap();
    bytes
}

/// The plan's request as a broker reads it.
fn request(plan: &Plan, version: i16) -> FetchRequest {
    FetchRequest::decode(&mut request_bytes(plan, version).as_slice(), version).unwrap()
}

/// The broker's answer as we read it.
fn answer(response: &FetchResponse, version: i16) -> FetchAnswer {
    let mut bytes = Vec::new();
    response.encode(&mut bytes, version).unwrap();
    decode(version, bytes.into()).unwrap()
}
