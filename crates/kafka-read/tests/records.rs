//! `Records`: exact lengths, splitting anywhere, what is left, and the position after what was yielded.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use bytes::Bytes;
use kafka_meta::TopicName;
use kafka_read::batch::write::{BatchOptions, BatchWriter};
use kafka_read::batch::{Limits, RecordSet, scan};
use kafka_read::{Record, Records, Slice};

/// A batch of `count` records, each second offset left out, of leader epoch 4.
fn set(base_offset: i64, count: i32) -> RecordSet {
    let options = BatchOptions { base_offset, leader_epoch: 4, ..BatchOptions::default() };
    let mut writer = BatchWriter::new(options);
    for index in 0..count {
        let value = format!("value of {index}");
        let headers: [(&[u8], Option<&[u8]>); 1] = [(b"h", Some(b"1"))];
        let headers = if index % 3 == 0 { &headers[..] } else { &[] };
        writer
            .push_at(index * 2, 1_000 + i64::from(index), Some(b"k"), Some(value.as_bytes()), headers)
            .unwrap();
    }
    let batch = scan(writer.finish().unwrap().freeze()).next().unwrap().unwrap();
    batch.open(&Limits::default(), 0).unwrap()
}

fn slice(topic: &str, partition: i32, base_offset: i64, count: i32) -> Slice {
    let set = set(base_offset, count);
    Slice {
        topic: TopicName::new(topic),
        partition,
        ticket: 9,
        previous: base_offset,
        // A marker follows the batch.
        next: base_offset + i64::from(count) * 2 + 1,
        next_epoch: Some(5),
        set,
        high_watermark: 900,
        last_stable_offset: 800,
        log_start_offset: 1,
    }
}

fn records() -> Records {
    Records::from_slices(vec![
        slice("a", 0, 10, 3),
        slice("b", 1, 0, 300),
        slice("a", 0, 40, 1),
        slice("a", 2, 7, 2),
    ])
}

fn places(records: &Records) -> Vec<(String, i32, i64)> {
    records.iter().map(|record| (record.topic.to_string(), record.partition, record.offset)).collect()
}

#[test]
fn borrowed_and_owned_iteration_give_the_same_records() {
    let records = records();
    assert_eq!(records.len(), 306);
    assert_eq!(records.iter().len(), 306);
    let borrowed: Vec<Record> = records.iter().map(|record| record.to_record()).collect();
    let owned: Vec<Record> = records.clone().into_iter().collect();
    assert_eq!(borrowed, owned);
    assert_eq!(owned.len(), 306);
    assert_eq!(owned[0].leader_epoch, Some(4));
    assert_eq!(owned[4].value.as_deref(), Some(&b"value of 1"[..]));
    assert_eq!(owned[3].headers.len(), 1);
    assert!(owned[4].headers.is_empty());
}

#[test]
fn splitting_anywhere_loses_and_repeats_nothing() {
    let all = places(&records());
    for at in 0..=records().len() + 1 {
        let mut front = records();
        let back = front.split_off(at);
        assert_eq!(front.len(), at.min(306));
        assert_eq!(front.len() + back.len(), 306);
        assert_eq!([places(&front), places(&back)].concat(), all);
        let next = front.into_slices().last().map(|slice| (slice.next, slice.next_epoch));
        match at {
            // Inside a batch: the offset after the last record kept, and the batch's epoch.
            2 => assert_eq!(next, Some((13, Some(4)))),
            // At its end: beyond the marker.
            3 => assert_eq!(next, Some((17, Some(5)))),
            _ => {}
        }
    }
}

#[test]
fn a_set_split_again_and_again_keeps_its_marks_right() {
    for step in [1, 7, 127, 128, 129, 255, 256, 300] {
        let mut rest = set(0, 1_000);
        let mut offsets = Vec::new();
        while !rest.is_empty() {
            assert_eq!(rest.first_offset(), Some(i64::try_from(offsets.len()).unwrap() * 2));
            let front = rest.split_to(step);
            assert_eq!(front.len(), front.iter().count());
            assert_eq!(front.last_offset(), front.iter().map(|record| record.offset).last());
            offsets.extend(front.iter().map(|record| record.offset));
        }
        assert!(offsets.iter().copied().eq((0..1_000).map(|index| index * 2)), "step {step}");
    }
}

#[test]
fn what_was_not_yielded_can_be_had_back() {
    let all = places(&records());
    for taken in 0..=306 {
        let mut iter = records().into_iter();
        for _ in 0..taken {
            iter.next().unwrap();
        }
        assert_eq!(iter.len(), 306 - taken);
        let rest = iter.rest();
        assert_eq!(rest.len(), 306 - taken);
        assert_eq!(places(&rest), all[taken..]);
    }
}

#[test]
fn the_position_follows_what_was_yielded_and_passes_the_marker_with_the_last_record() {
    let topic = TopicName::new("a");
    let mut iter = records().into_iter();
    assert_eq!(iter.position(), None);
    iter.next();
    assert_eq!(iter.position(), Some((topic, 0, 9, 11)));
    iter.next();
    iter.next();
    assert_eq!(iter.position(), Some((topic, 0, 9, 17)));
    iter.next();
    assert_eq!(iter.position(), Some((TopicName::new("b"), 1, 9, 1)));
    let mut iter = records().into_iter();
    assert_eq!(iter.by_ref().count(), 306);
    assert_eq!(iter.position(), Some((topic, 2, 9, 12)));
}

#[test]
fn partitions_gather_their_slices_and_tell_the_newest_watermarks() {
    let records = records();
    let seen: Vec<_> = records
        .partitions()
        .map(|part| {
            (part.topic().to_string(), part.partition(), part.len(), part.iter().count(), part.next_offset())
        })
        .collect();
    let wanted = [("a", 0, 4, 4, 43), ("b", 1, 300, 300, 601), ("a", 2, 2, 2, 12)];
    let wanted =
        wanted.map(|(topic, partition, len, count, next)| (topic.to_owned(), partition, len, count, next));
    assert_eq!(seen, wanted);
    let first = records.partitions().next().unwrap();
    assert_eq!((first.high_watermark(), first.last_stable_offset(), first.log_start_offset()), (900, 800, 1));
    let offsets: Vec<_> = first.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [10, 12, 14, 40]);
}

#[test]
fn slices_without_records_are_dropped() {
    let mut empty = slice("a", 0, 0, 2);
    let _ = empty.split_to(2);
    let records = Records::from_slices(vec![empty, slice("a", 0, 4, 1)]);
    assert_eq!(records.len(), 1);
    assert_eq!(records.into_slices().len(), 1);
    assert!(Records::default().is_empty());
    assert!(Records::default().into_iter().rest().is_empty());
}

#[test]
fn a_tombstone_is_not_an_empty_value() {
    let mut writer = BatchWriter::new(BatchOptions::default());
    writer.push(0, Some(b""), None, &[]).unwrap();
    writer.push(0, None, Some(b""), &[]).unwrap();
    let batch = scan(writer.finish().unwrap().freeze()).next().unwrap().unwrap();
    let set = batch.open(&Limits::default(), 0).unwrap();
    let records = Records::from_slices(vec![Slice { set, ..slice("a", 0, 0, 1) }]);
    let owned: Vec<_> = records.into_iter().collect();
    assert_eq!((owned[0].key.clone(), owned[0].value.clone()), (Some(Bytes::new()), None));
    assert_eq!((owned[1].key.clone(), owned[1].value.clone()), (None, Some(Bytes::new())));
}

#[test]
fn records_and_their_iterators_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<Records>();
    crosses::<kafka_read::IntoIter>();
    crosses::<kafka_read::Iter<'_>>();
    crosses::<kafka_read::RecordRef<'_>>();
}

#[test]
fn what_is_shown_for_debugging_holds_no_payload() {
    let text = format!("{:?} {:?}", records(), records().into_iter());
    assert!(!text.contains("value of"), "{text}");
    assert!(text.contains("len: 300"), "{text}");
}
