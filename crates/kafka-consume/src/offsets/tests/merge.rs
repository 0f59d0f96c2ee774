//! One request in flight; later calls wait and merge.

use super::{Bench, key};

#[test]
fn results_come_per_partition_in_the_order_asked() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(2, 20), (0, 5), (1, 7)]);
    let (plan, _) = bench.sent();
    bench.answer(&plan, &[(1, 29), (0, 0), (2, 0)]);
    let results = bench.outcome(call).unwrap();
    assert_eq!(results.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [key(2), key(0), key(1)]);
    assert!(results[0].1.is_ok() && results[1].1.is_ok());
    let error = results[2].1.as_ref().unwrap_err();
    assert_eq!((error.topic(), error.partition(), error.offset()), (Some("orders"), Some(1), Some(7)));
    assert!(bench.core.is_idle());
}

#[test]
fn a_second_request_waits_for_the_first_and_takes_everything_queued_meanwhile() {
    let mut bench = Bench::new();
    let first = bench.commit(&[(0, 1)]);
    let (plan, sent) = bench.sent();
    assert_eq!(sent, [(0, 1)]);
    let second = bench.commit(&[(0, 2)]);
    let third = bench.commit(&[(1, 9)]);
    assert!(bench.send().is_none(), "one in flight");
    bench.answer_all(&plan, 0);
    bench.assert_stored(first);
    let (plan, sent) = bench.sent();
    assert_eq!(sent, [(0, 2), (1, 9)]);
    bench.answer_all(&plan, 0);
    let finished = bench.finished();
    assert_eq!(finished.iter().map(|(call, _)| *call).collect::<Vec<_>>(), [second, third]);
}

#[test]
fn an_offset_replaced_while_queued_is_never_sent_and_shares_the_result() {
    let mut bench = Bench::new();
    let older = bench.commit(&[(0, 5), (1, 1)]);
    let newer = bench.commit(&[(0, 3)]);
    let (plan, sent) = bench.sent();
    assert_eq!(sent, [(0, 3), (1, 1)], "the newest call wins, also when it goes back on purpose");
    bench.answer_all(&plan, 0);
    let finished: Vec<_> = bench.finished().into_iter().map(|(call, _)| call).collect();
    assert!(finished.contains(&older) && finished.contains(&newer));
}

#[test]
fn an_offset_superseded_in_flight_is_not_retried_and_follows_the_newer_one() {
    let mut bench = Bench::new();
    let older = bench.commit(&[(0, 5)]);
    let (plan, _) = bench.sent();
    let newer = bench.commit(&[(0, 8)]);
    bench.answer_all(&plan, 14);
    assert!(bench.finished().is_empty());
    bench.pass(std::time::Duration::from_millis(100));
    let (plan, sent) = bench.sent();
    assert_eq!(sent, [(0, 8)]);
    bench.answer_all(&plan, 0);
    let finished: Vec<_> = bench.finished().into_iter().map(|(call, _)| call).collect();
    assert!(finished.contains(&older) && finished.contains(&newer));
    assert!(bench.core.is_idle());
}

#[test]
fn an_answer_of_another_request_changes_nothing() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1)]);
    let (mut plan, _) = bench.sent();
    plan.ticket += 1;
    bench.answer_all(&plan, 0);
    assert!(bench.finished().is_empty() && !bench.core.is_idle());
    plan.ticket -= 1;
    bench.answer_all(&plan, 0);
    bench.assert_stored(call);
    bench.answer_all(&plan, 25);
    assert!(bench.finished().is_empty());
}

#[test]
fn a_partition_named_twice_in_one_call_is_stored_once_with_the_last_offset() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1), (0, 2)]);
    let (plan, sent) = bench.sent();
    assert_eq!(sent, [(0, 2)]);
    bench.answer_all(&plan, 0);
    assert_eq!(bench.outcome(call).unwrap().len(), 1);
}
