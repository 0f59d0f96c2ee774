//! Groups as their coordinators describe them, whichever protocol their members speak.
//!
//! Every group is first asked about as one of the new protocol; a coordinator that answers that it is none (69), or
//! does not serve the request (35, or not listed), is asked as of old. `consumer` reads the first kind of answer,
//! `classic` the second.

mod classic;
mod consumer;

use std::collections::HashMap;
use std::fmt;

use kafka_meta::client::To;
use kafka_meta::{ErrorCode, Result};

use crate::admin::{Admin, keyed};
use crate::plan::{Answer, Plan, Route, Subject};
use crate::run::Batch;

/// Whose protocol a group's members speak (Java: `GroupType`).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum GroupType {
    /// JoinGroup and SyncGroup; also a group that only stores offsets.
    Classic,
    /// KIP-848.
    Consumer,
    /// KIP-932.
    Share,
    /// KIP-1071.
    Streams,
    /// One this client has no name for.
    Other(String),
}

impl GroupType {
    /// Kafka's name of it.
    pub fn as_str(&self) -> &str {
        match self {
            GroupType::Classic => "classic",
            GroupType::Consumer => "consumer",
            GroupType::Share => "share",
            GroupType::Streams => "streams",
            GroupType::Other(name) => name,
        }
    }
}

impl From<&str> for GroupType {
    fn from(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "classic" => GroupType::Classic,
            "consumer" => GroupType::Consumer,
            "share" => GroupType::Share,
            "streams" => GroupType::Streams,
            _ => GroupType::Other(name.to_owned()),
        }
    }
}

impl fmt::Display for GroupType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a group is doing (Java: `GroupState`).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum GroupState {
    /// KIP-848: the broker is about to compute an assignment.
    Assigning,
    /// Classic: members have joined, the leader's assignment is awaited.
    CompletingRebalance,
    /// It is being removed.
    Dead,
    /// It has no members.
    Empty,
    /// Streams: its topics are not there yet.
    NotReady,
    /// Classic: members are being collected for the next generation.
    PreparingRebalance,
    /// KIP-848: members are on their way to their assignments.
    Reconciling,
    /// Every member has what it is to have.
    Stable,
    /// One this client has no name for.
    Other(String),
}

impl GroupState {
    /// Kafka's name of it.
    pub fn as_str(&self) -> &str {
        match self {
            GroupState::Assigning => "Assigning",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Dead => "Dead",
            GroupState::Empty => "Empty",
            GroupState::NotReady => "NotReady",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::Reconciling => "Reconciling",
            GroupState::Stable => "Stable",
            GroupState::Other(name) => name,
        }
    }
}

impl From<&str> for GroupState {
    fn from(name: &str) -> Self {
        match name {
            "Assigning" => GroupState::Assigning,
            "CompletingRebalance" => GroupState::CompletingRebalance,
            "Dead" => GroupState::Dead,
            "Empty" => GroupState::Empty,
            "NotReady" => GroupState::NotReady,
            "PreparingRebalance" => GroupState::PreparingRebalance,
            "Reconciling" => GroupState::Reconciling,
            "Stable" => GroupState::Stable,
            name => GroupState::Other(name.to_owned()),
        }
    }
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A group and its members (Java: `ConsumerGroupDescription`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// Its id.
    pub group_id: String,
    /// Whose protocol it runs.
    pub group_type: GroupType,
    /// What it is doing.
    pub state: GroupState,
    /// The node that coordinates it.
    pub coordinator: i32,
    /// Which assignor decides: the broker's (`uniform`, `range`) or the one the members agreed on; empty while
    /// there is none.
    pub assignor: String,
    /// Classic: what the members are, `"consumer"` for consumers; empty for a group that only stores offsets.
    pub protocol_type: String,
    /// KIP-848: raised by every change of members, subscriptions or topics.
    pub group_epoch: Option<i32>,
    /// KIP-848: the group epoch that the present target was computed for.
    pub target_epoch: Option<i32>,
    /// Its members, by id.
    pub members: Vec<MemberDescription>,
}

/// A member of a group (Java: `MemberDescription`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct MemberDescription {
    /// The member id.
    pub member_id: String,
    /// The instance id of a static member (KIP-345).
    pub instance_id: Option<String>,
    /// The client id it connects with.
    pub client_id: String,
    /// Where it connects from, as `/127.0.0.1`.
    pub host: String,
    /// Its rack, where it has said (KIP-848).
    pub rack: Option<String>,
    /// Its epoch (KIP-848); -2 for a static member that is away.
    pub epoch: Option<i32>,
    /// The topics it has named. Empty where the group's members are not consumers.
    pub topics: Vec<String>,
    /// The pattern it has given (KIP-848, brokers from Kafka 4.0 on).
    pub pattern: Option<String>,
    /// What is assigned to it.
    pub assignment: Vec<(String, i32)>,
    /// What it is to have once every member has given up what it must (KIP-848).
    pub target: Option<Vec<(String, i32)>>,
    /// Whether it speaks the classic protocol in a group of the new one (KIP-848's migration; Kafka 4.0 on).
    pub is_classic: Option<bool>,
}

impl Admin {
    /// Describes groups of consumers, of both protocols (Java: `describeConsumerGroups`; KIP-222, KIP-848): state,
    /// epochs, members with their subscriptions and assignments.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Per group: `Broker(GROUP_ID_NOT_FOUND)` for a group that is not there, `Authorization` on the group or on a
    /// topic its members read, `InvalidRequest` for a group named twice, `Timeout`.
    pub async fn describe_groups(
        &self,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Vec<(String, Result<GroupDescription>)>> {
        let groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        let plan = on_coordinators("describe groups", &groups, Plan::reading);
        let (call, asked) = (self.call(), &groups);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let names = batch.items.iter().filter_map(|index| asked.get(*index).cloned());
                let described = consumer::describe(call, &batch, names.collect()).await?;
                // In the same attempt: one coordinator that is away must not keep others' groups half described.
                let (described, others) = described.split();
                let classic = match others.is_empty() {
                    true => Vec::new(),
                    false => classic::describe(call, &batch, others).await?,
                };
                Ok(matched(&batch.items, asked, described.into_iter().chain(classic)))
            }
        });
        let results = results.await?;
        Ok(keyed(groups, results))
    }
}

/// What came of asking about groups as ones of the new protocol.
#[derive(Debug)]
struct Described(Vec<(String, Answer<GroupDescription>)>);

impl Described {
    /// The answers, and the groups to ask about as of old. As Java falls back: the request is not served, or the
    /// group is no such group.
    fn split(self) -> (Vec<(String, Answer<GroupDescription>)>, Vec<String>) {
        let (others, described): (Vec<_>, Vec<_>) = self.0.into_iter().partition(|(_, answer)| {
            let code = answer.as_ref().err().map(|refusal| refusal.code);
            matches!(code, Some(ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNSUPPORTED_VERSION))
        });
        (described, others.into_iter().map(|(group, _)| group).collect())
    }
}

/// A plan about groups, each asked at its coordinator.
pub(crate) fn on_coordinators<T>(
    operation: &'static str,
    groups: &[String],
    plan: impl Fn(&'static str, Vec<(Subject, Route)>) -> Plan<T>,
) -> Plan<T> {
    let items = groups.iter().map(|group| (Subject::Group(group.clone()), Route::Group(group.clone())));
    let mut plan = plan(operation, items.collect());
    for (index, group) in groups.iter().enumerate() {
        if group.is_empty() {
            plan.refuse(index, "the group id is empty");
        }
    }
    plan
}

/// Gives each answer the index of the group it is about.
pub(crate) fn matched<T>(
    items: &[usize],
    groups: &[String],
    answers: impl IntoIterator<Item = (String, Answer<T>)>,
) -> Vec<(usize, Answer<T>)> {
    let places = items.iter().filter_map(|index| Some((groups.get(*index)?.as_str(), *index)));
    let places: HashMap<&str, usize> = places.collect();
    answers.into_iter().filter_map(|(name, answer)| Some((*places.get(name.as_str())?, answer))).collect()
}

/// The node that a batch goes to.
fn coordinator(batch: &Batch) -> i32 {
    match batch.to {
        To::Node(node) => node,
        To::Any => -1,
    }
}
