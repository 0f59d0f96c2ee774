//! What may happen in the life of a session, at random: the vocabulary of the property.

use proptest::collection::vec;
use proptest::prelude::*;

pub(super) const TOPICS: usize = 3;
pub(super) const PARTITIONS: i32 = 3;

pub(super) type Place = (usize, i32);

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// From now on these are wanted, in this order.
    Assign(Vec<Place>),
    Seek(Place, i64),
    /// The client learns of a new leader epoch; it reads records of another epoch.
    Epochs(Place, i32, i32),
    Append(Place, i64),
    /// The topic is deleted, and made again under a new id, or not.
    Delete(usize, bool),
    /// The client's metadata learns the topic's id, or loses it.
    Learn(usize, bool),
    /// The session's next epoch is the last one.
    NearWrap,
    Close,
    Exchange(Fault),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fault {
    None,
    RequestLost,
    AnswerLost,
    /// The caller forgets the plan altogether.
    Abandoned,
    BrokerRestarts,
    EpochMoves,
    SessionChangesNaming,
    /// The broker, or what it lets us use, goes from topic names to ids or back.
    VersionChanges,
    Throttled,
    CacheFull,
    /// The answer leaves out its last partition.
    Omits,
    /// The answer lists a partition nobody asked for.
    Adds,
    /// The answer lists a partition twice.
    Repeats,
    AnotherSession,
    /// Nothing is done, and the whole answer is this error.
    Refused(i16),
    /// The answer of the exchange before comes once more, first.
    LateAnswer,
}

fn place() -> impl Strategy<Value = Place> {
    (0..TOPICS, 0..PARTITIONS)
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        14 => Just(Fault::None),
        1 => Just(Fault::RequestLost),
        1 => Just(Fault::AnswerLost),
        1 => Just(Fault::Abandoned),
        1 => Just(Fault::BrokerRestarts),
        1 => Just(Fault::EpochMoves),
        1 => Just(Fault::SessionChangesNaming),
        1 => Just(Fault::VersionChanges),
        2 => Just(Fault::Throttled),
        1 => Just(Fault::CacheFull),
        1 => Just(Fault::Omits),
        1 => Just(Fault::Adds),
        1 => Just(Fault::Repeats),
        1 => Just(Fault::AnotherSession),
        1 => prop_oneof![Just(70i16), Just(71), Just(106), Just(-1), Just(100)].prop_map(Fault::Refused),
        1 => Just(Fault::LateAnswer),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => vec(place(), 0..7).prop_map(Step::Assign),
        6 => (place(), 0..9i64).prop_map(|(place, offset)| Step::Seek(place, offset)),
        2 => (place(), 0..3i32, 0..3i32).prop_map(|(place, leader, last)| Step::Epochs(place, leader, last)),
        2 => (place(), 1..4i64).prop_map(|(place, more)| Step::Append(place, more)),
        2 => (0..TOPICS, any::<bool>()).prop_map(|(topic, again)| Step::Delete(topic, again)),
        6 => (0..TOPICS, prop::bool::weighted(0.9)).prop_map(|(topic, known)| Step::Learn(topic, known)),
        1 => Just(Step::NearWrap),
        1 => Just(Step::Close),
        20 => fault().prop_map(Step::Exchange),
    ]
}

#[derive(Clone, Debug)]
pub(super) struct Script {
    /// The newest Fetch version the broker knows.
    pub(super) newest: i16,
    pub(super) closes_empty: bool,
    pub(super) steps: Vec<Step>,
}

pub(super) fn script() -> impl Strategy<Value = Script> {
    let newest = prop_oneof![1 => Just(5i16), 1 => Just(8), 1 => Just(11), 1 => Just(12), 8 => 13..=18i16];
    (newest, any::<bool>(), vec(step(), 1..60)).prop_map(|(newest, closes_empty, steps)| Script {
        newest,
        closes_empty,
        steps,
    })
}
