//! What the types promise at compile time: sendable, shareable, small.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::HashMap;

use kafka_consume::{
    CommittedOffset, Consumer, ConsumerHandle, Error, OwnedRecordStream, Position, Record, RecordStream,
    Records,
};

fn send_and_sync<T: Send + Sync>() {}
fn unpin_and_send<T: Unpin + Send>() {}
fn send<T: Send>(_: &T) {}

#[test]
fn consumers_handles_and_streams_can_be_shared_and_sent() {
    send_and_sync::<Consumer>();
    send_and_sync::<ConsumerHandle>();
    send_and_sync::<Records>();
    send_and_sync::<Record>();
    send_and_sync::<Error>();
    unpin_and_send::<RecordStream<'static>>();
    unpin_and_send::<OwnedRecordStream<Consumer>>();
}

#[test]
fn records_and_errors_stay_small() {
    assert!(size_of::<Record>() <= 136, "{}", size_of::<Record>());
    assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
}

// Never called: it only has to compile.
#[allow(dead_code)]
fn every_future_can_be_sent(consumer: &mut Consumer, handle: &ConsumerHandle) {
    let some = || [("t".to_owned(), 0)];
    send(&consumer.assign(some(), Position::Latest));
    send(&consumer.assign_each([(("t".to_owned(), 0), Position::Latest)]));
    send(&consumer.assign_more([(("t".to_owned(), 0), Position::Latest)]));
    send(&consumer.poll());
    send(&consumer.seek_to_committed());
    send(&consumer.seek_to_beginning(some()));
    send(&consumer.seek_to_end(some()));
    send(&consumer.seek_to_timestamp(some(), 0));
    send(&consumer.commit());
    send(&consumer.commit_offsets(HashMap::<(String, i32), CommittedOffset>::new()));
    send(&consumer.committed());
    send(&consumer.beginning_offsets(some()));
    send(&consumer.end_offsets(some()));
    send(&consumer.offsets_for_times([(("t".to_owned(), 0), 0)]));
    send(&consumer.close());
    send(&handle.commit_offsets(HashMap::<(String, i32), CommittedOffset>::new()));
}
