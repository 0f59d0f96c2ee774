//! Requests and answers through a cluster: lanes, late answers, cancelled requests, throttling, moves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kafka_meta::client::{Lane, To, Via};
use kafka_meta::{Cluster, ErrorKind};
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, ListGroupsRequest, OffsetCommitRequest, OffsetForLeaderEpochRequest,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use support::{MODERN, Reaction, Request, Script, answer, api_versions, basics, brokers, encode, framed};

const ONE: &[(i32, &str, u16)] = &[(1, "one", 9092)];
const HEARTBEAT: i16 = 12;

fn heartbeat(member: &str) -> HeartbeatRequest {
    HeartbeatRequest::default().with_member_id(StrBytes::from_string(member.to_owned()))
}

fn member(request: &Request) -> String {
    request.decode::<HeartbeatRequest>().member_id.to_string()
}

/// Error codes tell answers apart.
fn beat(request: &Request, code: i16) -> Bytes {
    encode(&HeartbeatResponse::default().with_error_code(code), request.version)
}

fn soon(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

async fn cluster(script: &Arc<Script>) -> Cluster {
    Cluster::connect_with(script.config("one:9092")).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_connection_are_pipelined_and_answered_each() {
    let script = Script::new(|request| match request.key {
        HEARTBEAT => Reaction::Answer(beat(request, member(request).parse().unwrap())),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let (owner, beats) = (cluster.owner(), 0i16..50);
    let via = owner.via(Lane::Group);
    let calls = beats.map(|code| {
        let (cluster, via) = (cluster.clone(), via.clone());
        async move {
            let response =
                cluster.call(To::Node(1), &via, soon(5), heartbeat(&code.to_string())).await.unwrap();
            assert_eq!(response.error_code, code);
        }
    });
    futures::future::join_all(calls).await;
    let connections: Vec<_> = script.requests(HEARTBEAT).iter().map(|request| request.connection).collect();
    assert!(connections.iter().all(|connection| *connection == connections[0]));
    assert_eq!(script.requests(HEARTBEAT)[0].client_id.as_deref(), Some("kafka-rs"));
}

#[tokio::test(start_paused = true)]
async fn lanes_and_owners_never_wait_for_each_other() {
    let script = Script::new(|request| match request.key {
        HEARTBEAT if member(request) == "parked" => Reaction::Silence,
        HEARTBEAT => Reaction::Answer(beat(request, 0)),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let (one, two) = (cluster.owner(), cluster.owner());
    let via = one.via(Lane::Join);
    let parked = cluster.call(To::Node(1), &via, soon(20), heartbeat("parked"));
    let others = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        for via in [one.via(Lane::Group), one.via(Lane::Fetch), two.via(Lane::Join), Via::control()] {
            cluster.call(To::Node(1), &via, soon(1), heartbeat("free")).await.unwrap();
        }
    };
    let (parked, ()) = tokio::join!(parked, others);
    assert_eq!(parked.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(script.attempts().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_dropped_and_the_connection_goes_on() {
    let script = Script::new(|request| match request.key {
        HEARTBEAT if member(request) == "slow" => Reaction::Later(Duration::from_secs(5), beat(request, 1)),
        HEARTBEAT => Reaction::Answer(beat(request, 2)),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let owner = cluster.owner();
    let via = owner.via(Lane::Group);
    let error = cluster.call(To::Node(1), &via, soon(1), heartbeat("slow")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().starts_with("Heartbeat"), "{error}");
    let response = cluster.call(To::Node(1), &via, soon(10), heartbeat("quick")).await.unwrap();
    assert_eq!(response.error_code, 2);
    let requests = script.requests(HEARTBEAT);
    assert_eq!(requests[0].connection, requests[1].connection);
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_in_mid_write_leaves_a_whole_frame_on_the_wire() {
    // Three bytes fit; the broker starts to read after a second.
    let (near, far) = tokio::io::duplex(3);
    let pipe = std::sync::Mutex::new(Some((near, far)));
    #[derive(Debug)]
    struct Slow(std::sync::Mutex<Option<(tokio::io::DuplexStream, tokio::io::DuplexStream)>>);
    impl kafka_meta::transport::Connector for Slow {
        fn connect<'a>(
            &'a self,
            _host: &'a str,
            _port: u16,
        ) -> futures::future::BoxFuture<'a, std::io::Result<kafka_meta::transport::BoxStream>> {
            Box::pin(async move {
                let Some((near, mut far)) = self.0.lock().unwrap().take() else {
                    return Err(std::io::ErrorKind::ConnectionRefused.into());
                };
                tokio::spawn(async move {
                    use tokio::io::AsyncWriteExt;
                    let mut reader = kafka_meta::wire::frame::FrameReader::new(1 << 20);
                    while let Ok(Some(frame)) = reader.next(&mut far).await {
                        let request = support::read(frame, "one", 9092, 0);
                        let reply = match request.key {
                            HEARTBEAT => beat(&request, member(&request).parse().unwrap()),
                            18 => encode(&api_versions(MODERN), request.version),
                            _ => encode(&brokers(ONE), request.version),
                        };
                        let _ = far.write_all(&framed(&request, &reply)).await;
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                });
                Ok(Box::new(near) as kafka_meta::transport::BoxStream)
            })
        }
    }
    let config = kafka_meta::ClusterConfig::new("one:9092").with_connector(Arc::new(Slow(pipe)));
    let cluster = Cluster::connect_with(config).await.unwrap();
    let via = Via::control();
    // The broker is busy for most of a second: the write stalls after three bytes.
    let dropped = cluster.call(To::Node(1), &via, soon(10), heartbeat("11"));
    assert!(tokio::time::timeout(Duration::from_millis(100), dropped).await.is_err());
    for code in 12..15 {
        let response = cluster.call(To::Node(1), &via, soon(20), heartbeat(&code.to_string())).await.unwrap();
        assert_eq!(response.error_code, code);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_another_request_ends_the_connection() {
    let script = Script::new(|request| match request.key {
        HEARTBEAT if request.connection == 1 => {
            let mut wrong = request.clone();
            wrong.correlation += 1;
            Reaction::Raw(framed(&wrong, &beat(request, 0)))
        }
        HEARTBEAT => Reaction::Answer(beat(request, 0)),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let owner = cluster.owner();
    let via = owner.via(Lane::Group);
    let error = cluster.call(To::Node(1), &via, soon(5), heartbeat("m")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    assert!(error.to_string().contains("correlation id"), "{error}");
    cluster.call(To::Node(1), &via, soon(5), heartbeat("m")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_never_answers_costs_the_connection_after_the_request_timeout() {
    let script = Script::new(|request| match request.key {
        HEARTBEAT if request.connection == 1 => Reaction::Silence,
        HEARTBEAT => Reaction::Answer(beat(request, 0)),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let owner = cluster.owner();
    let via = owner.via(Lane::Group);
    let start = Instant::now();
    while cluster.call(To::Node(1), &via, soon(4), heartbeat("m")).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "stuck on a dead connection");
    }
    assert!(start.elapsed() >= Duration::from_secs(30));
    assert_eq!(script.attempts().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_hangs_up_between_requests_costs_nothing() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    let script = Script::new(move |request| match request.key {
        HEARTBEAT if count.fetch_add(1, Ordering::SeqCst) % 2 == 1 => Reaction::Close,
        HEARTBEAT => Reaction::Answer(beat(request, 0)),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let owner = cluster.owner();
    let via = owner.via(Lane::Group);
    cluster.call(To::Node(1), &via, soon(5), heartbeat("m")).await.unwrap();
    let error = cluster.call(To::Node(1), &via, soon(5), heartbeat("m")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    assert!(error.is_retriable());
    cluster.call(To::Node(1), &via, soon(5), heartbeat("m")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_throttled_answer_comes_at_once_and_the_next_request_waits() {
    let script = Script::new(|request| match request.key {
        HEARTBEAT => Reaction::Answer(encode(
            &HeartbeatResponse::default().with_throttle_time_ms(2_000),
            request.version,
        )),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let owner = cluster.owner();
    let via = owner.via(Lane::Group);
    let start = Instant::now();
    cluster.call(To::Node(1), &via, soon(5), heartbeat("m")).await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(100));
    // Another lane of the same node is another socket: not muted.
    cluster.call(To::Node(1), &owner.via(Lane::Fetch), soon(5), heartbeat("m")).await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(100));
    cluster.call(To::Node(1), &via, soon(5), heartbeat("m")).await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    // A caller that cannot wait that long is told in time, and its request is never sent.
    let error = cluster.call(To::Node(1), &via, soon(1), heartbeat("late")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("throttles"), "{error}");
    cluster.call(To::Node(1), &via, soon(5), heartbeat("m")).await.unwrap();
    assert!(script.requests(HEARTBEAT).iter().all(|request| member(request) != "late"));
}

#[tokio::test(start_paused = true)]
async fn connections_close_with_their_owner() {
    let script = Script::new(|request| match request.key {
        HEARTBEAT => Reaction::Answer(beat(request, 0)),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let owner = cluster.owner();
    for lane in [Lane::Join, Lane::Group, Lane::Fetch] {
        cluster.call(To::Node(1), &owner.via(lane), soon(5), heartbeat("m")).await.unwrap();
    }
    let via = owner.via(Lane::Group);
    drop(owner);
    assert_eq!(script.open(), 4);
    drop(via);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(script.open(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_moved_is_found_at_its_new_address_and_the_old_connection_ends() {
    let moved = Arc::new(AtomicBool::new(false));
    let flag = moved.clone();
    let script = Script::new(move |request| match request.key {
        HEARTBEAT if request.host == "old" => Reaction::Silence,
        HEARTBEAT => Reaction::Answer(beat(request, 0)),
        _ => {
            let at = if flag.load(Ordering::SeqCst) { "new" } else { "old" };
            basics(request, &[(1, at, 9092)]).unwrap()
        }
    });
    let cluster = cluster(&script).await;
    let owner = cluster.owner();
    let via = owner.via(Lane::Group);
    let waiting = cluster.call(To::Node(1), &via, soon(20), heartbeat("m"));
    let moving = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        moved.store(true, Ordering::SeqCst);
        cluster.refreshed(&[], soon(5)).await.unwrap();
    };
    let (waiting, ()) = tokio::join!(waiting, moving);
    assert_eq!(waiting.unwrap_err().kind(), ErrorKind::Disconnected);
    cluster.call(To::Node(1), &via, soon(5), heartbeat("m")).await.unwrap();
    assert_eq!(script.requests(HEARTBEAT).last().unwrap().host, "new");
}

#[tokio::test(start_paused = true)]
async fn a_node_nobody_knows_is_asked_for_and_then_an_error() {
    let script = Script::new(|request| basics(request, ONE).unwrap());
    let cluster = cluster(&script).await;
    let start = Instant::now();
    for _ in 0..20 {
        let error = cluster.call(To::Node(7), &Via::control(), soon(30), heartbeat("m")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    }
    // A caller that insists does not spin.
    assert!(start.elapsed() > Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(script.requests(3).len() <= 22);
}

#[tokio::test(start_paused = true)]
async fn what_a_broker_does_not_list_is_not_sent() {
    let script = Script::new(|request| basics(request, ONE).unwrap());
    let cluster = cluster(&script).await;
    let via = Via::control();
    let error = cluster.call(To::Node(1), &via, soon(5), ListGroupsRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedApi, "{error}");
    let error =
        cluster.call_with(To::Node(1), &via, soon(5), 5..=9, |_| Ok(heartbeat("m"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedApi, "{error}");
    assert!(script.requests(HEARTBEAT).is_empty());
    let versions = cluster.versions(1, &via, soon(5)).await.unwrap();
    assert_eq!(versions.range(99), Some(0..=7), "an API without a name survives");
    assert_eq!(versions.finalized("group.version"), 0);
}

#[test]
fn the_version_chosen_is_one_the_codec_can_encode() {
    let listed = api_versions(&[(8, 2, 10), (23, 2, 4)]);
    let versions = kafka_meta::client::ApiVersions::from_response(&listed);
    // The codec's own table says 10, and cannot encode it.
    assert_eq!(versions.choose::<OffsetCommitRequest>(0..=99).unwrap(), 9);
    assert_eq!(versions.choose::<OffsetForLeaderEpochRequest>(0..=3).unwrap(), 3);
    assert!(versions.choose::<OffsetForLeaderEpochRequest>(0..=1).is_err());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_lies_about_its_counts_is_an_error_with_the_apis_name() {
    let script = Script::new(|request| match request.key {
        // ListGroups v1: throttle, error, two billion groups.
        16 => Reaction::Answer(Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff])),
        18 => answer(request, &api_versions(&[(3, 0, 12), (16, 0, 1), (18, 0, 4)])),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let error =
        cluster.call(To::Node(1), &Via::control(), soon(5), ListGroupsRequest::default()).await.unwrap_err();
    assert!(error.to_string().starts_with("ListGroups"), "{error}");
    assert!(error.to_string().contains("claims more"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn topics_known_by_id_get_their_names_and_unknown_ids_none() {
    use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
    use kafka_protocol::messages::{MetadataRequest, TopicName as WireName};
    use uuid::Uuid;
    let script = Script::new(|request| match request.key {
        3 => {
            let asked = request.decode::<MetadataRequest>().topics.unwrap();
            let topics = asked.into_iter().filter(|topic| topic.name.is_none()).map(|topic| {
                let known = topic.topic_id == Uuid::from_u128(7);
                let name = known.then(|| WireName(StrBytes::from_static_str("orders")));
                MetadataResponseTopic::default()
                    .with_topic_id(topic.topic_id)
                    .with_name(name)
                    .with_error_code(if known { 0 } else { 100 })
            });
            answer(request, &brokers(ONE).with_topics(topics.collect()))
        }
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let ids = [Uuid::from_u128(7), Uuid::from_u128(8)];
    let names = cluster.topic_names(&ids, soon(5)).await.unwrap();
    assert_eq!(names.len(), 1);
    assert_eq!(names[&ids[0]], "orders");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_while_connecting_leaves_the_connection_to_the_next() {
    let script = Script::new(|request| match request.key {
        18 if request.connection > 0 => {
            Reaction::Later(Duration::from_secs(5), encode(&api_versions(MODERN), request.version))
        }
        HEARTBEAT => Reaction::Answer(beat(request, 0)),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let owner = cluster.owner();
    let via = owner.via(Lane::Group);
    let error = cluster.call(To::Node(1), &via, soon(1), heartbeat("m")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("still connecting"), "{error}");
    let start = Instant::now();
    cluster.call(To::Node(1), &via, soon(9), heartbeat("m")).await.unwrap();
    assert!(start.elapsed() <= Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(script.attempts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_closes_before_the_broker_does_it_and_comes_back_unnoticed() {
    let script = Script::new(|request| match request.key {
        HEARTBEAT => Reaction::Answer(beat(request, 0)),
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let owner = cluster.owner();
    let via = owner.via(Lane::Group);
    cluster.call(To::Node(1), &via, soon(1), heartbeat("m")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(530)).await;
    assert_eq!(script.open(), 2);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(script.open(), 1, "the control connection is used by the refresh");
    let start = Instant::now();
    cluster.call(To::Node(1), &via, soon(1), heartbeat("m")).await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(50), "no back-off for a quiet end");
}

#[tokio::test(start_paused = true)]
async fn a_port_that_wants_authentication_first_is_named() {
    let script = Script::new(|request| match request.key {
        18 => answer(request, &api_versions(MODERN)),
        _ => Reaction::Close,
    });
    let config = script.config("one:9092").with_request_timeout(Duration::from_secs(2));
    let error = Cluster::connect_with(config).await.unwrap_err();
    assert!(error.to_string().contains("may expect SASL"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_insists_on_a_broker_that_hangs_up_makes_no_storm() {
    let script = Script::new(|request| match request.key {
        HEARTBEAT => Reaction::Close,
        _ => basics(request, ONE).unwrap(),
    });
    let cluster = cluster(&script).await;
    let owner = cluster.owner();
    let via = owner.via(Lane::Group);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        cluster.call(To::Node(1), &via, soon(5), heartbeat("m")).await.unwrap_err();
        assert!(
            script.attempts().len() < 60,
            "{} attempts in {:?}",
            script.attempts().len(),
            start.elapsed()
        );
    }
    assert!(script.requests(3).len() < 60);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_left_the_metadata_is_used_while_its_connection_lasts() {
    let left = Arc::new(AtomicBool::new(false));
    let flag = left.clone();
    let script = Script::new(move |request| match request.key {
        HEARTBEAT if request.host == "two" && member(request) == "last" => Reaction::Close,
        HEARTBEAT => Reaction::Answer(beat(request, 0)),
        _ if flag.load(Ordering::SeqCst) => basics(request, ONE).unwrap(),
        _ => basics(request, &[(1, "one", 9092), (2, "two", 9092)]).unwrap(),
    });
    let cluster = cluster(&script).await;
    let owner = cluster.owner();
    let via = owner.via(Lane::Group);
    cluster.call(To::Node(2), &via, soon(5), heartbeat("m")).await.unwrap();
    left.store(true, Ordering::SeqCst);
    cluster.refreshed(&[], soon(5)).await.unwrap();
    assert!(!cluster.snapshot().brokers.contains_key(&2));
    cluster.call(To::Node(2), &via, soon(5), heartbeat("m")).await.unwrap();
    cluster.call(To::Node(2), &via, soon(5), heartbeat("last")).await.unwrap_err();
    let error = cluster.call(To::Node(2), &via, soon(5), heartbeat("m")).await.unwrap_err();
    assert!(error.to_string().contains("not among the brokers"), "{error}");
}
