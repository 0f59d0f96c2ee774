//! ApiVersions and Metadata.

use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::api::{Api, Call, Started};
use super::world::{Topic, World};

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// What a broker demands of the client's software name and version.
fn is_software_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric();
    name.starts_with(plain) && name.ends_with(plain) && name.chars().all(|c| plain(c) || c == '-' || c == '.')
}

impl Api for ApiVersionsRequest {
    fn refuse(&self, _call: &Call, code: i16) -> ApiVersionsResponse {
        ApiVersionsResponse::default().with_error_code(code)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<ApiVersionsResponse> {
        if call.version >= 3
            && !(is_software_name(&self.client_software_name)
                && is_software_name(&self.client_software_version))
        {
            return Started::Done(self.refuse(call, 42));
        }
        let mut response = ApiVersionsResponse::default();
        let Some(node) = world.node(call.node) else { return Started::Done(response) };
        let versions = &node.versions;
        for (key, (min, max)) in &versions.ranges {
            let range =
                ApiVersion::default().with_api_key(*key).with_min_version(*min).with_max_version(*max);
            response.api_keys.push(range);
        }
        if call.version >= 3 {
            for (name, min, max) in &versions.supported {
                // The v3 answer leaves out features whose lowest level is 0.
                if call.version >= 4 || *min > 0 {
                    let key = SupportedFeatureKey::default().with_name(text(name));
                    response.supported_features.push(key.with_min_version(*min).with_max_version(*max));
                }
            }
            for (name, level) in &versions.finalized {
                let key = FinalizedFeatureKey::default().with_name(text(name));
                let key = key.with_min_version_level(*level).with_max_version_level(*level);
                response.finalized_features.push(key);
            }
            response.finalized_features_epoch = 1;
        }
        Started::Done(response)
    }

    fn throttle(response: &mut ApiVersionsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

/// The answer to ApiVersions in a version the node does not know: always in v0, naming this API alone.
pub(super) fn too_new(max: i16) -> ApiVersionsResponse {
    let own = ApiVersion::default().with_api_key(18).with_min_version(0).with_max_version(max);
    ApiVersionsResponse::default().with_error_code(35).with_api_keys(vec![own])
}

impl Api for MetadataRequest {
    fn topics(&self, world: &World) -> Vec<String> {
        let topics = self.topics.iter().flatten();
        topics
            .filter_map(|topic| match &topic.name {
                Some(name) => Some(name.to_string()),
                None => world.resolve("", topic.topic_id),
            })
            .collect()
    }

    fn refuse(&self, call: &Call, code: i16) -> MetadataResponse {
        let mut response = MetadataResponse::default();
        if call.version >= 13 {
            response.error_code = code;
        }
        for topic in self.topics.iter().flatten() {
            let refused = MetadataResponseTopic::default().with_error_code(code);
            response
                .topics
                .push(refused.with_name(topic.name.clone()).with_topic_id(id_for(call, topic.topic_id)));
        }
        response
    }

    fn start(self, world: &mut World, call: &Call) -> Started<MetadataResponse> {
        let all = match &self.topics {
            None => true,
            Some(topics) => call.version == 0 && topics.is_empty(),
        };
        let mut response = MetadataResponse::default();
        if all {
            for topic in world.topics.values() {
                response.topics.push(describe(world, call, topic));
            }
        }
        for wanted in self.topics.iter().flatten() {
            let name = match &wanted.name {
                Some(name) if wanted.topic_id.is_nil() => name.to_string(),
                _ => match world.resolve("", wanted.topic_id).filter(|_| !wanted.topic_id.is_nil()) {
                    Some(name) => name,
                    None => {
                        let unknown = MetadataResponseTopic::default().with_error_code(100);
                        response
                            .topics
                            .push(unknown.with_topic_id(wanted.topic_id).with_name(wanted.name.clone()));
                        continue;
                    }
                },
            };
            if !world.topics.contains_key(&name) && world.auto_create && self.allow_auto_topic_creation {
                let replicas = world.placement(0, 1);
                world.create_topic(&name, 1, |_| replicas.clone());
            }
            response.topics.push(match world.topics.get(&name) {
                Some(topic) => describe(world, call, topic),
                None => {
                    MetadataResponseTopic::default().with_error_code(3).with_name(Some(text(&name).into()))
                }
            });
        }
        for node in world.nodes.values().filter(|node| node.listed) {
            let broker = MetadataResponseBroker::default()
                .with_node_id(node.id.into())
                .with_host(text(&node.host))
                .with_port(i32::from(node.port));
            response
                .brokers
                .push(broker.with_rack(node.rack.as_deref().filter(|_| call.version >= 1).map(text)));
        }
        if call.version >= 2 {
            response.cluster_id = Some(text(&world.cluster_id));
        }
        if call.version >= 1 {
            response.controller_id = world.controller.into();
        }
        Started::Done(response)
    }

    fn throttle(response: &mut MetadataResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn id_for(call: &Call, id: Uuid) -> Uuid {
    if call.version >= 10 { id } else { Uuid::nil() }
}

fn describe(world: &World, call: &Call, topic: &Topic) -> MetadataResponseTopic {
    let listed = |id: &i32| world.node(*id).is_some_and(|node| node.listed);
    let mut described = MetadataResponseTopic::default()
        .with_name(Some(text(&topic.name).into()))
        .with_topic_id(id_for(call, topic.id))
        .with_is_internal(topic.internal && call.version >= 1);
    for partition in &topic.partitions {
        let stale =
            world.node(call.node).and_then(|node| node.stale.get(&(topic.name.clone(), partition.index)));
        let (leader, leader_epoch) = stale.copied().unwrap_or((partition.leader, partition.leader_epoch));
        let leader = leader.filter(listed);
        let ids = |ids: &[i32]| ids.iter().map(|id| (*id).into()).collect();
        let mut entry = MetadataResponsePartition::default()
            .with_partition_index(partition.index)
            .with_error_code(if leader.is_some() { 0 } else { 5 })
            .with_leader_id(leader.unwrap_or(-1).into())
            .with_replica_nodes(ids(&partition.replicas))
            .with_isr_nodes(ids(&partition.isr));
        if call.version >= 7 {
            entry.leader_epoch = leader_epoch;
        }
        if call.version >= 5 {
            let offline: Vec<i32> = partition.replicas.iter().copied().filter(|id| !listed(id)).collect();
            entry.offline_replicas = ids(&offline);
        }
        described.partitions.push(entry);
    }
    described
}
