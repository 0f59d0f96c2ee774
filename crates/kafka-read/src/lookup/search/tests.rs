//! A look-up's open partitions, time and metadata given as arguments.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_meta::{Error, ErrorCode, ErrorKind, TopicName};

use super::{ABSENT_GRACE, Leader, Search};
use crate::lookup::{Ask, Found, Target};

fn topic() -> TopicName {
    TopicName::new("orders")
}

fn search(partitions: &[i32]) -> Search {
    Search::new(partitions.iter().map(|index| (topic(), *index, Target::Latest)).collect()).unwrap()
}

fn found(offset: i64) -> Option<Found> {
    Some(Found { offset, timestamp: -1, leader_epoch: None })
}

/// Asks with every partition led by node `index % 2`.
fn ask(search: &mut Search) -> BTreeMap<i32, Vec<Ask>> {
    search.poll_output(Instant::now(), true, |_, index| Leader::Node(index % 2, Some(4))).unwrap()
}

#[test]
fn each_leader_is_asked_its_part_once() {
    let mut search = search(&[0, 1, 2]);
    let asks = ask(&mut search);
    assert_eq!(asks[&0].iter().map(|ask| ask.partition).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(asks[&1].len(), 1);
    assert_eq!(asks[&1][0].leader_epoch, Some(4));
    assert!(!search.is_waiting() && ask(&mut search).is_empty());
    search.handle_answers(vec![(topic(), 0, Ok(found(7))), (topic(), 2, Ok(None))]).unwrap();
    search.handle_answers(vec![(topic(), 1, Ok(found(0)))]).unwrap();
    assert!(search.is_done());
    let found_map = search.into_found();
    assert_eq!((found_map[&(topic(), 0)], found_map[&(topic(), 2)]), (found(7), None));
}

#[test]
fn passing_codes_wait_for_fresh_metadata_and_only_the_open_partition_is_asked_again() {
    for code in [3, 5, 6, 7, 9, 56, 74, 75, 78, -1] {
        let mut search = search(&[0, 2]);
        ask(&mut search);
        assert!(!search.is_stale());
        let answers = vec![(topic(), 0, Ok(found(7))), (topic(), 2, Err(ErrorCode::from(code)))];
        search.handle_answers(answers).unwrap();
        assert!(search.is_stale() && search.is_waiting(), "{code}");
        let asks = ask(&mut search);
        assert_eq!(asks[&0].iter().map(|ask| ask.partition).collect::<Vec<_>>(), [2], "{code}");
    }
}

#[test]
fn final_codes_end_the_look_up_naming_the_partition() {
    for (code, kind) in
        [(29, ErrorKind::Authorization), (35, ErrorKind::UnsupportedApi), (42, ErrorKind::InvalidRequest)]
    {
        let mut search = search(&[2]);
        ask(&mut search);
        let error = search.handle_answers(vec![(topic(), 2, Err(ErrorCode::from(code)))]).unwrap_err();
        assert_eq!((error.kind(), error.topic(), error.partition()), (kind, Some("orders"), Some(2)));
    }
}

#[test]
fn a_lost_connection_reopens_only_what_was_asked_of_that_node() {
    let mut search = search(&[0, 1]);
    let asks = ask(&mut search);
    search.handle_failure(&asks[&1], Error::new(ErrorKind::Disconnected, "x")).unwrap();
    let again = ask(&mut search);
    assert_eq!(again.keys().copied().collect::<Vec<_>>(), [1]);
    let refused = Error::new(ErrorKind::UnsupportedApi, "x");
    assert_eq!(search.handle_failure(&again[&1], refused).unwrap_err().kind(), ErrorKind::UnsupportedApi);
}

#[test]
fn absence_has_to_be_confirmed_by_fresh_metadata_after_a_grace() {
    let mut search = search(&[0]);
    let start = Instant::now();
    let absent = |_, _| Leader::Absent;
    for _ in 0..3 {
        assert!(
            search.poll_output(start + ABSENT_GRACE * 2, false, absent).is_ok(),
            "an old picture says nothing"
        );
        assert!(search.is_stale());
    }
    assert!(search.poll_output(start, true, absent).is_ok());
    assert!(search.poll_output(start + Duration::from_millis(100), true, absent).is_ok());
    let error = search.poll_output(start + ABSENT_GRACE, true, absent).unwrap_err();
    assert_eq!(
        (error.kind(), error.topic(), error.partition()),
        (ErrorKind::UnknownTopic, Some("orders"), Some(0))
    );
}

#[test]
fn a_topic_that_appears_starts_the_count_of_its_absence_anew() {
    let mut search = search(&[0]);
    let start = Instant::now();
    search.poll_output(start, true, |_, _| Leader::Absent).unwrap();
    search.poll_output(start + ABSENT_GRACE, true, |_, _| Leader::None).unwrap();
    assert!(search.is_waiting() && search.is_stale());
    search.poll_output(start + ABSENT_GRACE * 2, true, |_, _| Leader::Absent).unwrap();
}

#[test]
fn forbidden_topics_are_errors_at_once() {
    let mut search = search(&[0]);
    let leader = |_, _| Leader::Refused(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    let error = search.poll_output(Instant::now(), false, leader).unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Authorization, Some("orders")));
}

#[test]
fn running_out_of_time_names_a_partition_and_the_last_reason() {
    let mut search = search(&[1]);
    ask(&mut search);
    search.handle_answers(vec![(topic(), 1, Err(ErrorCode::OFFSET_NOT_AVAILABLE))]).unwrap();
    let error = search.timed_out();
    assert_eq!((error.kind(), error.partition()), (ErrorKind::Timeout, Some(1)));
    assert!(error.to_string().contains("OFFSET_NOT_AVAILABLE"), "{error}");
}

#[test]
fn a_negative_timestamp_is_not_taken_for_a_sentinel() {
    let error = Search::new(vec![(topic(), 0, Target::Timestamp(-3))]).unwrap_err();
    assert_eq!(
        (error.kind(), error.topic(), error.partition()),
        (ErrorKind::InvalidRequest, Some("orders"), Some(0))
    );
}
