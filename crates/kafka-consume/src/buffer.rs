//! What has been fetched and not yet handed out: one queue per partition, one budget for all. Pure.
//!
//! A partition's answer first takes its place in the queue (`Reserved`), so that order is fixed before the
//! checksum, the filter or the inflation have run; the place is then filled with what the batches turned out
//! to be.
//!
//! | slot | becomes | when |
//! |---|---|---|
//! | `Reserved` | the slots of its batches | the fetcher has checked them |
//! | `Packed` | `Inflating` → `Ready` | it is near the front of its queue |
//! | `Ready`, `Skip`, `Jump`, `Halt` | nothing | it reaches the front in a poll |
//!
//! Invariants
//! - An answer is charged whole from its arrival until its last slot is gone: slices of it pin all of it.
//!   When less than an eighth of it is left, the rest is copied out and charged by itself.
//! - What is inflated ahead is charged beside the answer it came from.
//! - The charge ends at hand-out: what the caller holds is the caller's.

use std::collections::{HashMap, VecDeque};

use kafka_meta::Error;
use kafka_read::Slice;
use kafka_read::batch::RawBatch;

use crate::position::Pos;

/// One place in a partition's queue.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Unique in the consumer: what an inflation job and a reservation name when they come back.
    pub seq: u64,
    /// The charge it belongs to.
    pub answer: u64,
    /// Bytes of that answer it pins.
    pub bytes: usize,
    /// Bytes inflated for it.
    pub inflated: usize,
    /// The offset after it.
    pub end: i64,
    pub kind: Kind,
}

impl Slot {
    /// The position after it; `otherwise` is the epoch of what is not known yet.
    pub fn after(&self, otherwise: Option<i32>) -> Pos {
        let epoch = match &self.kind {
            Kind::Ready(slice) => slice.next_epoch,
            Kind::Skip(to) | Kind::Jump(to) => to.epoch,
            Kind::Packed { batch, .. } => batch.header.leader_epoch,
            Kind::Reserved | Kind::Inflating | Kind::Halt(_) => otherwise,
        };
        Pos { offset: self.end, epoch }
    }
}

/// What a place in the queue holds.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Batches the fetcher is still checking.
    Reserved,
    /// A checked, packed batch, and the offset below which its records are not wanted.
    Packed { batch: RawBatch, from: i64 },
    /// A packed batch that a job is working on.
    Inflating,
    /// Records to hand out.
    Ready(Slice),
    /// Offsets with nothing to hand out: markers, aborted data, holes, damaged batches.
    Skip(Pos),
    /// A reset that waits behind buffered data: the position goes on elsewhere.
    Jump(Pos),
    /// A batch this consumer cannot read: the partition stops here.
    Halt(Error),
}

impl Kind {
    /// Whether a poll can do something about it.
    pub fn is_settled(&self) -> bool {
        matches!(self, Kind::Ready(_) | Kind::Skip(_) | Kind::Jump(_) | Kind::Halt(_))
    }
}

/// One partition's fetched data in offset order.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub slots: VecDeque<Slot>,
    /// Sum of the slots' bytes, those inflated ahead included.
    pub bytes: usize,
}

impl Queue {
    pub fn push_back(&mut self, slot: Slot) {
        self.bytes += slot.bytes + slot.inflated;
        self.slots.push_back(slot);
    }

    pub fn push_front(&mut self, slot: Slot) {
        self.bytes += slot.bytes + slot.inflated;
        self.slots.push_front(slot);
    }

    pub fn pop_front(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_front()?;
        self.bytes -= slot.bytes + slot.inflated;
        Some(slot)
    }

    pub fn front(&self) -> Option<&Slot> {
        self.slots.front()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes inflated ahead.
    pub fn inflated(&self) -> usize {
        self.slots.iter().map(|slot| slot.inflated).sum()
    }

    /// Whether the slot at the front can be handed out now.
    pub fn is_ready(&self) -> bool {
        self.front().is_some_and(|slot| slot.kind.is_settled())
    }

    /// Puts `filling` where the reservation `seq` stands; false if there is none (it was void in between).
    pub fn fill(&mut self, seq: u64, filling: Vec<Slot>) -> bool {
        let Some(place) = self.slots.iter().rposition(|slot| slot.seq == seq) else { return false };
        let mut rest = self.slots.split_off(place);
        if let Some(reserved) = rest.pop_front() {
            self.bytes -= reserved.bytes + reserved.inflated;
        }
        for slot in filling {
            self.push_back(slot);
        }
        self.slots.append(&mut rest);
        true
    }

    /// The slot `seq`, with the means to keep the byte count true.
    pub fn change(&mut self, seq: u64, change: impl FnOnce(&mut Slot)) -> bool {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.seq == seq) else { return false };
        let before = slot.bytes + slot.inflated;
        change(slot);
        self.bytes = self.bytes - before + slot.bytes + slot.inflated;
        true
    }

    /// Drops everything from the first slot that holds an offset at or above `offset`. What lies before a jump is
    /// of another stretch of the log, and stays.
    pub fn cut(&mut self, offset: i64) -> Vec<Slot> {
        let jump = self.slots.iter().rposition(|slot| matches!(slot.kind, Kind::Jump(_)));
        let stays = jump.map_or(0, |jump| jump + 1);
        let keep = stays + self.slots.iter().skip(stays).take_while(|slot| slot.end <= offset).count();
        let gone: Vec<Slot> = self.slots.split_off(keep).into();
        self.bytes -= gone.iter().map(|slot| slot.bytes + slot.inflated).sum::<usize>();
        gone
    }
}

#[derive(Debug)]
struct Answer {
    total: usize,
    left: usize,
}

/// The bytes a consumer may hold: reserved for fetches in flight, and charged for what has arrived.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    reserved: usize,
    charged: usize,
    answers: HashMap<u64, Answer>,
}

/// Answers smaller than this are not worth copying out of.
const WORTH_COPYING: usize = 64 << 10;

impl Budget {
    pub fn new(limit: usize) -> Self {
        Budget { limit, reserved: 0, charged: 0, answers: HashMap::new() }
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes nobody has reserved or filled.
    pub fn free(&self) -> usize {
        self.limit.saturating_sub(self.reserved + self.charged)
    }

    /// Nothing has arrived and nothing is in flight: one answer of any size may come.
    pub fn is_idle(&self) -> bool {
        self.reserved == 0 && self.charged == 0
    }

    /// Bytes of data held.
    pub fn charged(&self) -> usize {
        self.charged
    }

    #[cfg(test)]
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    pub fn reserve(&mut self, bytes: usize) {
        self.reserved += bytes;
    }

    pub fn unreserve(&mut self, bytes: usize) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    /// An answer of `total` bytes has arrived, of which `left` lie in slots.
    pub fn charge(&mut self, answer: u64, total: usize, left: usize) {
        if left > 0 {
            self.charged += total;
            self.answers.insert(answer, Answer { total, left });
        }
    }

    /// Something was inflated ahead.
    pub fn charge_inflated(&mut self, bytes: usize) {
        self.charged += bytes;
    }

    /// A slot is gone, or no longer pins its answer. True when so little of the answer is left that the rest
    /// should be copied out.
    pub fn release(&mut self, answer: u64, bytes: usize, inflated: usize) -> bool {
        self.charged = self.charged.saturating_sub(inflated);
        let Some(charge) = self.answers.get_mut(&answer) else { return false };
        charge.left = charge.left.saturating_sub(bytes);
        if charge.left == 0 {
            let total = charge.total;
            self.charged = self.charged.saturating_sub(total);
            self.answers.remove(&answer);
            return false;
        }
        charge.total >= WORTH_COPYING && charge.left <= charge.total / 8
    }
}

#[cfg(test)]
mod tests;
