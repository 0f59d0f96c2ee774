//! Every verb of the proxy, seen by a client and told by the log; for any cluster of two nodes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::{Duration, Instant};

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, BrokerId, DescribeClusterRequest, FetchRequest, FetchResponse,
    FindCoordinatorRequest, MetadataRequest,
};
use kafka_protocol::protocol::StrBytes;
use testkit::proxy::Then;
use testkit::{Client, Proxy};
use uuid::Uuid;

async fn fetch(
    client: &mut Client,
    id: Uuid,
    session: (i32, i32),
    named: bool,
) -> testkit::Result<FetchResponse> {
    let partitions = (0..2).map(|index| {
        FetchPartition::default().with_partition(index).with_fetch_offset(0).with_partition_max_bytes(1 << 20)
    });
    let topic = FetchTopic::default().with_topic_id(id).with_partitions(partitions.collect());
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(10)
        .with_min_bytes(1)
        .with_session_id(session.0)
        .with_session_epoch(session.1)
        .with_topics(if named { vec![topic] } else { Vec::new() });
    client.call(13, &request).await
}

/// `bootstrap` leads to nodes 1 and 2; `id` is that of the topic "t", whose partitions 0 and 1 are led by
/// node 1.
pub async fn every_verb_does_what_it_says(bootstrap: &str, id: Uuid) {
    let proxy = Proxy::start(bootstrap).await.unwrap();

    // Addresses of brokers are the proxy's, wherever they are told.
    let inside = proxy.bootstrap();
    let mut client = Client::connect(&proxy.node(1).unwrap()).await.unwrap();
    let metadata = client.call(12, &MetadataRequest::default()).await.unwrap();
    assert_eq!(metadata.brokers.len(), 2);
    assert!(
        metadata.brokers.iter().all(|broker| inside.contains(&format!("{}:{}", broker.host, broker.port)))
    );
    let key = StrBytes::from_static_str("g");
    let wanted = FindCoordinatorRequest::default().with_coordinator_keys(vec![key]);
    let found = client.call(4, &wanted).await.unwrap();
    assert!(inside.contains(&format!("127.0.0.1:{}", found.coordinators[0].port)));
    // The embedded broker has no such request.
    if client.versions(ApiKey::DescribeCluster as i16).is_some() {
        let cluster = client.call(0, &DescribeClusterRequest::default()).await.unwrap();
        assert!(cluster.brokers.iter().all(|broker| inside.contains(&format!("127.0.0.1:{}", broker.port))));
    }

    // ERR: once for one partition, by topic id, also where an incremental answer would not name it.
    let answer = fetch(&mut client, id, (0, 0), true).await.unwrap();
    let session = answer.session_id;
    assert_ne!(session, 0);
    let rule = proxy.on(ApiKey::Fetch).times(1).error_at("t", 1, 70);
    let answer = fetch(&mut client, id, (session, 1), false).await.unwrap();
    assert_eq!(answer.responses.len(), 1);
    let partition = &answer.responses[0].partitions[0];
    assert_eq!((partition.partition_index, partition.error_code), (1, 70));
    rule.hit(1).await.unwrap();
    let answer = fetch(&mut client, id, (session, 2), false).await.unwrap();
    assert!(answer.responses.is_empty());

    // The log tells sessions, partitions and codes.
    let log = proxy.log();
    let fetches: Vec<_> = log.iter().filter(|seen| seen.api == ApiKey::Fetch as i16).collect();
    assert_eq!(fetches.len(), 3);
    assert_eq!(fetches[1].fetch_session(), Some((session, 1)));
    assert_eq!(fetches[0].fetched().len(), 2);
    let told = fetches[1].answer::<FetchRequest>().unwrap();
    assert_eq!(told.responses[0].partitions[0].error_code, 70);

    // SET on answers and on requests, skipped and repeated.
    let set = proxy.on(ApiKey::Fetch).skip(1).every(2).edit::<FetchRequest>(|_, answer| {
        answer.throttle_time_ms = 7;
        true
    });
    let mut throttles = Vec::new();
    for epoch in 3..7 {
        throttles.push(fetch(&mut client, id, (session, epoch), false).await.unwrap().throttle_time_ms);
    }
    assert_eq!(throttles, [0, 7, 0, 7]);
    set.remove();
    let unsession = proxy.on(ApiKey::Fetch).times(1).edit_request::<FetchRequest>(|_, request| {
        request.session_id += 1;
        true
    });
    assert_eq!(fetch(&mut client, id, (session, 7), false).await.unwrap().error_code, 70);
    assert_eq!(unsession.hits(), 1);

    // DELAY and HOLD.
    let late = proxy.on(ApiKey::Fetch).times(1).delay(Duration::from_millis(200));
    let asked = Instant::now();
    fetch(&mut client, id, (0, -1), true).await.unwrap();
    assert!(asked.elapsed() >= Duration::from_millis(200));
    assert_eq!(late.hits(), 1);
    let hold = proxy.on(ApiKey::Fetch).hold();
    let held = tokio::spawn(async move {
        fetch(&mut client, id, (0, -1), true).await.unwrap();
        client
    });
    hold.hit(1).await.unwrap();
    assert!(!held.is_finished());
    hold.release();
    let mut client = held.await.unwrap();

    // CUT: before and after.
    proxy.on(ApiKey::Fetch).times(1).cut_before();
    assert!(fetch(&mut client, id, (0, -1), true).await.is_err());
    let mut client = Client::connect(&proxy.node(1).unwrap()).await.unwrap();
    proxy.on(ApiKey::Fetch).times(1).cut_after();
    assert!(fetch(&mut client, id, (0, -1), true).await.is_err());

    // HALF.
    let mut client = Client::connect(&proxy.node(1).unwrap()).await.unwrap();
    proxy.on(ApiKey::Fetch).times(1).half(6, Then::Close);
    assert!(fetch(&mut client, id, (0, -1), true).await.is_err());
    let mut client = Client::connect(&proxy.node(1).unwrap()).await.unwrap();
    let half = proxy.on(ApiKey::Fetch).times(1).half(6, Then::Stall);
    let stalled =
        tokio::time::timeout(Duration::from_millis(300), fetch(&mut client, id, (0, -1), true)).await;
    assert!(stalled.is_err() && half.hits() == 1);

    // BLACKHOLE, on a live connection and on new ones, and its end.
    let mut client = Client::connect(&proxy.node(1).unwrap()).await.unwrap();
    proxy.blackhole(1);
    let silent =
        tokio::time::timeout(Duration::from_millis(300), fetch(&mut client, id, (0, -1), true)).await;
    assert!(silent.is_err());
    let address = proxy.node(1).unwrap();
    let silent = tokio::time::timeout(Duration::from_millis(300), Client::connect(&address)).await;
    assert!(silent.is_err());
    proxy.heal(1);
    let mut client = Client::connect(&address).await.unwrap();
    fetch(&mut client, id, (0, -1), true).await.unwrap();

    // Down, up, another address.
    proxy.down(1).await.unwrap();
    assert!(fetch(&mut client, id, (0, -1), true).await.is_err());
    assert!(Client::connect(&address).await.is_err());
    proxy.up(1).unwrap();
    Client::connect(&address).await.unwrap();
    let moved = proxy.readdress(1).unwrap();
    assert_ne!(moved, address);
    let mut client = Client::connect(&address).await.unwrap();
    let metadata = client.call(12, &MetadataRequest::default()).await.unwrap();
    assert!(metadata.brokers.iter().any(|broker| moved == format!("127.0.0.1:{}", broker.port)));

    // A rule for one node leaves the other alone; a rule by chance strikes about as often.
    let seeded = proxy.on(ApiKey::ApiVersions).node(2).chance(0.5, 7).error(35);
    for _ in 0..40 {
        let mut client = Client::connect(&proxy.node(2).unwrap()).await.unwrap();
        client.call_at(0, &ApiVersionsRequest::default()).await.unwrap();
    }
    assert!((20..60).contains(&seeded.hits()), "{}", seeded.hits());
    seeded.remove();
    let mut client = Client::connect(&moved).await.unwrap();
    assert_eq!(client.call_at(0, &ApiVersionsRequest::default()).await.unwrap().error_code, 0);

    proxy.cut_all();
    assert_eq!(proxy.connections(None), 0);
}
