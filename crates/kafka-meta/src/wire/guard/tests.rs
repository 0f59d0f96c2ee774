//! Layouts against the codec, and hostile answers.

#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Message};
use proptest::prelude::*;

use super::layout::{Body, Kind, Layout};
use super::tables::{TABLES, layout};
use super::{check, decode};

/// Writes bytes along a layout: arrays of up to two, nulls nowhere, text of ASCII, now and then an unknown tag.
struct Writer {
    out: Vec<u8>,
    version: i16,
    flexible: bool,
    random: fastrand::Rng,
}

impl Writer {
    fn varint(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn count(&mut self, count: usize) {
        if self.flexible { self.varint(count + 1) } else { self.out.extend((count as i32).to_be_bytes()) }
    }

    fn body(&mut self, body: &Body) {
        let version = self.version;
        for field in body.fields.iter().filter(|field| field.is_in(version)) {
            self.kind(&field.kind);
        }
        if !self.flexible {
            return;
        }
        let known = body.tags.iter().filter(|(_, field)| field.is_in(self.version) && self.random.bool());
        let known: Vec<_> = known.collect();
        let unknown = self.random.bool();
        self.varint(known.len() + usize::from(unknown));
        for (tag, field) in known {
            self.varint(*tag as usize);
            let outer = std::mem::take(&mut self.out);
            self.kind(&field.kind);
            let value = std::mem::replace(&mut self.out, outer);
            self.varint(value.len());
            self.out.extend(value);
        }
        if unknown {
            self.varint(4_000);
            self.varint(3);
            self.out.extend(b"new");
        }
    }

    fn kind(&mut self, kind: &Kind) {
        match kind {
            Kind::Fixed(size) => self.out.extend((0..*size).map(|_| self.random.u8(0..2))),
            Kind::Text => {
                let length = self.random.usize(0..4);
                if self.flexible {
                    self.varint(length + 1)
                } else {
                    self.out.extend((length as i16).to_be_bytes())
                }
                self.out.extend(std::iter::repeat_n(b'x', length));
            }
            Kind::Blob => {
                self.count(3);
                self.out.extend([1, 2, 3]);
            }
            Kind::Structs(body) => {
                let count = self.random.usize(0..3);
                self.count(count);
                (0..count).for_each(|_| self.body(body));
            }
            Kind::Values(kind) => {
                let count = self.random.usize(0..3);
                self.count(count);
                (0..count).for_each(|_| self.kind(kind));
            }
            Kind::Struct(body) => self.body(body),
            Kind::Maybe(body) => {
                let there = self.random.bool();
                self.out.push(if there { 1 } else { 0xff });
                if there {
                    self.body(body);
                }
            }
        }
    }
}

fn sample(layout: &Layout, version: i16, seed: u64) -> Vec<u8> {
    let flexible = layout.is_flexible(version);
    let mut writer = Writer { out: Vec::new(), version, flexible, random: fastrand::Rng::with_seed(seed) };
    writer.body(layout.body());
    writer.out
}

/// Bytes made along the layout satisfy both, whole; cut short they satisfy neither the walk nor, silently, the
/// codec.
fn agrees<R: Message + Decodable>(key: i16) {
    let layout = layout(key).unwrap_or_else(|| panic!("{key}: no layout"));
    for version in R::VERSIONS.min..=R::VERSIONS.max {
        for seed in 0..40 {
            let bytes = sample(layout, version, seed);
            check(key, version, &bytes).unwrap_or_else(|error| panic!("{key} v{version} walk: {error}"));
            let mut rest = Bytes::from(bytes.clone());
            R::decode(&mut rest, version).unwrap_or_else(|error| panic!("{key} v{version} codec: {error}"));
            assert!(rest.is_empty(), "{key} v{version}: {} of {} bytes left", rest.len(), bytes.len());
            if let Some(short) = bytes.len().checked_sub(1) {
                assert!(check(key, version, &bytes[..short]).is_err(), "{key} v{version}: cut short");
            }
        }
    }
}

#[test]
fn every_layout_is_what_the_codec_reads() {
    agrees::<ProduceResponse>(0);
    agrees::<FetchResponse>(1);
    agrees::<ListOffsetsResponse>(2);
    agrees::<MetadataResponse>(3);
    agrees::<OffsetCommitResponse>(8);
    agrees::<OffsetFetchResponse>(9);
    agrees::<FindCoordinatorResponse>(10);
    agrees::<JoinGroupResponse>(11);
    agrees::<HeartbeatResponse>(12);
    agrees::<LeaveGroupResponse>(13);
    agrees::<SyncGroupResponse>(14);
    agrees::<DescribeGroupsResponse>(15);
    agrees::<ListGroupsResponse>(16);
    agrees::<SaslHandshakeResponse>(17);
    agrees::<ApiVersionsResponse>(18);
    agrees::<CreateTopicsResponse>(19);
    agrees::<DeleteTopicsResponse>(20);
    agrees::<DeleteRecordsResponse>(21);
    agrees::<InitProducerIdResponse>(22);
    agrees::<OffsetForLeaderEpochResponse>(23);
    agrees::<AddPartitionsToTxnResponse>(24);
    agrees::<AddOffsetsToTxnResponse>(25);
    agrees::<EndTxnResponse>(26);
    agrees::<TxnOffsetCommitResponse>(28);
    agrees::<DescribeAclsResponse>(29);
    agrees::<CreateAclsResponse>(30);
    agrees::<DeleteAclsResponse>(31);
    agrees::<DescribeConfigsResponse>(32);
    agrees::<AlterConfigsResponse>(33);
    agrees::<AlterReplicaLogDirsResponse>(34);
    agrees::<DescribeLogDirsResponse>(35);
    agrees::<SaslAuthenticateResponse>(36);
    agrees::<CreatePartitionsResponse>(37);
    agrees::<CreateDelegationTokenResponse>(38);
    agrees::<RenewDelegationTokenResponse>(39);
    agrees::<ExpireDelegationTokenResponse>(40);
    agrees::<DescribeDelegationTokenResponse>(41);
    agrees::<DeleteGroupsResponse>(42);
    agrees::<ElectLeadersResponse>(43);
    agrees::<IncrementalAlterConfigsResponse>(44);
    agrees::<AlterPartitionReassignmentsResponse>(45);
    agrees::<ListPartitionReassignmentsResponse>(46);
    agrees::<OffsetDeleteResponse>(47);
    agrees::<DescribeClientQuotasResponse>(48);
    agrees::<AlterClientQuotasResponse>(49);
    agrees::<DescribeUserScramCredentialsResponse>(50);
    agrees::<AlterUserScramCredentialsResponse>(51);
    agrees::<DescribeQuorumResponse>(55);
    agrees::<UpdateFeaturesResponse>(57);
    agrees::<DescribeClusterResponse>(60);
    agrees::<DescribeProducersResponse>(61);
    agrees::<UnregisterBrokerResponse>(64);
    agrees::<DescribeTransactionsResponse>(65);
    agrees::<ListTransactionsResponse>(66);
    agrees::<ConsumerGroupHeartbeatResponse>(68);
    agrees::<ConsumerGroupDescribeResponse>(69);
    agrees::<GetTelemetrySubscriptionsResponse>(71);
    agrees::<PushTelemetryResponse>(72);
    agrees::<ListConfigResourcesResponse>(74);
    agrees::<DescribeTopicPartitionsResponse>(75);
    agrees::<ShareGroupHeartbeatResponse>(76);
    agrees::<ShareGroupDescribeResponse>(77);
    agrees::<ShareFetchResponse>(78);
    agrees::<ShareAcknowledgeResponse>(79);
    agrees::<DescribeShareGroupOffsetsResponse>(90);
    agrees::<AlterShareGroupOffsetsResponse>(91);
    agrees::<DeleteShareGroupOffsetsResponse>(92);
    assert_eq!(TABLES.len(), 67, "a layout is not held to the codec");
}

#[test]
fn every_layout_can_be_parsed() {
    for (key, ..) in TABLES {
        assert!(layout(*key).is_some(), "{key}");
    }
}

#[test]
fn a_count_the_bytes_cannot_hold_is_refused_before_anything_is_reserved() {
    // FetchResponse v12: throttle, error, session id, then an array of 0xFFFFFFFE topics; 14 GB if believed.
    let mut bytes = vec![0u8; 10];
    bytes.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
    let error = decode::<FetchResponse>(1, 12, Bytes::from(bytes)).unwrap_err();
    assert!(error.to_string().starts_with("Fetch"), "{error}");
    // MetadataResponse v0: brokers.
    assert!(decode::<MetadataResponse>(3, 0, Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff])).is_err());
    // ApiVersions v3: in a tagged field.
    let bytes = [0, 0, 1, 0, 0, 0, 0, 1, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x0f];
    assert!(decode::<ApiVersionsResponse>(18, 3, Bytes::copy_from_slice(&bytes)).is_err());
}

#[test]
fn an_answer_without_a_layout_is_refused() {
    assert!(check(52, 0, &[]).is_err());
}

proptest! {
    #[test]
    fn any_bytes_give_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 0i16..14) {
        let bytes = Bytes::from(bytes);
        let _ = decode::<MetadataResponse>(3, version, bytes.clone());
        let _ = decode::<FindCoordinatorResponse>(10, version.min(6), bytes.clone());
        let _ = decode::<OffsetFetchResponse>(9, version.clamp(1, 10), bytes.clone());
        let _ = decode::<JoinGroupResponse>(11, version.min(9), bytes.clone());
        let _ = decode::<ApiVersionsResponse>(18, version.min(4), bytes.clone());
        let _ = decode::<ConsumerGroupHeartbeatResponse>(68, version.min(1), bytes);
    }

    #[test]
    fn what_administrators_are_answered_gives_a_value_or_an_error(
        seed in any::<u64>(), version in 0i16..11, at in any::<usize>(), with in any::<u32>()
    ) {
        // Four bytes in a row, so that a count can become a large one.
        macro_rules! answers {
            ($($key:literal $answer:ident $least:literal $most:literal;)*) => {$({
                let version = version.clamp($least, $most);
                let mut bytes = sample(layout($key).unwrap(), version, seed);
                let at = at % bytes.len();
                for (byte, with) in bytes[at..].iter_mut().zip(with.to_be_bytes()) {
                    *byte = with;
                }
                let _ = decode::<$answer>($key, version, Bytes::from(bytes));
            })*};
        }
        answers! {
            2 ListOffsetsResponse 1 10;
            8 OffsetCommitResponse 2 9;
            9 OffsetFetchResponse 1 9;
            13 LeaveGroupResponse 0 5;
            15 DescribeGroupsResponse 0 6;
            16 ListGroupsResponse 0 5;
            19 CreateTopicsResponse 2 7;
            20 DeleteTopicsResponse 1 6;
            21 DeleteRecordsResponse 0 2;
            32 DescribeConfigsResponse 1 4;
            37 CreatePartitionsResponse 0 3;
            42 DeleteGroupsResponse 0 2;
            44 IncrementalAlterConfigsResponse 0 1;
            47 OffsetDeleteResponse 0 0;
            60 DescribeClusterResponse 0 2;
            69 ConsumerGroupDescribeResponse 0 1;
        }
    }

    #[test]
    fn one_wrong_byte_gives_a_value_or_an_error(seed in any::<u64>(), version in 0i16..14, at in any::<usize>(), byte in any::<u8>()) {
        let mut bytes = sample(layout(3).unwrap(), version, seed);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = decode::<MetadataResponse>(3, version, Bytes::from(bytes));
    }
}
