//! The fixed part of a batch: 61 bytes in format v2, 26 or 34 in v0 and v1.
//!
//! Read by position, not checked beyond what reading needs: `scan` refuses impossible lengths and offset
//! ranges, `RawBatch::verify` tells whether the rest can be trusted. Base offset and leader epoch are
//! outside the CRC, since brokers set them.

use crate::TimestampType;

/// Bytes before `batchLength` ends: base offset and length.
pub(crate) const PREFIX: usize = 12;
/// The whole fixed part of a v2 batch.
pub(crate) const V2: usize = 61;
/// Where the CRC's cover begins in a v2 batch.
pub(crate) const V2_CRC_FROM: usize = 21;
/// Where the CRC's cover begins in a v0 or v1 message.
pub(crate) const LEGACY_CRC_FROM: usize = 16;
/// The smallest v0 message: prefix, CRC, magic, attributes, two lengths.
pub(crate) const V0_MIN: usize = 26;
/// The smallest v1 message: v0 and a timestamp.
pub(crate) const V1_MIN: usize = 34;

const CODEC_MASK: i16 = 0x07;
const LOG_APPEND: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

/// How a batch's records are packed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Codec {
    /// Not packed.
    None,
    /// gzip, id 1.
    Gzip,
    /// Snappy, id 2: one raw block or the framing of Xerial's Java library.
    Snappy,
    /// LZ4 frames, id 3.
    Lz4,
    /// Zstandard, id 4.
    Zstd,
}

impl Codec {
    /// The number in a batch's attributes.
    pub fn id(self) -> i8 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    /// The codec of a number.
    pub fn from_id(id: i8) -> Option<Codec> {
        Some(match id {
            0 => Codec::None,
            1 => Codec::Gzip,
            2 => Codec::Snappy,
            3 => Codec::Lz4,
            4 => Codec::Zstd,
            _ => return None,
        })
    }

    /// Its name, which is also the name of the feature that compiles it in.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

/// What to tell a user whose build lacks a codec.
pub(crate) fn codec_missing(id: i8) -> String {
    match Codec::from_id(id) {
        Some(codec) => {
            let name = codec.name();
            format!("the batch is packed with {name} and the feature `{name}` is not compiled in")
        }
        None => format!("the batch is packed with codec {id}, which does not exist"),
    }
}

/// The header of a batch. For a v0 or v1 message the fields its format lacks are −1 (sequence, producer) or equal
/// to the message's own (timestamps).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchHeader {
    /// Offset of the first record; for a v0 or v1 message its own, for a wrapper that of its **last** message.
    pub base_offset: i64,
    /// Bytes of the whole batch on the wire, prefix included.
    pub size: usize,
    /// Epoch of the leader that appended it.
    pub leader_epoch: Option<i32>,
    /// Format: 0, 1 or 2.
    pub magic: u8,
    /// The stored CRC: CRC-32C in v2, CRC-32 before.
    pub crc: u32,
    /// The attribute bits.
    pub attributes: i16,
    /// Offset of the last record less `base_offset`; 0 before v2.
    pub last_offset_delta: i32,
    /// What record timestamps are relative to.
    pub base_timestamp: i64,
    /// The largest timestamp; the timestamp of every record under log append time.
    pub max_timestamp: i64,
    /// The producer's id, or −1.
    pub producer_id: i64,
    /// The producer's epoch, or −1.
    pub producer_epoch: i16,
    /// The first record's sequence, or −1.
    pub base_sequence: i32,
    /// Records in the batch, as claimed; 1 for a plain v0 or v1 message, −1 for a wrapper, which does not say.
    pub record_count: i32,
}

/// Big-endian fields by position; a field beyond the end reads as zero, which callers exclude by length.
fn field<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    data.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

pub(crate) fn read_i64(data: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(field(data, at))
}

pub(crate) fn read_i32(data: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(field(data, at))
}

pub(crate) fn read_u32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(field(data, at))
}

pub(crate) fn read_i16(data: &[u8], at: usize) -> i16 {
    i16::from_be_bytes(field(data, at))
}

impl BatchHeader {
    /// The header of a v2 batch of `size` bytes; `None` when `data` is shorter than a header.
    pub(crate) fn read_v2(data: &[u8], size: usize) -> Option<BatchHeader> {
        let head = data.first_chunk::<V2>()?;
        let epoch = read_i32(head, 12);
        Some(BatchHeader {
            base_offset: read_i64(head, 0),
            size,
            leader_epoch: (epoch >= 0).then_some(epoch),
            magic: 2,
            crc: read_u32(head, 17),
            attributes: read_i16(head, 21),
            last_offset_delta: read_i32(head, 23),
            base_timestamp: read_i64(head, 27),
            max_timestamp: read_i64(head, 35),
            producer_id: read_i64(head, 43),
            producer_epoch: read_i16(head, 51),
            base_sequence: read_i32(head, 53),
            record_count: read_i32(head, 57),
        })
    }

    /// The header of a v0 or v1 message of `size` bytes; `None` when `data` is shorter than one.
    pub(crate) fn read_legacy(data: &[u8], magic: u8, size: usize) -> Option<BatchHeader> {
        data.get(..if magic == 0 { V0_MIN } else { V1_MIN })?;
        let attributes = i16::from(*data.get(17)?);
        let timestamp = if magic == 0 { -1 } else { read_i64(data, 18) };
        Some(BatchHeader {
            base_offset: read_i64(data, 0),
            size,
            leader_epoch: None,
            magic,
            crc: read_u32(data, 12),
            attributes,
            last_offset_delta: 0,
            base_timestamp: timestamp,
            max_timestamp: timestamp,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: if attributes & CODEC_MASK == 0 { 1 } else { -1 },
        })
    }

    /// Offset of the batch's last record, whether or not compaction has removed it.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The position after the batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// How the records are packed; the number itself when no such codec exists.
    ///
    /// # Errors
    ///
    /// The number in the attributes, when it stands for no codec.
    pub fn codec(&self) -> Result<Codec, i8> {
        let id = i8::try_from(self.attributes & CODEC_MASK).unwrap_or(0);
        Codec::from_id(id).ok_or(id)
    }

    /// Whether it is part of a transaction.
    pub fn is_transactional(&self) -> bool {
        self.magic >= 2 && self.attributes & TRANSACTIONAL != 0
    }

    /// Whether it holds control records, which are never handed out.
    pub fn is_control(&self) -> bool {
        self.magic >= 2 && self.attributes & CONTROL != 0
    }

    /// What the timestamps mean.
    pub fn timestamp_type(&self) -> TimestampType {
        match self.magic {
            0 => TimestampType::None,
            _ if self.attributes & LOG_APPEND != 0 => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        }
    }
}
