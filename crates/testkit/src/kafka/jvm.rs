//! A cluster of broker processes on this machine.
//!
//! States per node: running, frozen, stopped. The folder `run/PID-N` holds the nodes' properties, logs and
//! data; it goes when the cluster is dropped, unless `TESTKIT_KEEP` is set or the test panicked: then its
//! path is printed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::artifacts::{Artifacts, JVM_FLAGS, root};
use super::builder::Builder;
use super::config::{Ports, server_properties};
use super::machine::{MARK, Machine, free_ports};
use super::process::{Process, describe};
use super::{admin, storage};
use crate::failure::{Doing, Failure, Result};

/// A clean stop of a node whose quorum goes at the same time takes seconds; recording an archive takes up to
/// a minute.
const STOP_PATIENCE: Duration = Duration::from_secs(150);

static NEXT: AtomicU32 = AtomicU32::new(1);

pub(crate) struct Jvm {
    builder: Builder,
    artifacts: Artifacts,
    machine: Arc<Machine>,
    folder: PathBuf,
    ports: Vec<Ports>,
    nodes: Vec<Mutex<Option<Process>>>,
}

impl Jvm {
    pub(crate) async fn start(builder: Builder) -> Result<Self> {
        let machine = Machine::acquire().await?;
        // A process with the lock in hand is alone here: what earlier ones left is nobody's.
        let started = Instant::now();
        let prepared = tokio::task::spawn_blocking(move || Self::prepare(builder, machine)).await;
        let jvm = prepared.doing(|| "prepare a cluster".to_owned())??;
        for node in jvm.ids() {
            jvm.launch(node)?;
        }
        jvm.wait_ready(started + jvm.builder.patience).await?;
        tracing::info!(version = jvm.artifacts.version, took = ?started.elapsed(), "brokers are ready");
        Ok(jvm)
    }

    fn prepare(builder: Builder, machine: Arc<Machine>) -> Result<Self> {
        let artifacts = Artifacts::resolve(&builder.version)?;
        let runs = root().join("run");
        sweep(&runs);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = runs.join(format!("{}-{number}", std::process::id()));
        let nodes = usize::try_from(builder.nodes).doing(|| "count the nodes".to_owned())?;
        let each = 2 + builder.listeners.len();
        let ports = free_ports(nodes * each)?;
        let ports = ports.chunks(each).filter_map(|chunk| match chunk {
            [broker, controller, extra @ ..] => {
                Some(Ports { broker: *broker, controller: *controller, extra: extra.to_vec() })
            }
            _ => None,
        });
        let jvm = Self {
            ports: ports.collect(),
            nodes: (0..nodes).map(|_| Mutex::new(None)).collect(),
            builder,
            artifacts,
            machine,
            folder,
        };
        for node in jvm.ids() {
            let data = jvm.data(node);
            storage::format(&jvm.artifacts, &jvm.builder.format, node, &data)?;
            let text = server_properties(&jvm.builder, node, &jvm.ports, &data.display().to_string());
            let path = jvm.properties(node);
            fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
        }
        Ok(jvm)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = i32> + use<> {
        1..=self.builder.nodes
    }

    pub(crate) fn artifacts(&self) -> &Artifacts {
        &self.artifacts
    }

    fn node_folder(&self, node: i32) -> PathBuf {
        self.folder.join(format!("node-{node}"))
    }

    /// A node's log folder, with the partitions' segments.
    pub(crate) fn data(&self, node: i32) -> PathBuf {
        self.node_folder(node).join("data")
    }

    fn properties(&self, node: i32) -> PathBuf {
        self.node_folder(node).join("server.properties")
    }

    pub(crate) fn log(&self, node: i32) -> PathBuf {
        self.node_folder(node).join("server.log")
    }

    pub(crate) fn address(&self, node: i32) -> Option<String> {
        self.ports_of(node).map(|ports| format!("127.0.0.1:{}", ports.broker))
    }

    pub(crate) fn listener(&self, node: i32, name: &str) -> Option<String> {
        let index = self.builder.listeners.iter().position(|(known, _)| known == name)?;
        self.ports_of(node)?.extra.get(index).map(|port| format!("127.0.0.1:{port}"))
    }

    fn ports_of(&self, node: i32) -> Option<&Ports> {
        self.ports.get(usize::try_from(node.checked_sub(1)?).ok()?)
    }

    fn slot(&self, node: i32) -> Result<&Mutex<Option<Process>>> {
        let index = node.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.nodes.get(index)).ok_or_else(|| Failure::new(format!("no node {node}")))
    }

    fn with<T>(&self, node: i32, act: impl FnOnce(&mut Process) -> Result<T>) -> Result<T> {
        let mut slot = self.slot(node)?.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.as_mut() {
            Some(process) => act(process),
            None => Err(Failure::new(format!("node {node} is not running"))),
        }
    }

    pub(crate) fn is_running(&self, node: i32) -> bool {
        self.with(node, |process| Ok(process.ended().is_none())).unwrap_or(false)
    }

    /// Whether the node runs and is not frozen.
    pub(crate) fn is_live(&self, node: i32) -> bool {
        self.with(node, |process| Ok(process.is_live())).unwrap_or(false)
    }

    pub(crate) fn pid(&self, node: i32) -> Option<u32> {
        self.with(node, |process| Ok(process.pid())).ok()
    }

    pub(crate) fn launch(&self, node: i32) -> Result<()> {
        let mut slot = self.slot(node)?.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.as_mut().is_some_and(|process| process.ended().is_none()) {
            return Err(Failure::new(format!("node {node} is running")));
        }
        let mut command = Command::new("java");
        command.args(["-Xms64M", "-Xmx512M"]).args(JVM_FLAGS);
        let archive = self.artifacts.archive();
        if archive.is_file() {
            command.arg(format!("-XX:SharedArchiveFile={}", archive.display()));
        }
        command.args(&self.builder.jvm).arg(self.artifacts.logging()?).arg(format!("{MARK}{node}"));
        command.args(["-cp", &self.artifacts.class_path, "kafka.Kafka"]).arg(self.properties(node));
        command.current_dir(self.node_folder(node));
        *slot = Some(Process::start(Arc::clone(&self.machine), command, self.log(node))?);
        Ok(())
    }

    /// Waits until the metadata of each running node names all running nodes; frozen ones do not count.
    pub(crate) async fn wait_ready(&self, deadline: Instant) -> Result<()> {
        let mut waiting: Vec<i32> = self.ids().filter(|&node| self.is_expected(node)).collect();
        let wanted = waiting.clone();
        while let Some(&node) = waiting.last() {
            // Any of them: the others may wait for the quorum in vain.
            for &node in &wanted {
                let ended = self.with(node, |process| {
                    Ok(process.ended().map(|status| (describe(status), process.last_words())))
                })?;
                if let Some((how, words)) = ended {
                    return Err(Failure::new(format!("node {node} {how} while starting:\n{words}")));
                }
            }
            let address = self.address(node).unwrap_or_default();
            match admin::brokers(&address).await {
                Ok(brokers) if wanted.iter().all(|id| brokers.iter().any(|broker| broker.id == *id)) => {
                    waiting.pop();
                    continue;
                }
                outcome if Instant::now() > deadline => {
                    let words = self.with(node, |process| Ok(process.last_words()))?;
                    let seen = outcome.map(|brokers| format!("it names {brokers:?}"));
                    let seen = seen.unwrap_or_else(|failure| failure.to_string());
                    return Err(Failure::new(format!(
                        "node {node} is not ready, {seen}; its log ends:\n{words}"
                    )));
                }
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        Ok(())
    }

    fn is_expected(&self, node: i32) -> bool {
        self.with(node, |process| Ok(!process.is_frozen())).unwrap_or(false)
    }

    pub(crate) async fn stop(&self, node: i32) -> Result<()> {
        // Taken out of its slot: no lock is held while waiting, and a dropped future ends the process.
        let taken = self.slot(node)?.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut process) = taken else {
            return Err(Failure::new(format!("node {node} is not running")));
        };
        process.signal(Signal::CONT)?;
        process.signal(Signal::TERM)?;
        process.end(STOP_PATIENCE).await?;
        Ok(())
    }

    pub(crate) fn kill(&self, node: i32) -> Result<()> {
        let taken = self.slot(node)?.lock().unwrap_or_else(PoisonError::into_inner).take();
        match taken {
            Some(mut process) => {
                process.kill();
                Ok(())
            }
            None => Err(Failure::new(format!("node {node} is not running"))),
        }
    }

    pub(crate) fn signal(&self, node: i32, signal: Signal) -> Result<()> {
        self.with(node, |process| process.signal(signal))
    }

    pub(crate) fn patience(&self) -> Duration {
        self.builder.patience
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        for slot in &self.nodes {
            slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        if std::env::var_os("TESTKIT_KEEP").is_some() || std::thread::panicking() {
            eprintln!("the brokers' logs and data are kept in {}", self.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Removes what earlier processes left, except their last run: that may be the one somebody wants to look at.
fn sweep(runs: &Path) {
    let Ok(entries) = fs::read_dir(runs) else { return };
    let own = format!("{}-", std::process::id());
    let mut old: Vec<(std::time::SystemTime, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let ours = entry.file_name().to_string_lossy().starts_with(&own);
            let changed = entry.metadata().ok()?.modified().ok()?;
            (!ours).then(|| (changed, entry.path()))
        })
        .collect();
    old.sort();
    old.pop();
    for (_, path) in old {
        let _ = fs::remove_dir_all(path);
    }
}
