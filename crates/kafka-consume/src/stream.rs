//! Records one by one, as a [`Stream`].
//!
//! A stream takes one batch at a time under a lease: the partition's position stays where it was and follows
//! each record yielded, so a commit in between covers exactly what the caller has had. A seek, or a new
//! assignment, breaks the lease: what the stream still holds is dropped, not yielded. Dropping the stream puts
//! back what it has not yielded.
//!
//! | state | next |
//! |---|---|
//! | nothing lent, nothing there | waits for the engine's bell, or until a fault is due to be told |
//! | a batch lent | yields from it without a lock; at its end the lease ends and the next batch is taken |
//! | closed | yields `None` for ever |

use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use futures::future::{BoxFuture, select};
use kafka_meta::{Error, ErrorKind, Result, TopicName};
use kafka_read::{IntoIter, Record, Records};
use tokio::time::Instant;

use crate::consumer::Consumer;
use crate::driver::until;
use crate::member::Builder;
use crate::member::cell::{Listener, Polling, prepare};
use crate::position::{Lease, Pos};
use crate::shared::Shared;

/// Batches a stream yields from before it lets the runtime's other tasks have a turn.
const TURN: u32 = 32;

/// The records of a consumer one by one, borrowing it.
///
/// Yields an error where `poll` would return one and goes on afterwards; ends (`None`) once the consumer is
/// closed. May be dropped at any time: what was not yielded is read again.
#[derive(Debug)]
pub struct RecordStream<'a> {
    reader: Reader,
    // Held so that nothing else reads meanwhile.
    _consumer: PhantomData<&'a mut Consumer>,
}

impl<'a> RecordStream<'a> {
    pub(crate) fn new(consumer: &'a mut Consumer) -> Self {
        RecordStream { reader: Reader::new(Arc::clone(&consumer.shared)), _consumer: PhantomData }
    }

    pub(crate) fn of_member(member: &'a mut Builder) -> Self {
        RecordStream { reader: Reader::of_member(member), _consumer: PhantomData }
    }
}

impl Stream for RecordStream<'_> {
    type Item = Result<Record>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Record>>> {
        self.reader.poll_next(cx)
    }
}

/// The records of a consumer one by one, owning it: `'static`, to be moved into a task.
///
/// Yields an error where `poll` would return one and goes on afterwards; ends (`None`) once the consumer is
/// closed.
#[derive(Debug)]
pub struct OwnedRecordStream<C> {
    reader: Reader,
    consumer: C,
}

impl OwnedRecordStream<Consumer> {
    pub(crate) fn new(consumer: Consumer) -> Self {
        OwnedRecordStream { reader: Reader::new(Arc::clone(&consumer.shared)), consumer }
    }
}

impl<C> OwnedRecordStream<C> {
    pub(crate) fn with(reader: Reader, consumer: C) -> Self {
        OwnedRecordStream { reader, consumer }
    }

    /// The consumer, its positions just after the record yielded last.
    pub fn into_inner(self) -> C {
        drop(self.reader);
        self.consumer
    }

    /// The consumer, to look at positions, lag or metrics in between.
    pub fn get_ref(&self) -> &C {
        &self.consumer
    }
}

impl<C: Unpin> Stream for OwnedRecordStream<C> {
    type Item = Result<Record>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Record>>> {
        self.reader.poll_next(cx)
    }
}

/// What a stream reads with; it owns shares of what it needs, so that the consumer can be had back at any time.
pub(crate) struct Reader {
    shared: Arc<Shared>,
    /// Of a member; rebalances are carried through between batches.
    listener: Option<Listener>,
    /// The membership could not be put in place; told once.
    failed: Option<Error>,
    lent: Option<Lent>,
    preparing: Option<BoxFuture<'static, Result<bool>>>,
    waiting: Option<BoxFuture<'static, ()>>,
    polling: Option<Polling>,
    turn: u32,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("lent", &self.lent.is_some()).finish_non_exhaustive()
    }
}

struct Lent {
    records: IntoIter,
    lease: Arc<Lease>,
    topic: TopicName,
    partition: i32,
    /// Where the lease stands.
    at: i64,
    end: Pos,
}

impl Reader {
    fn new(shared: Arc<Shared>) -> Self {
        Reader {
            shared,
            listener: None,
            failed: None,
            lent: None,
            preparing: None,
            waiting: None,
            polling: None,
            turn: 0,
        }
    }

    pub(crate) fn of_member(member: &mut Builder) -> Self {
        let failed = member.begin().err();
        let mut reader = Reader::new(Arc::clone(member.shared()));
        reader.listener = Some(Arc::clone(&member.listener));
        reader.failed = failed;
        reader
    }

    #[inline]
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Record>>> {
        if let Some(lent) = &mut self.lent
            && let Some(record) = lent.records.next()
        {
            let next = if lent.records.len() == 0 { lent.end.offset } else { record.offset + 1 };
            if lent.lease.advance(lent.at, next) {
                lent.at = next;
                self.shared.touch();
                return Poll::Ready(Some(Ok(record)));
            }
        }
        let polled = self.poll_batch(cx);
        if polled.is_ready() {
            // The next wait looks anew at when a fault is due.
            self.waiting = None;
        }
        polled
    }

    /// The batch is used up, or there is none: takes the next one, or waits for it.
    #[cold]
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Record>>> {
        self.give_back();
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if let Err(error) = self.shared.start() {
            return Poll::Ready(unless_closed(error));
        }
        self.turn += 1;
        if self.turn >= TURN {
            self.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.polling.is_none() {
            self.polling = Polling::begin(&self.shared);
        }
        let next = self.poll_engine(cx);
        if next.is_ready() {
            self.polling = None;
        }
        next
    }

    fn poll_engine(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Record>>> {
        loop {
            // The wait begins before the look, or a bell in between would be lost.
            let rung = self.wait(cx);
            match self.poll_member(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(unless_closed(error)),
                Poll::Ready(Ok(())) => {}
            }
            let now = Instant::now().into_std();
            let (mut taken, lease) = self.shared.with(|core| core.take_leased(now));
            if let (Some(slice), Some(lease)) = (taken.slices.pop(), lease) {
                let end = Pos { offset: slice.next, epoch: slice.next_epoch };
                let (topic, partition) = (slice.topic, slice.partition);
                let records = Records::from_slices(vec![slice]).into_iter();
                let at = lease.offset();
                self.lent = Some(Lent { records, lease, topic, partition, at, end });
                return self.poll_next(cx);
            }
            if let Some(error) = taken.error {
                return Poll::Ready(Some(Err(error)));
            }
            if let Err(error) = self.shared.check_open() {
                return Poll::Ready(unless_closed(error));
            }
            if !rung {
                return Poll::Pending;
            }
        }
    }

    /// Carries the membership on, if there is one.
    fn poll_member(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(listener) = &self.listener else { return Poll::Ready(Ok(())) };
        let preparing = self
            .preparing
            .get_or_insert_with(|| Box::pin(prepare(Arc::clone(&self.shared), Arc::clone(listener))));
        let result = preparing.as_mut().poll(cx);
        if result.is_ready() {
            self.preparing = None;
        }
        result.map_ok(|_| ())
    }

    /// Registers with the engine's bell; true when it has rung since the last look.
    fn wait(&mut self, cx: &mut Context<'_>) -> bool {
        let waiting = self.waiting.get_or_insert_with(|| {
            let shared = Arc::clone(&self.shared);
            Box::pin(async move {
                let next_fault = shared.with(|core| core.next_fault_at());
                let rung = pin!(shared.polls.notified());
                let fault = pin!(until(next_fault.map(Instant::from_std)));
                select(rung, fault).await;
                shared.take_woken();
            })
        });
        let rung = waiting.as_mut().poll(cx).is_ready();
        if rung {
            self.waiting = None;
        }
        rung
    }

    /// Ends the lease; what was not yielded goes back to the front of the queue.
    fn give_back(&mut self) {
        let Some(lent) = self.lent.take() else { return };
        let rest = lent.records.rest().into_slices();
        self.shared.with(|core| core.end_lease(lent.topic, lent.partition, &lent.lease, lent.end, rest));
    }
}

/// A closed consumer ends the stream; anything else is told.
fn unless_closed(error: Error) -> Option<Result<Record>> {
    (error.kind() != ErrorKind::Closed).then_some(Err(error))
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.give_back();
    }
}
