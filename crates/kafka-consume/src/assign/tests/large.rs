//! Large groups: a hundred thousand partitions for two hundred members in an optimised build, fewer in another. The
//! time is printed, not judged: the limit is one that only a quadratic step would reach.

use std::time::{Duration, Instant};

use super::super::{Assignor, AssignorState, Member, TopicPartitions, Topics, assign};
use super::{Lists, faults, invalid, member, unadjusted};

const SMALL: bool = cfg!(debug_assertions);
const TOPICS: usize = if SMALL { 120 } else { 500 };
const PARTITIONS: i32 = if SMALL { 70 } else { 200 };
const MEMBERS: usize = if SMALL { 60 } else { 200 };
const LIMIT: Duration = Duration::from_secs(30);

fn large_topics(racks: bool) -> Topics {
    let racks = |topic: usize| -> Vec<Vec<String>> {
        (0..PARTITIONS as usize)
            .map(|p| (0..2).map(|replica| format!("rack{}", (topic + p + replica) % 3)).collect())
            .filter(|_: &Vec<String>| racks)
            .collect()
    };
    (0..TOPICS)
        .map(|topic| (format!("topic-{topic}"), TopicPartitions { count: PARTITIONS, racks: racks(topic) }))
        .collect()
}

fn large_members(wants: impl Fn(usize, usize) -> bool, racks: bool) -> Vec<Member> {
    (0..MEMBERS)
        .map(|number| {
            let names: Vec<String> = (0..TOPICS)
                .filter(|topic| wants(number, *topic))
                .map(|topic| format!("topic-{topic}"))
                .collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut member = member(&format!("member-{number:03}"), &names);
            member.subscription.rack = racks.then(|| format!("rack{}", number % 3));
            member
        })
        .collect()
}

fn owning(mut members: Vec<Member>, lists: Lists, generation: i32) -> Vec<Member> {
    for (member, (_, list)) in members.iter_mut().zip(lists) {
        member.subscription.owned = list;
        member.subscription.generation = Some(generation);
    }
    members
}

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let took = start.elapsed();
    eprintln!("{what}: {took:?}");
    assert!(took < LIMIT, "{what} took {took:?}");
    result
}

#[test]
fn eager_assignors_spread_a_hundred_thousand_partitions() {
    for racks in [false, true] {
        let (members, topics) = (large_members(|_, _| true, racks), large_topics(racks));
        for assignor in [Assignor::Range, Assignor::RoundRobin] {
            let result = timed(&format!("{assignor} racks {racks}"), || {
                assign(assignor, &members, &topics, &mut AssignorState::default())
            });
            assert_eq!(invalid(&members, &topics, &result.members, true), [""; 0]);
        }
    }
}

#[test]
fn sticky_spreads_anew_and_moves_a_share_to_new_members() {
    for racks in [false, true] {
        for mixed in [false, true] {
            let wants = |member: usize, topic: usize| !mixed || !(member + topic).is_multiple_of(7);
            let (members, topics) = (large_members(wants, racks), large_topics(racks));
            let mut state = AssignorState::default();
            let what = format!("racks {racks}, mixed {mixed}");
            let first = timed(&format!("anew, {what}"), || unadjusted(&members, &topics, &mut state));
            assert_eq!(faults(&members, &topics, &first), [""; 0]);

            // Half of them leave; then they come back and own nothing.
            let half = owning(members.clone(), first, 1).into_iter().step_by(2).collect::<Vec<_>>();
            let second = timed(&format!("half left, {what}"), || unadjusted(&half, &topics, &mut state));
            assert_eq!(faults(&half, &topics, &second), [""; 0]);
            let mut back = members.clone();
            for (slot, kept) in back.iter_mut().step_by(2).zip(owning(half, second, 2)) {
                *slot = kept;
            }
            let third = timed(&format!("back, {what}"), || unadjusted(&back, &topics, &mut state));
            assert_eq!(faults(&back, &topics, &third), [""; 0]);
        }
    }
}

#[test]
fn one_member_that_owned_everything_gives_it_up_without_a_quadratic_walk() {
    let wants = |member: usize, topic: usize| member == 0 || !(member + topic).is_multiple_of(7);
    let (mut members, topics) = (large_members(wants, false), large_topics(false));
    members[0].subscription.owned =
        topics.iter().flat_map(|(name, info)| (0..info.count).map(move |p| (name.clone(), p))).collect();
    members[0].subscription.generation = Some(1);
    let mut state = AssignorState::default();
    let result = timed("all from one", || unadjusted(&members, &topics, &mut state));
    assert_eq!(faults(&members, &topics, &result), [""; 0]);
}
