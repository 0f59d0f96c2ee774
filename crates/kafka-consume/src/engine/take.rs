//! What a poll hands out, and what it takes back. Pure.
//!
//! Whole batches in turn: the batch a poll has begun goes on first, then the next partition has its turn with
//! one batch. Nothing fetched is thrown away: what does not fit stays where it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_meta::{Error, TopicName};
use kafka_read::Slice;

use super::core::{Core, Id};
use crate::buffer::{Kind, Slot};
use crate::position::{Lease, Pos, REMIND_AFTER, State};

/// What one step of a poll came to.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub slices: Vec<Slice>,
    /// A position moved, with records or without.
    pub moved: bool,
    /// A fault to tell, when there are no records.
    pub error: Option<Error>,
}

/// Records come before errors, but a caller who always finds records hears of an error after this long.
const OVERDUE: Duration = Duration::from_secs(1);

impl Core {
    /// Up to `most` records, in one synchronous step: positions move exactly past what is returned.
    pub fn take(&mut self, now: Instant, most: usize) -> Taken {
        let mut taken = Taken::default();
        if let Some(error) = self.due_fault(now, OVERDUE) {
            taken.error = Some(error);
            return taken;
        }
        let mut left = most;
        while left > 0 {
            let Some(id) = self.ring.front().copied() else { break };
            let turn = self.take_turn(now, id, &mut left, &mut taken);
            self.end_turn(id, turn);
        }
        if taken.slices.is_empty() {
            taken.error = self.due_fault(now, Duration::ZERO);
        } else {
            self.counts.records += u64::try_from(slice_len(&taken)).unwrap_or(0);
        }
        taken
    }

    fn end_turn(&mut self, id: Id, turn: Turn) {
        match turn {
            Turn::Drained => {
                self.leave_ring(id);
                self.enter_ring(id);
                self.want_inflation(id);
            }
            // The next poll goes on with the next partition, or one whose batches fill a poll would come alone.
            Turn::Batch => self.ring.rotate_left(1),
            Turn::Part => {}
        }
    }

    /// One partition's turn: up to one batch.
    fn take_turn(&mut self, now: Instant, id: Id, left: &mut usize, taken: &mut Taken) -> Turn {
        loop {
            let Some(partition) = self.get_mut(id) else { return Turn::Drained };
            if partition.paused || partition.held || partition.lease.is_some() {
                return Turn::Drained;
            }
            let Some(slot) = partition.queue.front() else { return Turn::Drained };
            match &slot.kind {
                Kind::Reserved | Kind::Packed { .. } | Kind::Inflating => return Turn::Drained,
                Kind::Skip(_) | Kind::Jump(_) | Kind::Halt(_) => {
                    taken.moved = true;
                    if !self.pass_front(now, id) {
                        return Turn::Drained;
                    }
                }
                Kind::Ready(slice) if slice.set.len() <= *left => {
                    let Some(slot) = partition.queue.pop_front() else { return Turn::Drained };
                    if let Kind::Ready(slice) = &slot.kind {
                        *left -= slice.set.len();
                        partition.consume(slice);
                    }
                    self.let_go(&slot);
                    self.after_take(id);
                    if let Kind::Ready(slice) = slot.kind {
                        self.hand_over(id, slice, taken);
                    }
                    let more = self.get(id).is_some_and(|partition| partition.queue.is_ready());
                    return if more { Turn::Batch } else { Turn::Drained };
                }
                Kind::Ready(_) => {
                    let want = std::mem::take(left);
                    let Some(slice) = self.split_front(id, want) else { return Turn::Drained };
                    self.hand_over(id, slice, taken);
                    return Turn::Part;
                }
            }
        }
    }

    fn hand_over(&mut self, id: Id, mut slice: Slice, taken: &mut Taken) {
        if let Some(partition) = self.get_mut(id) {
            slice.previous = partition.handed.replace(slice.next).unwrap_or(slice.previous);
            slice.high_watermark = partition.high_watermark.unwrap_or(slice.high_watermark);
            slice.last_stable_offset = partition.last_stable_offset.unwrap_or(slice.last_stable_offset);
            slice.log_start_offset = partition.log_start.unwrap_or(slice.log_start_offset);
        }
        taken.moved = true;
        taken.slices.push(slice);
    }

    /// Passes the settled slot at the front that hands nothing out. False when the partition has stopped.
    fn pass_front(&mut self, now: Instant, id: Id) -> bool {
        let Some(partition) = self.get_mut(id) else { return false };
        let Some(slot) = partition.queue.pop_front() else { return false };
        match slot.kind {
            Kind::Skip(to) | Kind::Jump(to) => partition.consumed = Some(to),
            Kind::Halt(ref error) => {
                let error = error.clone();
                self.let_go(&slot);
                let Some(partition) = self.get_mut(id) else { return false };
                let rest = std::mem::take(&mut partition.queue);
                partition.fetch = partition.consumed;
                self.discard(rest);
                self.halt(now, id, error);
                return false;
            }
            _ => {}
        }
        self.let_go(&slot);
        self.after_take(id);
        true
    }

    /// The first `want` records of the batch at the front; the rest stays.
    fn split_front(&mut self, id: Id, want: usize) -> Option<Slice> {
        let partition = self.get_mut(id)?;
        let slot = partition.queue.slots.front_mut()?;
        let Kind::Ready(rest) = &mut slot.kind else { return None };
        let head = rest.split_to(want);
        partition.consume(&head);
        Some(head)
    }

    /// The queue has become shorter.
    fn after_take(&mut self, id: Id) {
        self.unfill(id);
        self.want_inflation(id);
        if !self.to_inflate.is_empty() {
            self.effects.inflater = true;
        }
    }

    /// A fault that has been due to be told for at least `since`.
    fn due_fault(&mut self, now: Instant, since: Duration) -> Option<Error> {
        if !self.faulty {
            return None;
        }
        let mut faulty = false;
        for (_, partition) in self.each_mut() {
            let Some(fault) = &mut partition.fault else { continue };
            faulty = true;
            if fault.tell_at.is_none_or(|at| at + since > now) {
                continue;
            }
            // A missing topic is told once; whatever else lasts is told again.
            let once = fault.error.kind() == kafka_meta::ErrorKind::UnknownTopic
                && !matches!(partition.state, State::Stopped);
            fault.tell_at = (!once).then_some(now + REMIND_AFTER);
            return Some(fault.error.clone());
        }
        self.faulty = faulty;
        None
    }

    /// When the next fault is due to be told.
    pub fn next_fault_at(&self) -> Option<Instant> {
        if !self.faulty {
            return None;
        }
        self.each().filter_map(|(_, partition)| partition.fault.as_ref()?.tell_at).min()
    }

    /// Takes back records that a poll handed out and the caller did not use: the positions move back and the
    /// records come first again. What a seek or a new assignment has overtaken is dropped.
    ///
    /// Markers and holes between two slices, or behind the last, have been passed meanwhile: they are passed again
    /// after the records, so that a position that stood at the end of the log comes to stand there again.
    pub fn put_back(&mut self, slices: Vec<Slice>) {
        for slice in slices.into_iter().rev() {
            let Some(first) = slice.set.first_offset() else { continue };
            let Some(id) = self.named(slice.topic, slice.partition) else { continue };
            let (seq, between, answer) = (self.next_seq(), self.next_seq(), self.next_seq());
            let Some(partition) = self.current(id, slice.ticket) else { continue };
            let Some(consumed) = partition.consumed else { continue };
            // Only what was handed out last: anything else would make a gap or come twice.
            if partition.handed != Some(slice.next) {
                continue;
            }
            if consumed.offset != slice.next {
                let kind = Kind::Jump(consumed);
                let slot =
                    Slot { seq: between, answer: 0, bytes: 0, inflated: 0, end: consumed.offset, kind };
                partition.queue.push_front(slot);
            }
            partition.handed = Some(slice.previous);
            let epoch = slice.set.leader_epoch();
            partition.consumed = Some(Pos { offset: first, epoch });
            let bytes = slice.set.memory();
            let records = slice.set.len();
            partition.queue.push_front(Slot {
                seq,
                answer,
                bytes,
                inflated: 0,
                end: slice.next,
                kind: Kind::Ready(slice),
            });
            self.budget.charge(answer, bytes, bytes);
            self.counts.records = self.counts.records.saturating_sub(u64::try_from(records).unwrap_or(0));
            // It was on top a moment ago, so it goes on before the others.
            self.leave_ring(id);
            if let Some(partition) = self.get_mut(id)
                && !partition.paused
                && !partition.held
            {
                partition.in_ring = true;
                self.ring.push_front(id);
                self.effects.poll = true;
            }
        }
    }

    /// One batch for a stream; the position stays and follows the lease.
    pub fn take_leased(&mut self, now: Instant) -> (Taken, Option<Arc<Lease>>) {
        let mut taken = Taken::default();
        if let Some(error) = self.due_fault(now, OVERDUE) {
            taken.error = Some(error);
            return (taken, None);
        }
        while let Some(id) = self.ring.front().copied() {
            let before = self.get(id).and_then(|partition| partition.consumed);
            let mut left = usize::MAX;
            let turn = self.take_turn(now, id, &mut left, &mut taken);
            self.end_turn(id, turn);
            let Some(slice) = taken.slices.first() else { continue };
            let (epoch, start) = (slice.set.leader_epoch(), before);
            let end = Pos { offset: slice.next, epoch: slice.next_epoch };
            // Gaps and markers passed on the way to the batch count as consumed at once.
            let start = match (start, slice.set.first_offset()) {
                (Some(start), Some(first)) => Pos { offset: start.offset.max(first), ..start },
                (_, first) => Pos { offset: first.unwrap_or(0), epoch },
            };
            let lease = Arc::new(Lease::new(start.offset));
            if let Some(partition) = self.get_mut(id) {
                partition.consumed = Some(start);
                partition.lease = Some(Arc::clone(&lease));
                partition.lease_epoch = epoch;
                partition.lease_end = end;
            }
            self.leave_ring(id);
            self.counts.records += u64::try_from(slice_len(&taken)).unwrap_or(0);
            return (taken, Some(lease));
        }
        taken.error = self.due_fault(now, Duration::ZERO);
        (taken, None)
    }

    /// Ends a lease: all of the batch was yielded, or `rest` was not.
    pub fn end_lease(
        &mut self,
        topic: TopicName,
        index: i32,
        lease: &Arc<Lease>,
        end: Pos,
        rest: Vec<Slice>,
    ) {
        let Some(id) = self.named(topic, index) else { return };
        let Some(partition) = self.get_mut(id) else { return };
        if !partition.lease.as_ref().is_some_and(|held| Arc::ptr_eq(held, lease)) {
            return;
        }
        partition.lease = None;
        partition.consumed = Some(end);
        self.put_back(rest);
        self.enter_ring(id);
        self.want_inflation(id);
    }
}

/// How a partition's turn ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Turn {
    /// It has nothing more to hand out now.
    Drained,
    /// It has handed out a batch and has more.
    Batch,
    /// It has begun a batch, with which the next poll goes on.
    Part,
}

fn slice_len(taken: &Taken) -> usize {
    taken.slices.iter().map(|slice| slice.set.len()).sum()
}
