//! A raw client for behaviour functions: one socket, one request at a time, the codec's own messages.
//!
//! Not a client to build on: it panics at whatever it does not expect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use kafka_meta::transport::{BoxStream, Connector};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, CreateTopicsRequest, EndTxnRequest, FetchRequest, FetchResponse,
    FindCoordinatorRequest, InitProducerIdRequest, ListOffsetsRequest, MetadataRequest, OffsetFetchRequest,
    ProduceRequest, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

/// How a behaviour function reaches the cluster it runs on, embedded or real.
pub trait RawBroker: Send + Sync {
    fn bootstrap(&self) -> String;
    fn connector(&self) -> Arc<dyn Connector>;
    /// The racks of nodes 1, 2, …; the rack-aware selector is on.
    fn racks(&self) -> Vec<String>;
    /// Makes another replica of partition 0 its leader.
    fn move_leader<'a>(&'a mut self, topic: &'a str, to: i32) -> BoxFuture<'a, ()>;
}

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub fn name(topic: &str) -> TopicName {
    text(topic).into()
}

/// A topic name nobody else uses.
pub fn fresh(prefix: &str) -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

pub struct Raw {
    stream: BoxStream,
    next: i32,
    pub client_id: String,
}

impl Raw {
    pub async fn connect(connector: &Arc<dyn Connector>, host: &str, port: u16) -> std::io::Result<Raw> {
        let stream = connector.connect(host, port).await?;
        Ok(Raw { stream, next: 1, client_id: "raw".to_owned() })
    }

    pub async fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let correlation = self.next;
        self.next += 1;
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(correlation)
            .with_client_id(Some(text(&self.client_id)));
        header.encode(&mut frame, R::header_version(version)).unwrap();
        request.encode(&mut frame, version).unwrap();
        let length = i32::try_from(frame.len() - 4).unwrap();
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame).await.unwrap();
        self.stream.flush().await.unwrap();
        correlation
    }

    /// Sends these bytes as the body behind a header with one tagged field section, whatever the API makes of it.
    pub async fn send_as(&mut self, key: i16, version: i16, body: &[u8]) -> i32 {
        let correlation = self.next;
        self.next += 1;
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        let header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_correlation_id(correlation)
            .with_client_id(Some(text(&self.client_id)));
        header.encode(&mut frame, 2).unwrap();
        frame.put_slice(body);
        let length = i32::try_from(frame.len() - 4).unwrap();
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame).await.unwrap();
        correlation
    }

    /// The next frame without its length; an error when the node closes.
    pub async fn frame(&mut self) -> std::io::Result<Bytes> {
        let length = usize::try_from(self.stream.read_i32().await?).unwrap();
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame).await?;
        Ok(Bytes::from(frame))
    }

    pub async fn receive<R: Request>(&mut self, version: i16) -> std::io::Result<(i32, R::Response)> {
        let mut frame = self.frame().await?;
        let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version)).unwrap();
        let response = R::Response::decode(&mut frame, version).unwrap();
        assert!(!frame.has_remaining(), "bytes left behind an answer to api {}", R::KEY);
        Ok((header.correlation_id, response))
    }

    pub async fn try_call<R: Request>(&mut self, version: i16, request: &R) -> std::io::Result<R::Response> {
        let sent = self.send(version, request).await;
        let (correlation, response) = self.receive::<R>(version).await?;
        assert_eq!(correlation, sent);
        Ok(response)
    }

    pub async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.try_call(version, request).await.unwrap()
    }
}

/// A cluster looked at through Metadata: a connection to any node.
pub struct View {
    connector: Arc<dyn Connector>,
    pub nodes: BTreeMap<i32, (String, u16)>,
}

impl View {
    pub async fn of(cluster: &dyn RawBroker) -> View {
        let connector = cluster.connector();
        let bootstrap = cluster.bootstrap();
        let (host, port) = bootstrap.split(',').next().unwrap().rsplit_once(':').unwrap();
        let mut any = Raw::connect(&connector, host, port.parse().unwrap()).await.unwrap();
        let metadata = any.call(12, &MetadataRequest::default().with_topics(Some(Vec::new()))).await;
        let nodes = metadata
            .brokers
            .iter()
            .map(|broker| (broker.node_id.0, (broker.host.to_string(), u16::try_from(broker.port).unwrap())));
        View { nodes: nodes.collect(), connector }
    }

    pub async fn node(&self, id: i32) -> Raw {
        let (host, port) = &self.nodes[&id];
        Raw::connect(&self.connector, host, *port).await.unwrap()
    }

    pub async fn any(&self) -> Raw {
        self.node(*self.nodes.keys().next().unwrap()).await
    }

    pub async fn topic(&self, topic: &str) -> MetadataResponseTopic {
        let wanted = MetadataRequestTopic::default().with_name(Some(name(topic)));
        let request = MetadataRequest::default().with_topics(Some(vec![wanted]));
        self.any().await.call(12, &request).await.topics.remove(0)
    }

    /// The topic as a reader needs it: its id and a connection to the leader of partition 0.
    pub async fn leader(&self, topic: &str) -> Raw {
        let found = self.topic(topic).await;
        self.node(found.partitions[0].leader_id.0).await
    }

    /// Makes a topic whose partition `i` lives on the nodes `placed[i]`.
    pub async fn create_on(&self, placed: &[&[i32]]) -> String {
        let topic = fresh("row");
        self.create_named(&topic, placed).await;
        topic
    }

    pub async fn create_named(&self, topic: &str, placed: &[&[i32]]) {
        let assigned = (0..).zip(placed).map(|(index, nodes)| {
            CreatableReplicaAssignment::default()
                .with_partition_index(index)
                .with_broker_ids(nodes.iter().map(|id| (*id).into()).collect())
        });
        let new = CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_assignments(assigned.collect());
        let request = CreateTopicsRequest::default().with_timeout_ms(10_000).with_topics(vec![new]);
        let answer = self.any().await.call(7, &request).await;
        assert_eq!(answer.topics[0].error_code, 0, "{:?}", answer.topics[0].error_message);
        // The leader is ready when it answers a ListOffsets.
        for _ in 0..200 {
            let found = self.topic(topic).await;
            let mut ready = found.error_code == 0;
            for partition in &found.partitions {
                ready = ready && partition.error_code == 0;
                if ready {
                    let mut leader = self.node(partition.leader_id.0).await;
                    ready =
                        list(&mut leader, 7, topic, partition.partition_index, -1, false).await.error_code
                            == 0;
                }
            }
            // Every node has to know, not only the leaders.
            if ready && self.leaders_everywhere(topic).await.iter().all(|leader| *leader >= 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("topic {topic} did not get ready");
    }

    /// The leader of partition 0 as each node sees it.
    pub async fn leaders_everywhere(&self, topic: &str) -> Vec<i32> {
        let mut leaders = Vec::new();
        for id in self.nodes.keys() {
            let wanted = MetadataRequestTopic::default().with_name(Some(name(topic)));
            let request = MetadataRequest::default().with_topics(Some(vec![wanted]));
            let answer = self.node(*id).await.call(12, &request).await;
            leaders.push(answer.topics[0].partitions.first().map_or(-1, |partition| partition.leader_id.0));
        }
        leaders
    }

    /// Waits until every node has forgotten the topic.
    pub async fn gone(&self, topic: &str) {
        for id in self.nodes.keys() {
            let mut node = self.node(*id).await;
            let wanted = MetadataRequestTopic::default().with_name(Some(name(topic)));
            let request = MetadataRequest::default().with_topics(Some(vec![wanted]));
            while node.call(12, &request).await.topics[0].error_code != 3 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Waits until a committed reader sees the partition up to `end`: markers come after the answer that ends a
    /// transaction.
    pub async fn settled(&self, topic: &str, partition: i32, end: i64) {
        let mut leader = self.leader(topic).await;
        while list(&mut leader, 7, topic, partition, -1, true).await.offset < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The coordinator of a group (0) or a transactional id (1), once it answers.
    pub async fn coordinator_id(&self, kind: i8, key: &str) -> i32 {
        let request =
            FindCoordinatorRequest::default().with_key_type(kind).with_coordinator_keys(vec![text(key)]);
        loop {
            let found = self.any().await.call(4, &request).await.coordinators.remove(0);
            if found.error_code == 0 {
                return found.node_id.0;
            }
            assert_eq!(found.error_code, 15);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A connection to the coordinator, once it has loaded.
    pub async fn coordinator(&self, kind: i8, key: &str) -> Raw {
        loop {
            let id = self.coordinator_id(kind, key).await;
            let mut node = self.node(id).await;
            if kind != 0 {
                return node;
            }
            let group = OffsetFetchRequestGroup::default().with_group_id(text(key).into()).with_topics(None);
            let group = group.with_member_id(None).with_member_epoch(-1);
            let request = OffsetFetchRequest::default().with_groups(vec![group]);
            match node.call(9, &request).await.groups[0].error_code {
                0 => return node,
                // Normal for a while after a start.
                14..=16 => tokio::time::sleep(Duration::from_millis(50)).await,
                code => panic!("offset fetch: {code}"),
            }
        }
    }
}

pub fn produce_request(topic: &str, partition: i32, batch: Bytes) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch));
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![topic])
}

pub async fn produce(
    leader: &mut Raw,
    topic: &str,
    partition: i32,
    batch: Bytes,
) -> PartitionProduceResponse {
    let request = produce_request(topic, partition, batch);
    leader.call(9, &request).await.responses.remove(0).partition_responses.remove(0)
}

pub async fn list(
    leader: &mut Raw,
    version: i16,
    topic: &str,
    partition: i32,
    timestamp: i64,
    committed: bool,
) -> ListOffsetsPartitionResponse {
    let asked = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default().with_name(name(topic)).with_partitions(vec![asked]);
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_isolation_level(i8::from(committed))
        .with_topics(vec![topic]);
    leader.call(version, &request).await.topics.remove(0).partitions.remove(0)
}

/// A transaction by the old protocol: partitions are added by hand.
pub struct Txn {
    coordinator: Raw,
    id: String,
    pub producer_id: i64,
    pub epoch: i16,
    sequences: BTreeMap<(String, i32), i32>,
}

impl Txn {
    pub async fn begin(view: &View) -> Txn {
        let id = fresh("txn");
        loop {
            let mut coordinator = view.coordinator(1, &id).await;
            let request = InitProducerIdRequest::default()
                .with_transactional_id(Some(text(&id).into()))
                .with_transaction_timeout_ms(60_000)
                .with_producer_id((-1).into())
                .with_producer_epoch(-1);
            let answer = coordinator.call(4, &request).await;
            if answer.error_code == 0 {
                let (producer_id, epoch) = (answer.producer_id.0, answer.producer_epoch);
                return Txn { coordinator, id, producer_id, epoch, sequences: BTreeMap::new() };
            }
            assert!([14, 15, 16, 51].contains(&answer.error_code), "{}", answer.error_code);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn add(&mut self, topic: &str, partition: i32) {
        let new = AddPartitionsToTxnTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(text(&self.id).into())
            .with_v3_and_below_producer_id(self.producer_id.into())
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(vec![new]);
        let answer = self.coordinator.call(3, &request).await;
        let result = &answer.results_by_topic_v3_and_below[0].results_by_partition[0];
        assert_eq!(result.partition_error_code, 0);
    }

    /// The error code.
    pub async fn produce(&mut self, leader: &mut Raw, topic: &str, partition: i32, values: &[&[u8]]) -> i16 {
        let records: Vec<_> = values.iter().map(|value| (None, *value, now_ms())).collect();
        let sequence = self.sequences.entry((topic.to_owned(), partition)).or_insert(0);
        let batch = batch_of(&records, self.producer_id, self.epoch, *sequence, true);
        *sequence += i32::try_from(values.len()).unwrap();
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch));
        let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_transactional_id(Some(text(&self.id).into()))
            .with_acks(-1)
            .with_timeout_ms(10_000)
            .with_topic_data(vec![topic]);
        leader.call(9, &request).await.responses[0].partition_responses[0].error_code
    }

    pub async fn end(&mut self, commit: bool) {
        let request = EndTxnRequest::default()
            .with_transactional_id(text(&self.id).into())
            .with_producer_id(self.producer_id.into())
            .with_producer_epoch(self.epoch)
            .with_committed(commit);
        assert_eq!(self.coordinator.call(3, &request).await.error_code, 0);
    }
}

/// A Fetch under construction, for topics named by name or by id as the version wants it.
#[derive(Clone)]
pub struct Ask {
    pub version: i16,
    pub request: FetchRequest,
}

impl Ask {
    pub fn new(version: i16) -> Ask {
        let request = FetchRequest::default()
            .with_max_wait_ms(50)
            .with_min_bytes(1)
            .with_max_bytes(50 << 20)
            .with_session_epoch(-1);
        Ask { version, request }
    }

    pub fn session(mut self, id: i32, epoch: i32) -> Ask {
        self.request = self.request.with_session_id(id).with_session_epoch(epoch);
        self
    }

    pub fn wait(mut self, ms: i32) -> Ask {
        self.request.max_wait_ms = ms;
        self
    }

    pub fn committed(mut self) -> Ask {
        self.request.isolation_level = 1;
        self
    }

    pub fn rack(mut self, rack: &str) -> Ask {
        self.request.rack_id = text(rack);
        self
    }

    pub fn add(self, topic: &str, id: Uuid, partition: i32, offset: i64) -> Ask {
        self.add_with(topic, id, at(partition, offset))
    }

    pub fn add_with(mut self, topic: &str, id: Uuid, partition: FetchPartition) -> Ask {
        let by_id = self.version >= 13;
        let same = |known: &&mut FetchTopic| {
            if by_id { known.topic_id == id } else { known.topic.as_str() == topic }
        };
        if let Some(known) = self.request.topics.last_mut().filter(same) {
            known.partitions.push(partition);
            return self;
        }
        let mut new = FetchTopic::default().with_partitions(vec![partition]);
        if by_id {
            new.topic_id = id;
        } else {
            new.topic = name(topic);
        }
        self.request.topics.push(new);
        self
    }

    pub fn forget(mut self, topic: &str, id: Uuid, partition: i32) -> Ask {
        let mut gone = ForgottenTopic::default().with_partitions(vec![partition]);
        if self.version >= 13 {
            gone.topic_id = id;
        } else {
            gone.topic = name(topic);
        }
        self.request.forgotten_topics_data.push(gone);
        self
    }

    pub async fn of(&self, node: &mut Raw) -> FetchResponse {
        node.call(self.version, &self.request).await
    }
}

/// A partition to fetch with no epochs and a limit of 1 MiB.
pub fn at(partition: i32, offset: i64) -> FetchPartition {
    FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20)
}

/// All partitions of an answer in its order.
pub fn parts(response: &FetchResponse) -> Vec<&PartitionData> {
    response.responses.iter().flat_map(|topic| &topic.partitions).collect()
}

pub fn size(data: &PartitionData) -> usize {
    data.records.as_ref().map_or(0, Bytes::len)
}

/// Markers carry the broker's clock: records much older than it would get a log segment of their own, and an
/// answer never crosses a segment.
pub fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

/// A v2 batch of values, without keys, uncompressed.
pub fn batch(values: &[&[u8]]) -> Bytes {
    let records: Vec<_> = values.iter().map(|value| (None, *value, now_ms())).collect();
    batch_of(&records, -1, -1, -1, false)
}

/// Like [`batch`], at these timestamps.
pub fn batch_at(timestamps: &[i64]) -> Bytes {
    let records: Vec<_> = timestamps.iter().map(|at| (None, &b"v"[..], *at)).collect();
    batch_of(&records, -1, -1, -1, false)
}

/// Key, value, milliseconds.
pub type Entry<'a> = (Option<&'a [u8]>, &'a [u8], i64);

pub fn batch_of(
    records: &[Entry<'_>],
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    transactional: bool,
) -> Bytes {
    use kafka_protocol::records::{
        Compression, NO_PARTITION_LEADER_EPOCH, Record, RecordBatchEncoder, RecordEncodeOptions,
        TimestampType,
    };
    let records: Vec<Record> = (0..)
        .zip(records)
        .map(|(offset, (key, value, timestamp))| Record {
            transactional,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
            producer_id,
            producer_epoch,
            timestamp_type: TimestampType::Creation,
            offset,
            // The codec's encoder begins a new batch wherever offset and sequence drift apart.
            sequence: base_sequence.wrapping_add(i32::try_from(offset).unwrap()),
            timestamp: *timestamp,
            key: key.map(Bytes::copy_from_slice),
            value: Some(Bytes::copy_from_slice(value)),
            headers: Default::default(),
        })
        .collect();
    let mut out = BytesMut::new();
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    RecordBatchEncoder::encode(&mut out, &records, &options).unwrap();
    out.freeze()
}
