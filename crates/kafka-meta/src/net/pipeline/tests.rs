//! Requests and answers of one connection, with time as an argument.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::{AnswerShape, Fault, IDLE, Pipeline, Reply, Submission};

#[derive(Debug, Clone)]
struct Caller(&'static str, Rc<Cell<bool>>);

impl Reply for Caller {
    fn is_abandoned(&self) -> bool {
        self.1.get()
    }

    fn sent(self) {
        self.1.set(true);
    }
}

const PATIENCE: Duration = Duration::from_secs(30);

fn request(name: &'static str, shape: AnswerShape) -> (Submission<Caller>, Rc<Cell<bool>>) {
    let gone = Rc::new(Cell::new(false));
    let frame = BytesMut::from(&[0, 0, 0, 8, 0, 3, 0, 1, 0, 0, 0, 0][..]);
    (Submission { frame, shape, patience: PATIENCE, reply: Caller(name, gone.clone()) }, gone)
}

fn plain(name: &'static str) -> Submission<Caller> {
    request(name, AnswerShape::default()).0
}

fn correlation(frame: &Bytes) -> i32 {
    i32::from_be_bytes(frame[8..12].try_into().unwrap())
}

fn answer(correlation: i32, rest: &[u8]) -> Bytes {
    [&correlation.to_be_bytes()[..], rest].concat().into()
}

#[test]
fn answers_go_to_their_requests_in_order() {
    let now = Instant::now();
    let mut pipeline = Pipeline::new(now);
    pipeline.submit(now, plain("a"));
    pipeline.submit(now, plain("b"));
    let (a, b) = (pipeline.poll_frame(now).unwrap(), pipeline.poll_frame(now).unwrap());
    assert!(pipeline.poll_frame(now).is_none());
    assert_ne!(correlation(&a), correlation(&b));
    let (reply, body) = pipeline.handle_frame(now, answer(correlation(&a), b"A")).unwrap();
    assert_eq!((reply.0, &body[..]), ("a", &b"A"[..]));
    let (reply, body) = pipeline.handle_frame(now, answer(correlation(&b), b"B")).unwrap();
    assert_eq!((reply.0, &body[..]), ("b", &b"B"[..]));
}

#[test]
fn a_request_without_an_answer_is_over_when_it_goes_out() {
    let now = Instant::now();
    let mut pipeline = Pipeline::new(now);
    let (silent, sent) = request("silent", AnswerShape { absent: true, ..AnswerShape::default() });
    pipeline.submit(now, silent);
    pipeline.submit(now, plain("b"));
    pipeline.poll_frame(now).unwrap();
    assert!(sent.get());
    let b = pipeline.poll_frame(now).unwrap();
    let (reply, _) = pipeline.handle_frame(now, answer(correlation(&b), b"B")).unwrap();
    assert_eq!(reply.0, "b");
}

#[test]
fn an_answer_out_of_step_or_unasked_or_cut_short_ends_the_connection() {
    let now = Instant::now();
    let mut pipeline: Pipeline<Caller> = Pipeline::new(now);
    assert_eq!(pipeline.handle_frame(now, answer(1, b"")).unwrap_err(), Fault::Unasked);
    pipeline.submit(now, plain("a"));
    pipeline.submit(now, plain("b"));
    let first = correlation(&pipeline.poll_frame(now).unwrap());
    let second = correlation(&pipeline.poll_frame(now).unwrap());
    let fault = pipeline.handle_frame(now, answer(second, b"")).unwrap_err();
    assert_eq!(fault, Fault::OutOfStep { expected: first, found: second });
    assert_eq!(pipeline.handle_frame(now, Bytes::from_static(b"abc")).unwrap_err(), Fault::Malformed);
    assert_eq!(pipeline.into_replies().map(|caller| caller.0).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_header_with_tagged_fields_is_stripped_and_one_that_lies_is_refused() {
    let now = Instant::now();
    let shape = AnswerShape { tagged_header: true, throttles: false, absent: false };
    let mut pipeline = Pipeline::new(now);
    pipeline.submit(now, request("a", shape).0);
    let id = correlation(&pipeline.poll_frame(now).unwrap());
    let (_, body) = pipeline.handle_frame(now, answer(id, &[1, 5, 2, 9, 9, b'B'])).unwrap();
    assert_eq!(&body[..], b"B");
    pipeline.submit(now, request("b", shape).0);
    let id = correlation(&pipeline.poll_frame(now).unwrap());
    let fault = pipeline.handle_frame(now, answer(id, &[1, 5, 0xff, 0xff, 0xff, 0xff, 0x0f])).unwrap_err();
    assert_eq!(fault, Fault::Malformed);
}

#[test]
fn an_abandoned_request_is_never_sent_and_one_in_flight_keeps_its_place() {
    let now = Instant::now();
    let mut pipeline = Pipeline::new(now);
    let (a, a_gone) = request("a", AnswerShape::default());
    let (b, b_gone) = request("b", AnswerShape::default());
    pipeline.submit(now, a);
    pipeline.submit(now, b);
    pipeline.submit(now, plain("c"));
    let a = correlation(&pipeline.poll_frame(now).unwrap());
    a_gone.set(true);
    b_gone.set(true);
    let c = correlation(&pipeline.poll_frame(now).unwrap());
    assert_eq!(pipeline.handle_frame(now, answer(a, b"late")).unwrap().0.0, "a");
    assert_eq!(pipeline.handle_frame(now, answer(c, b"")).unwrap().0.0, "c");
}

#[test]
fn the_oldest_request_alone_has_a_time_limit_and_it_starts_when_it_becomes_the_oldest() {
    let start = Instant::now();
    let mut pipeline = Pipeline::new(start);
    pipeline.submit(start, plain("a"));
    pipeline.submit(start, plain("b"));
    let a = correlation(&pipeline.poll_frame(start).unwrap());
    pipeline.poll_frame(start).unwrap();
    assert_eq!(pipeline.next_deadline(start), start + PATIENCE);
    let later = start + Duration::from_secs(29);
    assert_eq!(pipeline.handle_time(later), Ok(()));
    pipeline.handle_frame(later, answer(a, b"")).unwrap();
    assert_eq!(pipeline.handle_time(start + PATIENCE), Ok(()));
    assert_eq!(pipeline.next_deadline(later), later + PATIENCE);
    assert_eq!(pipeline.handle_time(later + PATIENCE), Err(Fault::Stalled));
}

#[test]
fn a_throttling_answer_is_delivered_at_once_and_holds_back_what_follows() {
    let now = Instant::now();
    let shape = AnswerShape { tagged_header: false, throttles: true, absent: false };
    let mut pipeline = Pipeline::new(now);
    pipeline.submit(now, request("a", shape).0);
    let a = correlation(&pipeline.poll_frame(now).unwrap());
    pipeline.submit(now, plain("b"));
    pipeline.handle_frame(now, answer(a, &[0, 0, 3, 0xe8, 7])).unwrap();
    assert!(pipeline.poll_frame(now).is_none());
    let over = now + Duration::from_secs(1);
    assert_eq!(pipeline.next_deadline(now), over);
    assert!(pipeline.poll_frame(over - Duration::from_millis(1)).is_none());
    assert!(pipeline.poll_frame(over).is_some());
    // Nothing waits: the deadline is the answer's, not a moment already past.
    assert_eq!(pipeline.next_deadline(over), over + PATIENCE);
}

#[test]
fn a_negative_throttle_time_is_none() {
    let now = Instant::now();
    let mut pipeline = Pipeline::new(now);
    pipeline
        .submit(now, request("a", AnswerShape { tagged_header: false, throttles: true, absent: false }).0);
    let a = correlation(&pipeline.poll_frame(now).unwrap());
    pipeline.submit(now, plain("b"));
    pipeline.handle_frame(now, answer(a, &[0xff; 4])).unwrap();
    assert!(pipeline.poll_frame(now).is_some());
}

#[test]
fn a_connection_nobody_uses_is_given_up_after_a_while() {
    let start = Instant::now();
    let mut pipeline = Pipeline::new(start);
    assert_eq!(pipeline.handle_time(start + IDLE), Err(Fault::Idle));
    let later = start + IDLE / 2;
    pipeline.submit(later, plain("a"));
    let a = correlation(&pipeline.poll_frame(later).unwrap());
    pipeline.handle_frame(later, answer(a, b"")).unwrap();
    assert_eq!(pipeline.handle_time(start + IDLE), Ok(()));
    assert_eq!(pipeline.next_deadline(later), later + IDLE);
}

#[derive(Clone, Debug)]
enum Step {
    Submit { throttles: bool },
    Abandon(usize),
    Write,
    Answer { throttle: i32 },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<bool>().prop_map(|throttles| Step::Submit { throttles }),
        1 => (0usize..20).prop_map(Step::Abandon),
        3 => Just(Step::Write),
        3 => (0i32..300).prop_map(|throttle| Step::Answer { throttle }),
        1 => (0u64..400).prop_map(Step::Wait),
    ]
}

#[derive(Debug)]
struct Numbered(usize, Rc<Cell<bool>>);

impl Reply for Numbered {
    fn is_abandoned(&self) -> bool {
        self.1.get()
    }

    fn sent(self) {
        self.1.set(true);
    }
}

proptest! {
    /// Whatever happens, nobody is forgotten: each request is answered in its turn, or was abandoned before it
    /// was sent, or is told of the end. And time never stands still in front of something to do.
    #[test]
    fn no_request_is_lost_or_answered_twice(steps in proptest::collection::vec(step(), 1..80)) {
        let mut now = Instant::now();
        let mut pipeline = Pipeline::new(now);
        let mut gone: Vec<Rc<Cell<bool>>> = Vec::new();
        let mut on_the_wire = std::collections::VecDeque::new();
        let mut told = Vec::new();
        for step in steps {
            match step {
                Step::Submit { throttles } => {
                    let flag = Rc::new(Cell::new(false));
                    let shape = AnswerShape { tagged_header: false, throttles, absent: false };
                    let reply = Numbered(gone.len(), flag.clone());
                    let frame = BytesMut::zeroed(12);
                    pipeline.submit(now, Submission { frame, shape, patience: PATIENCE, reply });
                    gone.push(flag);
                }
                Step::Abandon(which) => {
                    if let Some(flag) = gone.get(which) {
                        flag.set(true);
                    }
                }
                Step::Write => on_the_wire.extend(pipeline.poll_frame(now).map(|frame| correlation(&frame))),
                Step::Answer { throttle } => {
                    if let Some(id) = on_the_wire.pop_front() {
                        let (reply, _) = pipeline.handle_frame(now, answer(id, &throttle.to_be_bytes())).unwrap();
                        told.push(reply.0);
                    }
                }
                Step::Wait(millis) => now += Duration::from_millis(millis),
            }
            if pipeline.handle_time(now).is_ok() && pipeline.poll_frame(now).map(|frame| {
                on_the_wire.push_back(correlation(&frame));
            }).is_none() {
                prop_assert!(pipeline.next_deadline(now) > now);
            }
        }
        told.extend(pipeline.into_replies().map(|reply| reply.0));
        prop_assert!(told.is_sorted_by(|one, next| one < next), "{told:?}");
        for (number, flag) in gone.iter().enumerate() {
            prop_assert!(flag.get() || told.contains(&number), "{number} of {told:?}");
        }
    }
}
