//! Kafka's wire: the codec, framing, bounded decoding and the choice of versions.
//!
//! Not part of the public surface, and no connection is opened here: everything in this module works on bytes.
//!
//! The codec crate serves messages only. Two of its habits are fenced in here: it reserves memory by the counts
//! an answer claims ([`guard`] checks them first), and the versions in its API table are not all encodable
//! ([`versions`] asks the request and response types instead).

pub use kafka_protocol as protocol;

pub mod fetch;
pub mod frame;
pub mod guard;
pub mod versions;

use std::borrow::Cow;

use kafka_protocol::messages::{self, ApiKey};
use kafka_protocol::protocol::StrBytes;

use crate::TopicName;

/// Kafka's name of an API, as errors and logs show it; the number for one without a name.
pub fn api_name(api_key: i16) -> Cow<'static, str> {
    match ApiKey::try_from(api_key) {
        Ok(key) => Cow::Owned(format!("{key:?}")),
        Err(()) => Cow::Owned(format!("API {api_key}")),
    }
}

/// A topic's name as a request carries it; nothing is copied.
pub fn topic_name(topic: TopicName) -> messages::TopicName {
    messages::TopicName(StrBytes::from_static_str(topic.as_str()))
}
