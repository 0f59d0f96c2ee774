//! Field bugs about positions, on the embedded broker under the paused clock: out of range, lagging followers,
//! missing commits, topics made anew, pauses, seeks. Names begin with the ids of `docs/testing.md`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

mod support;

use std::time::Duration;

use kafka_consume::{Cluster, Consumer, ConsumerConfig, ErrorKind, OffsetReset, Position};
use kafka_protocol::messages::{ApiKey, FetchResponse, MetadataResponse, OffsetFetchResponse};
use support::{LIMIT, Offsets, Oracle, one, poll_error, poll_until, read_some, read_to, stay_empty};
use testkit::embedded::{Embedded, TopicSpec};
use tokio::time::{sleep, timeout};

fn fill(broker: &Embedded, topic: &str, partition: i32, batches: usize, each: usize) {
    for batch in 0..batches {
        let records = (0..each).map(|n| (format!("k{n}"), format!("{}", batch * each + n)));
        broker.append_records(topic, partition, records);
    }
}

async fn consumer(broker: &Embedded, config: ConsumerConfig) -> Consumer {
    Consumer::new(Cluster::connect_with(broker.config()).await.unwrap(), config)
}

fn at(topic: &str, offset: i64) -> Offsets {
    [((topic.to_owned(), 0), offset)].into()
}

fn asked_below_zero(broker: &Embedded) -> bool {
    broker
        .requests_of(ApiKey::Fetch)
        .iter()
        .filter_map(|seen| seen.fetch.as_ref())
        .any(|fetch| fetch.partitions.iter().any(|(_, _, offset)| *offset < 0))
}

#[tokio::test(start_paused = true)]
async fn fb20_retention_overtakes_the_committed_offset() {
    for (reset, wanted) in
        [(OffsetReset::Earliest, Some(8)), (OffsetReset::Latest, Some(20)), (OffsetReset::None, None)]
    {
        // What an error entry says of the log's start has no meaning, whatever it says.
        for log_start in [-1, 8] {
            let broker = Embedded::start(1);
            broker.create_topic("t", 2);
            fill(&broker, "t", 0, 10, 2);
            fill(&broker, "t", 1, 10, 2);
            broker.commit("g", "t", 0, 5);
            broker.delete_records("t", 0, 8);
            broker.fault(ApiKey::Fetch).always().map(move |answer: &mut FetchResponse| {
                for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
                    if partition.error_code == 1 {
                        partition.log_start_offset = log_start;
                    }
                }
            });
            let config = ConsumerConfig::new().group_id("g").auto_offset_reset(reset.clone());
            let mut consumer = consumer(&broker, config).await;
            let position = Position::Committed(Box::new(Position::Latest));
            // The first refusal may be there before the position is told, and then `assign` tells it.
            let mut found = consumer.assign(one("t", 0), position).await.err();
            consumer.assign_more([(("t".to_owned(), 1), Position::Earliest)]).await.unwrap();
            if let Some(wanted) = wanted {
                let mut oracle = Oracle::rising();
                oracle.expect_from("t", 0, wanted);
                let ends = [(("t".to_owned(), 0), 20), (("t".to_owned(), 1), 20)].into();
                read_to(&mut consumer, &ends, &mut oracle).await;
                assert_eq!(oracle.count, 20 + (20 - wanted) as usize);
                assert_eq!(consumer.metrics().resets, 1);
            } else {
                let mut others = 0;
                let read = timeout(LIMIT, async {
                    while others < 20 || found.is_none() {
                        match consumer.poll().await {
                            Ok(records) => others += records.len(),
                            Err(error) => found = Some(error),
                        }
                    }
                });
                read.await.unwrap();
                let error = found.unwrap();
                assert_eq!(error.kind(), ErrorKind::OffsetOutOfRange, "{error}");
                assert_eq!((error.partition(), error.offset()), (Some(0), Some(5)));
            }
            assert!(!asked_below_zero(&broker));
        }
    }
}

/// Leader on node 1, the reader's rack on node 2.
fn racked(topic: &str) -> Embedded {
    let broker = Embedded::start(3);
    broker.set_rack(1, "a");
    broker.set_rack(2, "b");
    broker.set_rack(3, "c");
    broker.set_rack_aware(true);
    broker.create_topic_with(topic, TopicSpec::new(1).with_placement(vec![vec![1, 2, 3]]));
    broker
}

async fn at_the_follower(broker: &Embedded, consumer: &mut Consumer) {
    let there = |consumer: &Consumer| {
        consumer.metrics().partitions.iter().all(|one| one.preferred_read_replica == Some(2))
    };
    let waited = timeout(LIMIT, async {
        while !there(consumer) {
            consumer.poll().await.unwrap();
        }
    });
    waited.await.unwrap();
    assert!(broker.count(ApiKey::Fetch) > 0);
}

#[tokio::test(start_paused = true)]
async fn fb21_a_lagging_follower_resets_nothing() {
    let broker = racked("t");
    fill(&broker, "t", 0, 10, 2);
    let mut consumer = consumer(&broker, ConsumerConfig::new().rack("b")).await;
    consumer.assign(one("t", 0), Position::Offset(10)).await.unwrap();
    let mut oracle = Oracle::strict();
    oracle.expect_from("t", 0, 10);
    read_to(&mut consumer, &at("t", 20), &mut oracle).await;
    at_the_follower(&broker, &mut consumer).await;
    // A leader sends nobody to a follower that lacks the offset; this one lost what it had.
    broker.set_follower("t", 0, 2, Some((5, 5)));
    fill(&broker, "t", 0, 1, 5);
    consumer.seek("t", 0, 12).unwrap();
    oracle.expect_from("t", 0, 12);
    read_to(&mut consumer, &at("t", 25), &mut oracle).await;
    assert_eq!((oracle.count, consumer.metrics().resets), (10 + 13, 0));
    let asked: Vec<(i32, i64)> = broker
        .requests_of(ApiKey::Fetch)
        .iter()
        .flat_map(|seen| seen.fetch.clone().unwrap().partitions.into_iter().map(|(_, _, at)| (seen.node, at)))
        .collect();
    assert!(asked.iter().any(|(node, at)| *node == 2 && *at == 12), "the follower was asked: {asked:?}");
    assert!(asked.iter().all(|(_, at)| *at >= 10), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn fb21_a_late_refusal_of_a_follower_that_is_none_any_more_resets_nothing() {
    let broker = racked("t");
    fill(&broker, "t", 0, 10, 2);
    let cluster =
        Cluster::connect_with(broker.config().with_metadata_max_age(Duration::from_secs(1))).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new().rack("b"));
    consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
    let mut oracle = Oracle::strict();
    read_to(&mut consumer, &at("t", 20), &mut oracle).await;
    at_the_follower(&broker, &mut consumer).await;
    // Its refusal is on the way while the leader moves, which ends the preference.
    let refused = broker.fault(ApiKey::Fetch).node(2).times(1).error(1);
    let held = broker.fault(ApiKey::Fetch).node(2).times(1).hold_answer();
    assert!(broker.until(LIMIT, |_| held.hits() > 0).await);
    broker.move_leader("t", 0, 3);
    for _ in 0..10 {
        consumer.poll().await.unwrap();
    }
    held.release();
    fill(&broker, "t", 0, 1, 5);
    read_to(&mut consumer, &at("t", 25), &mut oracle).await;
    assert!(refused.hits() > 0);
    assert_eq!((oracle.count, consumer.metrics().resets), (25, 0));
}

#[tokio::test(start_paused = true)]
async fn fb21_a_lease_that_ends_stalls_nothing() {
    let broker = racked("t");
    let config = broker.config().with_metadata_max_age(Duration::from_secs(2));
    let cluster = Cluster::connect_with(config).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new().rack("b"));
    consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
    let (mut oracle, mut end) = (Oracle::strict(), 0);
    for _ in 0..10 {
        fill(&broker, "t", 0, 1, 5);
        end += 5;
        let start = tokio::time::Instant::now();
        read_to(&mut consumer, &at("t", end), &mut oracle).await;
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        stay_empty(&mut consumer, Duration::from_millis(1_700)).await;
    }
    let at_leader = broker.requests_of(ApiKey::Fetch).iter().filter(|seen| seen.node == 1).count();
    assert!((4..40).contains(&at_leader), "the leader is asked once a lease, and parted from: {at_leader}");
}

#[tokio::test(start_paused = true)]
async fn fb21_a_dead_follower_is_left_at_once_and_a_frozen_one_in_time() {
    for freeze in [false, true] {
        let broker = racked("t");
        fill(&broker, "t", 0, 10, 2);
        let config = broker.config().with_request_timeout(Duration::from_secs(2));
        let cluster = Cluster::connect_with(config).await.unwrap();
        let mut consumer = Consumer::new(cluster, ConsumerConfig::new().rack("b"));
        consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
        let mut oracle = Oracle::strict();
        read_to(&mut consumer, &at("t", 20), &mut oracle).await;
        at_the_follower(&broker, &mut consumer).await;
        if freeze {
            broker.freeze_node(2);
        } else {
            broker.kill_node(2);
        }
        fill(&broker, "t", 0, 1, 5);
        let start = tokio::time::Instant::now();
        read_to(&mut consumer, &at("t", 25), &mut oracle).await;
        let limit = Duration::from_millis(if freeze { 6_000 } else { 2_000 });
        assert!(start.elapsed() < limit, "freeze {freeze}: {:?}", start.elapsed());
        assert_eq!(consumer.metrics().resets, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn fb23_only_none_lets_the_policy_decide() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 2);
    fill(&broker, "t", 0, 10, 2);
    broker.commit("g", "t", 0, 7);
    let config = || ConsumerConfig::new().group_id("g").auto_offset_reset(OffsetReset::Latest);
    let position = || Position::Committed(Box::new(Position::Latest));

    // Unknown: the answer is lost, or has no entry for the partition, or says that the offset is unstable.
    let lost = broker.fault(ApiKey::OffsetFetch).times(2).drop_connection_after();
    let missing =
        broker.fault(ApiKey::OffsetFetch).skip(2).times(2).map(|answer: &mut OffsetFetchResponse| {
            answer.topics.clear();
            answer.groups.iter_mut().for_each(|group| group.topics.clear());
        });
    let mut first = consumer(&broker, config()).await;
    first.assign(one("t", 0), position()).await.unwrap();
    assert_eq!(first.position("t", 0), Some(7));
    assert!(lost.hits() == 2 && missing.hits() == 2, "{} {}", lost.hits(), missing.hits());

    broker.set_offset_unstable("g", "t", 0, true);
    let mut second = consumer(&broker, config()).await;
    let early = timeout(Duration::from_secs(5), second.assign(one("t", 0), position())).await;
    assert!(early.is_err(), "it waits");
    assert_eq!(second.position("t", 0), None);
    broker.set_offset_unstable("g", "t", 0, false);
    poll_until_some(&mut second).await;

    // None: the policy named in the assignment.
    let mut third = consumer(&broker, config()).await;
    third.assign(one("t", 1), Position::Committed(Box::new(Position::Offset(0)))).await.unwrap();
    assert_eq!(third.position("t", 1), Some(0));
}

async fn poll_until_some(consumer: &mut Consumer) {
    let records = read_some(consumer, 13).await;
    assert_eq!(records[0].offset, 7);
}

#[tokio::test(start_paused = true)]
async fn fb39_a_topic_made_anew_starts_by_the_policy() {
    for (reset, wanted) in [(OffsetReset::Earliest, 0), (OffsetReset::Latest, 0), (OffsetReset::None, -1)] {
        let broker = Embedded::start(1);
        broker.create_topic("t", 1);
        broker.create_topic("other", 1);
        fill(&broker, "t", 0, 10, 10);
        let config = broker.config().with_metadata_max_age(Duration::from_secs(5));
        let cluster = Cluster::connect_with(config).await.unwrap();
        let config = ConsumerConfig::new().group_id("g").auto_offset_reset(reset.clone());
        let mut consumer = Consumer::new(cluster, config);
        consumer.assign([("t".to_owned(), 0), ("other".to_owned(), 0)], Position::Earliest).await.unwrap();
        let mut oracle = Oracle::strict();
        read_to(&mut consumer, &at("t", 100), &mut oracle).await;
        broker.clear_requests();
        broker.recreate_topic("t");
        if wanted < 0 {
            let error = poll_error(&mut consumer).await;
            assert_eq!((error.kind(), error.topic()), (ErrorKind::NoOffset, Some("t")), "{error}");
            assert_eq!(consumer.position("t", 0), None, "the old topic's position is gone");
        } else {
            poll_until(&mut consumer, "the new topic", |consumer| consumer.position("t", 0) == Some(wanted))
                .await;
            fill(&broker, "t", 0, 1, 30);
            let mut oracle = Oracle::strict();
            read_to(&mut consumer, &at("t", 30), &mut oracle).await;
            consumer.commit().await.unwrap();
            assert_eq!(broker.committed("g", "t", 0), Some(30));
        }
        fill(&broker, "other", 0, 1, 5);
        assert_eq!(read_some(&mut consumer, 5).await.len(), 5, "other topics go on");
        let fetches = broker.count(ApiKey::Fetch);
        assert!(fetches < 100, "{fetches} fetches: no flood");
    }
}

#[tokio::test(start_paused = true)]
async fn fb39_a_deleted_topic_is_told_once_and_floods_nobody() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    broker.create_topic("other", 1);
    fill(&broker, "t", 0, 1, 10);
    let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
    consumer.assign([("t".to_owned(), 0), ("other".to_owned(), 0)], Position::Earliest).await.unwrap();
    read_some(&mut consumer, 10).await;
    broker.delete_topic("t");
    let error = poll_error(&mut consumer).await;
    assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some("t")), "{error}");
    broker.clear_requests();
    stay_empty(&mut consumer, Duration::from_secs(60)).await;
    let (fetches, metadata) = (broker.count(ApiKey::Fetch), broker.count(ApiKey::Metadata));
    assert!(fetches < 250 && metadata < 90, "{fetches} fetches and {metadata} metadata requests in a minute");
    broker.create_topic("t", 1);
    fill(&broker, "t", 0, 1, 3);
    assert_eq!(read_some(&mut consumer, 3).await[0].offset, 0);
}

#[tokio::test(start_paused = true)]
async fn fb47_a_pause_lasts_while_the_partition_stays_and_refetches_nothing() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 6);
    for partition in 0..6 {
        fill(&broker, "t", partition, 10, 10);
    }
    let mut consumer = consumer(&broker, ConsumerConfig::new().max_poll_records(10)).await;
    let all = || support::partitions("t", 6);
    consumer.assign(all(), Position::Earliest).await.unwrap();
    // Everything is buffered by now; what is paused stays there and is not asked for again.
    read_some(&mut consumer, 10).await;
    for partition in [1, 2] {
        consumer.pause("t", partition);
    }
    let (mut oracle, before) = (Oracle::rising(), [consumer.position("t", 1), consumer.position("t", 2)]);
    for _ in 0..60 {
        oracle.take_all(&consumer.poll().await.unwrap());
    }
    assert_eq!([consumer.position("t", 1), consumer.position("t", 2)], before, "seen by the next poll");
    broker.clear_requests();
    for partition in [1, 2] {
        consumer.resume("t", partition);
    }
    let ends: Offsets = all().into_iter().map(|key| (key, 100)).collect();
    read_to(&mut consumer, &ends, &mut oracle).await;
    let again = broker.requests_of(ApiKey::Fetch).iter().any(|seen| {
        seen.fetch
            .iter()
            .flat_map(|fetch| &fetch.partitions)
            .any(|(_, index, at)| [1, 2].contains(index) && *at < 100)
    });
    assert!(!again, "what was buffered is not fetched again");

    // Kept while it stays assigned, gone once it has left; also when both happen between two polls.
    consumer.pause("t", 1);
    consumer.pause("t", 2);
    for _ in 0..20 {
        consumer.assign([("t".to_owned(), 0), ("t".to_owned(), 1)], Position::Latest).await.unwrap();
        assert_eq!(consumer.paused(), one("t", 1));
        consumer.assign_more([(("t".to_owned(), 2), Position::Latest)]).await.unwrap();
        assert_eq!(consumer.paused(), one("t", 1));
        consumer.pause("t", 2);
        consumer.unassign(one("t", 2));
    }
}

/// A caller who pauses to hold records back must not have them fetched over and over.
#[tokio::test(start_paused = true)]
async fn fb47_what_is_under_way_when_a_pause_comes_is_kept() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    fill(&broker, "t", 0, 1, 10);
    let held = broker.fault(ApiKey::Fetch).times(1).hold_answer();
    let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
    consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
    assert!(broker.until(LIMIT, |_| held.hits() == 1).await);
    consumer.pause("t", 0);
    held.release();
    stay_empty(&mut consumer, Duration::from_secs(2)).await;
    consumer.resume("t", 0);
    assert_eq!(read_some(&mut consumer, 10).await[0].offset, 0);
    let from_start =
        broker.requests_of(ApiKey::Fetch).into_iter().flat_map(|seen| seen.fetch.unwrap().partitions);
    assert_eq!(from_start.filter(|(_, _, offset)| *offset == 0).count(), 1, "fetched once");
}

#[tokio::test(start_paused = true)]
async fn fb48_the_next_record_is_the_one_sought() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    fill(&broker, "t", 0, 100, 10);
    broker.fault(ApiKey::Fetch).always().delay_answer(Duration::from_millis(200));
    let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
    consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
    let handle = consumer.handle();
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..1_000 {
        let offset = random.i64(0..1_000);
        let wait = Duration::from_millis(random.u64(0..300));
        let mut last_wait = None;
        // Every third one from another task, while the poll may be waiting for an older answer.
        if round % 3 == 0 {
            let handle = handle.clone();
            let sought = tokio::spawn(async move {
                sleep(wait).await;
                handle.seek("t", 0, offset).unwrap();
            });
            last_wait = Some(sought);
            let _ = timeout(wait, consumer.poll()).await;
        } else {
            consumer.seek("t", 0, offset).unwrap();
        }
        if let Some(sought) = last_wait {
            sought.await.unwrap();
        }
        assert_eq!(consumer.position("t", 0), Some(offset));
        let records = timeout(LIMIT, async {
            loop {
                let records = consumer.poll().await.unwrap();
                if !records.is_empty() {
                    return records;
                }
            }
        });
        assert_eq!(records.await.unwrap().iter().next().unwrap().offset, offset, "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn fb48_what_was_fetched_for_an_earlier_assignment_is_dropped() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    fill(&broker, "t", 0, 10, 10);
    let held = broker.fault(ApiKey::Fetch).times(1).hold_answer();
    let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
    consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
    assert!(broker.until(LIMIT, |_| held.hits() == 1).await);
    consumer.unassign(one("t", 0));
    consumer.assign_more([(("t".to_owned(), 0), Position::Offset(50))]).await.unwrap();
    held.release();
    assert_eq!(read_some(&mut consumer, 50).await[0].offset, 50);

    // A seek while paused, and one before the first position is known.
    consumer.pause("t", 0);
    consumer.seek("t", 0, 10).unwrap();
    consumer.resume("t", 0);
    assert_eq!(read_some(&mut consumer, 90).await[0].offset, 10);
    let late = broker.fault(ApiKey::ListOffsets).times(1).hold_answer();
    let _ = timeout(Duration::from_millis(100), consumer.assign(one("t", 0), Position::Earliest)).await;
    consumer.seek("t", 0, 77).unwrap();
    late.release();
    assert_eq!(read_some(&mut consumer, 23).await[0].offset, 77);
}

/// Records come before errors, but a reader that always finds records must learn of its faults too.
#[tokio::test(start_paused = true)]
async fn fb20_an_error_does_not_wait_behind_records_for_ever() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 2);
    fill(&broker, "t", 0, 2_000, 5);
    fill(&broker, "t", 1, 1, 5);
    let config = ConsumerConfig::new().auto_offset_reset(OffsetReset::None).max_poll_records(5);
    let mut consumer = consumer(&broker, config).await;
    consumer.assign(support::partitions("t", 2), Position::Earliest).await.unwrap();
    read_some(&mut consumer, 20).await;
    consumer.seek("t", 1, 99).unwrap();
    let mut records = 0;
    let error = loop {
        match consumer.poll().await {
            Ok(more) => records += more.len(),
            Err(error) => break error,
        }
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((error.kind(), error.partition()), (ErrorKind::OffsetOutOfRange, Some(1)), "{error}");
    assert!(records < 1_000, "{records} of 10,000 records were returned first");
}

/// An incremental answer repeats no watermark: what an overtaken answer said of the log must not be lost.
#[tokio::test(start_paused = true)]
async fn fb48_a_seek_does_not_lose_what_the_overtaken_answer_knew() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    fill(&broker, "t", 0, 1, 10);
    let held = broker.fault(ApiKey::Fetch).times(1).hold_answer();
    let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
    consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
    assert!(broker.until(LIMIT, |_| held.hits() == 1).await);
    consumer.seek("t", 0, 10).unwrap();
    held.release();
    let known = |consumer: &Consumer| consumer.lag("t", 0) == Some(0) && consumer.caught_up();
    poll_until(&mut consumer, "the end to be known", known).await;
}

/// The broker takes a partition that left and came back between two fetches for one that never left.
#[tokio::test(start_paused = true)]
async fn fb48_a_partition_out_and_back_in_keeps_what_is_known_of_its_log() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    fill(&broker, "t", 0, 1, 10);
    let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
    consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
    read_some(&mut consumer, 10).await;
    let known = |consumer: &Consumer| consumer.lag("t", 0) == Some(0) && consumer.caught_up();
    for _ in 0..3 {
        consumer.unassign(one("t", 0));
        consumer.assign_more([(("t".to_owned(), 0), Position::Offset(10))]).await.unwrap();
        poll_until(&mut consumer, "the end to be known", known).await;
    }
    // The same, and the news came while it was out.
    let held = broker.fault(ApiKey::Fetch).times(1).hold_answer();
    assert!(broker.until(LIMIT, |_| held.hits() == 1).await);
    fill(&broker, "t", 0, 1, 10);
    consumer.unassign(one("t", 0));
    held.release();
    consumer.assign_more([(("t".to_owned(), 0), Position::Latest)]).await.unwrap();
    poll_until(&mut consumer, "the end to be known", known).await;
    assert_eq!(consumer.position("t", 0), Some(20));
}

/// One broker is behind and goes on telling the old topic's id: nobody goes back to it.
#[tokio::test(start_paused = true)]
async fn fb39_a_broker_that_still_tells_the_old_topic_is_not_believed() {
    let broker = Embedded::start(3);
    broker.create_topic_with("t", TopicSpec::new(1).with_placement(vec![vec![1]]));
    fill(&broker, "t", 0, 10, 10);
    let config = broker.config().with_metadata_max_age(Duration::from_millis(300));
    let mut consumer = Consumer::new(Cluster::connect_with(config).await.unwrap(), ConsumerConfig::new());
    consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
    read_to(&mut consumer, &at("t", 100), &mut Oracle::strict()).await;
    let old = broker.topic_id("t");
    // Every second answer, as if two brokers were asked by turns.
    let behind =
        broker.fault(ApiKey::Metadata).every(2).always().map(move |answer: &mut MetadataResponse| {
            answer.topics.iter_mut().for_each(|topic| topic.topic_id = old);
        });
    broker.recreate_topic("t");
    poll_until(&mut consumer, "the new topic", |consumer| consumer.position("t", 0) == Some(0)).await;
    let mut oracle = Oracle::strict();
    for round in 1..=20 {
        fill(&broker, "t", 0, 1, 5);
        read_to(&mut consumer, &at("t", round * 5), &mut oracle).await;
        stay_empty(&mut consumer, Duration::from_millis(700)).await;
    }
    assert_eq!(consumer.position("t", 0), Some(100));
    assert!(behind.hits() > 5, "{} answers told the old id", behind.hits());
}
