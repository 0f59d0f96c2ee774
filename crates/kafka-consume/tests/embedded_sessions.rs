//! Fetch sessions that are refused, withheld or lost: each record comes once, and no error surfaces.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position};
use kafka_protocol::messages::ApiKey;
use testkit::embedded::Embedded;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(300);

async fn read_through(disturb: impl Fn(&Embedded, u32)) {
    let broker = Embedded::start(2);
    broker.create_topic("t", 4);
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new());
    let all = (0..4).map(|partition| ("t".to_owned(), partition));
    consumer.assign(all, Position::Earliest).await.unwrap();
    let mut next = [0_i64; 4];
    for round in 0..60 {
        disturb(&broker, round);
        for partition in 0..4 {
            broker.append_records("t", partition, (0..10).map(|n| (n.to_string(), "v")));
        }
        let end = i64::from(round + 1) * 10;
        timeout(LIMIT, async {
            while next.iter().any(|next| *next < end) {
                for record in &consumer.poll().await.unwrap() {
                    let next = &mut next[usize::try_from(record.partition).unwrap()];
                    assert_eq!(record.offset, *next);
                    *next += 1;
                }
            }
        })
        .await
        .unwrap_or_else(|_| panic!("it stands still in round {round}: {next:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn refused_at_every_tenth_fetch() {
    for code in [70, 71] {
        read_through(|broker, round| {
            if round == 0 {
                broker.fault(ApiKey::Fetch).always().every(10).error(code);
            }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn never_given_out() {
    read_through(|broker, _| {
        broker.set_session_slots(1, 0);
        broker.set_session_slots(2, 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn expired_behind_the_back() {
    read_through(|broker, round| {
        if round % 3 == 0 {
            broker.expire_sessions(1);
            broker.expire_sessions(2);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lost_with_the_connection_before_and_after_the_request() {
    read_through(|broker, round| {
        if round == 0 {
            broker.fault(ApiKey::Fetch).always().every(7).drop_connection_before();
            broker.fault(ApiKey::Fetch).always().every(11).drop_connection_after();
        }
    })
    .await;
}
