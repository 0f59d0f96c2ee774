//! A broker that answers what a test tells it to, over memory: works under tokio's paused clock.
//!
//! Not a test by itself. A test gives a function from request to reaction; every connection and every request is
//! counted.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    missing_docs
)]

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use kafka_meta::ClusterConfig;
use kafka_meta::transport::{BoxStream, Connector};
use kafka_meta::wire::frame::FrameReader;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, MetadataRequest, MetadataResponse, RequestHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use tokio::io::AsyncWriteExt;

/// One request as a broker sees it.
#[derive(Clone, Debug)]
pub struct Request {
    pub host: String,
    pub port: u16,
    /// Which connection, counted from 0 over the whole script.
    pub connection: usize,
    pub key: i16,
    pub version: i16,
    pub correlation: i32,
    pub client_id: Option<String>,
    pub body: Bytes,
}

impl Request {
    pub fn decode<R: Decodable>(&self) -> R {
        R::decode(&mut self.body.clone(), self.version).unwrap()
    }
}

/// What a broker does about a request.
pub enum Reaction {
    /// Answers with this body.
    Answer(Bytes),
    /// Writes these bytes as they are.
    Raw(Vec<u8>),
    /// Answers later, and nothing else in between.
    Later(Duration, Bytes),
    /// Reads on and says nothing.
    Silence,
    /// Hangs up.
    Close,
}

type Serve = dyn Fn(&Request) -> Reaction + Send + Sync;
type Accept = dyn Fn(&str, u16) -> bool + Send + Sync;

/// A cluster of scripted brokers, as a connector.
pub struct Script {
    serve: Box<Serve>,
    accept: Box<Accept>,
    state: Mutex<State>,
    /// How many bytes a client can write before somebody reads.
    pub pipe: usize,
}

#[derive(Default)]
struct State {
    attempts: Vec<(String, u16)>,
    requests: Vec<Request>,
    connections: usize,
    open: usize,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

impl Script {
    pub fn new(serve: impl Fn(&Request) -> Reaction + Send + Sync + 'static) -> Arc<Script> {
        Script::refusing(|_, _| true, serve)
    }

    pub fn refusing(
        accept: impl Fn(&str, u16) -> bool + Send + Sync + 'static,
        serve: impl Fn(&Request) -> Reaction + Send + Sync + 'static,
    ) -> Arc<Script> {
        let (serve, accept) = (Box::new(serve), Box::new(accept));
        Arc::new(Script { serve, accept, state: Mutex::default(), pipe: 1 << 20 })
    }

    pub fn config(self: &Arc<Self>, bootstrap: &str) -> ClusterConfig {
        ClusterConfig::new(bootstrap).with_connector(Arc::new(Handle(self.clone())))
    }

    pub fn attempts(&self) -> Vec<(String, u16)> {
        self.state.lock().unwrap().attempts.clone()
    }

    pub fn open(&self) -> usize {
        self.state.lock().unwrap().open
    }

    pub fn requests(&self, key: i16) -> Vec<Request> {
        let state = self.state.lock().unwrap();
        state.requests.iter().filter(|request| request.key == key).cloned().collect()
    }
}

#[derive(Debug)]
struct Handle(Arc<Script>);

impl Connector for Handle {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<BoxStream>> {
        Box::pin(async move {
            let script = self.0.clone();
            let connection = {
                let mut state = script.state.lock().unwrap();
                state.attempts.push((host.to_owned(), port));
                if !(script.accept)(host, port) {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                state.connections += 1;
                state.open += 1;
                state.connections - 1
            };
            let (near, far) = tokio::io::duplex(script.pipe);
            let host = host.to_owned();
            tokio::spawn(async move {
                serve(&script, host, port, connection, far).await;
                script.state.lock().unwrap().open -= 1;
            });
            Ok(Box::new(near) as BoxStream)
        })
    }
}

async fn serve(script: &Script, host: String, port: u16, connection: usize, mut io: tokio::io::DuplexStream) {
    let mut reader = FrameReader::new(usize::MAX);
    while let Ok(Some(frame)) = reader.next(&mut io).await {
        let request = read(frame, &host, port, connection);
        script.state.lock().unwrap().requests.push(request.clone());
        match (script.serve)(&request) {
            Reaction::Answer(body) => write(&mut io, &framed(&request, &body)).await,
            Reaction::Raw(bytes) => write(&mut io, &bytes).await,
            Reaction::Later(time, body) => {
                tokio::time::sleep(time).await;
                write(&mut io, &framed(&request, &body)).await;
            }
            Reaction::Silence => {}
            Reaction::Close => return,
        }
    }
}

async fn write(io: &mut tokio::io::DuplexStream, bytes: &[u8]) {
    let _ = io.write_all(bytes).await;
}

pub fn read(mut frame: Bytes, host: &str, port: u16, connection: usize) -> Request {
    let (key, version) = ((&frame[..]).get_i16(), (&frame[2..]).get_i16());
    let header_version = ApiKey::try_from(key).unwrap().request_header_version(version);
    let header = RequestHeader::decode(&mut frame, header_version).unwrap();
    Request {
        host: host.to_owned(),
        port,
        connection,
        key,
        version,
        correlation: header.correlation_id,
        client_id: header.client_id.map(|id| id.to_string()),
        body: frame,
    }
}

/// A whole answer frame.
pub fn framed(request: &Request, body: &[u8]) -> Vec<u8> {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    frame.put_i32(request.correlation);
    if ApiKey::try_from(request.key).unwrap().response_header_version(request.version) >= 1 {
        frame.put_u8(0);
    }
    frame.put_slice(body);
    let length = frame.len() as i32 - 4;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame.to_vec()
}

pub fn encode<T: Encodable>(response: &T, version: i16) -> Bytes {
    let mut body = BytesMut::new();
    response.encode(&mut body, version).unwrap();
    body.freeze()
}

pub fn answer<T: Encodable>(request: &Request, response: &T) -> Reaction {
    Reaction::Answer(encode(response, request.version))
}

pub fn api_versions(ranges: &[(i16, i16, i16)]) -> ApiVersionsResponse {
    let apis = ranges.iter().map(|(key, min, max)| {
        ApiVersion::default().with_api_key(*key).with_min_version(*min).with_max_version(*max)
    });
    ApiVersionsResponse::default().with_api_keys(apis.collect())
}

/// What a modern broker lists, as far as tests need it.
pub const MODERN: &[(i16, i16, i16)] =
    &[(1, 4, 17), (2, 1, 10), (3, 0, 13), (10, 0, 6), (11, 0, 9), (12, 0, 4), (18, 0, 4), (99, 0, 7)];

pub fn brokers(list: &[(i32, &str, u16)]) -> MetadataResponse {
    let brokers = list.iter().map(|(id, host, port)| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(*id))
            .with_host(StrBytes::from_string((*host).to_owned()))
            .with_port(i32::from(*port))
    });
    MetadataResponse::default()
        .with_brokers(brokers.collect())
        .with_cluster_id(Some(StrBytes::from_static_str("test-cluster")))
        .with_controller_id(BrokerId(list.first().map_or(-1, |broker| broker.0)))
}

/// Adds the topics a request asks for: each with its partitions' (leader, epoch), unknown ones with error 3.
pub fn with_topics(
    request: &Request,
    metadata: MetadataResponse,
    known: &HashMap<&str, Vec<(i32, i32)>>,
) -> MetadataResponse {
    let asked: MetadataRequest = request.decode();
    let names: Vec<String> = match asked.topics {
        Some(topics) => topics.into_iter().map(|topic| topic.name.unwrap().0.to_string()).collect(),
        None => known.keys().map(|name| (*name).to_owned()).collect(),
    };
    let topics = names.into_iter().map(|name| {
        let topic =
            MetadataResponseTopic::default().with_name(Some(TopicName(StrBytes::from_string(name.clone()))));
        let Some(partitions) = known.get(name.as_str()) else {
            return topic.with_error_code(3);
        };
        let partitions = (0..).zip(partitions).map(|(index, (leader, epoch))| {
            MetadataResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(BrokerId(*leader))
                .with_leader_epoch(*epoch)
        });
        topic.with_partitions(partitions.collect()).with_topic_id(uuid::Uuid::from_u128(7))
    });
    metadata.with_topics(topics.collect())
}

/// Answers the handshake and metadata of a cluster; `None` for anything else.
pub fn basics(request: &Request, list: &[(i32, &str, u16)]) -> Option<Reaction> {
    match request.key {
        18 => Some(answer(request, &api_versions(MODERN))),
        3 => Some(answer(request, &with_topics(request, brokers(list), &HashMap::new()))),
        _ => None,
    }
}
