//! Stored, none stored, not known.

use std::time::{Duration, Instant};

use kafka_meta::wire::protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_meta::wire::protocol::messages::{GroupId, OffsetFetchResponse, TopicName as WireName};
use kafka_meta::wire::protocol::protocol::StrBytes;
use kafka_meta::{CommittedOffset, ErrorCode, ErrorKind};

use super::key;
use crate::coordinator::Reply;
use crate::offsets::codes::code_of;
use crate::offsets::fetch::{Until, Wanted};

fn name(text: &'static str) -> WireName {
    WireName(StrBytes::from_static_str(text))
}

fn answer(group_code: i16, parts: &[(i32, i16, i64)]) -> OffsetFetchResponse {
    let parts = parts.iter().map(|(partition, code, offset)| {
        OffsetFetchResponsePartitions::default()
            .with_partition_index(*partition)
            .with_error_code(*code)
            .with_committed_offset(*offset)
            .with_committed_leader_epoch(3)
            .with_metadata(Some(StrBytes::from_static_str("note")))
    });
    let topic =
        OffsetFetchResponseTopics::default().with_name(name("orders")).with_partitions(parts.collect());
    let group = OffsetFetchResponseGroup::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_error_code(group_code)
        .with_topics(vec![topic]);
    OffsetFetchResponse::default().with_groups(vec![group])
}

#[test]
fn stored_and_none_are_results_and_the_rest_is_asked_again() {
    let mut wanted = Wanted::new(vec![key(0), key(1), key(2), key(3)], true, Until::All);
    let now = Instant::now();
    let reply = wanted.handle_answer(now, "g", &answer(0, &[(0, 0, 7), (1, 0, -1), (2, 88, -1)])).unwrap();
    assert!(
        matches!(reply, Reply::Again(error) if code_of(&error) == Some(ErrorCode::UNSTABLE_OFFSET_COMMIT))
    );
    assert_eq!(wanted.open.iter().copied().collect::<Vec<_>>(), [key(2), key(3)]);
    let reply = wanted.handle_answer(now, "g", &answer(0, &[(2, 0, 9)])).unwrap();
    assert!(matches!(reply, Reply::Again(error) if error.partition() == Some(3)), "3 is still missing");
    let reply = wanted.handle_answer(now, "g", &answer(0, &[(3, 0, -1)])).unwrap();
    assert!(matches!(reply, Reply::Done(())));
    let stored = CommittedOffset::new(7).with_leader_epoch(3).with_metadata("note");
    assert_eq!(wanted.found[&key(0)], Some(stored));
    assert_eq!(wanted.found[&key(1)], None);
    assert_eq!(wanted.found[&key(2)].as_ref().unwrap().offset, 9);
    assert_eq!(wanted.found[&key(3)], None);
}

#[test]
fn an_error_of_the_group_never_counts_as_none_stored() {
    for (code, rediscover) in [(14, false), (15, true), (16, true), (7, true)] {
        let mut wanted = Wanted::new(vec![key(0)], true, Until::All);
        let reply = wanted.handle_answer(Instant::now(), "g", &answer(code, &[(0, 0, -1)])).unwrap();
        assert_eq!(matches!(reply, Reply::Rediscover(_)), rediscover, "{code}");
        assert!(!matches!(reply, Reply::Done(())), "{code}");
        assert!(wanted.found.is_empty(), "{code}");
    }
}

#[test]
fn an_answer_without_the_group_is_asked_again() {
    let mut wanted = Wanted::new(vec![key(0)], true, Until::All);
    let reply = wanted.handle_answer(Instant::now(), "other", &answer(0, &[(0, 0, 5)])).unwrap();
    assert!(matches!(reply, Reply::Again(_)) && wanted.found.is_empty());
}

#[test]
fn the_old_shape_of_the_answer_means_the_same() {
    let part = OffsetFetchResponsePartition::default().with_partition_index(0).with_committed_offset(7);
    let topic = OffsetFetchResponseTopic::default().with_name(name("orders")).with_partitions(vec![
        part.clone(),
        part.clone().with_partition_index(1).with_error_code(16).with_committed_offset(-1),
    ]);
    let mut wanted = Wanted::new(vec![key(0), key(1)], true, Until::All);
    let old = OffsetFetchResponse::default().with_topics(vec![topic]);
    let reply = wanted.handle_answer(Instant::now(), "g", &old).unwrap();
    assert!(matches!(reply, Reply::Rediscover(_)));
    assert_eq!(wanted.found[&key(0)], Some(CommittedOffset::new(7)));
    assert!(!wanted.found.contains_key(&key(1)));
}

#[test]
fn a_refused_member_is_fenced_and_the_code_is_kept() {
    for code in [113, 25] {
        let mut wanted = Wanted::new(vec![key(0)], false, Until::All);
        let error = wanted.handle_answer(Instant::now(), "g", &answer(code, &[])).unwrap_err();
        assert_eq!((error.kind(), code_of(&error)), (ErrorKind::Fenced, Some(ErrorCode::from(code))));
    }
}

#[test]
fn forbidden_topics_and_groups_are_errors_and_unknown_topics_after_a_grace() {
    let mut wanted = Wanted::new(vec![key(0)], true, Until::All);
    let start = Instant::now();
    let error = wanted.handle_answer(start, "g", &answer(0, &[(0, 29, -1)])).unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::Authorization, Some("orders")));
    let error = wanted.handle_answer(start, "g", &answer(30, &[])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authorization);
    let unknown = answer(0, &[(0, 3, -1)]);
    assert!(matches!(wanted.handle_answer(start, "g", &unknown), Ok(Reply::Again(_))));
    let error = wanted.handle_answer(start + Duration::from_secs(5), "g", &unknown).unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some("orders")));
}
