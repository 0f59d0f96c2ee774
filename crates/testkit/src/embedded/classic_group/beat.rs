//! Heartbeat v0 to v4 and LeaveGroup v0 to v5.

use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse, LeaveGroupRequest, LeaveGroupResponse};

use super::super::api::{Api, Call, Started};
use super::super::groups::{self, Kind};
use super::super::world::World;
use super::{ClassicGroup, State};

impl Api for HeartbeatRequest {
    fn refuse(&self, _call: &Call, code: i16) -> HeartbeatResponse {
        HeartbeatResponse::default().with_error_code(code)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<HeartbeatResponse> {
        if let Err(code) = groups::admit(world, call, &self.group_id) {
            return Started::Done(self.refuse(call, code));
        }
        let name = self.group_id.as_str();
        let Some(Kind::Classic(group)) = world.groups.groups.get_mut(name).map(|group| &mut group.kind)
        else {
            return Started::Done(self.refuse(call, 25));
        };
        let changed = group.advance(call.now);
        let instance = self.group_instance_id.as_deref().filter(|_| call.version >= 3);
        let code = match group.verify(&self.member_id, instance) {
            Err(code) => code,
            Ok(()) if self.generation_id != group.generation => 22,
            Ok(()) => {
                group.touch(&self.member_id, call.now);
                if group.state == State::Preparing { 27 } else { 0 }
            }
        };
        if changed {
            world.touch();
        }
        Started::Done(self.refuse(call, code))
    }

    fn throttle(response: &mut HeartbeatResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

impl Api for LeaveGroupRequest {
    fn refuse(&self, _call: &Call, code: i16) -> LeaveGroupResponse {
        LeaveGroupResponse::default().with_error_code(code)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<LeaveGroupResponse> {
        if let Err(code) = groups::admit(world, call, &self.group_id) {
            return Started::Done(self.refuse(call, code));
        }
        let name = self.group_id.as_str();
        if let Some(Kind::Consumer(group)) = world.groups.groups.get_mut(name).map(|group| &mut group.kind)
            && call.version >= 3
        {
            group.expire(call.now);
            let mut response = LeaveGroupResponse::default();
            for leaver in &self.members {
                let code = match leaver.group_instance_id.as_deref() {
                    Some(instance) => group.remove_instance(instance),
                    None if group.remove(&leaver.member_id) => 0,
                    None => 25,
                };
                response.members.push(answer(leaver).with_error_code(code));
            }
            world.touch();
            return Started::Done(response);
        }
        let mut none = ClassicGroup::default();
        let group = match world.groups.groups.get_mut(name).map(|group| &mut group.kind) {
            Some(Kind::Classic(group)) => group,
            _ => &mut none,
        };
        group.advance(call.now);
        let mut response = LeaveGroupResponse::default();
        if call.version < 3 {
            if !group.remove(&self.member_id, call.now) {
                response.error_code = 25;
            }
        } else {
            for leaver in &self.members {
                let instance = leaver.group_instance_id.as_deref();
                let code = leave(group, &leaver.member_id, instance, call);
                response.members.push(answer(leaver).with_error_code(code));
            }
        }
        group.advance(call.now);
        world.touch();
        Started::Done(response)
    }

    fn throttle(response: &mut LeaveGroupResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn answer(leaver: &MemberIdentity) -> MemberResponse {
    MemberResponse::default()
        .with_member_id(leaver.member_id.clone())
        .with_group_instance_id(leaver.group_instance_id.clone())
}

fn leave(group: &mut ClassicGroup, member: &str, instance: Option<&str>, call: &Call) -> i16 {
    // An administrator names a static member by its instance alone.
    let id = match instance {
        Some(instance) if member.is_empty() => group.by_instance(instance).unwrap_or_default().to_owned(),
        _ => member.to_owned(),
    };
    if group.pending.remove(&id).is_some() {
        return 0;
    }
    if let Err(code) = group.verify(&id, instance) {
        return code;
    }
    if group.remove(&id, call.now) { 0 } else { 25 }
}
