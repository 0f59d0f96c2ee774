//! The order of a reconciliation, and what a newer target does to one under way.

use super::*;

#[test]
fn listener_commit_drop_acknowledge_and_only_then_what_comes() {
    let mut rig = Rig::owning(true, &[0, 1]);
    rig.poll(&[(0, 5), (1, 6)]);
    rig.target(2, &[1, 2]);
    assert_eq!(rig.ops(), [Op::Hold(set(&[0]))]);
    let number = rig.revokes(&[0]);
    assert!(rig.commit().is_none() && rig.heard().is_empty());
    rig.core.revoke_done(rig.now, number);
    let commit = rig.commit().unwrap();
    assert_eq!(offsets(&commit), [(0, 5)], "what goes, and nothing else");
    assert!(rig.ops().is_empty() && rig.heard().is_empty());
    rig.nothing();
    rig.stored(&commit);
    assert_eq!(rig.ops(), [Op::Drop(set(&[0])), Op::Add(set(&[2]))]);
    assert_eq!(rig.heard(), ["owns [1, 2] after 2"]);
    let number = rig.assigns(&[2]);
    assert!(rig.ops().is_empty(), "held until the callback has returned");
    rig.core.assign_done(rig.now, number);
    assert_eq!(rig.ops(), [Op::Release(set(&[2]))]);
    rig.nothing();
}

#[test]
fn a_target_nobody_was_told_of_is_replaced_and_what_may_stay_is_let_on() {
    let mut rig = Rig::owning(true, &[0, 1]);
    rig.target(2, &[]);
    rig.ops();
    rig.target(3, &[0]);
    assert_eq!(rig.ops(), [Op::Release(set(&[0])), Op::Hold(set(&[1]))]);
    let number = rig.revokes(&[1]);
    rig.core.revoke_done(rig.now, number);
    assert_eq!(rig.heard(), ["owns [0] after 3"]);
}

#[test]
fn after_the_first_callback_newer_targets_wait_and_only_the_newest_counts() {
    let mut rig = Rig::owning(true, &[0, 1]);
    rig.target(2, &[1]);
    let number = rig.revokes(&[0]);
    rig.target(3, &[]);
    rig.target(4, &[1, 2]);
    assert_eq!(rig.revokes(&[0]), number);
    rig.core.revoke_done(rig.now, number);
    assert_eq!(rig.heard(), ["owns [1] after 2", "owns [1, 2] after 4"]);
    rig.assigns(&[2]);
}

#[test]
fn the_first_target_is_told_even_if_it_is_empty_and_later_ones_are_not() {
    let mut rig = Rig::new(true);
    rig.target(1, &[]);
    let number = rig.assigns(&[]);
    rig.core.assign_done(rig.now, number);
    rig.target(2, &[]);
    rig.nothing();
    assert_eq!(rig.heard(), ["owns [] after 1", "owns [] after 2"]);
}

#[test]
fn the_third_beginning_of_a_callback_is_counted() {
    let mut rig = Rig::owning(true, &[0]);
    rig.target(2, &[]);
    for counted in [0, 0, 1, 2] {
        rig.revokes(&[0]);
        assert_eq!(rig.core.counts.callback_restarts, counted);
    }
    rig.core.revoke_done(rig.now, 2);
    rig.core.revoke_done(rig.now, 2);
    assert_eq!(rig.heard(), ["owns [] after 2"], "its end counts once");
}

#[test]
fn the_end_of_another_reconciliations_callback_is_nothing() {
    let mut rig = Rig::owning(true, &[0]);
    rig.target(2, &[]);
    rig.revokes(&[0]);
    rig.core.revoke_done(rig.now, 1);
    rig.core.assign_done(rig.now, 2);
    assert!(rig.heard().is_empty());
    rig.revokes(&[0]);
}
