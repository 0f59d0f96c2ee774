//! The classic membership: JoinGroup, SyncGroup, heartbeats and, when chosen, the leader's work. Pure.
//!
//! | state | in flight | heartbeats | leaves by |
//! |---|---|---|---|
//! | `Unjoined` | – | none | `Join`, when no back-off runs |
//! | `Preparing` | – | if admitted | `Reconciled` of what had to be given up first |
//! | `Joining` | JoinGroup, or its back-off | none: the broker keeps who joins | an answer |
//! | `Leading` | – | yes | metadata of all the group's topics, or a deadline |
//! | `Syncing` | SyncGroup | yes | an answer |
//! | `Stable` | – | yes | 27, another subscription, changed partitions, something revoked |
//! | `Lost` | – | none | `LostDone` → `Unjoined` |
//! | `Fatal` | – | none | a new subscription |
//! | `Leaving` | LeaveGroup | none | any answer → `Left` |
//!
//! Invariants
//! - One join or sync in flight. Only heartbeats, answers to joins, and the above lead to a join: a refused commit
//!   never does.
//! - What a join says is owned is what is owned. A cooperative member does not join again while a target is being
//!   reconciled: what it will own by then would be nobody's word, and the leader could give it away twice.
//! - After a loss nothing is owned, and nothing is sent before `LostDone` and `Join`.
//! - An answer to an older generation's heartbeat never ends a newer one.
//! - Every wait has a deadline, and every repeated failure a back-off.

mod beat;
mod join;
mod lead;
mod returning;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kafka_meta::client::{Lane, Snapshot};
use kafka_meta::{Error, TopicName};
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::{GroupId, LeaveGroupRequest};
use kafka_protocol::protocol::StrBytes;

use crate::assign::{Assignor, AssignorState, RebalanceProtocol};
use crate::member::denied::Denied;
use crate::member::protocol::{
    Answer, Goodbye, Input, Output, Partitions, Protocol, Purpose, Request, Subscription,
};
use crate::offsets::Identity;
use crate::position::Retry;

use beat::Beat;
use lead::{Lead, Watched};
use returning::Returning;

const NO_GENERATION: i32 = -1;
/// How long the goodbye may take; the broker finds out by itself otherwise.
const GOODBYE_WITHIN: Duration = Duration::from_secs(5);

/// What a classic member is told at the start.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub group: String,
    pub instance_id: Option<String>,
    /// In order of preference; never empty.
    pub assignors: Vec<Assignor>,
    pub session_timeout: Duration,
    pub rebalance_timeout: Duration,
    pub heartbeat_interval: Duration,
    pub rack: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Unjoined,
    Preparing,
    Joining,
    Leading,
    Syncing,
    Stable,
    Lost,
    Fatal,
    Leaving,
    Left,
}

/// A target that is being reconciled.
#[derive(Clone, Copy, Debug)]
struct Target {
    number: u64,
    /// It takes something away, which others wait for.
    revokes: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Membership {
    settings: Settings,
    cooperative: bool,
    state: State,
    /// The caller wants to be in the group.
    wanted: bool,
    member_id: String,
    generation: i32,
    incarnation: u64,
    /// The assignor the group agreed on.
    chosen: Option<Assignor>,
    subscription: Subscription,
    /// What the last JoinGroup said of it.
    sent: BTreeSet<TopicName>,
    owned: Partitions,
    target: Option<Target>,
    prepare: Option<u64>,
    /// Why to join again.
    rejoin: Option<&'static str>,
    /// Before the next join.
    retry: Retry,
    /// The join or sync in flight.
    call: Option<u64>,
    goodbye: Option<u64>,
    beat: Beat,
    picture: Snapshot,
    denied: Denied,
    lead: Option<Lead>,
    returning: Option<Returning>,
    watched: Watched,
    assignors: AssignorState,
    /// The generation of the last assignment, as cooperative-sticky tells it.
    assigned_generation: i32,
    outputs: VecDeque<Output>,
    last_ticket: u64,
    last_number: u64,
}

impl Membership {
    /// A member that has not joined.
    pub fn new(settings: Settings) -> Self {
        Membership {
            cooperative: RebalanceProtocol::of(&settings.assignors) == RebalanceProtocol::Cooperative,
            settings,
            state: State::Unjoined,
            wanted: false,
            member_id: String::new(),
            generation: NO_GENERATION,
            incarnation: 1,
            chosen: None,
            subscription: Subscription::default(),
            sent: BTreeSet::new(),
            owned: Partitions::new(),
            target: None,
            prepare: None,
            rejoin: None,
            retry: Retry::default(),
            call: None,
            goodbye: None,
            beat: Beat::default(),
            picture: Snapshot::default(),
            denied: Denied::default(),
            lead: None,
            returning: None,
            watched: Watched::default(),
            assignors: AssignorState::default(),
            assigned_generation: NO_GENERATION,
            outputs: VecDeque::new(),
            last_ticket: 0,
            last_number: 0,
        }
    }

    fn send(&mut self, lane: Lane, within: Duration, request: Request) -> u64 {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        self.outputs.push_back(Output::Send { ticket, lane, within, request });
        ticket
    }

    fn reconcile(&mut self, target: Partitions, purpose: Purpose) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.outputs.push_back(Output::Reconcile { number, target, purpose });
        number
    }

    /// Does what is due. Every step changes the state or sends something, so it comes to rest.
    fn advance(&mut self, now: Instant) {
        match self.state {
            State::Unjoined if self.wanted && self.retry.is_due(now) => self.prepare(now),
            State::Stable if self.may_rejoin() && self.retry.is_due(now) => self.prepare(now),
            State::Joining if self.call.is_none() && self.retry.is_due(now) => self.send_join(),
            State::Leading => self.try_lead(now),
            _ => {}
        }
        self.check_session(now);
        self.beat(now);
    }

    fn may_rejoin(&self) -> bool {
        self.rejoin.is_some() && !(self.cooperative && self.target.is_some())
    }

    /// Gives up what the protocol wants given up before a join, then joins.
    fn prepare(&mut self, now: Instant) {
        let stays: Partitions = if self.cooperative {
            self.owned.iter().filter(|(topic, _)| self.subscription.topics.contains(topic)).copied().collect()
        } else {
            Partitions::new()
        };
        // An eager member takes back a target that nobody may have heard of yet as well.
        if stays != self.owned || self.target.is_some() {
            self.target = None;
            self.state = State::Preparing;
            self.prepare = Some(self.reconcile(stays, Purpose::Prepare));
        } else {
            self.state = State::Joining;
            self.retry.at = self.retry.at.filter(|at| *at > now);
            self.send_join();
        }
    }

    /// Ends this life of the membership. What is owned, or about to be, is lost; with nothing owned the next life
    /// begins by itself.
    fn end_life(&mut self, keep_id: bool, error: &Error) {
        let had = !self.owned.is_empty() || self.target.is_some() || self.prepare.is_some();
        self.forget_life(keep_id);
        if had {
            self.outputs.push_back(Output::Lost(error.clone()));
            self.state = State::Lost;
            self.wanted = false;
        } else {
            self.state = State::Unjoined;
            self.wanted = true;
        }
    }

    fn forget_life(&mut self, keep_id: bool) {
        if !keep_id {
            self.member_id.clear();
        }
        self.generation = NO_GENERATION;
        self.incarnation += 1;
        self.chosen = None;
        self.owned.clear();
        self.target = None;
        self.prepare = None;
        self.rejoin = None;
        self.call = None;
        self.lead = None;
        self.returning = None;
        self.watched = Watched::default();
        self.beat = Beat::default();
        self.outputs.retain(|output| !matches!(output, Output::Reconcile { .. } | Output::Send { .. }));
    }

    /// Nothing more until the application changes something.
    fn fail(&mut self, error: Error) {
        self.end_life(true, &error);
        self.state = State::Fatal;
        self.wanted = false;
        self.outputs.push_back(Output::Fault(error.with_fatal()));
    }

    /// Told to the caller; the next poll may try again, not before the back-off.
    fn refuse(&mut self, now: Instant, error: Error, random: f64) {
        self.end_life(true, &error);
        self.wanted = false;
        self.retry.fail(now, random);
        self.outputs.push_back(Output::Fault(error));
    }

    fn tell_denied(&mut self, now: Instant) {
        let news = self.denied.handle_picture(now, &self.subscription.topics, &self.picture);
        self.outputs.extend(news.into_iter().map(Output::Fault));
    }

    fn subscribe(&mut self, subscription: Subscription) {
        if self.subscription == subscription {
            return;
        }
        self.subscription = subscription;
        if self.state == State::Fatal {
            self.state = State::Unjoined;
            self.retry.clear();
        }
        self.compare_subscription();
        self.tell_interest();
    }

    fn compare_subscription(&mut self) {
        if self.state == State::Stable && self.sent != self.subscription.topics {
            self.rejoin = Some("the subscription changed");
        }
    }

    /// Also looked at when an assignment has come: metadata may have changed while the group waited for it, and
    /// there may be no other news for long.
    fn compare_partitions(&mut self) {
        if self.state == State::Stable && self.watched.changed(&self.picture) {
            self.rejoin = Some("the partitions of the group's topics changed");
        }
    }

    /// A leader has to know the partitions of all topics of its group.
    fn tell_interest(&mut self) {
        let of_group: Vec<TopicName> = match (&self.lead, &self.returning) {
            (Some(lead), _) => lead.topics.iter().copied().collect(),
            (None, Some(returning)) => returning.topics.iter().copied().collect(),
            (None, None) => self.watched.topics().collect(),
        };
        if !self.picture.all_topics && !of_group.is_empty() {
            let mut topics = self.subscription.topics.clone();
            topics.extend(of_group);
            self.outputs.push_back(Output::Interest(topics));
        }
    }

    fn reconciled(&mut self, number: u64, owned: &Partitions) {
        if matches!(self.state, State::Lost | State::Leaving | State::Left | State::Fatal) {
            return;
        }
        self.owned.clone_from(owned);
        if self.prepare == Some(number) {
            self.prepare = None;
            if self.state == State::Preparing {
                // The subscription may have changed meanwhile: asked again what has to go.
                self.state = State::Unjoined;
                self.wanted = true;
            }
        }
        if let Some(target) = self.target.take_if(|target| target.number == number)
            && self.cooperative
            && target.revokes
        {
            self.rejoin = Some("what the assignment takes away is revoked");
        }
    }

    fn leave(&mut self, goodbye: Goodbye) {
        if matches!(self.state, State::Leaving | State::Left) {
            return;
        }
        let reason = match goodbye {
            Goodbye::Leave => "the consumer is being closed",
            Goodbye::PollTimeout => "the application has not polled within the rebalance timeout",
        };
        let id = self.member_id.clone();
        self.forget_life(false);
        self.wanted = false;
        // A static member's place is kept until its session ends.
        let says_so = self.settings.instance_id.is_none() && !id.is_empty();
        if says_so {
            let member = MemberIdentity::default().with_member_id(text(&id)).with_reason(Some(text(reason)));
            let request =
                LeaveGroupRequest::default().with_group_id(self.group_id()).with_members(vec![member]);
            self.goodbye = Some(self.send(Lane::Group, GOODBYE_WITHIN, Request::Leave(request)));
        }
        match goodbye {
            Goodbye::PollTimeout => self.state = State::Unjoined,
            Goodbye::Leave if says_so => self.state = State::Leaving,
            Goodbye::Leave => {
                self.state = State::Left;
                self.outputs.push_back(Output::Left);
            }
        }
    }

    fn group_id(&self) -> GroupId {
        GroupId(text(&self.settings.group))
    }

    fn instance_id(&self) -> Option<StrBytes> {
        self.settings.instance_id.as_deref().map(text)
    }
}

impl Protocol for Membership {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Join => {
                if self.state == State::Unjoined {
                    self.wanted = true;
                }
            }
            Input::Subscription(subscription) => self.subscribe(subscription),
            Input::Metadata(snapshot) => {
                self.picture = snapshot.clone();
                self.tell_denied(now);
                self.compare_given();
                self.compare_partitions();
            }
            Input::Answer { ticket, answer, random } => {
                if self.call.take_if(|call| *call == ticket).is_some() {
                    match answer {
                        Ok(Answer::Join(answer)) => self.on_join(now, answer, random),
                        Ok(Answer::Sync(answer)) => self.on_sync(now, &answer, random),
                        Ok(_) => self.again(now, random),
                        Err(error) => self.on_lost_call(now, error, random),
                    }
                } else if self.goodbye.take_if(|goodbye| *goodbye == ticket).is_some() {
                    if self.state == State::Leaving {
                        self.state = State::Left;
                        self.outputs.push_back(Output::Left);
                    }
                } else if self.asked_what_is_given(ticket) {
                    self.on_described(answer);
                } else {
                    self.on_beat(now, ticket, answer, random);
                }
            }
            Input::Reconciled { number, owned } => self.reconciled(number, owned),
            Input::LostDone => {
                if self.state == State::Lost {
                    self.state = State::Unjoined;
                    self.retry.clear();
                }
            }
            Input::Leave { goodbye } => self.leave(goodbye),
        }
    }

    fn poll_output(&mut self, now: Instant) -> Option<Output> {
        if self.outputs.is_empty() {
            self.advance(now);
        }
        self.outputs.pop_front()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waits_to_join = match self.state {
            State::Unjoined => self.wanted,
            State::Stable => self.may_rejoin(),
            State::Joining => self.call.is_none(),
            _ => false,
        };
        let join = self.retry.at.filter(|_| waits_to_join);
        let lead = self.lead.as_ref().filter(|_| self.state == State::Leading).map(|lead| lead.deadline);
        [join, lead, self.next_beat()].into_iter().flatten().min()
    }

    fn identity(&self) -> Option<Identity> {
        (self.generation > NO_GENERATION).then(|| Identity {
            generation: self.generation,
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

/// A name other members wrote may be anything; names are interned for ever, so only one that can exist is.
fn legal(name: &str) -> Option<TopicName> {
    let fits = (1..=249).contains(&name.len()) && name != "." && name != "..";
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    (fits && plain).then(|| TopicName::new(name))
}
