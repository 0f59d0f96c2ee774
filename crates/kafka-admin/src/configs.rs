//! Configuration of topics, brokers, groups and client metrics: reading it and changing it piece by piece.

use std::collections::HashMap;
use std::fmt;

use kafka_meta::Result;
use kafka_meta::wire::protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_meta::wire::protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_meta::wire::protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_meta::wire::protocol::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest};

use crate::admin::{Admin, keyed};
use crate::plan::{Answer, Plan, Route, Subject};
use crate::wire::{check, optional, text};

/// Whose configuration (Java: `ConfigResource.Type`).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum ResourceType {
    /// A broker, or the default of all brokers.
    Broker,
    /// A subscription to client metrics (KIP-714).
    ClientMetrics,
    /// A group (KIP-848): `consumer.session.timeout.ms`, `consumer.heartbeat.interval.ms`, …
    Group,
    /// A topic.
    Topic,
}

/// What has a configuration of its own (Java: `ConfigResource`).
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConfigResource {
    kind: ResourceType,
    name: String,
}

impl ConfigResource {
    /// A topic.
    pub fn topic(name: impl Into<String>) -> ConfigResource {
        ConfigResource { kind: ResourceType::Topic, name: name.into() }
    }

    /// One broker, by its node id.
    pub fn broker(node: i32) -> ConfigResource {
        ConfigResource { kind: ResourceType::Broker, name: node.to_string() }
    }

    /// The default of every broker of the cluster.
    pub fn all_brokers() -> ConfigResource {
        ConfigResource { kind: ResourceType::Broker, name: String::new() }
    }

    /// A group (brokers from Kafka 4.0 on). It need not exist: what is set waits for it.
    ///
    /// `consumer.session.timeout.ms` (45,000) and `consumer.heartbeat.interval.ms` (5,000) of a KIP-848 group are
    /// set here and nowhere else: its members have no such settings of their own. Both may only be set within
    /// the broker's limits, `group.consumer.min.session.timeout.ms` (45,000) and the like; an operator has to
    /// lower those first.
    pub fn group(name: impl Into<String>) -> ConfigResource {
        ConfigResource { kind: ResourceType::Group, name: name.into() }
    }

    /// A subscription to client metrics (KIP-714, brokers from Kafka 3.7 on).
    pub fn client_metrics(name: impl Into<String>) -> ConfigResource {
        ConfigResource { kind: ResourceType::ClientMetrics, name: name.into() }
    }

    /// What kind of thing it is.
    pub fn kind(&self) -> ResourceType {
        self.kind
    }

    /// Its name: the topic's, the group's, the broker's node id (empty for all brokers).
    pub fn name(&self) -> &str {
        &self.name
    }

    fn code(&self) -> i8 {
        match self.kind {
            ResourceType::Topic => 2,
            ResourceType::Broker => 4,
            ResourceType::ClientMetrics => 16,
            ResourceType::Group => 32,
        }
    }

    /// A broker answers for itself; everybody else's configuration any broker knows.
    fn route(&self) -> Route {
        match (self.kind, self.name.parse()) {
            (ResourceType::Broker, Ok(node)) => Route::Node(node),
            _ => Route::Any,
        }
    }
}

impl fmt::Display for ConfigResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ResourceType::Broker if self.name.is_empty() => f.write_str("all brokers"),
            ResourceType::Broker => write!(f, "broker {}", self.name),
            ResourceType::ClientMetrics => write!(f, "client metrics {:?}", self.name),
            ResourceType::Group => write!(f, "group {:?}", self.name),
            ResourceType::Topic => write!(f, "topic {:?}", self.name),
        }
    }
}

/// Where a setting's value comes from (Java: `ConfigEntry.ConfigSource`).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ConfigSource {
    /// Set on the topic.
    Topic,
    /// Set on this broker while it ran.
    Broker,
    /// Set on all brokers while they ran.
    AllBrokers,
    /// From the broker's properties file.
    File,
    /// Nobody set it.
    Default,
    /// The level of one of a broker's loggers.
    Logger,
    /// Set on the subscription to client metrics.
    ClientMetrics,
    /// Set on the group.
    Group,
    /// One this client has no name for, by its number.
    Other(i8),
}

impl From<i8> for ConfigSource {
    fn from(code: i8) -> Self {
        match code {
            1 => ConfigSource::Topic,
            2 => ConfigSource::Broker,
            3 => ConfigSource::AllBrokers,
            4 => ConfigSource::File,
            5 => ConfigSource::Default,
            6 => ConfigSource::Logger,
            7 => ConfigSource::ClientMetrics,
            8 => ConfigSource::Group,
            code => ConfigSource::Other(code),
        }
    }
}

/// One setting (Java: `ConfigEntry`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConfigEntry {
    /// Its name, as `retention.ms`.
    pub name: String,
    /// Its value in force; `None` for one that has none, and for one that is sensitive.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Whether it cannot be changed while the broker runs.
    pub read_only: bool,
    /// Whether brokers keep its value to themselves, as with passwords.
    pub sensitive: bool,
    /// What else could set it, in the order of precedence; the first is what is in force.
    pub synonyms: Vec<ConfigSynonym>,
}

/// Another place a setting may come from (Java: `ConfigEntry.ConfigSynonym`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConfigSynonym {
    /// The setting's name there, as the broker's `log.retention.ms`.
    pub name: String,
    /// The value there.
    pub value: Option<String>,
    /// Which place it is.
    pub source: ConfigSource,
}

/// The settings of one resource, by name (Java: `Config`).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Config {
    entries: Vec<ConfigEntry>,
}

impl Config {
    /// One setting.
    pub fn get(&self, name: &str) -> Option<&ConfigEntry> {
        let at = self.entries.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok()?;
        self.entries.get(at)
    }

    /// The value in force of one setting.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.get(name)?.value.as_deref()
    }

    /// Every setting, by name.
    pub fn entries(&self) -> &[ConfigEntry] {
        &self.entries
    }
}

/// One change of one setting (Java: `AlterConfigOp`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AlterConfigOp {
    name: String,
    operation: i8,
    value: Option<String>,
}

impl AlterConfigOp {
    /// Sets a value.
    pub fn set(name: impl Into<String>, value: impl Into<String>) -> AlterConfigOp {
        AlterConfigOp { name: name.into(), operation: 0, value: Some(value.into()) }
    }

    /// Takes the setting away: what it inherits is in force again.
    pub fn delete(name: impl Into<String>) -> AlterConfigOp {
        AlterConfigOp { name: name.into(), operation: 1, value: None }
    }

    /// Adds entries, separated by commas, to a setting that is a list. Those that are there stay once.
    pub fn append(name: impl Into<String>, value: impl Into<String>) -> AlterConfigOp {
        AlterConfigOp { name: name.into(), operation: 2, value: Some(value.into()) }
    }

    /// Takes entries, separated by commas, from a setting that is a list.
    pub fn subtract(name: impl Into<String>, value: impl Into<String>) -> AlterConfigOp {
        AlterConfigOp { name: name.into(), operation: 3, value: Some(value.into()) }
    }
}

impl Admin {
    /// The settings in force of topics, brokers and groups, with where they come from (Java: `describeConfigs`;
    /// KIP-133, KIP-226, KIP-569). A group need not exist (KIP-848; Kafka 4.0 on).
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Per resource: `UnknownTopic`, `Disconnected` for a broker that is not there, `Authorization`,
    /// `InvalidRequest` for a type the broker does not know or a resource named twice, `Timeout`.
    pub async fn describe_configs(
        &self,
        resources: impl IntoIterator<Item = ConfigResource>,
    ) -> Result<Vec<(ConfigResource, Result<Config>)>> {
        let resources: Vec<_> = resources.into_iter().collect();
        let plan = Plan::reading("describe configs", routed(&resources));
        let (call, asked) = (self.call(), &resources);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let wanted = batch.items.iter().filter_map(|index| asked.get(*index)).map(|resource| {
                    DescribeConfigsResource::default()
                        .with_resource_type(resource.code())
                        .with_resource_name(text(&resource.name))
                        .with_configuration_keys(None)
                });
                let request = DescribeConfigsRequest::default()
                    .with_resources(wanted.collect())
                    .with_include_synonyms(true);
                let (_, answer) = call.send(batch.to, batch.deadline, 1, request).await?;
                let answers = answer.results.into_iter().map(|found| {
                    let result = check(found.error_code, found.error_message).map(|()| {
                        let mut entries: Vec<_> = found.configs.into_iter().map(entry).collect();
                        entries.sort_by(|a, b| a.name.cmp(&b.name));
                        Config { entries }
                    });
                    ((found.resource_type, found.resource_name.to_string()), result)
                });
                Ok(matched(&batch.items, asked, answers))
            }
        });
        let results = results.await?;
        Ok(keyed(resources, results))
    }

    /// Changes single settings of topics, brokers and groups and leaves the others as they are (Java:
    /// `incrementalAlterConfigs`; KIP-339). The changes of one resource are made together or not at all.
    ///
    /// Dropping the future leaves it open whether the changes are made.
    ///
    /// # Errors
    ///
    /// Per resource, with the broker's own words: `Broker(INVALID_CONFIG)` for an unknown setting, a value that
    /// is none, or one outside the broker's limits; `Broker(POLICY_VIOLATION)`, `UnknownTopic`, `Disconnected`
    /// for a broker that is not there, `Authorization`, `InvalidRequest` for a type the broker does not know or a
    /// resource named twice, `Timeout`.
    pub async fn incremental_alter_configs(
        &self,
        changes: impl IntoIterator<Item = (ConfigResource, impl IntoIterator<Item = AlterConfigOp>)>,
    ) -> Result<Vec<(ConfigResource, Result<()>)>> {
        let changes = changes.into_iter().map(|(resource, ops)| (resource, ops.into_iter().collect()));
        self.alter_configs(changes.collect(), false).await
    }

    /// What [`Admin::incremental_alter_configs`] would answer; changes nothing (Java:
    /// `AlterConfigsOptions.validateOnly`).
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn validate_configs(
        &self,
        changes: impl IntoIterator<Item = (ConfigResource, impl IntoIterator<Item = AlterConfigOp>)>,
    ) -> Result<Vec<(ConfigResource, Result<()>)>> {
        let changes = changes.into_iter().map(|(resource, ops)| (resource, ops.into_iter().collect()));
        self.alter_configs(changes.collect(), true).await
    }

    async fn alter_configs(
        &self,
        changes: Vec<(ConfigResource, Vec<AlterConfigOp>)>,
        validate: bool,
    ) -> Result<Vec<(ConfigResource, Result<()>)>> {
        const OPERATION: &str = "alter configs";
        let (resources, ops): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
        let items = routed(&resources);
        let plan = if validate { Plan::reading(OPERATION, items) } else { Plan::changing(OPERATION, items) };
        let (call, asked, ops) = (self.call(), &resources, &ops);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let wanted = batch.items.iter().filter_map(|index| {
                    let (resource, ops) = (asked.get(*index)?, ops.get(*index)?);
                    let ops = ops.iter().map(|op| {
                        AlterableConfig::default()
                            .with_name(text(&op.name))
                            .with_config_operation(op.operation)
                            .with_value(op.value.as_deref().map(text))
                    });
                    let wanted = AlterConfigsResource::default()
                        .with_resource_type(resource.code())
                        .with_resource_name(text(&resource.name));
                    Some(wanted.with_configs(ops.collect()))
                });
                let request = IncrementalAlterConfigsRequest::default()
                    .with_resources(wanted.collect())
                    .with_validate_only(validate);
                let (_, answer) = call.send(batch.to, batch.deadline, 0, request).await?;
                let answers = answer.responses.into_iter().map(|found| {
                    let result = check(found.error_code, found.error_message);
                    ((found.resource_type, found.resource_name.to_string()), result)
                });
                Ok(matched(&batch.items, asked, answers))
            }
        });
        let results = results.await?;
        Ok(keyed(resources, results))
    }
}

fn routed(resources: &[ConfigResource]) -> Vec<(Subject, Route)> {
    resources.iter().map(|resource| (Subject::Resource(resource.clone()), resource.route())).collect()
}

fn matched<T>(
    items: &[usize],
    resources: &[ConfigResource],
    answers: impl IntoIterator<Item = ((i8, String), Answer<T>)>,
) -> Vec<(usize, Answer<T>)> {
    let places = items.iter().filter_map(|index| {
        let resource = resources.get(*index)?;
        Some(((resource.code(), resource.name.clone()), *index))
    });
    let places: HashMap<_, _> = places.collect();
    answers.into_iter().filter_map(|(key, answer)| Some((*places.get(&key)?, answer))).collect()
}

fn entry(config: DescribeConfigsResourceResult) -> ConfigEntry {
    let synonyms = config.synonyms.into_iter().map(|synonym| ConfigSynonym {
        name: synonym.name.to_string(),
        value: optional(synonym.value),
        source: synonym.source.into(),
    });
    ConfigEntry {
        name: config.name.to_string(),
        value: optional(config.value),
        source: config.config_source.into(),
        read_only: config.read_only,
        sensitive: config.is_sensitive,
        synonyms: synonyms.collect(),
    }
}
