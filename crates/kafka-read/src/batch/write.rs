//! Writes record batches: what a producer sends, and what tests need beside it.
//!
//! `BatchWriter` collects v2 frames in one buffer behind room for the header, packs them at the end and fills the
//! header in; keys, values and headers are borrowed and copied once. It checks nothing a broker would refuse
//! (offsets that fall, a control bit without a transaction), since tests want to write those too. `legacy` writes
//! formats v0 and v1, for tests alone. Patching what lies outside the CRC, as brokers do, is `assign`.

use bytes::{BufMut, BytesMut};

use super::header::{Codec, V2, V2_CRC_FROM};
use super::{BatchError, Control};
use crate::varint::{self, Filler, part_len};
use crate::{TimestampType, codec};

pub mod legacy;

/// What goes into a batch's header; every field may be set before `BatchWriter::finish`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BatchOptions {
    /// Offset of the first record; brokers set their own.
    pub base_offset: i64,
    /// The leader's epoch; −1 for none. Brokers set their own.
    pub leader_epoch: i32,
    /// How the records are packed.
    pub codec: Codec,
    /// The codec's own level; `None` takes Java's default.
    pub level: Option<i32>,
    /// Anything but `LogAppendTime` means create time.
    pub timestamp_type: TimestampType,
    /// The largest timestamp; `None` takes the largest of the records. Under log append time, the append time.
    pub max_timestamp: Option<i64>,
    /// What the records' timestamps are stored relative to; `None` takes the first record's.
    pub base_timestamp: Option<i64>,
    /// The producer's id, or −1.
    pub producer_id: i64,
    /// The producer's epoch, or −1.
    pub producer_epoch: i16,
    /// The first record's sequence, or −1.
    pub base_sequence: i32,
    /// Sets the transactional bit.
    pub transactional: bool,
    /// Sets the control bit.
    pub control: bool,
    /// Offset of the last record less the base offset; `None` takes that of the last record. A compacted batch's
    /// may be larger.
    pub last_offset_delta: Option<i32>,
}

impl Default for BatchOptions {
    fn default() -> Self {
        BatchOptions {
            base_offset: 0,
            leader_epoch: -1,
            codec: Codec::None,
            level: None,
            timestamp_type: TimestampType::CreateTime,
            max_timestamp: None,
            base_timestamp: None,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            transactional: false,
            control: false,
            last_offset_delta: None,
        }
    }
}

/// Writes one v2 batch.
#[derive(Clone, Debug)]
pub struct BatchWriter {
    options: BatchOptions,
    /// Room for the header, then the frames.
    buffer: BytesMut,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    next_delta: i32,
    count: i32,
}

/// Headers of a record to be written: in order, duplicates allowed, values may be null.
pub type HeaderParts<'a> = &'a [(&'a [u8], Option<&'a [u8]>)];

impl BatchWriter {
    /// An empty batch.
    pub fn new(options: BatchOptions) -> BatchWriter {
        BatchWriter::with_capacity(options, 0)
    }

    /// An empty batch with room for `bytes` of frames.
    pub fn with_capacity(options: BatchOptions, bytes: usize) -> BatchWriter {
        let mut buffer = BytesMut::with_capacity(V2 + bytes);
        buffer.put_bytes(0, V2);
        let base_timestamp = options.base_timestamp;
        BatchWriter { options, buffer, base_timestamp, max_timestamp: -1, next_delta: 0, count: 0 }
    }

    /// The header's fields, to be changed before the end; the codec and the producer's state are often known late.
    /// The base timestamp is fixed by the first record.
    pub fn options_mut(&mut self) -> &mut BatchOptions {
        &mut self.options
    }

    /// Bytes so far, header included, before packing.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Records so far.
    pub fn record_count(&self) -> usize {
        usize::try_from(self.count).unwrap_or(0)
    }

    /// Appends a record at the next offset.
    ///
    /// # Errors
    ///
    /// `TooLarge` for a record beyond 2 GiB, which the format cannot hold.
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: HeaderParts<'_>,
    ) -> Result<(), BatchError> {
        self.push_at(self.next_delta, timestamp, key, value, headers)
    }

    /// Appends a record at a given distance from the base offset, so that holes can be written.
    ///
    /// # Errors
    ///
    /// `TooLarge` for a record beyond 2 GiB, which the format cannot hold.
    pub fn push_at(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: HeaderParts<'_>,
    ) -> Result<(), BatchError> {
        let base = *self.base_timestamp.get_or_insert(timestamp);
        let timestamp_delta = timestamp.wrapping_sub(base);
        let header_count = i64::try_from(headers.len()).unwrap_or(i64::MAX);
        let body = 1
            + varint::len_i64(timestamp_delta)
            + varint::len_i32(offset_delta)
            + part_len(key)
            + part_len(value)
            + varint::len_i64(header_count)
            + headers.iter().map(|(key, value)| part_len(Some(key)) + part_len(*value)).sum::<usize>();
        let too_large = BatchError::TooLarge { limit: usize::try_from(i32::MAX).unwrap_or(usize::MAX) };
        let Ok(length) = i32::try_from(body) else { return Err(too_large) };
        if i32::try_from(self.buffer.len().saturating_add(body)).is_err() {
            return Err(too_large);
        }
        let start = self.buffer.len();
        self.buffer.resize(start + body + varint::len_i32(length), 0);
        let mut out = Filler::new(self.buffer.get_mut(start..).unwrap_or_default());
        out.varint(i64::from(length));
        out.byte(0);
        out.varint(timestamp_delta);
        out.varint(i64::from(offset_delta));
        out.part(key);
        out.part(value);
        out.varint(header_count);
        for (key, value) in headers {
            out.part(Some(key));
            out.part(*value);
        }
        self.max_timestamp = if self.count == 0 { timestamp } else { self.max_timestamp.max(timestamp) };
        self.next_delta = offset_delta.saturating_add(1);
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    /// Packs the records and fills the header in.
    ///
    /// # Errors
    ///
    /// `UnsupportedCodec` when the codec is not compiled in.
    pub fn finish(mut self) -> Result<BytesMut, BatchError> {
        let options = &self.options;
        if options.codec != Codec::None {
            let frames = self.buffer.get(V2..).unwrap_or_default();
            let mut packed = Vec::with_capacity(V2 + frames.len() / 2);
            packed.resize(V2, 0);
            codec::deflate(options.codec, frames, options.level, &mut packed)
                .map_err(|_| BatchError::UnsupportedCodec { id: options.codec.id() })?;
            // No copy back: the vector becomes the buffer, since nothing else refers to it.
            self.buffer = BytesMut::from(bytes::Bytes::from(packed));
        }
        let mut attributes = i16::from(options.codec.id());
        for (set, bit) in [
            (options.timestamp_type == TimestampType::LogAppendTime, 0x08),
            (options.transactional, 0x10),
            (options.control, 0x20),
        ] {
            if set {
                attributes |= bit;
            }
        }
        let length = i32::try_from(self.buffer.len() - 12).unwrap_or(i32::MAX);
        let last_delta = options.last_offset_delta.unwrap_or((self.next_delta - 1).max(0));
        let mut head = Vec::with_capacity(V2);
        head.put_i64(options.base_offset);
        head.put_i32(length);
        head.put_i32(options.leader_epoch);
        head.put_i8(2);
        head.put_u32(0);
        head.put_i16(attributes);
        head.put_i32(last_delta);
        head.put_i64(self.base_timestamp.unwrap_or(-1));
        head.put_i64(options.max_timestamp.unwrap_or(self.max_timestamp));
        head.put_i64(options.producer_id);
        head.put_i16(options.producer_epoch);
        head.put_i32(options.base_sequence);
        head.put_i32(self.count);
        put_at(&mut self.buffer, 0, &head);
        seal(&mut self.buffer);
        Ok(self.buffer)
    }
}

fn put_at(batch: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = batch.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Sets base offset and leader epoch of a v2 batch, as a leader does at append; the CRC does not cover them.
pub fn assign(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    put_at(batch, 0, &base_offset.to_be_bytes());
    put_at(batch, 12, &leader_epoch.to_be_bytes());
}

/// Sets log append time on a v2 batch, as a leader of such a topic does, and makes the CRC good again.
pub fn stamp(batch: &mut [u8], append_time: i64) {
    if let Some(attributes) = batch.get_mut(22) {
        *attributes |= 0x08;
    }
    put_at(batch, 35, &append_time.to_be_bytes());
    seal(batch);
}

/// Sets the producer's id, epoch and first sequence on a v2 batch, and makes the CRC good again.
pub fn set_producer(batch: &mut [u8], id: i64, epoch: i16, sequence: i32) {
    put_at(batch, 43, &id.to_be_bytes());
    put_at(batch, 51, &epoch.to_be_bytes());
    put_at(batch, 53, &sequence.to_be_bytes());
    seal(batch);
}

/// Makes the CRC of a v2 batch good, after a test has changed it.
pub fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(batch.get(V2_CRC_FROM..).unwrap_or_default());
    put_at(batch, 17, &crc.to_be_bytes());
}

/// The marker that ends a transaction, as a leader writes it. `options` name the producer and the offset.
///
/// # Errors
///
/// `UnsupportedCodec` when the options name a codec that is not compiled in.
pub fn end_marker(
    options: BatchOptions,
    control: Control,
    coordinator_epoch: i32,
    timestamp: i64,
) -> Result<BytesMut, BatchError> {
    let kind: i16 = match control {
        Control::Abort => 0,
        Control::Commit => 1,
        Control::Unknown => i16::MAX,
    };
    let mut key = Vec::with_capacity(4);
    key.put_i16(0);
    key.put_i16(kind);
    let mut value = Vec::with_capacity(6);
    value.put_i16(0);
    value.put_i32(coordinator_epoch);
    let mut writer = BatchWriter::new(BatchOptions { transactional: true, control: true, ..options });
    writer.push(timestamp, Some(&key), Some(&value), &[])?;
    writer.finish()
}
