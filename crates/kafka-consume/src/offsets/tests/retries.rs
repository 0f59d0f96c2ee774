//! What passes by itself is asked again: with a pause, by deadline.

use std::time::Duration;

use kafka_meta::{Error, ErrorCode, ErrorKind};

use super::{Bench, MINUTE};
use crate::offsets::codes;

const PAUSE: Duration = Duration::from_millis(100);

#[test]
fn coordinator_codes_inside_a_success_are_asked_again_after_a_pause() {
    for (code, rediscover) in [(14, false), (15, true), (16, true), (7, true), (56, false)] {
        let mut bench = Bench::new();
        let call = bench.commit(&[(0, 1)]);
        let (plan, _) = bench.sent();
        assert_eq!(bench.answer_all(&plan, code), rediscover, "{code}");
        assert!(bench.send().is_none(), "{code}: no request without a pause");
        assert_eq!(bench.core.next_deadline(), Some(bench.now + PAUSE), "{code}");
        bench.pass(PAUSE);
        let (plan, _) = bench.sent();
        bench.answer_all(&plan, 0);
        bench.assert_stored(call);
    }
}

#[test]
fn only_what_failed_is_sent_again() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1), (1, 2), (2, 3)]);
    let (plan, _) = bench.sent();
    bench.answer(&plan, &[(0, 0), (1, 16)]);
    bench.pass(PAUSE);
    let (plan, sent) = bench.sent();
    assert_eq!(sent, [(1, 2), (2, 3)], "2 was missing from the answer: not known is not stored");
    bench.answer_all(&plan, 0);
    bench.assert_stored(call);
}

#[test]
fn pauses_grow_to_a_second_hold_back_newer_calls_and_start_over_after_a_success() {
    let mut bench = Bench::new();
    bench.commit(&[(0, 1)]);
    for millis in [100, 200, 400, 800, 1000, 1000] {
        let (plan, _) = bench.sent();
        bench.answer_all(&plan, 16);
        bench.commit(&[(0, 2)]);
        bench.pass(Duration::from_millis(millis - 1));
        assert!(bench.send().is_none());
        bench.pass(Duration::from_millis(1));
    }
    let (plan, _) = bench.sent();
    bench.answer_all(&plan, 0);
    bench.commit(&[(0, 3)]);
    let (plan, _) = bench.sent();
    bench.answer_all(&plan, 14);
    assert_eq!(bench.core.next_deadline(), Some(bench.now + PAUSE));
}

#[test]
fn a_lost_connection_is_retried_and_a_refused_one_is_not() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1)]);
    let (plan, _) = bench.sent();
    bench.core.handle_failure(bench.now, plan.ticket, &Error::new(ErrorKind::Disconnected, "x"), 0.5);
    bench.pass(PAUSE);
    let (plan, _) = bench.sent();
    bench.core.handle_failure(bench.now, plan.ticket, &Error::new(ErrorKind::Authentication, "x"), 0.5);
    assert_eq!(bench.outcome(call).unwrap_err().kind(), ErrorKind::Authentication);
    assert!(bench.core.is_idle());
}

#[test]
fn no_coordinator_is_waited_for_unless_the_group_is_forbidden() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1)]);
    let absent = Error::broker(ErrorCode::COORDINATOR_NOT_AVAILABLE, "x");
    bench.core.handle_no_coordinator(bench.now, &absent, 0.5);
    assert!(bench.finished().is_empty() && bench.send().is_none());
    bench.pass(PAUSE);
    let forbidden = Error::broker(ErrorCode::GROUP_AUTHORIZATION_FAILED, "x");
    bench.core.handle_no_coordinator(bench.now, &forbidden, 0.5);
    assert_eq!(bench.outcome(call).unwrap_err().kind(), ErrorKind::Authorization);
}

#[test]
fn at_the_deadline_the_call_ends_with_the_last_reason_and_the_offset_is_sent_no_more() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1)]);
    let (plan, _) = bench.sent();
    bench.answer_all(&plan, 16);
    bench.pass(MINUTE);
    let error = bench.core.expire(call).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("NOT_COORDINATOR"), "{error}");
    assert!(bench.send().is_none() && bench.core.is_idle());
    assert!(bench.core.expire(call).is_none());
}

#[test]
fn at_the_deadline_what_is_known_of_each_partition_is_kept() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1), (1, 2), (2, 3)]);
    let (plan, _) = bench.sent();
    bench.answer(&plan, &[(0, 0), (1, 25), (2, 14)]);
    let results = bench.core.expire(call).unwrap().unwrap();
    assert!(results[0].1.is_ok());
    assert_eq!(results[1].1.as_ref().unwrap_err().kind(), ErrorKind::Broker(ErrorCode::UNKNOWN_MEMBER_ID));
    assert_eq!(results[2].1.as_ref().unwrap_err().kind(), ErrorKind::Timeout);
}

#[test]
fn an_overdue_offset_leaves_the_queue_without_being_sent() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1)]);
    bench.pass(MINUTE);
    assert!(!bench.core.is_due(bench.now));
    assert_eq!(bench.outcome(call).unwrap_err().kind(), ErrorKind::Timeout);
    assert!(bench.core.is_idle());
}

#[test]
fn an_unknown_topic_is_believed_after_a_grace() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1), (1, 2)]);
    let start = bench.now;
    loop {
        let (plan, _) = bench.sent();
        bench.answer(&plan, &[(0, 3), (1, 0)]);
        if bench.core.is_idle() {
            break;
        }
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(bench.now - start, Duration::from_secs(5));
    let results = bench.outcome(call).unwrap();
    assert_eq!(results[0].1.as_ref().unwrap_err().kind(), ErrorKind::UnknownTopic);
    assert!(results[1].1.is_ok());
}

#[test]
fn an_interrupted_driver_leaves_its_request_to_be_sent_again() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1)]);
    bench.sent();
    bench.core.handle_interruption(bench.now, &Error::new(ErrorKind::Disconnected, "x"));
    bench.pass(codes::BACKOFF_MAX);
    let (plan, _) = bench.sent();
    bench.answer_all(&plan, 0);
    bench.assert_stored(call);
}
