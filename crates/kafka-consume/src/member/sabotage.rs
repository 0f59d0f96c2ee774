//! Deliberate faults, for showing that the tests of groups would notice them, and what notices a driver that
//! spins. Only in tests; all of it per thread, and a test's runtime has but one.

use std::cell::Cell;
use std::time::Instant;

use super::orders::Op;
use crate::engine::Core as Engine;

/// What to do wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sabotage {
    /// The group is told that partitions are given up before the listener has heard of it.
    AcknowledgeBeforeRevoke,
    /// What is fetched counts as done.
    CommitFromBuffer,
    /// Partitions on their way in and out are delivered all the same.
    SkipWithholding,
    /// A new life begins while what was lost is still read and claimed.
    FollowNewLife,
    /// A static leader that comes back does not ask what its group was given.
    TrustWhatWasGiven,
}

thread_local! {
    static ACTIVE: Cell<Option<Sabotage>> = const { Cell::new(None) };
    static TURNS: Cell<Option<(Instant, u32)>> = const { Cell::new(None) };
}

pub(crate) fn set(sabotage: Option<Sabotage>) {
    ACTIVE.set(sabotage);
}

pub(crate) fn is(sabotage: Sabotage) -> bool {
    ACTIVE.get() == Some(sabotage)
}

/// Does what an operation asks for, but without holding anything back.
pub(crate) fn withholds_nothing(engine: &mut Engine, now: Instant, op: &Op) -> bool {
    if !is(Sabotage::SkipWithholding) {
        return false;
    }
    match op {
        Op::Hold(_) => true,
        Op::Add(partitions) => {
            engine.add_held(now, partitions.iter().copied());
            engine.release(partitions.iter().copied());
            true
        }
        Op::Drop(_) | Op::Release(_) => false,
    }
}

/// A driver turns once more. On a paused clock one that spins turns for ever at the same instant: it dies of it,
/// and its group never settles.
pub(crate) fn turn(now: Instant) {
    let turns = match TURNS.get() {
        Some((then, turns)) if then == now => turns + 1,
        _ => 0,
    };
    TURNS.set(Some((now, turns)));
    assert!(turns < 20_000, "the member's driver spins");
}
