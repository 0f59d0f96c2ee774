//! What exactly once means, read from the outside: the committed output holds each input record below the group's
//! committed offset once and in order, and none above.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position, Visibility};

use super::value;

/// The committed output: input partition → numbers, in the order of the output.
pub async fn read_output(cluster: &Cluster, topic: &str, outputs: i32) -> BTreeMap<i32, Vec<i64>> {
    let config = ConsumerConfig::new().visibility(Visibility::CommittedOnly).max_wait_ms(100);
    let mut consumer = Consumer::new(cluster.clone(), config);
    let all = (0..outputs).map(|partition| (topic.to_owned(), partition));
    consumer.assign(all, Position::Earliest).await.expect("the output can be read");
    let mut seen: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    let reading = async {
        while !consumer.caught_up() {
            for record in consumer.poll().await.expect("a poll of the output") {
                note(&mut seen, &record.value.expect("a value"));
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), reading).await.expect("the output ends");
    seen
}

/// Counts one record of the output.
pub fn note(seen: &mut BTreeMap<i32, Vec<i64>>, text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap();
    let (partition, number) = text.split_once(':').expect("a known value");
    seen.entry(partition.parse().unwrap()).or_default().push(number.parse().unwrap());
}

/// Compares the output with what the group has committed: partition → offset.
pub fn judge(seen: &BTreeMap<i32, Vec<i64>>, committed: &BTreeMap<i32, i64>) -> Result<(), String> {
    for (partition, offset) in committed {
        let got = seen.get(partition).cloned().unwrap_or_default();
        let want: Vec<i64> = (0..*offset).collect();
        if got == want {
            continue;
        }
        let mut sorted = got.clone();
        sorted.sort_unstable();
        let twice: Vec<String> = sorted
            .windows(2)
            .filter(|pair| pair[0] == pair[1])
            .map(|pair| value(*partition, pair[0]))
            .collect();
        let lost: Vec<String> =
            want.iter().filter(|number| !got.contains(number)).map(|n| value(*partition, *n)).collect();
        let early: Vec<String> =
            got.iter().filter(|number| **number >= *offset).map(|n| value(*partition, *n)).collect();
        return Err(format!(
            "partition {partition}, committed {offset}: twice {twice:?}, lost {lost:?}, without their offset {early:?}, \
             in order: {}",
            got.is_sorted()
        ));
    }
    Ok(())
}
