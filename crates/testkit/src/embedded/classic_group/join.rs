//! JoinGroup v0 to v9.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::super::api::{Api, Call, Started, Waiting};
use super::super::groups::{self, Kind};
use super::super::world::World;
use super::{ClassicGroup, Joined, Member, State};

/// What a join leads to at once.
enum Step {
    Refused(i16, String),
    Done(Joined),
    Waits(u64),
}

impl Api for JoinGroupRequest {
    fn refuse(&self, call: &Call, code: i16) -> JoinGroupResponse {
        refused(call, code, &self.member_id)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<JoinGroupResponse> {
        if self.group_id.is_empty() {
            return Started::Done(self.refuse(call, 24));
        }
        let name = self.group_id.to_string();
        if let Err(code) = groups::admit(world, call, &name) {
            return Started::Done(self.refuse(call, code));
        }
        let limits = world.groups.session_limits;
        if !(limits.0..=limits.1).contains(&self.session_timeout_ms) {
            return Started::Done(self.refuse(call, 26));
        }
        let (delay, max_size) = (world.groups.initial_delay, world.groups.timing.max_size);
        world.groups.ids_made = world.groups.ids_made.saturating_add(1);
        let number = world.groups.ids_made;
        let group = match world.groups.classic_group(&name, call.now) {
            Ok(group) => group,
            Err(code) => return Started::Done(self.refuse(call, code)),
        };
        group.advance(call.now);
        let step = enter(&self, group, call, (delay, max_size), number);
        group.advance(call.now);
        let protocol_type = self.protocol_type.to_string();
        world.touch();
        match step {
            Step::Refused(code, id) => Started::Done(refused(call, code, &id)),
            Step::Done(joined) => Started::Done(answer(call, joined, &protocol_type)),
            Step::Waits(ticket) => {
                Started::Wait(Box::new(Join { name, ticket, protocol_type, deadline: None }))
            }
        }
    }

    fn throttle(response: &mut JoinGroupResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn refused(call: &Call, code: i16, member: &str) -> JoinGroupResponse {
    let response = JoinGroupResponse::default()
        .with_error_code(code)
        .with_generation_id(-1)
        .with_member_id(StrBytes::from_string(member.to_owned()));
    // Null protocols came with v7.
    response.with_protocol_name((call.version < 7).then(StrBytes::new))
}

fn answer(call: &Call, joined: Joined, protocol_type: &str) -> JoinGroupResponse {
    let members = joined.members.into_iter().map(|(id, instance, metadata)| {
        let member = JoinGroupResponseMember::default()
            .with_member_id(StrBytes::from_string(id))
            .with_metadata(metadata);
        member.with_group_instance_id(instance.filter(|_| call.version >= 5).map(StrBytes::from_string))
    });
    JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_type((call.version >= 7).then(|| StrBytes::from_string(protocol_type.to_owned())))
        .with_protocol_name(Some(StrBytes::from_string(joined.protocol)))
        .with_leader(StrBytes::from_string(joined.leader))
        .with_skip_assignment(joined.skip_assignment)
        .with_member_id(StrBytes::from_string(joined.member))
        .with_members(members.collect())
}

struct Join {
    name: String,
    ticket: u64,
    protocol_type: String,
    deadline: Option<Instant>,
}

impl Waiting<JoinGroupResponse> for Join {
    fn poll(&mut self, world: &mut World, call: &Call, now: Instant) -> Option<JoinGroupResponse> {
        let Some(Kind::Classic(group)) = world.groups.groups.get_mut(&self.name).map(|group| &mut group.kind)
        else {
            return Some(refused(call, 25, ""));
        };
        let changed = group.advance(now);
        let joined = group.joined.remove(&self.ticket);
        self.deadline = group.next_deadline();
        if changed {
            world.touch();
        }
        joined.map(|joined| answer(call, joined, &self.protocol_type))
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

fn enter(
    request: &JoinGroupRequest,
    group: &mut ClassicGroup,
    call: &Call,
    (delay, max_size): (Duration, usize),
    number: u64,
) -> Step {
    let now = call.now;
    let id = request.member_id.to_string();
    let protocols: Vec<(String, Bytes)> = request
        .protocols
        .iter()
        .map(|protocol| (protocol.name.to_string(), protocol.metadata.clone()))
        .collect();
    if protocols.is_empty()
        || request.protocol_type.is_empty()
        || !group.fits(&request.protocol_type, &protocols)
    {
        return Step::Refused(23, id);
    }
    let instance = request.group_instance_id.as_ref().map(ToString::to_string).filter(|_| call.version >= 5);
    if id.is_empty() {
        if let Some(instance) = &instance
            && let Some(owner) = group.by_instance(instance).map(str::to_owned)
        {
            return replace(request, group, call, &owner, format!("{instance}-{number:06}"), protocols);
        }
        let prefix = instance.as_deref().unwrap_or("member");
        let id = format!("{prefix}-{number:06}");
        if call.version >= 4 && instance.is_none() {
            // The id comes first and the member with the next request, so that lost answers make no ghosts.
            group.pending.insert(id.clone(), now + millis(request.session_timeout_ms));
            return Step::Refused(79, id);
        }
        return add(request, group, call, (delay, max_size), id, protocols);
    }
    if group.pending.remove(&id).is_some() {
        return add(request, group, call, (delay, max_size), id, protocols);
    }
    if let Err(code) = group.verify(&id, instance.as_deref()) {
        return Step::Refused(code, id);
    }
    let same = group.members.get(&id).is_some_and(|member| member.protocols == protocols);
    let leads = group.leader.as_deref() == Some(id.as_str());
    let repeated = same && (group.state == State::Completing || group.state == State::Stable && !leads);
    if let Some(member) = group.members.get_mut(&id) {
        set(member, request, protocols, now);
    }
    if repeated {
        return Step::Done(group.describe(&id, false));
    }
    group.prepare(now, Duration::ZERO);
    wait(group, &id)
}

fn wait(group: &mut ClassicGroup, id: &str) -> Step {
    let ticket = group.ticket();
    if let Some(member) = group.members.get_mut(id) {
        member.join = Some(ticket);
    }
    Step::Waits(ticket)
}

fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn set(member: &mut Member, request: &JoinGroupRequest, protocols: Vec<(String, Bytes)>, now: Instant) {
    member.session = millis(request.session_timeout_ms);
    // v0 has no timeout of its own for rebalances.
    member.rebalance =
        if request.rebalance_timeout_ms < 0 { member.session } else { millis(request.rebalance_timeout_ms) };
    member.protocols = protocols;
    member.session_until = now + member.session;
}

fn add(
    request: &JoinGroupRequest,
    group: &mut ClassicGroup,
    call: &Call,
    (delay, max_size): (Duration, usize),
    id: String,
    protocols: Vec<(String, Bytes)>,
) -> Step {
    if group.members.len() >= max_size {
        return Step::Refused(81, id);
    }
    let order = group.ticket();
    let mut member = Member {
        client_id: call.client_id.clone(),
        instance: request.group_instance_id.as_ref().map(ToString::to_string).filter(|_| call.version >= 5),
        order,
        session: Duration::ZERO,
        rebalance: Duration::ZERO,
        protocols: Vec::new(),
        session_until: call.now,
        join: None,
        sync: None,
        assignment: Bytes::new(),
    };
    set(&mut member, request, protocols, call.now);
    let first = group.members.is_empty();
    if first {
        group.protocol_type = request.protocol_type.to_string();
    }
    group.members.insert(id.clone(), member);
    let step = wait(group, &id);
    group.prepare(call.now, Duration::ZERO);
    if first && !delay.is_zero() {
        // An empty group waits for more members before its first generation.
        group.pending.insert(String::new(), call.now + delay);
    }
    step
}

/// A static member comes back without its id: it takes the place of the one before.
fn replace(
    request: &JoinGroupRequest,
    group: &mut ClassicGroup,
    call: &Call,
    owner: &str,
    id: String,
    protocols: Vec<(String, Bytes)>,
) -> Step {
    let Some(mut member) = group.members.remove(owner) else { return Step::Refused(25, id) };
    set(&mut member, request, protocols, call.now);
    (member.join, member.sync) = (None, None);
    group.members.insert(id.clone(), member);
    let led = group.leader.as_deref() == Some(owner);
    if led {
        group.leader = Some(id.clone());
    }
    if group.state == State::Stable && group.vote() == group.protocol {
        // Whatever its topics are now: no rebalance.
        let mut joined = group.describe(&id, true);
        if call.version < 9 && led {
            joined.skip_assignment = false;
            joined.leader = owner.to_owned();
            joined.members.clear();
        }
        return Step::Done(joined);
    }
    group.prepare(call.now, Duration::ZERO);
    wait(group, &id)
}

impl groups::Groups {
    /// The group as one of the classic protocol; an empty one of the other kind changes over.
    fn classic_group(&mut self, name: &str, now: Instant) -> Result<&mut ClassicGroup, i16> {
        let group = self.groups.entry(name.to_owned()).or_default();
        if !matches!(group.kind, Kind::Classic(_)) {
            if group.is_live(now) {
                return Err(23);
            }
            group.kind = Kind::Classic(ClassicGroup::default());
        }
        match &mut group.kind {
            Kind::Classic(group) => Ok(group),
            _ => Err(23),
        }
    }
}
