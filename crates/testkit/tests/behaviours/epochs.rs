//! Leaders, followers and leader epochs.

use std::time::Duration;

use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::EpochEndOffset;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, ProduceRequest};
use tokio::time::Instant;

use super::raw::{Ask, Raw, RawBroker, View, at, batch, list, name, parts, produce, size};

async fn epoch_end(node: &mut Raw, topic: &str, epoch: i32, current: i32) -> EpochEndOffset {
    let asked = OffsetForLeaderPartition::default()
        .with_partition(0)
        .with_current_leader_epoch(current)
        .with_leader_epoch(epoch);
    let topic = OffsetForLeaderTopic::default().with_topic(name(topic)).with_partitions(vec![asked]);
    let request =
        OffsetForLeaderEpochRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
    node.call(4, &request).await.topics.remove(0).partitions.remove(0)
}

pub async fn a_node_without_a_replica_is_6_with_hints_from_v16(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[2]]).await;
    let id = view.topic(&topic).await.topic_id;
    let mut node = view.node(1).await;
    for version in [4, 11, 12, 13, 16] {
        let answer = Ask::new(version).add(&topic, id, 0, 0).of(&mut node).await;
        let part = parts(&answer)[0];
        assert_eq!((part.error_code, part.high_watermark), (6, -1), "v{version}");
        if version >= 16 {
            assert_eq!(part.current_leader.leader_id.0, 2);
            assert!(part.current_leader.leader_epoch >= 0);
            let endpoint = &answer.node_endpoints[0];
            assert_eq!((endpoint.node_id.0, endpoint.host.to_string()), (2, view.nodes[&2].0.clone()));
            assert_eq!(endpoint.port, i32::from(view.nodes[&2].1));
        } else {
            assert_eq!(part.current_leader.leader_id.0, -1);
            assert!(answer.node_endpoints.is_empty());
        }
    }
}

pub async fn a_follower_serves_from_v11_and_does_nothing_else(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[1, 2]]).await;
    let id = view.topic(&topic).await.topic_id;
    let mut leader = view.node(1).await;
    let mut follower = view.node(2).await;
    produce(&mut leader, &topic, 0, batch(&[b"x"])).await;
    for version in [11, 12, 16] {
        // It may lag behind the leader.
        let mut served = 0;
        for _ in 0..100 {
            let answer = Ask::new(version).wait(500).add(&topic, id, 0, 0).of(&mut follower).await;
            assert_eq!(parts(&answer)[0].error_code, 0);
            served = size(parts(&answer)[0]);
            if served > 0 {
                break;
            }
        }
        assert!(served > 0, "v{version}");
    }
    let old = Ask::new(10).add(&topic, id, 0, 0).of(&mut follower).await;
    assert_eq!(parts(&old)[0].error_code, 6);
    assert_eq!(list(&mut follower, 7, &topic, 0, -1, false).await.error_code, 6);
    assert_eq!(epoch_end(&mut follower, &topic, 0, -1).await.error_code, 6);
    assert_eq!(produce(&mut follower, &topic, 0, batch(&[b"y"])).await.error_code, 6);
    let data = PartitionProduceData::default().with_index(0).with_records(Some(batch(&[b"y"])));
    let data = TopicProduceData::default().with_name(name(&topic)).with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(5000).with_topic_data(vec![data]);
    let answer = follower.call(10, &request).await;
    let part = &answer.responses[0].partition_responses[0];
    assert_eq!((part.error_code, part.current_leader.leader_id.0), (6, 1));
    assert_eq!(answer.node_endpoints[0].node_id.0, 1);
}

pub async fn a_wrong_current_epoch_is_74_or_75(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[1, 2]]).await;
    let id = view.topic(&topic).await.topic_id;
    cluster.move_leader(&topic, 2).await;
    let epoch = view.topic(&topic).await.partitions[0].leader_epoch;
    assert!(epoch > 0);
    let mut leader = view.node(2).await;
    for version in [11, 12, 16] {
        let newer = at(0, 0).with_current_leader_epoch(epoch + 5);
        let answer = Ask::new(version).add_with(&topic, id, newer).of(&mut leader).await;
        assert_eq!(parts(&answer)[0].error_code, 75);
        assert!(answer.node_endpoints.is_empty());
        let older = at(0, 0).with_current_leader_epoch(epoch - 1);
        let answer = Ask::new(version).add_with(&topic, id, older).of(&mut leader).await;
        let part = parts(&answer)[0];
        assert_eq!(part.error_code, 74);
        let hint = if version >= 16 { (2, epoch, 1) } else { (-1, -1, 0) };
        let current = &part.current_leader;
        assert_eq!((current.leader_id.0, current.leader_epoch, answer.node_endpoints.len()), hint);
    }
    assert_eq!(epoch_end(&mut leader, &topic, epoch, epoch + 5).await.error_code, 75);
    assert_eq!(epoch_end(&mut leader, &topic, epoch, epoch - 1).await.error_code, 74);
}

pub async fn a_fetch_that_waits_while_the_leader_moves_is_74_at_once(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[1, 2]]).await;
    let found = view.topic(&topic).await;
    let epoch = found.partitions[0].leader_epoch;
    let mut leader = view.node(1).await;
    let waiting = at(0, 0).with_current_leader_epoch(epoch);
    let ask = Ask::new(16).wait(60_000).add_with(&topic, found.topic_id, waiting);
    let asked = Instant::now();
    let (answer, ()) = tokio::join!(ask.of(&mut leader), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.move_leader(&topic, 2).await;
    });
    assert!(asked.elapsed() < Duration::from_secs(40));
    let part = parts(&answer)[0];
    assert_eq!(part.error_code, 74);
    assert!(part.current_leader.leader_epoch > epoch);
}

/// One record under each of two epochs; (view, topic, leader of the second, first epoch, second epoch).
async fn two_epochs(cluster: &mut dyn RawBroker) -> (View, String, Raw, i32, i32) {
    let view = View::of(cluster).await;
    let topic = view.create_on(&[&[1, 2]]).await;
    let first = view.topic(&topic).await.partitions[0].leader_epoch;
    produce(&mut view.node(1).await, &topic, 0, batch(&[b"a", b"b"])).await;
    cluster.move_leader(&topic, 2).await;
    let second = view.topic(&topic).await.partitions[0].leader_epoch;
    let mut leader = view.node(2).await;
    produce(&mut leader, &topic, 0, batch(&[b"c", b"d"])).await;
    (view, topic, leader, first, second)
}

pub async fn a_last_fetched_epoch_that_ended_below_the_offset_diverges(cluster: &mut dyn RawBroker) {
    let (view, topic, mut leader, first, second) = two_epochs(cluster).await;
    let id = view.topic(&topic).await.topic_id;
    for version in [12, 16] {
        let ask = |offset, last| {
            let partition = at(0, offset).with_last_fetched_epoch(last);
            Ask::new(version).wait(5000).add_with(&topic, id, partition)
        };
        let asked = Instant::now();
        let answer = ask(3, first).of(&mut leader).await;
        let part = parts(&answer)[0];
        assert_eq!((part.error_code, size(part)), (0, 0));
        assert_eq!((part.diverging_epoch.epoch, part.diverging_epoch.end_offset), (first, 2));
        // The end of the epoch itself is no divergence.
        let answer = ask(2, first).of(&mut leader).await;
        let part = parts(&answer)[0];
        assert_eq!((part.error_code, part.diverging_epoch.end_offset), (0, -1));
        assert!(size(part) > 0);
        // Past the end with the right epoch: a divergence in place of an error.
        let answer = ask(9, second).of(&mut leader).await;
        let part = parts(&answer)[0];
        assert_eq!((part.error_code, part.diverging_epoch.epoch), (0, second));
        assert_eq!(part.diverging_epoch.end_offset, 4);
        // An epoch above all known ones.
        assert_eq!(parts(&ask(2, second + 7).of(&mut leader).await)[0].error_code, 1);
        assert!(asked.elapsed() < Duration::from_secs(5), "each at once");
    }
}

pub async fn the_end_of_an_epoch_is_told(cluster: &mut dyn RawBroker) {
    let (_, topic, mut leader, first, second) = two_epochs(cluster).await;
    for (epoch, found) in [(first, (first, 2)), (second, (second, 4)), (second + 1, (-1, -1)), (-1, (-1, -1))]
    {
        let end = epoch_end(&mut leader, &topic, epoch, -1).await;
        assert_eq!(
            (end.error_code, end.leader_epoch, end.end_offset),
            (0, found.0, found.1),
            "epoch {epoch}"
        );
    }
}

pub async fn a_leader_names_the_replica_in_the_clients_rack_at_once(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let racks = cluster.racks();
    let topic = view.create_on(&[&[1, 2]]).await;
    let id = view.topic(&topic).await.topic_id;
    let mut leader = view.node(1).await;
    produce(&mut leader, &topic, 0, batch(&[b"x"])).await;
    for version in [11, 12, 16] {
        for offset in [0, 1] {
            // The follower counts once it has caught up.
            let mut named = -1;
            let asked = Instant::now();
            for _ in 0..100 {
                let ask = Ask::new(version).wait(300).rack(&racks[1]).add(&topic, id, 0, offset);
                let answer = ask.of(&mut leader).await;
                let part = parts(&answer)[0];
                assert_eq!(part.error_code, 0);
                named = part.preferred_read_replica.0;
                if named == 2 {
                    assert_eq!(size(part), 0);
                    break;
                }
            }
            assert_eq!(named, 2, "v{version}, offset {offset}, {:?}", asked.elapsed());
        }
        for rack in [racks[0].as_str(), "elsewhere"] {
            let answer = Ask::new(version).rack(rack).add(&topic, id, 0, 0).of(&mut leader).await;
            let part = parts(&answer)[0];
            assert_eq!(part.preferred_read_replica.0, -1);
            assert!(size(part) > 0);
        }
    }
    let mut follower = view.node(2).await;
    // Its high watermark may still lag behind.
    let mut served = 0;
    for _ in 0..100 {
        let ask = Ask::new(16).wait(500).rack(&racks[0]).add(&topic, id, 0, 0);
        served = size(parts(&ask.of(&mut follower).await)[0]);
        if served > 0 {
            break;
        }
    }
    assert!(served > 0, "any rack is served by a follower");
    let beyond = Ask::new(16).rack(&racks[1]).add(&topic, id, 0, 99).of(&mut follower).await;
    assert_eq!(parts(&beyond)[0].error_code, 1);
}
