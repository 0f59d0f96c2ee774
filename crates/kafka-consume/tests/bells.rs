//! The hand-over between a step of the engine and whoever waits for it, in every order of its steps.
//!
//! A ringer changes the state under the lock and rings once the lock is free; a waiter begins to listen, looks at
//! the state under the lock, and only then waits. All interleavings of these steps are run on tokio's own
//! `Notify`, and in each the waiter must end up having seen every change. The same search finds the two classic
//! mistakes: listening after the look, and ringing before the change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Bell {
    /// One waiter, a permit is kept: polls, the supervisor, the inflater.
    One,
    /// Many waiters, no permit: fetchers, calls that wait for a position.
    All,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mistake {
    listens_late: bool,
    rings_early: bool,
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Waiter<'a> {
    bell: &'a Notify,
    notified: Option<Pin<Box<Notified<'a>>>>,
    flag: Arc<Flag>,
    at: u8,
    asleep: bool,
    seen: u32,
    listens_late: bool,
}

impl<'a> Waiter<'a> {
    fn new(bell: &'a Notify, listens_late: bool) -> Self {
        Waiter { bell, notified: None, flag: Arc::default(), at: 0, asleep: false, seen: 0, listens_late }
    }

    fn listen(&mut self) {
        let mut notified = Box::pin(self.bell.notified());
        notified.as_mut().enable();
        self.notified = Some(notified);
    }

    fn can_step(&self) -> bool {
        !self.asleep || self.flag.0.load(Ordering::SeqCst)
    }

    fn step(&mut self, state: u32) {
        match (self.at, self.listens_late) {
            (0, false) | (1, true) => self.listen(),
            (0, true) | (1, false) => self.seen = state,
            _ => {
                self.flag.0.store(false, Ordering::SeqCst);
                let waker = Waker::from(Arc::clone(&self.flag));
                let notified = self.notified.as_mut().unwrap();
                self.asleep = notified.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
                if !self.asleep {
                    self.notified = None;
                    self.at = 0;
                }
                return;
            }
        }
        self.at += 1;
    }
}

const RINGERS: usize = 3;

/// One schedule: who takes the next step, 0 the waiters in turn, else a ringer. False if a change goes unseen.
fn run(schedule: &[usize], bell: Bell, waiters: usize, mistake: Mistake) -> bool {
    let notify = Notify::new();
    let mut state = 0;
    let mut all: Vec<Waiter<'_>> = (0..waiters).map(|_| Waiter::new(&notify, mistake.listens_late)).collect();
    let mut rung = [0_u8; RINGERS];
    for who in schedule {
        match who.checked_sub(waiters) {
            None if all[*who].can_step() => all[*who].step(state),
            None => {}
            Some(ringer) => {
                let changes = (rung[ringer] == 0) != mistake.rings_early;
                rung[ringer] += 1;
                match (changes, bell) {
                    (true, _) => state += 1,
                    (false, Bell::One) => notify.notify_one(),
                    (false, Bell::All) => notify.notify_waiters(),
                }
            }
        }
    }
    // Everybody who is awake goes on until all sleep.
    for _ in 0..100 {
        for waiter in &mut all {
            if waiter.can_step() {
                waiter.step(state);
            }
        }
    }
    all.iter().all(|waiter| waiter.asleep && waiter.seen == state)
}

/// Every order of `steps` steps of each waiter and the two steps of each ringer; how many lose a change.
fn lost(bell: Bell, waiters: usize, ringers: usize, steps: u8, mistake: Mistake) -> (u64, u64) {
    fn search(left: &mut Vec<u8>, order: &mut Vec<usize>, judge: &mut impl FnMut(&[usize])) {
        if left.iter().all(|left| *left == 0) {
            return judge(order);
        }
        for who in 0..left.len() {
            if left[who] > 0 {
                left[who] -= 1;
                order.push(who);
                search(left, order, judge);
                order.pop();
                left[who] += 1;
            }
        }
    }
    let mut left = vec![steps; waiters];
    left.extend(vec![2; ringers]);
    let (mut lost, mut runs) = (0, 0);
    search(&mut left, &mut Vec::new(), &mut |order| {
        runs += 1;
        lost += u64::from(!run(order, bell, waiters, mistake));
    });
    (lost, runs)
}

#[test]
fn no_change_is_lost_in_any_order() {
    for (bell, waiters, ringers, steps) in [(Bell::One, 1, 3, 6), (Bell::All, 1, 3, 6), (Bell::All, 2, 2, 3)]
    {
        let (lost, runs) = lost(bell, waiters, ringers, steps, Mistake::default());
        assert!(runs > 10_000, "only {runs} orders");
        assert_eq!(lost, 0, "{bell:?} loses a change in {lost} of {runs} orders");
    }
}

#[test]
fn listening_after_the_look_is_found() {
    let mistake = Mistake { listens_late: true, ..Mistake::default() };
    assert!(lost(Bell::All, 1, 2, 6, mistake).0 > 0);
}

#[test]
fn ringing_before_the_change_is_found() {
    let mistake = Mistake { rings_early: true, ..Mistake::default() };
    assert!(lost(Bell::One, 1, 2, 6, mistake).0 > 0);
    assert!(lost(Bell::All, 1, 2, 6, mistake).0 > 0);
}
