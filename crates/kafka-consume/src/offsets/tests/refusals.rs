//! What is refused, by the broker or before anything is sent.

use kafka_meta::{CommittedOffset, ErrorCode, ErrorKind};

use super::{Bench, MINUTE, key};
use crate::offsets::Identity;

#[test]
fn a_negative_offset_is_refused_here_and_the_others_are_sent() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, -1), (1, 3)]);
    let (plan, sent) = bench.sent();
    assert_eq!(sent, [(1, 3)]);
    bench.answer_all(&plan, 0);
    let results = bench.outcome(call).unwrap();
    let error = results[0].1.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!((error.topic(), error.partition(), error.offset()), (Some("orders"), Some(0), Some(-1)));
    assert!(results[1].1.is_ok());
}

#[test]
fn a_call_with_nothing_sendable_finishes_without_a_request() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, -5)]);
    assert!(bench.outcome(call).unwrap()[0].1.is_err());
    assert!(bench.core.is_idle());
}

#[test]
fn metadata_that_no_version_can_carry_is_refused_here() {
    let mut bench = Bench::new();
    let offset = CommittedOffset::new(1).with_metadata("x".repeat(40_000));
    let deadline = bench.now + MINUTE;
    let call = bench.core.submit(vec![(key(0), offset)], Identity::anonymous(), deadline).unwrap();
    let error = bench.outcome(call).unwrap().remove(0).1.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

#[test]
fn a_live_group_refuses_every_partition_of_an_anonymous_commit_in_its_own_words() {
    let mut bench = Bench::new();
    let call = bench.commit(&[(0, 1), (1, 2)]);
    let (plan, _) = bench.sent();
    assert_eq!((plan.identity.generation, plan.identity.member_id.as_str()), (-1, ""));
    bench.answer_all(&plan, 25);
    for (_, result) in bench.outcome(call).unwrap() {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Broker(ErrorCode::UNKNOWN_MEMBER_ID));
    }
}

#[test]
fn final_codes_are_final_at_once() {
    for code in [12, 17, 22, 24, 27, 28, 29, 30, 35, -1, 12_345] {
        let mut bench = Bench::new();
        let call = bench.commit(&[(0, 1)]);
        let (plan, _) = bench.sent();
        assert!(!bench.answer_all(&plan, code), "{code}");
        assert!(bench.core.is_idle(), "{code}");
        let outcome = bench.outcome(call);
        // A code about the group ends the call; one about a partition is that partition's.
        assert_eq!(outcome.is_err(), [24, 30].contains(&code), "{code}");
        if let Ok(mut results) = outcome {
            assert!(results.remove(0).1.is_err(), "{code}");
        }
    }
}
