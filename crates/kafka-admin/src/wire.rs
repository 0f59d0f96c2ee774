//! Small steps between the codec's types and ours.

use kafka_meta::TopicName;
use kafka_meta::wire::protocol::messages;
use kafka_meta::wire::protocol::protocol::StrBytes;

use crate::plan::Refusal;

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn group(name: &str) -> messages::GroupId {
    messages::GroupId(text(name))
}

pub(crate) fn optional(text: Option<StrBytes>) -> Option<String> {
    text.map(|text| text.to_string())
}

/// `Ok` for code 0, else the refusal with the broker's own words.
pub(crate) fn check(code: i16, message: Option<StrBytes>) -> Result<(), Refusal> {
    match code {
        0 => Ok(()),
        code => Err(Refusal::new(code.into(), optional(message))),
    }
}

/// Groups what belongs to partitions by topic, in the order of first mention.
pub(crate) fn by_topic<T>(items: impl IntoIterator<Item = (TopicName, T)>) -> Vec<(TopicName, Vec<T>)> {
    let mut topics: Vec<(TopicName, Vec<T>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (topic, item) in items {
        let place = *places.entry(topic).or_insert(topics.len());
        match topics.get_mut(place) {
            Some((_, items)) => items.push(item),
            None => topics.push((topic, vec![item])),
        }
    }
    topics
}
