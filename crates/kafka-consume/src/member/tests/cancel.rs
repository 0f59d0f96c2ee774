//! Polls and leaves dropped after any number of wake-ups, in every stage of a membership: join, callbacks, commit,
//! look-up, goodbye. Whatever is dropped, the next call goes on: nothing is lost, nothing comes twice.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use kafka_meta::wire::protocol::messages::ApiKey;
use kafka_meta::{Cluster, Result};
use kafka_read::Records;
use testkit::embedded::Embedded;

use super::actor::{Kind, Notary, start};
use super::book::{Book, GROUP};
use crate::ConsumerConfig;
use crate::member::Builder;

/// Polls `future` up to its `polls`th `Pending`, then drops it.
async fn until_pending<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left <= 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

struct Setup {
    kafka: Embedded,
    book: Arc<Mutex<Book>>,
    config: ConsumerConfig,
    slow: Arc<std::sync::atomic::AtomicU64>,
}

const PARTITIONS: i32 = 4;
const RECORDS: i64 = 10;

impl Setup {
    fn new() -> Setup {
        fastrand::seed(1);
        let kafka = Embedded::start(2);
        kafka.set_group_timing(Duration::from_secs(6), Duration::from_secs(1));
        kafka.create_topic("t", PARTITIONS);
        for partition in 0..PARTITIONS {
            kafka.append_records("t", partition, (0..RECORDS).map(|n| ("k", n.to_string())));
        }
        let config = ConsumerConfig::new()
            .max_wait_ms(200)
            .max_poll_records(7)
            .auto_commit_interval_ms(100_000)
            .with_session_timeout_ms(6_000)
            .with_heartbeat_interval_ms(1_000)
            .with_rebalance_timeout_ms(30_000);
        Setup { kafka, book: Arc::new(Mutex::new(Book::new())), config, slow: Arc::default() }
    }

    async fn member(&self, kind: Kind, number: usize) -> Builder {
        let cluster = Cluster::connect_with(self.kafka.config()).await.unwrap();
        let topics = ["t".to_owned()];
        let notary = |handle| Notary {
            number,
            handle,
            kafka: self.kafka.clone(),
            book: Arc::clone(&self.book),
            slow: Arc::clone(&self.slow),
        };
        kind.subscribe(cluster, self.config.clone(), &topics, notary).await.unwrap()
    }

    /// One poll of member 0, and what came of it.
    async fn poll(&self, member: &mut Builder) {
        self.book.lock().unwrap().processed(0);
        let records = member.poll().await;
        self.take(records);
    }

    fn take(&self, records: Result<Records>) {
        self.book.lock().unwrap().handed_out(0, &records.unwrap());
    }

    fn check(&self, what: &str) {
        let book = self.book.lock().unwrap();
        assert!(book.trouble.is_empty(), "{what}: {:?}\n{}", book.trouble, book.story());
    }

    fn all_read(&self) -> bool {
        let book = self.book.lock().unwrap();
        (0..PARTITIONS).all(|partition| book.prefix(&("t".to_owned(), partition)) == RECORDS)
    }
}

const KINDS: [Kind; 3] = [Kind::Consumer, Kind::Eager, Kind::Cooperative];

/// Every poll is dropped at its `drops`th wait for ever, but for a moment between them.
async fn read_all_through_drops(kind: Kind, drops: usize, gap: Duration) {
    let setup = Setup::new();
    setup.slow.store(5, Ordering::Relaxed);
    let mut member = setup.member(kind, 0).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while !setup.all_read() {
        let what = format!("{kind:?} dropped at wait {drops}, {gap:?} apart");
        if tokio::time::Instant::now() > deadline {
            panic!("{what}: stuck\n{}", setup.book.lock().unwrap().story());
        }
        setup.book.lock().unwrap().processed(0);
        match until_pending(member.poll(), drops).await {
            Some(records) => setup.take(records),
            None => tokio::time::sleep(gap).await,
        }
        setup.check(&what);
    }
    assert_each_once(&setup);
    member.leave(true).await.unwrap();
    for partition in 0..PARTITIONS {
        assert_eq!(setup.kafka.committed(GROUP, "t", partition), Some(RECORDS));
    }
}

fn assert_each_once(setup: &Setup) {
    let book = setup.book.lock().unwrap();
    assert_eq!(book.repeats(), 0, "{}", book.story());
}

#[tokio::test(start_paused = true)]
async fn a_join_goes_on_through_polls_that_are_always_dropped() {
    for kind in KINDS {
        // Callbacks take 5 ms and are begun anew by each poll: only a poll that waits twice gets through them.
        for drops in 2..12 {
            for gap in [0, 1, 50] {
                read_all_through_drops(kind, drops, Duration::from_millis(gap)).await;
            }
        }
    }
}

/// One poll is dropped at its `drops`th wait while another member joins; false when it ended before.
async fn one_drop_in_a_rebalance(kind: Kind, drops: usize, slow: u64) -> bool {
    let what = format!("{kind:?} dropped at wait {drops}, callbacks take {slow} ms");
    let setup = Setup::new();
    setup.slow.store(slow, Ordering::Relaxed);
    let mut member = setup.member(kind, 0).await;
    while setup.book.lock().unwrap().claims_of(0) == 0 {
        setup.poll(&mut member).await;
    }
    // A slow commit is a stage of its own.
    setup.kafka.fault(ApiKey::OffsetCommit).always().delay(Duration::from_millis(30));
    let cluster = Cluster::connect_with(setup.kafka.config()).await.unwrap();
    let other = start(1, kind, &setup.kafka, cluster, setup.config.clone(), &["t".to_owned()], &setup.book);
    let mut left = drops;
    let mut ended = true;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(100);
    let settled = || {
        let book = setup.book.lock().unwrap();
        book.claims_of(0) == 2 && book.claims_of(1) == 2
    };
    while !(settled() && setup.all_read()) {
        if tokio::time::Instant::now() > deadline {
            panic!("{what}: stuck\n{}", setup.book.lock().unwrap().story());
        }
        setup.book.lock().unwrap().processed(0);
        if left > 0 {
            // Waits are counted over polls, and one is dropped.
            let mut waits = 0;
            let mut poll = pin!(member.poll());
            let records = std::future::poll_fn(|context| match poll.as_mut().poll(context) {
                Poll::Ready(records) => Poll::Ready(Some(records)),
                Poll::Pending => {
                    waits += 1;
                    if waits >= left { Poll::Ready(None) } else { Poll::Pending }
                }
            })
            .await;
            left = left.saturating_sub(waits);
            match records {
                Some(records) => setup.take(records),
                None => ended = false,
            }
        } else {
            setup.poll(&mut member).await;
        }
        setup.check(&what);
    }
    assert_each_once(&setup);
    assert_eq!(setup.book.lock().unwrap().lost_calls, 0, "{what}");
    member.leave(true).await.unwrap();
    other.orders.leave.store(true, Ordering::Relaxed);
    other.task.await.unwrap();
    setup.check(&what);
    for partition in 0..PARTITIONS {
        assert_eq!(setup.kafka.committed(GROUP, "t", partition), Some(RECORDS), "{what}");
    }
    !ended
}

#[tokio::test(start_paused = true)]
async fn a_poll_dropped_at_any_wait_of_a_rebalance_repeats_nothing_and_loses_nothing() {
    for kind in KINDS {
        for slow in [0, 20] {
            let mut drops = 1;
            while one_drop_in_a_rebalance(kind, drops, slow).await {
                drops += 1;
                assert!(drops < 400, "{kind:?}: the rebalance never ends");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leave_dropped_at_any_wait_goes_on_when_called_again() {
    for kind in KINDS {
        for drops in 1.. {
            let setup = Setup::new();
            setup.slow.store(3, Ordering::Relaxed);
            let mut member = setup.member(kind, 0).await;
            while !setup.all_read() {
                setup.poll(&mut member).await;
            }
            setup.kafka.fault(ApiKey::OffsetCommit).always().delay(Duration::from_millis(30));
            let ended = until_pending(member.leave(true), drops).await.is_some();
            if !ended {
                tokio::time::sleep(Duration::from_millis(7)).await;
                member.leave(true).await.unwrap();
            }
            let what = format!("{kind:?} dropped at wait {drops}");
            setup.check(&what);
            assert!(setup.kafka.group_members(GROUP).is_empty(), "{what}");
            for partition in 0..PARTITIONS {
                assert_eq!(setup.kafka.committed(GROUP, "t", partition), Some(RECORDS), "{what}");
            }
            assert_eq!(member.poll().await.unwrap_err().kind(), crate::ErrorKind::Closed);
            if ended {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leave_that_is_dropped_for_good_ends_with_the_rebalance_timeout() {
    for kind in KINDS {
        let setup = Setup::new();
        let mut member = setup.member(kind, 0).await;
        while !setup.all_read() {
            setup.poll(&mut member).await;
        }
        setup.slow.store(1_000, Ordering::Relaxed);
        assert!(until_pending(member.leave(true), 1).await.is_none());
        assert_eq!(setup.kafka.group_members(GROUP).len(), 1);
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert!(setup.kafka.group_members(GROUP).is_empty(), "{kind:?}");
        member.leave(true).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_after_a_dropped_leave_ends_with_closed() {
    for kind in KINDS {
        let setup = Setup::new();
        let mut member = setup.member(kind, 0).await;
        while !setup.all_read() {
            setup.poll(&mut member).await;
        }
        setup.slow.store(10, Ordering::Relaxed);
        assert!(until_pending(member.leave(true), 1).await.is_none());
        let mut polls = 0;
        let error = loop {
            match member.poll().await {
                Ok(_) => polls += 1,
                Err(error) => break error,
            }
            assert!(polls < 100, "{kind:?} polls on for ever");
        };
        assert_eq!(error.kind(), crate::ErrorKind::Closed);
        assert!(setup.kafka.group_members(GROUP).is_empty());
    }
}

/// Panics once in each callback.
struct Panics {
    left: [bool; 3],
    inner: Notary,
}

impl Panics {
    fn once(&mut self, which: usize) {
        assert!(!std::mem::take(&mut self.left[which]), "on purpose");
    }
}

impl crate::RebalanceListener for Panics {
    fn on_revoke(
        &mut self,
        revoked: Vec<crate::RevokedPartition>,
    ) -> futures::future::BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let result = self.inner.on_revoke(revoked).await;
            self.once(0);
            result
        })
    }

    fn on_assign(&mut self, assigned: Vec<(String, i32)>) -> futures::future::BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let result = self.inner.on_assign(assigned).await;
            self.once(1);
            result
        })
    }

    fn on_lost(&mut self, lost: Vec<crate::RevokedPartition>) -> futures::future::BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let result = self.inner.on_lost(lost).await;
            self.once(2);
            result
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_lifts_its_gate() {
    use futures::FutureExt;
    for kind in KINDS {
        let setup = Setup::new();
        let mut member = setup.member(kind, 0).await;
        let notary = Notary {
            number: 0,
            handle: member.consumer.handle(),
            kafka: setup.kafka.clone(),
            book: Arc::clone(&setup.book),
            slow: Arc::default(),
        };
        member.set_listener(Panics { left: [true; 3], inner: notary });
        let mut panics = 0;
        let mut fenced = false;
        let mut other = None;
        for _ in 0..400 {
            setup.book.lock().unwrap().processed(0);
            match std::panic::AssertUnwindSafe(member.poll()).catch_unwind().await {
                Ok(records) => setup.take(records),
                Err(_) => panics += 1,
            }
            if setup.all_read() && panics == 1 && other.is_none() {
                let cluster = Cluster::connect_with(setup.kafka.config()).await.unwrap();
                let topics = ["t".to_owned()];
                other =
                    Some(start(1, kind, &setup.kafka, cluster, setup.config.clone(), &topics, &setup.book));
            }
            let shares = setup.book.lock().unwrap().claims_of(0) == 2;
            if panics == 2 && shares && !fenced {
                fenced = setup.kafka.remove_member(GROUP, member.member_id());
            }
            if panics == 3 && shares {
                break;
            }
        }
        setup.check(&format!("{kind:?}"));
        assert_eq!((panics, setup.book.lock().unwrap().claims_of(0)), (3, 2), "{kind:?}");
        member.leave(true).await.unwrap();
    }
}
