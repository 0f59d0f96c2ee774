use super::{Budget, Kind, Queue, Slot};
use crate::position::Pos;

fn skip(seq: u64, end: i64, bytes: usize) -> Slot {
    Slot { seq, answer: 1, bytes, inflated: 0, end, kind: Kind::Skip(Pos::at(end)) }
}

#[test]
fn a_reservation_is_filled_in_its_own_place() {
    let mut queue = Queue::default();
    queue.push_back(skip(1, 10, 5));
    queue.push_back(Slot { seq: 2, answer: 2, bytes: 100, inflated: 0, end: 30, kind: Kind::Reserved });
    queue.push_back(skip(3, 40, 7));
    assert!(queue.fill(2, vec![skip(4, 20, 50), skip(5, 30, 50)]));
    assert_eq!(queue.slots.iter().map(|slot| slot.end).collect::<Vec<_>>(), [10, 20, 30, 40]);
    assert_eq!(queue.bytes, 112);
    assert!(!queue.fill(2, vec![skip(6, 50, 1)]), "a reservation is filled once");
}

#[test]
fn a_cut_drops_what_reaches_past_the_offset() {
    let mut queue = Queue::default();
    for (seq, end) in [(1, 10), (2, 20), (3, 30)] {
        queue.push_back(skip(seq, end, 4));
    }
    assert_eq!(queue.cut(15).len(), 2);
    assert_eq!((queue.slots.len(), queue.bytes), (1, 4));
}

#[test]
fn an_answer_is_charged_whole_until_its_last_slot_is_gone() {
    let mut budget = Budget::new(1_000_000);
    budget.charge(7, 800_000, 700_000);
    assert_eq!(budget.free(), 200_000);
    assert!(!budget.release(7, 500_000, 0));
    assert_eq!(budget.free(), 200_000);
    assert!(budget.release(7, 150_000, 0), "a small rest asks to be copied out");
    assert!(!budget.release(7, 50_000, 0));
    assert_eq!(budget.free(), 1_000_000);
}

#[test]
fn an_answer_without_records_costs_nothing() {
    let mut budget = Budget::new(10);
    budget.charge(1, 100, 0);
    assert!(budget.is_idle());
}
