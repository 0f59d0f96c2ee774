//! The floor: the least a reader of record batches can do on this machine. Frames from a socket, each into a
//! buffer of its own, the CRC, one walk over the records. No Kafka request, no session, no position, and one walk
//! where the consumer makes two (it proves a batch before it hands it out).

use std::hint::black_box;

use bytes::{BufMut, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

const HEADER: usize = 61;
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

/// Reads one frame, checks and walks it; the number of its records.
pub async fn frame(stream: &mut TcpStream, crc: fn(&[u8]) -> u32) -> usize {
    let length = stream.read_u32().await.unwrap() as usize;
    let mut frame = BytesMut::with_capacity(length);
    while frame.len() < length {
        let missing = length - frame.len();
        assert_ne!(stream.read_buf(&mut (&mut frame).limit(missing)).await.unwrap(), 0);
    }
    let frame = frame.freeze();
    assert_eq!(crc(&frame[CRC_FROM..]).to_be_bytes(), frame[CRC_AT..CRC_FROM], "a damaged batch");
    walk(&frame[HEADER..])
}

/// Visits every record of a section without unpacking, copying or allocating.
pub fn walk(mut rest: &[u8]) -> usize {
    let mut records = 0;
    while !rest.is_empty() {
        let mut at = 0;
        let length = varint(rest, &mut at) as usize;
        let (body, after) = rest[at..].split_at(length);
        let mut at = 1;
        let timestamp = varint(body, &mut at);
        let offset = varint(body, &mut at);
        let key = part(body, &mut at);
        let value = part(body, &mut at);
        let headers = &body[at..];
        black_box((timestamp, offset, key, value, headers));
        rest = after;
        records += 1;
    }
    records
}

#[inline(always)]
fn part<'a>(body: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(body, at)).ok()?;
    let part = &body[*at..*at + length];
    *at += length;
    Some(part)
}

#[inline(always)]
fn varint(data: &[u8], at: &mut usize) -> i64 {
    let mut value = 0u64;
    let mut shift = 0;
    loop {
        let byte = data[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return ((value >> 1) ^ (value & 1).wrapping_neg()).cast_signed();
        }
        shift += 7;
    }
}
