//! Fetch sessions (KIP-227).

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::raw::{Ask, Raw, RawBroker, View, batch, parts, produce, size};

/// Both ways to name a topic behave alike.
pub const VERSIONS: [i16; 2] = [12, 16];

pub struct Setup {
    pub view: View,
    pub leader: Raw,
    pub topic: String,
    pub id: Uuid,
}

/// A topic of three partitions on one node; partition 0 has one record.
pub async fn setup(cluster: &dyn RawBroker) -> Setup {
    let view = View::of(cluster).await;
    let node = *view.nodes.keys().next().unwrap();
    let topic = view.create_on(&[&[node], &[node], &[node]]).await;
    let mut leader = view.node(node).await;
    assert_eq!(produce(&mut leader, &topic, 0, batch(&[b"one"])).await.error_code, 0);
    let id = view.topic(&topic).await.topic_id;
    Setup { view, leader, topic, id }
}

impl Setup {
    /// A session of partition 0 at the end and partition 1, both idle; its id.
    async fn idle(&mut self, version: i16) -> i32 {
        let ask =
            Ask::new(version).session(0, 0).add(&self.topic, self.id, 0, 1).add(&self.topic, self.id, 1, 0);
        let answer = ask.of(&mut self.leader).await;
        assert_eq!(answer.error_code, 0);
        assert_ne!(answer.session_id, 0);
        answer.session_id
    }

    async fn error(&mut self, ask: Ask) -> i16 {
        let answer = ask.of(&mut self.leader).await;
        assert_eq!(answer.session_id, 0);
        assert!(answer.responses.is_empty());
        answer.error_code
    }
}

pub async fn a_full_request_opens_a_session_and_lists_every_partition(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        let ask = Ask::new(version).session(0, 0).add(&s.topic, s.id, 0, 0).add(&s.topic, s.id, 1, 0);
        let answer = ask.of(&mut s.leader).await;
        assert_ne!(answer.session_id, 0);
        let parts = parts(&answer);
        assert_eq!(parts.len(), 2);
        assert!(size(parts[0]) > 0);
        assert_eq!((size(parts[1]), parts[1].high_watermark), (0, 0));
    }
}

pub async fn a_full_request_without_partitions_opens_an_empty_session(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let answer = Ask::new(16).session(0, 0).of(&mut s.leader).await;
    assert_eq!(answer.error_code, 0);
    assert_ne!(answer.session_id, 0);
    assert!(answer.responses.is_empty());
}

pub async fn an_idle_incremental_request_waits_and_is_empty(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        let id = s.idle(version).await;
        let asked = Instant::now();
        let answer = Ask::new(version).session(id, 1).wait(300).of(&mut s.leader).await;
        assert!(asked.elapsed() >= Duration::from_millis(290));
        assert_eq!((answer.error_code, answer.session_id), (0, id));
        assert!(answer.responses.is_empty());
    }
}

pub async fn a_position_that_is_not_moved_gives_the_same_records_again(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let first = Ask::new(16)
        .session(0, 0)
        .add(&s.topic, s.id, 0, 0)
        .add(&s.topic, s.id, 1, 0)
        .of(&mut s.leader)
        .await;
    for epoch in 1..4 {
        let answer = Ask::new(16).session(first.session_id, epoch).of(&mut s.leader).await;
        let parts = parts(&answer);
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].records, super::raw::parts(&first)[0].records);
    }
}

pub async fn only_partitions_with_news_are_listed(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        let id = s.idle(version).await;
        // Partition 1 gets a record and the request sees past it: only its high watermark is news.
        let written = produce(&mut s.leader, &s.topic, 1, batch(&[b"x"])).await;
        let ask = Ask::new(version).session(id, 1).add(&s.topic, s.id, 1, written.base_offset + 1);
        let answer = ask.of(&mut s.leader).await;
        let parts = parts(&answer);
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].partition_index, size(parts[0])), (1, 0));
        assert_eq!(parts[0].high_watermark, written.base_offset + 1);
        let quiet = Ask::new(version).session(id, 2).of(&mut s.leader).await;
        assert!(quiet.responses.is_empty());
    }
}

pub async fn a_partition_that_is_added_is_listed_though_it_is_empty(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        let id = s.idle(version).await;
        let answer = Ask::new(version).session(id, 1).add(&s.topic, s.id, 2, 0).of(&mut s.leader).await;
        let parts = parts(&answer);
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].partition_index, parts[0].high_watermark), (2, 0));
    }
}

pub async fn a_wrong_epoch_is_71_and_the_session_survives(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        let id = s.idle(version).await;
        let second = Ask::new(version).session(id, 1).of(&mut s.leader).await;
        assert_eq!(second.error_code, 0);
        assert_eq!(s.error(Ask::new(version).session(id, 1)).await, 71);
        assert_eq!(s.error(Ask::new(version).session(id, 9)).await, 71);
        let next = Ask::new(version).session(id, 2).of(&mut s.leader).await;
        assert_eq!((next.error_code, next.session_id), (0, id));
    }
}

pub async fn an_unknown_session_is_70(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        assert_eq!(s.error(Ask::new(version).session(12345, 1)).await, 70);
        assert_eq!(s.error(Ask::new(version).session(0, 1)).await, 70);
        let id = s.idle(version).await;
        let renewed = Ask::new(version).session(id, 0).add(&s.topic, s.id, 0, 1).of(&mut s.leader).await;
        assert_ne!(renewed.session_id, 0);
        assert_ne!(renewed.session_id, id);
        assert_eq!(s.error(Ask::new(version).session(id, 1)).await, 70);
    }
}

pub async fn a_forgotten_partition_is_gone(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        let ask = Ask::new(version).session(0, 0).add(&s.topic, s.id, 0, 0).add(&s.topic, s.id, 1, 0);
        let id = ask.of(&mut s.leader).await.session_id;
        let ask = Ask::new(version).session(id, 1).forget(&s.topic, s.id, 0);
        assert!(ask.of(&mut s.leader).await.responses.is_empty());
        // One that is not in the session is passed over in silence.
        let ask = Ask::new(version).session(id, 2).forget(&s.topic, s.id, 2);
        let answer = ask.of(&mut s.leader).await;
        assert_eq!((answer.error_code, answer.session_id), (0, id));
    }
}

pub async fn forgetting_the_last_partition_ends_the_session(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let id = Ask::new(16).session(0, 0).add(&s.topic, s.id, 0, 1).of(&mut s.leader).await.session_id;
    let answer = Ask::new(16).session(id, 1).forget(&s.topic, s.id, 0).of(&mut s.leader).await;
    assert_eq!((answer.error_code, answer.session_id), (0, 0));
    assert_eq!(s.error(Ask::new(16).session(id, 2)).await, 70);
}

pub async fn epoch_minus_one_closes_the_session(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        let id = s.idle(version).await;
        let closed = Ask::new(version).session(id, -1).of(&mut s.leader).await;
        assert_eq!((closed.error_code, closed.session_id), (0, 0));
        assert!(closed.responses.is_empty());
        assert_eq!(s.error(Ask::new(version).session(id, 1)).await, 70);
        assert_eq!(s.error(Ask::new(version).session(54321, -1)).await, 0);
    }
}

pub async fn epoch_minus_one_without_an_id_is_sessionless(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        let answer = Ask::new(version).add(&s.topic, s.id, 0, 0).of(&mut s.leader).await;
        assert_eq!((answer.error_code, answer.session_id), (0, 0));
        assert!(size(parts(&answer)[0]) > 0);
    }
}

pub async fn names_in_a_session_of_ids_are_106_and_use_up_no_epoch(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for (own, other) in [(16, 12), (12, 16)] {
        let id = s.idle(own).await;
        assert_eq!(s.error(Ask::new(other).session(id, 1)).await, 106);
        let next = Ask::new(own).session(id, 1).of(&mut s.leader).await;
        assert_eq!((next.error_code, next.session_id), (0, id));
    }
}

pub async fn a_session_is_not_bound_to_its_connection(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    let id = s.idle(16).await;
    let node = s.view.topic(&s.topic).await.partitions[0].leader_id.0;
    let mut other = s.view.node(node).await;
    other.client_id = "someone-else".to_owned();
    let answer = Ask::new(16).session(id, 1).of(&mut other).await;
    assert_eq!((answer.error_code, answer.session_id), (0, id));
}

pub async fn a_partition_named_twice_is_listed_once(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        let ask = Ask::new(version).session(0, 0).add(&s.topic, s.id, 0, 0).add(&s.topic, s.id, 0, 0);
        assert_eq!(parts(&ask.of(&mut s.leader).await).len(), 1);
    }
}

pub async fn an_unknown_partition_is_3_in_every_answer_and_cuts_no_wait(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        let id = s.idle(version).await;
        for epoch in 1..4 {
            let mut ask = Ask::new(version).session(id, epoch).wait(200);
            if epoch == 1 {
                ask = ask.add(&s.topic, s.id, 77, 0);
            }
            let asked = Instant::now();
            let answer = ask.of(&mut s.leader).await;
            assert!(asked.elapsed() >= Duration::from_millis(190));
            let parts = parts(&answer);
            assert_eq!(parts.len(), 1);
            assert_eq!((parts[0].partition_index, parts[0].error_code), (77, 3));
        }
        let answer = Ask::new(version).session(id, 4).forget(&s.topic, s.id, 77).of(&mut s.leader).await;
        assert!(answer.responses.is_empty());
    }
}

pub async fn an_error_of_the_log_answers_at_once(cluster: &mut dyn RawBroker) {
    let mut s = setup(cluster).await;
    for version in VERSIONS {
        let id = s.idle(version).await;
        let asked = Instant::now();
        let answer =
            Ask::new(version).session(id, 1).wait(8000).add(&s.topic, s.id, 0, 999).of(&mut s.leader).await;
        assert!(asked.elapsed() < Duration::from_secs(5));
        let parts = parts(&answer);
        assert_eq!((parts.len(), parts[0].error_code), (1, 1));
    }
}
