//! Writes messages of formats v0 and v1, plain and as compressed wrappers, for tests: brokers have not taken these
//! since 4.0, but their disks may still hold them.

use bytes::{BufMut, Bytes};

use super::super::header::{Codec, LEGACY_CRC_FROM};
use super::super::{BatchError, legacy::crc32};
use crate::codec;

/// One message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Message {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp; not stored in v0.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
}

/// Appends one message with the given attributes (codec, and 8 for log append time).
pub fn put_message(out: &mut Vec<u8>, magic: u8, attributes: u8, message: &Message) {
    let length =
        |part: &Option<Bytes>| part.as_ref().map_or(-1, |part| i32::try_from(part.len()).unwrap_or(i32::MAX));
    let mut body = Vec::new();
    body.put_u8(magic);
    body.put_u8(attributes);
    if magic > 0 {
        body.put_i64(message.timestamp);
    }
    for part in [&message.key, &message.value] {
        body.put_i32(length(part));
        body.put_slice(part.as_deref().unwrap_or_default());
    }
    out.put_i64(message.offset);
    out.put_i32(i32::try_from(body.len() + LEGACY_CRC_FROM - 12).unwrap_or(i32::MAX));
    out.put_u32(crc32(&body));
    out.put_slice(&body);
}

/// Appends a wrapper of messages packed with `codec`: inner offsets are relative in v1 and absolute in v0.
///
/// # Errors
///
/// `UnsupportedCodec` when the codec is not compiled in.
pub fn put_wrapper(
    out: &mut Vec<u8>,
    magic: u8,
    codec: Codec,
    log_append: Option<i64>,
    messages: &[Message],
) -> Result<(), BatchError> {
    let first = messages.first().map_or(0, |message| message.offset);
    let last = messages.last().map_or(0, |message| message.offset);
    let newest = messages.iter().map(|message| message.timestamp).max().unwrap_or(-1);
    let mut inner = Vec::new();
    for message in messages {
        let offset = if magic == 0 { message.offset } else { message.offset - first };
        put_message(&mut inner, magic, 0, &Message { offset, ..message.clone() });
    }
    let mut packed = Vec::new();
    codec::deflate(codec, &inner, None, &mut packed)
        .map_err(|_| BatchError::UnsupportedCodec { id: codec.id() })?;
    let attributes = u8::try_from(codec.id()).unwrap_or(0) | if log_append.is_some() { 8 } else { 0 };
    let wrapper = Message {
        offset: last,
        timestamp: log_append.unwrap_or(newest),
        key: None,
        value: Some(Bytes::from(packed)),
    };
    put_message(out, magic, attributes, &wrapper);
    Ok(())
}
