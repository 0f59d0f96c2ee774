//! Batches the embedded cluster writes itself: plain records and transaction markers.

use bytes::Bytes;
use kafka_read::batch::Control;
use kafka_read::batch::write::{BatchOptions, BatchWriter, end_marker};

/// One record: key, value, milliseconds.
pub(super) type Plain<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, i64);

/// Who wrote a batch: producer id, epoch, first sequence.
pub(super) type Author = (i64, i16, i32);

/// No producer id at all.
pub(super) const NOBODY: Author = (-1, -1, -1);

/// An uncompressed batch; empty when the records do not fit into one.
pub(super) fn batch(records: &[Plain<'_>], author: Author, transactional: bool) -> Bytes {
    let (producer_id, producer_epoch, base_sequence) = author;
    let options =
        BatchOptions { producer_id, producer_epoch, base_sequence, transactional, ..BatchOptions::default() };
    let mut writer = BatchWriter::new(options);
    for (key, value, timestamp) in records {
        if writer.push(*timestamp, *key, *value, &[]).is_err() {
            return Bytes::new();
        }
    }
    writer.finish().map(Into::into).unwrap_or_default()
}

/// A commit or abort marker.
pub(super) fn marker(producer_id: i64, producer_epoch: i16, commit: bool, now_ms: i64) -> Bytes {
    let options = BatchOptions { producer_id, producer_epoch, ..BatchOptions::default() };
    let control = if commit { Control::Commit } else { Control::Abort };
    end_marker(options, control, 0, now_ms).map(Into::into).unwrap_or_default()
}
