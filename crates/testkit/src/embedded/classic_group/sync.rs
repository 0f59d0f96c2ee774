//! SyncGroup v0 to v5: the leader brings assignments, everybody gets theirs.

use bytes::Bytes;
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::super::api::{Api, Call, Started, Waiting};
use super::super::groups::{self, Kind};
use super::super::world::World;
use super::{ClassicGroup, State};

impl Api for SyncGroupRequest {
    fn refuse(&self, _call: &Call, code: i16) -> SyncGroupResponse {
        SyncGroupResponse::default().with_error_code(code)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<SyncGroupResponse> {
        if let Err(code) = groups::admit(world, call, &self.group_id) {
            return Started::Done(self.refuse(call, code));
        }
        let name = self.group_id.to_string();
        let Some(Kind::Classic(group)) = world.groups.groups.get_mut(&name).map(|group| &mut group.kind)
        else {
            return Started::Done(self.refuse(call, 25));
        };
        group.advance(call.now);
        let ticket = match enter(&self, group, call) {
            Ok(ticket) => ticket,
            Err(code) => {
                world.touch();
                return Started::Done(self.refuse(call, code));
            }
        };
        world.touch();
        Started::Wait(Box::new(Sync { name, ticket, deadline: None }))
    }

    fn throttle(response: &mut SyncGroupResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

/// Leaves an answer, or a promise of one, under a ticket.
fn enter(request: &SyncGroupRequest, group: &mut ClassicGroup, call: &Call) -> Result<u64, i16> {
    let id = request.member_id.to_string();
    group.verify(&id, request.group_instance_id.as_deref().filter(|_| call.version >= 3))?;
    if request.generation_id != group.generation {
        return Err(22);
    }
    let other = |named: &Option<StrBytes>, known: &str| named.as_deref().is_some_and(|named| named != known);
    if call.version >= 5
        && (other(&request.protocol_type, &group.protocol_type)
            || other(&request.protocol_name, &group.protocol))
    {
        return Err(23);
    }
    match group.state {
        State::Empty => return Err(25),
        State::Preparing => return Err(27),
        State::Completing | State::Stable => {}
    }
    group.touch(&id, call.now);
    let ticket = group.ticket();
    if group.state == State::Stable {
        let assignment = group.members.get(&id).map(|member| member.assignment.clone()).unwrap_or_default();
        group.synced.insert(ticket, Ok(assignment));
        return Ok(ticket);
    }
    if let Some(member) = group.members.get_mut(&id) {
        member.sync = Some(ticket);
    }
    if group.leader.as_deref() == Some(id.as_str()) {
        settle(request, group, call.now);
    }
    Ok(ticket)
}

/// The leader has spoken: the group is stable and everybody who asked is answered.
fn settle(request: &SyncGroupRequest, group: &mut ClassicGroup, now: Instant) {
    group.state = State::Stable;
    group.until = None;
    for (id, member) in &mut group.members {
        let given = request.assignments.iter().find(|given| given.member_id.as_str() == id);
        member.assignment = given.map(|given| given.assignment.clone()).unwrap_or_else(Bytes::new);
        member.session_until = now + member.session;
        if let Some(ticket) = member.sync.take() {
            group.synced.insert(ticket, Ok(member.assignment.clone()));
        }
    }
}

struct Sync {
    name: String,
    ticket: u64,
    deadline: Option<Instant>,
}

impl Waiting<SyncGroupResponse> for Sync {
    fn poll(&mut self, world: &mut World, call: &Call, now: Instant) -> Option<SyncGroupResponse> {
        let Some(Kind::Classic(group)) = world.groups.groups.get_mut(&self.name).map(|group| &mut group.kind)
        else {
            return Some(SyncGroupResponse::default().with_error_code(25));
        };
        let changed = group.advance(now);
        let synced = group.synced.remove(&self.ticket);
        self.deadline = group.next_deadline();
        let named = |name: &str| (call.version >= 5).then(|| StrBytes::from_string(name.to_owned()));
        let response = SyncGroupResponse::default()
            .with_protocol_type(named(&group.protocol_type))
            .with_protocol_name(named(&group.protocol));
        if changed {
            world.touch();
        }
        Some(match synced? {
            Ok(assignment) => response.with_assignment(assignment),
            Err(code) => SyncGroupResponse::default().with_error_code(code),
        })
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}
