//! An in-process Kafka of several nodes: what a consumer meets, without a JVM.
//!
//! It speaks the codec's broker side and keeps one pure state behind a mutex. In memory ([`Embedded::start`]) it
//! runs under tokio's paused clock; on TCP ([`Embedded::tcp`]) always on the real one. What it models is what
//! real brokers were seen to do. It has no quotas by rate, no ACLs, no retention, and a group of one protocol with
//! members is closed to members of the other.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use testkit::embedded::Embedded;
//!
//! let kafka = Embedded::start(3);
//! kafka.create_topic("orders", 2);
//! kafka.append_records("orders", 0, [("key", "value")]);
//! assert_eq!(kafka.high_watermark("orders", 0), 1);
//! # });
//! ```
//!
//! Invariants: a node answers a connection's requests strictly in turn; whatever a parked request may wait for
//! wakes it; nothing wakes up by itself except at a request's own deadline.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kafka_meta::ClusterConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

mod admin;
mod api;
mod classic_group;
mod configs;
mod connection;
mod consumer_group;
mod control;
mod describe;
mod faults;
mod fetch;
mod group_admin;
mod groups;
mod listing;
mod log;
mod membership;
mod metadata;
mod operate;
mod peek;
mod produce;
mod requests;
mod session;
mod transport;
mod txn;
mod txn_offsets;
mod txn_requests;
mod versions;
mod world;
mod write;

pub use control::{Open, TopicSpec};
pub use faults::{Fault, FaultBuilder};
pub use membership::GroupMember;
pub use requests::{FetchSeen, RequestSeen};
pub use versions::Release;

use transport::InMemory;
use world::World;

/// What the handle, the connections and the faults share.
struct Shared {
    world: Mutex<World>,
    changes: watch::Receiver<u64>,
    /// Counts received requests. Apart from the changes: a request changes nothing that another one waits for,
    /// and a hundred parked fetches must not turn at each other's arrival.
    received: watch::Sender<u64>,
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        // What is due by time alone (markers, transactions that took too long) is done by whoever looks first.
        txn::advance(&mut world, Instant::now());
        world
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

/// Stops the nodes when the last handle goes: connection tasks hold [`Shared`] themselves.
struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        let mut world = self.0.world();
        for node in world.nodes.values_mut() {
            node.running = false;
        }
        world.touch();
    }
}

/// A handle on an embedded cluster. Clones drive the same cluster; it stops when the last one is dropped.
#[derive(Clone)]
pub struct Embedded {
    shared: Arc<Shared>,
    _guard: Arc<Guard>,
    in_memory: bool,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("bootstrap", &self.bootstrap()).finish_non_exhaustive()
    }
}

impl Embedded {
    /// A cluster of `nodes` nodes (ids from 1) reached through memory. Works under tokio's paused clock.
    pub fn start(nodes: i32) -> Self {
        let (sender, changes) = watch::channel(0);
        let world = Mutex::new(World::new(nodes, Instant::now(), sender));
        let shared = Arc::new(Shared { world, changes, received: watch::Sender::new(0) });
        Embedded { _guard: Arc::new(Guard(Arc::clone(&shared))), shared, in_memory: true }
    }

    /// A cluster of `nodes` nodes (ids from 1) on ports of 127.0.0.1 that the system picks. Needs the real clock.
    ///
    /// Dropping the future before it is done leaves nothing behind.
    ///
    /// # Errors
    /// When a port cannot be bound.
    pub async fn tcp(nodes: i32) -> std::io::Result<Self> {
        let mut embedded = Embedded::start(nodes);
        embedded.in_memory = false;
        for id in 1..=nodes {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            let port = listener.local_addr()?.port();
            if let Some(node) = embedded.shared.world().nodes.get_mut(&id) {
                node.host = "127.0.0.1".to_owned();
                node.port = port;
                node.addresses = vec![(node.host.clone(), port)];
            }
            tokio::spawn(transport::accept(Arc::downgrade(&embedded.shared), id, listener));
        }
        Ok(embedded)
    }

    /// `host:port` of every node, separated by commas.
    pub fn bootstrap(&self) -> String {
        let world = self.shared.world();
        let all: Vec<String> =
            world.nodes.values().map(|node| format!("{}:{}", node.host, node.port)).collect();
        all.join(",")
    }

    /// A configuration that reaches this cluster.
    pub fn config(&self) -> ClusterConfig {
        let config = ClusterConfig::new(&self.bootstrap());
        if self.in_memory { config.with_connector(self.connector()) } else { config }
    }

    /// What connects to this cluster: through memory, or by TCP.
    pub fn connector(&self) -> Arc<dyn kafka_meta::transport::Connector> {
        if self.in_memory {
            Arc::new(InMemory(Arc::downgrade(&self.shared)))
        } else {
            Arc::new(kafka_meta::transport::Tcp)
        }
    }
}
