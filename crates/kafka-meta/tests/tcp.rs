//! Over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;

use bytes::Bytes;
use kafka_meta::client::{Lane, To};
use kafka_meta::wire::frame::FrameReader;
use kafka_meta::{Cluster, ClusterConfig};
use kafka_protocol::messages::FetchRequest;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::Instant;

use support::{MODERN, api_versions, brokers, encode, framed};

/// A broker on 127.0.0.1 whose Fetch answers are eight megabytes long.
async fn broker() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut reader = FrameReader::new(1 << 20);
                while let Ok(Some(frame)) = reader.next(&mut socket).await {
                    let request = support::read(frame, "127.0.0.1", port, 0);
                    let body = match request.key {
                        18 => encode(&api_versions(MODERN), request.version),
                        // The first bytes are a throttle time.
                        1 => Bytes::from(vec![0; 8 << 20]),
                        _ => encode(&brokers(&[(1, "127.0.0.1", port)]), request.version),
                    };
                    if socket.write_all(&framed(&request, &body)).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// A port nobody listens on.
async fn closed_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn a_refused_address_is_followed_by_the_next_and_large_answers_come_whole() {
    let (down, up) = (closed_port().await, broker().await);
    let config = ClusterConfig::new(&format!("127.0.0.1:{down},localhost:{up}"));
    let start = Instant::now();
    let cluster = Cluster::connect_with(config).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
    let owner = cluster.owner();
    let deadline = Instant::now() + Duration::from_secs(30);
    for _ in 0..4 {
        let answer = cluster
            .call_raw(To::Node(1), &owner.via(Lane::Fetch), deadline, 4..=17, |_| Ok(FetchRequest::default()))
            .await
            .unwrap();
        assert_eq!((answer.version, answer.node, answer.body.len()), (17, 1, 8 << 20));
    }
}

#[tokio::test]
async fn a_cluster_that_refuses_is_named_in_the_error() {
    let down = closed_port().await;
    let config =
        ClusterConfig::new(&format!("127.0.0.1:{down}")).with_request_timeout(Duration::from_millis(500));
    let start = Instant::now();
    let error = Cluster::connect_with(config).await.unwrap_err();
    assert!(error.to_string().contains(&down.to_string()), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_peer_that_says_nothing_costs_the_connect_timeout_and_no_more() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let silent = listener.local_addr().unwrap().port();
    let up = broker().await;
    let config = ClusterConfig::new(&format!("127.0.0.1:{silent},127.0.0.1:{up}"))
        .with_connect_timeout(Duration::from_millis(200));
    Cluster::connect_with(config).await.unwrap();
}
