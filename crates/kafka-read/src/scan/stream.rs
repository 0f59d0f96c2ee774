//! The caller's side: events one by one, from what the core has queued.
//!
//! | state | next |
//! |---|---|
//! | `Waiting` | the first poll starts the driver |
//! | `Running` | yields from the piece in hand without a lock; then takes the next one; nothing there: waits |
//! | `Over` | `None`, for ever |
//!
//! Invariant: the waker is registered before the core is looked at.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use kafka_meta::{Cluster, Error, ErrorKind, Result};
use tokio::task::JoinHandle;
use tracing::{Instrument, debug_span};

use super::core::Core;
use super::driver::{self, Shared};
use super::partition::What;
use super::work::Picked;
use super::{Order, ScanEvent};

/// Pieces handed over before the runtime's other tasks get a turn.
const TURN: u32 = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct EventStream {
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting(Option<Box<(Cluster, Order)>>),
    Running(Box<Running>),
    Over,
}

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    driver: JoinHandle<()>,
    /// The driver's task is over; it must not be asked again.
    ended: bool,
    current: Option<Picked>,
    pieces: u32,
    operation: &'static str,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.with(Core::close);
        self.driver.abort();
    }
}

impl EventStream {
    pub(crate) fn new(cluster: Cluster, order: Order) -> Self {
        EventStream { state: State::Waiting(Some(Box::new((cluster, order)))) }
    }
}

impl Stream for EventStream {
    type Item = Result<ScanEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<ScanEvent>>> {
        loop {
            match &mut self.state {
                State::Waiting(start) => {
                    self.state = match start.take() {
                        Some(start) => State::Running(Box::new(Running::start(start.0, start.1))),
                        None => State::Over,
                    };
                }
                State::Running(running) => {
                    let next = running.poll_next(cx);
                    if matches!(next, Poll::Ready(None)) {
                        self.state = State::Over;
                    }
                    return next;
                }
                State::Over => return Poll::Ready(None),
            }
        }
    }
}

impl Running {
    fn start(cluster: Cluster, order: Order) -> Self {
        let operation = order.operation();
        let span = debug_span!("reader", operation, topic = %order.topic);
        let config = cluster.config();
        let core = Core::new(order, config.rack(), config.metadata_max_age());
        let shared = Arc::new(Shared::new(core));
        let task = driver::run(Arc::clone(&shared), cluster.clone()).instrument(span);
        let driver = cluster.spawn(task);
        Running { shared, driver, ended: false, current: None, pieces: 0, operation }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<ScanEvent>>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(record) = current.next() {
                    return Poll::Ready(Some(Ok(ScanEvent::Record(record))));
                }
                self.current = None;
            }
            if self.pieces >= TURN {
                self.pieces = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.shared.waker.register(cx.waker());
            let (what, over) = self.shared.with(|core| (core.take(), core.is_over()));
            self.pieces += 1;
            match what {
                Some(What::Piece(piece)) => self.current = Some(piece.into_records()),
                Some(What::Event(event)) => return Poll::Ready(Some(Ok(event))),
                Some(What::Error(error)) => return Poll::Ready(Some(Err(error))),
                None if over => return Poll::Ready(None),
                None if self.ended => {
                    self.shared.with(Core::close);
                    let error = Error::new(ErrorKind::Closed, self.operation)
                        .with_detail("the runtime that drives it has been shut down");
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    self.pieces = 0;
                    // It ends when nothing is left to do, or with its runtime; what it did last is looked at again.
                    match Pin::new(&mut self.driver).poll(cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(_) => self.ended = true,
                    }
                }
            }
        }
    }
}
