//! What is to be done next: requests, and words to the sender.

use std::time::Instant;

use kafka_meta::{CommittedOffset, Error, GroupMetadata, Result};

use super::{BACKOFF, Core, Place, Stage, State};
use crate::producer_id::Identity;

/// One request.
#[derive(Clone, Debug)]
pub(in super::super) enum Ask {
    /// An identity: a new one, or the next epoch of this one.
    Init { current: Identity },
    /// Version 1: partitions that batches wait for.
    AddPartitions(Vec<Place>),
    /// Version 1: the group whose offsets follow.
    AddOffsets { group: String },
    /// Offsets, to the group's coordinator.
    CommitOffsets { call: u64, group: GroupMetadata, offsets: Vec<(Place, CommittedOffset)> },
    /// The end.
    End { commit: bool },
}

/// A request with what it is sent under.
#[derive(Clone, Debug)]
pub(in super::super) struct Plan {
    pub ticket: u64,
    pub identity: Identity,
    pub v2: bool,
    pub ask: Ask,
}

#[derive(Debug)]
pub(in super::super) enum Output {
    /// Send this; tell the answer or the failure.
    Ask(Plan),
    /// Let the sender finish everything queued; tell `handle_settled`.
    Flush(u64),
    /// Let the sender drop what was never sent and finish the rest; tell `handle_settled`.
    Drop(u64, Error),
    /// Let the sender take this identity over; tell `handle_adopted`.
    Adopt(Identity),
    /// Let the sender look again at what it may send.
    Wake,
}

impl Core {
    pub fn poll_output(&mut self, now: Instant) -> Option<Output> {
        if std::mem::take(&mut self.wake) {
            return Some(Output::Wake);
        }
        if let Some(output) = self.poll_ending(now) {
            return Some(output);
        }
        if self.line.is_due(now)
            && let Some(ask) = self.next_ask(now)
        {
            return Some(Output::Ask(self.plan(ask)));
        }
        if self.group_line.is_due(now)
            && let Some(ask) = self.next_group_ask(now)
        {
            return Some(Output::Ask(self.plan(ask)));
        }
        None
    }

    /// The stages of an end that are not requests.
    fn poll_ending(&mut self, now: Instant) -> Option<Output> {
        let idle = self.line.in_flight.is_none() && self.group_line.in_flight.is_none();
        let ticket = self.tickets.wrapping_add(1);
        let ending = self.ending.as_mut()?;
        match ending.stage {
            Stage::Settle(None) => {
                ending.stage = Stage::Settle(Some(ticket));
                let output = match &ending.reason {
                    Some(reason) => Output::Drop(ticket, reason.clone()),
                    None => Output::Flush(ticket),
                };
                self.tickets = ticket;
                Some(output)
            }
            // What is in flight may still add to the transaction, and has to be answered before it ends.
            Stage::Settled if idle && self.offsets.is_empty() => {
                let commit = ending.commit;
                if self.touched {
                    ending.stage = Stage::End;
                } else {
                    self.decide(commit);
                    self.finish();
                }
                None
            }
            Stage::Adopt(identity) if self.adopt_after.is_none_or(|at| at <= now) => {
                self.adopt_after = Some(now + BACKOFF.0);
                Some(Output::Adopt(identity))
            }
            _ => None,
        }
    }

    fn may_ask(&self, now: Instant) -> bool {
        self.horizon.is_some_and(|horizon| now < horizon)
    }

    fn next_ask(&self, now: Instant) -> Option<Ask> {
        let stage = self.ending.as_ref().map(|ending| (ending.stage, ending.commit));
        match (self.state, stage) {
            (State::Initializing, None) if self.may_ask(now) => Some(Ask::Init { current: Identity::NONE }),
            (State::InTransaction, _) | (State::Committing, Some((Stage::Settle(_) | Stage::Settled, _))) => {
                if !self.wanted.is_empty() {
                    // Batches give up by themselves, after their delivery timeout; until then this goes on.
                    return Some(Ask::AddPartitions(self.wanted.iter().copied().collect()));
                }
                let call = self.offsets.front()?;
                let add = !self.v2 && !self.groups.contains(&call.group.group_id) && self.may_ask(now);
                add.then(|| Ask::AddOffsets { group: call.group.group_id.clone() })
            }
            (State::Committing | State::Aborting, Some((Stage::End, commit))) if self.may_ask(now) => {
                Some(Ask::End { commit })
            }
            (State::Committing | State::Aborting, Some((Stage::Bump, _))) if self.may_ask(now) => {
                Some(Ask::Init { current: self.identity })
            }
            _ => None,
        }
    }

    fn next_group_ask(&self, now: Instant) -> Option<Ask> {
        if !matches!(self.state, State::InTransaction | State::Committing) || !self.may_ask(now) {
            return None;
        }
        let call = self.offsets.front()?;
        if !self.v2 && !self.groups.contains(&call.group.group_id) {
            return None;
        }
        let offsets = call.left.iter().map(|(place, offset)| (*place, offset.clone())).collect();
        Some(Ask::CommitOffsets { call: call.id, group: call.group.clone(), offsets })
    }

    fn plan(&mut self, ask: Ask) -> Plan {
        match &ask {
            Ask::AddPartitions(_) | Ask::AddOffsets { .. } | Ask::CommitOffsets { .. } => self.touched = true,
            Ask::End { .. } => {
                if let Some(ending) = &mut self.ending {
                    ending.asked = true;
                }
            }
            Ask::Init { .. } => {}
        }
        let ticket = self.ticket();
        let line = match &ask {
            Ask::CommitOffsets { .. } => &mut self.group_line,
            _ => &mut self.line,
        };
        line.in_flight = Some((ticket, ask.clone()));
        Plan { ticket, identity: self.identity, v2: self.v2, ask }
    }

    /// When to ask for the next output, if nothing happens before.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let line = |line: &super::Line| line.not_before.filter(|_| line.in_flight.is_none());
        let adopt = matches!(&self.ending, Some(ending) if matches!(ending.stage, Stage::Adopt(_)));
        let adopt = self.adopt_after.filter(|_| adopt);
        [line(&self.line), line(&self.group_line), adopt].into_iter().flatten().filter(|at| *at > now).min()
    }

    /// The sender is done with what it was told under `ticket`: everything queued has its outcome. `in_sequence`
    /// tells whether each partition's sequences go on where the broker's do.
    pub fn handle_settled(&mut self, ticket: u64, result: Result<()>, in_sequence: bool) {
        let Some(ending) = self.ending.as_mut().filter(|ending| ending.stage == Stage::Settle(Some(ticket)))
        else {
            return;
        };
        self.doubtful |= !in_sequence;
        match result {
            // Told before by `batch_failed`, which has taken the ending away; this is for good measure.
            Err(error) if ending.commit => self.give_up(error),
            _ => ending.stage = Stage::Settled,
        }
    }

    /// The sender has taken the identity over, or not yet.
    pub fn handle_adopted(&mut self, identity: Identity, result: Result<()>) {
        let adopting = matches!(&self.ending, Some(ending) if ending.stage == Stage::Adopt(identity));
        match result {
            _ if !adopting => {}
            Ok(()) => {
                self.identity = identity;
                self.adopt_after = None;
                self.finish();
            }
            // Asked again in a moment.
            Err(error) => tracing::warn!(%error, "the sender has not taken the new producer epoch over"),
        }
    }
}
