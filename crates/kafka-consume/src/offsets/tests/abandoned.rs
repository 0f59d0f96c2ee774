//! Calls whose futures are dropped: sent at most once, never again.

use std::time::Duration;

use kafka_meta::{ErrorCode, ErrorKind};

use super::Bench;

const PAUSE: Duration = Duration::from_secs(1);

#[test]
fn an_abandoned_call_still_goes_out_once() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1)]);
    bench.core.abandon(call);
    let (plan, sent) = bench.sent();
    assert_eq!(sent, [(0, 1)]);
    bench.answer_all(&plan, 16);
    bench.pass(PAUSE);
    assert!(bench.send().is_none() && bench.core.is_idle() && bench.finished().is_empty());
}

#[test]
fn a_call_abandoned_in_flight_is_not_retried() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1)]);
    let (plan, _) = bench.sent();
    bench.core.abandon(call);
    bench.answer_all(&plan, 14);
    assert!(bench.core.is_idle());
}

#[test]
fn a_call_abandoned_between_two_attempts_is_not_sent_again() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1)]);
    let (plan, _) = bench.sent();
    bench.answer_all(&plan, 14);
    bench.core.abandon(call);
    bench.pass(PAUSE);
    assert!(bench.send().is_none() && bench.core.is_idle());
}

#[test]
fn an_older_call_is_told_why_when_the_newer_one_is_abandoned() {
    let mut bench = Bench::new();
    let older = bench.commit(&[(0, 1)]);
    let newer = bench.commit(&[(0, 2)]);
    let (plan, _) = bench.sent();
    bench.answer_all(&plan, 14);
    bench.core.abandon(newer);
    let error = bench.outcome(older).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broker(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
    bench.pass(PAUSE);
    assert!(bench.send().is_none(), "1 must not overwrite 2, which may have been stored");
}

#[test]
fn dropping_the_older_call_leaves_the_newer_one_alone() {
    let mut bench = Bench::new();
    let older = bench.commit(&[(0, 1), (1, 1)]);
    let newer = bench.commit(&[(0, 2)]);
    bench.core.abandon(older);
    let (plan, sent) = bench.sent();
    assert_eq!(sent, [(0, 2), (1, 1)]);
    bench.answer_all(&plan, 16);
    bench.pass(PAUSE);
    let (plan, sent) = bench.sent();
    assert_eq!(sent, [(0, 2)]);
    bench.answer_all(&plan, 0);
    bench.assert_stored(newer);
}
