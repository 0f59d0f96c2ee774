//! Field bugs of groups, on the embedded broker and a paused clock. Names begin with the bug's id.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use futures::future::join_all;
use kafka_consume::{
    Assignor, Cluster, ConsumerConfig, ErrorKind, GroupProtocol, NegotiatedConsumer, OffsetReset,
};
use kafka_protocol::messages::ApiKey;
use testkit::embedded::Embedded;
use tokio::time::Instant;

const BOTH: [GroupProtocol; 2] = [GroupProtocol::Consumer, GroupProtocol::Classic];
const LIMIT: Duration = Duration::from_secs(300);

fn kafka(partitions: i32, each: usize) -> Embedded {
    let kafka = Embedded::start(2);
    kafka.set_group_timing(Duration::from_secs(6), Duration::from_secs(1));
    kafka.create_topic("t", partitions);
    write(&kafka, partitions, each);
    kafka
}

fn write(kafka: &Embedded, partitions: i32, each: usize) {
    for partition in 0..partitions {
        kafka.append_records("t", partition, (0..each).map(|n| ("k", n.to_string())));
    }
}

fn config(protocol: GroupProtocol) -> ConsumerConfig {
    ConsumerConfig::new()
        .max_wait_ms(100)
        .with_session_timeout_ms(6_000)
        .with_heartbeat_interval_ms(1_000)
        .with_group_protocol(protocol)
}

async fn member(kafka: &Embedded, config: ConsumerConfig) -> NegotiatedConsumer {
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    NegotiatedConsumer::subscribe(cluster, config, "g", ["t"]).await.unwrap()
}

/// All members poll together until they share `wanted` partitions, each having some; the records they got.
async fn settle(members: &mut [NegotiatedConsumer], wanted: usize) -> usize {
    let deadline = Instant::now() + LIMIT;
    let mut read = 0;
    loop {
        for records in join_all(members.iter_mut().map(NegotiatedConsumer::poll)).await {
            read += records.unwrap().len();
        }
        let shares: Vec<usize> = members.iter().map(|member| member.assignment().len()).collect();
        if shares.iter().sum::<usize>() == wanted && shares.iter().all(|share| *share > 0) {
            return read;
        }
        assert!(Instant::now() < deadline, "{shares:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn fb01_refused_commits_start_no_join() {
    let kafka = kafka(4, 50);
    let config = config(GroupProtocol::Classic).auto_commit_interval_ms(50).max_poll_records(5);
    let mut members = vec![member(&kafka, config.clone()).await, member(&kafka, config).await];
    settle(&mut members, 4).await;
    kafka.clear_requests();
    let generation = members[0].group_metadata().unwrap().generation_id;
    for code in [27, 22, 25] {
        let fault = kafka.fault(ApiKey::OffsetCommit).always().error(code);
        for _ in 0..20 {
            settle(&mut members, 4).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(fault.hits() > 2, "{code}");
        fault.remove();
    }
    assert_eq!(kafka.count(ApiKey::JoinGroup), 0);
    assert_eq!(members[0].group_metadata().unwrap().generation_id, generation);
}

#[tokio::test(start_paused = true)]
async fn fb02_partitions_that_stay_or_come_back_are_read_after_every_rebalance() {
    for protocol in BOTH {
        let kafka = kafka(6, 0);
        let mut members =
            vec![member(&kafka, config(protocol)).await, member(&kafka, config(protocol)).await];
        settle(&mut members, 6).await;
        for round in 0..20 {
            members.push(member(&kafka, config(protocol)).await);
            settle(&mut members, 6).await;
            let mut third = members.pop().unwrap();
            let (left, ()) = tokio::join!(third.leave(), async {
                settle(&mut members, 6).await;
            });
            left.unwrap();
            write(&kafka, 6, 3);
            let deadline = Instant::now() + Duration::from_secs(5);
            let mut read = 0;
            while read < 18 {
                assert!(Instant::now() < deadline, "{protocol:?}, round {round}: {read} of 18");
                for records in join_all(members.iter_mut().map(NegotiatedConsumer::poll)).await {
                    read += records.unwrap().len();
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fb08_a_coordinator_that_moves_is_followed_without_a_revocation() {
    for protocol in BOTH {
        let kafka = kafka(4, 10);
        let mut members =
            vec![member(&kafka, config(protocol)).await, member(&kafka, config(protocol)).await];
        settle(&mut members, 4).await;
        let generations: Vec<i32> =
            members.iter().map(|member| member.group_metadata().unwrap().generation_id).collect();
        for _ in 0..4 {
            kafka.move_coordinator("g", 3 - kafka.coordinator("g").unwrap());
            kafka.set_coordinator_warming(&[16, 14, 15]);
            let deadline = Instant::now() + Duration::from_secs(20);
            while Instant::now() < deadline {
                settle(&mut members, 4).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        let now: Vec<i32> =
            members.iter().map(|member| member.group_metadata().unwrap().generation_id).collect();
        assert_eq!(now, generations, "{protocol:?}");
        for member in &mut members {
            for (_, result) in member.commit().await.unwrap() {
                result.unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fb09_a_group_of_other_assignors_is_a_fatal_error_that_names_ours() {
    let kafka = kafka(2, 0);
    let config = config(GroupProtocol::Classic);
    let mut first = [member(&kafka, config.clone()).await.assignors([Assignor::RoundRobin])];
    settle(&mut first, 2).await;
    let mut other = member(&kafka, config).await.assignors([Assignor::CooperativeSticky]);
    let deadline = Instant::now() + LIMIT;
    let error = loop {
        assert!(Instant::now() < deadline);
        if let Err(error) = other.poll().await {
            break error;
        }
    };
    assert!(error.is_fatal() && error.to_string().contains("cooperative-sticky"), "{error}");
    let joins = kafka.count(ApiKey::JoinGroup);
    for _ in 0..20 {
        assert!(other.poll().await.is_err());
    }
    assert_eq!(kafka.count(ApiKey::JoinGroup), joins);
}

#[tokio::test(start_paused = true)]
async fn fb12_a_stale_epoch_at_the_look_up_is_not_the_absence_of_an_offset() {
    for protocol in BOTH {
        let kafka = kafka(2, 10);
        kafka.commit("g", "t", 0, 4);
        kafka.commit("g", "t", 1, 4);
        let fault = kafka.fault(ApiKey::OffsetFetch).times(2).error(113);
        let latest = config(protocol).auto_offset_reset(OffsetReset::Latest);
        let mut only = [member(&kafka, latest).await];
        let mut read = settle(&mut only, 2).await;
        let deadline = Instant::now() + LIMIT;
        while read < 12 {
            assert!(Instant::now() < deadline, "{protocol:?}: {read} of 12");
            read += only[0].poll().await.unwrap().len();
        }
        assert_eq!(fault.hits(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn fb16_what_is_buffered_is_never_committed_and_what_was_handed_out_is() {
    for protocol in BOTH {
        let kafka = kafka(1, 100);
        let mut first = member(&kafka, config(protocol).max_poll_records(7)).await;
        let deadline = Instant::now() + LIMIT;
        while first.poll().await.unwrap().is_empty() {
            assert!(Instant::now() < deadline);
        }
        assert_eq!(first.poll().await.unwrap().len(), 7);
        first.leave().await.unwrap();
        assert_eq!(kafka.committed("g", "t", 0), Some(14), "{protocol:?}");
        // And without a word: from the last commit on.
        let mut second = member(&kafka, config(protocol).max_poll_records(7)).await;
        while second.poll().await.unwrap().is_empty() {
            assert!(Instant::now() < deadline);
        }
        drop(second);
        let mut third = member(&kafka, config(protocol)).await;
        let records = loop {
            assert!(Instant::now() < deadline);
            let records = third.poll().await.unwrap();
            if !records.is_empty() {
                break records;
            }
        };
        assert_eq!(records.iter().next().unwrap().offset, 14, "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn fb18_a_static_member_gets_its_place_back_after_parking_and_after_its_session() {
    let kafka = kafka(2, 0);
    let of = async || member(&kafka, config(GroupProtocol::Consumer)).await.instance_id("i");
    let mut parked = [of().await];
    settle(&mut parked, 2).await;
    parked[0].leave().await.unwrap();
    let mut back = [of().await];
    settle(&mut back, 2).await;
    let mut early = of().await;
    let error = early.poll().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnreleasedInstanceId, "{error}");
    let [gone] = back;
    drop(gone);
    let beats = kafka.count(ApiKey::ConsumerGroupHeartbeat);
    let deadline = Instant::now() + LIMIT;
    while early.assignment().len() != 2 {
        assert!(Instant::now() < deadline);
        let _ = early.poll().await;
    }
    let tries = kafka.count(ApiKey::ConsumerGroupHeartbeat) - beats;
    assert!(tries < 40, "{tries} heartbeats in about a session: a back-off runs");
}

#[tokio::test(start_paused = true)]
async fn fb49_a_slow_join_delays_neither_commits_nor_records_nor_the_leave_of_members_on_the_same_cluster() {
    let kafka = kafka(2, 10);
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    let of = async |group: &str| {
        let config = config(GroupProtocol::Classic);
        NegotiatedConsumer::subscribe(cluster.clone(), config, group, ["t"]).await.unwrap()
    };
    let mut steady = of("steady").await;
    let mut waits = of("waits").await;
    let mut read = 0;
    while read < 20 {
        read += steady.poll().await.unwrap().len();
    }
    let held = kafka.fault(ApiKey::JoinGroup).always().hold();
    let start = Instant::now();
    assert!(waits.poll().await.unwrap().is_empty());
    assert!(start.elapsed() < Duration::from_secs(1), "a poll does not wait for a join");
    write(&kafka, 2, 5);
    while read < 30 {
        read += steady.poll().await.unwrap().len();
    }
    for (_, result) in steady.commit().await.unwrap() {
        result.unwrap();
    }
    steady.leave().await.unwrap();
    waits.leave().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(kafka.committed("steady", "t", 0), Some(15));
    held.remove();
}
