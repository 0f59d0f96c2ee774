//! Stored, none, not known.

use std::time::Duration;

use kafka_meta::wire::protocol::messages::{ApiKey, OffsetFetchResponse};
use kafka_meta::{ErrorCode, ErrorKind};
use tokio::time::Instant;

use super::{setup, within};
use crate::offsets::codes::code_of;
use crate::offsets::tests::{key, member};

#[tokio::test(start_paused = true)]
async fn a_partition_missing_from_the_answer_is_asked_again_and_not_taken_for_none() {
    let setup = setup().await;
    setup.commit_all(&[(0, 5), (1, 6)]).await;
    setup.kafka.fault(ApiKey::OffsetFetch).times(2).map(|answer: &mut OffsetFetchResponse| {
        for group in &mut answer.groups {
            for topic in &mut group.topics {
                topic.partitions.retain(|part| part.partition_index != 1);
            }
        }
    });
    assert_eq!(setup.committed(&[0, 1, 2]).await.unwrap(), [Some(5), Some(6), None]);
    assert_eq!(setup.sent(ApiKey::OffsetFetch), 3);
}

#[tokio::test(start_paused = true)]
async fn an_offset_held_by_an_open_transaction_is_waited_for() {
    let setup = setup().await;
    setup.commit_all(&[(0, 5), (1, 6)]).await;
    setup.kafka.set_offset_unstable(super::GROUP, "orders", 0, true);
    let start = Instant::now();
    let (found, ()) = tokio::join!(setup.committed(&[0, 1]), async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        setup.kafka.commit(super::GROUP, "orders", 0, 8);
        setup.kafka.set_offset_unstable(super::GROUP, "orders", 0, false);
    });
    assert_eq!(found.unwrap(), [Some(8), Some(6)]);
    assert!(start.elapsed() >= Duration::from_secs(7) && start.elapsed() < Duration::from_secs(9));
    assert!(setup.sent(ApiKey::OffsetFetch) < 20);
}

#[tokio::test(start_paused = true)]
async fn one_that_stays_unstable_is_an_error_at_the_deadline_and_never_none() {
    let setup = setup().await;
    setup.kafka.set_offset_unstable(super::GROUP, "orders", 0, true);
    let start = Instant::now();
    let error = setup.group.committed(vec![key(0)], None, within(20)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("UNSTABLE_OFFSET_COMMIT"), "{error}");
    assert!(start.elapsed() <= Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn a_member_is_told_which_code_fenced_it_and_is_not_retried() {
    for code in [113, 25] {
        let setup = setup().await;
        setup.kafka.fault(ApiKey::OffsetFetch).always().map(move |answer: &mut OffsetFetchResponse| {
            for group in &mut answer.groups {
                group.error_code = code;
                group.topics.clear();
            }
        });
        let error = setup.group.committed(vec![key(0)], Some(member(1, 3)), within(20)).await.unwrap_err();
        assert_eq!((error.kind(), code_of(&error)), (ErrorKind::Fenced, Some(ErrorCode::from(code))));
        assert_eq!(setup.sent(ApiKey::OffsetFetch), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn every_version_a_broker_may_limit_us_to_works() {
    for highest in 1..=9 {
        let setup = setup().await;
        for node in 1..=3 {
            setup.kafka.set_versions(node, ApiKey::OffsetFetch, Some((1, highest)));
            setup.kafka.set_versions(node, ApiKey::OffsetCommit, Some((2, highest.max(2))));
        }
        // The group lane has no connection yet, so none was made before.
        setup.commit_all(&[(0, 5)]).await;
        assert_eq!(setup.committed(&[0, 1]).await.unwrap(), [Some(5), None], "{highest}");
        assert!(setup.kafka.requests_of(ApiKey::OffsetFetch).iter().all(|seen| seen.version == highest));
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_unstable_keeps_the_others_waiting_only_if_all_are_wanted() {
    let setup = setup().await;
    setup.commit_all(&[(0, 5), (1, 6)]).await;
    setup.kafka.set_offset_unstable(super::GROUP, "orders", 0, true);
    let start = Instant::now();
    let found = setup.group.committed_some(vec![key(0), key(1), key(2)], None, within(20)).await.unwrap();
    assert_eq!(found.get(&key(1)), Some(&Some(super::committed_offset(6))));
    assert_eq!(found.get(&key(2)), Some(&None));
    assert_eq!(found.get(&key(0)), None, "not known is absent, not none");
    assert!(start.elapsed() < Duration::from_secs(1));
    let error = setup.group.committed_some(vec![key(0)], None, within(20)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}
