//! The promise about the time between polls.

use super::*;

#[test]
fn a_poll_under_way_is_a_sign_of_life_however_long_it_lasts() {
    let mut rig = Rig::owning(true, &[0]);
    rig.pass(REBALANCE * 3);
    assert!(rig.heard().is_empty());
    rig.core.poll_ended(rig.now);
    rig.pass(REBALANCE - Duration::from_millis(1));
    assert!(rig.heard().is_empty());
    rig.core.touch(rig.now);
    rig.pass(REBALANCE - Duration::from_millis(1));
    assert!(rig.heard().is_empty(), "a stream that yields is alive");
    assert_eq!(rig.core.next_deadline(), Some(rig.now + Duration::from_millis(1)));
    rig.pass(Duration::from_millis(1));
    assert_eq!(rig.heard(), ["silent"]);
    assert!(rig.ops().contains(&Op::Hold(set(&[0]))), "nothing more is delivered");
}

#[test]
fn silence_costs_the_membership_once_and_the_next_poll_begins_with_the_loss() {
    let mut rig = Rig::owning(true, &[0]);
    rig.core.poll_ended(rig.now);
    rig.pass(REBALANCE);
    rig.pass(REBALANCE);
    assert_eq!(rig.heard(), ["silent"]);
    assert_eq!(rig.core.identity("test").unwrap_err().kind(), ErrorKind::Fenced);
    rig.poll(&[]);
    let number = rig.loses(&[0]);
    rig.core.lost_done(rig.now, number);
    assert_eq!(rig.heard(), ["lost"]);
    rig.nothing();
}

#[test]
fn who_never_polled_and_owns_nothing_cannot_be_silent() {
    let mut rig = Rig::new(true);
    rig.puppet.0.lock().unwrap().identity = None;
    rig.core.tick(rig.now);
    rig.core.poll_ended(rig.now);
    rig.pass(REBALANCE * 2);
    assert!(rig.heard().is_empty());
}
