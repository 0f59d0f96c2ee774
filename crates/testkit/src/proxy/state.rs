//! What the proxy's connections share: nodes, rules, topic ids, the log, and the handles of their tasks.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::connection;
use super::log::Log;
use super::nodes::{Node, Nodes};
use super::rule::Rules;
use crate::client::Client;
use crate::failure::{Doing, Failure, Result};
use crate::kafka::free_ports;

pub(super) struct Shared {
    pub(super) nodes: Nodes,
    pub(super) rules: Rules,
    pub(super) topics: Topics,
    pub(super) log: Log,
    open: Mutex<BTreeMap<u64, Open>>,
    next: AtomicU64,
    runtime: Handle,
}

struct Open {
    node: i32,
    task: AbortHandle,
    stall: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            nodes: Nodes::default(),
            rules: Rules::default(),
            topics: Topics::default(),
            log: Log::new(),
            open: Mutex::default(),
            next: AtomicU64::new(0),
            runtime: Handle::current(),
        })
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns brokers and topics from a broker, and listens for each.
    pub(super) async fn learn(self: &Arc<Self>, bootstrap: &str) -> Result<()> {
        use kafka_protocol::messages::MetadataRequest;
        let mut client = Client::connect(bootstrap).await?;
        let answer = client.call(12, &MetadataRequest::default().with_topics(None)).await?;
        for topic in &answer.topics {
            if let Some(name) = &topic.name {
                self.topics.learn(name, topic.topic_id);
            }
        }
        for broker in &answer.brokers {
            let upstream = format!("{}:{}", broker.host, broker.port);
            self.add(broker.node_id.0, upstream)?;
        }
        Ok(())
    }

    fn add(self: &Arc<Self>, node: i32, upstream: String) -> Result<u16> {
        let (port, listener) = bind(None)?;
        let node_now = Node { upstream, port, listeners: Vec::new(), blackhole: false };
        self.nodes.lock().insert(node, node_now);
        self.listen(node, listener)?;
        Ok(port)
    }

    fn listen(self: &Arc<Self>, node: i32, listener: std::net::TcpListener) -> Result<()> {
        let shared = Arc::clone(self);
        let _guard = self.runtime.enter();
        let listener = TcpListener::from_std(listener).doing(|| "listen".to_owned())?;
        let task = self.runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.accept(node, stream);
            }
        });
        self.nodes.with(node, |node| node.listeners.push(task))
    }

    fn accept(self: &Arc<Self>, node: i32, stream: tokio::net::TcpStream) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        // Held to the end: the task must not remove its entry before it is there, and no blackhole may be
        // opened between the look at the flag and the entry.
        let mut open = self.open();
        let Ok((upstream, blackhole)) = self.nodes.with(node, |node| (node.upstream.clone(), node.blackhole))
        else {
            return;
        };
        let (stall, stalled) = watch::channel(blackhole);
        let shared = Arc::clone(self);
        let own = stall.clone();
        let task = self.runtime.spawn(async move {
            connection::run(&shared, id, node, stream, &upstream, own, stalled).await;
            shared.open().remove(&id);
        });
        open.insert(id, Open { node, task: task.abort_handle(), stall });
    }

    pub(super) fn listen_again(self: &Arc<Self>, node: i32) -> Result<()> {
        let (port, idle) = self.nodes.with(node, |node| (node.port, node.listeners.is_empty()))?;
        if !idle {
            return Ok(());
        }
        let (_, listener) = bind(Some(port))?;
        self.listen(node, listener)
    }

    pub(super) fn readdress(self: &Arc<Self>, node: i32) -> Result<String> {
        let (port, listener) = bind(None)?;
        self.nodes.with(node, |node| node.port = port)?;
        self.listen(node, listener)?;
        self.nodes.address(node)
    }

    pub(super) fn set_blackhole(&self, node: i32, on: bool) {
        let open = self.open();
        let _ = self.nodes.with(node, |node| node.blackhole = on);
        if on {
            open.values().filter(|open| open.node == node).for_each(|open| {
                open.stall.send_replace(true);
            });
        }
    }

    pub(super) fn cut(&self, node: Option<i32>) {
        self.open().retain(|_, open| {
            let meant = node.is_none_or(|node| node == open.node);
            if meant {
                open.task.abort();
            }
            !meant
        });
    }

    pub(super) fn connections(&self, node: Option<i32>) -> usize {
        self.open().values().filter(|open| node.is_none_or(|node| node == open.node)).count()
    }

    pub(super) fn close(&self) {
        for node in self.nodes.lock().values_mut() {
            node.listeners.drain(..).for_each(|listener| listener.abort());
        }
        self.cut(None);
    }

    /// The proxy's address of a node that an answer names. A node not seen before gets its listener now; one
    /// that has moved is followed.
    pub(super) fn inside(self: &Arc<Self>, node: i32, host: &str, port: i32) -> Option<(String, i32)> {
        if node < 0 || host.is_empty() {
            return None;
        }
        let upstream = format!("{host}:{port}");
        let known = self.nodes.with(node, |node| {
            node.upstream.clone_from(&upstream);
            node.port
        });
        let port = known.or_else(|_| self.add(node, upstream)).ok()?;
        Some(("127.0.0.1".to_owned(), i32::from(port)))
    }
}

fn bind(port: Option<u16>) -> Result<(u16, std::net::TcpListener)> {
    let port = match port {
        Some(port) => port,
        None => *free_ports(1)?.first().ok_or_else(|| Failure::new("no free port"))?,
    };
    let listener =
        std::net::TcpListener::bind(("127.0.0.1", port)).doing(|| format!("listen on port {port}"))?;
    listener.set_nonblocking(true).doing(|| format!("listen on port {port}"))?;
    Ok((port, listener))
}

/// Topic ids, as metadata has told them.
#[derive(Default)]
pub(super) struct Topics(Mutex<HashMap<Uuid, String>>);

impl Topics {
    pub(super) fn learn(&self, name: &str, id: Uuid) {
        if !id.is_nil() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, name.to_owned());
        }
    }

    /// The name of a topic that a message gives by name or by id.
    pub(super) fn name(&self, name: &str, id: Uuid) -> Option<String> {
        if id.is_nil() {
            return Some(name.to_owned());
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

/// Looks until there is something, for at most `patience`.
pub(super) async fn wait<T>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> Option<T>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(Failure::new(format!("waited {patience:?} for {what} in vain")));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
