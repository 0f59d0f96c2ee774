//! When metadata is asked for, with time as an argument.

use std::time::{Duration, Instant};

use super::{REBOOTSTRAP, RECENT, Refresh};
use crate::TopicName;
use crate::cluster::merge::{Scope, Wanted};

const AGE: Duration = Duration::from_secs(300);

fn name(text: &str) -> TopicName {
    TopicName::new(text)
}

fn some(names: &[&str]) -> Scope {
    let mut names: Vec<_> = names.iter().map(|name| TopicName::new(name)).collect();
    names.sort();
    Scope::Some(names)
}

/// A refresh that has had its first answer.
fn settled(now: Instant) -> Refresh {
    let mut refresh = Refresh::new(AGE);
    refresh.poll_round(now).unwrap();
    refresh.handle_answer(now, 0.5, true, false);
    refresh
}

#[test]
fn the_first_round_is_due_at_once_and_the_next_when_the_picture_is_old() {
    let start = Instant::now();
    let mut refresh = Refresh::new(AGE);
    let round = refresh.poll_round(start).unwrap();
    assert_eq!((round.number, round.scope, round.rebootstrap), (1, some(&[]), false));
    assert!(refresh.poll_round(start).is_none(), "one at a time");
    assert_eq!(refresh.next_deadline(), None);
    refresh.handle_answer(start, 0.5, true, false);
    assert_eq!(refresh.next_deadline(), Some(start + AGE));
    assert!(refresh.poll_round(start + AGE - Duration::from_millis(1)).is_none());
    assert_eq!(refresh.poll_round(start + AGE).unwrap().number, 2);
}

#[test]
fn while_a_topic_is_refused_the_picture_is_asked_for_every_few_seconds_and_no_more() {
    let start = Instant::now();
    let mut refresh = Refresh::new(AGE);
    refresh.poll_round(start).unwrap();
    refresh.note_denied(true);
    refresh.handle_answer(start, 0.5, true, false);
    let again = start + Duration::from_secs(3);
    assert_eq!(refresh.next_deadline(), Some(again));
    assert!(refresh.poll_round(again - Duration::from_millis(1)).is_none());
    refresh.poll_round(again).unwrap();
    refresh.note_denied(false);
    refresh.handle_answer(again, 0.5, true, false);
    assert_eq!(refresh.next_deadline(), Some(again + AGE));
}

#[test]
fn early_refreshes_are_coalesced_and_spaced_out_while_they_bring_nothing() {
    let mut now = Instant::now();
    let mut refresh = settled(now);
    let mut gaps = Vec::new();
    let mut last = now;
    for _ in 0..6 {
        for _ in 0..100 {
            refresh.suspect();
        }
        now = refresh.next_deadline().unwrap();
        assert!(refresh.poll_round(now - Duration::from_millis(1)).is_none());
        refresh.poll_round(now).unwrap();
        gaps.push((now - last).as_millis());
        last = now;
        refresh.handle_answer(now, 0.5, false, false);
    }
    assert_eq!(gaps, [100, 200, 400, 800, 1000, 1000]);
}

#[test]
fn a_suspicion_after_a_quiet_time_is_followed_at_once_and_the_next_soon() {
    let start = Instant::now();
    let mut refresh = settled(start);
    let later = start + Duration::from_secs(60);
    refresh.suspect();
    refresh.poll_round(later).unwrap();
    refresh.handle_answer(later, 0.5, false, false);
    refresh.suspect();
    assert_eq!(refresh.next_deadline(), Some(later + Duration::from_millis(100)));
}

#[test]
fn a_new_topic_does_not_wait_and_one_asked_about_again_does() {
    let now = Instant::now();
    let mut refresh = settled(now);
    let number = refresh.want(now, &[name("orders")]);
    let round = refresh.poll_round(now).unwrap();
    assert_eq!((round.number, round.scope), (number, some(&["orders"])));
    refresh.handle_answer(now, 0.5, true, false);
    refresh.want(now, &[name("orders")]);
    assert!(refresh.poll_round(now).is_none());
    assert!(refresh.poll_round(now + Duration::from_millis(100)).is_some());
}

#[test]
fn what_is_asked_for_during_a_round_waits_for_the_next_one() {
    let now = Instant::now();
    let mut refresh = Refresh::new(AGE);
    let running = refresh.poll_round(now).unwrap();
    let number = refresh.want(now, &[name("orders")]);
    assert_eq!(number, running.number + 1);
    assert!(refresh.poll_round(now).is_none());
    refresh.handle_answer(now, 0.5, true, false);
    assert_eq!(refresh.poll_round(now).unwrap().number, number);
}

#[test]
fn a_round_covers_every_interest_and_dropping_one_withdraws_it() {
    let now = Instant::now();
    let mut refresh = settled(now);
    let (one, two, three) = (refresh.interest(), refresh.interest(), refresh.interest());
    refresh.set_interest(one, [name("a"), name("b")]);
    refresh.set_interest(two, [name("b"), name("c")]);
    let round = refresh.poll_round(now).unwrap();
    assert_eq!(round.scope, some(&["a", "b", "c"]));
    refresh.handle_answer(now, 0.5, true, false);
    assert_eq!(refresh.wanted(name("a")), Wanted::Standing);
    refresh.drop_interest(one);
    assert_eq!(refresh.wanted(name("a")), Wanted::No);
    refresh.set_interest_all(three);
    assert_eq!(refresh.poll_round(now).unwrap().scope, Scope::All);
    assert_eq!(refresh.wanted(name("any")), Wanted::Lately);
    assert_eq!(refresh.wanted(name("c")), Wanted::Standing);
    refresh.handle_answer(now, 0.5, true, false);
    refresh.set_interest(two, [name("z")]);
    assert!(refresh.poll_round(now).is_none(), "every topic is covered");
}

#[test]
fn a_topic_asked_about_once_is_forgotten_in_the_end() {
    let start = Instant::now();
    let mut refresh = settled(start);
    refresh.want(start, &[name("orders")]);
    refresh.poll_round(start).unwrap();
    refresh.handle_answer(start, 0.5, true, false);
    assert_eq!(refresh.wanted(name("orders")), Wanted::Lately);
    let later = start + RECENT;
    assert_eq!(refresh.poll_round(later).unwrap().scope, some(&[]));
    assert_eq!(refresh.wanted(name("orders")), Wanted::No);
}

#[test]
fn failures_are_spaced_out_whatever_is_asked_for_and_end_in_a_new_start() {
    let start = Instant::now();
    let mut now = start;
    let mut refresh = settled(now);
    refresh.suspect();
    now += Duration::from_millis(100);
    let mut rounds = 0;
    let mut rebootstraps = 0;
    while now < start + REBOOTSTRAP + Duration::from_secs(10) {
        refresh.want(now, &[name("orders"), name("new")]);
        if let Some(round) = refresh.poll_round(now) {
            rounds += 1;
            rebootstraps += u32::from(round.rebootstrap);
            assert!(!round.rebootstrap || now >= start + REBOOTSTRAP);
            refresh.handle_failure(now, 0.5);
        }
        now += Duration::from_millis(10);
    }
    assert!((300..330).contains(&rounds), "{rounds}");
    assert!(rebootstraps >= 8, "{rebootstraps}");
    refresh.poll_round(now + Duration::from_secs(1)).unwrap();
    refresh.handle_answer(now, 0.5, true, false);
    assert_eq!(refresh.next_deadline(), Some(now + AGE));
}

#[test]
fn a_broker_that_asks_for_a_new_start_gets_one_after_a_back_off() {
    let now = Instant::now();
    let mut refresh = settled(now);
    refresh.suspect();
    let now = now + Duration::from_secs(1);
    refresh.poll_round(now).unwrap();
    refresh.rebootstrap();
    assert!(refresh.handle_failure(now, 0.5));
    assert!(refresh.poll_round(now).is_none());
    let round = refresh.poll_round(refresh.next_deadline().unwrap()).unwrap();
    assert!(round.rebootstrap);
}

#[test]
fn a_stale_answer_is_followed_by_another_round() {
    let now = Instant::now();
    let mut refresh = Refresh::new(AGE);
    refresh.poll_round(now).unwrap();
    refresh.handle_answer(now, 0.5, true, true);
    assert_eq!(refresh.next_deadline(), Some(now + Duration::from_millis(100)));
}

#[test]
fn the_deadline_is_never_in_the_past_without_a_round_being_due() {
    let mut now = Instant::now();
    let mut refresh = Refresh::new(Duration::from_millis(1));
    for step in 0u32..200 {
        if let Some(_round) = refresh.poll_round(now) {
            if step % 3 == 0 {
                refresh.handle_failure(now, 0.1);
            } else {
                refresh.handle_answer(now, 0.9, step % 2 == 0, step % 5 == 0);
            }
        }
        if step % 7 == 0 {
            refresh.want(now, &[name("orders")]);
            continue;
        }
        let deadline = refresh.next_deadline().unwrap();
        assert!(deadline > now, "step {step}");
        now = deadline;
    }
}
