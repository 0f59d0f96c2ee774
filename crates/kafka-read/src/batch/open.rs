//! From a raw batch to checked records: the CRC, the codec, the walk.

use bytes::Bytes;

use super::header::{self, Codec};
use super::set::{Common, RecordSet};
use super::{BatchError, Limits, RawBatch, Reason, legacy, walk};
use crate::{TimestampType, codec};

impl RawBatch {
    /// Checks the CRC. A v0 or v1 wrapper passes: what counts there are the CRCs of the messages inside, which
    /// [`open`](RawBatch::open) checks (Java does the same, and wrappers rewritten by old brokers exist).
    ///
    /// # Errors
    ///
    /// `Damaged` when the CRC is not that of the bytes.
    pub fn verify(&self, check_crcs: bool) -> Result<(), BatchError> {
        if !check_crcs {
            return Ok(());
        }
        let good = if self.header.magic >= 2 {
            self.bytes.get(header::V2_CRC_FROM..).map(crc32c::crc32c) == Some(self.header.crc)
        } else {
            self.header.codec() != Ok(Codec::None) || legacy::crc_is_good(&self.bytes)
        };
        if good { Ok(()) } else { Err(Reason::Crc.into()) }
    }

    /// Inflates the batch and checks every record; those below `from` are cut off the front.
    ///
    /// # Errors
    ///
    /// `Damaged` when the batch contradicts itself, `TooLarge` when it inflates beyond the limit,
    /// `UnsupportedCodec` when nothing here can unpack it.
    pub fn open(&self, limits: &Limits, from: i64) -> Result<RecordSet, BatchError> {
        match self.header.magic {
            2 => open_v2(self, limits.max_batch_bytes, from),
            _ => legacy::open(self, limits.max_batch_bytes, from),
        }
    }

    /// The lowest offset in the batch: where a reader that found it by `resync` goes on. The header tells,
    /// except for a v0 or v1 wrapper, whose own offset is that of its last message: that one is opened.
    pub fn lowest_offset(&self, limits: &Limits) -> i64 {
        let last = self.header.base_offset;
        if self.header.magic >= 2 || self.header.codec() == Ok(Codec::None) {
            return last;
        }
        self.open(limits, i64::MIN).ok().and_then(|set| set.first_offset()).unwrap_or(last)
    }

    /// Bytes on the wire, by which to decide where to inflate it; 0 when it is not packed.
    pub fn packed_hint(&self) -> usize {
        if self.header.codec() == Ok(Codec::None) { 0 } else { self.bytes.len() }
    }
}

/// Opens a v2 batch.
pub(crate) fn open_v2(batch: &RawBatch, limit: usize, from: i64) -> Result<RecordSet, BatchError> {
    let header = &batch.header;
    let codec = header.codec().map_err(|id| BatchError::UnsupportedCodec { id })?;
    let packed = batch.bytes.slice(header::V2.min(batch.bytes.len())..);
    let (section, inflated) = match codec {
        Codec::None => (packed, 0),
        // An empty batch may be packed as nothing at all.
        _ if header.record_count == 0 && packed.is_empty() => (packed, 0),
        _ => inflate(codec, &packed, limit, false)?,
    };
    let kind = header.timestamp_type();
    let common = Common {
        base_offset: header.base_offset,
        leader_epoch: header.leader_epoch,
        timestamp: if kind == TimestampType::LogAppendTime {
            header.max_timestamp
        } else {
            header.base_timestamp
        },
        kind,
        inflated,
    };
    let from = from.saturating_sub(header.base_offset);
    let checked = walk::check(&section, header.record_count, header.last_offset_delta, from)?;
    Ok(RecordSet::new(&section, common, checked))
}

/// Inflates `packed`; the second value is what the buffer takes in memory.
pub(crate) fn inflate(
    codec: Codec,
    packed: &[u8],
    limit: usize,
    lenient_lz4: bool,
) -> Result<(Bytes, usize), BatchError> {
    // Positions in a section are kept in 32 bits.
    let cap = limit.min(usize::try_from(i32::MAX).unwrap_or(usize::MAX));
    let mut out = codec::inflate(codec, packed, cap, lenient_lz4).map_err(|error| match error {
        codec::Failure::Broken => BatchError::Damaged(Reason::Stream),
        codec::Failure::TooLarge => BatchError::TooLarge { limit },
        codec::Failure::Missing => BatchError::UnsupportedCodec { id: codec.id() },
    })?;
    if out.capacity() - out.len() > out.len() / 4 {
        out.shrink_to_fit();
    }
    let memory = out.capacity();
    Ok((Bytes::from(out), memory.max(1)))
}
