//! The KIP-848 membership against scripted answers, with time as an argument.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kafka_meta::client::{Snapshot, Topic};
use kafka_meta::{Error, ErrorCode, ErrorKind, TopicName};
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use uuid::Uuid;

use super::{Membership, Settings};
use crate::member::protocol::{Answer, Goodbye, Input, Output, Partitions, Protocol, Request, Subscription};

mod answers;
mod denied;
mod goodbyes;
mod heartbeats;
mod targets;

const INTERVAL: Duration = Duration::from_secs(5);

struct Rig {
    member: Membership,
    now: Instant,
    outputs: VecDeque<Output>,
}

impl Rig {
    fn new(instance: Option<&str>) -> Rig {
        let settings = Settings {
            group: "group".into(),
            instance_id: instance.map(str::to_owned),
            assignor: Some("uniform".into()),
            rack: Some("rack-a".into()),
            rebalance_timeout_ms: 300_000,
        };
        let member = Membership::new(settings, Uuid::from_u128(7));
        let mut rig = Rig { member, now: Instant::now(), outputs: VecDeque::new() };
        rig.subscribe(&["t"], None);
        rig.know(&["t"]);
        rig.outputs.clear();
        rig
    }

    /// Joined under this epoch, owning these partitions of `t`.
    fn stable(epoch: i32, owned: &[i32]) -> Rig {
        Rig::stable_as(None, epoch, owned)
    }

    fn stable_as(instance: Option<&str>, epoch: i32, owned: &[i32]) -> Rig {
        let mut rig = Rig::new(instance);
        rig.input(Input::Join);
        let (ticket, _) = rig.beat();
        rig.answer(ticket, assigned(epoch, &[("t", owned)]));
        let number = rig.target(owned);
        rig.reconciled(number, owned);
        let (ticket, request) = rig.beat();
        assert_eq!(told(&request), Some(owned.to_vec()));
        rig.answer(ticket, alive(epoch));
        rig.idle();
        rig
    }

    fn input(&mut self, input: Input<'_>) {
        self.member.handle(self.now, input);
        self.drain();
    }

    /// Takes all outputs. A deadline that stays due would be a spinning driver.
    fn drain(&mut self) {
        for _ in 0..100 {
            let Some(output) = self.member.poll_output(self.now) else {
                let next = self.member.next_deadline();
                assert!(next.is_none_or(|next| next > self.now), "a deadline passed: {:?}", self.member);
                return;
            };
            self.outputs.push_back(output);
        }
        panic!("outputs without end: {:?}", self.outputs);
    }

    fn subscribe(&mut self, topics: &[&str], pattern: Option<&str>) {
        let topics = topics.iter().map(|topic| TopicName::new(topic)).collect();
        let pattern = pattern.map(str::to_owned);
        self.input(Input::Subscription(Subscription { topics, pattern }));
        self.outputs.retain(|output| !matches!(output, Output::Interest(_)));
    }

    fn know(&mut self, topics: &[&str]) {
        let topic = |name: &&str| Topic {
            name: TopicName::new(name),
            id: id(name),
            internal: false,
            error: ErrorCode::NONE,
            partitions: Vec::new(),
        };
        let picture = topics.iter().map(topic).fold(Snapshot::default(), Snapshot::with_topic);
        self.input(Input::Metadata(&picture));
    }

    fn answer(&mut self, ticket: u64, answer: ConsumerGroupHeartbeatResponse) {
        self.input(Input::Answer { ticket, answer: Ok(Answer::ConsumerHeartbeat(answer)), random: 0.5 });
    }

    fn lose(&mut self, ticket: u64) {
        let answer = Err(Error::new(ErrorKind::Disconnected, "test"));
        self.input(Input::Answer { ticket, answer, random: 0.5 });
    }

    fn reconciled(&mut self, number: u64, owned: &[i32]) {
        let owned = set(owned);
        self.input(Input::Reconciled { number, owned: &owned });
    }

    /// Goes to the next deadline, of which there must be one.
    fn wait(&mut self) -> Duration {
        let next = self.member.next_deadline().expect("a deadline");
        let waited = next.saturating_duration_since(self.now);
        self.now += waited;
        self.drain();
        waited
    }

    fn next(&mut self) -> Output {
        self.outputs.pop_front().unwrap_or_else(|| panic!("nothing to do: {:?}", self.member))
    }

    fn beat(&mut self) -> (u64, ConsumerGroupHeartbeatRequest) {
        match self.next() {
            Output::Send { ticket, request: Request::ConsumerHeartbeat(request), .. } => (ticket, request),
            other => panic!("no heartbeat but {other:?}"),
        }
    }

    fn target(&mut self, expected: &[i32]) -> u64 {
        match self.next() {
            Output::Reconcile { number, target, .. } => {
                assert_eq!(target, set(expected));
                number
            }
            other => panic!("no target but {other:?}"),
        }
    }

    fn lost(&mut self) -> Error {
        match self.next() {
            Output::Lost(error) => error,
            other => panic!("nothing lost but {other:?}"),
        }
    }

    fn fault(&mut self) -> Error {
        match self.next() {
            Output::Fault(error) => error,
            other => panic!("no fault but {other:?}"),
        }
    }

    fn idle(&self) {
        assert!(self.outputs.is_empty(), "{:?}", self.outputs);
    }

    fn epoch(&self) -> Option<i32> {
        self.member.identity().map(|identity| identity.generation)
    }

    /// Waits for a heartbeat and answers it.
    fn beat_and_answer(&mut self, answer: ConsumerGroupHeartbeatResponse) {
        self.wait();
        let (ticket, _) = self.beat();
        self.answer(ticket, answer);
    }

    /// The next heartbeat, with everything said, after a back-off that is shorter than the interval.
    fn full_beat_after_back_off(&mut self) -> (u64, ConsumerGroupHeartbeatRequest) {
        assert!(self.wait() < Duration::from_secs(2), "after the back-off, not at the next beat");
        let (ticket, request) = self.beat();
        assert_full(&request);
        (ticket, request)
    }
}

fn assert_full(request: &ConsumerGroupHeartbeatRequest) {
    assert_eq!(request.rebalance_timeout_ms, 300_000);
    assert!(request.subscribed_topic_names.is_some() && request.topic_partitions.is_some());
    assert_eq!(request.server_assignor.as_deref(), Some("uniform"));
    assert_eq!(request.rack_id.as_deref(), Some("rack-a"));
}

fn id(topic: &str) -> Uuid {
    Uuid::from_u128(topic.bytes().fold(0, |id, byte| id * 256 + u128::from(byte)))
}

fn set(partitions: &[i32]) -> Partitions {
    partitions.iter().map(|index| (TopicName::new("t"), *index)).collect()
}

/// What the request says of ownership.
fn told(request: &ConsumerGroupHeartbeatRequest) -> Option<Vec<i32>> {
    let topics = request.topic_partitions.as_ref()?;
    Some(topics.iter().flat_map(|topic| topic.partitions.iter().copied()).collect())
}

fn alive(epoch: i32) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse::default()
        .with_member_epoch(epoch)
        .with_member_id(Some(Uuid::from_u128(7).to_string().into()))
        .with_heartbeat_interval_ms(5_000)
        .with_assignment(None)
}

fn assigned(epoch: i32, topics: &[(&str, &[i32])]) -> ConsumerGroupHeartbeatResponse {
    let topics = topics.iter().map(|(topic, partitions)| {
        TopicPartitions::default().with_topic_id(id(topic)).with_partitions(partitions.to_vec())
    });
    alive(epoch).with_assignment(Some(Assignment::default().with_topic_partitions(topics.collect())))
}

fn refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse::default().with_error_code(code.value())
}
