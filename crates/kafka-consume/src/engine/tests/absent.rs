//! A partition that the picture of the cluster lacks: a fresher picture is asked for at once and from time to time,
//! its absence is told once, and nothing is ever due in the past.

use std::time::{Duration, Instant};

use kafka_meta::client::{Partition, Snapshot, Topic};
use kafka_meta::{ErrorCode, TopicName};
use uuid::Uuid;

use super::rig::settings;
use crate::engine::Core;

fn picture(count: i32, error: ErrorCode) -> Snapshot {
    let partition = |index| Partition {
        index,
        leader: Some(1),
        leader_epoch: Some(1),
        replicas: vec![1],
        isr: vec![1],
        offline: Vec::new(),
        error: ErrorCode::NONE,
    };
    let (name, id) = (TopicName::new("t"), Uuid::from_u128(7));
    let partitions = (0..count).map(partition).collect();
    Snapshot::default().with_topic(Topic { name, id, internal: false, error, partitions })
}

struct Owner {
    core: Core,
    now: Instant,
}

impl Owner {
    /// Owns t-2, and has a picture of two partitions.
    fn new() -> Owner {
        let mut core = Core::new(settings(), 1);
        let now = Instant::now();
        core.add_held(now, [(TopicName::new("t"), 2)]);
        Owner { core, now }
    }

    /// The supervisor's look at a picture; whether it asks for another one.
    fn look(&mut self, picture: &Snapshot) -> bool {
        self.core.handle_snapshot(self.now, picture);
        let next = self.core.next_supervision_at();
        assert!(next.is_none_or(|next| next > self.now), "due in the past: the supervisor would spin");
        std::mem::take(&mut self.core.effects.refresh)
    }

    /// Goes to when it is to look again.
    fn wait(&mut self) -> Duration {
        let next = self.core.next_supervision_at().expect("a time to look again");
        let waited = next - self.now;
        self.now = next;
        waited
    }

    fn told(&self) -> bool {
        self.core.each().any(|(_, partition)| partition.fault.is_some())
    }
}

#[test]
fn a_partition_the_picture_is_too_old_for_has_it_refreshed_at_once() {
    let mut owner = Owner::new();
    assert!(owner.look(&picture(2, ErrorCode::NONE)));
    assert!(!owner.look(&picture(2, ErrorCode::NONE)), "once is enough for now");
    assert!(!owner.look(&picture(3, ErrorCode::NONE)));
    assert!(!owner.told());
    assert_eq!(owner.core.next_supervision_at(), None);
}

#[test]
fn an_absence_is_told_after_a_while_and_asked_about_as_long_as_it_lasts() {
    let mut owner = Owner::new();
    let old = picture(2, ErrorCode::NONE);
    owner.look(&old);
    assert_eq!(owner.wait(), Duration::from_secs(2));
    assert!(owner.look(&old));
    assert!(owner.told());
    for _ in 0..3 {
        assert!(owner.wait() <= Duration::from_secs(5));
        assert!(owner.look(&old));
    }
    owner.look(&picture(3, ErrorCode::NONE));
    assert!(!owner.told());
}

#[test]
fn another_error_ends_the_absence_and_leaves_nothing_due() {
    for error in [
        ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        ErrorCode::LEADER_NOT_AVAILABLE,
        ErrorCode::INVALID_TOPIC_EXCEPTION,
    ] {
        let mut owner = Owner::new();
        owner.look(&picture(0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        owner.now += Duration::from_secs(3);
        owner.look(&picture(0, error));
        assert_eq!(owner.core.next_supervision_at(), None, "{error:?}");
    }
    let mut owner = Owner::new();
    owner.look(&picture(2, ErrorCode::NONE));
    owner.now += Duration::from_secs(3);
    owner.look(&Snapshot::default());
    assert_eq!(owner.core.next_supervision_at(), None);
}
