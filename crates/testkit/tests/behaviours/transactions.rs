//! What a reader sees of transactions.

use std::time::Duration;

use kafka_read::batch::{Control, scan};
use tokio::time::Instant;

use super::raw::{Ask, RawBroker, Txn, batch, list, parts, produce, size};
use super::sessions::setup;

pub async fn an_open_transaction_holds_the_last_stable_offset(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut txn = Txn::begin(&s.view).await;
    txn.add(&s.topic, 1).await;
    txn.produce(&mut s.leader, &s.topic, 1, &[b"a", b"b", b"c"]).await;
    for offset in [0, 2] {
        let ask = Ask::new(16).committed().wait(200).add(&s.topic, s.id, 1, offset);
        let answer = ask.of(&mut s.leader).await;
        let part = parts(&answer)[0];
        assert_eq!((part.error_code, size(part)), (0, 0));
        assert_eq!((part.high_watermark, part.last_stable_offset), (3, 0));
    }
    let all = Ask::new(16).add(&s.topic, s.id, 1, 0).of(&mut s.leader).await;
    assert!(size(parts(&all)[0]) > 0);
    assert_eq!(parts(&all)[0].aborted_transactions, None);
    txn.end(true).await;
    s.view.settled(&s.topic, 1, 4).await;
    let done = Ask::new(16).committed().add(&s.topic, s.id, 1, 0).of(&mut s.leader).await;
    let part = parts(&done)[0];
    assert_eq!((part.high_watermark, part.last_stable_offset), (4, 4));
    assert_eq!(part.aborted_transactions, Some(Vec::new()));
    let batches: Vec<_> = scan(part.records.clone().unwrap()).map(Result::unwrap).collect();
    let marker = batches.last().unwrap();
    assert!(marker.header.is_control());
    assert_eq!(marker.control(), Some(Control::Commit));
    assert_eq!((marker.bytes.len(), marker.header.base_offset), (78, 3));
}

pub async fn a_committed_reader_waits_above_the_last_stable_offset(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let mut txn = Txn::begin(&s.view).await;
    txn.add(&s.topic, 1).await;
    txn.produce(&mut s.leader, &s.topic, 1, &[b"a", b"b", b"c"]).await;
    for offset in [0, 2] {
        let asked = Instant::now();
        Ask::new(16).committed().wait(200).add(&s.topic, s.id, 1, offset).of(&mut s.leader).await;
        assert!(asked.elapsed() >= Duration::from_millis(190), "from {offset}: {:?}", asked.elapsed());
    }
    txn.end(false).await;
}

pub async fn an_aborted_transaction_is_delivered_and_named(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    produce(&mut s.leader, &s.topic, 1, batch(&[b"plain"])).await;
    let mut txn = Txn::begin(&s.view).await;
    txn.add(&s.topic, 1).await;
    txn.produce(&mut s.leader, &s.topic, 1, &[b"a", b"b"]).await;
    // A batch of nobody's transaction between the data and its marker.
    produce(&mut s.leader, &s.topic, 1, batch(&[b"between"])).await;
    let producer = txn.producer_id;
    txn.end(false).await;
    s.view.settled(&s.topic, 1, 5).await;
    for (offset, named) in [(0, 1), (1, 1), (4, 1), (5, 0)] {
        let answer = Ask::new(16).committed().add(&s.topic, s.id, 1, offset).of(&mut s.leader).await;
        let part = parts(&answer)[0];
        let aborted = part.aborted_transactions.clone().unwrap();
        assert_eq!(aborted.len(), named, "from offset {offset}");
        for one in aborted {
            assert_eq!((one.producer_id.0, one.first_offset), (producer, 1));
        }
    }
    let answer = Ask::new(16).committed().add(&s.topic, s.id, 1, 0).of(&mut s.leader).await;
    let batches: Vec<_> = scan(parts(&answer)[0].records.clone().unwrap()).map(Result::unwrap).collect();
    assert_eq!(batches.len(), 4);
    assert_eq!(batches[3].control(), Some(Control::Abort));
    assert_eq!(list(&mut s.leader, 7, &s.topic, 1, -1, true).await.offset, 5);
}
