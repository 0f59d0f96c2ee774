//! KIP-848 members whose coordinator is killed and comes back: nobody owns what another owns, and each record is
//! read once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod group_support;

use std::sync::{Arc, Mutex};

use group_support::{Kind, PATIENCE, Seen, Topics, settled, start, until};
use kafka_consume::Cluster;
use testkit::{Kafka, kafka};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_live_through_the_death_of_their_coordinator() {
    if !kafka::enabled() {
        return;
    }
    // The group's default session of 45 s: a fail-over on a loaded machine must not cost anybody's membership.
    let kafka = Kafka::builder().nodes(3).start().await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    let mut topics = Topics::create(&kafka, &["failover"], 6, 3).await;
    topics.write(50).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut members = Vec::new();
    for number in 0..3 {
        let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
        members.push(start(number, Kind::Consumer, cluster, "g", &topics.names, Arc::clone(&seen)));
    }
    settled("the group", &seen, &topics.all, &[0, 1, 2]).await;
    let coordinator = kafka.group_coordinator("g").await.unwrap();
    kafka.kill_node(coordinator).unwrap();
    // A new coordinator serves the members: one of them can go.
    members.remove(0).leave().await;
    settled("a leave without the node", &seen, &topics.all, &[1, 2]).await;
    kafka.restart_node(coordinator).await.unwrap();
    kafka.wait_in_sync("failover").await.unwrap();
    topics.reconnect(&kafka);
    topics.write(50).await;
    until("everything is read", PATIENCE, || seen.lock().unwrap().read() == topics.total()).await;
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    members.push(start(3, Kind::Consumer, cluster, "g", &topics.names, Arc::clone(&seen)));
    settled("a join after it", &seen, &topics.all, &[1, 2, 3]).await;
    for member in members {
        member.leave().await;
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.shared, Vec::<String>::new(), "two members owned a partition");
    seen.assert_each_once(&topics.all, topics.each);
    assert!(seen.calls.values().all(|(_, _, lost)| *lost == 0), "{:?}", seen.calls);
}
