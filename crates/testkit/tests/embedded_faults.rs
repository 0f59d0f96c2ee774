//! Faults of the embedded cluster, each shown to do what it says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{ApiKey, FetchResponse, MetadataRequest, MetadataResponse};
use testkit::embedded::Embedded;
use tokio::time::Instant;

mod behaviours;
use behaviours::raw::{Ask, Raw, batch, list, name, parts, produce, size};

async fn node(kafka: &Embedded, id: i32) -> Raw {
    Raw::connect(&kafka.connector(), &format!("node-{id}.embedded"), 9092).await.unwrap()
}

fn cluster() -> Embedded {
    let kafka = Embedded::start(2);
    kafka.create_topic("one", 1);
    kafka.create_topic("two", 1);
    for topic in ["one", "two"] {
        kafka.append_records(topic, 0, [("k", "v")]);
    }
    kafka
}

fn ask(kafka: &Embedded) -> Ask {
    Ask::new(16).add("one", kafka.topic_id("one"), 0, 0).add("two", kafka.topic_id("two"), 0, 0)
}

fn metadata() -> MetadataRequest {
    let wanted = MetadataRequestTopic::default().with_name(Some(name("one")));
    MetadataRequest::default().with_topics(Some(vec![wanted]))
}

#[tokio::test(start_paused = true)]
async fn an_error_for_one_topic_leaves_the_other_alone() {
    let kafka = cluster();
    let fault = kafka.fault(ApiKey::Fetch).topic("one").times(2).error(6);
    let mut node = node(&kafka, 1).await;
    for _ in 0..2 {
        let answer = ask(&kafka).of(&mut node).await;
        let parts = parts(&answer);
        assert_eq!((parts[0].error_code, parts[1].error_code), (6, 0));
        assert!(size(parts[1]) > 0);
    }
    assert_eq!(parts(&ask(&kafka).of(&mut node).await)[0].error_code, 0);
    assert_eq!(fault.hits(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_error_is_the_whole_answer() {
    let kafka = cluster();
    kafka.fault(ApiKey::Fetch).error(70);
    let mut node = node(&kafka, 1).await;
    let answer = ask(&kafka).session(0, 0).of(&mut node).await;
    assert_eq!((answer.error_code, answer.session_id, answer.responses.len()), (70, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn skip_and_every_choose_the_requests() {
    let kafka = cluster();
    kafka.fault(ApiKey::ListOffsets).skip(1).every(2).always().error(3);
    let mut node = node(&kafka, 1).await;
    let mut codes = Vec::new();
    for _ in 0..6 {
        codes.push(list(&mut node, 7, "one", 0, -1, false).await.error_code);
    }
    assert_eq!(codes, [0, 3, 0, 3, 0, 3]);
    kafka.clear_faults();
    assert_eq!(list(&mut node, 7, "one", 0, -1, false).await.error_code, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_connection_has_or_has_not_done_its_work() {
    let kafka = cluster();
    kafka.fault(ApiKey::Produce).drop_connection_before();
    kafka.fault(ApiKey::Produce).skip(1).drop_connection_after();
    for end in [1, 2] {
        let mut raw = node(&kafka, 1).await;
        raw.send(9, &behaviours::raw::produce_request("one", 0, batch(&[b"x"]))).await;
        assert!(raw.frame().await.is_err());
        assert_eq!(kafka.log_end("one", 0), end);
    }
    assert_eq!(produce(&mut node(&kafka, 1).await, "one", 0, batch(&[b"x"])).await.base_offset, 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_can_be_cut_in_the_middle() {
    let kafka = cluster();
    kafka.fault(ApiKey::Fetch).cut_answer(30);
    let mut node = node(&kafka, 1).await;
    node.send(16, &ask(&kafka).request).await;
    assert!(node.frame().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn delays_come_before_or_after_the_work() {
    let kafka = cluster();
    let delay = Duration::from_secs(5);
    kafka.fault(ApiKey::Fetch).delay(delay);
    kafka.fault(ApiKey::Fetch).skip(1).delay_answer(delay);
    for (end, sees) in [(2, 2), (3, 2)] {
        let mut raw = node(&kafka, 1).await;
        let asked = Instant::now();
        let request = ask(&kafka);
        let (answer, ()) = tokio::join!(request.of(&mut raw), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            kafka.append_records("one", 0, [("k", "v")]);
        });
        assert!(asked.elapsed() >= delay);
        assert_eq!((kafka.log_end("one", 0), parts(&answer)[0].high_watermark), (end, sees));
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_request_goes_on_when_it_is_released() {
    let kafka = cluster();
    let before = kafka.fault(ApiKey::Produce).hold();
    let mut raw = node(&kafka, 1).await;
    raw.send(9, &behaviours::raw::produce_request("one", 0, batch(&[b"x"]))).await;
    assert!(
        kafka.until(Duration::from_secs(1), |kafka| !kafka.requests_of(ApiKey::Produce).is_empty()).await
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(kafka.log_end("one", 0), 1);
    before.release();
    assert!(raw.frame().await.is_ok());
    assert_eq!(kafka.log_end("one", 0), 2);
    let after = kafka.fault(ApiKey::Produce).hold_answer();
    raw.send(9, &behaviours::raw::produce_request("one", 0, batch(&[b"x"]))).await;
    assert!(kafka.until(Duration::from_secs(1), |kafka| kafka.log_end("one", 0) == 3).await);
    after.remove();
    assert!(raw.frame().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_answer_can_be_changed() {
    let kafka = cluster();
    kafka
        .fault(ApiKey::Fetch)
        .map(|answer: &mut FetchResponse| answer.responses[0].partitions[0].error_code = 29);
    kafka.fault(ApiKey::Metadata).map(|answer: &mut MetadataResponse| answer.topics.clear());
    let mut node = node(&kafka, 1).await;
    assert_eq!(parts(&ask(&kafka).of(&mut node).await)[0].error_code, 29);
    assert!(node.call(12, &metadata()).await.topics.is_empty());
    assert_eq!(node.call(12, &metadata()).await.topics.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_full_fetch_opens_no_session_and_mutes_the_connection() {
    let kafka = cluster();
    let throttle = Duration::from_millis(700);
    kafka.fault(ApiKey::Fetch).throttle(throttle);
    let mut node = node(&kafka, 1).await;
    let asked = Instant::now();
    let answer = ask(&kafka).session(0, 0).of(&mut node).await;
    assert!(asked.elapsed() < throttle, "the answer itself comes at once");
    assert_eq!((answer.error_code, answer.session_id, answer.throttle_time_ms), (0, 0, 700));
    assert!(answer.responses.is_empty());
    assert_eq!(kafka.sessions(1), 0);
    assert_ne!(ask(&kafka).session(0, 0).of(&mut node).await.session_id, 0);
    assert!(asked.elapsed() >= throttle);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_incremental_fetch_uses_up_the_epoch() {
    let kafka = cluster();
    let mut node = node(&kafka, 1).await;
    let id = ask(&kafka).session(0, 0).of(&mut node).await.session_id;
    kafka.fault(ApiKey::Fetch).throttle(Duration::from_millis(100));
    let throttled = Ask::new(16).session(id, 1).of(&mut node).await;
    assert_eq!((throttled.session_id, throttled.error_code, throttled.responses.len()), (id, 0, 0));
    assert_eq!(Ask::new(16).session(id, 1).of(&mut node).await.error_code, 71);
    assert_eq!(parts(&Ask::new(16).session(id, 2).of(&mut node).await).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_fault_keeps_to_its_node_and_client() {
    let kafka = cluster();
    kafka.fault(ApiKey::Metadata).node(2).always().error(-1);
    kafka.fault(ApiKey::Metadata).client_id("victim").always().error(-1);
    let code = |answer: &MetadataResponse| answer.topics[0].error_code;
    assert_eq!(code(&node(&kafka, 1).await.call(12, &metadata()).await), 0);
    assert_eq!(code(&node(&kafka, 2).await.call(12, &metadata()).await), -1);
    let mut victim = node(&kafka, 1).await;
    victim.client_id = "victim".to_owned();
    assert_eq!(code(&victim.call(12, &metadata()).await), -1);
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_a_topic_meets_the_session_that_holds_it_unnamed() {
    let kafka = cluster();
    let mut node = node(&kafka, 1).await;
    let id = ask(&kafka).session(0, 0).of(&mut node).await.session_id;
    let fault = kafka.fault(ApiKey::Fetch).topic("one").error(6);
    let answer = Ask::new(16).session(id, 1).of(&mut node).await;
    assert_eq!(parts(&answer).iter().map(|part| part.error_code).collect::<Vec<_>>(), [6, 0]);
    assert_eq!(fault.hits(), 1);
    assert_eq!(kafka.requests_of(ApiKey::Fetch)[1].topics, ["one", "two"]);
}
