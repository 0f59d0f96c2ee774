//! What a control batch says: the end of a transaction, or something this reader does not know.
//!
//! A control record's key is a version and a type, two bytes each. Only the type is looked at: versions are to be
//! compatible (KIP-98), and what is unknown is skipped, never an error.

use super::{RawBatch, open};

/// The kind of a control batch, told by its first record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Control {
    /// The producer's transaction ends aborted.
    Abort,
    /// The producer's transaction ends committed.
    Commit,
    /// Another type, or a key too short to say.
    Unknown,
}

/// The most bytes a control batch may inflate to; brokers do not pack them at all.
const LIMIT: usize = 64 << 10;

impl RawBatch {
    /// What a control batch says. `None` for a data batch and for a control batch whose record compaction has
    /// removed, which is no marker any more.
    pub fn control(&self) -> Option<Control> {
        if !self.header.is_control() || self.header.record_count == 0 {
            return None;
        }
        let Ok(set) = open::open_v2(self, LIMIT, i64::MIN) else { return Some(Control::Unknown) };
        let first = set.iter().next()?;
        let key = first.key.and_then(|key| key.first_chunk::<4>().copied());
        Some(match key {
            Some([version, _, 0, 0]) if version < 0x80 => Control::Abort,
            Some([version, _, 0, 1]) if version < 0x80 => Control::Commit,
            _ => Control::Unknown,
        })
    }
}
