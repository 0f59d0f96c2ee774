//! An endless log over TCP, for throughput benches: every fetch finds a full answer, at next to no cost.
//!
//! What it is: one node, one topic, as many partitions as asked for; ApiVersions, Metadata, ListOffsets and Fetch
//! (by name, no sessions, no waits) with batches built beforehand, of which only the base offset is set anew per
//! answer (no checksum covers it). The working set is larger than any cache, so that a consumer under test pays
//! for its memory accesses. What it is not: a broker to test behaviour on; that is [`crate::embedded`].
//!
//! Invariant: the offset a client asks for decides what it gets; nothing is kept per connection.

use std::io;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, FetchRequest, FindCoordinatorRequest, FindCoordinatorResponse,
    ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse, RequestHeader,
    ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use kafka_read::batch::Codec;
use kafka_read::batch::write::{BatchOptions, BatchWriter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The offset at which every log "ends"; far enough for any bench.
const END: i64 = 1 << 50;
/// Fetch versions served. 11 is what librdkafka and Java agree on without topic ids; 12 adds tagged fields.
const FETCH: (i16, i16) = (4, 12);

/// What the log is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shape {
    /// The topic's name.
    pub topic: String,
    /// Partitions of the topic.
    pub partitions: i32,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Bytes of each batch before packing, roughly.
    pub batch_bytes: usize,
    /// Bytes of distinct batches, packed, over all partitions.
    pub working_set: usize,
    /// How the batches are packed.
    pub codec: Codec,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            topic: "endless".to_owned(),
            partitions: 4,
            value_bytes: 100,
            batch_bytes: 1 << 20,
            working_set: 128 << 20,
            codec: Codec::None,
        }
    }
}

/// Ready-made batches, alike in their number of records.
struct Log {
    shape: Shape,
    batches: Vec<Bytes>,
    records: i64,
    port: u16,
}

fn build(shape: &Shape) -> io::Result<(Vec<Bytes>, i64)> {
    // About nine bytes of frame and eight of key come with each value.
    let per_record = shape.value_bytes.saturating_add(17).max(1);
    let records = shape.batch_bytes.checked_div(per_record).unwrap_or(1).max(1);
    let mut random = fastrand::Rng::with_seed(7);
    let mut batches = Vec::new();
    let mut total = 0_usize;
    let mut value = vec![0_u8; shape.value_bytes];
    while total < shape.working_set || batches.is_empty() {
        let options = BatchOptions { codec: shape.codec, ..BatchOptions::default() };
        let mut writer = BatchWriter::with_capacity(options, shape.batch_bytes);
        for record in 0..records {
            // Half random, half constant: packs about as well as real data does.
            let half = value.len() / 2;
            random.fill(value.get_mut(..half).unwrap_or_default());
            let key = u64::try_from(record).unwrap_or(0).to_be_bytes();
            writer
                .push(1_750_000_000_000, Some(&key), Some(&value), &[])
                .map_err(|error| io::Error::other(format!("{error:?}")))?;
        }
        let batch = writer.finish().map_err(|error| io::Error::other(format!("{error:?}")))?.freeze();
        total = total.saturating_add(batch.len());
        batches.push(batch);
    }
    Ok((batches, i64::try_from(records).unwrap_or(i64::MAX)))
}

/// Builds the log and returns a listener's port with the future that serves it, which runs until it is dropped;
/// its connections are tasks of their own and end with their clients.
///
/// # Errors
/// When the port cannot be bound, or the codec is not compiled in.
pub async fn serve(shape: Shape, port: u16) -> io::Result<(u16, impl Future<Output = ()> + Send)> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let port = listener.local_addr()?.port();
    let (batches, records) = build(&shape)?;
    let log = Arc::new(Log { shape, batches, records, port });
    let accepting = async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let log = Arc::clone(&log);
                    tokio::spawn(async move {
                        let _ = client(stream, &log).await;
                    });
                }
                // Out of file descriptors, most likely: trying again at once would spin.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    };
    Ok((port, accepting))
}

async fn client(mut stream: TcpStream, log: &Log) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    loop {
        let Ok(length) = stream.read_i32().await else { return Ok(()) };
        let length = usize::try_from(length).map_err(|_| malformed())?;
        if length > 1 << 20 {
            return Err(malformed());
        }
        let mut body = BytesMut::zeroed(length);
        stream.read_exact(&mut body).await?;
        let mut body = body.freeze();
        let mut peek = body.clone();
        if peek.len() < 8 {
            return Err(malformed());
        }
        let (key, version, correlation) = (peek.get_i16(), peek.get_i16(), peek.get_i32());
        let api = ApiKey::try_from(key).map_err(|()| malformed())?;
        if api == ApiKey::ApiVersions {
            let (response, version) = versions(version);
            stream.write_all(&frame(correlation, &response, version).ok_or_else(malformed)?).await?;
            continue;
        }
        RequestHeader::decode(&mut body, api.request_header_version(version)).map_err(|_| malformed())?;
        let answer = match api {
            ApiKey::Metadata => {
                let request = MetadataRequest::decode(&mut body, version).map_err(|_| malformed())?;
                frame(correlation, &metadata(log, &request, version), version)
            }
            ApiKey::ListOffsets => {
                let request = ListOffsetsRequest::decode(&mut body, version).map_err(|_| malformed())?;
                frame(correlation, &list(&request, version), version)
            }
            ApiKey::FindCoordinator => {
                let request = FindCoordinatorRequest::decode(&mut body, version).map_err(|_| malformed())?;
                frame(correlation, &coordinator(log, &request, version), version)
            }
            ApiKey::Fetch => {
                let request = FetchRequest::decode(&mut body, version).map_err(|_| malformed())?;
                fetch(&mut stream, log, &request, version, correlation).await?;
                continue;
            }
            _ => return Err(malformed()),
        };
        stream.write_all(&answer.ok_or_else(malformed)?).await?;
    }
}

fn frame<R: Encodable + HeaderVersion>(correlation: i32, response: &R, version: i16) -> Option<Bytes> {
    let mut out = BytesMut::new();
    out.put_i32(0);
    let header = ResponseHeader::default().with_correlation_id(correlation);
    header.encode(&mut out, R::header_version(version)).ok()?;
    response.encode(&mut out, version).ok()?;
    let length = i32::try_from(out.len().checked_sub(4)?).ok()?;
    out.get_mut(..4)?.copy_from_slice(&length.to_be_bytes());
    Some(out.freeze())
}

/// The answer and the version to write it in.
fn versions(version: i16) -> (ApiVersionsResponse, i16) {
    // Produce is listed although it is not served: librdkafka fetches only from brokers that have it.
    let ranges = [
        (ApiKey::Produce, 3, 9),
        (ApiKey::Fetch, FETCH.0, FETCH.1),
        (ApiKey::ListOffsets, 1, 7),
        (ApiKey::Metadata, 1, 9),
        (ApiKey::FindCoordinator, 0, 3),
        (ApiKey::ApiVersions, 0, 3),
    ];
    let known = version <= 3;
    let keys = ranges.iter().map(|(key, min, max)| {
        ApiVersion::default().with_api_key(*key as i16).with_min_version(*min).with_max_version(*max)
    });
    let response = ApiVersionsResponse::default().with_api_keys(keys.collect());
    if known { (response, version) } else { (response.with_error_code(35), 0) }
}

fn metadata(log: &Log, request: &MetadataRequest, version: i16) -> MetadataResponse {
    let broker = MetadataResponseBroker::default()
        .with_node_id(1.into())
        .with_host(StrBytes::from_static_str("127.0.0.1"))
        .with_port(i32::from(log.port));
    let mut response = MetadataResponse::default().with_brokers(vec![broker]).with_controller_id(1.into());
    if version >= 2 {
        response.cluster_id = Some(StrBytes::from_static_str("endless"));
    }
    let names: Vec<String> = match &request.topics {
        None => vec![log.shape.topic.clone()],
        Some(topics) => {
            topics.iter().filter_map(|topic| topic.name.as_ref()).map(|name| name.to_string()).collect()
        }
    };
    for name in names {
        let known = name == log.shape.topic;
        let mut topic = MetadataResponseTopic::default()
            .with_error_code(if known { 0 } else { 3 })
            .with_name(Some(StrBytes::from_string(name).into()));
        for index in (0..log.shape.partitions).take(if known { usize::MAX } else { 0 }) {
            let mut partition = MetadataResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(1.into())
                .with_replica_nodes(vec![1.into()])
                .with_isr_nodes(vec![1.into()]);
            if version >= 7 {
                partition.leader_epoch = 0;
            }
            topic.partitions.push(partition);
        }
        response.topics.push(topic);
    }
    response
}

fn list(request: &ListOffsetsRequest, version: i16) -> ListOffsetsResponse {
    let mut response = ListOffsetsResponse::default();
    for topic in &request.topics {
        let mut answer = ListOffsetsTopicResponse::default().with_name(topic.name.clone());
        for asked in &topic.partitions {
            let mut entry = ListOffsetsPartitionResponse::default()
                .with_partition_index(asked.partition_index)
                .with_timestamp(-1)
                .with_offset(if asked.timestamp == -1 { END } else { 0 });
            if version >= 4 {
                entry.leader_epoch = 0;
            }
            answer.partitions.push(entry);
        }
        response.topics.push(answer);
    }
    response
}

fn coordinator(log: &Log, request: &FindCoordinatorRequest, version: i16) -> FindCoordinatorResponse {
    let host = StrBytes::from_static_str("127.0.0.1");
    let port = i32::from(log.port);
    let response = FindCoordinatorResponse::default();
    if version < 4 {
        return response.with_node_id(1.into()).with_host(host).with_port(port);
    }
    let entry = |key: &StrBytes| {
        let entry = Coordinator::default().with_key(key.clone()).with_node_id(1.into());
        entry.with_host(host.clone()).with_port(port)
    };
    response.with_coordinators(request.coordinator_keys.iter().map(entry).collect())
}

/// A piece of a Fetch answer.
enum Piece {
    Head(Bytes),
    /// A batch whose first eight bytes, the base offset, are in the piece before.
    Tail(Bytes),
}

/// Writes the answer piece by piece: batches go from their ready-made memory straight to the socket.
async fn fetch(
    stream: &mut TcpStream,
    log: &Log,
    request: &FetchRequest,
    version: i16,
    correlation: i32,
) -> io::Result<()> {
    let pieces = layout(log, request, version, correlation).ok_or(io::ErrorKind::InvalidData)?;
    let length: usize = pieces.iter().map(Piece::len).sum();
    let length = i32::try_from(length).map_err(|_| io::ErrorKind::InvalidData)?;
    stream.write_all(&length.to_be_bytes()).await?;
    for piece in &pieces {
        match piece {
            Piece::Head(bytes) | Piece::Tail(bytes) => stream.write_all(bytes).await?,
        }
    }
    Ok(())
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Head(bytes) | Piece::Tail(bytes) => bytes.len(),
        }
    }
}

/// The answer as pieces, written by hand: the codec would copy every batch.
fn layout(log: &Log, request: &FetchRequest, version: i16, correlation: i32) -> Option<Vec<Piece>> {
    let flexible = version >= 12;
    let mut pieces = Vec::new();
    let mut out = BytesMut::new();
    out.put_i32(correlation);
    if flexible {
        out.put_u8(0);
    }
    out.put_i32(0);
    if version >= 7 {
        // Error and session id: no session is ever given.
        out.put_i16(0);
        out.put_i32(0);
    }
    put_count(&mut out, request.topics.len(), flexible)?;
    let mut left = usize::try_from(request.max_bytes).ok()?;
    let mut first = true;
    for topic in &request.topics {
        let name = topic.topic.as_bytes();
        if flexible {
            put_varint(&mut out, name.len().checked_add(1)?);
        } else {
            out.put_i16(i16::try_from(name.len()).ok()?);
        }
        out.put_slice(name);
        put_count(&mut out, topic.partitions.len(), flexible)?;
        for asked in &topic.partitions {
            let limit = usize::try_from(asked.partition_max_bytes).ok()?.min(left);
            let (batches, size) = log.from(asked.partition, asked.fetch_offset, limit, first)?;
            first = first && batches.is_empty();
            left = left.saturating_sub(size);
            out.put_i32(asked.partition);
            out.put_i16(0);
            out.put_i64(END);
            out.put_i64(END);
            if version >= 5 {
                out.put_i64(0);
            }
            // No aborted transactions: null.
            if flexible {
                out.put_u8(0)
            } else {
                out.put_i32(-1)
            }
            if version >= 11 {
                out.put_i32(-1);
            }
            if flexible {
                put_varint(&mut out, size.checked_add(1)?)
            } else {
                out.put_i32(i32::try_from(size).ok()?)
            }
            for (base, batch) in batches {
                out.put_i64(base);
                pieces.push(Piece::Head(out.split().freeze()));
                pieces.push(Piece::Tail(batch.slice(8..)));
            }
            if flexible {
                out.put_u8(0);
            }
        }
        if flexible {
            out.put_u8(0);
        }
    }
    if flexible {
        out.put_u8(0);
    }
    pieces.push(Piece::Head(out.freeze()));
    Some(pieces)
}

fn put_count(out: &mut BytesMut, count: usize, flexible: bool) -> Option<()> {
    if flexible {
        put_varint(out, count.checked_add(1)?);
    } else {
        out.put_i32(i32::try_from(count).ok()?);
    }
    Some(())
}

fn put_varint(out: &mut BytesMut, mut value: usize) {
    while value >= 0x80 {
        out.put_u8(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.put_u8(u8::try_from(value).unwrap_or(0));
}

impl Log {
    /// Whole batches from the one that holds `offset`, with their base offsets, and their size.
    fn from(
        &self,
        partition: i32,
        offset: i64,
        limit: usize,
        whole_first: bool,
    ) -> Option<(Vec<(i64, Bytes)>, usize)> {
        let mut number = offset.checked_div(self.records)?;
        let mut batches = Vec::new();
        let mut size = 0_usize;
        loop {
            // Partitions start at different places of the ring, so that they do not share warm memory.
            let spread = i64::from(partition).checked_mul(7)?;
            let count = i64::try_from(self.batches.len()).ok()?;
            let at = usize::try_from(number.checked_add(spread)?.checked_rem_euclid(count)?).ok()?;
            let batch = self.batches.get(at)?;
            let fits = size.checked_add(batch.len())? <= limit;
            if !(fits || whole_first && batches.is_empty()) {
                return Some((batches, size));
            }
            size = size.checked_add(batch.len())?;
            batches.push((number.checked_mul(self.records)?, batch.clone()));
            number = number.checked_add(1)?;
        }
    }
}
