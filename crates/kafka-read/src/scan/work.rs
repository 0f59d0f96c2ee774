//! Turns the batches of one partition's part of an answer into what is handed over. Pure, and run outside the
//! lock: checksums, the filter of aborted transactions, inflation, the walk over the records.
//!
//! A part is worked on in stretches, so that inflated batches do not pile up ahead of a slow caller and other
//! tasks get their turn. What cannot be read becomes a `Malformed` and reading goes on behind it; what fails its
//! checksum is asked for once more first, since the header that tells its end is not to be trusted.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use kafka_meta::{Error, TopicName};

use crate::batch::{self, AbortedFilter, BatchError, Damage, Limits, RawBatch, RecordSet, Verdict};
use crate::fetch::Pos;
use crate::records::Slice;
use crate::{Record, Records};

/// Bytes of unpacked batches in a stretch: about 0.2 ms of work.
const STRETCH: usize = 1 << 20;

/// What is the same for all parts of one scan.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub topic: TopicName,
    pub key: Option<Bytes>,
    pub limits: Limits,
    pub check_crcs: bool,
}

/// What is left to do of one partition's part of an answer.
#[derive(Debug)]
pub(super) struct Part {
    pub partition: i32,
    pub ticket: u64,
    pub answer: u64,
    pub pos: Pos,
    /// Nothing from this offset on is wanted.
    pub end: i64,
    pub batches: VecDeque<RawBatch>,
    pub damage: Option<Damage>,
    pub records: Bytes,
    /// Bytes of its batches that are not worked on.
    pub left: usize,
    /// `None` when everything is to be seen.
    pub filter: Option<AbortedFilter>,
    /// The batch at this offset has failed before.
    pub doubted: Option<i64>,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
}

/// Something to be handed over.
#[derive(Debug)]
pub(super) enum Piece {
    Slice(Slice),
    /// Records that a filter let pass, and what they keep in memory beside the answer.
    Picked(Vec<Record>, usize),
    Malformed {
        offsets: Range<i64>,
        bytes: Bytes,
        error: Error,
    },
}

impl Piece {
    /// First offset and number of the records in it.
    pub(super) fn run(&self) -> Option<(i64, u64)> {
        let (first, len) = match self {
            Piece::Slice(slice) => (slice.set.first_offset()?, slice.set.len()),
            Piece::Picked(records, _) => (records.first()?.offset, records.len()),
            Piece::Malformed { .. } => return None,
        };
        Some((first, u64::try_from(len).unwrap_or(u64::MAX)))
    }

    /// Leaves the first `n` records out; answers how many there were to leave out.
    pub(super) fn skip(&mut self, n: u64) -> u64 {
        let len = self.run().map_or(0, |(_, len)| len);
        let n = usize::try_from(n.min(len)).unwrap_or(usize::MAX);
        match self {
            Piece::Slice(slice) => drop(slice.split_to(n)),
            Piece::Picked(records, _) => drop(records.drain(..n.min(records.len()))),
            Piece::Malformed { .. } => {}
        }
        u64::try_from(n).unwrap_or(len)
    }

    /// Bytes it keeps in memory beside the answer it came in.
    pub(super) fn inflated(&self) -> usize {
        match self {
            Piece::Slice(slice) if slice.set.shares_frame() => 0,
            Piece::Slice(slice) => slice.set.memory(),
            Piece::Picked(_, inflated) => *inflated,
            Piece::Malformed { .. } => 0,
        }
    }

    /// The records in it.
    pub(super) fn into_records(self) -> Picked {
        match self {
            Piece::Slice(slice) => Picked::Slice(Records::from_slices(vec![slice]).into_iter()),
            Piece::Picked(records, _) => Picked::Records(records.into_iter()),
            Piece::Malformed { .. } => Picked::Records(Vec::new().into_iter()),
        }
    }
}

/// Records on their way to the caller.
// A stream has one of them: its size is paid once, a box would be paid for each batch.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(super) enum Picked {
    Slice(crate::IntoIter),
    Records(std::vec::IntoIter<Record>),
}

impl Iterator for Picked {
    type Item = Record;

    #[inline]
    fn next(&mut self) -> Option<Record> {
        match self {
            Picked::Slice(records) => records.next(),
            Picked::Records(records) => records.next(),
        }
    }
}

/// Fetch from here instead of from where the headers led.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Refetch {
    pub offset: i64,
    /// The batch there was found damaged and is asked for once more.
    pub doubted: bool,
}

/// What one stretch of work came to.
#[derive(Debug, Default)]
pub(super) struct Worked {
    pub pieces: Vec<Piece>,
    pub refetch: Option<Refetch>,
    /// Bytes of log that are done with.
    pub bytes: usize,
}

impl Part {
    /// Whether nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        self.pos.offset >= self.end || self.batches.is_empty() && self.damage.is_none()
    }

    /// Bytes the next batch is packed into; 0 when it is not packed.
    pub(super) fn packed(&self) -> usize {
        self.batches.front().map_or(0, RawBatch::packed_hint)
    }

    /// Works on one packed batch, or on a stretch of others.
    pub(super) fn work(&mut self, settings: &Settings) -> Worked {
        let mut worked = Worked::default();
        while self.pos.offset < self.end
            && let Some(raw) = self.batches.pop_front()
        {
            let packed = raw.packed_hint() > 0;
            worked.bytes += raw.header.size;
            if let Err(BatchError::Damaged(_)) = raw.verify(settings.check_crcs) {
                let position = raw.position_in(&self.records);
                let damage = Damage {
                    position,
                    what: batch::Reason::Crc,
                    claimed_next: Some(raw.header.next_offset()),
                };
                self.damaged(damage, Some(raw.bytes), settings, &mut worked);
                return worked;
            }
            self.batch(&raw, settings, &mut worked);
            if packed || worked.bytes >= STRETCH {
                return worked;
            }
        }
        if self.pos.offset < self.end
            && let Some(damage) = self.damage.take()
        {
            self.damaged(damage, None, settings, &mut worked);
        }
        worked
    }

    /// A batch whose checksum is good.
    fn batch(&mut self, raw: &RawBatch, settings: &Settings, worked: &mut Worked) {
        let header = &raw.header;
        let from = self.pos.offset;
        let next = Pos { offset: header.next_offset(), epoch: header.leader_epoch.or(self.pos.epoch) };
        self.pos = next;
        let hidden = match &mut self.filter {
            Some(filter) => filter.decide(header, || raw.control()) == Verdict::Skip,
            None => header.is_control(),
        };
        if hidden {
            return;
        }
        match raw.open(&settings.limits, from) {
            Ok(set) => {
                if let Some(piece) = self.piece(set, from, settings) {
                    worked.pieces.push(piece);
                }
            }
            Err(error) => {
                // A wrapper of the old formats is named by its last message.
                let first = if header.magic >= 2 { header.base_offset.max(from) } else { from };
                let offsets = first..next.offset.min(self.end).max(first);
                if first < self.end {
                    let error = error.to_error(settings.topic, self.partition, first);
                    worked.pieces.push(Piece::Malformed { offsets, bytes: raw.bytes.clone(), error });
                }
            }
        }
    }

    fn piece(&self, mut set: RecordSet, previous: i64, settings: &Settings) -> Option<Piece> {
        if set.last_offset().is_some_and(|last| last >= self.end) {
            let kept = set.iter().take_while(|record| record.offset < self.end).count();
            set = set.split_to(kept);
        }
        if set.is_empty() {
            return None;
        }
        let memory = set.memory();
        let shared = set.shares_frame();
        let slice = Slice {
            topic: settings.topic,
            partition: self.partition,
            ticket: self.ticket,
            previous,
            set,
            next: self.pos.offset.min(self.end),
            next_epoch: self.pos.epoch,
            high_watermark: self.high_watermark,
            last_stable_offset: self.last_stable_offset,
            log_start_offset: self.log_start_offset,
        };
        let Some(key) = &settings.key else { return Some(Piece::Slice(slice)) };
        let records = Records::from_slices(vec![slice]);
        let hits = || records.iter().filter(|record| record.key == Some(key.as_ref()));
        let size = |record: crate::RecordRef<'_>| {
            record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len)
        };
        let few = hits().map(size).sum::<usize>() < memory / 8;
        // A few records must not keep a whole inflated batch.
        let picked: Vec<Record> = if few {
            hits().map(|record| record.to_record().detach()).collect()
        } else {
            hits().map(|record| record.to_record()).collect()
        };
        let inflated = if shared || few { 0 } else { memory };
        (!picked.is_empty()).then_some(Piece::Picked(picked, inflated))
    }

    /// Nothing is known of the batch at the present position but that it is damaged, its epoch neither: said to be
    /// that of the batch before, a leader would answer that the log parts at the damage, and lead us back to it.
    fn damaged(&mut self, damage: Damage, whole: Option<Bytes>, settings: &Settings, worked: &mut Worked) {
        self.batches.clear();
        self.damage = None;
        let at = self.pos.offset;
        if self.doubted != Some(at) {
            worked.refetch = Some(Refetch { offset: at, doubted: true });
            return;
        }
        let beyond = batch::beyond_damage(
            &self.records,
            damage.position,
            at,
            damage.claimed_next,
            self.high_watermark,
            &settings.limits,
        );
        let rest = || self.records.slice(damage.position.min(self.records.len())..);
        let bytes = match (beyond.position, whole) {
            (Some(found), _) => self.records.slice(damage.position.min(found)..found),
            (None, Some(whole)) => whole,
            (None, None) => rest(),
        };
        let error = BatchError::Damaged(damage.what).to_error(settings.topic, self.partition, at);
        let offsets = at..beyond.offset.min(self.end);
        worked.pieces.push(Piece::Malformed { offsets, bytes, error });
        self.pos = Pos::at(beyond.offset);
        worked.refetch = Some(Refetch { offset: beyond.offset, doubted: false });
    }
}

/// Whether the codec work on a batch packed into so many bytes is worth a hop to another thread: at a usual ratio
/// of four, 64 KiB of output and 30 µs of work are not.
pub(super) fn is_heavy(packed: usize) -> bool {
    packed > 16 << 10
}
