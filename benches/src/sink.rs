//! A broker that takes whatever is written, at the least cost: each batch is answered as appended and forgotten.
//! And the least a writer can do: batches filled, sealed and written with the request around them, five requests
//! on the way.
//!
//! One topic on one node; ApiVersions, Metadata, InitProducerId, Produce 8 and 9. What it is not: a check of
//! anything; that is what the tests are for.

use std::collections::VecDeque;
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, InitProducerIdResponse, ProduceRequest, ProduceResponse, RequestHeader,
};
use kafka_protocol::protocol::Decodable;
use kafka_read::batch::write::{BatchOptions, BatchWriter};

use crate::endless::{TOPIC, answer, metadata};
use crate::usage::Usage;

const VERSIONS: [(ApiKey, i16, i16); 4] = [
    (ApiKey::Produce, 3, 9),
    (ApiKey::Metadata, 0, 12),
    (ApiKey::ApiVersions, 0, 3),
    (ApiKey::InitProducerId, 0, 4),
];

/// Serves in threads of this process until it ends; the port.
pub fn serve(partitions: i32) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || while turn(&mut stream, port, partitions).is_some() {});
        }
    });
    port
}

fn turn(stream: &mut TcpStream, port: u16, partitions: i32) -> Option<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame).ok()?;
    let mut frame = Bytes::from(frame);
    let key = ApiKey::try_from(i16::from_be_bytes([frame[0], frame[1]])).ok()?;
    let version = i16::from_be_bytes([frame[2], frame[3]]);
    let header = RequestHeader::decode(&mut frame, key.request_header_version(version)).unwrap();
    let correlation = header.correlation_id;
    let out = match key {
        ApiKey::ApiVersions if version > 3 => {
            answer(correlation, key, 0, &ApiVersionsResponse::default().with_error_code(35))
        }
        ApiKey::ApiVersions => {
            let keys = VERSIONS.map(|(key, min, max)| {
                ApiVersion::default().with_api_key(key as i16).with_min_version(min).with_max_version(max)
            });
            answer(correlation, key, version, &ApiVersionsResponse::default().with_api_keys(keys.into()))
        }
        ApiKey::Metadata => answer(correlation, key, version, &metadata(port, partitions)),
        ApiKey::InitProducerId => {
            let identity =
                InitProducerIdResponse::default().with_producer_id(1.into()).with_producer_epoch(0);
            answer(correlation, key, version, &identity)
        }
        ApiKey::Produce => {
            let request = ProduceRequest::decode(&mut frame, version).unwrap();
            let topics = request.topic_data.into_iter().map(|topic| {
                let partitions = topic.partition_data.iter().map(|partition| {
                    PartitionProduceResponse::default().with_index(partition.index).with_base_offset(0)
                });
                TopicProduceResponse::default()
                    .with_name(topic.name)
                    .with_partition_responses(partitions.collect())
            });
            let response = ProduceResponse::default().with_responses(topics.collect());
            answer(correlation, key, version, &response)
        }
        other => panic!("nobody needs {other:?} to write"),
    };
    stream.write_all(&out).ok()
}

/// What a run came to: records written and acknowledged, and what they cost.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Records acknowledged in the time measured.
    pub records: u64,
    /// What the process used for them.
    pub usage: Usage,
    /// How long it took.
    pub wall: Duration,
}

/// The least a writer can do, for `span` after a warm-up of half a second.
pub fn floor(port: u16, partitions: i32, value: &[u8], batch_size: usize, span: Duration) -> Outcome {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    let begun = Instant::now();
    let mut marks = None;
    let (mut records, mut sequence) = (0_u64, 0_i32);
    let mut on_the_way = VecDeque::new();
    loop {
        if marks.is_none() && begun.elapsed() > Duration::from_millis(500) {
            marks = Some((Usage::now(), Instant::now(), records));
        }
        if let Some((usage, at, before)) = marks
            && at.elapsed() > span
        {
            return Outcome {
                records: records - before,
                usage: Usage::now().since(usage),
                wall: at.elapsed(),
            };
        }
        let mut batches = Vec::new();
        let mut count = 0_u64;
        for _ in 0..partitions {
            let options = BatchOptions {
                producer_id: 1,
                producer_epoch: 0,
                base_sequence: sequence,
                ..Default::default()
            };
            let mut batch = BatchWriter::with_capacity(options, batch_size);
            while batch.len() + value.len() + 10 <= batch_size {
                batch.push(1_700_000_000_000, None, Some(value), &[]).unwrap();
            }
            count += batch.record_count() as u64;
            batches.push(batch.finish().unwrap());
        }
        sequence = sequence.wrapping_add(1).max(0);
        send(&mut stream, &batches);
        on_the_way.push_back(count);
        if on_the_way.len() == 5 {
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut body = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut body).unwrap();
            records += on_the_way.pop_front().unwrap();
        }
    }
}

/// Produce version 8, written around the batches.
fn send(stream: &mut TcpStream, batches: &[BytesMut]) {
    let mut head = BytesMut::new();
    head.put_i32(0);
    head.put_i16(ApiKey::Produce as i16);
    head.put_i16(8);
    head.put_i32(1);
    head.put_i16(-1);
    head.put_i16(-1);
    head.put_i16(-1);
    head.put_i32(30_000);
    head.put_i32(1);
    head.put_i16(TOPIC.len() as i16);
    head.put_slice(TOPIC.as_bytes());
    head.put_i32(batches.len() as i32);
    let frames: Vec<[u8; 8]> = batches
        .iter()
        .enumerate()
        .map(|(index, batch)| {
            let mut frame = [0; 8];
            frame[..4].copy_from_slice(&(index as i32).to_be_bytes());
            frame[4..].copy_from_slice(&(batch.len() as i32).to_be_bytes());
            frame
        })
        .collect();
    let length = head.len() - 4 + batches.iter().map(|batch| batch.len() + 8).sum::<usize>();
    head[..4].copy_from_slice(&(length as i32).to_be_bytes());
    let mut slices = vec![IoSlice::new(&head)];
    for (frame, batch) in frames.iter().zip(batches) {
        slices.push(IoSlice::new(frame));
        slices.push(IoSlice::new(batch));
    }
    let mut slices = &mut slices[..];
    while !slices.is_empty() {
        let written = stream.write_vectored(slices).unwrap();
        IoSlice::advance_slices(&mut slices, written);
    }
}
