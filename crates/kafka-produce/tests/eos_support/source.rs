//! A consumer of any kind, reading the input.

use kafka_consume::{
    ClassicConsumer, Cluster, Consumer, ConsumerConfig, GroupConsumer, GroupMetadata, NegotiatedConsumer,
    OffsetReset, Position, Positions, Records, Result,
};

use super::Names;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Group,
    Classic,
    Negotiated,
    Manual,
}

pub enum Source {
    Group(GroupConsumer),
    Classic(ClassicConsumer),
    Negotiated(NegotiatedConsumer),
    Manual(Consumer),
}

macro_rules! of {
    ($source:expr, $one:ident => $what:expr) => {
        match $source {
            Source::Group($one) => $what,
            Source::Classic($one) => $what,
            Source::Negotiated($one) => $what,
            Source::Manual($one) => $what,
        }
    };
}

pub fn config() -> ConsumerConfig {
    ConsumerConfig::new()
        .auto_offset_reset(OffsetReset::Earliest)
        .with_session_timeout_ms(6_000)
        .with_heartbeat_interval_ms(1_000)
        .max_wait_ms(200)
}

impl Source {
    /// Begins where the group left off. `partitions` are a manual consumer's.
    pub async fn start(
        kind: Kind,
        cluster: &Cluster,
        config: ConsumerConfig,
        names: &Names,
        partitions: &[i32],
    ) -> Result<Source> {
        let cluster = cluster.clone();
        let (group, topic) = (names.group.as_str(), [names.input.as_str()]);
        Ok(match kind {
            Kind::Group => Source::Group(
                GroupConsumer::subscribe(cluster, config, group, topic).await?.auto_commit(false),
            ),
            Kind::Classic => Source::Classic(
                ClassicConsumer::subscribe(cluster, config, group, topic).await?.auto_commit(false),
            ),
            Kind::Negotiated => Source::Negotiated(
                NegotiatedConsumer::subscribe(cluster, config, group, topic).await?.auto_commit(false),
            ),
            Kind::Manual => {
                let mut consumer = Consumer::new(cluster, config.group_id(group));
                let mut wanted = Vec::new();
                for partition in partitions {
                    wanted.push((names.input.clone(), *partition));
                }
                consumer.assign(wanted, Position::Committed(Box::new(Position::Earliest))).await?;
                Source::Manual(consumer)
            }
        })
    }

    pub async fn poll(&mut self) -> Result<Records> {
        of!(self, one => one.poll().await)
    }

    pub fn positions(&self) -> Positions {
        of!(self, one => one.positions())
    }

    pub fn group_metadata(&self) -> Result<GroupMetadata> {
        of!(self, one => one.group_metadata())
    }

    pub fn assignment(&self) -> Vec<(String, i32)> {
        of!(self, one => one.assignment())
    }

    pub async fn seek_to_committed(&mut self) -> Result<()> {
        of!(self, one => one.seek_to_committed().await)
    }

    pub fn seek(&mut self, topic: &str, partition: i32, offset: i64) -> Result<()> {
        of!(self, one => one.seek(topic, partition, offset))
    }

    pub async fn commit(&mut self) -> Result<()> {
        of!(self, one => one.commit().await.map(drop))
    }

    pub async fn leave(&mut self) -> Result<()> {
        match self {
            Source::Group(one) => one.leave().await,
            Source::Classic(one) => one.leave().await,
            Source::Negotiated(one) => one.leave().await,
            Source::Manual(one) => one.close().await,
        }
    }
}
