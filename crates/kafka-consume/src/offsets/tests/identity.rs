//! A commit may follow a newer epoch of its own life, and nothing else.

use std::time::Duration;

use kafka_meta::{ErrorCode, ErrorKind};

use super::{Bench, key, member};
use crate::offsets::codes::code_of;

const PAUSE: Duration = Duration::from_secs(1);

#[test]
fn a_waiting_commit_follows_a_newer_epoch_of_the_same_life() {
    let mut bench = Bench::new();
    bench.core.adopt(member(1, 4), [key(0)].into());
    let call = bench.commit_as(&[(0, 1)], member(1, 4)).unwrap();
    let (plan, _) = bench.sent();
    assert_eq!(plan.identity.generation, 4);
    bench.core.adopt(member(1, 5), [key(0)].into());
    bench.answer_all(&plan, 113);
    let (plan, _) = bench.sent();
    assert_eq!(plan.identity.generation, 5, "at once: the newer epoch is known");
    bench.answer_all(&plan, 0);
    bench.assert_stored(call);
}

#[test]
fn a_partition_given_up_meanwhile_is_not_committed_under_the_newer_epoch() {
    let mut bench = Bench::new();
    bench.core.adopt(member(1, 4), [key(0), key(1)].into());
    let call = bench.commit_as(&[(0, 1), (1, 1)], member(1, 4)).unwrap();
    let (plan, _) = bench.sent();
    bench.core.adopt(member(1, 5), [key(0)].into());
    bench.answer_all(&plan, 113);
    let (plan, sent) = bench.sent();
    assert_eq!(sent, [(0, 1)]);
    bench.answer_all(&plan, 0);
    let results = bench.outcome(call).unwrap();
    assert!(results[0].1.is_ok());
    assert_eq!(results[1].1.as_ref().unwrap_err().kind(), ErrorKind::NotAssigned);
}

#[test]
fn queued_offsets_of_partitions_given_up_are_refused_at_once() {
    let mut bench = Bench::new();
    bench.core.adopt(member(1, 4), [key(0)].into());
    let call = bench.commit_as(&[(0, 1)], member(1, 4)).unwrap();
    bench.core.adopt(member(1, 4), [].into());
    assert_eq!(bench.outcome(call).unwrap()[0].1.as_ref().unwrap_err().kind(), ErrorKind::NotAssigned);
    assert!(bench.core.is_idle());
    let late = bench.commit_as(&[(0, 1)], member(1, 3)).unwrap();
    assert_eq!(bench.outcome(late).unwrap()[0].1.as_ref().unwrap_err().kind(), ErrorKind::NotAssigned);
}

#[test]
fn offsets_of_an_earlier_life_are_never_sent_again() {
    let mut bench = Bench::new();
    bench.core.adopt(member(1, 4), [key(0), key(1)].into());
    let flying = bench.commit_as(&[(0, 1)], member(1, 4)).unwrap();
    let (plan, _) = bench.sent();
    let queued = bench.commit_as(&[(1, 1)], member(1, 4)).unwrap();
    bench.core.adopt(member(2, 0), [key(0), key(1)].into());
    assert_eq!(bench.outcome(queued).unwrap_err().kind(), ErrorKind::Fenced);
    bench.answer_all(&plan, 14);
    assert_eq!(bench.outcome(flying).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(bench.commit_as(&[(0, 1)], member(1, 9)).unwrap_err().kind(), ErrorKind::Fenced);
    assert!(bench.core.is_idle());
}

#[test]
fn a_stale_epoch_is_given_time_for_the_heartbeat_then_refused() {
    let mut bench = Bench::new();
    bench.core.adopt(member(1, 4), [key(0)].into());
    let call = bench.commit_as(&[(0, 1)], member(1, 4)).unwrap();
    for _ in 0..2 {
        let (plan, _) = bench.sent();
        bench.answer_all(&plan, 113);
        assert!(bench.send().is_none(), "a pause");
        bench.pass(PAUSE);
    }
    let (plan, _) = bench.sent();
    bench.answer_all(&plan, 113);
    let results = bench.outcome(call).unwrap();
    let error = results[0].1.as_ref().unwrap_err();
    assert_eq!((error.kind(), code_of(error)), (ErrorKind::Fenced, Some(ErrorCode::STALE_MEMBER_EPOCH)));
}

#[test]
fn a_members_refusals_are_fenced_and_keep_their_code() {
    for code in [22, 25, 82, 110] {
        let mut bench = Bench::new();
        let call = bench.commit_as(&[(0, 1)], member(1, 4)).unwrap();
        let (plan, _) = bench.sent();
        bench.answer_all(&plan, code);
        let results = bench.outcome(call).unwrap();
        let error = results[0].1.as_ref().unwrap_err();
        assert_eq!((error.kind(), code_of(error)), (ErrorKind::Fenced, Some(ErrorCode::from(code))));
        assert!(error.to_string().contains(ErrorCode::from(code).name().unwrap()), "{error}");
    }
}

#[test]
fn a_newer_identity_brought_by_a_call_leaves_older_offsets_waiting_for_word_of_what_is_owned() {
    let mut bench = Bench::new();
    bench.core.adopt(member(1, 4), [key(0), key(1), key(2)].into());
    let flying = bench.commit_as(&[(2, 1)], member(1, 4)).unwrap();
    let (plan, _) = bench.sent();
    let older = bench.commit_as(&[(0, 1), (1, 1)], member(1, 4)).unwrap();
    let newer = bench.commit_as(&[(1, 2)], member(1, 5)).unwrap();
    bench.answer_all(&plan, 14);
    bench.pass(PAUSE);
    let (plan, sent) = bench.sent();
    assert_eq!((plan.identity.generation, sent), (5, vec![(1, 2)]));
    bench.answer_all(&plan, 0);
    bench.assert_stored(newer);
    assert!(bench.send().is_none() && !bench.core.is_due(bench.now));
    assert!(bench.core.next_deadline() > Some(bench.now + PAUSE * 10), "nothing to do until then");

    bench.core.adopt(member(1, 5), [key(0), key(1)].into());
    assert_eq!(bench.outcome(flying).unwrap()[0].1.as_ref().unwrap_err().kind(), ErrorKind::NotAssigned);
    let (plan, sent) = bench.sent();
    assert_eq!((plan.identity.generation, sent), (5, vec![(0, 1)]));
    bench.answer_all(&plan, 0);
    bench.assert_stored(older);
}

#[test]
fn offsets_nobody_vouches_for_end_at_their_deadline() {
    let mut bench = Bench::new();
    bench.core.adopt(member(1, 4), [key(0)].into());
    let older = bench.commit_as(&[(0, 1)], member(1, 4)).unwrap();
    bench.commit_as(&[(1, 1)], member(1, 5)).unwrap();
    let (plan, _) = bench.sent();
    bench.answer_all(&plan, 0);
    let deadline = bench.core.next_deadline().expect("the older call's");
    bench.now = deadline;
    assert!(!bench.core.is_due(bench.now));
    assert_eq!(bench.outcome(older).unwrap_err().kind(), ErrorKind::Timeout);
    assert!(bench.core.is_idle());
}
