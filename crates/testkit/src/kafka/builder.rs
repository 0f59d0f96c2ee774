//! What a test asks of a cluster, and its start.
//!
//! The provider comes from `TESTKIT_KAFKA`: `jvm` (the default), `docker` (with the feature of that name), or
//! the bootstrap addresses of a cluster that is already there.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use super::artifacts::{Artifacts, DEFAULT_VERSION};
use super::jvm::Jvm;
use super::{Kafka, Provider};
use crate::failure::{Doing, Failure, Result};

/// A cluster to be started; see [`Kafka::builder`].
#[derive(Debug, Clone)]
pub struct Builder {
    pub(crate) version: String,
    pub(crate) nodes: i32,
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) node_properties: BTreeMap<i32, Vec<(String, String)>>,
    pub(crate) racks: BTreeMap<i32, String>,
    pub(crate) listeners: Vec<(String, String)>,
    pub(crate) format: Vec<String>,
    pub(crate) jvm: Vec<String>,
    pub(crate) patience: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            version: std::env::var("TESTKIT_KAFKA_VERSION").unwrap_or_else(|_| DEFAULT_VERSION.to_owned()),
            nodes: 1,
            properties: Vec::new(),
            node_properties: BTreeMap::new(),
            racks: BTreeMap::new(),
            listeners: Vec::new(),
            format: Vec::new(),
            jvm: Vec::new(),
            patience: Duration::from_secs(180),
        }
    }

    /// Kafka's version; by default `TESTKIT_KAFKA_VERSION`, else 4.3.1. Known to start: 3.7.0, 3.9.1, 4.0.0,
    /// 4.3.1, 4.4.0.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// How many nodes, numbered from 1. Node 1 alone votes in clusters of one or two, nodes 1 to 3 in larger
    /// ones.
    #[must_use]
    pub fn nodes(mut self, nodes: i32) -> Self {
        self.nodes = nodes;
        self
    }

    /// A server property of every node.
    #[must_use]
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((key.into(), value.into()));
        self
    }

    /// A server property of one node; it wins over [`Builder::property`].
    #[must_use]
    pub fn node_property(mut self, node: i32, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.node_properties.entry(node).or_default().push((key.into(), value.into()));
        self
    }

    /// A node's rack. With any rack set the brokers use the rack-aware replica selector.
    #[must_use]
    pub fn rack(mut self, node: i32, rack: impl Into<String>) -> Self {
        self.racks.insert(node, rack.into());
        self
    }

    /// One more listener on each node, for example `("SASLP", "SASL_PLAINTEXT")`; see [`Kafka::listener`].
    #[must_use]
    pub fn listener(mut self, name: impl Into<String>, protocol: impl Into<String>) -> Self {
        self.listeners.push((name.into(), protocol.into()));
        self
    }

    /// More arguments of Kafka's storage tool, such as `--add-scram` and its value, or `--feature
    /// group.version=0`.
    #[must_use]
    pub fn format(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.format.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// A flag for each node's JVM, such as `-Xmx1G` (512 MB by default).
    #[must_use]
    pub fn jvm_flag(mut self, flag: impl Into<String>) -> Self {
        self.jvm.push(flag.into());
        self
    }

    /// How long to wait for the nodes to be ready (180 s).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// KIP-848 groups on a test's clock: sessions from 3 s (6 s by default), heartbeats from 500 ms (1 s by
    /// default). For 4.x only: older brokers do not know these properties as stable.
    #[must_use]
    pub fn quick_groups(self) -> Self {
        self.property("group.consumer.min.session.timeout.ms", "3000")
            .property("group.consumer.session.timeout.ms", "6000")
            .property("group.consumer.min.heartbeat.interval.ms", "500")
            .property("group.consumer.heartbeat.interval.ms", "1000")
            .property("group.min.session.timeout.ms", "1000")
    }

    /// A killed broker is noticed after 3 s instead of 9 s. Not for tests that freeze brokers or load the
    /// machine.
    #[must_use]
    pub fn quick_failover(self) -> Self {
        self.property("broker.session.timeout.ms", "3000").property("broker.heartbeat.interval.ms", "500")
    }

    /// Starts the cluster and waits until each node's metadata names all nodes.
    ///
    /// Only one test process at a time has brokers on a machine: this waits for the others first. Dropping
    /// the future ends whatever was started.
    pub async fn start(self) -> Result<Kafka> {
        if self.nodes < 1 {
            return Err(Failure::new("a cluster has at least one node"));
        }
        let chosen = std::env::var("TESTKIT_KAFKA").unwrap_or_else(|_| "jvm".to_owned());
        match chosen.as_str() {
            "jvm" | "" => {
                let jvm = Jvm::start(self).await?;
                Ok(Kafka { provider: Provider::Jvm(Box::new(jvm)) })
            }
            "docker" => super::docker(self).await,
            bootstrap => {
                let kafka = Kafka { provider: Provider::Existing(bootstrap.to_owned()) };
                let found = kafka.brokers().await?.len();
                if found < usize::try_from(self.nodes).unwrap_or(usize::MAX) {
                    return Err(Failure::new(format!("{} nodes wanted, {found} at {bootstrap}", self.nodes)));
                }
                Ok(kafka)
            }
        }
    }
}

/// Fetches jars and formats storage for these versions, and records the default version's class-data archive.
///
/// None of it is needed: the first start does what is missing, without the archive.
pub async fn prepare(versions: &[String]) -> Result<()> {
    for version in versions {
        let wanted = version.clone();
        let artifacts = tokio::task::spawn_blocking(move || Artifacts::resolve(&wanted)).await;
        let artifacts = artifacts.doing(|| "resolve".to_owned())??;
        let archive = artifacts.archive();
        if archive.is_file() {
            continue;
        }
        // The archive is written when the JVM ends by itself.
        let part = archive.with_extension("part");
        let _ = fs::remove_file(&part);
        let builder = Builder::new().version(version.clone());
        let builder = builder.jvm_flag(format!("-XX:ArchiveClassesAtExit={}", part.display()));
        let kafka = Kafka { provider: Provider::Jvm(Box::new(Jvm::start(builder).await?)) };
        // Classes of the paths that every test takes.
        kafka.create_topic("prepare", 1, 1, &[]).await?;
        kafka.ready_for_groups().await?;
        kafka.stop_node(1).await?;
        fs::rename(&part, &archive).doing(|| format!("record {}", archive.display()))?;
    }
    Ok(())
}
