//! Groups as their coordinators describe them, whichever protocol their members speak.
//!
//! Every group is first asked about as one of the new protocol; a coordinator that answers that it is none (69), or
//! does not serve the request (35, or not listed), is asked as of old. `consumer` reads the first kind of answer,
//! `classic` the second.

mod classic;
mod consumer;

use std::collections::HashMap;
use std::fmt;

use kafka_meta::{ErrorCode, ErrorKind, Result};

use crate::admin::{Admin, Call, keyed};
use crate::plan::{Answer, Plan, Route, Settled, Subject, whole};

const OPERATION: &str = "describe groups";

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
        let call = self.call();
        let mut settled = consumer::describe(&call, &groups).await;
        let fallen: Vec<usize> = (0..)
            .zip(&settled)
            .filter(|(_, item)| is_not_of_the_new_protocol(item))
            .map(|(index, _)| index)
            .collect();
        let names: Vec<String> = fallen.iter().filter_map(|index| groups.get(*index).cloned()).collect();
        let classic = classic::describe(&call, &names).await;
        for (index, found) in fallen.into_iter().zip(classic) {
            if let Some(place) = settled.get_mut(index) {
                *place = found;
            }
        }
        Ok(keyed(groups, whole(settled)?))
    }
}

/// As Java falls back: the request is not served, or the group is no such group.
fn is_not_of_the_new_protocol(item: &Settled<GroupDescription>) -> bool {
    item.result.as_ref().is_err_and(|error| {
        matches!(error.kind(), ErrorKind::UnsupportedApi | ErrorKind::Broker(ErrorCode::GROUP_ID_NOT_FOUND))
    })
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

/// Describes groups of one kind, in one request a coordinator.
async fn describe<F, Fut>(call: &Call<'_>, groups: &[String], ask: F) -> Vec<Settled<GroupDescription>>
where
    F: Fn(crate::run::Batch, Vec<kafka_meta::wire::protocol::messages::GroupId>) -> Fut,
    Fut: Future<Output = Result<Vec<(String, Answer<GroupDescription>)>>>,
{
    let plan = on_coordinators(OPERATION, groups, Plan::reading);
    let ask = &ask;
    call.carry_out_each(plan, |batch| async move {
        let items = batch.items.clone();
        let names =
            items.iter().filter_map(|index| groups.get(*index)).map(|group| crate::wire::group(group));
        let names = names.collect();
        Ok(matched(&items, groups, ask(batch, names).await?))
    })
    .await
}

/// The node that a batch goes to.
fn coordinator(batch: &crate::run::Batch) -> i32 {
    match batch.to {
        kafka_meta::client::To::Node(node) => node,
        kafka_meta::client::To::Any => -1,
    }
}
