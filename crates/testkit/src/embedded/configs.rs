//! DescribeConfigs and IncrementalAlterConfigs: settings of topics, brokers and groups.
//!
//! A handful of settings of each kind is known; most are only kept and told. What has an effect: a topic's
//! `message.timestamp.type` and `cleanup.policy`, a group's session timeout and heartbeat interval.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::incremental_alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::api::{Api, Call, Started, millis};
use super::consumer_group::Timing;
use super::versions::Release;
use super::world::World;

pub(super) const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;

const SESSION: &str = "consumer.session.timeout.ms";
const HEARTBEAT: &str = "consumer.heartbeat.interval.ms";

type Refused = (i16, String);

/// What a value has to look like.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Number,
    /// Entries separated by commas, of these.
    List(&'static [&'static str]),
    OneOf(&'static [&'static str]),
    Text,
}

/// Kind of resource, name, shape, default.
const KNOWN: &[(i8, &str, Shape, &str)] = &[
    (TOPIC, "cleanup.policy", Shape::List(&["compact", "delete"]), "delete"),
    (TOPIC, "compression.type", Shape::Text, "producer"),
    (TOPIC, "max.message.bytes", Shape::Number, "1048588"),
    (TOPIC, "message.timestamp.type", Shape::OneOf(&["CreateTime", "LogAppendTime"]), "CreateTime"),
    (TOPIC, "min.insync.replicas", Shape::Number, "1"),
    (TOPIC, "retention.bytes", Shape::Number, "-1"),
    (TOPIC, "retention.ms", Shape::Number, "604800000"),
    (TOPIC, "segment.bytes", Shape::Number, "1073741824"),
    (TOPIC, "segment.ms", Shape::Number, "604800000"),
    (BROKER, "log.cleaner.threads", Shape::Number, "1"),
    (BROKER, "message.max.bytes", Shape::Number, "1048588"),
    (GROUP, HEARTBEAT, Shape::Number, ""),
    (GROUP, SESSION, Shape::Number, ""),
];

/// What has been set: kind of resource and its name → setting → value.
#[derive(Debug, Default)]
pub(super) struct Configs {
    set: BTreeMap<(i8, String), BTreeMap<String, String>>,
}

impl Configs {
    fn get(&self, kind: i8, of: &str, name: &str) -> Option<&str> {
        self.set.get(&(kind, of.to_owned()))?.get(name).map(String::as_str)
    }

    pub fn forget_topic(&mut self, topic: &str) {
        self.set.remove(&(TOPIC, topic.to_owned()));
    }

    /// Whether the topic's records are kept for ever, as far as no newer one has the same key.
    pub fn is_only_compacted(&self, topic: &str) -> bool {
        self.get(TOPIC, topic, "cleanup.policy") == Some("compact")
    }

    /// Session timeout and heartbeat interval as they are in force for one group.
    pub fn timing(&self, group: &str, inherited: &Timing) -> Timing {
        let own = |name, inherited| {
            let set = self.get(GROUP, group, name).and_then(|value| value.parse().ok());
            set.map_or(inherited, Duration::from_millis)
        };
        Timing {
            session: own(SESSION, inherited.session),
            heartbeat: own(HEARTBEAT, inherited.heartbeat),
            ..inherited.clone()
        }
    }

    fn inherited(&self, kind: i8, of: &str, name: &str, timing: &Timing) -> Option<(String, i8)> {
        match (kind, name) {
            (GROUP, SESSION) => return Some((millis(timing.session).to_string(), 5)),
            (GROUP, HEARTBEAT) => return Some((millis(timing.heartbeat).to_string(), 5)),
            (BROKER, name) if !of.is_empty() => {
                if let Some(all) = self.get(BROKER, "", name) {
                    return Some((all.to_owned(), 3));
                }
            }
            _ => {}
        }
        let known = KNOWN.iter().find(|known| (known.0, known.1) == (kind, name))?;
        Some((known.3.to_owned(), 5))
    }

    /// What is set now, with the changes of a request made.
    fn changed(
        &self,
        asked: &AlterConfigsResource,
        timing: &Timing,
    ) -> Result<BTreeMap<String, String>, Refused> {
        let (kind, of) = (asked.resource_type, asked.resource_name.to_string());
        let mut set = self.set.get(&(kind, of.clone())).cloned().unwrap_or_default();
        for op in &asked.configs {
            let name = op.name.to_string();
            let shape = check_name(kind, &name)?;
            let value = op.value.as_ref().map(ToString::to_string).unwrap_or_default();
            let list = matches!(shape, Shape::List(_));
            match op.config_operation {
                0 => {
                    check_value(&name, &value, shape)?;
                    set.insert(name, value);
                }
                1 => {
                    set.remove(&name);
                }
                2 | 3 if list => {
                    let present = set.get(&name).cloned();
                    let present =
                        present.or_else(|| self.inherited(kind, &of, &name, timing).map(|(value, _)| value));
                    let present = present.unwrap_or_default();
                    let entries = |text: &str| -> Vec<String> {
                        text.split(',').filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
                    };
                    let (mut held, named) = (entries(&present), entries(&value));
                    if op.config_operation == 2 {
                        let new: Vec<_> = named.into_iter().filter(|entry| !held.contains(entry)).collect();
                        held.extend(new);
                    } else {
                        held.retain(|entry| !named.contains(entry));
                    }
                    let value = held.join(",");
                    check_value(&name, &value, shape)?;
                    set.insert(name, value);
                }
                2 | 3 => {
                    let what = if op.config_operation == 2 { "APPEND" } else { "SUBTRACT" };
                    return Err((40, format!("Can't {what} to key {name} because its type is not LIST.")));
                }
                operation => return Err((42, format!("Unknown operation type {operation}"))),
            }
        }
        Ok(set)
    }
}

fn check_name(kind: i8, name: &str) -> Result<Shape, Refused> {
    let known = KNOWN.iter().find(|known| (known.0, known.1) == (kind, name));
    let what = match kind {
        GROUP => "group",
        _ => "topic",
    };
    known.map(|known| known.2).ok_or_else(|| (40, format!("Unknown {what} config name: {name}")))
}

fn check_value(name: &str, value: &str, shape: Shape) -> Result<(), Refused> {
    let fits = match shape {
        Shape::Number => value.parse::<i64>().is_ok(),
        Shape::List(known) => value.split(',').all(|entry| known.contains(&entry)),
        Shape::OneOf(known) => known.contains(&value),
        Shape::Text => true,
    };
    if fits {
        return Ok(());
    }
    let why = if matches!(shape, Shape::Number) { ": Not a number of type LONG" } else { "" };
    Err((40, format!("Invalid value {value} for configuration {name}{why}")))
}

/// What the broker's limits say of a group's settings.
fn check_group(set: &BTreeMap<String, String>, timing: &Timing) -> Result<(), Refused> {
    let limits = [
        (SESSION, "session.timeout.ms", timing.session_limits),
        (HEARTBEAT, "heartbeat.interval.ms", timing.heartbeat_limits),
    ];
    let of =
        |name: &str| set.get(name).and_then(|value| value.parse::<u64>().ok()).map(Duration::from_millis);
    for (name, suffix, (least, most)) in limits {
        let Some(value) = of(name) else { continue };
        if value < least {
            let text = format!("{name} must be greater than or equal to group.consumer.min.{suffix}");
            return Err((40, text));
        }
        if value > most {
            return Err((40, format!("{name} must be less than or equal to group.consumer.max.{suffix}")));
        }
    }
    if of(HEARTBEAT).unwrap_or(timing.heartbeat) >= of(SESSION).unwrap_or(timing.session) {
        return Err((40, format!("{SESSION} must be greater than {HEARTBEAT}")));
    }
    Ok(())
}

/// Whether there is such a resource, as far as this node may say.
fn check_resource(world: &World, kind: i8, of: &str) -> Result<(), Refused> {
    match kind {
        TOPIC if world.topics.contains_key(of) => Ok(()),
        TOPIC => Err((3, "This server does not host this topic-partition.".to_owned())),
        BROKER => Ok(()),
        GROUP if matches!(world.release, Release::V3_7 | Release::V3_9) => {
            Err((42, "Unknown resource type 32".to_owned()))
        }
        GROUP if of.is_empty() => Err((42, "Default group resources are not allowed.".to_owned())),
        GROUP => Ok(()),
        kind => Err((42, format!("Unknown resource type {kind}"))),
    }
}

/// What a new topic is given of its own.
pub(super) fn checked<'a>(
    configs: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<BTreeMap<String, String>, Refused> {
    let mut set = BTreeMap::new();
    for (name, value) in configs {
        let value = value.unwrap_or_default();
        check_value(name, value, check_name(TOPIC, name)?)?;
        set.insert(name.to_owned(), value.to_owned());
    }
    Ok(set)
}

/// Keeps what is set of a resource, and lets it take effect.
pub(super) fn put(world: &mut World, kind: i8, of: &str, set: BTreeMap<String, String>) {
    if kind == TOPIC
        && let Some(stamped) = set.get("message.timestamp.type").map(|value| value == "LogAppendTime")
    {
        world.set_stamps(of, stamped);
    }
    world.configs.set.insert((kind, of.to_owned()), set);
    world.touch();
}

/// The settings of a resource: name, value, source, and whether it is fixed.
pub(super) fn told(world: &World, kind: i8, of: &str) -> Vec<(String, String, i8, bool)> {
    let own = match kind {
        TOPIC => 1,
        BROKER if of.is_empty() => 3,
        BROKER => 2,
        _ => 8,
    };
    let mut all = Vec::new();
    if kind == BROKER && !of.is_empty() {
        all.push(("node.id".to_owned(), of.to_owned(), 4, true));
    }
    for (_, name, _, _) in KNOWN.iter().filter(|known| known.0 == kind) {
        let set = world.configs.get(kind, of, name).map(|value| (value.to_owned(), own));
        let found = set.or_else(|| world.configs.inherited(kind, of, name, &world.groups.timing));
        if let Some((value, source)) = found {
            all.push(((*name).to_owned(), value, source, false));
        }
    }
    all
}

fn text(text: String) -> Option<StrBytes> {
    Some(StrBytes::from_string(text))
}

impl Api for DescribeConfigsRequest {
    fn refuse(&self, _call: &Call, code: i16) -> DescribeConfigsResponse {
        let results = self.resources.iter().map(|asked| {
            DescribeConfigsResult::default()
                .with_error_code(code)
                .with_resource_type(asked.resource_type)
                .with_resource_name(asked.resource_name.clone())
        });
        DescribeConfigsResponse::default().with_results(results.collect())
    }

    fn start(self, world: &mut World, call: &Call) -> Started<DescribeConfigsResponse> {
        let mut response = self.refuse(call, 0);
        for (asked, answer) in self.resources.iter().zip(&mut response.results) {
            let of = asked.resource_name.as_str();
            let mut allowed = check_resource(world, asked.resource_type, of);
            if asked.resource_type == BROKER && !of.is_empty() && of != call.node.to_string() {
                let text = match of.parse::<i32>() {
                    Ok(_) => format!(
                        "Unexpected broker id, expected {} or empty string, but received {of}",
                        call.node
                    ),
                    Err(_) => format!("Broker id must be an integer, but it is: {of}"),
                };
                allowed = Err((42, text));
            }
            if let Err((code, message)) = allowed {
                (answer.error_code, answer.error_message) = (code, text(message));
                continue;
            }
            for (name, value, source, read_only) in told(world, asked.resource_type, of) {
                let wanted = asked.configuration_keys.as_ref();
                if wanted.is_some_and(|keys| keys.iter().all(|key| key.as_str() != name)) {
                    continue;
                }
                let mut entry = DescribeConfigsResourceResult::default()
                    .with_name(StrBytes::from_string(name.clone()))
                    .with_value(text(value.clone()))
                    .with_read_only(read_only)
                    .with_config_source(source);
                if self.include_synonyms {
                    let mut synonym = |value: String, source: i8| {
                        entry.synonyms.push(
                            DescribeConfigsSynonym::default()
                                .with_name(StrBytes::from_string(name.clone()))
                                .with_value(text(value))
                                .with_source(source),
                        );
                    };
                    synonym(value, source);
                    let timing = &world.groups.timing;
                    if let Some((value, below)) =
                        world.configs.inherited(asked.resource_type, of, &name, timing)
                        && below != source
                    {
                        synonym(value, below);
                    }
                }
                answer.configs.push(entry);
            }
        }
        Started::Done(response)
    }

    fn throttle(response: &mut DescribeConfigsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

impl Api for IncrementalAlterConfigsRequest {
    fn refuse(&self, _call: &Call, code: i16) -> IncrementalAlterConfigsResponse {
        let responses = self.resources.iter().map(|asked| {
            AlterConfigsResourceResponse::default()
                .with_error_code(code)
                .with_resource_type(asked.resource_type)
                .with_resource_name(asked.resource_name.clone())
        });
        IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
    }

    fn start(self, world: &mut World, call: &Call) -> Started<IncrementalAlterConfigsResponse> {
        let mut response = self.refuse(call, 0);
        for (asked, answer) in self.resources.iter().zip(&mut response.responses) {
            let (kind, of) = (asked.resource_type, asked.resource_name.to_string());
            let changed = check_resource(world, kind, &of).and_then(|()| {
                let set = world.configs.changed(asked, &world.groups.timing)?;
                if kind == GROUP {
                    check_group(&set, &world.groups.timing)?;
                }
                Ok(set)
            });
            match changed {
                Ok(set) if !self.validate_only => put(world, kind, &of, set),
                Ok(_) => {}
                Err((code, message)) => {
                    (answer.error_code, answer.error_message) = (code, text(message));
                }
            }
        }
        Started::Done(response)
    }

    fn throttle(response: &mut IncrementalAlterConfigsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}
