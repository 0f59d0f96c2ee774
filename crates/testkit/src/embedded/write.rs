//! Batches the embedded cluster writes itself: plain records and transaction markers, uncompressed v2.

use bytes::{BufMut, Bytes, BytesMut};

const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

fn varint(out: &mut BytesMut, value: i64) {
    // Zigzag; the sign bit moves to the end so that small negative numbers stay short.
    let mut rest = u64::from_ne_bytes(((value << 1) ^ (value >> 63)).to_ne_bytes());
    while rest >= 0x80 {
        out.put_u8(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
        rest >>= 7;
    }
    out.put_u8(u8::try_from(rest).unwrap_or(0));
}

fn blob(out: &mut BytesMut, data: Option<&[u8]>) {
    match data {
        None => varint(out, -1),
        Some(data) => {
            varint(out, i64::try_from(data.len()).unwrap_or(i64::MAX));
            out.put_slice(data);
        }
    }
}

/// One record: key, value, milliseconds.
pub(super) type Plain<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, i64);

/// Who wrote a batch: producer id, epoch, first sequence.
pub(super) type Author = (i64, i16, i32);

/// No producer id at all.
pub(super) const NOBODY: Author = (-1, -1, -1);

pub(super) fn batch(records: &[Plain<'_>], author: Author, transactional: bool) -> Bytes {
    encode(records, author, if transactional { TRANSACTIONAL } else { 0 })
}

/// A commit or abort marker.
pub(super) fn marker(producer_id: i64, epoch: i16, commit: bool, now_ms: i64) -> Bytes {
    let key = [0, 0, 0, u8::from(commit)];
    let value = [0_u8; 6];
    encode(&[(Some(&key), Some(&value), now_ms)], (producer_id, epoch, -1), TRANSACTIONAL | CONTROL)
}

fn encode(records: &[Plain<'_>], author: Author, attributes: i16) -> Bytes {
    let base_timestamp = records.first().map_or(0, |record| record.2);
    let max_timestamp = records.iter().map(|record| record.2).max().unwrap_or(-1);
    let count = i32::try_from(records.len()).unwrap_or(i32::MAX);
    let mut checked = BytesMut::new();
    checked.put_i16(attributes);
    checked.put_i32(count.saturating_sub(1));
    checked.put_i64(base_timestamp);
    checked.put_i64(max_timestamp);
    checked.put_i64(author.0);
    checked.put_i16(author.1);
    checked.put_i32(author.2);
    checked.put_i32(count);
    for (delta, (key, value, timestamp)) in (0_i64..).zip(records) {
        let mut body = BytesMut::new();
        body.put_u8(0);
        varint(&mut body, timestamp.saturating_sub(base_timestamp));
        varint(&mut body, delta);
        blob(&mut body, *key);
        blob(&mut body, *value);
        varint(&mut body, 0);
        blob(&mut checked, Some(&body));
    }
    let mut out = BytesMut::new();
    out.put_i64(0);
    // Epoch, format and checksum come before the checked part.
    out.put_i32(i32::try_from(checked.len().saturating_add(9)).unwrap_or(i32::MAX));
    out.put_i32(0);
    out.put_i8(2);
    out.put_u32(crc32c::crc32c(&checked));
    out.extend_from_slice(&checked);
    out.freeze()
}
