//! Auto-commit: by timer and at a revocation, of what is done, once.

use super::*;

#[test]
fn the_timer_stores_what_polls_before_this_one_handed_out_and_nothing_twice() {
    let mut rig = Rig::owning(true, &[0, 1]);
    rig.poll(&[(0, 5), (1, 6)]);
    rig.pass(INTERVAL);
    let commit = rig.commit().unwrap();
    assert_eq!(offsets(&commit), [(0, 5), (1, 6)]);
    rig.stored(&commit);
    rig.pass(INTERVAL);
    assert!(rig.commit().is_none());
    rig.poll(&[(0, 5), (1, 9)]);
    rig.pass(INTERVAL);
    assert_eq!(offsets(&rig.commit().unwrap()), [(1, 9)]);
}

#[test]
fn a_commit_that_outlives_the_interval_is_waited_for_without_spinning() {
    let mut rig = Rig::owning(true, &[0]);
    rig.poll(&[(0, 5)]);
    rig.pass(INTERVAL);
    let commit = rig.commit().unwrap();
    rig.poll(&[(0, 7)]);
    // The caller of this test would never end otherwise: see `pass`.
    rig.pass(INTERVAL * 2);
    assert!(rig.commit().is_none());
    rig.stored(&commit);
    rig.pass(Duration::ZERO);
    assert_eq!(offsets(&rig.commit().unwrap()), [(0, 7)]);
}

#[test]
fn without_auto_commit_nothing_is_stored_and_no_timer_runs() {
    let mut rig = Rig::owning(false, &[0]);
    rig.poll(&[(0, 5)]);
    rig.pass(INTERVAL * 2);
    rig.target(2, &[]);
    let number = rig.revokes(&[0]);
    rig.core.revoke_done(rig.now, number);
    assert!(rig.commit().is_none());
    assert_eq!(rig.heard(), ["owns [] after 2"]);
}

#[test]
fn a_refused_commit_does_not_hold_the_group_up_and_is_tried_again_by_the_timer() {
    let mut rig = Rig::owning(true, &[0]);
    rig.poll(&[(0, 5)]);
    rig.pass(INTERVAL);
    let commit = rig.commit().unwrap();
    let failed = Err(Error::new(ErrorKind::Timeout, "test"));
    rig.core.handle_commit(rig.now, commit.number, &commit.offsets, &failed);
    assert_eq!(rig.core.counts.commit_failures, 1);
    rig.pass(INTERVAL);
    assert_eq!(offsets(&rig.commit().unwrap()), [(0, 5)]);
    rig.target(2, &[]);
    let number = rig.revokes(&[0]);
    rig.core.revoke_done(rig.now, number);
    let commit = rig.commit().unwrap();
    rig.core.handle_commit(rig.now, commit.number, &commit.offsets, &failed);
    assert_eq!(rig.heard(), ["owns [] after 2"]);
}

#[test]
fn the_timer_leaves_what_is_on_its_way_out_to_the_revocation() {
    let mut rig = Rig::owning(true, &[0, 1]);
    rig.poll(&[(0, 5), (1, 6)]);
    rig.target(2, &[1]);
    rig.revokes(&[0]);
    rig.pass(INTERVAL);
    assert_eq!(offsets(&rig.commit().unwrap()), [(1, 6)]);
    rig.core.revoke_done(rig.now, 2);
    assert_eq!(offsets(&rig.commit().unwrap()), [(0, 5)]);
}

#[test]
fn what_the_application_stores_lasts_until_the_next_auto_commit() {
    let mut rig = Rig::owning(true, &[0, 1]);
    rig.poll(&[(0, 5), (1, 6)]);
    rig.pass(INTERVAL);
    let commit = rig.commit().unwrap();
    rig.stored(&commit);
    rig.core.stores_itself(&[key(0)]);
    rig.core.stored_itself([key(0)]);
    rig.pass(INTERVAL);
    let commit = rig.commit().unwrap();
    assert_eq!(offsets(&commit), [(0, 5)]);
    rig.stored(&commit);
    rig.pass(INTERVAL);
    assert!(rig.commit().is_none());
}

#[test]
fn an_auto_commit_that_was_under_way_beside_one_of_the_application_is_not_relied_on() {
    let mut rig = Rig::owning(true, &[0, 1]);
    rig.poll(&[(0, 5), (1, 6)]);
    rig.pass(INTERVAL);
    let commit = rig.commit().unwrap();
    rig.core.stores_itself(&[key(0)]);
    rig.stored(&commit);
    rig.pass(INTERVAL);
    let again = rig.commit().unwrap();
    assert_eq!(offsets(&again), [(0, 5)]);
    rig.stored(&again);
    rig.pass(INTERVAL);
    assert!(rig.commit().is_none());
}

#[test]
fn what_on_revoke_stores_itself_is_left_alone_and_the_rest_is_stored() {
    let mut rig = Rig::owning(true, &[0, 1, 2]);
    rig.poll(&[(0, 5), (1, 6), (2, 7)]);
    // Before the callback: auto-commit has the last word.
    rig.core.stored_itself([key(1)]);
    rig.target(2, &[2]);
    rig.core.stored_itself([key(1)]);
    let number = rig.revokes(&[0, 1]);
    rig.core.stores_itself(&[key(0), key(2)]);
    rig.core.stored_itself([key(0), key(2)]);
    rig.core.revoke_done(rig.now, number);
    let commit = rig.commit().unwrap();
    assert_eq!(offsets(&commit), [(1, 6)]);
    rig.stored(&commit);
    assert_eq!(rig.heard(), ["owns [2] after 2"]);
    rig.pass(INTERVAL);
    assert_eq!(offsets(&rig.commit().unwrap()), [(2, 7)]);
}
