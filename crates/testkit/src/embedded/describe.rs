//! ListGroups, ConsumerGroupDescribe and DescribeCluster: what a broker tells of groups and nodes. Classic groups
//! describe themselves.

use std::collections::BTreeMap;

use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member as DescribedMember, TopicPartitions,
};
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DescribeClusterRequest,
    DescribeClusterResponse, ListGroupsRequest, ListGroupsResponse,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::api::{Api, Call, Started};
use super::consumer_group::Places;
use super::groups::{self, Group, Kind};
use super::world::World;

/// Where every client of an embedded broker seems to be.
pub(super) const HOST: &str = "/127.0.0.1";

/// The code of an answer whose group's rights nobody asked about.
const NOT_ASKED: i32 = i32::MIN;

fn string(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A group's protocol type, state and type.
fn facts(group: &Group) -> (String, &'static str, &'static str) {
    match &group.kind {
        Kind::Simple => (String::new(), if group.live { "Stable" } else { "Empty" }, "classic"),
        Kind::Classic(classic) => (classic.protocol_type.clone(), classic.state.name(), "classic"),
        Kind::Consumer(members) => ("consumer".to_owned(), members.state(), "consumer"),
    }
}

impl Api for ListGroupsRequest {
    fn refuse(&self, _call: &Call, code: i16) -> ListGroupsResponse {
        ListGroupsResponse::default().with_error_code(code)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<ListGroupsResponse> {
        let mut response = self.refuse(call, 0);
        let names: Vec<String> = world.groups.groups.keys().cloned().collect();
        for name in names {
            if groups::coordinator(world, &name) != Some(call.node) {
                continue;
            }
            let Some(group) = world.groups.groups.get_mut(&name) else { continue };
            group.is_live(call.now);
            let (protocol, state, kind) = facts(group);
            let among = |list: &[StrBytes], name: &str| {
                list.is_empty() || list.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
            };
            if !among(&self.states_filter, state) || !among(&self.types_filter, kind) {
                continue;
            }
            let mut listed = ListedGroup::default()
                .with_group_id(string(&name).into())
                .with_protocol_type(StrBytes::from_string(protocol));
            if call.version >= 4 {
                listed.group_state = StrBytes::from_static_str(state);
            }
            if call.version >= 5 {
                listed.group_type = StrBytes::from_static_str(kind);
            }
            response.groups.push(listed);
        }
        Started::Done(response)
    }

    fn throttle(response: &mut ListGroupsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn assignment(places: &Places, names: &std::collections::HashMap<Uuid, String>) -> Assignment {
    let mut topics: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for (id, index) in places {
        topics.entry(*id).or_default().push(*index);
    }
    // A topic that is gone is left out.
    let topics = topics.into_iter().filter_map(|(id, partitions)| {
        let name = string(names.get(&id)?);
        let topic = TopicPartitions::default().with_topic_id(id).with_topic_name(name.into());
        Some(topic.with_partitions(partitions))
    });
    Assignment::default().with_topic_partitions(topics.collect())
}

impl Api for ConsumerGroupDescribeRequest {
    fn refuse(&self, _call: &Call, code: i16) -> ConsumerGroupDescribeResponse {
        let groups = self.group_ids.iter().map(|name| {
            DescribedGroup::default()
                .with_group_id(name.clone())
                .with_error_code(code)
                .with_authorized_operations(NOT_ASKED)
        });
        ConsumerGroupDescribeResponse::default().with_groups(groups.collect())
    }

    fn start(self, world: &mut World, call: &Call) -> Started<ConsumerGroupDescribeResponse> {
        if !world.groups.consumer_protocol {
            return Started::Done(self.refuse(call, 35));
        }
        let mut response = self.refuse(call, 0);
        for answer in &mut response.groups {
            let name = answer.group_id.to_string();
            if let Err(code) = groups::admit(world, call, &name) {
                answer.error_code = code;
                continue;
            }
            let world = &mut *world;
            if let Some(group) = world.groups.groups.get_mut(&name) {
                group.is_live(call.now);
            }
            let Some(Kind::Consumer(group)) = world.groups.groups.get(&name).map(|group| &group.kind) else {
                answer.error_code = 69;
                answer.error_message = Some(StrBytes::from_string(format!("Group {name} not found.")));
                continue;
            };
            answer.group_state = StrBytes::from_static_str(group.state());
            answer.group_epoch = group.epoch;
            answer.assignment_epoch = group.target_epoch();
            answer.assignor_name = StrBytes::from_static_str("uniform");
            for (id, member) in &group.members {
                // What it has not given up yet is still its own.
                let held = member.assigned.union(&member.revoking).copied().collect();
                let topics = member.names.iter().map(|name| string(name).into());
                let mut described = DescribedMember::default()
                    .with_member_id(string(id))
                    .with_instance_id(member.instance.as_deref().map(string))
                    .with_member_epoch(member.epoch)
                    .with_client_id(string(&member.client_id))
                    .with_client_host(StrBytes::from_static_str(HOST))
                    .with_subscribed_topic_names(topics.collect())
                    .with_subscribed_topic_regex(
                        member.pattern.as_ref().map(|pattern| string(pattern.text())),
                    )
                    .with_assignment(assignment(&held, &world.ids))
                    .with_target_assignment(assignment(&group.target_of(id), &world.ids));
                if call.version >= 1 {
                    described.member_type = 1;
                }
                answer.members.push(described);
            }
        }
        Started::Done(response)
    }

    fn throttle(response: &mut ConsumerGroupDescribeResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

impl Api for DescribeClusterRequest {
    fn refuse(&self, _call: &Call, code: i16) -> DescribeClusterResponse {
        DescribeClusterResponse::default().with_error_code(code)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<DescribeClusterResponse> {
        let brokers = world.nodes.values().filter(|node| node.listed).map(|node| {
            DescribeClusterBroker::default()
                .with_broker_id(node.id.into())
                .with_host(string(&node.host))
                .with_port(i32::from(node.port))
                .with_rack(node.rack.as_deref().map(string))
        });
        let response = self
            .refuse(call, 0)
            .with_cluster_id(string(&world.cluster_id))
            .with_controller_id(world.controller.into())
            .with_brokers(brokers.collect())
            .with_cluster_authorized_operations(NOT_ASKED);
        Started::Done(response)
    }

    fn throttle(response: &mut DescribeClusterResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}
