//! JoinGroup and SyncGroup of a classic member: what is sent, and what each answer means.

use std::time::{Duration, Instant};

use kafka_meta::client::Lane;
use kafka_meta::{Error, ErrorCode, ErrorKind};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse};

use crate::assign::{self, Assignment, Assignor};
use crate::member::protocol::{Output, Partitions, Purpose, Request};

use super::lead::Lead;
use super::{Membership, NO_GENERATION, State, Target, legal, text};

const PROTOCOL_TYPE: &str = "consumer";
/// The broker answers a join at the end of its rebalance timeout at the latest; the answer needs time to travel.
const GRACE: Duration = Duration::from_secs(5);

impl Membership {
    pub(super) fn send_join(&mut self) {
        self.sent.clone_from(&self.subscription.topics);
        let mut protocols = Vec::with_capacity(self.settings.assignors.len());
        for assignor in &self.settings.assignors {
            let subscription = assign::Subscription {
                topics: self.sent.iter().map(|topic| topic.as_str().to_owned()).collect(),
                user_data: assignor.user_data(self.assigned_generation),
                owned: self.owned.iter().map(|(topic, index)| (topic.as_str().to_owned(), *index)).collect(),
                generation: Some(self.generation).filter(|generation| *generation > NO_GENERATION),
                rack: self.settings.rack.clone(),
            };
            match subscription.encode() {
                Ok(metadata) => protocols.push(
                    JoinGroupRequestProtocol::default()
                        .with_name(text(assignor.name()))
                        .with_metadata(metadata),
                ),
                Err(error) => return self.fail(error),
            }
        }
        let request = JoinGroupRequest::default()
            .with_group_id(self.group_id())
            .with_session_timeout_ms(millis(self.settings.session_timeout))
            .with_rebalance_timeout_ms(millis(self.settings.rebalance_timeout))
            .with_member_id(text(&self.member_id))
            .with_group_instance_id(self.instance_id())
            .with_protocol_type(text(PROTOCOL_TYPE))
            .with_protocols(protocols)
            .with_reason(self.rejoin.map(text));
        self.retry.at = None;
        self.call =
            Some(self.send(Lane::Join, self.settings.rebalance_timeout + GRACE, Request::Join(request)));
    }

    /// Joins again under the same generation, after a back-off.
    pub(super) fn again(&mut self, now: Instant, random: f64) {
        self.call = None;
        self.lead = None;
        self.state = State::Joining;
        self.retry.fail(now, random);
    }

    pub(super) fn on_lost_call(&mut self, now: Instant, error: Error, random: f64) {
        match error.kind() {
            ErrorKind::Authentication
            | ErrorKind::Authorization
            | ErrorKind::Tls
            | ErrorKind::InvalidRequest
            | ErrorKind::UnsupportedApi => self.refuse(now, error, random),
            // Id and generation are kept: the join may have been taken.
            _ => self.again(now, random),
        }
    }

    pub(super) fn on_join(&mut self, now: Instant, answer: JoinGroupResponse, random: f64) {
        let code = ErrorCode::from(answer.error_code);
        let error = Error::broker(code, "join group").with_group(self.settings.group.as_str());
        match code {
            ErrorCode::NONE => self.joined(now, answer),
            ErrorCode::MEMBER_ID_REQUIRED => {
                let again = !self.member_id.is_empty();
                self.member_id = answer.member_id.to_string();
                if again {
                    self.retry.fail(now, random);
                }
            }
            ErrorCode::UNKNOWN_MEMBER_ID => {
                let again = self.member_id.is_empty();
                self.end_life(false, &error);
                if again {
                    self.retry.fail(now, random);
                }
            }
            ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => {
                self.outputs.push_back(Output::ForgetCoordinator);
                self.again(now, random);
            }
            ErrorCode::REBALANCE_IN_PROGRESS => self.again(now, random),
            ErrorCode::INCONSISTENT_GROUP_PROTOCOL => self.fail(error.with_detail(format!(
                "no assignor of ours is one that every member of the group has; offered: {}",
                self.offered()
            ))),
            ErrorCode::GROUP_AUTHORIZATION_FAILED | ErrorCode::GROUP_MAX_SIZE_REACHED => {
                self.refuse(now, error, random);
            }
            _ if code.is_retriable() => self.again(now, random),
            _ => self.fail(error),
        }
    }

    fn offered(&self) -> String {
        let names: Vec<&str> = self.settings.assignors.iter().map(|assignor| assignor.name()).collect();
        names.join(", ")
    }

    fn joined(&mut self, now: Instant, answer: JoinGroupResponse) {
        let name = answer.protocol_name.as_deref().unwrap_or_default();
        let chosen = Assignor::from_name(name).filter(|assignor| self.settings.assignors.contains(assignor));
        let Some(chosen) = chosen.filter(|_| is_ours(answer.protocol_type.as_deref())) else {
            let code = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
            let detail = format!("the coordinator chose {name:?}; offered: {}", self.offered());
            return self.fail(Error::broker(code, "join group").with_detail(detail));
        };
        self.member_id = answer.member_id.to_string();
        self.generation = answer.generation_id;
        self.chosen = Some(chosen);
        self.rejoin = None;
        self.returning = None;
        self.watched.clear();
        self.start_beating(now);
        // In a group that KIP-848 members share nobody leads: the broker assigns, and names no leader.
        if answer.leader.is_empty() || answer.leader != answer.member_id {
            return self.send_sync(Vec::new());
        }
        // Neither longer than the broker waits for us, nor longer than a refresh with its retries takes.
        let patience = (self.settings.rebalance_timeout / 2).min(Duration::from_secs(10));
        let lead = Lead::new(&answer.members, chosen, now + patience);
        if answer.skip_assignment {
            // A static leader that came back: the group goes on as it is, told by what its last life wanted.
            if lead.wants(&self.member_id).is_some_and(|topics| topics != self.sent) {
                self.rejoin = Some("the subscription differs from that of the member's last life");
            }
            self.returned(lead.topics);
            return self.send_sync(Vec::new());
        }
        let known = lead.is_known(&self.picture);
        self.lead = Some(lead);
        self.state = State::Leading;
        self.tell_interest();
        if !known {
            self.outputs.push_back(Output::NeedIds);
        }
    }

    /// Assigns as soon as the metadata knows all the group's topics, or when it has had its time.
    pub(super) fn try_lead(&mut self, now: Instant) {
        let ready = |lead: &mut Lead| lead.is_known(&self.picture) || lead.deadline <= now;
        let Some(lead) = self.lead.take_if(ready) else { return };
        match lead.assign(&self.picture, &mut self.assignors) {
            Ok(assignments) => {
                self.watched.set(lead.topics.iter().copied(), &self.picture, self.settings.rack.is_some());
                self.send_sync(assignments);
            }
            Err(error) => self.fail(error),
        }
    }

    fn send_sync(&mut self, assignments: Vec<SyncGroupRequestAssignment>) {
        let request = SyncGroupRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(self.generation)
            .with_member_id(text(&self.member_id))
            .with_group_instance_id(self.instance_id())
            .with_protocol_type(Some(text(PROTOCOL_TYPE)))
            .with_protocol_name(self.chosen.map(|chosen| text(chosen.name())))
            .with_assignments(assignments);
        self.state = State::Syncing;
        self.call =
            Some(self.send(Lane::Join, self.settings.rebalance_timeout + GRACE, Request::Sync(request)));
    }

    pub(super) fn on_sync(&mut self, now: Instant, answer: &SyncGroupResponse, random: f64) {
        let code = ErrorCode::from(answer.error_code);
        let error = Error::broker(code, "sync group").with_group(self.settings.group.as_str());
        match code {
            ErrorCode::NONE => self.synced(now, answer, random),
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION => {
                self.end_life(code == ErrorCode::ILLEGAL_GENERATION, &error);
                self.retry.fail(now, random);
            }
            ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => {
                self.outputs.push_back(Output::ForgetCoordinator);
                self.again(now, random);
            }
            ErrorCode::REBALANCE_IN_PROGRESS => {
                self.again(now, random);
                self.rejoin = Some("the group rebalanced before this member had its assignment");
            }
            ErrorCode::GROUP_AUTHORIZATION_FAILED => self.refuse(now, error, random),
            _ if code.is_retriable() => self.again(now, random),
            _ => self.fail(error),
        }
    }

    fn synced(&mut self, now: Instant, answer: &SyncGroupResponse, random: f64) {
        let theirs = answer.protocol_name.as_deref().filter(|name| !name.is_empty());
        let same = theirs.is_none_or(|name| self.chosen.is_some_and(|chosen| chosen.name() == name));
        if !same || !is_ours(answer.protocol_type.as_deref()) {
            return self.fail(Error::broker(ErrorCode::INCONSISTENT_GROUP_PROTOCOL, "sync group"));
        }
        // The broker sends no bytes at all for a member that the leader forgot.
        let given = if answer.assignment.len() < 2 {
            Ok(Assignment::default())
        } else {
            Assignment::decode(&answer.assignment)
        };
        let given = match given {
            Ok(given) => given.partitions,
            Err(error) => {
                self.outputs.push_back(Output::Fault(error));
                return self.again(now, random);
            }
        };
        let mut target = Partitions::new();
        let mut foreign = false;
        for (topic, index) in given {
            match legal(&topic).filter(|topic| index >= 0 && self.sent.contains(topic)) {
                Some(topic) => _ = target.insert((topic, index)),
                None => foreign = true,
            }
        }
        self.state = State::Stable;
        self.assigned_generation = self.generation;
        if foreign {
            // A returning static member is given what its last life wanted: only a new round puts that right.
            self.rejoin = Some("the assignment has topics that are not subscribed to");
            self.retry.fail(now, random);
        } else {
            self.retry.clear();
        }
        self.compare_subscription();
        self.ask_what_is_given();
        self.compare_partitions();
        target.retain(|(topic, _)| self.subscription.topics.contains(topic));
        let revokes = !self.owned.is_subset(&target);
        let number = self.reconcile(target, Purpose::Target);
        self.target = Some(Target { number, revokes });
    }
}

/// Older answers name no type.
fn is_ours(protocol_type: Option<&str>) -> bool {
    protocol_type.is_none_or(|name| name.is_empty() || name == PROTOCOL_TYPE)
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
