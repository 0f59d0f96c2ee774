//! Java's suites for group members, as far as one broker in memory can stand for theirs; each under both protocols.
//! Names begin with the case's id.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use kafka_consume::{
    Assignor, Cluster, CommittedOffset, ConsumerConfig, ConsumerHandle, Error, ErrorCode, ErrorKind,
    GroupProtocol, NegotiatedConsumer, OffsetReset, RebalanceListener, Result, RevokedPartition,
};
use testkit::embedded::Embedded;
use tokio::time::Instant;

const BOTH: [GroupProtocol; 2] = [GroupProtocol::Consumer, GroupProtocol::Classic];

fn kafka(topics: &[(&str, i32)], each: usize) -> Embedded {
    let kafka = Embedded::start(2);
    kafka.set_group_timing(Duration::from_secs(6), Duration::from_secs(1));
    for (topic, partitions) in topics {
        kafka.create_topic(topic, *partitions);
        for partition in 0..*partitions {
            kafka.append_records(topic, partition, (0..each).map(|n| ("k", n.to_string())));
        }
    }
    kafka
}

fn config(protocol: GroupProtocol) -> ConsumerConfig {
    ConsumerConfig::new()
        .max_wait_ms(100)
        .with_session_timeout_ms(6_000)
        .with_heartbeat_interval_ms(1_000)
        .with_group_protocol(protocol)
}

async fn member(kafka: &Embedded, config: ConsumerConfig, topics: &[&str]) -> NegotiatedConsumer {
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    let topics: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
    NegotiatedConsumer::subscribe(cluster, config, "g", topics).await.unwrap()
}

/// Polls until so many partitions are owned.
async fn owns(member: &mut NegotiatedConsumer, wanted: usize) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while member.assignment().len() != wanted {
        assert!(Instant::now() < deadline, "{wanted} wanted: {:?}", member.assignment());
        member.poll().await.unwrap();
    }
}

/// Polls until so many records were handed out, and once more.
async fn reads(member: &mut NegotiatedConsumer, wanted: usize) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut read = 0;
    while read < wanted {
        assert!(Instant::now() < deadline, "{read} of {wanted}");
        read += member.poll().await.unwrap().len();
    }
    assert_eq!(read + member.poll().await.unwrap().len(), wanted);
}

#[derive(Default)]
struct Calls {
    assigned: usize,
    revoked: usize,
    lost: usize,
    seen: Vec<String>,
}

type Act = Box<dyn Fn(ConsumerHandle) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// Does something in each callback.
struct Does {
    calls: Arc<Mutex<Calls>>,
    handle: ConsumerHandle,
    on_assign: Act,
    on_revoke: Act,
}

impl Does {
    fn note(&self, count: fn(&mut Calls) -> &mut usize, what: &str) {
        let mut calls = self.calls.lock().unwrap();
        *count(&mut calls) += 1;
        calls.seen.push(format!("{what} {:?}", self.handle.assignment()));
    }
}

fn nothing() -> Act {
    Box::new(|_| Box::pin(async { Ok(()) }))
}

impl RebalanceListener for Does {
    fn on_revoke(&mut self, _: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.note(|calls| &mut calls.revoked, "revoke");
            (self.on_revoke)(self.handle.clone()).await
        })
    }

    fn on_assign(&mut self, _: Vec<(String, i32)>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.note(|calls| &mut calls.assigned, "assign");
            (self.on_assign)(self.handle.clone()).await
        })
    }

    fn on_lost(&mut self, _: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.calls.lock().unwrap().lost += 1;
            Ok(())
        })
    }
}

fn listen(
    member: NegotiatedConsumer,
    on_assign: Act,
    on_revoke: Act,
) -> (NegotiatedConsumer, Arc<Mutex<Calls>>) {
    let calls: Arc<Mutex<Calls>> = Arc::default();
    let handle = member.handle();
    (member.on_rebalance(Does { calls: Arc::clone(&calls), handle, on_assign, on_revoke }), calls)
}

fn sleeps(time: Duration) -> Act {
    Box::new(move |_| {
        Box::pin(async move {
            tokio::time::sleep(time).await;
            Ok(())
        })
    })
}

#[tokio::test(start_paused = true)]
async fn k02_k05_the_assignment_is_seen_from_both_callbacks() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 1)], 0);
        let (mut member, calls) =
            listen(member(&kafka, config(protocol), &["t"]).await, nothing(), nothing());
        owns(&mut member, 1).await;
        member.poll().await.unwrap();
        member.leave().await.unwrap();
        let seen = calls.lock().unwrap().seen.clone();
        let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
        assert_eq!(seen, ["assign [(\"t\", 0)]", "revoke [(\"t\", 0)]"], "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn k07_k08_a_seek_and_a_pause_in_on_assign_win_over_the_committed_offset() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 1)], 120);
        kafka.commit("g", "t", 0, 7);
        let act: Act = Box::new(|handle| {
            Box::pin(async move {
                assert_eq!(handle.position("t", 0), None);
                handle.pause("t", 0);
                handle.seek("t", 0, 100)
            })
        });
        let (mut member, _) = listen(member(&kafka, config(protocol), &["t"]).await, act, nothing());
        owns(&mut member, 1).await;
        for _ in 0..5 {
            assert!(member.poll().await.unwrap().is_empty());
        }
        assert_eq!(member.paused(), [("t".to_owned(), 0)]);
        member.resume("t", 0);
        reads(&mut member, 20).await;
    }
}

#[tokio::test(start_paused = true)]
async fn k09_offsets_can_be_committed_in_on_revoke_in_the_members_name() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 1)], 10);
        let act: Act = Box::new(|handle| {
            Box::pin(async move {
                assert!(handle.group_metadata()?.generation_id > 0);
                let at = [(("t".to_owned(), 0), CommittedOffset::new(4))];
                for (_, result) in handle.commit_offsets(at).await? {
                    result?;
                }
                Ok(())
            })
        });
        let member = member(&kafka, config(protocol), &["t"]).await.auto_commit(false);
        let (mut member, _) = listen(member, nothing(), act);
        reads(&mut member, 10).await;
        member.leave().await.unwrap();
        assert_eq!(kafka.committed("g", "t", 0), Some(4), "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn b39_b40_a_callback_that_fails_stops_neither_the_rebalance_nor_the_records() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 1)], 10);
        let fails = || -> Act { Box::new(|_| Box::pin(async { Err(Error::other("on purpose")) })) };
        let (mut member, calls) = listen(member(&kafka, config(protocol), &["t"]).await, fails(), fails());
        reads(&mut member, 10).await;
        member.leave().await.unwrap();
        assert_eq!(kafka.committed("g", "t", 0), Some(10));
        let calls = calls.lock().unwrap();
        assert_eq!((calls.assigned, calls.revoked), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn b19_a_pause_ends_with_the_ownership() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 1), ("u", 1)], 10);
        let mut member = member(&kafka, config(protocol), &["t"]).await;
        reads(&mut member, 10).await;
        member.pause("t", 0);
        member.resubscribe(["u"]).unwrap();
        reads(&mut member, 10).await;
        assert!(member.paused().is_empty());
        member.resubscribe(["t", "u"]).unwrap();
        owns(&mut member, 2).await;
        kafka.append_records("t", 0, (0..10).map(|n| ("k", n.to_string())));
        reads(&mut member, 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c01_c07_positions_are_stored_when_topics_go_and_at_the_leave() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 2), ("u", 1)], 600);
        let rare = config(protocol).auto_commit_interval_ms(3_600_000);
        let mut member = member(&kafka, rare, &["t"]).await;
        owns(&mut member, 2).await;
        for (partition, offset) in [(0, 300), (1, 500)] {
            member.pause("t", partition);
            member.seek("t", partition, offset).unwrap();
        }
        member.poll().await.unwrap();
        member.resubscribe(["u"]).unwrap();
        owns(&mut member, 1).await;
        let stored = || (kafka.committed("g", "t", 0), kafka.committed("g", "t", 1));
        assert_eq!(stored(), (Some(300), Some(500)), "{protocol:?}");
        member.pause("u", 0);
        member.seek("u", 0, 77).unwrap();
        member.leave().await.unwrap();
        assert_eq!(kafka.committed("g", "u", 0), Some(77), "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c06_c08_c09_commits_of_chosen_offsets_leave_the_others_and_the_positions_alone() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 2)], 10);
        let mut member = member(&kafka, config(protocol), &["t"]).await.auto_commit(false);
        reads(&mut member, 20).await;
        let at = |partition, offset| (("t".to_owned(), partition), CommittedOffset::new(offset));
        for (_, result) in member.commit_offsets([at(0, 3)]).await.unwrap() {
            result.unwrap();
        }
        assert_eq!((kafka.committed("g", "t", 0), kafka.committed("g", "t", 1)), (Some(3), None));
        assert_eq!(member.position("t", 0), Some(10));
        let refused = member.commit_offsets([at(7, 1)]).await.unwrap().remove(0).1.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotAssigned);
        for (_, result) in member.commit().await.unwrap() {
            result.unwrap();
        }
        assert_eq!((kafka.committed("g", "t", 0), kafka.committed("g", "t", 1)), (Some(10), Some(10)));
        assert_eq!(member.committed().await.unwrap()[&("t".to_owned(), 1)].offset, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn p02_p05_silence_over_the_rebalance_timeout_costs_the_partitions_and_a_long_poll_does_not() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 1)], 10);
        let quick = config(protocol).with_rebalance_timeout_ms(8_000).max_wait_ms(20_000);
        let (mut member, calls) = listen(member(&kafka, quick, &["t"]).await, nothing(), nothing());
        reads(&mut member, 10).await;
        assert!(member.poll().await.unwrap().is_empty(), "20 s");
        let count = || {
            let calls = calls.lock().unwrap();
            (calls.assigned, calls.revoked, calls.lost)
        };
        assert_eq!(count(), (1, 0, 0), "{protocol:?}");
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(kafka.group_members("g").is_empty(), "{protocol:?}");
        member.poll().await.unwrap();
        owns(&mut member, 1).await;
        member.poll().await.unwrap();
        assert_eq!(count(), (2, 0, 1), "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn p03_p04_callbacks_slower_than_the_session_cost_nothing() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 1)], 10);
        let slow = || sleeps(Duration::from_secs(8));
        let (mut member, calls) = listen(member(&kafka, config(protocol), &["t"]).await, slow(), slow());
        reads(&mut member, 10).await;
        member.resubscribe(["u"]).unwrap();
        owns(&mut member, 0).await;
        assert_eq!(kafka.committed("g", "t", 0), Some(10), "{protocol:?}");
        assert_eq!(calls.lock().unwrap().lost, 0, "{protocol:?}");
        assert_eq!(kafka.group_members("g").len(), 1, "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn p08_p09_the_others_take_over_from_one_that_stops_polling_or_leaves() {
    for protocol in BOTH {
        for leaves in [true, false] {
            let kafka = kafka(&[("t", 8)], 0);
            let config = config(protocol).with_rebalance_timeout_ms(8_000);
            let mut members = Vec::new();
            for _ in 0..3 {
                members.push(member(&kafka, config.clone(), &["t"]).await);
            }
            let deadline = Instant::now() + Duration::from_secs(120);
            while members.iter().any(|member| member.assignment().len() < 2) {
                assert!(Instant::now() < deadline);
                for member in &mut members {
                    member.poll().await.unwrap();
                }
            }
            let mut gone = members.remove(0);
            if leaves {
                gone.leave().await.unwrap();
            }
            while members.iter().any(|member| member.assignment().len() != 4) {
                assert!(Instant::now() < deadline, "{protocol:?}, leaves: {leaves}");
                for member in &mut members {
                    member.poll().await.unwrap();
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p12_a_member_fenced_for_a_slow_callback_joins_again() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 1), ("u", 1)], 10);
        let config = config(protocol).with_rebalance_timeout_ms(8_000);
        let slow = sleeps(Duration::from_secs(20));
        let (mut member, _) = listen(member(&kafka, config, &["t"]).await, nothing(), slow);
        reads(&mut member, 10).await;
        member.resubscribe(["u"]).unwrap();
        reads(&mut member, 10).await;
        assert_eq!(member.assignment(), [("u".to_owned(), 0)], "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s04_s05_s07_subscriptions_grow_shrink_and_name_only_what_can_exist() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 2), ("u", 2)], 0);
        let mut member = member(&kafka, config(protocol), &["t"]).await;
        owns(&mut member, 2).await;
        member.resubscribe(["t", "u"]).unwrap();
        owns(&mut member, 4).await;
        member.resubscribe(["u"]).unwrap();
        owns(&mut member, 2).await;
        assert!(member.assignment().iter().all(|(topic, _)| topic == "u"));
        let refused = member.resubscribe(["topic abc"]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
        assert!(refused.to_string().contains("topic abc"), "{refused}");
        member.poll().await.unwrap();
        member.leave().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn s01_patterns_match_whole_names_and_notice_new_topics() {
    for protocol in BOTH {
        let kafka = kafka(&[("topic", 2), ("tblablac", 2), ("tblablak", 2), ("tblab1", 2)], 0);
        let cluster = kafka.config().with_metadata_max_age(Duration::from_secs(5));
        let cluster = Cluster::connect_with(cluster).await.unwrap();
        let mut member =
            NegotiatedConsumer::subscribe_pattern(cluster, config(protocol), "g", "t.*c").await.unwrap();
        owns(&mut member, 4).await;
        kafka.create_topic("tsomec", 3);
        owns(&mut member, 7).await;
        kafka.append_records("tsomec", 2, (0..10).map(|n| ("k", n.to_string())));
        reads(&mut member, 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn s14_r06_what_the_broker_cannot_do_is_an_invalid_request_of_a_poll() {
    let kafka = kafka(&[("t", 1)], 0);
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    let mut member = member(&kafka, config(GroupProtocol::Consumer), &["t"]).await.remote_assignor("invalid");
    let error = loop {
        if let Err(error) = member.poll().await {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    member.leave().await.unwrap();
    let refused =
        NegotiatedConsumer::subscribe_pattern(cluster, config(GroupProtocol::Classic), "g", "(t.*c");
    assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[tokio::test(start_paused = true)]
async fn r01_r02_round_robin_is_complete_and_disjoint_with_ten_and_eleven_members() {
    let kafka = kafka(&[("t", 5), ("u", 8)], 0);
    let mut members = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(600);
    for count in [1, 10, 11] {
        while members.len() < count {
            let member = member(&kafka, config(GroupProtocol::Classic), &["t", "u"]).await;
            members.push(member.assignors([Assignor::RoundRobin]));
        }
        loop {
            // All at once: an eager rebalance waits for everybody.
            let polls = members.iter_mut().map(NegotiatedConsumer::poll);
            for records in futures::future::join_all(polls).await {
                records.unwrap();
            }
            let mut all: Vec<_> = members.iter().flat_map(NegotiatedConsumer::assignment).collect();
            all.sort();
            let given = all.len();
            all.dedup();
            let settled = given == 13 && all.len() == 13;
            if settled && members.iter().all(|member| !member.assignment().is_empty()) {
                break;
            }
            assert!(Instant::now() < deadline, "{count} members: {all:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r08_a_cooperative_group_takes_two_generations_for_a_join_and_an_eager_one_takes_one() {
    for (assignor, generations) in [(Assignor::CooperativeSticky, 2), (Assignor::Range, 1)] {
        let kafka = kafka(&[("t", 2)], 0);
        let config = config(GroupProtocol::Classic);
        let mut first = member(&kafka, config.clone(), &["t"]).await.assignors([assignor]);
        owns(&mut first, 2).await;
        let before = first.group_metadata().unwrap();
        let mut second = member(&kafka, config, &["t"]).await.assignors([assignor]);
        let deadline = Instant::now() + Duration::from_secs(60);
        while first.assignment().len() != 1 || second.assignment().len() != 1 {
            assert!(Instant::now() < deadline);
            let (one, two) = tokio::join!(first.poll(), second.poll());
            one.unwrap();
            two.unwrap();
        }
        let after = first.group_metadata().unwrap();
        assert_eq!(after.generation_id - before.generation_id, generations, "{assignor:?}");
        assert_eq!(after.member_id, before.member_id);
    }
}

#[tokio::test(start_paused = true)]
async fn b42_a_pinned_protocol_that_is_not_served_is_told_and_an_open_choice_falls_back() {
    let kafka = kafka(&[("t", 2)], 5);
    kafka.set_consumer_protocol(false);
    let mut pinned = member(&kafka, config(GroupProtocol::Consumer), &["t"]).await;
    assert_eq!(pinned.poll().await.unwrap_err().kind(), ErrorKind::UnsupportedApi);
    let mut open = member(&kafka, config(GroupProtocol::Auto), &["t"]).await;
    assert_eq!(open.protocol(), GroupProtocol::Consumer, "listed all the same");
    reads(&mut open, 10).await;
    assert_eq!(open.protocol(), GroupProtocol::Classic);
}

#[tokio::test(start_paused = true)]
async fn fb49_a_leave_with_the_coordinator_gone_is_over_in_five_seconds() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 1)], 10);
        let mut member = member(&kafka, config(protocol), &["t"]).await;
        reads(&mut member, 10).await;
        kafka.freeze_node(kafka.coordinator("g").unwrap());
        let start = Instant::now();
        member.leave().await.unwrap();
        assert!(start.elapsed() <= Duration::from_secs(6), "{protocol:?}: {:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn x03_a_topic_may_be_made_after_the_subscription_and_every_broker_may_restart() {
    for protocol in BOTH {
        let kafka = kafka(&[("other", 1)], 0);
        let cluster = kafka.config().with_metadata_max_age(Duration::from_secs(5));
        let cluster = Cluster::connect_with(cluster).await.unwrap();
        let mut member =
            NegotiatedConsumer::subscribe(cluster, config(protocol), "g", ["late"]).await.unwrap();
        for _ in 0..20 {
            let _ = member.poll().await;
        }
        kafka.create_topic("late", 2);
        kafka.append_records("late", 0, (0..10).map(|n| ("k", n.to_string())));
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut read = 0;
        while read < 10 {
            assert!(Instant::now() < deadline, "{protocol:?}: {read} of 10");
            read += member.poll().await.map_or(0, |records| records.len());
        }
        for node in [1, 2] {
            kafka.kill_node(node);
        }
        for _ in 0..10 {
            let _ = member.poll().await;
        }
        for node in [1, 2] {
            kafka.start_node(node);
        }
        kafka.append_records("late", 1, (0..10).map(|n| ("k", n.to_string())));
        while read < 20 {
            assert!(Instant::now() < deadline, "{protocol:?}: {read} of 20");
            read += member.poll().await.map_or(0, |records| records.len());
        }
        assert_eq!(read, 20, "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn x07_one_member_too_many_is_told_and_the_others_read_on() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 2)], 10);
        kafka.set_group_max_size(1);
        let mut first = member(&kafka, config(protocol), &["t"]).await;
        reads(&mut first, 20).await;
        let mut second = member(&kafka, config(protocol), &["t"]).await;
        let error = loop {
            if let Err(error) = second.poll().await {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::Broker(ErrorCode::GROUP_MAX_SIZE_REACHED), "{error}");
        second.leave().await.unwrap();
        kafka.append_records("t", 0, (0..10).map(|n| ("k", n.to_string())));
        reads(&mut first, 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn p11_without_a_policy_a_missing_offset_is_told() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 1)], 10);
        let config = config(protocol).auto_offset_reset(OffsetReset::None);
        let mut member = member(&kafka, config, &["t"]).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        let error = loop {
            assert!(Instant::now() < deadline);
            if let Err(error) = member.poll().await {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoOffset, "{protocol:?}: {error}");
        member.seek("t", 0, 3).unwrap();
        reads(&mut member, 7).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b32_a_static_member_that_came_back_notices_new_partitions() {
    for protocol in BOTH {
        let kafka = kafka(&[("t", 1)], 0);
        let mut first = member(&kafka, config(protocol), &["t"]).await.instance_id("i");
        owns(&mut first, 1).await;
        first.leave().await.unwrap();
        let cluster = kafka.config().with_metadata_max_age(Duration::from_secs(5));
        let cluster = Cluster::connect_with(cluster).await.unwrap();
        let back = NegotiatedConsumer::subscribe(cluster, config(protocol), "g", ["t"]).await.unwrap();
        let mut back = back.instance_id("i");
        owns(&mut back, 1).await;
        kafka.add_partitions("t", 2);
        owns(&mut back, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn r07_the_brokers_range_assignor_can_be_asked_for() {
    let kafka = kafka(&[("t", 2), ("u", 2)], 0);
    let config = config(GroupProtocol::Consumer);
    let mut member = member(&kafka, config, &["t"]).await.remote_assignor("range");
    owns(&mut member, 2).await;
    member.resubscribe(["t", "u"]).unwrap();
    owns(&mut member, 4).await;
}
