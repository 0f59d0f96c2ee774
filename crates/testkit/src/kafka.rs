//! Real Kafka brokers for tests.
//!
//! ```no_run
//! # async fn f() -> testkit::Result<()> {
//! use testkit::Kafka;
//!
//! let kafka = Kafka::builder().nodes(3).property("log.segment.bytes", "1048576").rack(1, "a").start().await?;
//! kafka.create_topic("orders", 6, 3, &[("cleanup.policy", "compact")]).await?;
//! let bootstrap = kafka.bootstrap();
//! kafka.kill_node(2)?;
//! kafka.restart_node(2).await?;
//! # Ok(()) }
//! ```
//!
//! What it is: brokers as child processes from the published jars, KRaft combined mode, on ports of
//! 127.0.0.1. What it is not: a place for assertions about a client.
//!
//! Invariants: brokers never outlive the test process; one test process at a time has brokers on a machine.

mod admin;
mod artifacts;
mod builder;
mod config;
#[cfg(feature = "docker")]
mod docker;
mod jvm;
mod machine;
mod process;
mod rights;
mod security;
mod storage;

use std::path::PathBuf;
use std::time::Instant;

use rustix::process::Signal;
use tokio::sync::OnceCell;

pub use admin::{BrokerSeen, PartitionSeen};
pub use artifacts::DEFAULT_VERSION;
pub(crate) use artifacts::{Artifacts, JVM_FLAGS};
pub use builder::{Builder, prepare};
pub(crate) use machine::{MARK, Machine, free_ports};
pub(crate) use process::signal;
pub use rights::{Operation, Resource, unsecured_token};
pub use security::Certificates;

use crate::client::Client;
use crate::failure::{Failure, Result};

/// A running cluster. Dropping it kills its brokers.
pub struct Kafka {
    provider: Provider,
}

enum Provider {
    Jvm(Box<jvm::Jvm>),
    #[cfg(feature = "docker")]
    Docker(Box<docker::Docker>),
    Existing(String),
}

static SHARED: OnceCell<Kafka> = OnceCell::const_new();

#[cfg(feature = "docker")]
async fn docker(builder: Builder) -> Result<Kafka> {
    let kafka = Kafka { provider: Provider::Docker(Box::new(docker::Docker::start(&builder).await?)) };
    kafka.wait_for_brokers(usize::try_from(builder.nodes).unwrap_or(usize::MAX)).await?;
    Ok(kafka)
}

#[cfg(not(feature = "docker"))]
async fn docker(_: Builder) -> Result<Kafka> {
    Err(Failure::new("testkit was built without the feature `docker`"))
}

/// Whether this run is meant to use real brokers: `TESTKIT_REAL=1`, as `cargo xtask test` sets it.
///
/// A test in a `real_*.rs` file begins with `if !testkit::kafka::enabled() { return; }`.
pub fn enabled() -> bool {
    let enabled = std::env::var("TESTKIT_REAL").is_ok_and(|value| value == "1");
    if !enabled {
        eprintln!("SKIPPED: real brokers are not part of this run (TESTKIT_REAL is not 1)");
    }
    enabled
}

impl Kafka {
    /// A cluster to be started: one node of version 4.3.1 unless said otherwise.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// One cluster for all tests of a binary: started by the first that asks, killed when the process ends.
    ///
    /// Later callers get the first one's cluster, whatever they would build. A test that stops nodes or
    /// changes broker settings starts its own.
    pub async fn shared(build: impl FnOnce() -> Builder) -> Result<&'static Kafka> {
        SHARED.get_or_try_init(async || build().start().await).await
    }

    /// The addresses of all nodes, "host:port,host:port".
    pub fn bootstrap(&self) -> String {
        match &self.provider {
            Provider::Jvm(jvm) => {
                jvm.ids().filter_map(|node| jvm.address(node)).collect::<Vec<_>>().join(",")
            }
            #[cfg(feature = "docker")]
            Provider::Docker(docker) => {
                docker.ids().filter_map(|node| docker.address(node)).collect::<Vec<_>>().join(",")
            }
            Provider::Existing(bootstrap) => bootstrap.clone(),
        }
    }

    /// The addresses of an extra listener of [`Builder::listener`] on all nodes.
    pub fn listener(&self, name: &str) -> Result<String> {
        let jvm = self.jvm()?;
        let all: Option<Vec<String>> = jvm.ids().map(|node| jvm.listener(node, name)).collect();
        all.map(|all| all.join(",")).ok_or_else(|| Failure::new(format!("no listener {name}")))
    }

    /// The ids of the nodes that were started.
    pub fn nodes(&self) -> Result<Vec<i32>> {
        Ok(self.jvm()?.ids().collect())
    }

    /// A node's address, "host:port".
    pub fn node(&self, node: i32) -> Result<String> {
        let address = match &self.provider {
            Provider::Jvm(jvm) => jvm.address(node),
            #[cfg(feature = "docker")]
            Provider::Docker(docker) => docker.address(node),
            Provider::Existing(_) => self.jvm()?.address(node),
        };
        address.ok_or_else(|| Failure::new(format!("no node {node}")))
    }

    /// A node's process id, while it runs.
    pub fn pid(&self, node: i32) -> Option<u32> {
        self.jvm().ok()?.pid(node)
    }

    /// A node's data folder: one folder per partition, for Java's log dump tool.
    pub fn data_folder(&self, node: i32) -> Result<PathBuf> {
        Ok(self.jvm()?.data(node))
    }

    /// A node's server log.
    pub fn server_log(&self, node: i32) -> Result<PathBuf> {
        Ok(self.jvm()?.log(node))
    }

    /// Kafka's version, where it is known.
    pub fn version(&self) -> Option<&str> {
        match &self.provider {
            Provider::Jvm(jvm) => Some(&jvm.artifacts().version),
            #[cfg(feature = "docker")]
            Provider::Docker(docker) => Some(docker.version()),
            Provider::Existing(_) => None,
        }
    }

    /// Stops a node in good order (SIGTERM) and waits for its end.
    ///
    /// Dropping the future kills the node.
    pub async fn stop_node(&self, node: i32) -> Result<()> {
        #[cfg(feature = "docker")]
        if let Provider::Docker(docker) = &self.provider {
            return docker.stop(node).await;
        }
        self.jvm()?.stop(node).await
    }

    /// Kills a node (SIGKILL): connections break, nothing is handed over.
    pub fn kill_node(&self, node: i32) -> Result<()> {
        self.jvm()?.kill(node)
    }

    /// Freezes a node (SIGSTOP): connections stay open and nothing is answered.
    pub fn freeze_node(&self, node: i32) -> Result<()> {
        self.jvm()?.signal(node, Signal::STOP)
    }

    /// Lets a frozen node go on.
    pub fn thaw_node(&self, node: i32) -> Result<()> {
        self.jvm()?.signal(node, Signal::CONT)
    }

    /// Starts a stopped or killed node again, with its data, on its old ports; stops it first if it runs.
    /// Waits until every running node names all running nodes.
    ///
    /// Dropping the future leaves the node starting.
    pub async fn restart_node(&self, node: i32) -> Result<()> {
        #[cfg(feature = "docker")]
        if let Provider::Docker(docker) = &self.provider {
            docker.restart(node).await?;
            return self.wait_for_brokers(docker.ids().count()).await;
        }
        let jvm = self.jvm()?;
        if jvm.is_running(node) {
            jvm.stop(node).await?;
        }
        jvm.launch(node)?;
        jvm.wait_ready(Instant::now() + jvm.patience()).await
    }

    /// Starts a stopped or killed node again without waiting until it is ready.
    pub fn launch_node(&self, node: i32) -> Result<()> {
        self.jvm()?.launch(node)
    }

    /// The kit's own client, on a node's connection.
    pub async fn client(&self, node: i32) -> Result<Client> {
        Client::connect(&self.node(node)?).await
    }

    fn jvm(&self) -> Result<&jvm::Jvm> {
        match &self.provider {
            Provider::Jvm(jvm) => Ok(jvm),
            #[cfg(feature = "docker")]
            Provider::Docker(_) => Err(Failure::new("not with brokers in containers")),
            Provider::Existing(_) => {
                Err(Failure::new("the brokers are not ours: TESTKIT_KAFKA names a cluster"))
            }
        }
    }

    /// Addresses of nodes that run and are not frozen.
    fn live(&self) -> Vec<String> {
        match &self.provider {
            Provider::Jvm(jvm) => {
                jvm.ids().filter(|&node| jvm.is_live(node)).filter_map(|node| jvm.address(node)).collect()
            }
            #[cfg(feature = "docker")]
            Provider::Docker(docker) => docker.ids().filter_map(|node| docker.address(node)).collect(),
            Provider::Existing(bootstrap) => bootstrap.split(',').map(|one| one.trim().to_owned()).collect(),
        }
    }
}
