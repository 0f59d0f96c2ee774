//! What is read: topics filled with 64 KiB batches, and a slow producer for latencies.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::protocol::StrBytes;
use kafka_read::batch::write::{BatchOptions, BatchWriter};
use testkit::Client;
use testkit::Kafka;

/// v9 still names topics.
const VERSION: i16 = 9;

fn request(topic: &str, partition: i32, batch: BatchWriter) -> ProduceRequest {
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(batch.finish().unwrap().freeze()));
    let topic = TopicProduceData::default()
        .with_name(StrBytes::from_string(topic.to_owned()).into())
        .with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![topic])
}

/// Sends until it is taken: a new leader may refuse at first.
async fn send(client: &mut Client, request: &ProduceRequest) {
    let begun = Instant::now();
    loop {
        let answer = client.call_at(VERSION, request).await.unwrap();
        let mut parts = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        match parts.find(|part| part.error_code != 0) {
            None => return,
            Some(refused) => assert!(begun.elapsed() < Duration::from_secs(10), "{refused:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn millis() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Creates a topic of six partitions with `records` records of `value` bytes; as in peer-figures, random bytes at 100
/// bytes, text at 1 KiB; 8-byte keys.
pub async fn fill(kafka: &Kafka, topic: &str, value: usize, records: i64) {
    kafka.create_topic(topic, 6, 1, &[]).await.unwrap();
    let mut client = kafka.client(1).await.unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let mut bytes = vec![b' '; value];
    let mut left = records;
    for partition in (0..6).cycle() {
        if left == 0 {
            return;
        }
        let mut batch = BatchWriter::with_capacity(BatchOptions::default(), 64 << 10);
        while left > 0 && batch.len() + value + 32 <= 64 << 10 {
            if value == 100 {
                random.fill(&mut bytes);
            } else {
                let event = format!("{{\"id\":{},\"user\":\"u{}\"}}", random.u64(..), random.u32(..));
                bytes[..event.len()].copy_from_slice(event.as_bytes());
            }
            batch.push(millis(), Some(&random.u64(..).to_be_bytes()), Some(&bytes), &[]).unwrap();
            left -= 1;
        }
        send(&mut client, &request(topic, partition, batch)).await;
    }
}

/// A record each millisecond for `seconds`, each sent alone with its time of sending in front of its value.
pub fn produce_at_rate(bootstrap: &str, partitions: i32, seconds: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Client::connect(bootstrap).await.unwrap();
        let begun = Instant::now();
        for number in 0..seconds * 1_000 {
            let due = Duration::from_millis(number);
            if let Some(wait) = due.checked_sub(begun.elapsed()) {
                tokio::time::sleep(wait).await;
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
            let value = format!("{now:019}{:81}", "");
            let mut batch = BatchWriter::new(BatchOptions::default());
            batch.push(millis(), None, Some(value.as_bytes()), &[]).unwrap();
            let partition = i32::try_from(number).unwrap() % partitions;
            send(&mut client, &request("latency", partition, batch)).await;
        }
    });
}
