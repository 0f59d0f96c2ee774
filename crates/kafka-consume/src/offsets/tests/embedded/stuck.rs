//! A coordinator that takes a request and says nothing.

use std::time::Duration;

use kafka_meta::ErrorKind;
use kafka_meta::wire::protocol::messages::ApiKey;
use tokio::time::Instant;

use super::{setup, within};
use crate::offsets::tests::{key, member, offsets};
use crate::offsets::{GroupOffsets, Identity};

#[tokio::test(start_paused = true)]
async fn the_call_ends_at_its_deadline_and_the_next_one_waits_for_the_fate_of_the_first() {
    let setup = setup().await;
    setup.commit_all(&[(0, 1)]).await;
    setup.kafka.fault(ApiKey::OffsetCommit).times(1).hold();
    let start = Instant::now();
    let error = setup.group.commit(offsets(&[(0, 5)]), Identity::anonymous(), within(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(start.elapsed().as_secs(), 2);
    setup.commit_all(&[(0, 3)]).await;
    // The request's own limit of 30 s, a pause, a new connection.
    assert!(start.elapsed() >= Duration::from_secs(30), "{:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(35), "{:?}", start.elapsed());
    assert_eq!(setup.stored(0), Some(3));
    assert_eq!(setup.commits_sent(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_while_one_is_stuck_goes_out_as_one_request() {
    let setup = setup().await;
    setup.commit_all(&[(0, 1)]).await;
    let held = setup.kafka.fault(ApiKey::OffsetCommit).times(1).hold_answer();
    let first = setup.commit(&[(0, 2)]);
    let others = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let commit = async |offset| setup.commit(&[(0, offset), (1, offset)]).await;
        futures::future::join_all((3..50).map(commit)).await
    };
    let release = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(setup.commits_sent(), 2);
        held.release();
    };
    let (first, others, ()) = tokio::join!(first, others, release);
    assert!(first.unwrap()[0].1.is_ok());
    assert!(others.into_iter().all(|outcome| outcome.unwrap().iter().all(|(_, result)| result.is_ok())));
    assert_eq!(setup.commits_sent(), 3);
    assert_eq!((setup.stored(0), setup.stored(1)), (Some(49), Some(49)));
}

#[tokio::test(start_paused = true)]
async fn another_consumer_of_the_same_cluster_is_not_held_up() {
    let setup = setup().await;
    setup.kafka.fault(ApiKey::OffsetCommit).times(1).hold();
    let owner = setup.cluster.owner();
    let other = GroupOffsets::new(setup.cluster.clone(), &owner, super::GROUP);
    let stuck = setup.group.commit(offsets(&[(0, 5)]), Identity::anonymous(), within(20));
    let free = async {
        assert!(
            setup
                .kafka
                .until(Duration::from_secs(5), |kafka| !kafka.requests_of(ApiKey::OffsetCommit).is_empty())
                .await
        );
        let start = Instant::now();
        let outcome = other.commit(offsets(&[(1, 7)]), Identity::anonymous(), within(20)).await;
        assert!(outcome.unwrap()[0].1.is_ok());
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    };
    let (stuck, ()) = tokio::join!(stuck, free);
    assert_eq!(stuck.unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_when_nothing_is_asked() {
    let setup = setup().await;
    setup.commit_all(&[(0, 1)]).await;
    let settled = (setup.commits_sent(), setup.sent(ApiKey::FindCoordinator));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((setup.commits_sent(), setup.sent(ApiKey::FindCoordinator)), settled);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_not_answered_is_asked_again_on_another_connection() {
    let setup = setup().await;
    setup.commit_all(&[(0, 5)]).await;
    setup.kafka.fault(ApiKey::OffsetFetch).times(1).hold();
    let start = Instant::now();
    assert_eq!(setup.committed(&[0]).await.unwrap(), [Some(5)]);
    assert!((30..35).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    let connections: Vec<u64> =
        setup.kafka.requests_of(ApiKey::OffsetFetch).iter().map(|seen| seen.connection).collect();
    assert_eq!(connections.len(), 2);
    assert_ne!(connections[0], connections[1]);
}

#[tokio::test(start_paused = true)]
async fn offsets_that_wait_for_a_newer_epoch_go_out_as_soon_as_it_is_told() {
    let setup = setup().await;
    setup.kafka.fault(ApiKey::OffsetCommit).times(1).error(14);
    setup.group.adopt(member(1, 4), [key(0), key(1)].into());
    let older = setup.group.commit(offsets(&[(0, 1)]), member(1, 4), within(60));
    let rest = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let newer = setup.group.commit(offsets(&[(1, 1)]), member(1, 5), within(60)).await;
        assert!(newer.is_ok());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(setup.commits_sent(), 2);
        setup.group.adopt(member(1, 5), [key(0), key(1)].into());
    };
    let start = Instant::now();
    let (older, ()) = tokio::join!(older, rest);
    assert!(older.is_ok(), "answered, if only with a refusal: the group has no such member");
    assert_eq!((setup.commits_sent(), start.elapsed().as_secs()), (3, 10));
}
