//! Futures dropped at every point: nothing is lost, nothing is sent twice, nothing moves back.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::{Setup, setup, within};
use crate::offsets::Identity;
use crate::offsets::tests::offsets;
use kafka_meta::wire::protocol::messages::ApiKey;

/// Polls `future` as often as it is woken, at most `polls` times; whether it ended.
async fn poll_some<F: Future>(future: F, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_commit_dropped_after_any_number_of_polls_is_stored_exactly_once() {
    for polls in 1.. {
        let setup = setup().await;
        let ended = poll_some(setup.commit(&[(0, 5)]), polls).await;
        assert!(
            setup
                .kafka
                .until(Duration::from_secs(30), |kafka| kafka.committed("g", "orders", 0) == Some(5))
                .await
        );
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(setup.commits_sent(), 1, "{polls}");
        if ended {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_commit_never_overtakes_the_one_after_it() {
    for delay in (0..400).step_by(20) {
        let setup = setup().await;
        // The first attempt is refused, so that the dropped one would have had a second.
        setup.kafka.fault(ApiKey::OffsetCommit).times(1).error(16);
        let patience = Duration::from_millis(delay);
        let dropped = tokio::time::timeout(patience, setup.commit(&[(0, 5), (1, 5)])).await;
        setup.commit_all(&[(0, 3)]).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(setup.stored(0), Some(3), "dropped after {delay} ms: {dropped:?}");
        assert!(setup.commits_sent() <= 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_select_loop_with_a_short_tick_gets_its_commits_through() {
    let setup = setup().await;
    setup.kafka.fault(ApiKey::OffsetCommit).always().delay_answer(Duration::from_millis(50));
    for offset in 1..=100 {
        let commit = setup.group.commit(offsets(&[(0, offset)]), Identity::anonymous(), within(60));
        drop(tokio::time::timeout(Duration::from_millis(10), commit).await);
    }
    assert!(setup.stored(0) >= Some(90), "{:?}", setup.stored(0));
    assert!(
        setup
            .kafka
            .until(Duration::from_secs(5), |kafka| kafka.committed("g", "orders", 0) == Some(100))
            .await
    );
    assert!(setup.commits_sent() < 30, "{}", setup.commits_sent());
}

#[tokio::test(start_paused = true)]
async fn a_read_dropped_after_any_number_of_polls_leaves_nothing_behind() {
    let setup = setup().await;
    setup.commit_all(&[(0, 5)]).await;
    for polls in 1.. {
        let ended = poll_some(setup.committed(&[0, 1]), polls).await;
        assert_eq!(setup.committed(&[0, 1]).await.unwrap(), [Some(5), None]);
        if ended {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_sent_when_the_consumer_is_dropped_never_is() {
    let Setup { kafka, cluster, _owner, group } = setup().await;
    kafka.set_coordinator_not_available(20);
    let commit = group.commit(offsets(&[(0, 5)]), Identity::anonymous(), within(60));
    drop(tokio::time::timeout(Duration::from_secs(1), commit).await);
    drop(group);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(kafka.requests_of(ApiKey::OffsetCommit).is_empty());
    assert_eq!(kafka.committed("g", "orders", 0), None);
    drop(cluster);
}

#[tokio::test(start_paused = true)]
async fn a_commit_dropped_between_two_attempts_has_no_second_one() {
    let setup = setup().await;
    setup.kafka.fault(ApiKey::OffsetCommit).times(1).error(14);
    // The first attempt is answered at once, the second is 80 to 120 ms away.
    let dropped = tokio::time::timeout(Duration::from_millis(50), setup.commit(&[(0, 5)])).await;
    assert!(dropped.is_err());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(setup.commits_sent(), 1);
    assert_eq!(setup.stored(0), None);
}
