//! The classic membership against scripted answers, with time as an argument.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_meta::client::{Partition, Snapshot, Topic};
use kafka_meta::{Error, ErrorCode, ErrorKind, TopicName};
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{
    HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest,
    SyncGroupResponse,
};
use uuid::Uuid;

use super::{Membership, Settings};
use crate::assign::{self, Assignment, Assignor};
use crate::member::protocol::{
    Answer, Goodbye, Input, Output, Partitions, Protocol, Purpose, Request, Subscription,
};

mod ending;
mod joining;
mod leading;
mod rebalancing;
mod returning;

const EAGER: &[Assignor] = &Assignor::DEFAULT;
const COOPERATIVE: &[Assignor] = &[Assignor::CooperativeSticky];

/// A member, its clock, and what it wants done.
struct Rig {
    member: Membership,
    now: Instant,
    outputs: VecDeque<Output>,
}

impl Rig {
    fn new(assignors: &[Assignor], instance: Option<&str>) -> Self {
        let settings = Settings {
            group: "group".into(),
            instance_id: instance.map(str::to_owned),
            assignors: assignors.to_vec(),
            session_timeout: Duration::from_secs(45),
            rebalance_timeout: Duration::from_secs(300),
            heartbeat_interval: Duration::from_secs(3),
            rack: None,
        };
        let mut rig =
            Rig { member: Membership::new(settings), now: Instant::now(), outputs: VecDeque::new() };
        rig.subscribe(&["t"]);
        rig
    }

    /// A member that has joined as a follower and owns what it was given.
    fn stable(assignors: &[Assignor], owned: &[(&str, i32)]) -> Self {
        let mut rig = Rig::new(assignors, None);
        rig.input(Input::Join);
        let (ticket, _) = rig.join();
        rig.answer(ticket, joined(assignors[0].name(), 1, "me", "other"));
        rig.give(owned);
        rig
    }

    /// Answers the sync that is out, and reconciles.
    fn give(&mut self, owned: &[(&str, i32)]) {
        let (ticket, _) = self.sync();
        self.answer(ticket, synced(owned));
        let number = self.target(owned);
        self.reconciled(number, owned);
    }

    fn input(&mut self, input: Input<'_>) {
        self.member.handle(self.now, input);
        self.drain();
    }

    /// Takes all outputs. What is due is done then: a deadline that stays due would be a spinning driver.
    fn drain(&mut self) {
        for _ in 0..100 {
            let Some(output) = self.member.poll_output(self.now) else {
                let next = self.member.next_deadline();
                assert!(
                    next.is_none_or(|next| next > self.now),
                    "{:?} has a deadline that passed",
                    self.member
                );
                return;
            };
            self.outputs.push_back(output);
        }
        panic!("outputs without end: {:?}", self.outputs);
    }

    fn subscribe(&mut self, topics: &[&str]) {
        let topics = topics.iter().map(|topic| TopicName::new(topic)).collect();
        self.input(Input::Subscription(Subscription { topics, pattern: None }));
    }

    fn answer(&mut self, ticket: u64, answer: Answer) {
        self.input(Input::Answer { ticket, answer: Ok(answer), random: 0.5 });
    }

    fn lose(&mut self, ticket: u64) {
        let answer = Err(Error::new(ErrorKind::Disconnected, "test"));
        self.input(Input::Answer { ticket, answer, random: 0.5 });
    }

    fn reconciled(&mut self, number: u64, owned: &[(&str, i32)]) {
        let owned = set(owned);
        self.input(Input::Reconciled { number, owned: &owned });
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.drain();
    }

    /// Goes to the next deadline, of which there must be one.
    fn wait(&mut self) -> Duration {
        let next = self.member.next_deadline().expect("a deadline");
        let waited = next.saturating_duration_since(self.now);
        self.pass(waited);
        waited
    }

    fn next(&mut self) -> Output {
        self.outputs.pop_front().unwrap_or_else(|| panic!("nothing to do: {:?}", self.member))
    }

    fn join(&mut self) -> (u64, JoinGroupRequest) {
        match self.next() {
            Output::Send { ticket, request: Request::Join(request), .. } => (ticket, request),
            other => panic!("no join but {other:?}"),
        }
    }

    fn sync(&mut self) -> (u64, SyncGroupRequest) {
        match self.next() {
            Output::Send { ticket, request: Request::Sync(request), .. } => (ticket, request),
            other => panic!("no sync but {other:?}"),
        }
    }

    fn leave_request(&mut self) -> (u64, LeaveGroupRequest) {
        match self.next() {
            Output::Send { ticket, request: Request::Leave(request), .. } => (ticket, request),
            other => panic!("no goodbye but {other:?}"),
        }
    }

    fn heartbeat(&mut self) -> u64 {
        match self.next() {
            Output::Send { ticket, request: Request::Heartbeat(_), .. } => ticket,
            other => panic!("no heartbeat but {other:?}"),
        }
    }

    /// Waits for a heartbeat and answers it.
    fn beat(&mut self, code: i16) {
        self.wait();
        let ticket = self.heartbeat();
        self.answer(ticket, beaten(code));
    }

    fn target(&mut self, expected: &[(&str, i32)]) -> u64 {
        self.reconciliation(expected, Purpose::Target)
    }

    fn prepare(&mut self, expected: &[(&str, i32)]) -> u64 {
        self.reconciliation(expected, Purpose::Prepare)
    }

    fn reconciliation(&mut self, expected: &[(&str, i32)], why: Purpose) -> u64 {
        match self.next() {
            Output::Reconcile { number, target, purpose } => {
                assert_eq!((target, purpose), (set(expected), why));
                number
            }
            other => panic!("no reconciliation but {other:?}"),
        }
    }

    fn idle(&self) {
        assert!(self.outputs.is_empty(), "{:?}", self.outputs);
    }

    fn metadata(&mut self, topics: &[(&str, i32)]) {
        let picture = picture(topics);
        self.input(Input::Metadata(&picture));
    }
}

fn set(partitions: &[(&str, i32)]) -> Partitions {
    partitions.iter().map(|(topic, index)| (TopicName::new(topic), *index)).collect()
}

fn names(topics: &[&str]) -> BTreeSet<TopicName> {
    topics.iter().map(|topic| TopicName::new(topic)).collect()
}

fn picture(topics: &[(&str, i32)]) -> Snapshot {
    let partition = |index| Partition {
        index,
        leader: Some(1),
        leader_epoch: Some(1),
        replicas: vec![1],
        isr: vec![1],
        offline: Vec::new(),
        error: ErrorCode::NONE,
    };
    topics.iter().fold(Snapshot::default(), |picture, (name, count)| {
        picture.with_topic(Topic {
            name: TopicName::new(name),
            id: Uuid::nil(),
            internal: false,
            error: ErrorCode::NONE,
            partitions: (0..*count).map(partition).collect(),
        })
    })
}

fn joined(protocol: &str, generation: i32, me: &str, leader: &str) -> Answer {
    Answer::Join(
        JoinGroupResponse::default()
            .with_protocol_type(Some("consumer".into()))
            .with_protocol_name(Some(protocol.to_owned().into()))
            .with_generation_id(generation)
            .with_member_id(me.to_owned().into())
            .with_leader(leader.to_owned().into()),
    )
}

fn join_error(code: i16, id: &str) -> Answer {
    Answer::Join(JoinGroupResponse::default().with_error_code(code).with_member_id(id.to_owned().into()))
}

/// Chosen to lead these members, by what they subscribe to.
fn leading(protocol: &str, generation: i32, members: &[(&str, Bytes)]) -> JoinGroupResponse {
    let Answer::Join(answer) = joined(protocol, generation, "me", "me") else { unreachable!() };
    let member = |(id, metadata): &(&str, Bytes)| {
        JoinGroupResponseMember::default()
            .with_member_id((*id).to_owned().into())
            .with_metadata(metadata.clone())
    };
    answer.with_members(members.iter().map(member).collect())
}

fn wants(topics: &[&str]) -> Bytes {
    let topics = topics.iter().map(ToString::to_string).collect();
    assign::Subscription { topics, ..assign::Subscription::default() }.encode().unwrap()
}

fn synced(owned: &[(&str, i32)]) -> Answer {
    let partitions = owned.iter().map(|(topic, index)| ((*topic).to_owned(), *index)).collect();
    let assignment = Assignment { partitions, user_data: None }.encode().unwrap();
    Answer::Sync(SyncGroupResponse::default().with_assignment(assignment))
}

fn sync_error(code: i16) -> Answer {
    Answer::Sync(SyncGroupResponse::default().with_error_code(code))
}

fn beaten(code: i16) -> Answer {
    Answer::Heartbeat(HeartbeatResponse::default().with_error_code(code))
}

/// What a join says of the member, read back.
fn said(request: &JoinGroupRequest) -> assign::Subscription {
    assign::Subscription::decode(&request.protocols[0].metadata).unwrap()
}
