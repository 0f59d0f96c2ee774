//! The control side of an embedded cluster: who is in a group, and on what clock.

use std::time::Duration;

use tokio::time::Instant;

use super::Embedded;
use super::groups::Kind;

/// A member of a group as its coordinator sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GroupMember {
    /// The member id.
    pub id: String,
    /// The instance id of a static member.
    pub instance: Option<String>,
    /// The member's epoch (new protocol; −2: parked) or the group's generation (classic).
    pub epoch: i32,
    /// Topic and partition of what is assigned (new protocol). Of a classic group only the members know.
    pub assigned: Vec<(String, i32)>,
    /// What the member still has to give up (new protocol).
    pub revoking: Vec<(String, i32)>,
}

impl Embedded {
    /// The members of a group, by id. Members whose session is over are not among them.
    pub fn group_members(&self, group: &str) -> Vec<GroupMember> {
        let mut world = self.shared.world();
        let world = &mut *world;
        let Some(found) = world.groups.groups.get_mut(group) else { return Vec::new() };
        found.is_live(Instant::now());
        let named = |places: &super::consumer_group::Places| {
            let name = |id| world.ids.get(id).cloned().unwrap_or_default();
            places.iter().map(|(id, index)| (name(id), *index)).collect()
        };
        match &found.kind {
            Kind::Simple => Vec::new(),
            Kind::Classic(classic) => {
                let member = |(id, member): (&String, &super::classic_group::Member)| GroupMember {
                    id: id.clone(),
                    instance: member.instance.clone(),
                    epoch: classic.generation,
                    assigned: Vec::new(),
                    revoking: Vec::new(),
                };
                classic.members.iter().map(member).collect()
            }
            Kind::Consumer(group) => {
                let member = |(id, member): (&String, &super::consumer_group::Member)| GroupMember {
                    id: id.clone(),
                    instance: member.instance.clone(),
                    epoch: member.epoch,
                    assigned: named(&member.assigned),
                    revoking: named(&member.revoking),
                };
                group.members.iter().map(member).collect()
            }
        }
    }

    /// Ends a member's session now: its next request is answered 25.
    pub fn remove_member(&self, group: &str, member: &str) -> bool {
        let mut world = self.shared.world();
        let removed = match world.groups.groups.get_mut(group).map(|group| &mut group.kind) {
            Some(Kind::Classic(group)) => group.remove(member, Instant::now()),
            Some(Kind::Consumer(group)) => group.remove(member),
            Some(Kind::Simple) | None => false,
        };
        world.touch();
        removed
    }

    /// Forgets a group altogether, offsets included, as a coordinator that lost its log.
    pub fn forget_group(&self, group: &str) -> bool {
        let mut world = self.shared.world();
        let known = world.groups.groups.remove(group).is_some();
        world.touch();
        known
    }

    /// Session timeout and heartbeat interval of the new protocol; 45 s and 5 s at the start.
    pub fn set_group_timing(&self, session: Duration, heartbeat: Duration) {
        let mut world = self.shared.world();
        world.groups.timing.session = session;
        world.groups.timing.heartbeat = heartbeat;
    }

    /// The shortest and the longest session timeout a group may be given by its own configuration
    /// (`group.consumer.min.session.timeout.ms` and `max`); 45 s and 60 s at the start.
    pub fn set_group_session_limits(&self, least: Duration, most: Duration) {
        self.shared.world().groups.timing.session_limits = (least, most);
    }

    /// The shortest and the longest heartbeat interval a group may be given by its own configuration
    /// (`group.consumer.min.heartbeat.interval.ms` and `max`); 5 s and 15 s at the start.
    pub fn set_group_heartbeat_limits(&self, least: Duration, most: Duration) {
        self.shared.world().groups.timing.heartbeat_limits = (least, most);
    }

    /// How long the target of a changed group may come after the one before
    /// (`group.consumer.assignment.interval.ms`); none at the start, one second in a real broker from 4.1 on.
    pub fn set_assignment_interval(&self, interval: Duration) {
        self.shared.world().groups.timing.assignment_interval = interval;
    }

    /// How long an empty classic group waits for more members; not at all at the start, 3 s in a real broker.
    pub fn set_initial_rebalance_delay(&self, delay: Duration) {
        self.shared.world().groups.initial_delay = delay;
    }

    /// The shortest session a classic member may ask for; 6 s at the start.
    pub fn set_min_session_timeout(&self, least: Duration) {
        self.shared.world().groups.session_limits.0 = super::api::millis(least);
    }

    /// The most members a group may have; no limit at the start.
    pub fn set_group_max_size(&self, members: usize) {
        self.shared.world().groups.timing.max_size = members;
    }

    /// Whether the new protocol is served. When not, it is listed all the same and refused with 35, as by
    /// `group.coordinator.rebalance.protocols=classic`.
    pub fn set_consumer_protocol(&self, on: bool) {
        self.shared.world().groups.consumer_protocol = on;
    }
}
