//! The Java suites' transactions, as a reader sees them: TransactionsTest.
//!
//! What is shared with its neighbours is in `real_java_cases.rs`.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn java_e01_e02_committed_readers_see_what_is_decided() {
    let kafka = cluster!();
    kafka.ready_for_transactions().await.unwrap();
    let mut writer = topic(kafka, "e01").await;
    let mut txn = Transactions::init(&kafka.bootstrap(), "e01").await.unwrap();
    let mark = |status: &str| Message::value("v").header("transactionStatus", status);
    txn.send("e01", 0, [mark("aborted"), mark("aborted")]).await.unwrap();
    txn.abort().await.unwrap();
    txn.send("e01", 0, [mark("committed"), mark("committed")]).await.unwrap();
    txn.commit().await.unwrap();
    let committed = ConsumerConfig::new();
    let mut consumer = assigned(kafka, "e01", Position::Earliest, committed.clone()).await;
    for record in read_some(&mut consumer, 2).await {
        assert_eq!(
            record.headers.find("transactionStatus").unwrap().value.as_deref(),
            Some(&b"committed"[..])
        );
    }
    let all = ConsumerConfig::new().visibility(Visibility::All);
    let mut everything = assigned(kafka, "e01", Position::Earliest, all).await;
    assert_eq!(read_some(&mut everything, 4).await.len(), 4);

    // Undecided: later records wait behind it, and look-ups answer as if nothing came after.
    let soon = wall() + 600_000;
    let open = txn.send("e01", 0, [Message::value("open").at(soon)]).await.unwrap();
    writer.send("e01", 0, [Message::value("behind").at(soon + 1)]).await.unwrap();
    assert_eq!(consumer.end_offsets(one("e01", 0)).await.unwrap()[&key("e01")], open);
    let ask = [(key("e01"), soon)];
    assert_eq!(consumer.offsets_for_times(ask.clone()).await.unwrap()[&key("e01")], None);
    poll_until(&mut consumer, "the end", |consumer| consumer.position("e01", 0) == Some(open)).await;
    stay_empty(&mut consumer, Duration::from_millis(700)).await;
    consumer.seek_to_end(one("e01", 0)).await.unwrap();
    assert_eq!(consumer.position("e01", 0), Some(open));
    txn.commit().await.unwrap();
    assert_eq!(offsets(&read_some(&mut consumer, 2).await), [open, open + 1]);
    let found = consumer.offsets_for_times(ask).await.unwrap();
    assert_eq!(found[&key("e01")], Some((open, soon)));
}

#[tokio::test(flavor = "multi_thread")]
async fn java_e03_a_waiting_fetch_learns_of_aborted_data() {
    let kafka = cluster!();
    kafka.ready_for_transactions().await.unwrap();
    topic(kafka, "e03").await;
    let mut txn = Transactions::init(&kafka.bootstrap(), "e03").await.unwrap();
    let config = ConsumerConfig::new().min_bytes(100_000).partition_max_bytes(200_000);
    let mut consumer = assigned(kafka, "e03", Position::Earliest, config).await;
    // The fetch is at the broker by now, or will be: it waits for more bytes than there are.
    assert!(consumer.poll().await.unwrap().is_empty());
    txn.send("e03", 0, [Message::value("aborted")]).await.unwrap();
    txn.abort().await.unwrap();
    txn.send("e03", 0, [Message::value("committed"), Message::value("committed")]).await.unwrap();
    txn.commit().await.unwrap();
    for record in read_some(&mut consumer, 2).await {
        assert_eq!(record.value.as_deref(), Some(&b"committed"[..]));
    }
    poll_until(&mut consumer, "the end", |consumer| consumer.position("e03", 0) == Some(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn java_e14_committed_waits_for_offsets_in_open_transactions() {
    let kafka = cluster!();
    kafka.ready_for_transactions().await.unwrap();
    topic(kafka, "e14").await;
    let mut txn = Transactions::init(&kafka.bootstrap(), "e14").await.unwrap();
    let config = ConsumerConfig::new().group_id("e14").api_timeout_ms(2_000);
    let hasty = assigned(kafka, "e14", Position::Earliest, config).await;
    let config = ConsumerConfig::new().group_id("e14");
    let patient = assigned(kafka, "e14", Position::Earliest, config).await;
    txn.send_offsets("e14", &[("e14", 0, 7)]).await.unwrap();
    let error = hasty.committed().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let (stored, ()) = tokio::join!(patient.committed(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        txn.commit().await.unwrap();
    });
    assert_eq!(stored.unwrap()[&key("e14")].offset, 7);
}
