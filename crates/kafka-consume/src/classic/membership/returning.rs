//! A static leader that came back, and what it has to find out. Knows nothing of time.
//!
//! The broker lets such a member into the generation it left (`skipAssignment`): it tells what everybody wants, and
//! wants no assignment. So partitions that were made while the member was away belong to nobody, and nobody else
//! watches: Java's leader notices only what changes after its return. What the group was given is asked of the
//! coordinator (DescribeGroups; the right to read a group includes it), held against the metadata once, and what
//! differs makes the leader join again, which does start a rebalance.
//!
//! | `Given` | asked | leaves by |
//! |---|---|---|
//! | `Open` | with the sync's answer, then with each good heartbeat | the request |
//! | `Asked` | in flight | an answer: `Told`; none, or a group that is gathering: `Open`; a refusal: `Withheld` |
//! | `Told`, `Withheld` | – | metadata of all the group's topics |

use std::collections::BTreeSet;
use std::time::Duration;

use kafka_meta::client::{Lane, Snapshot};
use kafka_meta::{ErrorCode, ErrorKind, Result, TopicName};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse};
use tracing::debug;

use crate::assign::Assignment;
use crate::member::protocol::{Answer, Output, Partitions, Request};

use super::lead::Watched;
use super::{Membership, State, legal};

const STABLE: &str = "Stable";
/// One that is late is asked again with the next heartbeat.
const DESCRIBED_WITHIN: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Returning {
    /// All topics anybody in the group subscribes to.
    pub topics: BTreeSet<TopicName>,
    given: Given,
}

#[derive(Debug)]
enum Given {
    Open,
    Asked(u64),
    Told(Partitions),
    /// The coordinator will not say: what changes from now on is all there is to see.
    Withheld,
}

impl Returning {
    pub(super) fn new(topics: BTreeSet<TopicName>) -> Self {
        Returning { topics, given: Given::Open }
    }

    /// Whether what was given differs from what there is; `None` as long as that cannot be said.
    fn differs(&self, picture: &Snapshot) -> Option<bool> {
        let mut there = Partitions::new();
        for topic in &self.topics {
            let count = Watched::seen(*topic, picture, false)?.count;
            there.extend((0..count).map(|index| (*topic, index)));
        }
        match &self.given {
            Given::Told(given) => Some(*given != there),
            Given::Withheld => Some(false),
            Given::Open | Given::Asked(_) => None,
        }
    }
}

impl Membership {
    /// Asks what the group was given, if that is still to be found out.
    pub(super) fn ask_what_is_given(&mut self) {
        let stable = self.state == State::Stable && self.rejoin.is_none();
        let open = self.returning.as_ref().is_some_and(|returning| matches!(returning.given, Given::Open));
        #[cfg(test)]
        if crate::member::sabotage::is(crate::member::sabotage::Sabotage::TrustWhatWasGiven) {
            self.now_given(Given::Withheld);
            return self.compare_given();
        }
        if stable && open {
            let request = DescribeGroupsRequest::default().with_groups(vec![self.group_id()]);
            let ticket = self.send(Lane::Group, DESCRIBED_WITHIN, Request::Describe(request));
            self.now_given(Given::Asked(ticket));
        }
    }

    fn now_given(&mut self, given: Given) {
        if let Some(returning) = &mut self.returning {
            returning.given = given;
        }
    }

    /// Whether `ticket` is that of the question.
    pub(super) fn asked_what_is_given(&self, ticket: u64) -> bool {
        let asked = |returning: &Returning| matches!(returning.given, Given::Asked(asked) if asked == ticket);
        self.returning.as_ref().is_some_and(asked)
    }

    pub(super) fn on_described(&mut self, answer: Result<Answer>) {
        let given = match answer {
            Ok(Answer::Describe(answer)) => self.read_given(answer),
            Ok(_) => Given::Withheld,
            Err(error) => match error.kind() {
                ErrorKind::Disconnected | ErrorKind::Timeout => Given::Open,
                _ if error.is_retriable() => Given::Open,
                _ => {
                    debug!(%error, "the group is not described");
                    Given::Withheld
                }
            },
        };
        self.now_given(given);
        self.compare_given();
    }

    fn read_given(&self, answer: DescribeGroupsResponse) -> Given {
        let ours = |id: &str| id == self.settings.group;
        let Some(group) = answer.groups.into_iter().find(|group| ours(group.group_id.as_str())) else {
            return Given::Withheld;
        };
        let code = ErrorCode::from(group.error_code);
        match code {
            ErrorCode::NONE if group.group_state.as_str() == STABLE => {}
            // It is gathering, and a heartbeat will say so; or its coordinator moved.
            ErrorCode::NONE | ErrorCode::NOT_COORDINATOR => return Given::Open,
            _ if code.is_retriable() => return Given::Open,
            _ => {
                debug!(%code, "the group is not described");
                return Given::Withheld;
            }
        }
        let wanted = self.returning.as_ref().map(|returning| &returning.topics);
        let mut given = Partitions::new();
        for member in group.members {
            if member.member_assignment.len() < 2 {
                continue;
            }
            let Ok(assignment) = Assignment::decode(&member.member_assignment) else {
                return Given::Withheld;
            };
            let known = assignment.partitions.into_iter().filter_map(|(topic, index)| {
                let topic =
                    legal(&topic).filter(|topic| wanted.is_some_and(|wanted| wanted.contains(topic)))?;
                Some((topic, index))
            });
            given.extend(known);
        }
        Given::Told(given)
    }

    /// Once both sides are known: joins again if they differ, and watches from here on.
    pub(super) fn compare_given(&mut self) {
        if self.state != State::Stable {
            return;
        }
        let Some(differs) = self.returning.as_ref().and_then(|returning| returning.differs(&self.picture))
        else {
            return;
        };
        let Some(returning) = self.returning.take() else { return };
        self.watched.set(returning.topics, &self.picture, self.settings.rack.is_some());
        if differs && self.rejoin.is_none() {
            self.rejoin = Some("the partitions of the group's topics changed while its leader was away");
        }
    }

    /// A static leader is back in the generation it left.
    pub(super) fn returned(&mut self, topics: BTreeSet<TopicName>) {
        let known = topics.iter().all(|topic| Watched::seen(*topic, &self.picture, false).is_some());
        self.returning = Some(Returning::new(topics));
        self.tell_interest();
        if !known {
            self.outputs.push_back(Output::NeedIds);
        }
    }
}
