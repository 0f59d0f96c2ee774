//! Administration over the protocol: a request takes milliseconds where one of Kafka's tools takes a JVM's
//! start.
//!
//! Each operation opens its own connection to a node that answers, and waits until its effect is visible on
//! every running node, so that a test does not begin in a half-made world. Errors of the broker come out as
//! text with the code.

use std::future::Future;
use std::time::{Duration, Instant};

use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponse;
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest,
    DeleteTopicsRequest, ElectLeadersRequest, FindCoordinatorRequest, IncrementalAlterConfigsRequest,
    InitProducerIdRequest, MetadataRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::Kafka;
use crate::client::Client;
use crate::failure::{Failure, Result};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(30);
/// What the broker may take; below the client's own patience.
const BROKER_MS: i32 = 30_000;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;

/// A broker as metadata names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSeen {
    /// Its node id.
    pub id: i32,
    /// "host:port".
    pub address: String,
    /// Its rack.
    pub rack: Option<String>,
}

/// A partition as metadata shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionSeen {
    /// Its number.
    pub index: i32,
    /// The leader, if there is one.
    pub leader: Option<i32>,
    /// The leader's epoch.
    pub leader_epoch: i32,
    /// All replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Those in sync.
    pub in_sync: Vec<i32>,
}

pub(super) async fn brokers(address: &str) -> Result<Vec<BrokerSeen>> {
    let mut client = Client::connect(address).await?;
    let answer = metadata(&mut client, &[]).await?;
    let seen = answer.brokers.iter().map(|broker| BrokerSeen {
        id: broker.node_id.0,
        address: format!("{}:{}", broker.host, broker.port),
        rack: broker.rack.as_ref().map(|rack| rack.to_string()),
    });
    Ok(seen.collect())
}

async fn metadata(client: &mut Client, topics: &[&str]) -> Result<MetadataResponse> {
    let topics =
        topics.iter().map(|topic| MetadataRequestTopic::default().with_name(Some(name(topic)))).collect();
    let request = MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(false);
    client.call(12, &request).await
}

async fn partitions_at(address: &str, topic: &str) -> Result<(Uuid, Vec<PartitionSeen>)> {
    let mut client = Client::connect(address).await?;
    let answer = metadata(&mut client, &[topic]).await?;
    let Some(found) = answer.topics.first() else {
        return Err(Failure::new(format!("{address} does not mention {topic}")));
    };
    check(found.error_code, None, || format!("metadata of {topic} at {address}"))?;
    let plain = |nodes: &[kafka_protocol::messages::BrokerId]| nodes.iter().map(|node| node.0).collect();
    let mut partitions: Vec<PartitionSeen> = found
        .partitions
        .iter()
        .map(|partition| PartitionSeen {
            index: partition.partition_index,
            leader: Some(partition.leader_id.0).filter(|&leader| leader >= 0),
            leader_epoch: partition.leader_epoch,
            replicas: plain(&partition.replica_nodes),
            in_sync: plain(&partition.isr_nodes),
        })
        .collect();
    partitions.sort_by_key(|partition| partition.index);
    Ok((found.topic_id, partitions))
}

fn name(topic: &str) -> TopicName {
    TopicName(text(topic))
}

pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(super) fn check(code: i16, message: Option<&StrBytes>, doing: impl FnOnce() -> String) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let code = kafka_meta::ErrorCode::from(code);
    let message = message.map(|message| format!(": {message}")).unwrap_or_default();
    Err(Failure::new(format!("{}: {code:?}{message}", doing())))
}

/// Asks until the answer satisfies, or the patience ends; the last reason is the failure's.
pub(super) async fn until<T, F>(what: &str, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(value) => return Ok(value),
            Err(failure) if Instant::now() > deadline => return Err(Failure::because(what, failure)),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

impl Kafka {
    pub(super) async fn any(&self) -> Result<Client> {
        Client::connect(&self.live().join(",")).await
    }

    /// The brokers that metadata names.
    pub async fn brokers(&self) -> Result<Vec<BrokerSeen>> {
        brokers(&self.live().join(",")).await
    }

    /// Waits until metadata names this many brokers.
    pub async fn wait_for_brokers(&self, count: usize) -> Result<()> {
        until("wait for brokers", async || {
            let found = self.brokers().await?.len();
            if found < count { Err(Failure::new(format!("{found} of {count}"))) } else { Ok(()) }
        })
        .await
    }

    /// Creates a topic and waits until every running node knows its leaders. The topic's id is the result.
    pub async fn create_topic(
        &self,
        topic: &str,
        partitions: i32,
        replicas: i16,
        config: &[(&str, &str)],
    ) -> Result<Uuid> {
        let wanted =
            CreatableTopic::default().with_num_partitions(partitions).with_replication_factor(replicas);
        self.create(topic, wanted, config).await
    }

    /// Creates a topic whose partition *i* has the replicas `assignment[i]`, the first one its leader.
    pub async fn create_topic_on(
        &self,
        topic: &str,
        assignment: &[&[i32]],
        config: &[(&str, &str)],
    ) -> Result<Uuid> {
        let assignments = (0..).zip(assignment).map(|(index, nodes)| {
            CreatableReplicaAssignment::default()
                .with_partition_index(index)
                .with_broker_ids(nodes.iter().map(|&node| node.into()).collect())
        });
        let wanted = CreatableTopic::default()
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_assignments(assignments.collect());
        self.create(topic, wanted, config).await
    }

    async fn create(&self, topic: &str, wanted: CreatableTopic, config: &[(&str, &str)]) -> Result<Uuid> {
        let count = if wanted.assignments.is_empty() {
            usize::try_from(wanted.num_partitions).unwrap_or_default()
        } else {
            wanted.assignments.len()
        };
        let config = config.iter().map(|(key, value)| {
            CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)))
        });
        let wanted = wanted.with_name(name(topic)).with_configs(config.collect());
        let request = CreateTopicsRequest::default().with_topics(vec![wanted]).with_timeout_ms(BROKER_MS);
        let answer = self.any().await?.call(7, &request).await?;
        for result in &answer.topics {
            check(result.error_code, result.error_message.as_ref(), || format!("create topic {topic}"))?;
        }
        self.wait_for_partitions(topic, count).await
    }

    /// Waits until every running node shows `count` partitions of the topic, each with a leader.
    pub async fn wait_for_partitions(&self, topic: &str, count: usize) -> Result<Uuid> {
        let mut id = Uuid::nil();
        for address in self.live() {
            id = until(&format!("wait for {topic}"), async || {
                let (id, partitions) = partitions_at(&address, topic).await?;
                let led = partitions.iter().filter(|partition| partition.leader.is_some()).count();
                if led < count {
                    return Err(Failure::new(format!("{address} shows {led} leaders of {count}")));
                }
                Ok(id)
            })
            .await?;
        }
        Ok(id)
    }

    /// Raises a topic's partition count and waits until every running node knows it.
    pub async fn create_partitions(&self, topic: &str, count: i32) -> Result<()> {
        let wanted =
            CreatePartitionsTopic::default().with_name(name(topic)).with_count(count).with_assignments(None);
        let request = CreatePartitionsRequest::default().with_topics(vec![wanted]).with_timeout_ms(BROKER_MS);
        let answer = self.any().await?.call(3, &request).await?;
        for result in &answer.results {
            check(result.error_code, result.error_message.as_ref(), || format!("add partitions to {topic}"))?;
        }
        self.wait_for_partitions(topic, usize::try_from(count).unwrap_or_default()).await?;
        Ok(())
    }

    /// Deletes a topic and waits until no running node knows it.
    pub async fn delete_topic(&self, topic: &str) -> Result<()> {
        let state = DeleteTopicState::default().with_name(Some(name(topic)));
        let request = DeleteTopicsRequest::default()
            .with_topics(vec![state])
            .with_topic_names(Vec::new())
            .with_timeout_ms(BROKER_MS);
        let answer = self.any().await?.call(6, &request).await?;
        for result in &answer.responses {
            check(result.error_code, result.error_message.as_ref(), || format!("delete topic {topic}"))?;
        }
        for address in self.live() {
            until(&format!("wait for the end of {topic}"), async || {
                let mut client = Client::connect(&address).await?;
                let answer = metadata(&mut client, &[topic]).await?;
                // 3: unknown topic or partition.
                match answer.topics.first() {
                    Some(found) if found.error_code == 3 => Ok(()),
                    _ => Err(Failure::new(format!("{address} still knows it"))),
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Changes a topic's configuration; an empty value takes the setting away.
    pub async fn alter_topic_config(&self, topic: &str, config: &[(&str, &str)]) -> Result<()> {
        self.alter(TOPIC, topic, config).await
    }

    /// Changes a broker's dynamic configuration; node "" means every broker.
    pub async fn alter_broker_config(&self, node: &str, config: &[(&str, &str)]) -> Result<()> {
        self.alter(BROKER, node, config).await
    }

    /// Changes a group's configuration (4.x).
    pub async fn alter_group_config(&self, group: &str, config: &[(&str, &str)]) -> Result<()> {
        self.alter(GROUP, group, config).await
    }

    async fn alter(&self, kind: i8, resource: &str, config: &[(&str, &str)]) -> Result<()> {
        let configs = config.iter().map(|(key, value)| {
            let change = AlterableConfig::default().with_name(text(key));
            if value.is_empty() {
                change.with_config_operation(1).with_value(None)
            } else {
                change.with_config_operation(0).with_value(Some(text(value)))
            }
        });
        let change = AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(resource))
            .with_configs(configs.collect());
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![change]);
        let answer = self.any().await?.call(1, &request).await?;
        for result in &answer.responses {
            check(result.error_code, result.error_message.as_ref(), || format!("configure {resource}"))?;
        }
        Ok(())
    }

    /// Deletes the records below `offset`. The log's new start is the result.
    pub async fn delete_records(&self, topic: &str, partition: i32, offset: i64) -> Result<i64> {
        let wanted = DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![
            DeleteRecordsPartition::default().with_partition_index(partition).with_offset(offset),
        ]);
        let request = DeleteRecordsRequest::default().with_topics(vec![wanted]).with_timeout_ms(BROKER_MS);
        let mut leader = self.leader_client(topic, partition).await?;
        let answer = leader.call(2, &request).await?;
        let result = answer.topics.first().and_then(|topic| topic.partitions.first());
        let result = result.ok_or_else(|| Failure::new("an answer without the partition"))?;
        check(result.error_code, None, || format!("delete records of {topic}-{partition}"))?;
        Ok(result.low_watermark)
    }

    /// The partitions of a topic, as some running node's metadata shows them.
    pub async fn partitions(&self, topic: &str) -> Result<Vec<PartitionSeen>> {
        Ok(partitions_at(&self.live().join(","), topic).await?.1)
    }

    /// The topic's id.
    pub async fn topic_id(&self, topic: &str) -> Result<Uuid> {
        Ok(partitions_at(&self.live().join(","), topic).await?.0)
    }

    /// The partition's leader.
    pub async fn leader(&self, topic: &str, partition: i32) -> Result<i32> {
        let partitions = self.partitions(topic).await?;
        let found = partitions.iter().find(|seen| seen.index == partition).and_then(|seen| seen.leader);
        found.ok_or_else(|| Failure::new(format!("{topic}-{partition} has no leader")))
    }

    async fn leader_client(&self, topic: &str, partition: i32) -> Result<Client> {
        let leader = self.leader(topic, partition).await?;
        let brokers = self.brokers().await?;
        let found = brokers.iter().find(|broker| broker.id == leader);
        let broker = found.ok_or_else(|| Failure::new(format!("no address of node {leader}")))?;
        Client::connect(&broker.address).await
    }

    /// Moves a partition's leadership to `node`, which becomes a replica if it is none, and waits until every
    /// running node's metadata says so.
    pub async fn move_leader(&self, topic: &str, partition: i32, node: i32) -> Result<()> {
        let partitions = self.partitions(topic).await?;
        let seen = partitions.iter().find(|seen| seen.index == partition);
        let seen = seen.ok_or_else(|| Failure::new(format!("no partition {topic}-{partition}")))?;
        let mut replicas = vec![node];
        replicas.extend(seen.replicas.iter().copied().filter(|&other| other != node));
        replicas.truncate(seen.replicas.len());
        self.reassign(topic, partition, &replicas).await?;
        let elect = TopicPartitions::default().with_topic(name(topic)).with_partitions(vec![partition]);
        let request = ElectLeadersRequest::default()
            .with_election_type(0)
            .with_topic_partitions(Some(vec![elect]))
            .with_timeout_ms(BROKER_MS);
        for address in self.live() {
            until(&format!("move {topic}-{partition} to node {node}"), async || {
                let (_, partitions) = partitions_at(&address, topic).await?;
                let seen = partitions.iter().find(|seen| seen.index == partition);
                if seen.is_some_and(|seen| seen.leader == Some(node)) {
                    return Ok(());
                }
                // Refused with 80 or 84 until the new replica is in sync, or when it leads already: ask
                // again.
                self.any().await?.call(2, &request).await?;
                Err(Failure::new(format!("{address} shows {seen:?}")))
            })
            .await?;
        }
        Ok(())
    }

    /// Gives a partition these replicas, and waits until they are in sync and no others are left.
    pub async fn reassign(&self, topic: &str, partition: i32, replicas: &[i32]) -> Result<()> {
        let wanted = ReassignablePartition::default()
            .with_partition_index(partition)
            .with_replicas(Some(replicas.iter().map(|&node| node.into()).collect()));
        let wanted = ReassignableTopic::default().with_name(name(topic)).with_partitions(vec![wanted]);
        let request = AlterPartitionReassignmentsRequest::default()
            .with_topics(vec![wanted])
            .with_timeout_ms(BROKER_MS);
        let answer = self.any().await?.call(0, &request).await?;
        let doing = || format!("reassign {topic}-{partition}");
        check(answer.error_code, answer.error_message.as_ref(), doing)?;
        for result in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            check(result.error_code, result.error_message.as_ref(), doing)?;
        }
        until(&doing(), async || {
            let partitions = self.partitions(topic).await?;
            let seen = partitions.iter().find(|seen| seen.index == partition);
            let done = seen.is_some_and(|seen| {
                seen.replicas == replicas && replicas.iter().all(|node| seen.in_sync.contains(node))
            });
            if done { Ok(()) } else { Err(Failure::new(format!("it is still {seen:?}"))) }
        })
        .await
    }

    /// Waits until every replica of the topic is in sync.
    pub async fn wait_in_sync(&self, topic: &str) -> Result<()> {
        until(&format!("wait for the replicas of {topic}"), async || {
            let partitions = self.partitions(topic).await?;
            match partitions.iter().find(|seen| seen.in_sync.len() < seen.replicas.len()) {
                None => Ok(()),
                Some(behind) => Err(Failure::new(format!("it is still {behind:?}"))),
            }
        })
        .await
    }

    /// The node that coordinates a group; waits while the cluster is still making its offsets topic.
    pub async fn group_coordinator(&self, group: &str) -> Result<i32> {
        self.coordinator(0, group).await
    }

    /// The node that coordinates a transactional id.
    pub async fn transaction_coordinator(&self, transactional_id: &str) -> Result<i32> {
        self.coordinator(1, transactional_id).await
    }

    async fn coordinator(&self, kind: i8, key: &str) -> Result<i32> {
        until(&format!("find the coordinator of {key}"), async || {
            let request =
                FindCoordinatorRequest::default().with_key_type(kind).with_coordinator_keys(vec![text(key)]);
            let answer = self.any().await?.call(4, &request).await?;
            let found = answer.coordinators.first().ok_or_else(|| Failure::new("an empty answer"))?;
            check(found.error_code, found.error_message.as_ref(), || format!("coordinator of {key}"))?;
            Ok(found.node_id.0)
        })
        .await
    }

    /// Waits until groups can be used: the offsets topic is there and each of its partitions has a leader.
    ///
    /// A coordinator that has just been found may still answer 14 and 16 for a second; this waits for that as
    /// well, by the group of the kit's own name.
    pub async fn ready_for_groups(&self) -> Result<()> {
        use kafka_protocol::messages::{
            GroupId, OffsetFetchRequest, offset_fetch_request::OffsetFetchRequestGroup,
        };
        self.group_coordinator("testkit").await?;
        let partitions = self.partitions("__consumer_offsets").await?.len();
        self.wait_for_partitions("__consumer_offsets", partitions).await?;
        // Names that fall on different partitions of the offsets topic, most likely on each.
        for group in ["testkit", "a", "b", "c", "d"] {
            until("wait for the group coordinators", async || {
                let node = self.group_coordinator(group).await?;
                let brokers = self.brokers().await?;
                let found = brokers.iter().find(|broker| broker.id == node);
                let broker = found.ok_or_else(|| Failure::new(format!("no address of node {node}")))?;
                let asked =
                    OffsetFetchRequestGroup::default().with_group_id(GroupId(text(group))).with_topics(None);
                let request = OffsetFetchRequest::default().with_groups(vec![asked]);
                let answer = Client::connect(&broker.address).await?.call(8, &request).await?;
                let found = answer.groups.first().ok_or_else(|| Failure::new("an empty answer"))?;
                check(found.error_code, None, || format!("offsets of {group} at node {node}"))
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until transactions can be used.
    pub async fn ready_for_transactions(&self) -> Result<()> {
        use kafka_protocol::messages::TransactionalId;
        until("wait for the transaction coordinator", async || {
            let node = self.transaction_coordinator("testkit").await?;
            let brokers = self.brokers().await?;
            let found = brokers.iter().find(|broker| broker.id == node);
            let broker = found.ok_or_else(|| Failure::new(format!("no address of node {node}")))?;
            let request = InitProducerIdRequest::default()
                .with_transactional_id(Some(TransactionalId(text("testkit"))))
                .with_transaction_timeout_ms(10_000);
            let answer = Client::connect(&broker.address).await?.call(4, &request).await?;
            check(answer.error_code, None, || format!("a producer id at node {node}"))
        })
        .await
    }
}
