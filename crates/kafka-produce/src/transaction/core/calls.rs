//! What the application asks for: begin, offsets, commit, abort, close; and what it is told.
//!
//! Each call is begun by `handle_…`, which changes the state at once, and followed by `outcome_of_…` until that
//! tells something. Whoever stops asking has cancelled nothing.

use std::time::Instant;

use kafka_meta::{CommittedOffset, Error, ErrorKind, GroupMetadata, Positions, Result};

use super::{Core, Ending, OffsetCall, Stage, State, misuse};

pub(in super::super) const BEGIN: &str = "begin transaction";
pub(in super::super) const SEND_OFFSETS: &str = "send offsets to transaction";
pub(in super::super) const COMMIT: &str = "commit transaction";
pub(in super::super) const ABORT: &str = "abort transaction";
pub(in super::super) const CLOSE: &str = "close the producer";

const NONE_OPEN: &str = "no transaction is open";

impl Core {
    /// Requests are repeated at least until then.
    fn extend(&mut self, deadline: Instant) {
        self.horizon = Some(self.horizon.map_or(deadline, |known| known.max(deadline)));
    }

    /// Asks for the identity.
    pub fn handle_init(&mut self, deadline: Instant) {
        self.extend(deadline);
        if self.state == State::Uninitialized {
            self.state = State::Initializing;
        }
    }

    pub fn outcome_of_init(&self) -> Option<Result<()>> {
        match self.state {
            State::Uninitialized | State::Initializing => None,
            State::Fatal => Some(Err(self.refusal("InitProducerId"))),
            _ => Some(Ok(())),
        }
    }

    /// Begins a transaction, as soon as the last one has ended.
    pub fn handle_begin(&mut self, deadline: Instant) {
        self.extend(deadline);
    }

    /// `None` while the last transaction is still ending.
    pub fn outcome_of_begin(&mut self) -> Option<Result<()>> {
        match self.state {
            _ if self.closed => Some(Err(Error::new(ErrorKind::Closed, BEGIN))),
            State::Ready => {
                self.state = State::InTransaction;
                self.number = self.number.wrapping_add(1);
                self.horizon = None;
                Some(Ok(()))
            }
            State::InTransaction => Some(Err(misuse(BEGIN, "a transaction is open already"))),
            State::Committing | State::Aborting => None,
            State::AbortableError | State::Fatal => Some(Err(self.refusal(BEGIN))),
            State::Uninitialized | State::Initializing => Some(Err(misuse(BEGIN, "not initialized"))),
        }
    }

    /// Queues offsets; the number to ask for the result by. `None`: there is nothing to do.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` for a negative offset, an empty group id, or outside a transaction; what went wrong before,
    /// in a transaction that can only be aborted.
    pub fn handle_offsets(
        &mut self,
        deadline: Instant,
        offsets: Positions,
        group: &GroupMetadata,
    ) -> Result<Option<u64>> {
        match self.state {
            State::InTransaction => {}
            State::AbortableError | State::Fatal => return Err(self.refusal(SEND_OFFSETS)),
            State::Committing => return Err(misuse(SEND_OFFSETS, "the transaction is being committed")),
            State::Aborting => return Err(misuse(SEND_OFFSETS, "the transaction is being aborted")),
            _ => return Err(misuse(SEND_OFFSETS, NONE_OPEN)),
        }
        if group.group_id.is_empty() {
            // A broker would accept it and store the offsets under no name.
            return Err(misuse(SEND_OFFSETS, "the group id is empty"));
        }
        if let Some((topic, partition, bad)) = offsets.iter().find(|(_, _, offset)| offset.offset < 0) {
            return Err(Error::new(ErrorKind::InvalidRequest, SEND_OFFSETS)
                .with_partition(topic, partition)
                .with_offset(bad.offset)
                .with_detail("a negative offset"));
        }
        if offsets.is_empty() {
            return Ok(None);
        }
        self.extend(deadline);
        let id = self.ticket();
        let place = |((topic, partition), offset): ((String, i32), CommittedOffset)| {
            ((topic.as_str().into(), partition), offset)
        };
        let left = offsets.into_iter().map(place).collect();
        self.offsets.push_back(OffsetCall { id, group: group.clone(), left, forgotten: false });
        Ok(Some(id))
    }

    pub fn outcome_of_offsets(&mut self, id: u64) -> Option<Result<()>> {
        self.finished.remove(&id)
    }

    /// Nobody asks for this result any more. The offsets stay the transaction's.
    pub fn forget_offsets(&mut self, id: u64) {
        self.finished.remove(&id);
        for call in self.offsets.iter_mut().filter(|call| call.id == id) {
            call.forgotten = true;
        }
    }

    /// Begins to commit, or goes on with a commit that was begun; the number to ask for the outcome by.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` without an open transaction; what went wrong before, in one that can only be aborted.
    pub fn handle_commit(&mut self, deadline: Instant) -> Result<u64> {
        if let Some(outcome) = self.decided() {
            return match outcome.committed && !outcome.reported {
                true => Ok(self.number),
                false => Err(misuse(COMMIT, NONE_OPEN)),
            };
        }
        match self.state {
            State::InTransaction => {
                self.state = State::Committing;
                self.horizon = None;
                self.last = None;
                self.ending =
                    Some(Ending { commit: true, stage: Stage::Settle(None), asked: false, reason: None });
            }
            State::Committing => {}
            State::Aborting => return Err(self.aborted(COMMIT, "the transaction is being aborted")),
            State::AbortableError | State::Fatal => return Err(self.refusal(COMMIT)),
            State::Uninitialized | State::Initializing | State::Ready => {
                return Err(misuse(COMMIT, NONE_OPEN));
            }
        }
        self.extend(deadline);
        Ok(self.number)
    }

    pub fn outcome_of_commit(&mut self, number: u64) -> Option<Result<()>> {
        if let Some(outcome) = self.outcomes.iter_mut().find(|outcome| outcome.number == number) {
            outcome.reported = true;
            return Some(match outcome.committed {
                true => Ok(()),
                false => Err(misuse(COMMIT, "the transaction was aborted")),
            });
        }
        match self.state {
            State::Fatal => Some(Err(self.refusal(COMMIT))),
            _ if self.number != number => {
                Some(Err(misuse(COMMIT, "the outcome was told to other callers, long ago")))
            }
            State::AbortableError => Some(Err(self.refusal(COMMIT))),
            State::Aborting => Some(Err(self.aborted(COMMIT, "the transaction is being aborted"))),
            _ => None,
        }
    }

    fn aborted(&self, operation: &'static str, why: &'static str) -> Error {
        let error = misuse(operation, why).with_abort_needed();
        match &self.cause {
            Some(cause) => error.with_source(cause.clone()),
            None => error,
        }
    }

    /// Begins to abort, or goes on with an abort; the number to ask for the outcome by. A commit whose end has been
    /// asked for is waited for. `None`: nothing is open, and nothing was committed unseen.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` without a transaction, and when the last one turned out to be committed, which nobody had
    /// been told; the cause of a fatal failure.
    pub fn handle_abort(&mut self, deadline: Instant) -> Result<Option<u64>> {
        if let Some(outcome) = self.decided() {
            return match (outcome.committed, outcome.reported) {
                (false, _) => Ok(None),
                (true, false) => Ok(Some(self.number)),
                (true, true) => Err(misuse(ABORT, NONE_OPEN)),
            };
        }
        match self.state {
            State::Uninitialized | State::Initializing | State::Ready => {
                return Err(misuse(ABORT, NONE_OPEN));
            }
            State::Fatal => return Err(self.refusal(ABORT)),
            State::InTransaction | State::AbortableError => self.begin_abort(),
            State::Committing if !self.ending.as_ref().is_some_and(|ending| ending.asked) => {
                self.begin_abort();
            }
            State::Committing | State::Aborting => {}
        }
        self.extend(deadline);
        Ok(Some(self.number))
    }

    pub fn outcome_of_abort(&mut self, number: u64, deadline: Instant) -> Option<Result<()>> {
        if let Some(outcome) = self.outcomes.iter_mut().find(|outcome| outcome.number == number) {
            outcome.reported = true;
            return Some(match outcome.committed {
                true => {
                    Err(misuse(ABORT, "the transaction is committed: its commit had been asked for before"))
                }
                false => Ok(()),
            });
        }
        match self.state {
            State::Fatal => Some(Err(self.refusal(ABORT))),
            _ if self.number != number => {
                Some(Err(misuse(ABORT, "the outcome was told to other callers, long ago")))
            }
            State::AbortableError => {
                // The commit that was waited for came to nothing.
                self.begin_abort();
                self.extend(deadline);
                None
            }
            _ => None,
        }
    }

    fn begin_abort(&mut self) {
        self.state = State::Aborting;
        self.horizon = None;
        self.last = None;
        self.wanted.clear();
        self.wake = true;
        let reason = match &self.cause {
            Some(cause) => Error::new(cause.kind(), "send").with_source(cause.clone()).with_abort_needed(),
            None => misuse("send", "the transaction was aborted").with_abort_needed(),
        };
        let error = self.aborted(SEND_OFFSETS, "the transaction was aborted");
        self.finish_offsets(&error);
        self.ending =
            Some(Ending { commit: false, stage: Stage::Settle(None), asked: false, reason: Some(reason) });
    }

    /// The producer is closed: what is open is aborted, a commit or an abort under way is finished.
    pub fn handle_close(&mut self, deadline: Instant) {
        self.closed = true;
        if matches!(self.state, State::InTransaction | State::AbortableError) {
            self.begin_abort();
        }
        self.extend(deadline);
    }

    pub fn outcome_of_close(&mut self, deadline: Instant) -> Option<Result<()>> {
        match self.state {
            State::Uninitialized | State::Initializing | State::Ready | State::Fatal => Some(Ok(())),
            State::AbortableError | State::InTransaction => {
                self.handle_close(deadline);
                None
            }
            State::Committing | State::Aborting => None,
        }
    }
}
