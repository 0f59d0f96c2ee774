//! Exactly once on the embedded broker: seeded lives of consume-process-produce workers, held to an oracle that only
//! reads what is committed.
//!
//! `EOS_SCHEDULES` is how many lives a run tries of each kind, `EOS_SEED` replays one. A seed decides what happens and
//! when; which task of one instant runs first is the runtime's.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation
)]

mod eos_support;

use std::time::Duration;

use eos_support::life::{Life, Sum};
use eos_support::source::Kind;
use eos_support::worker::Sabotage;

const DEFAULT: u64 = 60;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn live(seed: u64, kind: Kind, sabotage: Sabotage) -> Result<Sum, String> {
    if std::env::var("EOS_LOG").is_ok() {
        let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_test_writer().try_init();
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    // A current-thread runtime and the seed: what the clients draw is the same in each run.
    fastrand::seed(seed);
    runtime.block_on(async {
        let life = Life::new(seed, kind, sabotage).await.run();
        tokio::time::timeout(Duration::from_secs(3_600), life)
            .await
            .unwrap_or(Err("it never ended".to_owned()))
    })
}

fn lives(kind: Kind) {
    let seeds = match number("EOS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("EOS_SCHEDULES").unwrap_or(DEFAULT),
    };
    let (mut committed, mut fenced) = (0, 0);
    for seed in seeds.clone() {
        match live(seed, kind, Sabotage::None) {
            Ok(sum) => {
                committed += sum.committed;
                fenced += sum.fenced;
            }
            Err(wrong) => panic!("{kind:?}, EOS_SEED={seed}: {wrong}"),
        }
    }
    println!("{kind:?}: {seeds:?}, {committed} transactions committed, {fenced} fatal errors");
    assert!(committed > 0);
}

/// Whether the oracle sees what was got wrong, in some of these lives.
fn is_caught(sabotage: Sabotage) {
    let caught = (0..60).find_map(|seed| live(seed, Kind::Group, sabotage).err());
    println!("{sabotage:?}: {caught:?}");
    assert!(caught.is_some(), "{sabotage:?} went unseen");
}

#[test]
fn group_members_copy_exactly_once() {
    lives(Kind::Group);
}

#[test]
fn classic_members_copy_exactly_once() {
    lives(Kind::Classic);
}

#[test]
fn negotiated_members_copy_exactly_once() {
    lives(Kind::Negotiated);
}

#[test]
fn manual_consumers_copy_exactly_once() {
    lives(Kind::Manual);
}

#[test]
fn a_commit_outside_the_transaction_is_seen() {
    is_caught(Sabotage::CommitOutside);
}

#[test]
fn reading_on_after_an_abort_is_seen() {
    is_caught(Sabotage::ForgetToRewind);
}

#[test]
fn positions_taken_after_a_later_poll_are_seen() {
    is_caught(Sabotage::PollAgain);
}
