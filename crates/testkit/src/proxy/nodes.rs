//! The brokers behind the proxy: where each really is, and which listeners stand for it.
//!
//! Invariants: a node has one advertised port at any time; earlier ones stay open; a closed node keeps its
//! port for later.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::task::JoinHandle;

use crate::failure::{Failure, Result};

pub(super) struct Node {
    /// The broker's own address, "host:port".
    pub(super) upstream: String,
    /// The advertised port.
    pub(super) port: u16,
    /// Every listener's task.
    pub(super) listeners: Vec<JoinHandle<()>>,
    pub(super) blackhole: bool,
}

#[derive(Default)]
pub(super) struct Nodes(Mutex<BTreeMap<i32, Node>>);

impl Nodes {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Node>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with<T>(&self, node: i32, act: impl FnOnce(&mut Node) -> T) -> Result<T> {
        self.lock()
            .get_mut(&node)
            .map(act)
            .ok_or_else(|| Failure::new(format!("no node {node} behind the proxy")))
    }

    pub(super) fn bootstrap(&self) -> String {
        let all: Vec<String> = self.lock().values().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        all.join(",")
    }

    pub(super) fn address(&self, node: i32) -> Result<String> {
        self.with(node, |node| format!("127.0.0.1:{}", node.port))
    }

    /// Stops listening; the ports are free when it returns.
    pub(super) async fn close(&self, node: i32) -> Result<()> {
        let listeners = self.with(node, |node| std::mem::take(&mut node.listeners))?;
        for listener in listeners {
            listener.abort();
            // Waited for: the socket closes when the task is dropped, not when it is told to end.
            let _ = listener.await;
        }
        Ok(())
    }
}
