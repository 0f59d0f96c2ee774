//! Any bytes as the answer of any request a client sends: an error or a value, never a panic, never an allocation
//! the bytes do not pay for (run with `-malloc_limit_mb=64`).
//!
//! The first byte chooses the API, the second the version, the rest is the body.

#![no_main]

use bytes::Bytes;
use kafka_meta::wire::guard::decode;
use kafka_meta::wire::protocol::messages::*;
use kafka_meta::wire::protocol::protocol::Message;
use libfuzzer_sys::fuzz_target;

macro_rules! answers {
    ($choice:expr, $version:expr, $body:expr; $($key:literal $response:ty),+ $(,)?) => {{
        let all: &[fn(u8, Bytes)] = &[$(|version, body| {
            let range = <$response>::VERSIONS;
            let count = range.max - range.min + 1;
            let _ = decode::<$response>($key, range.min + i16::from(version) % count, body);
        }),+];
        all[usize::from($choice) % all.len()]($version, $body);
    }};
}

fuzz_target!(|data: &[u8]| {
    let [choice, version, body @ ..] = data else { return };
    let body = Bytes::copy_from_slice(body);
    answers!(*choice, *version, body;
        0 ProduceResponse, 1 FetchResponse, 2 ListOffsetsResponse, 3 MetadataResponse, 8 OffsetCommitResponse,
        9 OffsetFetchResponse, 10 FindCoordinatorResponse, 11 JoinGroupResponse, 12 HeartbeatResponse,
        13 LeaveGroupResponse, 14 SyncGroupResponse, 15 DescribeGroupsResponse, 16 ListGroupsResponse,
        17 SaslHandshakeResponse, 18 ApiVersionsResponse, 19 CreateTopicsResponse, 22 InitProducerIdResponse,
        23 OffsetForLeaderEpochResponse, 24 AddPartitionsToTxnResponse, 26 EndTxnResponse,
        28 TxnOffsetCommitResponse, 32 DescribeConfigsResponse, 36 SaslAuthenticateResponse,
        60 DescribeClusterResponse, 68 ConsumerGroupHeartbeatResponse, 69 ConsumerGroupDescribeResponse,
        75 DescribeTopicPartitionsResponse,
    );
});
