//! A broker whose log never ends, at the least cost: batches are built once, a fetch patches base offsets and
//! writes slices of one buffer. Runs in a process of its own, so that its CPU, its memory and its core are not
//! the client's.
//!
//! One topic on one node; ApiVersions, Metadata, ListOffsets (0 is both ends) and Fetch 12 to 17 with sessions, as
//! real brokers keep them: an incremental request names what changed, its answer only partitions with data,
//! and a partition that was served goes to the end of the line. A raw port beside it sends bare batches, each
//! behind its length, for the floor.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, FetchRequest, ListOffsetsRequest, ListOffsetsResponse, MetadataResponse,
    RequestHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use uuid::Uuid;

use crate::log::{Log, Shape};

/// The one topic.
pub const TOPIC: &str = "endless";
const ID: Uuid = Uuid::from_u128(0x5eed);
/// Beyond whatever is read.
const END: i64 = 1 << 50;
const VERSIONS: [(ApiKey, i16, i16); 4] = [
    (ApiKey::Fetch, 12, 17),
    (ApiKey::ListOffsets, 1, 9),
    (ApiKey::Metadata, 0, 12),
    (ApiKey::ApiVersions, 0, 3),
];

/// Where a broker listens.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// Kafka's protocol.
    pub kafka: u16,
    /// Bare batches, for ever.
    pub raw: u16,
}

/// Serves in threads of this process until it ends.
pub fn serve(shape: &Shape) -> Ports {
    let log = Arc::new(Mutex::new(Log::build(shape)));
    let kafka = TcpListener::bind("127.0.0.1:0").unwrap();
    let raw = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = Ports { kafka: kafka.local_addr().unwrap().port(), raw: raw.local_addr().unwrap().port() };
    let partitions = shape.partitions;
    let bare = Arc::clone(&log);
    thread::spawn(move || {
        for stream in raw.incoming() {
            send_batches(&stream.unwrap(), &bare);
        }
    });
    thread::spawn(move || {
        for stream in kafka.incoming() {
            let stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut connection = Connection {
                stream,
                log: Arc::clone(&log),
                port: ports.kafka,
                partitions,
                session: Session::default(),
            };
            thread::spawn(move || while connection.serve().is_some() {});
        }
    });
    ports
}

fn send_batches(mut stream: &TcpStream, log: &Mutex<Log>) {
    for ordinal in 0.. {
        let mut log = log.lock().unwrap();
        let batch = log.batch(ordinal);
        let length = (batch.len() as u32).to_be_bytes();
        if stream.write_all(&length).and_then(|()| stream.write_all(batch)).is_err() {
            return;
        }
    }
}

/// An answer's frame.
pub(crate) fn answer(correlation: i32, key: ApiKey, version: i16, body: &impl Encodable) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.put_i32(correlation);
    if key.response_header_version(version) >= 1 {
        out.put_u8(0);
    }
    body.encode(&mut out, version).unwrap();
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// One topic on one node.
pub(crate) fn metadata(port: u16, partitions: i32) -> MetadataResponse {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let broker = MetadataResponseBroker::default()
        .with_node_id(1.into())
        .with_host(text("127.0.0.1"))
        .with_port(i32::from(port));
    let partitions = (0..partitions).map(|index| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(1.into())
            .with_leader_epoch(0)
            .with_replica_nodes(vec![1.into()])
            .with_isr_nodes(vec![1.into()])
    });
    let topic = MetadataResponseTopic::default()
        .with_name(Some(text(TOPIC).into()))
        .with_topic_id(ID)
        .with_partitions(partitions.collect());
    MetadataResponse::default()
        .with_cluster_id(Some(text("endless")))
        .with_controller_id(1.into())
        .with_brokers(vec![broker])
        .with_topics(vec![topic])
}

#[derive(Default)]
struct Session {
    id: i32,
    order: VecDeque<i32>,
    wanted: HashMap<i32, (i64, usize)>,
}

struct Connection {
    stream: TcpStream,
    log: Arc<Mutex<Log>>,
    port: u16,
    partitions: i32,
    session: Session,
}

impl Connection {
    fn serve(&mut self) -> Option<()> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).ok()?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame).ok()?;
        let mut frame = Bytes::from(frame);
        let key = ApiKey::try_from(i16::from_be_bytes([frame[0], frame[1]])).ok()?;
        let version = i16::from_be_bytes([frame[2], frame[3]]);
        let header = RequestHeader::decode(&mut frame, key.request_header_version(version)).unwrap();
        let correlation = header.correlation_id;
        match key {
            ApiKey::ApiVersions if version > 3 => {
                let refusal = ApiVersionsResponse::default().with_error_code(35);
                self.answer(correlation, key, 0, &refusal)
            }
            ApiKey::ApiVersions => {
                let keys = VERSIONS.map(|(key, min, max)| {
                    ApiVersion::default().with_api_key(key as i16).with_min_version(min).with_max_version(max)
                });
                self.answer(
                    correlation,
                    key,
                    version,
                    &ApiVersionsResponse::default().with_api_keys(keys.into()),
                )
            }
            ApiKey::Metadata => self.answer(correlation, key, version, &self.metadata()),
            ApiKey::ListOffsets => {
                let request = ListOffsetsRequest::decode(&mut frame, version).unwrap();
                self.answer(correlation, key, version, &offsets(&request))
            }
            ApiKey::Fetch => {
                let request = FetchRequest::decode(&mut frame, version).unwrap();
                self.fetch(correlation, version, &request)
            }
            other => panic!("nobody needs {other:?} to read"),
        }
    }

    fn answer(&mut self, correlation: i32, key: ApiKey, version: i16, body: &impl Encodable) -> Option<()> {
        self.stream.write_all(&answer(correlation, key, version, body)).ok()
    }

    fn metadata(&self) -> MetadataResponse {
        metadata(self.port, self.partitions)
    }

    fn fetch(&mut self, correlation: i32, version: i16, request: &FetchRequest) -> Option<()> {
        let session = &mut self.session;
        session.take(request);
        // (0, -1) wants no session; (id, -1) closes one.
        let sessionless = request.session_epoch == -1 && request.session_id == 0;
        let id = if sessionless { 0 } else { session.id };
        if request.session_epoch == -1 && !sessionless || session.order.is_empty() {
            if session.order.is_empty() {
                thread::sleep(Duration::from_millis(request.max_wait_ms.try_into().unwrap()));
            }
            let mut out = Vec::new();
            head(&mut out, correlation, id);
            out.extend_from_slice(&[1, 0]);
            return self.send(out, &[]);
        }
        let mut log = self.log.lock().unwrap();
        let mut left = usize::try_from(request.max_bytes).unwrap();
        // Which partitions have their turn, and how much each; the sizes come first on the wire.
        let mut served: Vec<(i32, i64, usize)> = Vec::new();
        while let Some(&partition) = session.order.front() {
            let (offset, most) = session.wanted[&partition];
            let size = log.read(partition, offset, most.min(left), served.is_empty()).len();
            if size == 0 || served.len() == session.order.len() {
                break;
            }
            left = left.saturating_sub(size);
            served.push((partition, offset, size));
            session.order.rotate_left(1);
        }
        if request.session_epoch <= 0 {
            // A full answer names every partition asked for.
            let rest = session.order.iter().take(session.order.len() - served.len());
            served.extend(rest.map(|&partition| (partition, session.wanted[&partition].0, 0)));
        }
        let mut out = Vec::new();
        head(&mut out, correlation, id);
        uvarint(&mut out, 2);
        if version >= 13 {
            out.extend_from_slice(ID.as_bytes());
        } else {
            uvarint(&mut out, TOPIC.len() + 1);
            out.extend_from_slice(TOPIC.as_bytes());
        }
        uvarint(&mut out, served.len() + 1);
        let heads: Vec<Vec<u8>> =
            served.iter().map(|(partition, _, size)| part_head(*partition, *size)).collect();
        // Each partition ends with its tagged fields, the topic and the answer with theirs.
        let body: usize = heads.iter().zip(&served).map(|(head, (_, _, size))| head.len() + size + 1).sum();
        let length = (out.len() - 4 + body + 2) as u32;
        out[..4].copy_from_slice(&length.to_be_bytes());
        for (head, (partition, offset, size)) in heads.iter().zip(&served) {
            out.extend_from_slice(head);
            self.stream.write_all(&out).ok()?;
            let batches = log.read(*partition, *offset, *size, false);
            self.stream.write_all(batches).ok()?;
            out.clear();
            out.put_u8(0);
        }
        out.extend_from_slice(&[0, 0]);
        self.stream.write_all(&out).ok()
    }

    fn send(&mut self, mut out: Vec<u8>, rest: &[u8]) -> Option<()> {
        let length = (out.len() - 4 + rest.len()) as u32;
        out[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&out).and_then(|()| self.stream.write_all(rest)).ok()
    }
}

impl Session {
    fn take(&mut self, request: &FetchRequest) {
        if request.session_epoch <= 0 {
            *self = Session { id: self.id + 1, ..Session::default() };
        }
        for forgotten in request.forgotten_topics_data.iter().flat_map(|topic| &topic.partitions) {
            self.wanted.remove(forgotten);
            self.order.retain(|partition| partition != forgotten);
        }
        for want in request.topics.iter().flat_map(|topic| &topic.partitions) {
            let most = usize::try_from(want.partition_max_bytes).unwrap();
            if self.wanted.insert(want.partition, (want.fetch_offset, most)).is_none() {
                self.order.push_back(want.partition);
            }
        }
    }
}

fn head(out: &mut Vec<u8>, correlation: i32, session: i32) {
    out.put_u32(0);
    out.put_i32(correlation);
    out.put_u8(0);
    out.put_i32(0);
    out.put_i16(0);
    out.put_i32(session);
}

fn part_head(partition: i32, size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(48);
    out.put_i32(partition);
    out.put_i16(0);
    out.put_i64(END);
    out.put_i64(END);
    out.put_i64(0);
    out.put_u8(0);
    out.put_i32(-1);
    uvarint(&mut out, size + 1);
    out
}

fn uvarint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn offsets(request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            ListOffsetsPartitionResponse::default()
                .with_partition_index(partition.partition_index)
                .with_offset(0)
                .with_leader_epoch(0)
        });
        ListOffsetsTopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}
