//! What a transactional producer says on the wire, and what it tells its callers when the wire is in trouble.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod eos_support;

use std::time::Duration;

use eos_support::cases::read;
use eos_support::worker::describe;
use futures::FutureExt;
use futures::future::join_all;
use kafka_consume::{Cluster, GroupMetadata, Visibility};
use kafka_produce::{CommittedOffset, ErrorKind, Positions, Producer, ProducerConfig, ProducerRecord};
use kafka_protocol::messages::ApiKey;
use testkit::embedded::Embedded;

const ID: &str = "id";
const LIMIT: Duration = Duration::from_secs(60);

struct Bench {
    kafka: Embedded,
    cluster: Cluster,
    producer: Producer,
}

/// One node, a topic of twelve partitions, a producer.
async fn bench_with(version: i16, config: ProducerConfig) -> Bench {
    let kafka = Embedded::start(1);
    kafka.set_transaction_version(Some(version));
    kafka.create_topic("t", 12);
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    let producer = Producer::transactional(cluster.clone(), config, ID).await.unwrap();
    Bench { kafka, cluster, producer }
}

async fn bench(version: i16) -> Bench {
    bench_with(version, ProducerConfig::new().max_block_ms(20_000)).await
}

impl Bench {
    async fn send(&self, value: &str) -> kafka_produce::Result<()> {
        self.producer.send(ProducerRecord::new("t").partition(0).value(value.to_owned())).await.map(drop)
    }

    async fn offsets(&self, offset: i64) -> kafka_produce::Result<()> {
        let group = GroupMetadata::anonymous("g").unwrap();
        self.producer.send_offsets_to_transaction(positions(offset), &group).await
    }

    async fn committed(&self) -> Vec<String> {
        read(&self.cluster, "t", Visibility::CommittedOnly).await
    }

    fn versions(&self, api: ApiKey) -> Vec<i16> {
        self.kafka.requests_of(api).iter().map(|seen| seen.version).collect()
    }
}

fn positions(offset: i64) -> Positions {
    [(("t".to_owned(), 0), CommittedOffset::new(offset))].into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn the_finalized_feature_decides_how_a_transaction_is_spoken() {
    for (version, produce, offsets, end) in [(1, 11, 4, 4), (2, 12, 5, 5)] {
        let bench = bench(version).await;
        bench.kafka.clear_requests();
        for round in 0..3 {
            bench.producer.begin_transaction().await.unwrap();
            bench.send("x").await.unwrap();
            bench.offsets(round).await.unwrap();
            bench.producer.commit_transaction().await.unwrap();
        }
        let old = if version == 1 { 3 } else { 0 };
        assert_eq!(bench.kafka.count(ApiKey::AddPartitionsToTxn), old, "version {version}");
        assert_eq!(bench.kafka.count(ApiKey::AddOffsetsToTxn), old);
        let produced = bench.versions(ApiKey::Produce);
        assert!(produced.iter().all(|one| if version == 1 { *one <= produce } else { *one >= produce }));
        assert_eq!(bench.versions(ApiKey::TxnOffsetCommit), [offsets; 3]);
        assert_eq!(bench.versions(ApiKey::EndTxn), [end; 3]);
        assert_eq!(bench.kafka.count(ApiKey::InitProducerId), 0, "no identity is asked for in between");
        assert_eq!(bench.committed().await.len(), 3);
        assert_eq!(bench.kafka.committed("g", "t", 0), Some(2));
    }
}

#[tokio::test(start_paused = true)]
async fn beginning_is_local_and_an_empty_transaction_is_nobodys_business() {
    for version in [1, 2] {
        let bench = bench(version).await;
        bench.kafka.clear_requests();
        bench.producer.begin_transaction().await.unwrap();
        let nothing = Positions::new();
        let group = GroupMetadata::anonymous("g").unwrap();
        bench.producer.send_offsets_to_transaction(nothing, &group).await.unwrap();
        bench.producer.commit_transaction().await.unwrap();
        bench.producer.begin_transaction().await.unwrap();
        bench.producer.abort_transaction().await.unwrap();
        let about = |api: ApiKey| bench.kafka.count(api);
        let asked = [ApiKey::EndTxn, ApiKey::AddPartitionsToTxn, ApiKey::InitProducerId].map(about);
        assert_eq!(asked, [0, 0, 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_an_empty_transaction_wakes_its_caller() {
    let bench = bench(2).await;
    // Caller and task race for the end, which no answer of a broker announces.
    let rounds = tokio::time::timeout(Duration::from_secs(15), async {
        for round in 0..2_000 {
            bench.producer.begin_transaction().await.unwrap();
            match round % 2 {
                0 => bench.producer.abort_transaction().await.unwrap(),
                _ => bench.producer.commit_transaction().await.unwrap(),
            }
        }
    });
    rounds.await.expect("no call waits for its deadline");
}

#[tokio::test(start_paused = true)]
async fn partitions_of_one_moment_are_added_together() {
    let bench = bench(1).await;
    bench.producer.begin_transaction().await.unwrap();
    let sends = (0..12).map(|at| bench.producer.send(ProducerRecord::new("t").partition(at).value("x")));
    for sent in join_all(sends).await {
        sent.unwrap();
    }
    assert!(bench.kafka.count(ApiKey::AddPartitionsToTxn) <= 3);
    bench.producer.commit_transaction().await.unwrap();
    assert_eq!(bench.committed().await.len(), 12);
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lost {
    Request,
    Answer,
    /// The connection is lost, and the request is carried out later.
    Late,
}

/// One transaction: every other one is aborted.
async fn round(bench: &Bench, number: i64) -> kafka_produce::Result<()> {
    bench.producer.begin_transaction().await?;
    bench.send(&number.to_string()).await?;
    bench.offsets(number).await?;
    if number % 2 == 0 {
        bench.producer.commit_transaction().await
    } else {
        bench.producer.abort_transaction().await
    }
}

/// Four transactions, with two requests of this kind lost in each; how often the producer had to be replaced.
async fn rounds(version: i16, api: ApiKey, lost: Lost, slow_markers: bool) -> usize {
    let what = format!("version {version}, {api:?}, {lost:?}, slow markers: {slow_markers}");
    let mut bench = bench(version).await;
    if slow_markers {
        // 51 until they are written.
        bench.kafka.delay_markers(Duration::from_millis(300));
    }
    let mut replaced = 0;
    for number in 0..4 {
        let fault = bench.kafka.fault(api).times(2);
        let _fault = match lost {
            Lost::Request => fault.drop_connection_before(),
            Lost::Answer => fault.drop_connection_after(),
            // When the next transaction may be open.
            Lost::Late => fault.arrive_late(Duration::from_millis(650)),
        };
        while let Err(error) = round(&bench, number).await {
            assert!(error.is_fatal(), "{what}: {error}");
            replaced += 1;
            let config = ProducerConfig::new();
            bench.producer = Producer::transactional(bench.cluster.clone(), config, ID).await.unwrap();
        }
        bench.kafka.clear_faults();
    }
    assert_eq!(bench.committed().await, ["0", "2"], "{what}");
    assert_eq!(bench.kafka.committed("g", "t", 0), Some(2), "{what}");
    replaced
}

#[tokio::test(start_paused = true)]
async fn lost_requests_and_lost_answers_change_nothing() {
    let apis = [
        ApiKey::Produce,
        ApiKey::AddPartitionsToTxn,
        ApiKey::AddOffsetsToTxn,
        ApiKey::TxnOffsetCommit,
        ApiKey::EndTxn,
        ApiKey::InitProducerId,
    ];
    for version in [1, 2] {
        for api in apis {
            for lost in [Lost::Request, Lost::Answer, Lost::Late] {
                for slow_markers in [true, false] {
                    let replaced = rounds(version, api, lost, slow_markers).await;
                    // Under version 1 one that comes after the end opens a transaction nobody knows of. What
                    // raises the epoch then aborts it, and the coordinator fences its producer: brokers to 4.0.
                    let opens = [ApiKey::AddPartitionsToTxn, ApiKey::AddOffsetsToTxn, ApiKey::InitProducerId];
                    let may_be = version == 1 && lost == Lost::Late && opens.contains(&api);
                    assert!(replaced == 0 || may_be, "{version} {api:?} {lost:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn coordinators_that_load_move_or_are_busy_are_asked_again() {
    for version in [1, 2] {
        for code in [14, 15, 16, 51] {
            let bench = bench(version).await;
            for api in
                [ApiKey::AddPartitionsToTxn, ApiKey::AddOffsetsToTxn, ApiKey::TxnOffsetCommit, ApiKey::EndTxn]
            {
                bench.kafka.fault(api).times(3).error(code);
            }
            bench.producer.begin_transaction().await.unwrap();
            bench.send("x").await.unwrap();
            bench.offsets(7).await.unwrap();
            bench.producer.commit_transaction().await.unwrap();
            assert_eq!(bench.committed().await, ["x"], "{version} {code}");
            assert_eq!(bench.kafka.committed("g", "t", 0), Some(7));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_lost_before_the_commit_makes_the_commit_fail() {
    for version in [1, 2] {
        let bench = bench(version).await;
        bench.producer.begin_transaction().await.unwrap();
        bench.send("good").await.unwrap();
        bench.kafka.fault(ApiKey::Produce).times(1).error(87);
        let lost = bench.send("bad").await.unwrap_err();
        assert_eq!(describe(&lost), "abort", "{lost}");
        // The flush finds nothing outstanding any more.
        let error = bench.producer.commit_transaction().await.unwrap_err();
        assert_eq!(describe(&error), "abort", "{error}");
        assert_eq!((error.topic(), error.partition()), (Some("t"), Some(0)));
        assert_eq!(describe(&bench.send("later").await.unwrap_err()), "abort");
        assert_eq!(describe(&bench.offsets(1).await.unwrap_err()), "abort");
        assert_eq!(describe(&bench.producer.begin_transaction().await.unwrap_err()), "abort");
        bench.producer.abort_transaction().await.unwrap();
        bench.producer.begin_transaction().await.unwrap();
        bench.send("next").await.unwrap();
        bench.producer.commit_transaction().await.unwrap();
        assert_eq!(bench.committed().await, ["next"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_refused_unsent_makes_the_commit_fail_as_well() {
    let bench = bench(2).await;
    bench.producer.begin_transaction().await.unwrap();
    bench.send("good").await.unwrap();
    let refused = bench.send(&"x".repeat(2_000_000)).await.unwrap_err();
    assert_eq!((describe(&refused), refused.kind()), ("abort", ErrorKind::BatchTooLarge), "{refused}");
    assert_eq!(describe(&bench.producer.commit_transaction().await.unwrap_err()), "abort");
    bench.producer.abort_transaction().await.unwrap();
    assert!(bench.committed().await.is_empty());
}

#[test]
fn a_commit_goes_on_when_the_runtime_it_began_on_is_gone() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let brokers = runtime();
    let kafka = brokers.block_on(Embedded::tcp(1)).unwrap();
    kafka.create_topic("t", 1);
    let first = runtime();
    let (cluster, producer) = first.block_on(async {
        let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
        let config = ProducerConfig::new();
        let producer = Producer::transactional(cluster.clone(), config, ID).await.unwrap();
        producer.begin_transaction().await.unwrap();
        producer.send(ProducerRecord::new("t").value("x")).await.unwrap();
        kafka.freeze_node(1);
        let commit = tokio::time::timeout(Duration::from_millis(100), producer.commit_transaction());
        assert!(commit.await.is_err(), "on its way when the runtime ends");
        (cluster, producer)
    });
    first.shutdown_background();
    kafka.thaw_node(1);
    let second = runtime();
    second.block_on(async {
        tokio::time::timeout(Duration::from_secs(50), producer.commit_transaction())
            .await
            .expect("a stall")
            .unwrap();
        assert_eq!(read(&cluster, "t", Visibility::CommittedOnly).await, ["x"]);
    });
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_runs_out_of_time_goes_on_when_it_is_asked_for_again() {
    for version in [1, 2] {
        let bench = bench_with(version, ProducerConfig::new().max_block_ms(2_000)).await;
        bench.producer.begin_transaction().await.unwrap();
        bench.send("x").await.unwrap();
        let held = bench.kafka.fault(ApiKey::EndTxn).hold();
        let error = bench.producer.commit_transaction().await.unwrap_err();
        assert_eq!((describe(&error), error.kind()), ("again", ErrorKind::Timeout), "{error}");
        // An abort cannot take it back any more, and waits.
        let error = bench.producer.abort_transaction().await.unwrap_err();
        assert_eq!((describe(&error), error.kind()), ("again", ErrorKind::Timeout), "{error}");
        held.release();
        bench.producer.commit_transaction().await.unwrap();
        assert_eq!(describe(&bench.producer.commit_transaction().await.unwrap_err()), "caller");
        assert_eq!(bench.committed().await, ["x"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_that_comes_after_the_commit_was_asked_for_says_so() {
    let bench = bench(2).await;
    bench.producer.begin_transaction().await.unwrap();
    bench.send("x").await.unwrap();
    let held = bench.kafka.fault(ApiKey::EndTxn).hold();
    assert!(bench.producer.commit_transaction().now_or_never().is_none());
    assert!(bench.kafka.until(LIMIT, |kafka| kafka.count(ApiKey::EndTxn) == 1).await);
    let abort = tokio::spawn({
        let producer = bench.producer.clone();
        async move { producer.abort_transaction().await }
    });
    tokio::task::yield_now().await;
    held.release();
    let error = abort.await.unwrap().unwrap_err();
    assert_eq!(describe(&error), "caller");
    assert!(error.to_string().contains("committed"), "{error}");
    assert_eq!(bench.committed().await, ["x"]);
    bench.producer.begin_transaction().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_abort_drops_what_was_not_sent_and_waits_for_what_was() {
    for version in [1, 2] {
        let bench = bench(version).await;
        bench.producer.begin_transaction().await.unwrap();
        bench.send("first").await.unwrap();
        let held = bench.kafka.fault(ApiKey::Produce).hold();
        let before = bench.kafka.count(ApiKey::Produce);
        let mut sends: Vec<_> = (0..20).map(|n| Box::pin(bench.producer.send(big(n)))).collect();
        for send in &mut sends {
            assert!(send.as_mut().now_or_never().is_none());
        }
        assert!(bench.kafka.until(LIMIT, |kafka| kafka.count(ApiKey::Produce) > before).await);
        let mut abort = Box::pin(bench.producer.abort_transaction());
        assert!(abort.as_mut().now_or_never().is_none());
        let waits = tokio::time::timeout(Duration::from_secs(2), abort.as_mut()).await;
        assert!(waits.is_err(), "what is on its way could arrive after the end");
        assert_eq!(bench.kafka.count(ApiKey::EndTxn), 0);
        held.release();
        abort.await.unwrap();
        let outcomes = join_all(sends).await;
        assert!(outcomes.iter().any(Result::is_ok), "what was on its way arrived");
        let dropped: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert!(!dropped.is_empty());
        assert!(dropped.iter().all(|error| describe(error) == "abort"), "{dropped:?}");
        bench.producer.begin_transaction().await.unwrap();
        bench.send("next").await.unwrap();
        bench.producer.commit_transaction().await.unwrap();
        assert_eq!(bench.committed().await, ["next"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_does_not_wait_for_a_leader_that_is_away() {
    for version in [1, 2] {
        for frozen in [true, false] {
            let kafka = Embedded::start(2);
            kafka.set_transaction_version(Some(version));
            kafka.create_topic("t", 2);
            kafka.move_coordinator(ID, 2);
            let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
            let config = ProducerConfig::new().request_timeout_ms(5_000);
            let producer = Producer::transactional(cluster.clone(), config, ID).await.unwrap();
            let bench = Bench { kafka, cluster, producer };
            let (leader, _) = bench.kafka.leader("t", 0).unwrap();
            assert_eq!(leader, 1);
            bench.producer.begin_transaction().await.unwrap();
            bench.send("first").await.unwrap();
            if frozen {
                bench.kafka.freeze_node(1);
            } else {
                bench.kafka.kill_node(1);
            }
            let mut send = Box::pin(bench.send("lost"));
            let away = tokio::time::timeout(Duration::from_secs(2), send.as_mut()).await;
            assert!(away.is_err());
            let start = tokio::time::Instant::now();
            bench.producer.abort_transaction().await.unwrap();
            // A request's time at most; the batch would have been tried for two minutes.
            assert!(start.elapsed() < Duration::from_secs(10), "{version} {frozen}: {:?}", start.elapsed());
            assert_eq!(describe(&send.await.unwrap_err()), "abort");
            if frozen {
                bench.kafka.thaw_node(1);
            } else {
                bench.kafka.start_node(1);
            }
            bench.producer.begin_transaction().await.unwrap();
            bench.send("next").await.unwrap();
            bench.producer.commit_transaction().await.unwrap();
            assert_eq!(bench.committed().await, ["next"]);
        }
    }
}

/// A record that fills its batch.
fn big(number: i32) -> ProducerRecord {
    ProducerRecord::new("t").partition(0).value(format!("{number:016384}"))
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_generation_has_passed_is_fenced_and_the_producer_goes_on() {
    for version in [1, 2] {
        let bench = bench(version).await;
        bench.kafka.set_group_live("g", true);
        bench.producer.begin_transaction().await.unwrap();
        bench.send("zombie").await.unwrap();
        let stale = GroupMetadata::member("g".into(), 3, "gone".into(), None);
        let error = bench.producer.send_offsets_to_transaction(positions(1), &stale).await.unwrap_err();
        assert_eq!((describe(&error), error.kind()), ("abort", ErrorKind::Fenced), "{error}");
        assert_eq!((error.topic(), error.partition()), (Some("t"), Some(0)));
        assert_eq!(describe(&bench.producer.commit_transaction().await.unwrap_err()), "abort");
        bench.producer.abort_transaction().await.unwrap();
        bench.producer.begin_transaction().await.unwrap();
        bench.send("next").await.unwrap();
        bench.producer.commit_transaction().await.unwrap();
        assert_eq!(bench.committed().await, ["next"]);
        assert_eq!(bench.kafka.committed("g", "t", 0), None);
    }
}

#[tokio::test(start_paused = true)]
async fn epochs_that_are_used_up_are_followed_by_another_producer_id() {
    for version in [1, 2] {
        let bench = bench(version).await;
        let (first, _) = bench.kafka.transactional_producer(ID).unwrap();
        bench.kafka.set_producer_epoch(ID, i16::MAX - 4);
        let producer =
            Producer::transactional(bench.cluster.clone(), ProducerConfig::new(), ID).await.unwrap();
        let bench = Bench { producer, ..bench };
        for round in 0..6 {
            bench.producer.begin_transaction().await.unwrap();
            bench.send(&round.to_string()).await.unwrap();
            // Under version 1 a lost answer costs an epoch.
            bench.kafka.fault(ApiKey::EndTxn).times(1).drop_connection_after();
            bench.producer.commit_transaction().await.unwrap();
        }
        assert_ne!(bench.kafka.transactional_producer(ID).unwrap().0, first, "version {version}");
        assert_eq!(bench.committed().await, ["0", "1", "2", "3", "4", "5"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_producer_says_nothing_more_and_the_next_one_aborts_what_it_left() {
    for version in [1, 2] {
        let bench = bench(version).await;
        bench.producer.begin_transaction().await.unwrap();
        bench.send("left open").await.unwrap();
        drop(bench.producer);
        assert!(bench.kafka.transaction_is_open(ID));
        assert_eq!(bench.kafka.count(ApiKey::EndTxn), 0);
        let next = Producer::transactional(bench.cluster.clone(), ProducerConfig::new(), ID).await.unwrap();
        assert!(!bench.kafka.transaction_is_open(ID));
        next.begin_transaction().await.unwrap();
        next.send(ProducerRecord::new("t").partition(0).value("next")).await.unwrap();
        next.commit_transaction().await.unwrap();
        assert_eq!(read(&bench.cluster, "t", Visibility::CommittedOnly).await, ["next"]);
    }
}

#[tokio::test(start_paused = true)]
async fn closing_aborts_what_is_open() {
    for version in [1, 2] {
        let bench = bench(version).await;
        bench.producer.begin_transaction().await.unwrap();
        bench.send("open").await.unwrap();
        bench.producer.close().await.unwrap();
        assert!(!bench.kafka.transaction_is_open(ID));
        assert!(bench.committed().await.is_empty());
        let late = bench.producer.begin_transaction().await.unwrap_err();
        assert_eq!((describe(&late), late.kind()), ("caller", ErrorKind::Closed));
    }
}

#[tokio::test(start_paused = true)]
async fn calls_out_of_place_are_the_callers_mistake() {
    let bench = bench(2).await;
    for error in [
        bench.send("x").await.unwrap_err(),
        bench.offsets(1).await.unwrap_err(),
        bench.producer.commit_transaction().await.unwrap_err(),
        bench.producer.abort_transaction().await.unwrap_err(),
    ] {
        assert_eq!((describe(&error), error.kind()), ("caller", ErrorKind::InvalidRequest), "{error}");
    }
    bench.producer.begin_transaction().await.unwrap();
    assert_eq!(describe(&bench.producer.begin_transaction().await.unwrap_err()), "caller");
    let plain = Producer::new(bench.cluster.clone(), ProducerConfig::new());
    assert_eq!(plain.begin_transaction().await.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[tokio::test(start_paused = true)]
async fn a_transactional_id_without_right_or_reason_is_refused() {
    let bench = bench(2).await;
    let anew = |id: &'static str, config: ProducerConfig| {
        let cluster = bench.cluster.clone();
        async move { Producer::transactional(cluster, config, id).await.unwrap_err() }
    };
    assert_eq!(anew("", ProducerConfig::new()).await.kind(), ErrorKind::InvalidRequest);
    let long = ProducerConfig::new().transaction_timeout_ms(1_000_000);
    let error = anew(ID, long).await;
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("transaction.max.timeout.ms"), "{error}");
    bench.kafka.fault(ApiKey::InitProducerId).times(1).error(53);
    assert_eq!(anew(ID, ProducerConfig::new()).await.kind(), ErrorKind::Authorization);
    bench.kafka.fault(ApiKey::InitProducerId).always().error(51);
    let error = anew(ID, ProducerConfig::new().max_block_ms(1_000)).await;
    assert_eq!(describe(&error), "again", "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_transactional_producer_asks_for_nothing() {
    let bench = bench(2).await;
    bench.producer.begin_transaction().await.unwrap();
    bench.send("x").await.unwrap();
    let before = bench.kafka.requests().len();
    // Longer than the refresh of metadata is not: that is the cluster's own.
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(bench.kafka.requests().len() <= before + 2);
}
