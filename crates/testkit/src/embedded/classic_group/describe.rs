//! DescribeGroups v0 to v6: who is in a classic group, and what each member was given.

use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};
use kafka_protocol::protocol::StrBytes;

use super::super::api::{Api, Call, Started};
use super::super::describe::HOST;
use super::super::groups::{self, Kind};
use super::super::world::World;
use super::{ClassicGroup, Member, State};

impl Api for DescribeGroupsRequest {
    fn refuse(&self, _call: &Call, code: i16) -> DescribeGroupsResponse {
        let groups = self.groups.iter().map(|group| nobody(group).with_error_code(code));
        DescribeGroupsResponse::default().with_groups(groups.collect())
    }

    fn start(self, world: &mut World, call: &Call) -> Started<DescribeGroupsResponse> {
        let mut response = DescribeGroupsResponse::default();
        for group in &self.groups {
            let described = match groups::admit(world, call, group) {
                Ok(()) => describe(world, call, group),
                Err(code) => nobody(group).with_error_code(code),
            };
            response.groups.push(described);
        }
        Started::Done(response)
    }

    fn throttle(response: &mut DescribeGroupsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn nobody(group: &GroupId) -> DescribedGroup {
    DescribedGroup::default().with_group_id(group.clone())
}

fn describe(world: &mut World, call: &Call, id: &GroupId) -> DescribedGroup {
    let found = world.groups.groups.get_mut(id.as_str()).map(|group| &mut group.kind);
    let group = match found {
        Some(Kind::Classic(group)) => group,
        // It only stores offsets.
        Some(Kind::Simple) => return nobody(id).with_group_state(StrBytes::from_static_str("Empty")),
        Some(Kind::Consumer(_)) | None => {
            // Before v6 a group that is not there was described as dead.
            let dead = nobody(id).with_group_state(StrBytes::from_static_str("Dead"));
            if call.version < 6 {
                return dead;
            }
            let text = format!("Group {} not found.", id.as_str());
            return dead.with_error_code(69).with_error_message(Some(StrBytes::from_string(text)));
        }
    };
    group.advance(call.now);
    let members = group.members.iter().map(|(id, member)| described(group, id, member, call));
    nobody(id)
        .with_group_state(StrBytes::from_static_str(group.state.name()))
        .with_protocol_type(StrBytes::from_string(group.protocol_type.clone()))
        .with_protocol_data(StrBytes::from_string(match group.state {
            State::Stable => group.protocol.clone(),
            _ => String::new(),
        }))
        .with_members(members.collect())
}

/// What a member wants is told of a stable group only; what it was given last, always.
fn described(group: &ClassicGroup, id: &str, member: &Member, call: &Call) -> DescribedGroupMember {
    let instance = member.instance.clone().filter(|_| call.version >= 4);
    let mut answer = DescribedGroupMember::default()
        .with_member_id(StrBytes::from_string(id.to_owned()))
        .with_group_instance_id(instance.map(StrBytes::from_string))
        .with_client_id(StrBytes::from_string(member.client_id.clone()))
        .with_client_host(StrBytes::from_static_str(HOST))
        .with_member_assignment(member.assignment.clone());
    if group.state == State::Stable {
        answer.member_metadata = member.metadata(&group.protocol);
    }
    answer
}
