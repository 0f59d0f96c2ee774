//! What the answers come to, and what their absence does.

use std::time::Instant;

use kafka_meta::{Error, ErrorCode};

use super::super::codes::{self, Class, Question};
use super::calls::{ABORT, COMMIT, SEND_OFFSETS};
use super::{Ask, Core, Ending, Line, Place, Stage, State, misuse};
use crate::producer_id::Identity;

#[derive(Clone, Debug)]
pub(in super::super) enum Answer {
    /// An identity, and whether the cluster runs transactions as version 2.
    Identity { identity: Identity, v2: bool },
    /// One code for the whole request.
    Code(ErrorCode),
    /// The transaction has ended; version 2 answers with the next identity.
    Ended(Option<Identity>),
    /// One code per partition.
    Partitions(Vec<(Place, ErrorCode)>),
}

impl Ask {
    fn question(&self) -> Question {
        match self {
            Ask::Init { .. } => Question::Init,
            Ask::AddPartitions(_) | Ask::AddOffsets { .. } => Question::Add,
            Ask::CommitOffsets { .. } => Question::Offsets,
            Ask::End { .. } => Question::End,
        }
    }

    fn operation(&self) -> &'static str {
        match self {
            Ask::Init { .. } => "InitProducerId",
            Ask::AddPartitions(_) => "AddPartitionsToTxn",
            Ask::AddOffsets { .. } => "AddOffsetsToTxn",
            Ask::CommitOffsets { .. } => SEND_OFFSETS,
            Ask::End { commit: true } => COMMIT,
            Ask::End { commit: false } => ABORT,
        }
    }
}

impl Core {
    /// The line a request of this ticket is in flight on, free again.
    fn take(&mut self, ticket: u64) -> Option<Ask> {
        let lines = [&mut self.line, &mut self.group_line];
        let line = lines
            .into_iter()
            .find(|line| line.in_flight.as_ref().is_some_and(|(sent, _)| *sent == ticket))?;
        line.in_flight.take().map(|(_, ask)| ask)
    }

    fn line_of(&mut self, ask: &Ask) -> &mut Line {
        match ask {
            Ask::CommitOffsets { .. } => &mut self.group_line,
            _ => &mut self.line,
        }
    }

    /// An answer; `true` when the coordinator that gave it is none any more.
    pub fn handle_answer(&mut self, now: Instant, ticket: u64, answer: Answer, random: f64) -> bool {
        let Some(ask) = self.take(ticket) else { return false };
        if self.state == State::Fatal {
            return false;
        }
        let worst = match (&ask, answer) {
            (Ask::Init { current }, Answer::Identity { identity, v2 }) => {
                self.identified(current.is_some(), identity, v2);
                Class::Done
            }
            (Ask::End { commit }, Answer::Ended(next)) => {
                self.ended(*commit, next);
                Class::Done
            }
            (Ask::AddPartitions(asked), Answer::Partitions(codes)) => self.added(asked, &codes),
            (Ask::CommitOffsets { call, .. }, Answer::Partitions(codes)) => self.stored(now, *call, &codes),
            (Ask::AddOffsets { group, .. }, Answer::Code(ErrorCode::NONE)) => {
                self.groups.insert(group.clone());
                Class::Done
            }
            (_, Answer::Code(code)) => self.refused(&ask, code),
            // An answer of another kind cannot come.
            _ => Class::Again,
        };
        match worst {
            Class::Done => self.line_of(&ask).succeed(),
            Class::Abort | Class::Fatal | Class::Skipped => {}
            Class::Busy => {
                let line = self.line_of(&ask);
                let pause = line.busy.next(random);
                line.not_before = Some(now + pause);
            }
            Class::Again | Class::Rediscover | Class::Missing => {
                let line = self.line_of(&ask);
                let pause = line.backoff.next(random);
                line.not_before = Some(now + pause);
            }
        }
        worst == Class::Rediscover
    }

    /// No answer: the request may have been carried out or not.
    pub fn handle_failure(&mut self, now: Instant, ticket: u64, error: &Error, random: f64) {
        let Some(ask) = self.take(ticket) else { return };
        tracing::debug!(request = ask.operation(), %error, "a request of a transaction got no answer");
        self.doubtful |= !self.v2;
        let line = self.line_of(&ask);
        let pause = line.backoff.next(random);
        line.not_before = Some(now + pause);
        self.note_passing(error.clone());
        if codes::passes(error) || self.state == State::Fatal {
            return;
        }
        match ask.question() {
            Question::Init if self.state == State::Initializing => self.fail(error.clone()),
            Question::Add | Question::Offsets if self.is_collecting() => self.give_up(error.clone()),
            // How it ended is open, and asking again may tell.
            _ => {}
        }
    }

    /// The transaction is open to more.
    fn is_collecting(&self) -> bool {
        matches!(self.state, State::InTransaction | State::Committing)
    }

    /// One code for the whole request.
    fn refused(&mut self, ask: &Ask, code: ErrorCode) -> Class {
        let class = codes::class(code, ask.question());
        let error = || codes::error(code, ask.operation());
        match class {
            Class::Done | Class::Skipped => {}
            Class::Again | Class::Busy | Class::Rediscover | Class::Missing => self.note_passing(error()),
            Class::Fatal => self.fail(error()),
            Class::Abort => match ask {
                Ask::End { commit: false } if code == ErrorCode::TRANSACTION_ABORTABLE => {
                    return Class::Again;
                }
                // Nothing is open, or the coordinator has forgotten the producer: the abort has what it wants, and
                // a new epoch keeps late arrivals out.
                Ask::End { commit: false } => {
                    self.decide(false);
                    self.stage(Stage::Bump);
                    return Class::Done;
                }
                Ask::End { commit: true } => {
                    self.doubtful = true;
                    self.give_up(error().with_source(misuse(
                        COMMIT,
                        "the coordinator has no such transaction any more: it may have run longer than \
                         transaction.timeout.ms",
                    )));
                }
                _ if self.is_collecting() => self.give_up(error()),
                _ => {}
            },
        }
        class
    }

    fn stage(&mut self, stage: Stage) {
        if let Some(ending) = &mut self.ending {
            ending.stage = stage;
        }
    }

    fn identified(&mut self, bumped: bool, identity: Identity, v2: bool) {
        if self.v2 != v2 || !bumped {
            tracing::debug!(
                producer_id = identity.producer_id,
                epoch = identity.epoch,
                v2,
                "a producer identity"
            );
        }
        self.v2 = v2;
        if bumped {
            self.stage(Stage::Adopt(identity));
            return;
        }
        // The first one goes through the sender as well.
        self.ending =
            Some(Ending { commit: false, stage: Stage::Adopt(identity), asked: false, reason: None });
    }

    fn ended(&mut self, commit: bool, next: Option<Identity>) {
        self.decide(commit);
        match next {
            Some(identity) => self.stage(Stage::Adopt(identity)),
            None if self.doubtful => self.stage(Stage::Bump),
            None => self.finish(),
        }
    }

    fn added(&mut self, asked: &[Place], codes: &[(Place, ErrorCode)]) -> Class {
        let mut worst = Class::Done;
        for place in asked {
            let Some((_, code)) = codes.iter().find(|(named, _)| named == place) else {
                worst = Class::Again;
                continue;
            };
            let error = || codes::error(*code, "AddPartitionsToTxn").with_partition(place.0, place.1);
            match codes::class(*code, Question::Add) {
                Class::Done => {
                    self.wanted.remove(place);
                    self.added.insert(*place);
                    self.wake = true;
                }
                Class::Skipped => {
                    if worst == Class::Done {
                        worst = Class::Again;
                    }
                }
                Class::Fatal => {
                    self.fail(error());
                    return Class::Fatal;
                }
                Class::Abort if self.is_collecting() => {
                    self.give_up(error());
                    return Class::Abort;
                }
                Class::Abort => return Class::Abort,
                class => {
                    self.note_passing(error());
                    worst = class;
                }
            }
        }
        worst
    }

    fn stored(&mut self, now: Instant, call: u64, codes: &[(Place, ErrorCode)]) -> Class {
        let Some(at) = self.offsets.iter().position(|queued| queued.id == call) else { return Class::Done };
        let mut worst = Class::Done;
        let mut missing = None;
        for (place, code) in codes {
            let error = || codes::error(*code, SEND_OFFSETS).with_partition(place.0, place.1);
            match codes::class(*code, Question::Offsets) {
                Class::Done => {
                    if let Some(queued) = self.offsets.get_mut(at) {
                        queued.left.remove(place);
                    }
                }
                Class::Fatal => {
                    self.fail(error());
                    return Class::Fatal;
                }
                Class::Abort => {
                    if self.is_collecting() {
                        self.give_up(error());
                    }
                    return Class::Abort;
                }
                class => {
                    if class == Class::Missing {
                        missing = Some(error());
                    }
                    self.note_passing(error());
                    if worst != Class::Rediscover {
                        worst = class;
                    }
                }
            }
        }
        if self.offsets.get(at).is_some_and(|queued| queued.left.is_empty()) {
            if let Some(queued) = self.offsets.remove(at)
                && !queued.forgotten
            {
                self.finished.insert(queued.id, Ok(()));
            }
            return Class::Done;
        }
        let late = self.horizon.is_none_or(|horizon| now + super::BACKOFF.1 >= horizon);
        if let Some(error) = missing.filter(|_| late) {
            // Not new, but not there.
            self.give_up(error);
            return Class::Abort;
        }
        // A partition the answer left out is asked for again.
        if worst == Class::Done { Class::Again } else { worst }
    }

    /// The driver died with its requests and what it told the sender; the next one begins where this one was.
    pub fn handle_interruption(&mut self, now: Instant, error: &Error) {
        let tickets: Vec<u64> = [&self.line, &self.group_line]
            .iter()
            .filter_map(|line| line.in_flight.as_ref().map(|(ticket, _)| *ticket))
            .collect();
        for ticket in tickets {
            self.handle_failure(now, ticket, error, 0.5);
        }
        if let Some(ending) = &mut self.ending
            && matches!(ending.stage, Stage::Settle(_))
        {
            ending.stage = Stage::Settle(None);
        }
    }
}
