//! Nodes, leaders and logs of the embedded cluster under its control handle.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, MetadataRequest, MetadataResponse};
use kafka_read::batch::scan;
use testkit::embedded::{Embedded, Release, TopicSpec};
use tokio::time::Instant;

mod behaviours;
use behaviours::raw::{Ask, Raw, batch, list, name, parts, produce, size};

async fn node(kafka: &Embedded, id: i32) -> Raw {
    Raw::connect(&kafka.connector(), &format!("node-{id}.embedded"), 9092).await.unwrap()
}

async fn refuses(kafka: &Embedded, host: &str) -> bool {
    Raw::connect(&kafka.connector(), host, 9092).await.is_err()
}

async fn metadata(raw: &mut Raw, topic: &str) -> MetadataResponse {
    let wanted = MetadataRequestTopic::default().with_name(Some(name(topic)));
    raw.call(12, &MetadataRequest::default().with_topics(Some(vec![wanted]))).await
}

#[tokio::test(start_paused = true)]
async fn a_stopped_node_drops_its_clients_and_hands_over() {
    let kafka = Embedded::start(3);
    kafka.create_topic_with("t", TopicSpec::new(0).with_placement(vec![vec![1, 2], vec![1]]));
    let mut idle = node(&kafka, 1).await;
    let mut waiting = node(&kafka, 1).await;
    waiting.send(16, &Ask::new(16).wait(60_000).add("t", kafka.topic_id("t"), 0, 0).request).await;
    assert!(kafka.until(Duration::from_secs(1), |kafka| !kafka.requests_of(ApiKey::Fetch).is_empty()).await);
    let before = Instant::now();
    assert!(kafka.stop_node(1));
    assert!(idle.frame().await.is_err());
    assert!(waiting.frame().await.is_err());
    assert!(before.elapsed() < Duration::from_secs(1));
    assert!(refuses(&kafka, "node-1.embedded").await);
    let seen = metadata(&mut node(&kafka, 2).await, "t").await;
    assert_eq!(seen.brokers.len(), 2);
    let (moved, lost) = (&seen.topics[0].partitions[0], &seen.topics[0].partitions[1]);
    assert_eq!((moved.leader_id.0, moved.leader_epoch, moved.error_code), (2, 1, 0));
    assert_eq!((lost.leader_id.0, lost.error_code), (-1, 5));
    assert!(kafka.start_node(1));
    let seen = metadata(&mut node(&kafka, 1).await, "t").await;
    assert_eq!(seen.brokers.len(), 3);
    assert_eq!(seen.topics[0].partitions[1].leader_id.0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_killed_node_is_named_until_it_is_given_up() {
    let kafka = Embedded::start(2);
    kafka.create_topic_with("t", TopicSpec::new(0).with_placement(vec![vec![1, 2]]));
    kafka.kill_node(1);
    assert!(refuses(&kafka, "node-1.embedded").await);
    let mut other = node(&kafka, 2).await;
    assert_eq!(metadata(&mut other, "t").await.topics[0].partitions[0].leader_id.0, 1);
    kafka.fail_over(1);
    assert_eq!(metadata(&mut other, "t").await.topics[0].partitions[0].leader_id.0, 2);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_node_answers_when_it_thaws() {
    let kafka = Embedded::start(1);
    kafka.create_topic("t", 1);
    let mut old = node(&kafka, 1).await;
    kafka.freeze_node(1);
    let mut new = node(&kafka, 1).await;
    for raw in [&mut old, &mut new] {
        raw.send(12, &MetadataRequest::default()).await;
    }
    assert!(tokio::time::timeout(Duration::from_secs(600), old.frame()).await.is_err());
    kafka.thaw_node(1);
    for raw in [&mut old, &mut new] {
        assert!(raw.frame().await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_address_replaces_the_old_one() {
    let kafka = Embedded::start(2);
    let mut old = node(&kafka, 2).await;
    assert!(kafka.set_address(2, "moved.embedded", 9999));
    assert!(old.frame().await.is_err());
    assert!(refuses(&kafka, "node-2.embedded").await);
    let seen = metadata(&mut node(&kafka, 1).await, "t").await;
    assert_eq!((seen.brokers[1].host.to_string(), seen.brokers[1].port), ("moved.embedded".to_owned(), 9999));
    assert!(Raw::connect(&kafka.connector(), "moved.embedded", 9999).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_full_session_cache_gives_data_and_no_session() {
    let kafka = Embedded::start(1);
    kafka.create_topic("t", 1);
    kafka.append_records("t", 0, [("k", "v")]);
    kafka.set_session_slots(1, 1);
    let ask = Ask::new(16).session(0, 0).add("t", kafka.topic_id("t"), 0, 0);
    let (mut one, mut two) = (node(&kafka, 1).await, node(&kafka, 1).await);
    let id = ask.of(&mut one).await.session_id;
    assert_ne!(id, 0);
    let answer = ask.of(&mut two).await;
    assert_eq!((answer.session_id, answer.error_code), (0, 0));
    assert!(size(parts(&answer)[0]) > 0);
    kafka.expire_sessions(1);
    assert_eq!(Ask::new(16).session(id, 1).of(&mut one).await.error_code, 70);
}

#[tokio::test(start_paused = true)]
async fn an_idle_wait_costs_one_wake_up_and_no_turns() {
    let kafka = Embedded::start(1);
    kafka.create_topic("t", 1);
    let mut raw = node(&kafka, 1).await;
    let ask = Ask::new(16).wait(3_600_000).add("t", kafka.topic_id("t"), 0, 0);
    let asked = Instant::now();
    ask.of(&mut raw).await;
    assert_eq!(asked.elapsed().as_secs(), 3600);
}

#[tokio::test(start_paused = true)]
async fn an_unclean_election_shows_as_divergence() {
    let kafka = Embedded::start(2);
    kafka.create_topic_with("t", TopicSpec::new(0).with_placement(vec![vec![1, 2]]));
    for _ in 0..4 {
        kafka.append_records("t", 0, [("k", "v"), ("k", "w")]);
    }
    kafka.truncate("t", 0, 5, 3);
    assert_eq!(kafka.log_end("t", 0), 5, "no batch ends there, so the batch that crosses it is gone whole");
    assert_eq!(kafka.leader("t", 0), Some((1, 3)));
    kafka.append_records("t", 0, [("k", "new")]);
    let mut raw = node(&kafka, 1).await;
    let partition = behaviours::raw::at(0, 8).with_last_fetched_epoch(0);
    let answer = Ask::new(16).add_with("t", kafka.topic_id("t"), partition).of(&mut raw).await;
    let part = parts(&answer)[0];
    assert_eq!((part.diverging_epoch.epoch, part.diverging_epoch.end_offset), (0, 5));
}

#[tokio::test(start_paused = true)]
async fn a_high_watermark_held_back_hides_records_until_it_moves() {
    let kafka = Embedded::start(1);
    kafka.create_topic("t", 1);
    kafka.append_records("t", 0, [("k", "v")]);
    kafka.set_high_watermark("t", 0, Some(1));
    kafka.append_records("t", 0, [("k", "v")]);
    let mut raw = node(&kafka, 1).await;
    let ask = Ask::new(16).wait(10_000).add("t", kafka.topic_id("t"), 0, 1);
    let asked = Instant::now();
    let (answer, ()) = tokio::join!(ask.of(&mut raw), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        kafka.set_high_watermark("t", 0, None);
    });
    assert_eq!(asked.elapsed().as_secs(), 2);
    assert_eq!(parts(&answer)[0].high_watermark, 2);
    assert!(size(parts(&answer)[0]) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_lagging_follower_serves_what_it_has() {
    let kafka = Embedded::start(2);
    kafka.create_topic_with("t", TopicSpec::new(0).with_placement(vec![vec![1, 2]]));
    for _ in 0..3 {
        kafka.append_records("t", 0, [("k", "v")]);
    }
    kafka.set_follower("t", 0, 2, Some((2, 1)));
    let mut follower = node(&kafka, 2).await;
    let id = kafka.topic_id("t");
    let answer = Ask::new(16).add("t", id, 0, 0).of(&mut follower).await;
    let part = parts(&answer)[0];
    assert_eq!(part.high_watermark, 1);
    assert_eq!(scan(part.records.clone().unwrap()).count(), 1);
    assert_eq!(size(parts(&Ask::new(16).add("t", id, 0, 2).of(&mut follower).await)[0]), 0);
    assert_eq!(parts(&Ask::new(16).add("t", id, 0, 3).of(&mut follower).await)[0].error_code, 1);
    kafka.set_follower("t", 0, 2, None);
    assert!(size(parts(&Ask::new(16).add("t", id, 0, 2).of(&mut follower).await)[0]) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_compacted_hole_is_passed_over() {
    let kafka = Embedded::start(1);
    kafka.create_topic("t", 1);
    for _ in 0..4 {
        kafka.append_records("t", 0, [("k", "v")]);
    }
    kafka.replace("t", 0, 1, 3, bytes::Bytes::new());
    let mut raw = node(&kafka, 1).await;
    let answer = Ask::new(16).add("t", kafka.topic_id("t"), 0, 1).of(&mut raw).await;
    let batches: Vec<_> = scan(parts(&answer)[0].records.clone().unwrap()).map(Result::unwrap).collect();
    assert_eq!((batches.len(), batches[0].header.base_offset), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn append_time_is_stamped_and_the_checksum_stays_good() {
    let kafka = Embedded::start(1);
    kafka.create_topic_with("t", TopicSpec::new(1).with_log_append_time());
    kafka.append_at("t", 0, &[1, 2, 3]);
    let mut raw = node(&kafka, 1).await;
    assert_eq!(produce(&mut raw, "t", 0, behaviours::raw::batch_at(&[5])).await.error_code, 0);
    let found = list(&mut raw, 7, "t", 0, -3, false).await;
    assert_eq!(found.offset, 0);
    assert!(found.timestamp > 1_000_000);
    for stored in kafka.stored("t", 0) {
        scan(stored).next().unwrap().unwrap().verify(true).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn transactions_of_the_control_handle_are_seen_by_readers() {
    let kafka = Embedded::start(1);
    kafka.create_topic("t", 1);
    let mut open = kafka.begin("tx");
    assert_eq!(open.append("t", 0, ["a", "b"]), 0);
    assert_eq!((kafka.high_watermark("t", 0), kafka.last_stable_offset("t", 0)), (2, 0));
    open.abort();
    assert_eq!(kafka.last_stable_offset("t", 0), 3);
    let mut open = kafka.begin("tx");
    assert_eq!(open.append("t", 0, ["c"]), 3);
    open.commit();
    let mut raw = node(&kafka, 1).await;
    let answer = Ask::new(16).committed().add("t", kafka.topic_id("t"), 0, 0).of(&mut raw).await;
    assert_eq!(parts(&answer)[0].aborted_transactions.as_ref().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_decides_what_is_spoken() {
    let kafka = Embedded::start(1);
    kafka.set_release(Release::V3_7);
    kafka.create_topic("t", 1);
    kafka.append_at("t", 0, &[1, 2]);
    let mut raw = node(&kafka, 1).await;
    let own = ApiVersionsRequest::default()
        .with_client_software_name(behaviours::raw::text("raw"))
        .with_client_software_version(behaviours::raw::text("1"));
    let answer = raw.call(3, &own).await;
    let range = |key: i16| {
        let found = answer.api_keys.iter().find(|range| range.api_key == key).unwrap();
        (found.min_version, found.max_version)
    };
    assert_eq!((range(0).1, range(1).1, range(2).1, range(3).1), (10, 16, 8, 12));
    // 3.7 takes a sentinel it does not know as a timestamp.
    assert_eq!(list(&mut raw, 8, "t", 0, -5, false).await.offset, 0);
    raw.send(17, &Ask::new(17).request).await;
    assert!(raw.frame().await.is_err(), "an unknown version closes the socket");
}

#[tokio::test]
async fn tcp_works_as_memory_does() {
    let kafka = Embedded::tcp(2).await.unwrap();
    kafka.create_topic_with("t", TopicSpec::new(0).with_placement(vec![vec![2]]));
    let seen = {
        let bootstrap = kafka.bootstrap();
        let (host, port) = bootstrap.split(',').next().unwrap().rsplit_once(':').unwrap();
        let mut raw = Raw::connect(&kafka.connector(), host, port.parse().unwrap()).await.unwrap();
        metadata(&mut raw, "t").await
    };
    assert_eq!(seen.brokers.len(), 2);
    let broker = &seen.brokers[1];
    let port = u16::try_from(broker.port).unwrap();
    let mut raw = Raw::connect(&kafka.connector(), &broker.host, port).await.unwrap();
    assert_eq!(produce(&mut raw, "t", 0, batch(&[b"x"])).await.base_offset, 0);
    let answer = Ask::new(16).add("t", kafka.topic_id("t"), 0, 0).of(&mut raw).await;
    assert!(size(parts(&answer)[0]) > 0);
    kafka.stop_node(2);
    assert!(raw.frame().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn only_3_9_answers_a_committed_reader_above_the_last_stable_offset_at_once() {
    for (release, waits) in [(Release::V3_7, true), (Release::V3_9, false), (Release::V4_3, true)] {
        let kafka = Embedded::start(1);
        kafka.set_release(release);
        kafka.create_topic("t", 1);
        let mut open = kafka.begin("tx");
        open.append("t", 0, ["a", "b", "c"]);
        let mut raw = node(&kafka, 1).await;
        let asked = Instant::now();
        Ask::new(16).committed().wait(500).add("t", kafka.topic_id("t"), 0, 2).of(&mut raw).await;
        assert_eq!(asked.elapsed() >= Duration::from_millis(500), waits, "{release:?}");
        open.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn old_formats_and_damaged_bytes_are_served_as_they_are() {
    use kafka_read::batch::write::legacy::{Message, put_message, put_wrapper};
    let kafka = Embedded::start(1);
    kafka.create_topic("t", 1);
    kafka.append_records("t", 0, [("k", "v")]);
    let message = |offset| Message { offset, value: Some("old".into()), ..Message::default() };
    let mut old = Vec::new();
    put_message(&mut old, 1, 0, &message(0));
    put_message(&mut old, 0, 0, &message(1));
    put_wrapper(&mut old, 1, kafka_read::batch::Codec::Gzip, None, &[message(2), message(3)]).unwrap();
    assert_eq!(kafka.append("t", 0, old.into()), 1);
    assert_eq!(kafka.log_end("t", 0), 5);
    let mut damaged = kafka.stored("t", 0)[0].to_vec();
    damaged[..8].copy_from_slice(&5_i64.to_be_bytes());
    *damaged.last_mut().unwrap() ^= 0xff;
    assert_eq!(kafka.append_raw_damaged("t", 0, damaged.clone().into(), 6), 5);
    assert_eq!(kafka.append_records("t", 0, [("k", "v")]), 6);
    let mut raw = node(&kafka, 1).await;
    let id = kafka.topic_id("t");
    let answer = Ask::new(16).add("t", id, 0, 0).of(&mut raw).await;
    let batches: Vec<_> = scan(parts(&answer)[0].records.clone().unwrap()).map(Result::unwrap).collect();
    let offsets: Vec<(u8, i64)> =
        batches.iter().map(|batch| (batch.header.magic, batch.header.last_offset())).collect();
    assert_eq!(offsets, [(2, 0), (1, 1), (0, 2), (1, 4), (2, 5), (2, 6)]);
    assert!(batches[4].verify(true).is_err());
    // Inside the wrapper: the wrapper comes whole.
    let inside = Ask::new(16).add("t", id, 0, 3).of(&mut raw).await;
    assert_eq!(scan(parts(&inside)[0].records.clone().unwrap()).next().unwrap().unwrap().header.magic, 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_may_not_have_heard_of_an_election() {
    let kafka = Embedded::start(2);
    kafka.create_topic_with("t", TopicSpec::new(0).with_placement(vec![vec![1, 2]]));
    kafka.set_stale_metadata(1, true);
    kafka.move_leader("t", 0, 2);
    let (mut old, mut new) = (node(&kafka, 1).await, node(&kafka, 2).await);
    for (raw, leader) in [(&mut old, (1, 0)), (&mut new, (2, 1))] {
        let partition = &metadata(raw, "t").await.topics[0].partitions[0];
        assert_eq!((partition.leader_id.0, partition.leader_epoch), leader);
    }
    kafka.set_stale_metadata(1, false);
    assert_eq!(metadata(&mut old, "t").await.topics[0].partitions[0].leader_id.0, 2);
}
