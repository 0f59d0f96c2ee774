//! The fetch session a consumer holds at one broker (KIP-227), as a pure state machine.
//!
//! What it is: it turns "these partitions, at these offsets, in this order" into the smallest request that says
//! so, and an answer into the partitions that may be used. What it is not: it sends nothing, knows no clock and
//! no version (that is told to [`Plan::request`] once the connection is there), reads no records, and judges no
//! partition's own error.
//!
//! # States, as (session id, epoch of the next request)
//!
//! | State | Next request | Then |
//! |---|---|---|
//! | (0, 0) none | full | an id in the answer: (id, 1); none, because the broker's cache is full: still (0, 0), data used |
//! | (id, n ≥ 1) open | what changed, and what to forget | same id: (id, n + 1), and after `i32::MAX` comes 1; id 0: (0, 0), data used |
//! | (id, 0) broken | full; the broker closes the old session with it | as from (0, 0) |
//!
//! Ways into (0, 0): 70 (the broker has no such session); a full answer that came empty and throttled, which
//! opened nothing; [`close`](FetchSession::close). Ways into (id, 0): any other error of the whole answer, a
//! lost or undecodable answer, an answer that lists what it must not or leaves out what it must not, topics that
//! change between having ids and not having them (a broker refuses a session whose requests change so, with 106:
//! it is opened anew at once instead), and a request nobody answered before the next was built.
//!
//! # Invariants
//!
//! - After every answer used, the broker's session holds exactly the partitions last wanted, each at the values
//!   last wanted. `held` is that set as it will be once the last plan is answered; nothing is held in the other
//!   two states, so that a broken session costs a full request and never a forgotten partition.
//! - A partition is forgotten once, by the plan that finds it no longer wanted.
//! - (0, -1), "no session at all", is never sent: it would send the whole list for ever and look healthy.
//! - At most one plan is outstanding. Answers of any other are ignored: they change nothing and give nothing.
//! - No session event is an error for the application.
//!
//! A session is not bound to its connection, so a new connection alone does not end it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use kafka_meta::wire::fetch::{FetchAnswer, FetchedPartition, TopicRef};
use kafka_meta::{ErrorCode, TopicName};
use uuid::Uuid;

mod plan;
#[cfg(test)]
mod tests;

pub(crate) use plan::{FetchSettings, Forget, Plan, Want};

/// What an answer means.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// These partitions may be used. A partition that is not listed has nothing new.
    Use(Vec<Fetched>),
    /// The session was lost. Nothing of the answer may be used; the next plan is a full one. It may follow at once
    /// the first time; from then on [`FetchSession::lost_in_a_row`] tells how far to hold back.
    Reopen {
        /// Why, in words for a log.
        reason: &'static str,
        /// Whether the topic ids we know may be old: metadata should be refreshed.
        refresh: bool,
    },
    /// A quota made the broker answer at once and without data; `throttle` of the answer says for how long.
    Throttled,
}

/// A partition that came, under the name it was asked for.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// The topic.
    pub(crate) topic: TopicName,
    /// What came.
    pub(crate) part: FetchedPartition,
}

/// The session of one consumer at one node.
#[derive(Debug)]
pub(crate) struct FetchSession {
    /// The session the broker holds for us, or may still hold; 0 for none.
    id: i32,
    /// The epoch of the next request.
    epoch: i32,
    /// Whether the session's requests name topics by id.
    by_id: bool,
    held: HashMap<(TopicName, i32), Held>,
    /// The topic each id in `held` stands for. May keep an id nobody holds until the next partition is forgotten.
    names: HashMap<Uuid, TopicName>,
    /// Number of the last plan.
    ticket: u64,
    /// Whether the last plan waits for its answer.
    outstanding: bool,
    lost_in_a_row: u32,
}

/// What the broker's session has for a partition.
#[derive(Debug)]
struct Held {
    want: Want,
    /// The last plan that wanted it: what lags behind is to be forgotten.
    wanted: u64,
    /// The last plan whose answer listed it.
    answered: u64,
}

impl FetchSession {
    pub(crate) fn new() -> Self {
        FetchSession {
            id: 0,
            epoch: 0,
            by_id: true,
            held: HashMap::new(),
            names: HashMap::new(),
            ticket: 0,
            outstanding: false,
            lost_in_a_row: 0,
        }
    }

    /// Whether the broker holds a session for us, or may still hold a broken one: something is left to be drained
    /// or closed.
    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        self.id != 0
    }

    /// How many partitions the broker's session holds once the last plan is answered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether the broker's session holds this partition once the last plan is answered.
    pub(crate) fn holds(&self, topic: TopicName, partition: i32) -> bool {
        self.held.contains_key(&(topic, partition))
    }

    /// The partitions the broker's session holds once the last plan is answered, in no order.
    pub(crate) fn held(&self) -> impl Iterator<Item = (TopicName, i32)> {
        self.held.keys().copied()
    }

    /// How often the session was lost since an answer was last used. A broker that is restarted or short of
    /// memory costs one; more in a row call for a pause, or two machines spin.
    pub(crate) fn lost_in_a_row(&self) -> u32 {
        self.lost_in_a_row
    }

    /// The next request: `wants` in the order the broker should serve them, each partition once (a repetition is
    /// ignored). It has to be answered by [`handle_answer`](Self::handle_answer) or
    /// [`handle_failure`](Self::handle_failure) before the next is built; if it is not, it counts as lost.
    pub(crate) fn build(&mut self, wants: &[Want]) -> Plan {
        if self.outstanding {
            self.lose(self.id);
        }
        // With nothing wanted there is nothing to name: the session drains as it is.
        let by_id =
            if wants.is_empty() { self.by_id } else { wants.iter().all(|want| !want.topic_id.is_nil()) };
        if by_id != self.by_id {
            self.reset(self.id);
            self.by_id = by_id;
        }
        self.ticket += 1;
        self.outstanding = true;

        let mut plan = Plan {
            session_id: self.id,
            epoch: self.epoch,
            by_id,
            send: Vec::new(),
            forget: Vec::new(),
            ticket: self.ticket,
        };
        if plan.is_full() {
            plan.send.reserve_exact(wants.len());
        }
        let mut wanted = 0;
        for want in wants {
            let held = match self.held.entry((want.topic, want.partition)) {
                Entry::Vacant(place) => {
                    plan.send.push(want.clone());
                    place.insert(Held { want: want.clone(), wanted: self.ticket, answered: 0 });
                    self.names.insert(want.topic_id, want.topic);
                    wanted += 1;
                    continue;
                }
                Entry::Occupied(place) => place.into_mut(),
            };
            if held.wanted == self.ticket {
                continue;
            }
            held.wanted = self.ticket;
            wanted += 1;
            if held.want == *want {
                continue;
            }
            if held.want.topic_id != want.topic_id {
                plan.forget.push(Forget::replaced(&held.want));
                self.names.insert(want.topic_id, want.topic);
            }
            held.want = want.clone();
            plan.send.push(want.clone());
        }
        if wanted < self.held.len() {
            let ticket = self.ticket;
            self.held.retain(|_, held| {
                if held.wanted != ticket {
                    plan.forget.push(Forget::dropped(&held.want));
                }
                held.wanted == ticket
            });
        }
        if !plan.forget.is_empty() {
            // A stable order, so that the same change is the same request.
            plan.forget.sort_unstable_by_key(|forget| (forget.topic, forget.topic_id, forget.partition));
            self.names = self.held.values().map(|held| (held.want.topic_id, held.want.topic)).collect();
        }
        plan
    }

    /// Takes the answer to `plan`. An answer to any plan but the outstanding one changes nothing and gives nothing.
    pub(crate) fn handle_answer(&mut self, plan: &Plan, answer: FetchAnswer) -> Outcome {
        if !self.outstanding || plan.ticket != self.ticket {
            return Outcome::Use(Vec::new());
        }
        self.outstanding = false;
        if !answer.error.is_none() {
            return self.refused(answer.error);
        }
        let throttled = !answer.throttle.is_zero() && answer.partitions.is_empty();
        if plan.is_full() {
            self.full_answer(answer, throttled)
        } else {
            self.incremental_answer(answer, throttled)
        }
    }

    /// The answer to `plan` is lost: not sent, not answered in time, cut off, or not decodable. The broker may have
    /// followed the plan or not, so the session is opened anew. A plan that is not outstanding changes nothing.
    pub(crate) fn handle_failure(&mut self, plan: &Plan) {
        if self.outstanding && plan.ticket == self.ticket {
            self.lose(self.id);
        }
    }

    /// Gives the session up: the request that closes it at the broker, best effort, when there may be one.
    /// Its answer means nothing. A later [`build`](Self::build) starts from nothing. Take the answer of the plan
    /// under way first if there is time: a session that is just being opened has no id to close it by yet.
    pub(crate) fn close(&mut self) -> Option<Plan> {
        let id = self.id;
        self.reset(0);
        // Not outstanding: whatever comes back for it, or for the plan before it, is ignored.
        self.ticket += 1;
        (id != 0).then(|| Plan {
            session_id: id,
            epoch: plan::CLOSE,
            by_id: self.by_id,
            send: Vec::new(),
            forget: Vec::new(),
            ticket: self.ticket,
        })
    }

    fn refused(&mut self, error: ErrorCode) -> Outcome {
        let id = if error == ErrorCode::FETCH_SESSION_ID_NOT_FOUND { 0 } else { self.id };
        self.lose(id);
        let (reason, refresh) = match error {
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND => ("the broker does not know the session", false),
            ErrorCode::INVALID_FETCH_SESSION_EPOCH => {
                ("the broker is at another epoch of the session", false)
            }
            ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR => ("names and topic ids met in one session", true),
            ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::INCONSISTENT_TOPIC_ID
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => ("the broker does not know a topic", true),
            _ => ("the broker refused the whole request", false),
        };
        Outcome::Reopen { reason, refresh }
    }

    fn full_answer(&mut self, answer: FetchAnswer, throttled: bool) -> Outcome {
        if throttled && !(answer.session_id != 0 && self.held.is_empty()) {
            self.reset(answer.session_id);
            return Outcome::Throttled;
        }
        let session_id = answer.session_id;
        let expected = self.held.len();
        match self.named(answer.partitions) {
            Some(fetched) if fetched.len() == expected => {
                if session_id == 0 {
                    self.reset(0);
                } else {
                    (self.id, self.epoch) = (session_id, 1);
                }
                self.lost_in_a_row = 0;
                Outcome::Use(fetched)
            }
            // Java forgets the id here and leaves the session to the broker; (id, 0) closes it.
            _ => {
                self.lose(session_id);
                Outcome::Reopen { reason: "a full answer did not list what was asked for", refresh: false }
            }
        }
    }

    fn incremental_answer(&mut self, answer: FetchAnswer, throttled: bool) -> Outcome {
        let id = self.id;
        if answer.session_id != 0 && answer.session_id != id {
            self.lose(id);
            return Outcome::Reopen { reason: "the answer belongs to another session", refresh: false };
        }
        let Some(fetched) = self.named(answer.partitions) else {
            self.lose(id);
            return Outcome::Reopen {
                reason: "the answer lists a partition that is not in the session",
                refresh: false,
            };
        };
        if answer.session_id == 0 {
            self.reset(0);
        } else {
            self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
        }
        self.lost_in_a_row = 0;
        // A throttled answer uses up its epoch, and what it was told to add and to forget is done.
        if throttled { Outcome::Throttled } else { Outcome::Use(fetched) }
    }

    /// Gives every partition the name it was asked for by; `None` when one is not held, or comes twice.
    fn named(&mut self, partitions: Vec<FetchedPartition>) -> Option<Vec<Fetched>> {
        // Only a session by names, which is rare, pays for looking names up as text: interning what a broker
        // sends would let it fill the table of names.
        let texts: HashMap<&str, TopicName> = match partitions.first() {
            Some(FetchedPartition { topic: TopicRef::Name(_), .. }) => {
                self.held.keys().map(|&(topic, _)| (topic.as_str(), topic)).collect()
            }
            _ => HashMap::new(),
        };
        let mut fetched = Vec::with_capacity(partitions.len());
        for part in partitions {
            let topic = match &part.topic {
                TopicRef::Name(name) => *texts.get(name.as_str())?,
                TopicRef::Id(id) => *self.names.get(id)?,
            };
            let held = self.held.get_mut(&(topic, part.partition))?;
            if matches!(part.topic, TopicRef::Id(id) if id != held.want.topic_id)
                || held.answered == self.ticket
            {
                return None;
            }
            held.answered = self.ticket;
            fetched.push(Fetched { topic, part });
        }
        Some(fetched)
    }

    /// To (`id`, 0), as a loss that counts.
    fn lose(&mut self, id: i32) {
        self.reset(id);
        self.lost_in_a_row = self.lost_in_a_row.saturating_add(1);
    }

    /// To (`id`, 0): nothing is held, the next plan is full.
    fn reset(&mut self, id: i32) {
        (self.id, self.epoch) = (id, 0);
        self.outstanding = false;
        self.held.clear();
        self.names.clear();
    }
}
