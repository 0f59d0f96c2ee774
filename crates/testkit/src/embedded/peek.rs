//! The few header facts of a batch that a broker needs to store and serve it.
//!
//! Not a reader: that is `kafka_read::batch`, asked where a broker looks into records. A v2 batch and a v0/v1 message (or its packed
//! wrapper) give the same facts. The fields a broker writes (base offset, leader epoch) lie outside the checksum.

use bytes::{Bytes, BytesMut};
use kafka_read::batch::write::{assign, stamp};
use kafka_read::batch::{Control, Limits, scan};

/// Bytes before the fields that exist in every format: base offset and length.
pub(super) const LOG_OVERHEAD: usize = 12;
const V2_HEADER: usize = 61;
const MAX_UNPACKED: usize = 256 * 1024 * 1024;

/// Header facts of one stored batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Facts {
    pub base: i64,
    pub last: i64,
    pub magic: i8,
    pub epoch: i32,
    pub attributes: i16,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub count: i32,
}

impl Facts {
    pub fn is_transactional(&self) -> bool {
        self.magic >= 2 && self.attributes & 0x10 != 0
    }

    pub fn is_control(&self) -> bool {
        self.magic >= 2 && self.attributes & 0x20 != 0
    }
}

pub(super) fn int<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Cuts the first batch off `data`: its facts and its bytes. `None` when it is not whole.
pub(super) fn split_batch(data: &mut Bytes) -> Option<(Facts, Bytes)> {
    let length = i32::from_be_bytes(int(data, 8)?);
    let size = usize::try_from(length).ok()?.checked_add(LOG_OVERHEAD)?;
    if size > data.len() {
        return None;
    }
    let facts = facts(data.get(..size)?)?;
    Some((facts, data.split_to(size)))
}

fn facts(batch: &[u8]) -> Option<Facts> {
    let base = i64::from_be_bytes(int(batch, 0)?);
    let magic = i8::from_be_bytes(int(batch, 16)?);
    if magic >= 2 {
        if batch.len() < V2_HEADER {
            return None;
        }
        let delta = i32::from_be_bytes(int(batch, 23)?);
        return Some(Facts {
            base,
            last: base.checked_add(i64::from(delta))?,
            magic,
            epoch: i32::from_be_bytes(int(batch, 12)?),
            attributes: i16::from_be_bytes(int(batch, 21)?),
            max_timestamp: i64::from_be_bytes(int(batch, 35)?),
            producer_id: i64::from_be_bytes(int(batch, 43)?),
            producer_epoch: i16::from_be_bytes(int(batch, 51)?),
            base_sequence: i32::from_be_bytes(int(batch, 53)?),
            count: i32::from_be_bytes(int(batch, 57)?),
        });
    }
    let max_timestamp = if magic == 1 { i64::from_be_bytes(int(batch, 18)?) } else { -1 };
    Some(Facts {
        base,
        last: base,
        magic,
        epoch: -1,
        attributes: i16::from(i8::from_be_bytes(int(batch, 17)?)),
        max_timestamp,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        count: 1,
    })
}

/// The batch at another base offset, with the leader epoch and (with `append_time`) the time that a leader sets
/// in a v2 header.
pub(super) fn place(batch: &Bytes, base: i64, epoch: i32, append_time: Option<i64>) -> Bytes {
    let mut placed = BytesMut::from(batch.as_ref());
    if placed.get(16).is_some_and(|magic| *magic >= 2) {
        assign(&mut placed, base, epoch);
        if let Some(time) = append_time {
            stamp(&mut placed, time);
        }
    } else if let Some(field) = placed.get_mut(..8) {
        field.copy_from_slice(&base.to_be_bytes());
    }
    placed.freeze()
}

/// Whether a control batch is an abort marker.
pub(super) fn aborts(batch: &Bytes) -> bool {
    let raw = scan(batch.clone()).next();
    raw.and_then(Result::ok).and_then(|raw| raw.control()) == Some(Control::Abort)
}

/// Whether the batch's own checksum is good.
pub(super) fn is_intact(batch: &Bytes) -> bool {
    match scan(batch.clone()).next() {
        Some(Ok(raw)) => raw.verify(true).is_ok(),
        _ => false,
    }
}

/// (offset, timestamp) of each record, in log order; nothing of a batch that cannot be read.
pub(super) fn timestamps(batch: &Bytes) -> Vec<(i64, i64)> {
    let limits = Limits { max_batch_bytes: MAX_UNPACKED };
    let mut found = Vec::new();
    for raw in scan(batch.clone()).flatten() {
        if let Ok(set) = raw.open(&limits, 0) {
            found.extend(set.iter().map(|record| (record.offset, record.timestamp.millis())));
        }
    }
    found
}
