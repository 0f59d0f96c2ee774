//! Topics: making, deleting, growing, describing, listing.

use std::collections::HashMap;

use kafka_meta::wire::protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_meta::wire::protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_meta::wire::protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_meta::wire::protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_meta::wire::protocol::messages::{
    BrokerId, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
};
use kafka_meta::wire::topic_name;
use kafka_meta::{ErrorCode, Result, TopicName, client};
use uuid::Uuid;

use crate::admin::{Admin, keyed};
use crate::configs::ConfigEntry;
use crate::plan::{Answer, Plan, Refusal, Route, Subject};
use crate::wire::{self, check, optional};

/// Answers carry the topic's settings from here on, and -1 asks for the broker's defaults.
const CREATE_FROM: i16 = 5;
/// Topics are named in a structure of their own, where the id could be.
const DELETE_BY_STATE: i16 = 6;

/// A topic to make (Java: `NewTopic`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewTopic {
    name: String,
    partitions: Option<i32>,
    replication_factor: Option<i16>,
    assignment: Vec<Vec<i32>>,
    configs: Vec<(String, String)>,
}

impl NewTopic {
    /// A topic with the broker's defaults: `num.partitions` (1), `default.replication.factor` (1).
    pub fn new(name: impl Into<String>) -> NewTopic {
        NewTopic {
            name: name.into(),
            partitions: None,
            replication_factor: None,
            assignment: Vec::new(),
            configs: Vec::new(),
        }
    }

    /// How many partitions; default: the broker's `num.partitions`.
    #[must_use]
    pub fn partitions(mut self, partitions: i32) -> NewTopic {
        self.partitions = Some(partitions);
        self
    }

    /// How many replicas of each partition; default: the broker's `default.replication.factor`.
    #[must_use]
    pub fn replication_factor(mut self, replicas: i16) -> NewTopic {
        self.replication_factor = Some(replicas);
        self
    }

    /// Which brokers have the replicas of each partition, the preferred leader first, in place of a number of
    /// partitions and a replication factor. Default: the controller decides.
    #[must_use]
    pub fn assignment<P, R>(mut self, partitions: P) -> NewTopic
    where
        P: IntoIterator<Item = R>,
        R: IntoIterator<Item = i32>,
    {
        self.assignment = partitions.into_iter().map(|replicas| replicas.into_iter().collect()).collect();
        self
    }

    /// Sets one of the topic's own settings, as `("retention.ms", "3600000")`.
    #[must_use]
    pub fn config(mut self, name: impl Into<String>, value: impl Into<String>) -> NewTopic {
        self.configs.push((name.into(), value.into()));
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn request(&self) -> CreatableTopic {
        let placed = (0..).zip(&self.assignment).map(|(index, replicas)| {
            CreatableReplicaAssignment::default()
                .with_partition_index(index)
                .with_broker_ids(replicas.iter().copied().map(BrokerId).collect())
        });
        let configs = self.configs.iter().map(|(name, value)| {
            CreatableTopicConfig::default().with_name(wire::text(name)).with_value(Some(wire::text(value)))
        });
        CreatableTopic::default()
            .with_name(wire::text(&self.name).into())
            .with_num_partitions(self.partitions.unwrap_or(-1))
            .with_replication_factor(self.replication_factor.unwrap_or(-1))
            .with_assignments(placed.collect())
            .with_configs(configs.collect())
    }
}

/// A topic that was made, or that would be (Java: `TopicMetadataAndConfig`).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CreatedTopic {
    /// Its id; `None` where it was only validated.
    pub id: Option<Uuid>,
    /// How many partitions it has; `None` where the principal may not know (`DescribeConfigs` on the topic).
    pub partitions: Option<i32>,
    /// How many replicas each has; `None` likewise.
    pub replication_factor: Option<i16>,
    /// Its settings, the inherited ones included; `None` likewise. Without synonyms and types.
    pub configs: Option<Vec<ConfigEntry>>,
}

/// How many partitions a topic is to have (Java: `NewPartitions`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewPartitions {
    total: i32,
    assignment: Vec<Vec<i32>>,
}

impl NewPartitions {
    /// Up to `total` partitions altogether. A number also converts into this.
    pub fn increase_to(total: i32) -> NewPartitions {
        NewPartitions { total, assignment: Vec::new() }
    }

    /// Which brokers have the replicas of each **new** partition, the preferred leader first. Default: the
    /// controller decides.
    #[must_use]
    pub fn assignment<P, R>(mut self, partitions: P) -> NewPartitions
    where
        P: IntoIterator<Item = R>,
        R: IntoIterator<Item = i32>,
    {
        self.assignment = partitions.into_iter().map(|replicas| replicas.into_iter().collect()).collect();
        self
    }

    fn request(&self, name: TopicName) -> CreatePartitionsTopic {
        let placed = self.assignment.iter().map(|replicas| {
            let replicas = replicas.iter().copied().map(BrokerId);
            CreatePartitionsAssignment::default().with_broker_ids(replicas.collect())
        });
        let placed = (!self.assignment.is_empty()).then(|| placed.collect());
        CreatePartitionsTopic::default()
            .with_name(topic_name(name))
            .with_count(self.total)
            .with_assignments(placed)
    }
}

impl From<i32> for NewPartitions {
    fn from(total: i32) -> Self {
        NewPartitions::increase_to(total)
    }
}

/// A topic and its partitions (Java: `TopicDescription`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Uuid,
    /// Whether it is one of Kafka's own, as `__consumer_offsets`.
    pub internal: bool,
    /// Its partitions, in the order of their index.
    pub partitions: Vec<PartitionDescription>,
}

/// A partition and who holds it (Java: `TopicPartitionInfo`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PartitionDescription {
    /// Its index.
    pub partition: i32,
    /// The leader's node id; `None` while there is none.
    pub leader: Option<i32>,
    /// The leader's epoch.
    pub leader_epoch: Option<i32>,
    /// Nodes that hold a replica, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Replicas in sync with the leader.
    pub isr: Vec<i32>,
    /// Replicas on nodes that are down.
    pub offline: Vec<i32>,
}

/// A topic in a list (Java: `TopicListing`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TopicListing {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Uuid,
    /// Whether it is one of Kafka's own, as `__consumer_offsets`.
    pub internal: bool,
    /// How many partitions it has.
    pub partitions: usize,
}

impl Admin {
    /// Makes topics (Java: `createTopics`; KIP-4, KIP-464, KIP-525). The controller answers when they exist;
    /// other brokers may know of them some tens of milliseconds later.
    ///
    /// Dropping the future leaves it open whether the topics are made.
    ///
    /// # Errors
    ///
    /// Per topic, with the broker's own words: `Broker(TOPIC_ALREADY_EXISTS)`, `Broker(INVALID_TOPIC_EXCEPTION)`
    /// for a bad name, `Broker(INVALID_PARTITIONS)`, `Broker(INVALID_REPLICATION_FACTOR)`,
    /// `Broker(INVALID_REPLICA_ASSIGNMENT)`, `Broker(INVALID_CONFIG)`, `Broker(POLICY_VIOLATION)`,
    /// `Authorization`; `InvalidRequest` for a topic named twice, or with both an assignment and numbers;
    /// `Timeout`.
    pub async fn create_topics(
        &self,
        topics: impl IntoIterator<Item = NewTopic>,
    ) -> Result<Vec<(String, Result<CreatedTopic>)>> {
        self.make_topics(topics.into_iter().collect(), false).await
    }

    /// What [`Admin::create_topics`] would answer; makes nothing (Java: `CreateTopicsOptions.validateOnly`).
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn validate_topics(
        &self,
        topics: impl IntoIterator<Item = NewTopic>,
    ) -> Result<Vec<(String, Result<CreatedTopic>)>> {
        self.make_topics(topics.into_iter().collect(), true).await
    }

    async fn make_topics(
        &self,
        topics: Vec<NewTopic>,
        validate: bool,
    ) -> Result<Vec<(String, Result<CreatedTopic>)>> {
        const OPERATION: &str = "create topics";
        let names: Vec<_> = topics.iter().map(|topic| topic.name.clone()).collect();
        let items = on_controller(&names);
        let mut plan =
            if validate { Plan::reading(OPERATION, items) } else { Plan::changing(OPERATION, items) };
        for (index, topic) in topics.iter().enumerate() {
            let numbers = topic.partitions.is_some() || topic.replication_factor.is_some();
            if numbers && !topic.assignment.is_empty() {
                plan.refuse(index, "an assignment says how many partitions and replicas there are");
            }
        }
        let (call, topics) = (self.call(), &topics);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let asked = batch.items.iter().filter_map(|index| topics.get(*index));
                let request = CreateTopicsRequest::default()
                    .with_topics(asked.map(NewTopic::request).collect())
                    .with_timeout_ms(batch.timeout_ms())
                    .with_validate_only(validate);
                let (_, answer) = call.send(batch.to, batch.deadline, CREATE_FROM, request).await?;
                let answers =
                    answer.topics.into_iter().map(|topic| (topic.name.to_string(), created(topic, validate)));
                Ok(matched(&batch.items, topics, NewTopic::name, answers))
            }
        });
        let results = results.await?;
        Ok(keyed(names, results))
    }

    /// Deletes topics and their records for good (Java: `deleteTopics`; KIP-4). The controller answers when they
    /// are gone from its own books; other brokers may still name them some tens of milliseconds later, and the
    /// group offsets of a deleted topic go as well.
    ///
    /// Dropping the future leaves it open whether the topics are deleted.
    ///
    /// # Errors
    ///
    /// Per topic: `UnknownTopic`, `Broker(TOPIC_DELETION_DISABLED)` (broker's `delete.topic.enable`),
    /// `Authorization`, `InvalidRequest` for a topic named twice, `Timeout`.
    pub async fn delete_topics(
        &self,
        topics: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Vec<(String, Result<()>)>> {
        let names: Vec<String> = topics.into_iter().map(Into::into).collect();
        let plan = Plan::changing("delete topics", on_controller(&names));
        let (call, topics) = (self.call(), &names);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let asked = batch.items.iter().filter_map(|index| topics.get(*index));
                let asked =
                    asked.map(|name| DeleteTopicState::default().with_name(Some(wire::text(name).into())));
                let request = DeleteTopicsRequest::default()
                    .with_topics(asked.collect())
                    .with_timeout_ms(batch.timeout_ms());
                let (_, answer) = call.send(batch.to, batch.deadline, DELETE_BY_STATE, request).await?;
                let answers = answer.responses.into_iter().filter_map(|topic| {
                    let result = check(topic.error_code, topic.error_message);
                    Some((topic.name?.to_string(), result))
                });
                Ok(matched(&batch.items, topics, String::as_str, answers))
            }
        });
        let results = results.await?;
        Ok(keyed(names, results))
    }

    /// Gives topics more partitions (Java: `createPartitions`; KIP-195). There is no way back: Kafka takes no
    /// partition away. Keys that were hashed to a partition go elsewhere from then on.
    ///
    /// Dropping the future leaves it open whether the partitions are made.
    ///
    /// # Errors
    ///
    /// Per topic, with the broker's own words: `UnknownTopic`, `Broker(INVALID_PARTITIONS)` for a number that is
    /// not above the present one, `Broker(INVALID_REPLICA_ASSIGNMENT)`, `Broker(REASSIGNMENT_IN_PROGRESS)`,
    /// `Authorization`; `InvalidRequest` for a topic named twice; `Timeout`.
    pub async fn create_partitions(
        &self,
        topics: impl IntoIterator<Item = (impl Into<String>, impl Into<NewPartitions>)>,
    ) -> Result<Vec<(String, Result<()>)>> {
        let topics = topics.into_iter().map(|(name, partitions)| (name.into(), partitions.into()));
        self.grow_topics(topics.collect(), false).await
    }

    /// What [`Admin::create_partitions`] would answer; makes nothing (Java:
    /// `CreatePartitionsOptions.validateOnly`).
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn validate_partitions(
        &self,
        topics: impl IntoIterator<Item = (impl Into<String>, impl Into<NewPartitions>)>,
    ) -> Result<Vec<(String, Result<()>)>> {
        let topics = topics.into_iter().map(|(name, partitions)| (name.into(), partitions.into()));
        self.grow_topics(topics.collect(), true).await
    }

    async fn grow_topics(
        &self,
        topics: Vec<(String, NewPartitions)>,
        validate: bool,
    ) -> Result<Vec<(String, Result<()>)>> {
        const OPERATION: &str = "create partitions";
        let names: Vec<_> = topics.iter().map(|(name, _)| name.clone()).collect();
        let items = on_controller(&names);
        let plan = if validate { Plan::reading(OPERATION, items) } else { Plan::changing(OPERATION, items) };
        let (call, topics) = (self.call(), &topics);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let asked = batch.items.iter().filter_map(|index| topics.get(*index));
                let asked = asked.map(|(name, partitions)| partitions.request(TopicName::new(name)));
                let request = CreatePartitionsRequest::default()
                    .with_topics(asked.collect())
                    .with_timeout_ms(batch.timeout_ms())
                    .with_validate_only(validate);
                let (_, answer) = call.send(batch.to, batch.deadline, 0, request).await?;
                let answers = answer
                    .results
                    .into_iter()
                    .map(|topic| (topic.name.to_string(), check(topic.error_code, topic.error_message)));
                Ok(matched(&batch.items, topics, |(name, _)| name.as_str(), answers))
            }
        });
        let results = results.await?;
        Ok(keyed(names, results))
    }

    /// Describes topics: ids, partitions, leaders, replicas (Java: `describeTopics`; Metadata, KIP-516). A topic
    /// that the broker asked does not know is asked about again for a second, since brokers learn of new ones
    /// one after the other. Makes no topic by asking.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Per topic: `UnknownTopic`, `Authorization`, `Broker(INVALID_TOPIC_EXCEPTION)`, `InvalidRequest` for a topic
    /// named twice, `Timeout`.
    pub async fn describe_topics(
        &self,
        topics: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Vec<(String, Result<TopicDescription>)>> {
        let names: Vec<String> = topics.into_iter().map(Into::into).collect();
        let items = names.iter().map(|name| (Subject::Topic(TopicName::new(name)), Route::Any));
        let plan = Plan::reading("describe topics", items.collect());
        let (call, topics) = (self.call(), &names);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let asked = batch.items.iter().filter_map(|index| topics.get(*index));
                let asked: Vec<_> = asked.map(|name| TopicName::new(name)).collect();
                let found = call.cluster.topics(&call.via, Some(&asked), batch.deadline).await?;
                let answers = found.into_iter().map(|topic| {
                    let name = topic.name.to_string();
                    let result = match topic.error {
                        ErrorCode::NONE => Ok(described(topic)),
                        code => Err(Refusal::new(code, None)),
                    };
                    (name, result)
                });
                Ok(matched(&batch.items, topics, String::as_str, answers))
            }
        });
        let results = results.await?;
        Ok(keyed(names, results))
    }

    /// Every topic that this principal may see, Kafka's own included and marked (Java: `listTopics` with
    /// `listInternal(true)`), by name.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// `Timeout`, and whatever keeps a broker from being asked.
    pub async fn list_topics(&self) -> Result<Vec<TopicListing>> {
        let call = self.call();
        let plan = Plan::reading("list topics", vec![(Subject::Cluster, Route::Any)]);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let found = call.cluster.topics(&call.via, None, batch.deadline).await?;
                Ok(vec![(0, Ok(found))])
            }
        });
        let mut listed = Vec::new();
        for found in results.await? {
            listed.extend(found?.into_iter().filter(|topic| topic.error.is_none()).map(|topic| {
                let partitions = topic.partitions.len();
                let name = topic.name.to_string();
                TopicListing { name, id: topic.id, internal: topic.internal, partitions }
            }));
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }
}

fn on_controller(names: &[String]) -> Vec<(Subject, Route)> {
    names.iter().map(|name| (Subject::Topic(TopicName::new(name)), Route::Controller)).collect()
}

/// Gives each answer the index of the item of its name.
fn matched<K, T>(
    items: &[usize],
    keys: &[K],
    name: impl Fn(&K) -> &str,
    answers: impl IntoIterator<Item = (String, Answer<T>)>,
) -> Vec<(usize, Answer<T>)> {
    let places = items.iter().filter_map(|index| Some((name(keys.get(*index)?), *index)));
    let places: HashMap<&str, usize> = places.collect();
    let answers = answers.into_iter();
    answers.filter_map(|(name, answer)| Some((*places.get(name.as_str())?, answer))).collect()
}

fn created(topic: CreatableTopicResult, validate: bool) -> Answer<CreatedTopic> {
    check(topic.error_code, topic.error_message)?;
    let configs = topic.configs.filter(|_| topic.topic_config_error_code == 0).map(|configs| {
        let entry =
            |config: kafka_meta::wire::protocol::messages::create_topics_response::CreatableTopicConfigs| {
                ConfigEntry {
                    name: config.name.to_string(),
                    value: optional(config.value),
                    source: config.config_source.into(),
                    read_only: config.read_only,
                    sensitive: config.is_sensitive,
                    synonyms: Vec::new(),
                }
            };
        configs.into_iter().map(entry).collect()
    });
    Ok(CreatedTopic {
        // Where nothing is made the id is made up.
        id: (!validate && !topic.topic_id.is_nil()).then_some(topic.topic_id),
        partitions: (topic.num_partitions >= 0).then_some(topic.num_partitions),
        replication_factor: (topic.replication_factor >= 0).then_some(topic.replication_factor),
        configs,
    })
}

fn described(topic: client::Topic) -> TopicDescription {
    let partitions = topic.partitions.into_iter().map(|partition| PartitionDescription {
        partition: partition.index,
        leader: partition.leader,
        leader_epoch: partition.leader_epoch,
        replicas: partition.replicas,
        isr: partition.isr,
        offline: partition.offline,
    });
    TopicDescription {
        name: topic.name.to_string(),
        id: topic.id,
        internal: topic.internal,
        partitions: partitions.collect(),
    }
}
