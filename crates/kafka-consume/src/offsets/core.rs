//! What to commit next: a pure state machine. No network, no clock, no randomness.
//!
//! It is not the driver (`offsets.rs` sends the requests and wakes the callers) and not the membership (who
//! this consumer is in its group is told to it, see [`Identity`]).
//!
//! A partition's offset is **queued**, then **in flight**, then back in the queue when the failure passes by
//! itself, or **resolved**. A call is finished when each of its partitions is resolved, when its deadline
//! passes ([`Core::expire`]), or forgotten when its future is dropped ([`Core::abandon`]).
//!
//! Invariants
//! - At most one request in flight, so two commits of one partition can never overtake one another.
//! - The queue holds one offset per partition, the newest one asked for. An older call whose offset was
//!   replaced shares the fate of the offset that replaced it; the older offset is never sent again. So no
//!   commit moves an offset back.
//! - An offset goes out a second time only while the call that set it is still waiting and its deadline lies
//!   ahead. An abandoned call has its offsets sent at most once.
//! - Everything queued belongs to the newest incarnation known. It is sent under an epoch only when its
//!   partition is known to be owned under that epoch: a broker does not check it, and would let a late commit
//!   overwrite the next owner's offset.
//! - An answer is taken only with the ticket of the request in flight.
//! - After a failure nothing is sent before the back-off has passed, newer calls included.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kafka_meta::client::Backoff;
use kafka_meta::{CommittedOffset, Error, ErrorCode, ErrorKind, Result, TopicName};

use super::Identity;
use super::codes::{self, Class};

/// A partition, as calls name it.
pub(crate) type Key = (TopicName, i32);

/// What a finished call returns: the call's own failure, or one result per partition in the order given.
pub(crate) type Outcome = Result<Vec<(Key, Result<()>)>>;

pub(super) const OPERATION: &str = "commit offsets";

/// How long a topic or partition may be unknown to the coordinator before the commit is refused. A broker
/// learns of a topic created a moment ago a little later than the one that was asked to create it; a topic
/// that was deleted must not hold up a revocation for the whole time allowed for the call.
const MISSING_GRACE: Duration = Duration::from_secs(5);
/// How often a member's epoch may be called stale without a newer one being known. The heartbeat that brings
/// it may be answered an instant later than the commit.
const STALE_TRIES: u8 = 2;
/// What fits the length field of the oldest versions.
const MAX_METADATA: usize = 32_767;

/// One call of `commit`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct CallId(u64);

/// One request to send.
#[derive(Debug)]
pub(super) struct Plan {
    /// Names the request in the answer.
    pub ticket: u64,
    /// In whose name.
    pub identity: Identity,
    /// What to store.
    pub offsets: Vec<(Key, CommittedOffset)>,
}

/// The commits of one consumer.
#[derive(Debug)]
pub(super) struct Core {
    identity: Option<Identity>,
    /// What is owned under `identity`; `None`: everything may be committed (not a member).
    owned: Option<BTreeSet<Key>>,
    calls: BTreeMap<CallId, Call>,
    queue: BTreeMap<Key, Entry>,
    flight: Option<Flight>,
    finished: VecDeque<(CallId, Outcome)>,
    backoff: Backoff,
    not_before: Option<Instant>,
    last_id: u64,
}

#[derive(Debug)]
struct Call {
    order: Vec<Key>,
    open: BTreeSet<Key>,
    results: BTreeMap<Key, Fate>,
}

#[derive(Clone, Debug)]
enum Fate {
    Stored,
    /// Says something about this partition.
    Refused(Error),
    /// Says nothing about the partition: the call as a whole did not get through.
    Whole(Error),
}

#[derive(Clone, Debug)]
struct Entry {
    offset: CommittedOffset,
    /// The call that asked for this offset.
    call: CallId,
    deadline: Instant,
    incarnation: u64,
    /// The epoch under which its partition is known to be owned.
    generation: i32,
    /// Calls whose older offset this one replaced.
    replaced: Vec<CallId>,
    sent: bool,
    /// Why it was not stored at the last attempt.
    reason: Option<Error>,
    missing_since: Option<Instant>,
    stale: u8,
}

#[derive(Debug)]
struct Flight {
    ticket: u64,
    generation: i32,
    entries: BTreeMap<Key, Entry>,
}

impl Core {
    pub(super) fn new() -> Self {
        Core {
            identity: None,
            owned: None,
            calls: BTreeMap::new(),
            queue: BTreeMap::new(),
            flight: None,
            finished: VecDeque::new(),
            backoff: Backoff::new(codes::BACKOFF, codes::BACKOFF_MAX),
            not_before: None,
            last_id: 0,
        }
    }

    /// Takes a call in. Its result comes out of [`Core::poll_finished`]. A newer identity than the one
    /// [`Core::adopt`] told of says nothing about what is still owned: older offsets wait until that comes.
    ///
    /// # Errors
    ///
    /// `Fenced` when a newer incarnation of the member is known: the offsets were read by one that is gone.
    pub(super) fn submit(
        &mut self,
        offsets: Vec<(Key, CommittedOffset)>,
        identity: Identity,
        deadline: Instant,
    ) -> Result<CallId> {
        self.last_id += 1;
        let id = CallId(self.last_id);
        match &self.identity {
            Some(known) if known.incarnation > identity.incarnation => return Err(gone()),
            Some(known) if !identity.is_newer_than(known) => {}
            _ => self.replace_identity(identity, None),
        }
        let known = self.identity.as_ref();
        let (incarnation, generation) = known.map_or((0, -1), |known| (known.incarnation, known.generation));
        let mut call = Call { order: Vec::new(), open: BTreeSet::new(), results: BTreeMap::new() };
        let mut wanted = BTreeMap::new();
        for (key, offset) in offsets {
            if wanted.insert(key, offset).is_none() {
                call.order.push(key);
            }
        }
        for (key, offset) in wanted {
            if let Err(error) = self.check(key, &offset) {
                call.results.insert(key, Fate::Refused(error));
                continue;
            }
            call.open.insert(key);
            let mut replaced = Vec::new();
            if let Some(older) = self.queue.remove(&key) {
                replaced = older.replaced;
                replaced.push(older.call);
                // A caller in a loop whose futures are dropped must not grow this list for ever.
                replaced.retain(|call| self.calls.contains_key(call));
            }
            let entry = Entry {
                offset,
                call: id,
                deadline,
                incarnation,
                generation,
                replaced,
                sent: false,
                reason: None,
                missing_since: None,
                stale: 0,
            };
            self.queue.insert(key, entry);
        }
        self.calls.insert(id, call);
        self.finish_if_done(id);
        Ok(id)
    }

    fn check(&self, (topic, partition): Key, offset: &CommittedOffset) -> Result<()> {
        let refuse = |kind, detail: &'static str| {
            Err(Error::new(kind, OPERATION)
                .with_partition(topic, partition)
                .with_offset(offset.offset)
                .with_detail(detail))
        };
        if offset.offset < 0 {
            // A broker stores -1, and every later reader takes it for "nothing committed".
            return refuse(ErrorKind::InvalidRequest, "the offset is negative");
        }
        if offset.metadata.as_ref().is_some_and(|text| text.len() > MAX_METADATA) {
            return refuse(ErrorKind::InvalidRequest, "the metadata is longer than 32,767 bytes");
        }
        if self.owned.as_ref().is_some_and(|owned| !owned.contains(&(topic, partition))) {
            return refuse(ErrorKind::NotAssigned, "it is not owned under the present membership");
        }
        Ok(())
    }

    /// The membership has a new epoch, a new incarnation, or gave partitions up. What waits may follow a newer
    /// epoch of its own incarnation as long as its partition is still in `owned`; all else is refused here.
    pub(super) fn adopt(&mut self, identity: Identity, owned: BTreeSet<Key>) {
        match &self.identity {
            Some(known) if known.is_newer_than(&identity) => {}
            _ => self.replace_identity(identity, Some(owned)),
        }
    }

    fn replace_identity(&mut self, identity: Identity, owned: Option<BTreeSet<Key>>) {
        let same_life = self.identity.as_ref().is_some_and(|known| known.incarnation == identity.incarnation);
        self.identity = Some(identity);
        self.owned = owned;
        for (key, mut entry) in std::mem::take(&mut self.queue) {
            if !same_life {
                self.resolve(key, entry, &Fate::Whole(gone()));
            } else if self.confirm(key, &mut entry) {
                self.queue.insert(key, entry);
            } else {
                self.refuse_not_owned(key, entry);
            }
        }
    }

    /// Lets an offset of the same life follow the newest epoch, if its partition is owned under it. `false`: it
    /// is not. While what is owned is not known the offset stays with the epoch it came from.
    fn confirm(&self, key: Key, entry: &mut Entry) -> bool {
        if let (Some(known), Some(owned)) = (&self.identity, &self.owned) {
            entry.generation = known.generation;
            return owned.contains(&key);
        }
        true
    }

    fn is_sendable(&self, entry: &Entry) -> bool {
        self.identity.as_ref().is_some_and(|known| known.generation == entry.generation)
    }

    fn refuse_not_owned(&mut self, key: Key, entry: Entry) {
        let error = Error::new(ErrorKind::NotAssigned, OPERATION)
            .with_partition(key.0, key.1)
            .with_offset(entry.offset.offset)
            .with_detail("it was given up before the offset was stored");
        self.resolve(key, entry, &Fate::Refused(error));
    }

    /// The call's future is gone: nobody reads its result, and its offsets are sent at most once.
    pub(super) fn abandon(&mut self, call: CallId) {
        self.calls.remove(&call);
        self.finished.retain(|(id, _)| *id != call);
        self.drop_dead();
    }

    /// The call's deadline has passed: what is known of it, or `None` if it has finished already.
    pub(super) fn expire(&mut self, id: CallId) -> Option<Outcome> {
        let mut call = self.calls.remove(&id)?;
        for key in std::mem::take(&mut call.open) {
            let entry = self.queue.get(&key).or_else(|| self.flight.as_ref()?.entries.get(&key));
            let reason = entry.and_then(|entry| entry.reason.as_ref());
            call.results.insert(key, Fate::Whole(timed_out(key, reason)));
        }
        self.drop_dead();
        Some(call.outcome())
    }

    /// Offsets whose time is over leave the queue, sent or not.
    fn drop_overdue(&mut self, now: Instant) {
        let overdue = |(_, entry): &(&Key, &Entry)| entry.deadline <= now;
        let overdue: Vec<Key> = self.queue.iter().filter(overdue).map(|(key, _)| *key).collect();
        for key in overdue {
            if let Some(entry) = self.queue.remove(&key) {
                let fate = Fate::Whole(timed_out(key, entry.reason.as_ref()));
                self.resolve(key, entry, &fate);
            }
        }
    }

    /// Offsets that were sent once and whose caller is gone leave the queue.
    fn drop_dead(&mut self) {
        let dead: Vec<Key> = self
            .queue
            .iter()
            .filter(|(_, entry)| entry.sent && !self.calls.contains_key(&entry.call))
            .map(|(key, _)| *key)
            .collect();
        for key in dead {
            if let Some(entry) = self.queue.remove(&key) {
                let fate = Fate::Whole(given_up(key, &entry));
                self.resolve(key, entry, &fate);
            }
        }
    }

    /// Whether a request should go out now. The caller finds the coordinator first and then asks for the
    /// [`Plan`], so that what arrives in between still merges into it.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        self.drop_overdue(now);
        self.flight.is_none()
            && self.queue.values().any(|entry| self.is_sendable(entry))
            && self.not_before.is_none_or(|not_before| not_before <= now)
    }

    /// When to look again, if nothing else happens.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.flight.is_some() {
            return None;
        }
        let overdue = self.queue.values().map(|entry| entry.deadline).min()?;
        let sendable = self.queue.values().any(|entry| self.is_sendable(entry));
        Some(self.not_before.filter(|_| sendable).map_or(overdue, |not_before| not_before.min(overdue)))
    }

    /// When the last queued offset stops being wanted.
    pub(super) fn horizon(&self) -> Option<Instant> {
        self.queue.values().map(|entry| entry.deadline).max()
    }

    /// The next request, if one is due.
    pub(super) fn poll_output(&mut self, now: Instant) -> Option<Plan> {
        if !self.is_due(now) {
            return None;
        }
        let queue = std::mem::take(&mut self.queue);
        let (mut entries, waiting): (BTreeMap<_, _>, BTreeMap<_, _>) =
            queue.into_iter().partition(|(_, entry)| self.is_sendable(entry));
        self.queue = waiting;
        for entry in entries.values_mut() {
            entry.sent = true;
        }
        let identity = self.identity.clone()?;
        self.last_id += 1;
        let ticket = self.last_id;
        let offsets = entries.iter().map(|(key, entry)| (*key, entry.offset.clone())).collect();
        self.flight = Some(Flight { ticket, generation: identity.generation, entries });
        Some(Plan { ticket, identity, offsets })
    }

    /// The broker's answer, one code per partition. Says whether the coordinator has to be looked up again.
    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        ticket: u64,
        answer: Vec<(Key, ErrorCode)>,
        random: f64,
    ) -> bool {
        let Some(mut flight) = self.flight.take_if(|flight| flight.ticket == ticket) else { return false };
        let (mut rediscover, mut failed) = (false, false);
        for (key, code) in answer {
            let Some(mut entry) = flight.entries.remove(&key) else { continue };
            let anonymous = self.identity.as_ref().is_none_or(Identity::is_anonymous);
            let class = codes::commit_class(code, anonymous);
            let error = codes::error(code, OPERATION, anonymous)
                .with_partition(key.0, key.1)
                .with_offset(entry.offset.offset);
            entry.reason = Some(error.clone());
            match class {
                Class::Done => self.resolve(key, entry, &Fate::Stored),
                Class::Refused => self.resolve(key, entry, &Fate::Refused(error)),
                // It is not about the partition that happens to be the first.
                Class::RefusedAll => {
                    let error = codes::error(code, OPERATION, anonymous);
                    self.resolve(key, entry, &Fate::Whole(error));
                }
                Class::Missing => {
                    let since = *entry.missing_since.get_or_insert(now);
                    if now.saturating_duration_since(since) < MISSING_GRACE {
                        failed = true;
                        self.requeue(now, key, entry);
                    } else {
                        self.resolve(key, entry, &Fate::Refused(error));
                    }
                }
                Class::Stale => {
                    let newer =
                        self.identity.as_ref().is_some_and(|known| known.generation > flight.generation);
                    if !newer {
                        entry.stale += 1;
                        failed = true;
                    }
                    if newer || entry.stale <= STALE_TRIES {
                        self.requeue(now, key, entry);
                    } else {
                        self.resolve(key, entry, &Fate::Refused(error));
                    }
                }
                Class::Again | Class::Rediscover => {
                    failed = true;
                    rediscover |= class == Class::Rediscover;
                    self.requeue(now, key, entry);
                }
            }
        }
        for (key, mut entry) in flight.entries {
            // Not knowing is not success: ask again.
            failed = true;
            entry.reason = Some(missing_from_answer(key));
            self.requeue(now, key, entry);
        }
        self.pause(now, failed, random);
        rediscover
    }

    /// The request got no answer, or was never sent.
    pub(super) fn handle_failure(&mut self, now: Instant, ticket: u64, error: &Error, random: f64) {
        let Some(flight) = self.flight.take_if(|flight| flight.ticket == ticket) else { return };
        let again = codes::passes(error);
        for (key, mut entry) in flight.entries {
            entry.reason = Some(codes::more_telling(entry.reason.take(), error.clone()));
            if again {
                self.requeue(now, key, entry);
            } else {
                self.resolve(key, entry, &Fate::Whole(error.clone()));
            }
        }
        self.pause(now, again, random);
    }

    /// Whoever would have brought the answer is gone.
    pub(super) fn handle_interruption(&mut self, now: Instant, error: &Error) {
        if let Some(ticket) = self.flight.as_ref().map(|flight| flight.ticket) {
            self.handle_failure(now, ticket, error, 0.5);
        }
    }

    /// No coordinator was found, so nothing of the queue could be sent.
    pub(super) fn handle_no_coordinator(&mut self, now: Instant, error: &Error, random: f64) {
        let again = codes::passes(error);
        for (key, mut entry) in std::mem::take(&mut self.queue) {
            // This was the one attempt an abandoned offset has.
            entry.sent = true;
            entry.reason = Some(codes::more_telling(entry.reason.take(), error.clone()));
            if again {
                self.requeue(now, key, entry);
            } else {
                self.resolve(key, entry, &Fate::Whole(error.clone()));
            }
        }
        self.pause(now, again, random);
    }

    fn pause(&mut self, now: Instant, failed: bool, random: f64) {
        if failed {
            self.not_before = Some(now + self.backoff.next(random));
        } else {
            self.backoff.reset();
            self.not_before = None;
        }
    }

    /// Back into the queue after a failure that may pass, unless it is no longer wanted there.
    fn requeue(&mut self, now: Instant, key: Key, mut entry: Entry) {
        if let Some(newer) = self.queue.get_mut(&key) {
            newer.replaced.push(entry.call);
            newer.replaced.extend(entry.replaced);
            return;
        }
        if self.identity.as_ref().is_some_and(|known| known.incarnation != entry.incarnation) {
            self.resolve(key, entry, &Fate::Whole(gone()));
        } else if !self.confirm(key, &mut entry) {
            self.refuse_not_owned(key, entry);
        } else if entry.deadline <= now {
            let fate = Fate::Whole(timed_out(key, entry.reason.as_ref()));
            self.resolve(key, entry, &fate);
        } else if !self.calls.contains_key(&entry.call) {
            let fate = Fate::Whole(given_up(key, &entry));
            self.resolve(key, entry, &fate);
        } else {
            self.queue.insert(key, entry);
        }
    }

    fn resolve(&mut self, key: Key, entry: Entry, fate: &Fate) {
        for id in std::iter::once(entry.call).chain(entry.replaced) {
            if let Some(call) = self.calls.get_mut(&id)
                && call.open.remove(&key)
            {
                call.results.insert(key, fate.clone());
                self.finish_if_done(id);
            }
        }
    }

    fn finish_if_done(&mut self, id: CallId) {
        if self.calls.get(&id).is_some_and(|call| call.open.is_empty())
            && let Some(call) = self.calls.remove(&id)
        {
            self.finished.push_back((id, call.outcome()));
        }
    }

    /// The next finished call.
    pub(super) fn poll_finished(&mut self) -> Option<(CallId, Outcome)> {
        self.finished.pop_front()
    }

    /// Whether nothing is queued and nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.flight.is_none() && self.queue.is_empty()
    }
}

impl Call {
    fn outcome(self) -> Outcome {
        let whole = self.results.values().all(|fate| matches!(fate, Fate::Whole(_)));
        if whole && let Some(Fate::Whole(error)) = self.results.values().next() {
            return Err(error.clone());
        }
        let mut results = self.results;
        let take = |key: Key| match results.remove(&key) {
            Some(Fate::Stored) => (key, Ok(())),
            Some(Fate::Refused(error) | Fate::Whole(error)) => (key, Err(error)),
            None => (key, Err(missing_from_answer(key))),
        };
        Ok(self.order.into_iter().map(take).collect())
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Fenced, OPERATION)
        .with_detail("the offsets belong to an earlier membership of this consumer")
}

fn missing_from_answer((topic, partition): Key) -> Error {
    Error::broker(ErrorCode::UNKNOWN_SERVER_ERROR, OPERATION)
        .with_partition(topic, partition)
        .with_detail("the partition is missing from the broker's answer")
}

fn timed_out((topic, partition): Key, reason: Option<&Error>) -> Error {
    let error = Error::new(ErrorKind::Timeout, OPERATION).with_partition(topic, partition);
    match reason {
        Some(reason) => error.with_source(reason.clone()),
        None => error,
    }
}

/// For an older call whose offset was replaced by one that nobody waits for any more.
fn given_up(key: Key, entry: &Entry) -> Error {
    entry.reason.clone().unwrap_or_else(|| timed_out(key, None))
}
