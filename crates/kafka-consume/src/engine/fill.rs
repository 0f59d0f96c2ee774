//! Checked batches into their places, and inflation ahead of the polls. Pure.
//!
//! Packed batches wait packed: a partition inflates only the first two of its queue, and all partitions
//! together only a quarter of the budget, so read-ahead stays small in memory whatever a batch unpacks to.

use std::time::Instant;

use bytes::Bytes;
use kafka_read::Slice;
use kafka_read::batch::{BatchError, RawBatch, RecordSet};
use tracing::warn;

use super::check::{Checked, Place, refusal};
use super::core::{Core, Id};
use crate::buffer::{Kind, Slot};
use crate::position::Pos;

/// Batches a partition keeps inflated ahead of the poll.
const AHEAD: usize = 2;

/// A packed batch to inflate.
#[derive(Debug)]
pub(crate) struct InflateJob {
    pub id: Id,
    pub ticket: u64,
    pub seq: u64,
    pub batch: RawBatch,
    pub from: i64,
}

impl Core {
    /// Takes what became of a reservation; dropped if the partition's past has been voided in between.
    pub fn fill(&mut self, _now: Instant, checked: Checked) {
        let Checked { id, ticket, seq, answer, bytes, places, refetch, skipped } = checked;
        self.counts.skipped_batches += skipped;
        let mut slots = Vec::with_capacity(places.len());
        let mut pinned = 0;
        for Place { bytes, end, kind } in places {
            // What a skip pins is nothing: its bytes are free at once.
            let bytes = if matches!(kind, Kind::Ready(_) | Kind::Packed { .. }) { bytes } else { 0 };
            pinned += bytes;
            self.counts.bytes += u64::try_from(bytes).unwrap_or(0);
            slots.push(Slot { seq: self.next_seq(), answer, bytes, inflated: 0, end, kind });
        }
        let Some(partition) = self.current(id, ticket) else { return };
        if !partition.queue.fill(seq, slots) {
            return;
        }
        self.give_back(answer, bytes.saturating_sub(pinned));
        if let Some(refetch) = refetch {
            self.counts.refetched_batches += u64::from(refetch.doubted);
            self.refetch(id, refetch.at, refetch.doubted);
        } else if let Some(partition) = self.current(id, ticket)
            && partition.doubted.is_some_and(|offset| partition.fetch.is_some_and(|pos| pos.offset > offset))
        {
            partition.doubted = None;
        }
        self.unfill(id);
        self.enter_ring(id);
        self.want_inflation(id);
    }

    /// Damage: what the headers promised beyond this point does not hold.
    fn refetch(&mut self, id: Id, at: Pos, doubted: bool) {
        let Some(partition) = self.get_mut(id) else { return };
        partition.fetch = Some(at);
        // The answer in flight began where the untrusted headers led.
        partition.asked = None;
        partition.doubted = doubted.then_some(at.offset);
        let cut = partition.queue.cut(at.offset);
        for slot in cut {
            self.let_go(&slot);
        }
        self.unfill(id);
        self.effects.fetchers = true;
    }

    /// Bytes of an answer that no slot pins any longer.
    fn give_back(&mut self, answer: u64, bytes: usize) {
        if bytes > 0 && self.budget.release(answer, bytes, 0) {
            self.copy_out(answer);
        }
        self.freed();
    }

    /// A full partition that has fallen below its low mark is fetched again.
    pub(super) fn unfill(&mut self, id: Id) {
        let low = self.low_mark();
        if let Some(partition) = self.get_mut(id)
            && partition.full
            && partition.queue.bytes <= low
        {
            partition.full = false;
            self.effects.fetchers = true;
        }
    }

    /// The partition has something to hand out.
    pub(super) fn enter_ring(&mut self, id: Id) {
        let Some(partition) = self.get_mut(id) else { return };
        let kept = partition.paused || partition.held || partition.lease.is_some();
        if partition.in_ring || kept || !partition.queue.is_ready() {
            return;
        }
        partition.in_ring = true;
        self.ring.push_back(id);
        self.effects.poll = true;
    }

    /// The partition has nothing to hand out, or must not.
    pub(super) fn leave_ring(&mut self, id: Id) {
        let Some(partition) = self.get_mut(id) else { return };
        if std::mem::take(&mut partition.in_ring) {
            if self.ring.front() == Some(&id) {
                self.ring.pop_front();
            } else {
                self.ring.retain(|other| *other != id);
            }
            // What it holds inflated counts no longer against the others.
            self.effects.inflater |= !self.to_inflate.is_empty();
        }
    }

    /// The partition may have something to inflate.
    pub(super) fn want_inflation(&mut self, id: Id) {
        let Some(partition) = self.get_mut(id) else { return };
        if partition.inflating || partition.paused || next_packed(partition.queue.slots.iter()).is_none() {
            return;
        }
        partition.inflating = true;
        self.to_inflate.push_back(id);
        self.effects.inflater = true;
    }

    /// The next batch to inflate; it is up to the caller where that happens.
    pub fn poll_inflate(&mut self) -> Option<InflateJob> {
        let most = (self.settings.budget / 4).max(1);
        // Only what a poll may take next counts: what a paused partition holds would keep the others waiting.
        if self.inflated >= most {
            let ready = self.ring.iter().filter_map(|id| Some(self.get(*id)?.queue.inflated()));
            if ready.sum::<usize>() >= most {
                return None;
            }
        }
        while let Some(id) = self.to_inflate.pop_front() {
            let Some(partition) = self.get_mut(id) else { continue };
            partition.inflating = false;
            let Some(seq) = next_packed(partition.queue.slots.iter()) else { continue };
            let ticket = partition.ticket;
            let mut job = None;
            partition.queue.change(seq, |slot| {
                if let Kind::Packed { batch, from } = std::mem::replace(&mut slot.kind, Kind::Inflating) {
                    job = Some(InflateJob { id, ticket, seq, batch, from });
                }
            });
            self.want_inflation(id);
            if job.is_some() {
                return job;
            }
        }
        None
    }

    /// Takes what a batch inflated to; dropped if its place is gone.
    pub fn handle_inflated(&mut self, job: &InflateJob, result: Result<RecordSet, BatchError>) {
        let Some(partition) = self.current(job.id, job.ticket) else { return };
        let (topic, index, ticket) = (partition.topic, partition.index, partition.ticket);
        let header = &job.batch.header;
        let next = Pos { offset: header.next_offset(), epoch: header.leader_epoch };
        let (high_watermark, last_stable_offset, log_start_offset) = (
            partition.high_watermark.unwrap_or(-1),
            partition.last_stable_offset.unwrap_or(-1),
            partition.log_start.unwrap_or(-1),
        );
        let (kind, inflated) = match result {
            Ok(set) if set.is_empty() => (Kind::Skip(next), 0),
            Ok(set) => {
                let memory = set.memory();
                let slice = Slice {
                    topic,
                    partition: index,
                    ticket,
                    previous: job.from,
                    set,
                    next: next.offset,
                    next_epoch: next.epoch,
                    high_watermark,
                    last_stable_offset,
                    log_start_offset,
                };
                (Kind::Ready(slice), memory)
            }
            Err(BatchError::Damaged(what)) => {
                self.counts.skipped_batches += 1;
                warn!(%topic, partition = index, offset = job.from, next = next.offset, %what,
                    "passed over a damaged batch");
                (Kind::Skip(next), 0)
            }
            Err(error) => (Kind::Halt(refusal(&error, topic, index, job.from)), 0),
        };
        let Some(partition) = self.current(job.id, job.ticket) else { return };
        let mut packed = None;
        let placed = partition.queue.change(job.seq, |slot| {
            packed = Some((slot.answer, slot.bytes));
            slot.bytes = 0;
            slot.inflated = inflated;
            slot.kind = kind;
        });
        if !placed {
            return;
        }
        self.inflated += inflated;
        self.budget.charge_inflated(inflated);
        if let Some((answer, bytes)) = packed {
            self.give_back(answer, bytes);
        }
        self.enter_ring(job.id);
        self.want_inflation(job.id);
    }

    /// So little of an answer is left that it is cheaper to copy the rest than to pin the whole.
    pub(super) fn copy_out(&mut self, answer: u64) {
        let own = self.next_seq();
        let mut copied = 0;
        for (_, partition) in self.each_mut() {
            // What was inflated pins nothing.
            let pinning = |slot: &&mut Slot| slot.answer == answer && slot.bytes > 0;
            for slot in partition.queue.slots.iter_mut().filter(pinning) {
                match &mut slot.kind {
                    Kind::Ready(slice) => slice.set = slice.set.copied(),
                    Kind::Packed { batch, .. } => batch.bytes = Bytes::copy_from_slice(&batch.bytes),
                    // A job or the fetcher still holds the bytes.
                    Kind::Reserved | Kind::Inflating => continue,
                    _ => {}
                }
                slot.answer = own;
                copied += slot.bytes;
            }
        }
        if copied > 0 {
            self.budget.charge(own, copied, copied);
            self.budget.release(answer, copied, 0);
            self.effects.fetchers = true;
        }
    }
}

/// The first packed batch among the first few of a queue.
fn next_packed<'a>(slots: impl Iterator<Item = &'a Slot>) -> Option<u64> {
    slots
        .filter(|slot| !matches!(slot.kind, Kind::Skip(_) | Kind::Jump(_)))
        .take(AHEAD)
        .take_while(|slot| !matches!(slot.kind, Kind::Reserved | Kind::Halt(_)))
        .find(|slot| matches!(slot.kind, Kind::Packed { .. }))
        .map(|slot| slot.seq)
}
