//! Fetch sessions (KIP-227).

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

pub async fn row_a_full_request_opens_a_session_and_lists_every_partition(cluster: &mut dyn RawBroker) {
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
