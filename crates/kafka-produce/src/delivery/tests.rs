//! Who is woken when, and what is told.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use kafka_meta::{Error, ErrorKind};

use super::{Delivery, Finish, Outcome, Written};

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T> + '_>>, bell: &Arc<Bell>) -> Poll<T> {
    let waker = Waker::from(Arc::clone(bell));
    future.as_mut().poll(&mut Context::from_waker(&waker))
}

fn tell(delivery: &Arc<Delivery>, first: u32, count: u32, total: u32, outcome: Outcome) {
    Finish { delivery: Arc::clone(delivery), first, count, total, outcome }.tell();
}

#[test]
fn a_batch_in_parts_wakes_everybody_each_time_and_forgets_nobody() {
    let delivery = Arc::new(Delivery::default());
    let bells: Vec<_> = (0..4).map(|_| Arc::new(Bell::default())).collect();
    let mut waits: Vec<Pin<Box<dyn Future<Output = _>>>> =
        (0..4).map(|index| Box::pin(delivery.outcome(index)) as Pin<Box<dyn Future<Output = _>>>).collect();
    // Polled often: one place each.
    for _ in 0..3 {
        for (wait, bell) in waits.iter_mut().zip(&bells) {
            assert!(poll(wait, bell).is_pending());
        }
    }
    tell(&delivery, 2, 2, 4, Outcome::Done { base_offset: 7, append_time: None });
    assert!(bells.iter().all(|bell| bell.0.load(Ordering::Relaxed) == 1));
    // Only some look again before the rest comes; they must not take each other's places.
    assert!(poll(&mut waits[1], &bells[1]).is_pending());
    assert!(poll(&mut waits[0], &bells[0]).is_pending());
    assert!(matches!(poll(&mut waits[3], &bells[3]), Poll::Ready(Ok(Written { offset: 8, .. }))));
    tell(&delivery, 0, 2, 4, Outcome::Failed(Error::new(ErrorKind::Timeout, "produce")));
    for at in 0..2 {
        assert_eq!(bells[at].0.load(Ordering::Relaxed), 2, "{at}");
        assert!(matches!(poll(&mut waits[at], &bells[at]), Poll::Ready(Err(_))));
    }
    assert!(matches!(poll(&mut waits[2], &bells[2]), Poll::Ready(Ok(Written { offset: 7, .. }))));
    drop(waits);
    let mut all: Pin<Box<dyn Future<Output = _>>> = Box::pin(delivery.all());
    assert!(matches!(poll(&mut all, &bells[0]), Poll::Ready(Err(_))));
}

#[test]
fn an_outcome_that_was_told_before_is_there_at_once() {
    let delivery = Arc::new(Delivery::default());
    tell(&delivery, 0, 1, 1, Outcome::Done { base_offset: -1, append_time: Some(5) });
    let mut wait: Pin<Box<dyn Future<Output = _>>> = Box::pin(delivery.outcome(0));
    let expected = Written { offset: -1, append_time: Some(5) };
    assert!(matches!(poll(&mut wait, &Arc::default()), Poll::Ready(Ok(written)) if written == expected));
}
