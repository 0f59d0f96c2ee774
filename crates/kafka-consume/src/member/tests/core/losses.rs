//! Fences in every stage: what is left of a reconciliation turns into one loss.

use super::*;

#[test]
fn a_loss_takes_everything_owned_in_any_stage_of_a_reconciliation() {
    for stage in 0..4 {
        let mut rig = Rig::owning(true, &[0, 1]);
        rig.poll(&[(0, 5), (1, 6)]);
        rig.target(2, &[1, 2]);
        let number = rig.revokes(&[0]);
        let mut owned = vec![0, 1];
        let mut commit = None;
        if stage > 0 {
            rig.core.revoke_done(rig.now, number);
            commit = rig.commit();
        }
        if stage > 1 {
            rig.stored(commit.as_ref().unwrap());
            owned = vec![1, 2];
        }
        if stage > 2 {
            rig.assigns(&[2]);
        }
        rig.heard();
        rig.lose();
        // Whatever ends late belongs to what is gone.
        rig.core.revoke_done(rig.now, number);
        rig.core.assign_done(rig.now, number);
        if let Some(commit) = commit {
            rig.stored(&commit);
        }
        assert!(rig.heard().is_empty(), "stage {stage}");
        assert_eq!(rig.core.identity("test").unwrap_err().kind(), ErrorKind::Fenced);
        let lost = rig.loses(&owned);
        assert_eq!(rig.loses(&owned), lost, "begun again after a dropped poll");
        rig.core.lost_done(rig.now, lost);
        assert_eq!(rig.heard(), ["lost"]);
        assert!(rig.ops().contains(&Op::Drop(set(&owned))));
        rig.nothing();
        // The next life stores nothing of the last one.
        rig.live(2);
        rig.pass(INTERVAL);
        assert!(rig.commit().is_none());
    }
}

#[test]
fn targets_and_losses_after_a_loss_wait_for_its_end() {
    let mut rig = Rig::owning(true, &[0]);
    rig.lose();
    let number = rig.loses(&[0]);
    rig.lose();
    rig.target(3, &[1]);
    assert_eq!(rig.loses(&[0]), number);
    rig.core.lost_done(rig.now, number);
    rig.nothing();
    assert_eq!(rig.core.counts.lost, 1);
}
