//! Leaving: the listener, the commit, the goodbye; from any state.

use super::*;

fn done(list: &[(i32, i64)]) -> BTreeMap<(TopicName, i32), CommittedOffset> {
    list.iter().map(|(index, offset)| (key(*index), CommittedOffset::new(*offset))).collect()
}

#[test]
fn a_leave_revokes_commits_and_says_goodbye_once() {
    for commit in [true, false] {
        let mut rig = Rig::owning(true, &[0, 1]);
        rig.core.leave(rig.now, commit, done(&[(0, 5), (1, 6)]));
        rig.core.leave(rig.now, commit, done(&[]));
        let number = rig.revokes(&[0, 1]);
        rig.core.revoke_done(rig.now, number);
        if commit {
            let order = rig.commit().unwrap();
            assert_eq!(offsets(&order), [(0, 5), (1, 6)]);
            assert!(rig.heard().is_empty());
            rig.stored(&order);
        }
        assert!(rig.commit().is_none());
        assert_eq!(rig.heard(), ["leave"]);
        rig.output(Output::Left);
        assert!(rig.core.has_left());
    }
}

#[test]
fn a_leave_absorbs_a_reconciliation_under_way() {
    let mut rig = Rig::owning(true, &[0, 1]);
    rig.target(2, &[1, 2]);
    let number = rig.revokes(&[0]);
    rig.target(3, &[]);
    rig.core.leave(rig.now, true, done(&[]));
    rig.core.revoke_done(rig.now, number);
    let number = rig.revokes(&[0, 1]);
    rig.target(4, &[5]);
    rig.core.revoke_done(rig.now, number);
    assert_eq!(rig.heard(), ["leave"]);
}

#[test]
fn a_leave_after_a_loss_tells_the_loss_and_goes() {
    let mut rig = Rig::owning(true, &[0]);
    rig.lose();
    rig.core.leave(rig.now, true, done(&[(0, 5)]));
    let number = rig.loses(&[0]);
    rig.core.lost_done(rig.now, number);
    assert!(rig.commit().is_none());
    assert_eq!(rig.heard(), ["leave"]);
}

#[test]
fn a_loss_during_a_leave_turns_the_revocation_into_a_loss() {
    let mut rig = Rig::owning(true, &[0]);
    rig.core.leave(rig.now, true, done(&[(0, 5)]));
    let number = rig.revokes(&[0]);
    rig.lose();
    rig.core.revoke_done(rig.now, number);
    assert!(rig.commit().is_none());
    let number = rig.loses(&[0]);
    rig.core.lost_done(rig.now, number);
    assert_eq!(rig.heard(), ["leave"]);
}

#[test]
fn a_leave_that_nobody_carries_on_ends_with_the_rebalance_timeout() {
    let mut rig = Rig::owning(true, &[0]);
    rig.core.leave(rig.now, true, done(&[]));
    rig.revokes(&[0]);
    rig.core.poll_ended(rig.now);
    rig.pass(REBALANCE);
    assert_eq!(rig.heard(), ["silent"]);
    rig.pass(REBALANCE);
    let number = rig.loses(&[0]);
    rig.core.lost_done(rig.now, number);
    assert_eq!(rig.heard(), ["leave"]);
}

#[test]
fn whoever_owns_nothing_leaves_without_the_listener() {
    let mut rig = Rig::new(true);
    rig.core.leave(rig.now, true, done(&[]));
    assert_eq!(rig.heard(), ["leave"]);
    rig.core.give_up_leaving();
    assert!(rig.core.has_left());
    rig.pass(REBALANCE * 2);
}
