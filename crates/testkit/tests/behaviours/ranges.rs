//! Offsets, limits and waits of a Fetch.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::{ApiVersionsRequest, DeleteRecordsRequest, FetchRequest};
use tokio::time::Instant;

use super::raw::{Ask, Raw, RawBroker, at, batch, name, parts, produce, size, text};
use super::sessions::setup;

/// Bytes that make a batch of `size` bytes in all, more or less.
fn large(size: usize) -> Bytes {
    batch(&[&vec![b'x'; size]])
}

async fn delete_before(leader: &mut Raw, topic: &str, partition: i32, offset: i64) -> (i16, i64) {
    let asked = DeleteRecordsPartition::default().with_partition_index(partition).with_offset(offset);
    let topic = DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![asked]);
    let request = DeleteRecordsRequest::default().with_timeout_ms(10_000).with_topics(vec![topic]);
    let answer = leader.call(2, &request).await;
    let part = &answer.topics[0].partitions[0];
    (part.error_code, part.low_watermark)
}

pub async fn an_offset_outside_the_log_is_1_and_names_no_offsets(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for _ in 0..3 {
        produce(&mut s.leader, &s.topic, 0, batch(&[b"x"])).await;
    }
    assert_eq!(delete_before(&mut s.leader, &s.topic, 0, 2).await, (0, 2));
    for version in [4, 11, 12, 16] {
        for offset in [1, 5, -1] {
            let answer = Ask::new(version).add(&s.topic, s.id, 0, offset).of(&mut s.leader).await;
            let part = parts(&answer)[0];
            assert_eq!(part.error_code, 1, "offset {offset}, v{version}");
            assert_eq!((part.high_watermark, part.last_stable_offset, part.log_start_offset), (-1, -1, -1));
        }
    }
}

pub async fn deleting_records_past_the_end_is_1_and_minus_one_means_the_high_watermark(
    cluster: &mut dyn RawBroker,
) {
    let mut s = setup(cluster).await;
    produce(&mut s.leader, &s.topic, 0, batch(&[b"x"])).await;
    assert_eq!(delete_before(&mut s.leader, &s.topic, 0, 3).await.0, 1);
    assert_eq!(delete_before(&mut s.leader, &s.topic, 0, -1).await, (0, 2));
}

pub async fn a_fetch_at_the_end_waits_and_is_empty(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let asked = Instant::now();
    let answer = Ask::new(16).wait(300).add(&s.topic, s.id, 0, 1).of(&mut s.leader).await;
    assert!(asked.elapsed() >= Duration::from_millis(290));
    let part = parts(&answer)[0];
    assert_eq!((part.error_code, size(part), part.high_watermark), (0, 0, 1));
}

pub async fn an_offset_inside_a_batch_gives_the_whole_batch(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let written = produce(&mut s.leader, &s.topic, 1, batch(&[b"a", b"b", b"c"])).await;
    assert_eq!(written.base_offset, 0);
    let whole = Ask::new(16).add(&s.topic, s.id, 1, 0).of(&mut s.leader).await;
    let inside = Ask::new(16).add(&s.topic, s.id, 1, 2).of(&mut s.leader).await;
    assert_eq!(parts(&whole)[0].records, parts(&inside)[0].records);
}

pub async fn only_the_first_partition_with_data_gets_a_batch_over_the_limits(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for partition in [1, 2] {
        produce(&mut s.leader, &s.topic, partition, large(100_000)).await;
    }
    for limit in [0, 1000] {
        let mut ask = Ask::new(16);
        for partition in [0, 1, 2] {
            let from = i64::from(partition == 0);
            ask = ask.add_with(&s.topic, s.id, at(partition, from).with_partition_max_bytes(limit));
        }
        for max_bytes in [1000, 50 << 20] {
            ask.request.max_bytes = max_bytes;
            let answer = ask.of(&mut s.leader).await;
            let sizes: Vec<usize> = parts(&answer).iter().map(|part| size(part)).collect();
            assert_eq!(sizes.len(), 3);
            assert!(sizes[1] > 100_000, "the whole first batch: {sizes:?}");
            assert_eq!((sizes[0], sizes[2]), (0, 0));
        }
    }
}

pub async fn later_batches_are_cut_at_the_limit(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for _ in 0..3 {
        produce(&mut s.leader, &s.topic, 1, large(100_000)).await;
    }
    let ask = Ask::new(16).add_with(&s.topic, s.id, at(1, 0).with_partition_max_bytes(150_000));
    assert_eq!(size(parts(&ask.of(&mut s.leader).await)[0]), 150_000);
    let mut ask = Ask::new(16).add(&s.topic, s.id, 1, 0);
    ask.request.max_bytes = 150_000;
    assert_eq!(size(parts(&ask.of(&mut s.leader).await)[0]), 150_000);
}

pub async fn fetch_order_decides_who_gets_the_bytes(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for partition in [1, 2] {
        produce(&mut s.leader, &s.topic, partition, large(100_000)).await;
    }
    for order in [[1, 2], [2, 1]] {
        let mut ask = Ask::new(16).add(&s.topic, s.id, order[0], 0).add(&s.topic, s.id, order[1], 0);
        ask.request.max_bytes = 120_000;
        let answer = ask.of(&mut s.leader).await;
        let got: Vec<(i32, bool)> =
            parts(&answer).iter().map(|part| (part.partition_index, size(part) > 0)).collect();
        assert_eq!(got, [(order[0], true), (order[1], false)]);
    }
}

pub async fn too_few_bytes_wait_the_whole_time(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut ask = Ask::new(16).wait(400).add(&s.topic, s.id, 0, 0);
    ask.request.min_bytes = 10 << 20;
    let asked = Instant::now();
    let answer = ask.of(&mut s.leader).await;
    assert!(asked.elapsed() >= Duration::from_millis(390));
    assert!(size(parts(&answer)[0]) > 0);
}

pub async fn no_minimum_or_no_wait_answers_at_once(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for (wait, min_bytes) in [(8000, 0), (0, 1)] {
        let mut ask = Ask::new(16).wait(wait).add(&s.topic, s.id, 0, 1);
        ask.request.min_bytes = min_bytes;
        let asked = Instant::now();
        let answer = ask.of(&mut s.leader).await;
        assert!(asked.elapsed() < Duration::from_secs(5));
        assert_eq!(size(parts(&answer)[0]), 0);
    }
}

pub async fn a_waiting_fetch_is_answered_by_a_produce(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut other = s.view.leader(&s.topic).await;
    let ask = Ask::new(16).wait(20_000).add(&s.topic, s.id, 0, 1);
    let asked = Instant::now();
    let (answer, _) = tokio::join!(ask.of(&mut s.leader), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        produce(&mut other, &s.topic, 0, batch(&[b"late"])).await
    });
    assert!(asked.elapsed() < Duration::from_secs(10));
    assert!(size(parts(&answer)[0]) > 0);
}

pub async fn a_waiting_fetch_blocks_its_socket(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let ask = Ask::new(16).wait(600).add(&s.topic, s.id, 0, 1);
    let asked = Instant::now();
    let first = s.leader.send(16, &ask.request).await;
    let versions = ApiVersionsRequest::default()
        .with_client_software_name(text("raw"))
        .with_client_software_version(text("1"));
    let second = s.leader.send(3, &versions).await;
    let (correlation, _) = s.leader.receive::<FetchRequest>(16).await.unwrap();
    assert_eq!(correlation, first);
    let (correlation, _) = s.leader.receive::<ApiVersionsRequest>(3).await.unwrap();
    assert_eq!(correlation, second);
    assert!(asked.elapsed() >= Duration::from_millis(590));
}
