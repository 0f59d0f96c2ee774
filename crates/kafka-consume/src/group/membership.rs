//! The KIP-848 membership: who we are to the coordinator, and what it wants us to own. Pure.
//!
//! | state | heartbeats | leaves by |
//! |---|---|---|
//! | `Unjoined` | none | `Join` |
//! | `Purging` | one with −1, for an id the broker still holds | any answer → `Joining` |
//! | `Joining` | epoch 0, all fields, at once | an epoch → `Joined`; a refusal |
//! | `Joined` | at the broker's interval; at once to acknowledge | a fence → `Lost`; leaving |
//! | `Lost` | none | `LostDone` → `Unjoined` |
//! | `Leaving` | −1, or −2 for a static member that means to come back | any answer → `Left` |
//! | `Fatal` | none | a new subscription, where the old one was at fault |
//! | `Left` | none | – |
//!
//! Invariants
//! - One heartbeat in flight. After an error or a lost answer the next one carries every field again: an
//!   assignment is told once, and only a full heartbeat makes the broker repeat it.
//! - `topicPartitions` is only ever what is owned after its reconciliation: sending it is the acknowledgement.
//! - One target, by topic id, always the last one received. What of it cannot be named yet stays pending and
//!   revokes nothing.
//! - Epochs are followed within one life only; a fence ends the life, and a new one starts from epoch 0.

mod picture;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kafka_meta::client::Lane;
use kafka_meta::{Error, ErrorCode, ErrorKind, TopicName};
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, GroupId};
use kafka_protocol::protocol::StrBytes;
use tracing::debug;
use uuid::Uuid;

use crate::member::denied::Denied;
use crate::member::protocol::{
    Answer, Goodbye, Input, Output, Partitions, Protocol, Purpose, Request, Subscription,
};
use crate::offsets::Identity;
use crate::position::Retry;

const JOIN: i32 = 0;
const LEAVE: i32 = -1;
const PARK: i32 = -2;

/// How long one heartbeat may take; brokers never hold one back.
const WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub group: String,
    pub instance_id: Option<String>,
    pub assignor: Option<String>,
    pub rack: Option<String>,
    pub rebalance_timeout_ms: i32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Unjoined,
    Purging,
    Joining,
    Joined,
    Lost,
    Leaving,
    Fatal,
    Left,
}

#[derive(Debug)]
struct InFlight {
    ticket: u64,
    epoch: i32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Membership {
    settings: Settings,
    state: State,
    member_id: String,
    epoch: i32,
    incarnation: u64,
    /// The coordinator has accepted this member at least once.
    admitted: bool,
    subscription: Subscription,
    /// The next heartbeat says everything.
    full: bool,
    subscription_told: bool,
    /// What is owned has changed since it was told.
    unacknowledged: bool,
    denied: Denied,
    /// Not subscribed to for now, since naming one topic that may not be seen costs all the others.
    left_out: BTreeSet<TopicName>,
    /// Refusals in a row that metadata could not explain.
    unexplained: u8,
    owned: Partitions,
    target: BTreeMap<Uuid, BTreeSet<i32>>,
    /// The names of ids, kept beyond the metadata's memory.
    names: BTreeMap<Uuid, TopicName>,
    ids: BTreeMap<TopicName, Uuid>,
    /// Topics of Kafka's own.
    internal: BTreeSet<TopicName>,
    /// What the target last came to by name.
    named: Option<Partitions>,
    unnamed: bool,
    interval: Duration,
    beat_at: Option<Instant>,
    retry: Retry,
    in_flight: Option<InFlight>,
    goodbye_retried: bool,
    /// A goodbye after a poll timeout is on its way, or waits for its turn.
    parting: bool,
    outputs: VecDeque<Output>,
    last_ticket: u64,
    last_number: u64,
}

impl Membership {
    /// A member that has not joined; `id` is its identity for as long as it lives.
    pub fn new(settings: Settings, id: Uuid) -> Self {
        Membership {
            settings,
            state: State::Unjoined,
            member_id: id.to_string(),
            epoch: JOIN,
            incarnation: 0,
            admitted: false,
            subscription: Subscription::default(),
            full: true,
            subscription_told: false,
            unacknowledged: false,
            denied: Denied::default(),
            left_out: BTreeSet::new(),
            unexplained: 0,
            owned: Partitions::new(),
            target: BTreeMap::new(),
            names: BTreeMap::new(),
            ids: BTreeMap::new(),
            internal: BTreeSet::new(),
            named: None,
            unnamed: false,
            interval: Duration::from_secs(5),
            beat_at: None,
            retry: Retry::default(),
            in_flight: None,
            goodbye_retried: false,
            parting: false,
            outputs: VecDeque::new(),
            last_ticket: 0,
            last_number: 0,
        }
    }

    /// Whether the coordinator may have the member. It may have taken a join whose answer was lost, and would
    /// keep partitions for a ghost until its session ends.
    fn may_be_in_group(&self) -> bool {
        matches!(self.state, State::Joined | State::Joining | State::Purging)
    }

    fn join(&mut self, now: Instant) {
        if self.state != State::Unjoined || !self.retry.is_due(now) {
            return;
        }
        self.state = State::Joining;
        self.epoch = JOIN;
        self.incarnation += 1;
        self.forget_life();
    }

    fn forget_life(&mut self) {
        self.full = true;
        self.unacknowledged = false;
        self.owned.clear();
        self.target.clear();
        self.named = None;
        self.unnamed = false;
        self.beat_at = None;
    }

    fn lose(&mut self, error: Error) {
        self.state = State::Lost;
        self.forget_life();
        self.outputs.push_back(Output::Lost(error));
    }

    fn fail(&mut self, error: Error) {
        let had = matches!(self.state, State::Joined);
        self.outputs.push_back(Output::Fault(error.clone().with_fatal()));
        if had {
            self.lose(error);
        }
        self.state = State::Fatal;
    }

    fn leave(&mut self, goodbye: Goodbye) {
        let known = self.may_be_in_group() || self.epoch > 0;
        match goodbye {
            Goodbye::Leave if matches!(self.state, State::Left) => {}
            Goodbye::Leave
                if known && !matches!(self.state, State::Lost | State::Fatal | State::Unjoined) =>
            {
                self.state = State::Leaving;
                self.retry.clear();
            }
            Goodbye::Leave => {
                self.state = State::Left;
                self.outputs.push_back(Output::Left);
            }
            Goodbye::PollTimeout => {
                self.parting = known;
                self.state = State::Lost;
                self.forget_life();
            }
        }
    }

    /// The epoch that says goodbye.
    fn goodbye(&self) -> i32 {
        if self.settings.instance_id.is_some() { PARK } else { LEAVE }
    }

    /// The epoch of the heartbeat that is due now, if one is.
    fn due(&self, now: Instant) -> Option<i32> {
        if self.in_flight.is_some() {
            return None;
        }
        if self.parting {
            return Some(self.goodbye());
        }
        if !self.retry.is_due(now) {
            return None;
        }
        match self.state {
            State::Purging => Some(LEAVE),
            State::Joining => Some(JOIN),
            State::Joined => {
                let due = self.unacknowledged
                    || self.full
                    || !self.subscription_told
                    || self.beat_at.is_none_or(|at| at <= now);
                due.then_some(self.epoch)
            }
            State::Leaving => Some(self.goodbye()),
            State::Unjoined | State::Lost | State::Fatal | State::Left => None,
        }
    }

    fn heartbeat(&mut self, now: Instant, epoch: i32) -> Output {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        self.in_flight = Some(InFlight { ticket, epoch });
        self.beat_at = Some(now + self.interval);
        let mut request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(text(&self.settings.group)))
            .with_member_id(text(&self.member_id))
            .with_member_epoch(epoch)
            .with_instance_id(self.settings.instance_id.as_deref().map(text))
            .with_rebalance_timeout_ms(-1)
            .with_subscribed_topic_names(None)
            .with_subscribed_topic_regex(None)
            .with_server_assignor(None)
            .with_rack_id(None)
            .with_topic_partitions(None);
        if epoch < JOIN {
            if epoch == LEAVE && self.state == State::Purging {
                request.instance_id = self.settings.instance_id.as_deref().map(text);
            }
            return self.send(ticket, request);
        }
        let everything = self.full || epoch == JOIN;
        if everything {
            request.rebalance_timeout_ms = self.settings.rebalance_timeout_ms;
            request.server_assignor = self.settings.assignor.as_deref().map(text);
            request.rack_id = self.settings.rack.as_deref().filter(|rack| !rack.is_empty()).map(text);
        }
        if everything || !self.subscription_told {
            let names = self.subscription.topics.difference(&self.left_out);
            request.subscribed_topic_names = Some(names.map(|topic| topic_name(*topic)).collect());
            // A pattern that is gone has to be taken back, and an empty text does that.
            request.subscribed_topic_regex = match &self.subscription.pattern {
                Some(pattern) => Some(text(pattern)),
                None if epoch == JOIN => None,
                None => Some(text("")),
            };
            self.subscription_told = true;
        }
        if epoch == JOIN {
            request.topic_partitions = Some(Vec::new());
        } else if everything || self.unacknowledged {
            request.topic_partitions = Some(self.owned_by_id());
        }
        self.full = false;
        self.unacknowledged = false;
        self.send(ticket, request)
    }

    fn send(&self, ticket: u64, request: ConsumerGroupHeartbeatRequest) -> Output {
        Output::Send {
            ticket,
            lane: Lane::Group,
            within: WITHIN,
            request: Request::ConsumerHeartbeat(request),
        }
    }

    fn owned_by_id(&self) -> Vec<TopicPartitions> {
        let mut by_id: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
        for (topic, index) in &self.owned {
            if let Some(id) = self.ids.get(topic) {
                by_id.entry(*id).or_default().push(*index);
            }
        }
        by_id
            .into_iter()
            .map(|(id, partitions)| TopicPartitions::default().with_topic_id(id).with_partitions(partitions))
            .collect()
    }

    fn handle_answer(&mut self, now: Instant, sent: &InFlight, answer: &ConsumerGroupHeartbeatResponse) {
        let code = ErrorCode::from(answer.error_code);
        if sent.epoch < JOIN {
            self.goodbye_answered(now);
            return;
        }
        if !matches!(self.state, State::Joining | State::Joined) {
            return;
        }
        if !code.is_none() {
            let detail = answer.error_message.as_ref().map(|text| text.as_str().to_owned());
            self.refused(now, code, detail);
            return;
        }
        // A late answer to a goodbye of an earlier life says nothing about this one.
        if answer.member_epoch < 0 {
            return;
        }
        self.retry.clear();
        if let Some(id) = &answer.member_id
            && !id.is_empty()
        {
            self.member_id = id.as_str().to_owned();
        }
        if answer.member_epoch != self.epoch {
            debug!(epoch = answer.member_epoch, "the member's epoch");
        }
        self.epoch = answer.member_epoch;
        self.state = State::Joined;
        self.admitted = true;
        self.unexplained = 0;
        if let Ok(millis @ 1..) = u64::try_from(answer.heartbeat_interval_ms) {
            self.interval = Duration::from_millis(millis);
        }
        self.beat_at = Some(now + self.interval);
        if let Some(assignment) = &answer.assignment {
            self.target = assignment
                .topic_partitions
                .iter()
                .map(|topic| (topic.topic_id, topic.partitions.iter().copied().collect()))
                .collect();
            self.name_target(true);
        }
    }

    /// Puts names to the target's ids; emits it when it is new, or when more of it can be named.
    fn name_target(&mut self, told: bool) {
        let mut named = Partitions::new();
        self.unnamed = false;
        for (id, partitions) in &self.target {
            match self.names.get(id) {
                Some(topic) if self.is_unwanted(topic) => {}
                Some(topic) => named.extend(partitions.iter().map(|index| (*topic, *index))),
                None => self.unnamed = true,
            }
        }
        if self.unnamed {
            self.outputs.push_back(Output::NeedIds);
            if named.is_empty() && self.owned.is_empty() {
                // "Nothing yet" would be our word and not the group's.
                return;
            }
        }
        if told || self.named.as_ref() != Some(&named) {
            self.named = Some(named.clone());
            self.last_number += 1;
            self.outputs.push_back(Output::Reconcile {
                number: self.last_number,
                target: named,
                purpose: Purpose::Target,
            });
        }
    }

    fn goodbye_answered(&mut self, now: Instant) {
        match self.state {
            State::Leaving => {
                self.state = State::Left;
                self.outputs.push_back(Output::Left);
            }
            State::Purging => {
                self.state = State::Joining;
                self.retry.clear();
            }
            _ => {}
        }
        self.parting = false;
        let _ = now;
    }

    fn refused(&mut self, now: Instant, code: ErrorCode, detail: Option<String>) {
        self.full = true;
        self.subscription_told = false;
        let group = self.settings.group.clone();
        let error = |kind: Option<ErrorKind>| {
            let words = detail.clone().filter(|words| !words.is_empty());
            let text = words.map_or_else(|| code.to_string(), |words| format!("{code}: {words}"));
            let error = match kind {
                Some(kind) => Error::new(kind, "group heartbeat"),
                None => Error::broker(code, "group heartbeat"),
            };
            error.with_group(group.as_str()).with_detail(text)
        };
        let joining = self.state == State::Joining;
        match code {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS => {}
            ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => {
                self.outputs.push_back(Output::ForgetCoordinator);
            }
            // Older brokers do not take epoch 0 from an id they hold: it has to leave first, or it would keep its
            // partitions until its session ends.
            ErrorCode::FENCED_MEMBER_EPOCH if joining => self.state = State::Purging,
            ErrorCode::UNKNOWN_MEMBER_ID if joining => {}
            ErrorCode::UNSUPPORTED_VERSION | ErrorCode::GROUP_ID_NOT_FOUND if joining && !self.admitted => {
                self.state = State::Unjoined;
                let refusal = error(Some(ErrorKind::UnsupportedApi));
                self.outputs.push_back(Output::Refused(refusal));
                return;
            }
            ErrorCode::GROUP_ID_NOT_FOUND if joining => {}
            ErrorCode::FENCED_MEMBER_EPOCH | ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::GROUP_ID_NOT_FOUND => {
                self.lose(error(Some(ErrorKind::Fenced)));
                return;
            }
            ErrorCode::UNRELEASED_INSTANCE_ID => {
                self.state = State::Unjoined;
                self.outputs.push_back(Output::Fault(error(None)));
            }
            ErrorCode::TOPIC_AUTHORIZATION_FAILED if self.leave_out_denied() => {}
            ErrorCode::GROUP_AUTHORIZATION_FAILED | ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                self.outputs.push_back(Output::Fault(error(None)));
                if joining {
                    self.state = State::Unjoined;
                }
            }
            ErrorCode::INVALID_REGULAR_EXPRESSION | ErrorCode::UNSUPPORTED_ASSIGNOR => {
                self.fail(error(Some(ErrorKind::InvalidRequest)));
                return;
            }
            code if code.is_retriable() => {}
            _ => {
                self.fail(error(None));
                return;
            }
        }
        // Every branch that is still here asks again, and none of them at once.
        self.fail_later(now);
    }

    fn fail_later(&mut self, now: Instant) {
        self.retry.fail(now, 0.5);
    }

    fn handle_lost_answer(&mut self, now: Instant, sent: &InFlight, error: &Error, random: f64) {
        self.full = true;
        self.subscription_told = false;
        if sent.epoch < JOIN {
            // Said again once, on a fresh connection; a goodbye is not worth more.
            if self.state == State::Purging {
                self.retry.fail(now, random);
                return;
            }
            if std::mem::replace(&mut self.goodbye_retried, true) || self.state != State::Leaving {
                self.goodbye_answered(now);
            } else {
                self.retry.fail(now, random);
            }
            return;
        }
        match error.kind() {
            ErrorKind::UnsupportedApi if self.state == State::Joining && !self.admitted => {
                self.state = State::Unjoined;
                self.outputs.push_back(Output::Refused(error.clone()));
            }
            ErrorKind::UnsupportedApi => self.fail(error.clone()),
            ErrorKind::Authentication | ErrorKind::Authorization | ErrorKind::Tls => {
                self.outputs.push_back(Output::Fault(error.clone()));
            }
            _ => debug!(%error, "a heartbeat got no answer"),
        }
        self.retry.fail(now, random);
    }
}

impl Protocol for Membership {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Join => self.join(now),
            Input::Subscription(subscription) => {
                if self.subscription != subscription {
                    self.subscription = subscription;
                    self.subscription_told = false;
                    self.outputs.push_back(Output::Interest(self.subscription.topics.clone()));
                    if self.state == State::Fatal {
                        self.state = State::Unjoined;
                        self.retry.clear();
                    }
                }
            }
            Input::Metadata(snapshot) => {
                self.learn(now, snapshot);
                if self.unnamed {
                    self.name_target(false);
                }
            }
            Input::Answer { ticket, answer, random } => {
                let Some(sent) = self.in_flight.take_if(|sent| sent.ticket == ticket) else { return };
                match answer {
                    Ok(Answer::ConsumerHeartbeat(answer)) => self.handle_answer(now, &sent, &answer),
                    Ok(_) => {}
                    Err(error) => self.handle_lost_answer(now, &sent, &error, random),
                }
            }
            Input::Reconciled { owned, .. } => {
                if self.state == State::Joined {
                    self.owned = owned.clone();
                    self.unacknowledged = true;
                }
            }
            Input::LostDone => {
                if self.state == State::Lost {
                    self.state = State::Unjoined;
                    self.epoch = JOIN;
                    self.retry.clear();
                }
            }
            Input::Leave { goodbye } => self.leave(goodbye),
        }
    }

    fn poll_output(&mut self, now: Instant) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let epoch = self.due(now)?;
        Some(self.heartbeat(now, epoch))
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.in_flight.is_some() {
            return None;
        }
        let beat = if self.state == State::Joined { self.beat_at } else { None };
        match (self.state, self.retry.at) {
            (State::Unjoined | State::Lost | State::Fatal | State::Left, _) => None,
            // After a failure everything is to be said again, and does not wait for the next beat.
            (_, Some(retry)) if self.full || self.unacknowledged || !self.subscription_told => Some(retry),
            (_, Some(retry)) => Some(beat.map_or(retry, |beat| beat.max(retry))),
            (_, None) => beat,
        }
    }

    fn identity(&self) -> Option<Identity> {
        (self.state == State::Joined && self.epoch > JOIN).then(|| Identity {
            generation: self.epoch,
            member_id: self.member_id.clone(),
            instance_id: self.settings.instance_id.clone(),
            incarnation: self.incarnation,
        })
    }

    fn member_id(&self) -> &str {
        &self.member_id
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic_name(topic: TopicName) -> kafka_protocol::messages::TopicName {
    kafka_protocol::messages::TopicName(StrBytes::from_static_str(topic.as_str()))
}
