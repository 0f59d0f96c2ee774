//! What holds for every group: complete, disjoint, balanced, sticky, and nothing handed over too early.

use std::collections::{BTreeSet, HashMap};

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Assignor, AssignorState, Member, Subscription, TopicPartitions, Topics, assign};
use super::{Lists, faults, handed_over_too_early, invalid, member, topics, unadjusted};

const RACKS: [&str; 3] = ["a", "b", "c"];

fn any_topics() -> impl Strategy<Value = Topics> {
    let topic = (0_i32..9, vec(vec(0_usize..3, 0..3), 0..9));
    vec(topic, 1..6).prop_map(|topics| {
        let topic = |(number, (count, racks)): (usize, (i32, Vec<Vec<usize>>))| {
            let racks =
                racks.into_iter().map(|r| r.into_iter().map(|r| RACKS[r].to_owned()).collect()).collect();
            (format!("t{number}"), TopicPartitions { count, racks })
        };
        topics.into_iter().enumerate().map(topic).collect()
    })
}

/// Topics by bit, claims, generation, rack, static, generation in the user data.
type Described = (u8, Vec<(usize, i32)>, Option<i32>, Option<usize>, bool, Option<i32>);

/// Members with claims of any kind: conflicting, stale, of topics and partitions that are not there.
fn any_members() -> impl Strategy<Value = Vec<Member>> {
    let claim = (0_usize..7, -1_i32..10);
    let member = (
        any::<u8>(),
        vec(claim, 0..12),
        proptest::option::of(0_i32..4),
        proptest::option::of(0_usize..4),
        any::<bool>(),
        proptest::option::of(-1_i32..4),
    );
    (any::<bool>(), vec(member, 1..8)).prop_map(|(alike, members)| {
        let member = |(number, (wants, owned, generation, rack, stat, data)): (usize, Described)| {
            let wants = if alike { 0x3f } else { wants };
            Member {
                id: format!("member-{number}"),
                instance_id: stat.then(|| format!("static-{}", 9 - number)),
                subscription: Subscription {
                    topics: (0..7)
                        .filter(|topic| wants & (1 << topic) != 0)
                        .map(|t| format!("t{t}"))
                        .collect(),
                    user_data: data.and_then(|generation| Assignor::CooperativeSticky.user_data(generation)),
                    owned: owned
                        .into_iter()
                        .map(|(topic, partition)| (format!("t{topic}"), partition))
                        .collect(),
                    generation,
                    rack: rack.and_then(|rack| RACKS.get(rack)).map(ToString::to_string),
                },
            }
        };
        members.into_iter().enumerate().map(member).collect()
    })
}

/// What the members report in the next round.
fn next_round(members: &[Member], lists: &Lists, generation: i32) -> Vec<Member> {
    let lists: HashMap<&str, &Vec<(String, i32)>> =
        lists.iter().map(|(id, list)| (id.as_str(), list)).collect();
    let mut members = members.to_vec();
    for member in &mut members {
        member.subscription.owned =
            lists.get(member.id.as_str()).map_or_else(Vec::new, |list| (*list).clone());
        member.subscription.generation = Some(generation);
    }
    members
}

fn as_sets(lists: &Lists) -> Vec<(String, BTreeSet<(String, i32)>)> {
    lists.iter().map(|(id, list)| (id.clone(), list.iter().cloned().collect())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn eager_results_are_complete_and_disjoint(members in any_members(), topics in any_topics()) {
        for assignor in [Assignor::Range, Assignor::RoundRobin] {
            let result = assign(assignor, &members, &topics, &mut AssignorState::default());
            prop_assert_eq!(invalid(&members, &topics, &result.members, true), [""; 0]);
            prop_assert_eq!(result.withheld, 0);
        }
    }

    #[test]
    fn range_is_even_in_each_topic(members in any_members(), topics in any_topics()) {
        let result = assign(Assignor::Range, &members, &topics, &mut AssignorState::default());
        for name in topics.keys() {
            let sizes = members.iter().zip(&result.members).filter(|(m, _)| m.subscription.topics.contains(name));
            let sizes: Vec<usize> = sizes.map(|(_, (_, list))| list.iter().filter(|(t, _)| t == name).count()).collect();
            let (least, most) = (sizes.iter().min().unwrap_or(&0), sizes.iter().max().unwrap_or(&0));
            prop_assert!(most - least <= 1, "{} {:?}", name, sizes);
        }
    }

    #[test]
    fn the_sticky_spread_is_complete_disjoint_and_balanced(members in any_members(), topics in any_topics(), newest in -1..6) {
        let mut state = AssignorState { max_generation: newest, ..AssignorState::default() };
        let aimed = unadjusted(&members, &topics, &mut state);
        prop_assert_eq!(faults(&members, &topics, &aimed), [""; 0]);
    }

    #[test]
    fn nothing_goes_to_a_new_owner_while_an_old_one_claims_it(members in any_members(), topics in any_topics()) {
        let result = assign(Assignor::CooperativeSticky, &members, &topics, &mut AssignorState::default());
        prop_assert_eq!(handed_over_too_early(&members, &result.members), [""; 0]);
        prop_assert_eq!(invalid(&members, &topics, &result.members, false), [""; 0]);
        let mut aimed_at = AssignorState::default();
        let aimed = unadjusted(&members, &topics, &mut aimed_at);
        let sum = |lists: &Lists| lists.iter().map(|(_, list)| list.len()).sum::<usize>();
        prop_assert_eq!(sum(&result.members) + result.withheld, sum(&aimed));
    }

    #[test]
    fn the_rounds_of_a_group_settle_on_everything_given_and_then_nothing_moves(members in any_members(), topics in any_topics()) {
        let mut state = AssignorState::default();
        // With racks Java, and so we, drop a claim without a near replica before each round; it may go anywhere.
        let mut members = members;
        for member in &mut members {
            member.subscription.rack = None;
        }
        for generation in 10..16 {
            let result = assign(Assignor::CooperativeSticky, &members, &topics, &mut state);
            prop_assert_eq!(handed_over_too_early(&members, &result.members), [""; 0]);
            members = next_round(&members, &result.members, generation);
            if result.withheld == 0 {
                prop_assert_eq!(invalid(&members, &topics, &result.members, true), [""; 0]);
                let again = assign(Assignor::CooperativeSticky, &members, &topics, &mut state);
                prop_assert_eq!(again.withheld, 0);
                prop_assert_eq!(as_sets(&again.members), as_sets(&result.members));
                return Ok(());
            }
        }
        prop_assert!(false, "still withholding after six rounds");
    }

    #[test]
    fn rounds_with_racks_end_too(members in any_members(), topics in any_topics()) {
        let mut state = AssignorState::default();
        let mut members = members;
        for generation in 10..22 {
            let result = assign(Assignor::CooperativeSticky, &members, &topics, &mut state);
            members = next_round(&members, &result.members, generation);
            if result.withheld == 0 {
                prop_assert_eq!(invalid(&members, &topics, &result.members, true), [""; 0]);
                return Ok(());
            }
        }
        prop_assert!(false, "still withholding after twelve rounds");
    }

    #[test]
    fn members_alike_keep_all_they_own_up_to_their_share(counts in vec(1_i32..9, 1..5), size in 2_usize..8) {
        let names: Vec<String> = (0..counts.len()).map(|topic| format!("t{topic}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let topics = topics(&names.iter().copied().zip(counts).collect::<Vec<_>>());
        let all: Vec<Member> = (0..size).map(|number| member(&format!("member-{number}"), &names)).collect();
        let mut state = AssignorState::default();
        let first = unadjusted(&all, &topics, &mut state);
        let left = next_round(&all[1..], &first, 1);
        let second = unadjusted(&left, &topics, &mut state);
        for (member, (_, list)) in left.iter().zip(&second) {
            for owned in &member.subscription.owned {
                prop_assert!(list.contains(owned), "{} lost {:?} although somebody left", member.id, owned);
            }
        }
    }
}

/// The fault that the checker is there for: the spread before withholding, given out as it is.
#[test]
fn the_checker_sees_a_spread_that_is_not_withheld() {
    let topics = topics(&[("t", 4)]);
    let mut members = vec![member("a", &["t"]), member("b", &["t"])];
    members[0].subscription.owned = (0..4).map(|p| ("t".to_owned(), p)).collect();
    members[0].subscription.generation = Some(3);
    let faulty = unadjusted(&members, &topics, &mut AssignorState::default());
    assert_eq!(handed_over_too_early(&members, &faulty), ["t-2 to b", "t-3 to b"]);
    let right = assign(Assignor::CooperativeSticky, &members, &topics, &mut AssignorState::default());
    assert_eq!(handed_over_too_early(&members, &right.members), [""; 0]);
    assert_eq!(right.withheld, 2);
}

#[test]
fn an_empty_subscription_visited_first_gives_that_member_nothing() {
    let topics = topics(&[("t", 3)]);
    for empty in ["a", "b", "zz", "consumer0"] {
        let members = [member(empty, &[]), member("m", &["t"])];
        let result = assign(Assignor::CooperativeSticky, &members, &topics, &mut AssignorState::default());
        assert_eq!(faults(&members, &topics, &result.members), [""; 0]);
        assert!(result.members[0].1.is_empty());
    }
}

#[test]
fn no_members_and_no_topics_give_an_empty_result() {
    for assignor in [Assignor::Range, Assignor::RoundRobin, Assignor::CooperativeSticky] {
        let none = assign(assignor, &[], &topics(&[("t", 3)]), &mut AssignorState::default());
        assert!(none.members.is_empty());
        let alone = assign(assignor, &[member("m", &["t"])], &Topics::new(), &mut AssignorState::default());
        assert_eq!(alone.members, [("m".to_owned(), Vec::new())]);
    }
}

#[test]
fn a_repeated_member_or_claim_counts_once() {
    let topics = topics(&[("t", 2)]);
    let mut twice = member("m", &["t", "t"]);
    twice.subscription.owned = vec![("t".to_owned(), 0), ("t".to_owned(), 0)];
    twice.subscription.generation = Some(1);
    let result =
        assign(Assignor::CooperativeSticky, &[twice.clone(), twice], &topics, &mut AssignorState::default());
    assert_eq!(result.members, [("m".to_owned(), vec![("t".to_owned(), 0), ("t".to_owned(), 1)])]);
    assert_eq!(result.withheld, 0);
}
