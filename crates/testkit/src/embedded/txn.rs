//! Transactions as their coordinator keeps them: producer ids and epochs, what belongs to each transaction, how it
//! ends, when its markers are written, and which ones have taken too long.
//!
//! The requests are in `txn_requests.rs` and `txn_offsets.rs`. Producer state that lives in a partition's log
//! (sequences, the epoch of its last marker) is the log's.
//!
//! States of a transactional id: empty, open (something belongs to it), completing (decided, its markers are not
//! written yet), complete. Markers are written in the step that decides unless a test delays or holds them;
//! until then whatever would begin the next transaction is answered 51. A transaction that is older than its
//! timeout is aborted at the next full ten seconds, as by a broker's own check.
//!
//! Nothing here wakes up by itself: [`advance`] runs whenever somebody looks at the world.
//!
//! Invariants: a completing transaction's scope is with its markers, the next one's scope is empty; the epoch
//! never goes back for one producer id.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::Embedded;
use super::versions::Release;
use super::world::World;
use super::write;

/// How often a coordinator looks for transactions that have timed out.
const TIMEOUT_CHECK: Duration = Duration::from_secs(10);

/// The timeout of a transaction that a test ends itself.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// What an open transaction has touched.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    partitions: BTreeSet<(String, i32)>,
    /// Groups with offsets in it.
    groups: BTreeSet<String>,
}

impl Scope {
    fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.groups.is_empty()
    }
}

/// A decided transaction whose markers are not written yet.
#[derive(Debug)]
struct Completing {
    /// `None`: held by the test.
    due: Option<Instant>,
    scope: Scope,
    commit: bool,
    producer: (i64, i16),
}

#[derive(Debug, Default)]
pub(super) struct Transaction {
    producer_id: i64,
    epoch: i16,
    /// The epoch that a repeated request may still name: the one an InitProducerId raised.
    last_epoch: Option<i16>,
    scope: Scope,
    /// When something first belonged to it.
    began: Option<Instant>,
    timeout: Duration,
    completing: Option<Completing>,
    /// How the last one ended: committed, and the producer id and epoch it ran under.
    ended: Option<(bool, (i64, i16))>,
    /// The coordinator aborted the last one by itself: it had taken too long.
    timed_out: bool,
}

#[derive(Debug, Default)]
pub(super) struct Transactions {
    known: HashMap<String, Transaction>,
    producers: i64,
    /// How long markers take.
    delay: Duration,
    held: bool,
}

fn fresh(producers: &mut i64) -> i64 {
    *producers = producers.saturating_add(1);
    producers.saturating_add(999)
}

impl Transactions {
    /// A new producer id. The first is 1000, so that it is not mistaken for an index.
    pub fn next_producer(&mut self) -> i64 {
        fresh(&mut self.producers)
    }

    /// Whether a batch of this producer may go into a partition that it has not written to in this transaction;
    /// `implicit` adds the partition by itself.
    pub fn admit(
        &mut self,
        id: &str,
        producer: (i64, i16),
        (topic, partition): (&str, i32),
        implicit: bool,
        now: Instant,
    ) -> Result<(), i16> {
        let known = self.known(id, producer)?;
        let key = (topic.to_owned(), partition);
        if implicit {
            known.began.get_or_insert(now);
            known.scope.partitions.insert(key);
            return Ok(());
        }
        if known.scope.partitions.contains(&key) { Ok(()) } else { Err(48) }
    }

    fn known(&mut self, id: &str, (producer_id, epoch): (i64, i16)) -> Result<&mut Transaction, i16> {
        let known = self.known.get_mut(id).ok_or(48_i16)?;
        if known.producer_id != producer_id {
            return Err(49);
        }
        if known.epoch != epoch {
            return Err(47);
        }
        if known.completing.is_some() {
            return Err(51);
        }
        Ok(known)
    }

    /// Whether offsets of this group may go into the transaction; `implicit` adds the group by itself.
    pub fn admit_group(
        &mut self,
        id: &str,
        producer: (i64, i16),
        group: &str,
        implicit: bool,
        now: Instant,
    ) -> Result<(), i16> {
        let known = self.known(id, producer)?;
        if implicit {
            known.began.get_or_insert(now);
            known.scope.groups.insert(group.to_owned());
            return Ok(());
        }
        if known.scope.groups.contains(group) { Ok(()) } else { Err(48) }
    }

    pub fn add(&mut self, id: &str, topic: &str, partition: i32, now: Instant) {
        if let Some(known) = self.known.get_mut(id) {
            known.began.get_or_insert(now);
            known.scope.partitions.insert((topic.to_owned(), partition));
        }
    }
}

/// The checks of a request that adds something to a transaction by the old protocol.
pub(super) fn check_adding(world: &World, id: &str, asked: (i64, i16), fenced: i16) -> Result<(), i16> {
    match world.transactions.known.get(id) {
        Some(known) if (known.producer_id, known.epoch) == asked => {
            if known.completing.is_some() {
                Err(51)
            } else {
                Ok(())
            }
        }
        Some(known) if known.producer_id == asked.0 => Err(fenced),
        _ => Err(49),
    }
}

/// Makes or renews a transactional producer; what it left open is aborted first, which the caller is told to
/// wait for.
pub(super) fn init(
    world: &mut World,
    id: &str,
    asked: (i64, i16),
    timeout: Duration,
    fenced: i16,
    now: Instant,
) -> Result<(i64, i16), i16> {
    let forgives = world.release == Release::V4_3 && runs_v2(world);
    let Transactions { known, producers, .. } = &mut world.transactions;
    let known = known.entry(id.to_owned()).or_insert_with(|| Transaction {
        producer_id: fresh(producers),
        epoch: -1,
        ..Transaction::default()
    });
    let current = (known.producer_id, known.epoch);
    let repeats = asked.0 == known.producer_id && known.last_epoch == Some(asked.1);
    if asked.0 >= 0 && asked != current && !repeats {
        return Err(fenced);
    }
    if known.completing.is_some() {
        return Err(51);
    }
    if !known.scope.is_empty() {
        // Fenced by the abort of its own transaction: 4.3 still knows it, older ones do not.
        let old = known.epoch;
        known.last_epoch = forgives.then_some(old);
        decide(world, id, false, true, now);
        return Err(51);
    }
    if asked.0 >= 0 && repeats {
        return Ok(current);
    }
    known.timeout = timeout;
    known.ended = None;
    known.last_epoch = (asked.0 >= 0).then_some(known.epoch);
    raise(known, producers);
    Ok((known.producer_id, known.epoch))
}

/// Takes a transactional id for a test, which ends its transactions itself: none times out. Held markers of the
/// last one are written.
pub(super) fn take(world: &mut World, id: &str, now: Instant) -> (i64, i16) {
    let ask = |world: &mut World| init(world, id, (-1, -1), NEVER, 90, now);
    let taken = ask(world);
    if taken.is_err() {
        if let Some(completing) =
            world.transactions.known.get_mut(id).and_then(|known| known.completing.as_mut())
        {
            completing.due = Some(now);
        }
        advance(world, now);
    }
    taken.or_else(|_| ask(world)).unwrap_or((-1, -1))
}

/// The next epoch; a producer id whose epochs are used up is replaced.
fn raise(known: &mut Transaction, producers: &mut i64) {
    if known.epoch >= i16::MAX - 1 {
        known.producer_id = fresh(producers);
        known.epoch = 0;
    } else {
        known.epoch = known.epoch.saturating_add(1);
    }
}

/// Whether transactions run as version 2: the finalized feature decides, not the versions listed.
fn runs_v2(world: &World) -> bool {
    let level = |node: &super::world::Node| node.versions.finalized.get("transaction.version").copied();
    world.nodes.values().filter_map(level).max().is_some_and(|level| level >= 2)
}

/// Decides the open transaction: its markers are due. With `bump` they carry the next epoch, which becomes the
/// producer's.
fn decide(world: &mut World, id: &str, commit: bool, bump: bool, now: Instant) {
    let Transactions { known, producers, delay, held } = &mut world.transactions;
    let due = (!*held).then(|| now + *delay);
    let Some(known) = known.get_mut(id) else { return };
    let under = (known.producer_id, known.epoch);
    let scope = std::mem::take(&mut known.scope);
    known.began = None;
    let mut marked = under;
    if bump {
        raise(known, producers);
        // A new producer id is the next transaction's: this one ends under the last epoch of the old.
        marked = if known.producer_id == under.0 { (under.0, known.epoch) } else { (under.0, i16::MAX) };
    }
    known.ended = Some((commit, under));
    known.timed_out = false;
    known.completing = Some(Completing { due, scope, commit, producer: marked });
    advance(world, now);
}

/// Aborts a transaction that has taken too long.
fn expire(world: &mut World, id: &str, now: Instant) {
    decide(world, id, false, true, now);
    if let Some(known) = world.transactions.known.get_mut(id) {
        known.timed_out = true;
    }
}

/// Writes the markers that are due and aborts what has timed out.
pub(super) fn advance(world: &mut World, now: Instant) {
    let tick = world.last_tick(now, TIMEOUT_CHECK);
    let late = |known: &Transaction| known.began.is_some_and(|began| began + known.timeout <= tick);
    let known = &world.transactions.known;
    let timed_out: Vec<String> =
        known.iter().filter(|(_, known)| late(known)).map(|(id, _)| id.clone()).collect();
    for id in timed_out {
        expire(world, &id, now);
    }
    let due = |known: &mut Transaction| {
        let due = known.completing.as_ref()?.due?;
        if due <= now { known.completing.take() } else { None }
    };
    let done: Vec<Completing> = world.transactions.known.values_mut().filter_map(due).collect();
    for completing in done {
        mark(world, &completing, now);
    }
}

fn mark(world: &mut World, completing: &Completing, now: Instant) {
    let Completing { scope, commit, producer: (producer_id, epoch), .. } = completing;
    let marker = write::marker(*producer_id, *epoch, *commit, world.wall_ms(now));
    for (topic, index) in &scope.partitions {
        world.append(topic, *index, &marker, now);
    }
    for group in &scope.groups {
        world.groups.end_transaction(group, *producer_id, *commit);
    }
    world.touch();
}

/// Ends the open transaction, or says again how it ended. `version` is EndTxn's.
pub(super) fn end(
    world: &mut World,
    id: &str,
    asked: (i64, i16),
    commit: bool,
    version: i16,
    now: Instant,
) -> Result<(i64, i16), i16> {
    let release = world.release;
    let known = world.transactions.known.get_mut(id).ok_or(49_i16)?;
    let bump = version >= 5;
    let current = (known.producer_id, known.epoch);
    let repeated = known.ended.filter(|(_, under)| *under == asked && known.scope.is_empty());
    if asked.0 != known.producer_id && repeated.is_none() {
        return Err(49);
    }
    if asked != current && (repeated.is_none() || !bump || release == Release::V4_0 && known.timed_out) {
        return Err(if version >= 2 { 90 } else { 47 });
    }
    if let Some((committed, _)) = repeated {
        // The same end again: its answer was lost. The opposite end is refused; so is a second abort by the old
        // protocol once it is complete.
        return match (committed == commit, known.completing.is_some()) {
            (_, true) => Err(51),
            (true, false) if bump || commit => Ok(current),
            _ => Err(48),
        };
    }
    if known.completing.is_some() {
        return Err(51);
    }
    if known.scope.is_empty() && (!bump || commit) {
        return Err(48);
    }
    decide(world, id, commit, bump, now);
    let known = world.transactions.known.get(id).ok_or(49_i16)?;
    Ok((known.producer_id, known.epoch))
}

impl Embedded {
    /// How long a coordinator takes to write a transaction's markers after it was decided; zero at the start.
    /// Until they are written the next transaction of the same id is answered 51.
    pub fn delay_markers(&self, delay: Duration) {
        self.shared.world().transactions.delay = delay;
    }

    /// Holds the markers of every transaction decided from now on; `false` writes those that wait.
    pub fn hold_markers(&self, held: bool) {
        let mut world = self.shared.world();
        world.transactions.held = held;
        if !held {
            let now = Instant::now();
            for known in world.transactions.known.values_mut() {
                if let Some(completing) = &mut known.completing {
                    completing.due.get_or_insert(now);
                }
            }
            advance(&mut world, now);
        }
    }

    /// Sets the finalized feature `transaction.version` on every node; `None` takes it off the list. Connections
    /// that exist keep what they learnt.
    pub fn set_transaction_version(&self, level: Option<i16>) {
        let mut world = self.shared.world();
        for node in world.nodes.values_mut() {
            match level {
                Some(level) => node.versions.finalized.insert("transaction.version", level),
                None => node.versions.finalized.remove("transaction.version"),
            };
        }
    }

    /// Producer id and epoch that the coordinator holds for a transactional id.
    pub fn transactional_producer(&self, id: &str) -> Option<(i64, i16)> {
        let world = self.shared.world();
        world.transactions.known.get(id).map(|known| (known.producer_id, known.epoch))
    }

    /// Whether anything belongs to an open transaction of this id.
    pub fn transaction_is_open(&self, id: &str) -> bool {
        let world = self.shared.world();
        world.transactions.known.get(id).is_some_and(|known| !known.scope.is_empty())
    }

    /// Raises a transactional producer's epoch without telling it, as if it had been used that often.
    pub fn set_producer_epoch(&self, id: &str, epoch: i16) {
        if let Some(known) = self.shared.world().transactions.known.get_mut(id) {
            known.epoch = epoch;
        }
    }

    /// Aborts an open transaction at once, as a coordinator does with one that has timed out.
    pub fn time_out_transaction(&self, id: &str) -> bool {
        let mut world = self.shared.world();
        let open = world.transactions.known.get(id).is_some_and(|known| !known.scope.is_empty());
        if open {
            expire(&mut world, id, Instant::now());
        }
        open
    }
}
