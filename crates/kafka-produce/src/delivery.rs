//! Where sends wait for their outcome: one [`Delivery`] per batch, shared by all of its records, so that a record
//! costs no channel of its own.
//!
//! What this is not: a decision. The engine hands out who is told what; the driver tells it, after the
//! transaction has been told.
//!
//! States of a delivery: *open* while some of its records have no outcome, then *done*. A batch that had to be
//! split gets its outcomes in parts. Of a [`Placement`], a record's that waits for room or for its topic: *waiting*, then
//! *placed* in a batch or *refused*.
//!
//! Invariant: every record gets exactly one outcome; a second one is ignored.

use std::collections::HashMap;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use kafka_meta::{Error, Result};
use tokio::sync::Notify;

/// What became of a stretch of records.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// They are at `base_offset` and behind it; −1 when that is not known.
    Done {
        base_offset: i64,
        append_time: Option<i64>,
    },
    Failed(Error),
    /// Each for its own reason, by its place in the stretch; those that have none for the sake of the others.
    FailedEach {
        own: Arc<HashMap<u32, Error>>,
        others: Error,
    },
}

impl Outcome {
    /// The error that stands for the stretch.
    pub fn error(&self) -> Option<&Error> {
        match self {
            Outcome::Done { .. } => None,
            Outcome::Failed(error) | Outcome::FailedEach { others: error, .. } => Some(error),
        }
    }
}

impl Outcome {
    /// The transaction of the records can only be aborted.
    pub fn mark_abort_needed(&mut self) {
        match self {
            Outcome::Done { .. } => {}
            Outcome::Failed(error) => *error = error.clone().with_abort_needed(),
            Outcome::FailedEach { own, others } => {
                *others = others.clone().with_abort_needed();
                let marked =
                    own.iter().map(|(place, error)| (*place, error.clone().with_abort_needed())).collect();
                *own = Arc::new(marked);
            }
        }
    }
}

/// Where a record was written: its offset and, on topics with log append time, its time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Written {
    pub offset: i64,
    pub append_time: Option<i64>,
}

#[derive(Debug)]
struct Part {
    first: u32,
    count: u32,
    outcome: Outcome,
}

#[derive(Debug, Default)]
struct Parts {
    parts: Vec<Part>,
    done: bool,
    /// Who waits for a part that is not there yet. Each waiter keeps the number of its place, so that one that is
    /// polled often takes no second.
    wakers: Vec<Waker>,
    /// How often all of them were woken: places are of one round.
    round: usize,
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Delivery {
    parts: Mutex<Parts>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").finish_non_exhaustive()
    }
}

/// An outcome on its way to those who wait for it.
#[derive(Debug)]
pub(crate) struct Finish {
    pub delivery: Arc<Delivery>,
    pub first: u32,
    pub count: u32,
    /// How many records the delivery has in all.
    pub total: u32,
    pub outcome: Outcome,
}

impl Finish {
    /// Tells them.
    pub fn tell(self) {
        let wakers = {
            let mut parts = self.delivery.lock();
            parts.parts.push(Part { first: self.first, count: self.count, outcome: self.outcome });
            let covered: u64 = parts.parts.iter().map(|part| u64::from(part.count)).sum();
            parts.done = covered >= u64::from(self.total);
            parts.round += 1;
            std::mem::take(&mut parts.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Delivery {
    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one record's outcome.
    pub async fn outcome(&self, index: u32) -> Result<Written> {
        Wait { delivery: self, place: None, look: |parts: &Parts| parts.look(index) }.await
    }

    /// Waits until every record has its outcome; the first error among them.
    pub async fn all(&self) -> Result<()> {
        Wait { delivery: self, place: None, look: Parts::end }.await
    }
}

impl Parts {
    fn look(&self, index: u32) -> Option<Result<Written>> {
        let part = self.parts.iter().find(|part| index >= part.first && index - part.first < part.count)?;
        let place = index - part.first;
        Some(match &part.outcome {
            Outcome::Done { base_offset: -1, append_time } => {
                Ok(Written { offset: -1, append_time: *append_time })
            }
            Outcome::Done { base_offset, append_time } => Ok(Written {
                offset: base_offset.saturating_add(i64::from(place)),
                append_time: *append_time,
            }),
            Outcome::Failed(error) => Err(error.clone()),
            Outcome::FailedEach { own, others } => Err(own.get(&place).unwrap_or(others).clone()),
        })
    }

    fn end(&self) -> Option<Result<()>> {
        self.done.then(|| {
            let error = self.parts.iter().find_map(|part| part.outcome.error());
            error.map_or(Ok(()), |error| Err(error.clone()))
        })
    }
}

/// Looks and registers under one lock, so that no bell is missed; a batch of ten thousand records would pay for
/// anything more with every one of them.
struct Wait<'a, L> {
    delivery: &'a Delivery,
    /// Round and place.
    place: Option<(usize, usize)>,
    look: L,
}

impl<L: Fn(&Parts) -> Option<T> + Unpin, T> Future for Wait<'_, L> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let mut parts = this.delivery.lock();
        if let Some(found) = (this.look)(&parts) {
            return Poll::Ready(found);
        }
        let round = parts.round;
        let place = this.place.filter(|(of, _)| *of == round);
        match place.and_then(|(_, place)| parts.wakers.get_mut(place)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => {
                this.place = Some((round, parts.wakers.len()));
                parts.wakers.push(context.waker().clone());
            }
        }
        Poll::Pending
    }
}

/// A record's place in a batch.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub delivery: Arc<Delivery>,
    pub index: u32,
    pub partition: i32,
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Placement {
    placed: Mutex<Option<Result<Place>>>,
    bell: Notify,
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placement").finish_non_exhaustive()
    }
}

impl Placement {
    /// Tells who waits.
    pub fn tell(&self, place: Result<Place>) {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(place);
        self.bell.notify_waiters();
    }

    /// Waits for the place.
    pub async fn place(&self) -> Result<Place> {
        loop {
            let mut rung = pin!(self.bell.notified());
            rung.as_mut().enable();
            if let Some(place) = self.placed.lock().unwrap_or_else(PoisonError::into_inner).clone() {
                return place;
            }
            rung.await;
        }
    }
}

#[cfg(test)]
mod tests;
