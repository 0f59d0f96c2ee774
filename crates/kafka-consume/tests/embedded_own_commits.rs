//! A member's auto-commit beside commits of the application's own: as in Java the next auto-commit has the last word,
//! but for what `on_revoke` stores itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use futures::future::BoxFuture;
use kafka_consume::{
    Cluster, CommittedOffset, ConsumerConfig, ConsumerHandle, GroupProtocol, NegotiatedConsumer, OffsetReset,
    RebalanceListener, Result, RevokedPartition,
};
use testkit::embedded::Embedded;
use tokio::time::Instant;

const BOTH: [GroupProtocol; 2] = [GroupProtocol::Consumer, GroupProtocol::Classic];

async fn member(protocol: GroupProtocol) -> (Embedded, NegotiatedConsumer) {
    let kafka = Embedded::start(2);
    kafka.create_topic("t", 2);
    for partition in 0..2 {
        kafka.append_records("t", partition, (0..10).map(|n| ("k", n.to_string())));
    }
    let config = ConsumerConfig::new()
        .max_wait_ms(100)
        .auto_offset_reset(OffsetReset::Earliest)
        .auto_commit_interval_ms(1_000)
        .with_group_protocol(protocol);
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    let member = NegotiatedConsumer::subscribe(cluster, config, "g", ["t"]).await.unwrap();
    (kafka, member)
}

async fn reads_all(member: &mut NegotiatedConsumer) {
    let mut read = 0;
    while read < 20 {
        read += member.poll().await.unwrap().len();
    }
    assert!(member.poll().await.unwrap().is_empty());
}

async fn stored_comes_to(kafka: &Embedded, member: &mut NegotiatedConsumer, wanted: i64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while kafka.committed("g", "t", 0) != Some(wanted) {
        assert!(Instant::now() < deadline, "{:?}", kafka.committed("g", "t", 0));
        member.poll().await.unwrap();
    }
}

fn older() -> [((String, i32), CommittedOffset); 1] {
    [(("t".to_owned(), 0), CommittedOffset::new(3))]
}

#[tokio::test(start_paused = true)]
async fn an_older_offset_lasts_until_the_timer_the_revocation_or_the_leave() {
    for protocol in BOTH {
        let (kafka, mut member) = member(protocol).await;
        reads_all(&mut member).await;
        stored_comes_to(&kafka, &mut member, 10).await;
        member.commit_offsets(older()).await.unwrap().remove(0).1.unwrap();
        assert_eq!(kafka.committed("g", "t", 0), Some(3), "{protocol:?}");
        stored_comes_to(&kafka, &mut member, 10).await;
        member.handle().commit_offsets(older()).await.unwrap().remove(0).1.unwrap();
        assert_eq!(kafka.committed("g", "t", 0), Some(3), "{protocol:?}");
        member.leave().await.unwrap();
        assert_eq!(kafka.committed("g", "t", 0), Some(10), "{protocol:?}");
    }
}

struct Stores(ConsumerHandle);

impl RebalanceListener for Stores {
    fn on_revoke(&mut self, _: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for (_, result) in self.0.commit_offsets(older()).await? {
                result?;
            }
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn what_on_revoke_stores_is_the_last_word() {
    for protocol in BOTH {
        let (kafka, member) = member(protocol).await;
        let handle = member.handle();
        let mut member = member.on_rebalance(Stores(handle));
        reads_all(&mut member).await;
        stored_comes_to(&kafka, &mut member, 10).await;
        member.leave().await.unwrap();
        let stored = (kafka.committed("g", "t", 0), kafka.committed("g", "t", 1));
        assert_eq!(stored, (Some(3), Some(10)), "{protocol:?}");
    }
}
