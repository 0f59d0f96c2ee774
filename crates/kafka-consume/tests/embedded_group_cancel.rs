//! Every async method of a member, but poll and leave, dropped after its first, second, … wait until it comes to its
//! end, for each of the three memberships; and the member used on: each record comes once and in order, it stays in
//! its group, a later commit works and wins, and it leaves no ghost. Polls and leaves: `src/member/tests/cancel.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;

use futures::StreamExt;
use kafka_consume::{
    Assignor, Cluster, CommittedOffset, ConsumerConfig, GroupProtocol, NegotiatedConsumer, OffsetReset,
};
use support::polled;
use testkit::embedded::Embedded;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(300);
const EACH: i64 = 40;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Consumer,
    Eager,
    Cooperative,
}

const KINDS: [Kind; 3] = [Kind::Consumer, Kind::Eager, Kind::Cooperative];

impl Kind {
    fn config(self) -> ConsumerConfig {
        let protocol = match self {
            Kind::Consumer => GroupProtocol::Consumer,
            Kind::Eager | Kind::Cooperative => GroupProtocol::Classic,
        };
        ConsumerConfig::new()
            .max_poll_records(7)
            .max_wait_ms(100)
            .auto_offset_reset(OffsetReset::Earliest)
            .auto_commit_interval_ms(3_600_000)
            .with_group_protocol(protocol)
    }

    fn assignors(self, member: NegotiatedConsumer) -> NegotiatedConsumer {
        match self {
            Kind::Consumer => member,
            Kind::Eager => member.assignors([Assignor::Range]),
            Kind::Cooperative => member.assignors([Assignor::CooperativeSticky]),
        }
    }
}

fn partitions() -> Vec<(String, i32)> {
    (0..3).map(|partition| ("t".to_owned(), partition)).collect()
}

fn broker() -> Embedded {
    let broker = Embedded::start(3);
    broker.create_topic("t", 3);
    for partition in 0..3 {
        for batch in 0..4 {
            broker.append_records("t", partition, (0..10).map(|n| (format!("{batch}"), format!("{n}"))));
        }
    }
    broker
}

async fn subscribe(broker: &Embedded, kind: Kind) -> NegotiatedConsumer {
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    kind.assignors(NegotiatedConsumer::subscribe(cluster, kind.config(), "g", ["t"]).await.unwrap())
}

/// A member that owns everything and has read something.
async fn start(kind: Kind) -> (Embedded, NegotiatedConsumer) {
    let broker = broker();
    let mut member = subscribe(&broker, kind).await;
    let mut read = 0;
    timeout(LIMIT, async {
        while member.assignment().len() < 3 || read == 0 {
            read += member.poll().await.unwrap().len();
        }
    })
    .await
    .expect("nothing is owned");
    (broker, member)
}

/// Reads all partitions from where they stand to their ends; each offset once and in order.
async fn read_on(member: &mut NegotiatedConsumer, what: &str) {
    let mut next: Vec<i64> = Vec::new();
    timeout(LIMIT, async {
        while next.len() < 3 {
            next = (0..3).filter_map(|partition| member.position("t", partition)).collect();
            if next.len() < 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        while next.iter().any(|next| *next < EACH) {
            for record in &member.poll().await.unwrap() {
                let next = &mut next[usize::try_from(record.partition).unwrap()];
                assert_eq!(record.offset, *next, "{what}: partition {}", record.partition);
                *next += 1;
            }
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{what}: the member stands still"));
}

async fn finish(broker: &Embedded, mut member: NegotiatedConsumer, what: &str) {
    let results = timeout(LIMIT, member.commit()).await.expect("a lane is stuck").unwrap();
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{what}: {results:?}");
    let stored = || (0..3).map(|partition| broker.committed("g", "t", partition)).collect::<Vec<_>>();
    assert_eq!(stored(), [Some(EACH); 3], "{what}");
    timeout(LIMIT, member.leave()).await.expect("the leave hangs").unwrap();
    assert_eq!(stored(), [Some(EACH); 3], "{what}");
    assert!(broker.group_members("g").is_empty(), "{what}: {:?}", broker.group_members("g"));
}

/// For each kind and every number of waits: a new member, the step cut off there, then the rest of its life.
macro_rules! cut_everywhere {
    (|$broker:ident, $member:ident| $future:expr) => {{
        for kind in KINDS {
            let mut waits = 1;
            loop {
                let ($broker, mut $member) = start(kind).await;
                let what = format!("{kind:?} after {waits} waits of {}", stringify!($future));
                let generation = $member.group_metadata().unwrap().generation_id;
                $broker.commit("g", "t", 0, 5);
                let ended = polled($future, waits).await.is_some();
                read_on(&mut $member, &what).await;
                assert_eq!($member.group_metadata().unwrap().generation_id, generation, "{what}");
                finish(&$broker, $member, &what).await;
                if ended {
                    break;
                }
                waits += 1;
                assert!(waits < 10_000, "{what}: it never comes to its end");
            }
        }
    }};
}

#[tokio::test(start_paused = true)]
async fn seeks() {
    cut_everywhere!(|broker, member| member.seek_to_committed());
    cut_everywhere!(|broker, member| member.seek_to_beginning(partitions()));
    cut_everywhere!(|broker, member| member.seek_to_end(partitions()));
    cut_everywhere!(|broker, member| member.seek_to_timestamp(partitions(), 1));
}

#[tokio::test(start_paused = true)]
async fn commits() {
    let offsets = || [(("t".to_owned(), 0), CommittedOffset::new(1))];
    cut_everywhere!(|broker, member| member.commit());
    cut_everywhere!(|broker, member| member.commit_offsets(offsets()));
    cut_everywhere!(|broker, member| {
        let handle = member.handle();
        async move { handle.commit_offsets(offsets()).await.map(drop) }
    });
    cut_everywhere!(|broker, member| member.committed());
}

#[tokio::test(start_paused = true)]
async fn offset_look_ups() {
    cut_everywhere!(|broker, member| member.beginning_offsets(partitions()));
    cut_everywhere!(|broker, member| member.end_offsets(partitions()));
    let times = || partitions().into_iter().map(|partition| (partition, 1));
    cut_everywhere!(|broker, member| member.offsets_for_times(times()));
}

#[tokio::test(start_paused = true)]
async fn the_next_record_of_a_stream() {
    cut_everywhere!(|broker, member| async {
        let mut stream = member.stream();
        stream.next().await.map(drop)
    });
}

#[tokio::test(start_paused = true)]
async fn a_subscribe_leaves_nothing_behind() {
    for kind in KINDS {
        for pattern in [false, true] {
            for waits in 1.. {
                let broker = broker();
                let what = format!("{kind:?} after {waits} waits, pattern: {pattern}");
                let cluster = Cluster::connect_with(broker.config()).await.unwrap();
                let ended = if pattern {
                    let future = NegotiatedConsumer::subscribe_pattern(cluster, kind.config(), "g", "t");
                    polled(future, waits).await.is_some()
                } else {
                    let future = NegotiatedConsumer::subscribe(cluster, kind.config(), "g", ["t"]);
                    polled(future, waits).await.is_some()
                };
                assert!(broker.group_members("g").is_empty(), "{what}");
                let mut member = subscribe(&broker, kind).await;
                let mut read = 0;
                timeout(LIMIT, async {
                    while member.assignment().len() < 3 {
                        read += member.poll().await.unwrap().len();
                    }
                })
                .await
                .expect("nothing is owned");
                let at = (0..3).filter_map(|partition| member.position("t", partition)).sum::<i64>();
                assert_eq!(at, i64::try_from(read).unwrap(), "{what}");
                read_on(&mut member, &what).await;
                finish(&broker, member, &what).await;
                if ended {
                    break;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leave_without_commit_goes_on_when_called_again_and_stores_nothing() {
    for kind in KINDS {
        for waits in 1.. {
            let (broker, mut member) = start(kind).await;
            let ended = polled(member.leave_without_commit(), waits).await.is_some();
            timeout(LIMIT, member.leave_without_commit()).await.expect("the leave hangs").unwrap();
            assert!(broker.group_members("g").is_empty(), "{kind:?} after {waits} waits");
            let stored = (0..3).filter_map(|partition| broker.committed("g", "t", partition)).count();
            assert_eq!(stored, 0, "{kind:?} after {waits} waits");
            if ended {
                break;
            }
        }
    }
}
