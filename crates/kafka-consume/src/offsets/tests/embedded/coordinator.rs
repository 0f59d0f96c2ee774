//! Coordinators that move, load, or are not there yet.

use std::time::Duration;

use kafka_meta::ErrorKind;
use kafka_meta::wire::protocol::messages::ApiKey;
use tokio::time::Instant;

use super::{setup, within};
use crate::offsets::Identity;
use crate::offsets::tests::offsets;

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_moved_is_found_again_for_commits_and_reads() {
    let setup = setup().await;
    setup.commit_all(&[(0, 1)]).await;
    for round in 2..6 {
        setup.kafka.move_coordinator(super::GROUP, setup.another_node());
        let start = Instant::now();
        setup.commit_all(&[(0, round)]).await;
        assert_eq!(setup.stored(0), Some(round));
        setup.kafka.move_coordinator(super::GROUP, setup.another_node());
        assert_eq!(setup.committed(&[0]).await.unwrap(), [Some(round)]);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
    assert!(setup.commits_sent() <= 10, "{}", setup.commits_sent());
}

#[tokio::test(start_paused = true)]
async fn codes_inside_a_success_are_asked_again_with_pauses() {
    for code in [14, 15, 16, 7] {
        let setup = setup().await;
        setup.kafka.fault(ApiKey::OffsetCommit).times(3).error(code);
        setup.kafka.fault(ApiKey::OffsetFetch).times(3).error(code);
        setup.commit_all(&[(0, 5), (1, 6)]).await;
        assert_eq!(setup.committed(&[0, 1]).await.unwrap(), [Some(5), Some(6)]);
        for api in [ApiKey::OffsetCommit, ApiKey::OffsetFetch] {
            let seen = setup.kafka.requests_of(api);
            assert_eq!(seen.len(), 4, "{code}");
            for pair in seen.windows(2) {
                let pause = pair[1].at - pair[0].at;
                assert!(pause >= Duration::from_millis(80), "{code}: {pause:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_cluster_that_has_no_coordinator_yet_is_waited_for() {
    let setup = setup().await;
    setup.kafka.set_coordinator_not_available(3);
    setup.kafka.set_coordinator_warming(&[16, 16, 14, 14]);
    setup.commit_all(&[(0, 5)]).await;
    assert_eq!(setup.stored(0), Some(5));
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_never_answers_right_costs_the_deadline_and_few_requests() {
    let setup = setup().await;
    setup.kafka.fault(ApiKey::OffsetCommit).always().error(16);
    setup.kafka.fault(ApiKey::OffsetFetch).always().error(16);
    let start = Instant::now();
    let error = setup.group.commit(offsets(&[(0, 1)]), Identity::anonymous(), within(10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("NOT_COORDINATOR"), "{error}");
    assert_eq!(start.elapsed().as_secs(), 10);
    let key = crate::offsets::tests::key(0);
    let error = setup.group.committed(vec![key], None, within(10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("NOT_COORDINATOR"), "{error}");
    for api in [ApiKey::OffsetCommit, ApiKey::OffsetFetch, ApiKey::FindCoordinator] {
        assert!((5..60).contains(&setup.sent(api)), "{api:?}: {}", setup.sent(api));
    }
    let settled = setup.commits_sent();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(setup.commits_sent(), settled, "nothing goes on after the deadline");
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_is_killed_is_waited_for_until_another_takes_over() {
    let setup = setup().await;
    setup.commit_all(&[(0, 1)]).await;
    let dead = setup.coordinator();
    setup.kafka.kill_node(dead);
    let (outcome, ()) = tokio::join!(setup.commit(&[(0, 2)]), async {
        tokio::time::sleep(Duration::from_secs(12)).await;
        setup.kafka.move_coordinator(super::GROUP, dead % 3 + 1);
        setup.kafka.fail_over(dead);
    });
    assert!(outcome.unwrap()[0].1.is_ok());
    assert_eq!(setup.stored(0), Some(2));
    assert!(setup.sent(ApiKey::FindCoordinator) < 60, "{}", setup.sent(ApiKey::FindCoordinator));
}

#[tokio::test(start_paused = true)]
async fn lost_answers_are_retried_and_store_the_same_offset() {
    let setup = setup().await;
    setup.kafka.fault(ApiKey::OffsetCommit).times(2).drop_connection_after();
    setup.kafka.fault(ApiKey::OffsetFetch).times(1).drop_connection_before();
    setup.kafka.fault(ApiKey::OffsetFetch).skip(1).times(1).cut_answer(9);
    setup.commit_all(&[(0, 5)]).await;
    assert_eq!(setup.commits_sent(), 3);
    assert_eq!(setup.committed(&[0]).await.unwrap(), [Some(5)]);
}
