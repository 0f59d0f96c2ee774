//! From a frame to a typed request and from a typed answer back to a frame.
//!
//! Each API is one implementation of [`Api`] in a file of its own; adding an API is adding that file, a row of
//! the version table and a line in [`decode`]. A request either answers at once or parks: a parked one is asked
//! again at each change of the world and at its deadline.

use std::any::Any;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, ApiKey, ApiVersionsRequest,
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, CreatePartitionsRequest,
    CreateTopicsRequest, DeleteGroupsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest, EndTxnRequest, FetchRequest,
    FindCoordinatorRequest, HeartbeatRequest, IncrementalAlterConfigsRequest, InitProducerIdRequest,
    JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest, ListOffsetsRequest, MetadataRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
    ProduceRequest, ResponseHeader, SyncGroupRequest, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request};
use tokio::time::Instant;

use super::faults::Effects;
use super::requests::FetchSeen;
use super::world::World;

/// What is known about one request besides its body.
pub(super) struct Call {
    pub now: Instant,
    pub node: i32,
    pub version: i16,
    pub correlation: i32,
    pub client_id: String,
    pub effects: Effects,
}

/// How a request begins.
pub(super) enum Started<R> {
    Done(R),
    Wait(Box<dyn Waiting<R>>),
    /// Nothing is sent (a Produce with acks 0).
    Silent,
}

/// A request that waits for the world to change.
pub(super) trait Waiting<R>: Send {
    fn poll(&mut self, world: &mut World, call: &Call, now: Instant) -> Option<R>;
    fn deadline(&self) -> Option<Instant>;
}

/// One API as the embedded cluster serves it.
pub(super) trait Api: Request<Response: Send + Any> + Send + 'static {
    /// Topics the request names.
    fn topics(&self, _world: &World) -> Vec<String> {
        Vec::new()
    }

    /// What the request log keeps of a Fetch.
    fn fetch_seen(&self, _world: &World) -> Option<FetchSeen> {
        None
    }

    /// Whether [`Api::start`] obeys the error of a fault by itself.
    const REFUSES_BY_ITSELF: bool = false;

    /// The answer with `code` wherever this API reports an error. Nothing is carried out.
    fn refuse(&self, call: &Call, code: i16) -> Self::Response;

    fn start(self, world: &mut World, call: &Call) -> Started<Self::Response>;

    /// The throttle field of an answer.
    fn throttle(response: &mut Self::Response) -> Option<&mut i32>;
}

/// What goes back on the connection.
pub(super) enum Reply {
    Frame {
        bytes: Bytes,
        /// The connection is not read for this long, as a broker mutes a throttled one.
        mute: Duration,
    },
    Silent,
    Close,
}

/// A request whose type is erased.
pub(super) trait Job: Send {
    fn topics(&self, world: &World) -> Vec<String>;
    fn fetch_seen(&self, world: &World) -> Option<FetchSeen>;
    fn start(self: Box<Self>, world: &mut World, call: &Call) -> Progress;
}

pub(super) enum Progress {
    Reply(Reply),
    Parked(Box<dyn Parked>),
}

/// A parked request whose type is erased.
pub(super) trait Parked: Send {
    fn poll(&mut self, world: &mut World, call: &Call, now: Instant) -> Option<Reply>;
    fn deadline(&self) -> Option<Instant>;
}

struct Typed<A: Api>(A);

struct TypedWait<A: Api>(Box<dyn Waiting<A::Response>>);

impl<A: Api> Job for Typed<A> {
    fn topics(&self, world: &World) -> Vec<String> {
        self.0.topics(world)
    }

    fn fetch_seen(&self, world: &World) -> Option<FetchSeen> {
        self.0.fetch_seen(world)
    }

    fn start(self: Box<Self>, world: &mut World, call: &Call) -> Progress {
        let started = match &call.effects.error {
            Some(error) if !A::REFUSES_BY_ITSELF => Started::Done(self.0.refuse(call, error.code)),
            _ => self.0.start(world, call),
        };
        match started {
            Started::Done(response) => Progress::Reply(finish::<A>(call, response)),
            Started::Silent => Progress::Reply(Reply::Silent),
            Started::Wait(mut waiting) => match waiting.poll(world, call, call.now) {
                Some(response) => Progress::Reply(finish::<A>(call, response)),
                None => Progress::Parked(Box::new(TypedWait::<A>(waiting))),
            },
        }
    }
}

impl<A: Api> Parked for TypedWait<A> {
    fn poll(&mut self, world: &mut World, call: &Call, now: Instant) -> Option<Reply> {
        self.0.poll(world, call, now).map(|response| finish::<A>(call, response))
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }
}

fn finish<A: Api>(call: &Call, mut response: A::Response) -> Reply {
    if let (Some(throttle), Some(field)) = (call.effects.throttle, A::throttle(&mut response)) {
        *field = millis(throttle);
    }
    call.effects.change(&mut response);
    let mute = A::throttle(&mut response).map_or(0, |ms| *ms);
    let mute = Duration::from_millis(u64::try_from(mute).unwrap_or(0));
    match encode(call.correlation, &response, call.version) {
        Some(bytes) => Reply::Frame { bytes, mute },
        None => {
            tracing::error!(api = A::KEY, version = call.version, "an embedded answer could not be encoded");
            Reply::Close
        }
    }
}

/// A whole frame: length, header, body.
pub(super) fn encode<R: Encodable + HeaderVersion>(
    correlation: i32,
    response: &R,
    version: i16,
) -> Option<Bytes> {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    let header = ResponseHeader::default().with_correlation_id(correlation);
    header.encode(&mut frame, R::header_version(version)).ok()?;
    response.encode(&mut frame, version).ok()?;
    let length = i32::try_from(frame.len().checked_sub(4)?).ok()?;
    frame.get_mut(..4)?.copy_from_slice(&length.to_be_bytes());
    Some(frame.freeze())
}

pub(super) fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

fn typed<A: Api>(mut body: Bytes, version: i16) -> Option<Box<dyn Job>> {
    let request = A::decode(&mut body, version).ok()?;
    Some(Box::new(Typed(request)))
}

/// The request in `body`, or `None` when it is malformed or the API is not served.
pub(super) fn decode(api: ApiKey, version: i16, body: Bytes) -> Option<Box<dyn Job>> {
    match api {
        ApiKey::Produce => typed::<ProduceRequest>(body, version),
        ApiKey::Fetch => typed::<FetchRequest>(body, version),
        ApiKey::ListOffsets => typed::<ListOffsetsRequest>(body, version),
        ApiKey::Metadata => typed::<MetadataRequest>(body, version),
        ApiKey::OffsetCommit => typed::<OffsetCommitRequest>(body, version),
        ApiKey::OffsetFetch => typed::<OffsetFetchRequest>(body, version),
        ApiKey::FindCoordinator => typed::<FindCoordinatorRequest>(body, version),
        ApiKey::ApiVersions => typed::<ApiVersionsRequest>(body, version),
        ApiKey::CreateTopics => typed::<CreateTopicsRequest>(body, version),
        ApiKey::DeleteTopics => typed::<DeleteTopicsRequest>(body, version),
        ApiKey::DeleteRecords => typed::<DeleteRecordsRequest>(body, version),
        ApiKey::DescribeGroups => typed::<DescribeGroupsRequest>(body, version),
        ApiKey::InitProducerId => typed::<InitProducerIdRequest>(body, version),
        ApiKey::OffsetForLeaderEpoch => typed::<OffsetForLeaderEpochRequest>(body, version),
        ApiKey::AddPartitionsToTxn => typed::<AddPartitionsToTxnRequest>(body, version),
        ApiKey::ConsumerGroupHeartbeat => typed::<ConsumerGroupHeartbeatRequest>(body, version),
        ApiKey::AddOffsetsToTxn => typed::<AddOffsetsToTxnRequest>(body, version),
        ApiKey::TxnOffsetCommit => typed::<TxnOffsetCommitRequest>(body, version),
        ApiKey::JoinGroup => typed::<JoinGroupRequest>(body, version),
        ApiKey::SyncGroup => typed::<SyncGroupRequest>(body, version),
        ApiKey::Heartbeat => typed::<HeartbeatRequest>(body, version),
        ApiKey::LeaveGroup => typed::<LeaveGroupRequest>(body, version),
        ApiKey::EndTxn => typed::<EndTxnRequest>(body, version),
        ApiKey::CreatePartitions => typed::<CreatePartitionsRequest>(body, version),
        ApiKey::DescribeConfigs => typed::<DescribeConfigsRequest>(body, version),
        ApiKey::IncrementalAlterConfigs => typed::<IncrementalAlterConfigsRequest>(body, version),
        ApiKey::DescribeCluster => typed::<DescribeClusterRequest>(body, version),
        ApiKey::ListGroups => typed::<ListGroupsRequest>(body, version),
        ApiKey::ConsumerGroupDescribe => typed::<ConsumerGroupDescribeRequest>(body, version),
        ApiKey::DeleteGroups => typed::<DeleteGroupsRequest>(body, version),
        ApiKey::OffsetDelete => typed::<OffsetDeleteRequest>(body, version),
        _ => None,
    }
}
