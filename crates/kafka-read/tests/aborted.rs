//! The aborted filter, by the shapes a log can have around the borders of an answer.
#![allow(clippy::unwrap_used)]

use kafka_read::batch::write::{BatchOptions, BatchWriter, end_marker};
use kafka_read::batch::{AbortedFilter, Control, RawBatch, Verdict, scan};

fn options(producer: i64, offset: i64) -> BatchOptions {
    BatchOptions { base_offset: offset, producer_id: producer, producer_epoch: 0, ..BatchOptions::default() }
}

fn data(producer: i64, offset: i64, transactional: bool) -> RawBatch {
    let mut writer = BatchWriter::new(BatchOptions { transactional, ..options(producer, offset) });
    writer.push(0, None, Some(b"v"), &[]).unwrap();
    scan(writer.finish().unwrap().freeze()).next().unwrap().unwrap()
}

fn marker(producer: i64, offset: i64, control: Control) -> RawBatch {
    let bytes = end_marker(options(producer, offset), control, 3, 0).unwrap();
    scan(bytes.freeze()).next().unwrap().unwrap()
}

/// Offsets of the batches a committed reader gets.
fn delivered(aborted: &[(i64, i64)], log: &[RawBatch]) -> Vec<i64> {
    let mut filter = AbortedFilter::new(aborted.to_vec());
    log.iter()
        .filter(|batch| filter.decide(&batch.header, || batch.control()) == Verdict::Deliver)
        .map(|batch| batch.header.base_offset)
        .collect()
}

#[test]
fn an_aborted_transaction_is_left_out_and_the_next_of_its_producer_is_not() {
    let log = [
        data(7, 0, true),
        data(7, 1, true),
        marker(7, 2, Control::Abort),
        data(7, 3, true),
        marker(7, 4, Control::Commit),
    ];
    assert_eq!(delivered(&[(7, 0)], &log), [3]);
    assert_eq!(delivered(&[], &log), [0, 1, 3]);
}

#[test]
fn interleaved_producers_are_told_apart() {
    let log = [
        data(7, 0, true),
        data(8, 1, true),
        data(7, 2, true),
        marker(8, 3, Control::Abort),
        data(8, 4, true),
        marker(7, 5, Control::Commit),
    ];
    assert_eq!(delivered(&[(8, 1)], &log), [0, 2, 4]);
}

#[test]
fn two_aborted_transactions_of_one_producer_each_end_at_their_own_marker() {
    let log = [
        data(7, 0, true),
        marker(7, 1, Control::Abort),
        data(7, 2, true),
        marker(7, 3, Control::Commit),
        data(7, 4, true),
        marker(7, 5, Control::Abort),
        data(7, 6, true),
    ];
    assert_eq!(delivered(&[(7, 4), (7, 0)], &log), [2, 6]);
}

#[test]
fn a_marker_whose_transaction_began_before_the_answer_is_ignored() {
    let log = [marker(7, 10, Control::Abort), data(7, 11, true), marker(7, 12, Control::Commit)];
    assert_eq!(delivered(&[], &log), [11]);
}

#[test]
fn an_entry_that_begins_beyond_the_answer_or_has_no_marker_does_no_harm() {
    let log = [data(7, 0, true), data(8, 1, true)];
    assert_eq!(delivered(&[(7, 100), (8, 1)], &log), [0]);
}

#[test]
fn what_the_producer_writes_outside_transactions_is_kept() {
    let log = [data(7, 0, true), data(7, 1, false), data(-1, 2, false), marker(7, 3, Control::Abort)];
    assert_eq!(delivered(&[(7, 0)], &log), [1, 2]);
}

#[test]
fn a_marker_that_is_no_abort_does_not_end_an_aborted_transaction() {
    let log = [
        data(7, 0, true),
        marker(7, 1, Control::Unknown),
        data(7, 2, true),
        marker(7, 3, Control::Abort),
        data(7, 4, true),
    ];
    assert_eq!(delivered(&[(7, 0)], &log), [4]);
}

#[test]
fn a_control_batch_emptied_by_compaction_is_no_marker() {
    let empty = BatchWriter::new(BatchOptions { transactional: true, control: true, ..options(7, 1) });
    let empty = scan(empty.finish().unwrap().freeze()).next().unwrap().unwrap();
    assert_eq!(empty.control(), None);
    let log = [data(7, 0, true), empty, data(7, 2, true), marker(7, 3, Control::Abort)];
    assert!(delivered(&[(7, 0)], &log).is_empty());
}

#[test]
fn control_records_are_read_whatever_their_version_and_never_fail() {
    for (key, wanted) in [
        (Some(&[0u8, 0, 0, 0][..]), Control::Abort),
        (Some(&[0, 0, 0, 1]), Control::Commit),
        (Some(&[0, 7, 0, 1, 9, 9]), Control::Commit),
        (Some(&[0xff, 0xff, 0, 0]), Control::Unknown),
        (Some(&[0, 0, 0, 99]), Control::Unknown),
        (Some(&[0, 0]), Control::Unknown),
        (None, Control::Unknown),
    ] {
        let mut writer =
            BatchWriter::new(BatchOptions { transactional: true, control: true, ..options(7, 0) });
        writer.push(0, key, None, &[]).unwrap();
        let batch = scan(writer.finish().unwrap().freeze()).next().unwrap().unwrap();
        assert_eq!(batch.control(), Some(wanted), "{key:?}");
    }
    assert_eq!(data(7, 0, true).control(), None);
}
