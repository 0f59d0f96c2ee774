//! Formats v0 and v1, from before Kafka 0.11: still on the disks of brokers that were upgraded, and answered as
//! they lie there.
//!
//! A message stands alone or wraps a packed set of others. Opened, either becomes v2 frames, so that everything
//! above knows one form. Rules: inner offsets of a v1 wrapper are relative to its first message, of which the
//! wrapper's own offset (that of the last) tells the base; those of a v0 wrapper are absolute. A wrapper's CRC is
//! not looked at, those of the messages inside are, always. A wrapper in a wrapper, a v2 batch in one, an empty
//! one and one cut inside are damaged: where Java drops the cut message silently, v1 offsets shift.

use bytes::Bytes;

use super::header::{self, BatchHeader, Codec, LEGACY_CRC_FROM, PREFIX};
use super::open::inflate;
use super::set::{Common, RecordSet};
use super::{BatchError, RawBatch, Reason, walk};
use crate::{TimestampType, varint};

/// What a v0 or v1 message says beside its header.
struct Message<'a> {
    offset: i64,
    /// −1 in v0.
    timestamp: i64,
    magic: u8,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
}

/// Opens a message or a wrapper.
pub(crate) fn open(batch: &RawBatch, limit: usize, from: i64) -> Result<RecordSet, BatchError> {
    let codec = batch.header.codec().map_err(|id| BatchError::UnsupportedCodec { id })?;
    let message = parse(&batch.bytes, &batch.header).ok_or(Reason::Frame)?;
    if codec == Codec::None {
        return records(&batch.header, &[message], from);
    }
    let packed = message.value.ok_or(Reason::Wrapper)?;
    // In v0 the lz4 header's checksum was made over the wrong bytes, and readers let anything pass.
    let (inner, _) = inflate(codec, packed, limit, batch.header.magic == 0)?;
    let mut messages = messages(&inner)?;
    let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
        return Err(Reason::Wrapper.into());
    };
    if batch.header.magic == 1 {
        let base = batch.header.base_offset.checked_sub(last.offset).ok_or(Reason::OffsetRange)?;
        base.checked_add(first.offset).filter(|first| *first >= 0).ok_or(Reason::OffsetRange)?;
        for message in &mut messages {
            message.offset = message.offset.checked_add(base).ok_or(Reason::OffsetRange)?;
        }
    }
    records(&batch.header, &messages, from)
}

/// The messages in an inflated wrapper.
fn messages(mut inner: &[u8]) -> Result<Vec<Message<'_>>, BatchError> {
    let mut messages = Vec::new();
    while !inner.is_empty() {
        let length = usize::try_from(header::read_i32(inner, 8)).map_err(|_| Reason::Length)?;
        let (bytes, rest) = length
            .checked_add(PREFIX)
            .and_then(|size| inner.split_at_checked(size))
            .ok_or(Reason::Wrapper)?;
        let magic = bytes.get(16).copied().filter(|magic| *magic <= 1).ok_or(Reason::Wrapper)?;
        let header = BatchHeader::read_legacy(bytes, magic, bytes.len()).ok_or(Reason::Length)?;
        if header.codec() != Ok(Codec::None) {
            return Err(Reason::Wrapper.into());
        }
        if !crc_is_good(bytes) {
            return Err(Reason::Crc.into());
        }
        messages.push(parse(bytes, &header).ok_or(Reason::Frame)?);
        inner = rest;
    }
    Ok(messages)
}

/// The key and value of the message `bytes`.
fn parse<'a>(bytes: &'a [u8], header: &BatchHeader) -> Option<Message<'a>> {
    let mut rest = bytes.get(if header.magic == 0 { header::V0_MIN - 8 } else { header::V1_MIN - 8 }..)?;
    let mut part = || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else { return Some(None) };
        let (part, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(Some(part))
    };
    let (key, value) = (part()?, part()?);
    if !rest.is_empty() {
        return None;
    }
    Some(Message {
        offset: header.base_offset,
        timestamp: header.max_timestamp,
        magic: header.magic,
        key,
        value,
    })
}

/// The same messages as v2 frames, under the header of the message that wrapped them (or of the only one).
fn records(header: &BatchHeader, messages: &[Message<'_>], from: i64) -> Result<RecordSet, BatchError> {
    let base_offset = messages.first().map_or(header.base_offset, |message| message.offset);
    let stamped = header.timestamp_type() == TimestampType::LogAppendTime;
    let kind = if stamped {
        TimestampType::LogAppendTime
    } else if messages.iter().all(|message| message.magic == 0) {
        TimestampType::None
    } else {
        TimestampType::CreateTime
    };
    let mut section = Vec::new();
    for message in messages {
        let delta = message.offset.checked_sub(base_offset).and_then(|delta| i32::try_from(delta).ok());
        put_frame(&mut section, delta.ok_or(Reason::RecordOffset)?, message);
    }
    let last_delta = header.base_offset.checked_sub(base_offset).ok_or(Reason::OffsetRange)?;
    let last_delta = i32::try_from(last_delta.clamp(-1, i64::from(i32::MAX))).unwrap_or(i32::MAX);
    let count = i32::try_from(messages.len()).map_err(|_| Reason::Count)?;
    let section = Bytes::from(section);
    let checked = walk::check(&section, count, last_delta, from.saturating_sub(base_offset))?;
    let common = Common {
        base_offset,
        leader_epoch: None,
        // Frames carry whole timestamps, so the base is zero.
        timestamp: if stamped { header.max_timestamp } else { 0 },
        kind,
        inflated: section.len().max(1),
    };
    Ok(RecordSet::new(&section, common, checked))
}

fn put_frame(out: &mut Vec<u8>, offset_delta: i32, message: &Message<'_>) {
    let parts = [message.key, message.value];
    let body = 2
        + varint::len_i64(message.timestamp)
        + varint::len_i32(offset_delta)
        + parts.iter().map(|part| varint::part_len(*part)).sum::<usize>();
    let length = i64::try_from(body).unwrap_or(i64::MAX);
    let start = out.len();
    out.resize(start + body + varint::len_i64(length), 0);
    let mut frame = varint::Filler::new(out.get_mut(start..).unwrap_or_default());
    frame.varint(length);
    frame.byte(0);
    frame.varint(message.timestamp);
    frame.varint(i64::from(offset_delta));
    frame.part(message.key);
    frame.part(message.value);
    frame.byte(0);
}

/// Whether a message's own CRC is right.
pub(crate) fn crc_is_good(message: &[u8]) -> bool {
    message.get(LEGACY_CRC_FROM..).map(crc32) == Some(header::read_u32(message, PREFIX))
}

const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut index = 0;
    let mut seed = 0u32;
    while index < table.len() {
        let mut value = seed;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        // A constant is evaluated by the compiler, where an index out of range is an error.
        #[allow(clippy::indexing_slicing)]
        {
            table[index] = value;
        }
        index += 1;
        seed += 1;
    }
    table
};

/// CRC-32 as zlib has it. A byte at a time: messages this old are rare, and gzip's may not be compiled in.
pub(crate) fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        (crc >> 8) ^ TABLE.get(usize::from(low ^ byte)).copied().unwrap_or(0)
    })
}
