//! ConsumerGroupHeartbeat v0 and v1: joins, beats, acknowledgements and leaves.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::api::{Api, Call, Started, millis};
use super::super::groups::{self, Kind};
use super::super::world::World;
use super::{ConsumerGroup, Member, Pattern, Places, State, Timing, Topics};

/// A static member that has left and may return within its session.
const PARKED: i32 = -2;

type Refused = (i16, String);

impl Api for ConsumerGroupHeartbeatRequest {
    fn topics(&self, _world: &World) -> Vec<String> {
        self.subscribed_topic_names.iter().flatten().map(|name| name.to_string()).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> ConsumerGroupHeartbeatResponse {
        ConsumerGroupHeartbeatResponse::default().with_error_code(code)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<ConsumerGroupHeartbeatResponse> {
        if !world.groups.consumer_protocol {
            // Advertised all the same, and refused without a word.
            return Started::Done(self.refuse(call, 35));
        }
        let done = beat(&self, world, call).unwrap_or_else(|(code, message)| {
            let text = (!message.is_empty()).then(|| StrBytes::from_string(message));
            self.refuse(call, code).with_error_message(text)
        });
        world.touch();
        Started::Done(done)
    }

    fn throttle(response: &mut ConsumerGroupHeartbeatResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

fn invalid<T>(text: &str) -> Result<T, Refused> {
    Err((42, text.to_owned()))
}

fn unknown(id: &str, group: &str) -> Refused {
    (25, format!("Member {id} is not a member of group {group}."))
}

/// What is wrong with the request by itself.
fn check(request: &ConsumerGroupHeartbeatRequest, version: i16) -> Result<(), Refused> {
    if request.group_id.is_empty() {
        return invalid("GroupId can't be empty.");
    }
    let id = request.member_id.trim();
    if id.is_empty() && (version >= 1 || request.member_epoch != 0) {
        return invalid("MemberId can't be empty.");
    }
    if request.instance_id.as_ref().is_some_and(|id| id.is_empty()) {
        return invalid("InstanceId can't be empty.");
    }
    if request.rack_id.as_ref().is_some_and(|rack| rack.is_empty()) {
        return invalid("RackId can't be empty.");
    }
    match request.member_epoch {
        0 => {
            if request.rebalance_timeout_ms == -1 {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            if request.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) {
                return invalid("TopicPartitions must be empty when (re-)joining.");
            }
            let regex = version >= 1 && request.subscribed_topic_regex.is_some();
            if request.subscribed_topic_names.is_none() && !regex {
                return invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
                );
            }
        }
        PARKED if request.instance_id.is_none() => return invalid("InstanceId can't be null."),
        epoch if epoch < PARKED => return invalid("MemberEpoch is invalid."),
        _ => {}
    }
    match request.server_assignor.as_deref() {
        None => Ok(()),
        Some(name) if name == "uniform" || name == "range" => Ok(()),
        Some(name) => {
            let text =
                format!("ServerAssignor {name} is not supported. Supported assignors: uniform, range.");
            Err((112, text))
        }
    }
}

fn beat(
    request: &ConsumerGroupHeartbeatRequest,
    world: &mut World,
    call: &Call,
) -> Result<ConsumerGroupHeartbeatResponse, Refused> {
    check(request, call.version)?;
    let name = request.group_id.to_string();
    groups::admit(world, call, &name).map_err(|code| (code, String::new()))?;
    let topics: Topics = world
        .topics
        .iter()
        .map(|(name, topic)| {
            (name.clone(), (topic.id, i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX)))
        })
        .collect();
    let timing = world.configs.timing(&name, &world.groups.timing);
    let joins = request.member_epoch == 0;
    let group = world.groups.consumer_group(&name, joins, call.now)?;
    group.expire(call.now);
    if request.member_epoch < 0 {
        return leave(request, group);
    }
    let mut id = request.member_id.to_string();
    if id.is_empty() {
        id = group.make_id();
    }
    let full_request = request.rebalance_timeout_ms != -1
        && (request.subscribed_topic_names.is_some() || request.subscribed_topic_regex.is_some())
        && request.topic_partitions.is_some();
    let owned: Option<Places> = request.topic_partitions.as_ref().map(|owned| {
        owned.iter().flat_map(|topic| topic.partitions.iter().map(|index| (topic.topic_id, *index))).collect()
    });
    if joins {
        join(request, group, &id, call, &timing)?;
    } else {
        verify(request, group, &id, owned.as_ref())?;
        if let Some(member) = group.members.get_mut(&id)
            && member.pattern.is_some()
            && !member.resolved
        {
            member.resolved = true;
            group.resolved = true;
        }
    }
    subscribe(request, group, &id, call.version)?;
    let before = group.members.get(&id).map(|member| member.assigned.clone()).unwrap_or_default();
    group.update_target(&topics, call.now, &timing);
    group.reconcile(&id, owned.as_ref(), call.now);
    let Some(member) = group.members.get_mut(&id) else { return Err(unknown(&id, &name)) };
    member.session_until = call.now + timing.session;
    let mut response = ConsumerGroupHeartbeatResponse::default()
        .with_member_id(Some(StrBytes::from_string(id)))
        .with_member_epoch(member.epoch)
        .with_heartbeat_interval_ms(millis(timing.heartbeat));
    if joins || full_request || member.assigned != before {
        response.assignment = Some(assignment(&member.assigned));
    }
    Ok(response)
}

fn assignment(places: &Places) -> Assignment {
    let mut topics: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for (id, index) in places {
        topics.entry(*id).or_default().push(*index);
    }
    let topics = topics
        .into_iter()
        .map(|(id, partitions)| TopicPartitions::default().with_topic_id(id).with_partitions(partitions));
    Assignment::default().with_topic_partitions(topics.collect())
}

fn leave(
    request: &ConsumerGroupHeartbeatRequest,
    group: &mut ConsumerGroup,
) -> Result<ConsumerGroupHeartbeatResponse, Refused> {
    let id = request.member_id.to_string();
    fenced_instance(request, group, &id)?;
    if !group.members.contains_key(&id) {
        return Err(unknown(&id, &request.group_id));
    }
    if request.member_epoch == PARKED {
        if let Some(member) = group.members.get_mut(&id) {
            member.previous_epoch = member.epoch;
            member.epoch = PARKED;
        }
    } else {
        group.remove(&id);
    }
    let response = ConsumerGroupHeartbeatResponse::default().with_member_id(Some(StrBytes::from_string(id)));
    Ok(response.with_member_epoch(request.member_epoch))
}

/// Another member holds the instance id this one names.
fn fenced_instance(
    request: &ConsumerGroupHeartbeatRequest,
    group: &ConsumerGroup,
    id: &str,
) -> Result<(), Refused> {
    let Some(instance) = request.instance_id.as_deref() else { return Ok(()) };
    match group.by_instance(instance) {
        Some(owner) if owner == id => Ok(()),
        Some(owner) => {
            Err((82, format!("Static member {id} with instance id {instance} was fenced by member {owner}.")))
        }
        None => Err((25, format!("Instance id {instance} is unknown."))),
    }
}

fn verify(
    request: &ConsumerGroupHeartbeatRequest,
    group: &ConsumerGroup,
    id: &str,
    owned: Option<&Places>,
) -> Result<(), Refused> {
    // A static member that does not name its instance is not checked for it.
    fenced_instance(request, group, id)?;
    let member = group.members.get(id).ok_or_else(|| unknown(id, &request.group_id))?;
    let (asked, known) = (request.member_epoch, member.epoch);
    let lost_answer = asked == member.previous_epoch
        && known > asked
        && owned.is_some_and(|owned| owned.iter().all(|place| member.assigned.contains(place)));
    if asked == known || lost_answer {
        return Ok(());
    }
    let than = if asked > known { "greater" } else { "smaller" };
    Err((
        110,
        format!(
            "The consumer group member has a {than} member epoch ({asked}) than the one known by the group \
             coordinator ({known}). The member must abandon all its partitions and rejoin."
        ),
    ))
}

fn join(
    request: &ConsumerGroupHeartbeatRequest,
    group: &mut ConsumerGroup,
    id: &str,
    call: &Call,
    timing: &Timing,
) -> Result<(), Refused> {
    let timeout = Duration::from_millis(u64::try_from(request.rebalance_timeout_ms).unwrap_or(0));
    if let Some(instance) = request.instance_id.as_deref()
        && let Some(owner) = group.by_instance(instance).map(str::to_owned)
    {
        let parked = group.members.get(&owner).is_some_and(|member| member.epoch == PARKED);
        if owner != id && !parked {
            let text = format!(
                "Static member {id} with instance id {instance} cannot join the group because the instance id is \
                 owned by {owner} member."
            );
            return Err((111, text));
        }
        if parked {
            // Whoever comes takes over what the one before owned, and its place in the target: nothing else moves.
            if let Some(mut member) = group.members.remove(&owner) {
                member.epoch = member.previous_epoch;
                group.members.insert(id.to_owned(), member);
            }
            if let Some(target) = group.target.remove(&owner) {
                group.target.insert(id.to_owned(), target);
            }
        }
    }
    if let Some(member) = group.members.get_mut(id) {
        let moved_on = member.previous_epoch > 0 && member.instance.is_none();
        if moved_on && !timing.rejoin_always {
            let text = format!(
                "The consumer group member has a smaller member epoch (0) than the one known by the group \
                 coordinator ({}).",
                member.epoch
            );
            return Err((110, text));
        }
        member.rebalance_timeout = timeout;
        return Ok(());
    }
    if group.members.len() >= timing.max_size {
        let text =
            format!("The consumer group has reached its maximum capacity of {} members.", timing.max_size);
        return Err((81, text));
    }
    let member = Member {
        client_id: call.client_id.clone(),
        instance: request.instance_id.as_ref().map(ToString::to_string),
        rebalance_timeout: timeout,
        names: Default::default(),
        pattern: None,
        resolved: false,
        epoch: 0,
        previous_epoch: 0,
        state: State::Stable,
        assigned: Places::new(),
        revoking: Places::new(),
        since: BTreeMap::new(),
        session_until: call.now + timing.session,
        revoke_until: None,
    };
    group.members.insert(id.to_owned(), member);
    group.epoch = group.epoch.saturating_add(1);
    Ok(())
}

/// Takes over the subscription of the request, where it names one.
fn subscribe(
    request: &ConsumerGroupHeartbeatRequest,
    group: &mut ConsumerGroup,
    id: &str,
    version: i16,
) -> Result<(), Refused> {
    let Some(member) = group.members.get_mut(id) else { return Ok(()) };
    let mut changed = false;
    if let Some(names) = &request.subscribed_topic_names {
        let names = names.iter().map(|name| name.to_string()).collect();
        changed = member.names != names;
        member.names = names;
    }
    if let Some(regex) = request.subscribed_topic_regex.as_deref().filter(|_| version >= 1) {
        let known = member.pattern.as_ref().map_or("", Pattern::text);
        if regex != known {
            let pattern = Pattern::new(regex);
            if pattern.is_none() {
                return Err((
                    128,
                    format!("SubscribedTopicRegex `{}` is not a valid regular expression.", regex),
                ));
            }
            member.pattern = pattern.filter(|_| !regex.is_empty());
            member.resolved = false;
            changed = true;
        }
    }
    if request.rebalance_timeout_ms >= 0 {
        member.rebalance_timeout =
            Duration::from_millis(u64::try_from(request.rebalance_timeout_ms).unwrap_or_default());
    }
    // A join has raised the epoch already.
    if changed && request.member_epoch > 0 {
        group.epoch = group.epoch.saturating_add(1);
    }
    Ok(())
}

impl super::super::groups::Groups {
    /// The group as one of the new protocol. Made by a join; otherwise it has to exist.
    fn consumer_group(
        &mut self,
        name: &str,
        joins: bool,
        now: Instant,
    ) -> Result<&mut ConsumerGroup, Refused> {
        let missing = || (69_i16, format!("Group {name} not found."));
        let first_epoch = i32::from(self.timing.rejoin_always);
        if !joins && self.groups.get(name).is_none_or(|group| matches!(group.kind, Kind::Simple)) {
            return Err(missing());
        }
        let group = self.groups.entry(name.to_owned()).or_default();
        if !matches!(group.kind, Kind::Consumer(_)) {
            if group.is_live(now) {
                return Err((69, format!("Group {name} is not a consumer group.")));
            }
            // An empty group changes its kind freely; its offsets stay.
            group.kind = Kind::Consumer(ConsumerGroup { epoch: first_epoch, ..ConsumerGroup::default() });
        }
        match &mut group.kind {
            Kind::Consumer(group) => Ok(group),
            _ => Err(missing()),
        }
    }
}
