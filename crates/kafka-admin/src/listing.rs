//! Which groups there are: every broker is asked for those it coordinates, and the answers become one list.

use std::collections::BTreeMap;

use kafka_meta::wire::protocol::messages::ListGroupsRequest;
use kafka_meta::{Error, ErrorKind, Result};

use crate::admin::Admin;
use crate::groups::{GroupState, GroupType};
use crate::plan::{Plan, Route, Subject, whole};
use crate::wire::{check, text};

const OPERATION: &str = "list groups";

/// A filter by state is understood from here on (KIP-518).
const BY_STATE: i16 = 4;
/// A filter by type is understood from here on (KIP-848; Kafka 3.8 on).
const BY_TYPE: i16 = 5;

/// Which groups to list; everything by default (Java: `ListGroupsOptions`).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GroupFilter {
    states: Vec<GroupState>,
    types: Vec<GroupType>,
}

impl GroupFilter {
    /// Every group.
    pub fn new() -> GroupFilter {
        GroupFilter::default()
    }

    /// Groups in this state, and in any other one named this way.
    #[must_use]
    pub fn state(mut self, state: GroupState) -> GroupFilter {
        self.states.push(state);
        self
    }

    /// Groups of this type, and of any other one named this way. Needs brokers from Kafka 3.8 on.
    #[must_use]
    pub fn group_type(mut self, group_type: GroupType) -> GroupFilter {
        self.types.push(group_type);
        self
    }

    /// The oldest version that obeys it: an older broker would answer as if nothing had been filtered.
    fn oldest(&self) -> i16 {
        match (self.states.is_empty(), self.types.is_empty()) {
            (_, false) => BY_TYPE,
            (false, true) => BY_STATE,
            (true, true) => 3,
        }
    }
}

/// A group in a list (Java: `GroupListing`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GroupListing {
    /// Its id.
    pub group_id: String,
    /// The node that coordinates it.
    pub coordinator: i32,
    /// `"consumer"` for groups of consumers, empty for a group that only stores offsets.
    pub protocol_type: String,
    /// Its state, where the broker tells (Kafka 2.6 on).
    pub state: Option<GroupState>,
    /// Whose protocol its members speak, where the broker tells (Kafka 3.8 on).
    pub group_type: Option<GroupType>,
}

/// The groups of a cluster, and the brokers whose groups are not among them (Java: `ListGroupsResult`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GroupListings {
    /// What the brokers that answered coordinate, by id.
    pub groups: Vec<GroupListing>,
    /// Brokers that could not be asked, or would not tell.
    pub errors: Vec<(i32, Error)>,
}

impl GroupListings {
    /// All groups, or the first error if any broker's are missing (Java: `all()`).
    ///
    /// # Errors
    ///
    /// The first of `errors`.
    pub fn all(self) -> Result<Vec<GroupListing>> {
        match self.errors.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(self.groups),
        }
    }
}

impl Admin {
    /// Every group that this principal may see (Java: `listGroups`; KIP-222, KIP-518, KIP-848).
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Per broker, in [`GroupListings::errors`]; as a whole only where no broker could be asked.
    pub async fn list_groups(&self) -> Result<GroupListings> {
        self.list_groups_matching(GroupFilter::new()).await
    }

    /// As [`Admin::list_groups`], only those that match.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// As there; `UnsupportedApi` from a broker that would not obey the filter.
    pub async fn list_groups_matching(&self, filter: GroupFilter) -> Result<GroupListings> {
        let call = self.call();
        // Who is there now: a broker that came a minute ago coordinates groups as well.
        let snapshot = call.cluster.refreshed(&[], call.deadline).await?;
        let nodes: Vec<i32> = snapshot.brokers.keys().copied().collect();
        if nodes.is_empty() {
            // An empty list would say that there are no groups.
            return Err(
                Error::new(ErrorKind::Disconnected, OPERATION).with_detail("the cluster names no brokers")
            );
        }
        let items = nodes.iter().map(|node| (Subject::Node(*node), Route::Node(*node)));
        let plan = Plan::reading(OPERATION, items.collect());
        let (nodes_asked, filter) = (&nodes, &filter);
        let settled = call.carry_out_each(plan, |batch| {
            let call = &call;
            async move {
                let index = batch.items.first().copied().unwrap_or_default();
                let node = nodes_asked.get(index).copied().unwrap_or(-1);
                let request = ListGroupsRequest::default()
                    .with_states_filter(filter.states.iter().map(|state| text(state.as_str())).collect())
                    .with_types_filter(filter.types.iter().map(|kind| text(kind.as_str())).collect());
                let (version, answer) = call.send(batch.to, batch.deadline, filter.oldest(), request).await?;
                let result = check(answer.error_code, None).map(|()| {
                    let listed = answer.groups.into_iter().map(|group| GroupListing {
                        group_id: group.group_id.to_string(),
                        coordinator: node,
                        protocol_type: group.protocol_type.to_string(),
                        state: (version >= BY_STATE).then(|| group.group_state.as_str().into()),
                        group_type: (version >= BY_TYPE).then(|| group.group_type.as_str().into()),
                    });
                    listed.collect::<Vec<_>>()
                });
                Ok(vec![(index, result)])
            }
        });
        let mut groups = BTreeMap::new();
        let mut listings = GroupListings::default();
        for (node, result) in nodes.iter().zip(whole(settled.await)?) {
            match result {
                // A group that moves while its brokers are asked may be listed twice.
                Ok(listed) => groups.extend(listed.into_iter().map(|group| (group.group_id.clone(), group))),
                Err(error) => listings.errors.push((*node, error)),
            }
        }
        listings.groups = groups.into_values().collect();
        Ok(listings)
    }
}
