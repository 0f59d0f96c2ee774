//! What a cluster shares with the rest of the machine: the lock, the list of processes, the watcher, the
//! ports.
//!
//! - **Lock**: one test process at a time has brokers on a machine. Two clusters on two cores only make each
//!   other time out, and a timeout in a test looks like a bug. Clusters of one process share the lock.
//! - **Watcher**: a small `sh` that reads a pipe held by this process and kills the brokers when the pipe
//!   closes, however this process ends (a panic, a `kill -9`, a test binary that leaves a static behind).
//! - **Sweep**: who takes the lock kills what an earlier holder may have left, by its pid file. With the lock
//!   in hand nothing listed there can belong to anybody alive.
//! - **Ports**: below the range from which the system takes ports of outgoing connections, so that a broker
//!   which is restarted finds its own port free.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use crate::failure::{Doing, Failure, Result};

/// A mark in each broker's command line; only such processes are ever swept.
pub(crate) const MARK: &str = "-Dtestkit.broker=";

/// Another suite may legitimately take this long.
const LOCK_PATIENCE: Duration = Duration::from_secs(20 * 60);

const WATCHER: &str = r#"trap '' INT TERM HUP
pids=
while read -r verb pid; do
  case $verb in
    add) pids="$pids $pid" ;;
    del) left=; for p in $pids; do [ "$p" = "$pid" ] || left="$left $p"; done; pids=$left ;;
  esac
done
[ -z "$pids" ] || kill -9 $pids"#;

static CURRENT: Mutex<Weak<Machine>> = Mutex::new(Weak::new());

/// This process's right to run brokers; it ends when the last cluster drops it.
pub(crate) struct Machine {
    folder: PathBuf,
    watcher: Mutex<Watcher>,
    _lock: File,
}

struct Watcher {
    pipe: ChildStdin,
    pids: Vec<u32>,
}

impl Machine {
    /// Waits until no other process has brokers here, then sweeps what was left behind. Dropping the future
    /// gives up.
    pub(crate) async fn acquire() -> Result<Arc<Self>> {
        let started = Instant::now();
        let mut told = false;
        loop {
            if let Some(machine) = Self::try_acquire()? {
                return Ok(machine);
            }
            if !told && started.elapsed() > Duration::from_secs(1) {
                told = true;
                let holder = fs::read_to_string(folder()?.join("lock")).unwrap_or_default();
                eprintln!("waiting for another test process to end its brokers: {holder}");
            }
            if started.elapsed() > LOCK_PATIENCE {
                return Err(Failure::new(
                    "another test process has had brokers on this machine for too long",
                ));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn try_acquire() -> Result<Option<Arc<Self>>> {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(machine) = current.upgrade() {
            return Ok(Some(machine));
        }
        let folder = folder()?;
        let path = folder.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = lock.doing(|| format!("open {}", path.display()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => return Ok(None),
            Err(error) => return Err(Failure::because(format!("lock {}", path.display()), error)),
        }
        // For those who wait; nothing depends on it.
        let own = std::env::current_exe().unwrap_or_default();
        let _ = lock
            .set_len(0)
            .and_then(|()| (&lock).write_all(format!("{} {}", std::process::id(), own.display()).as_bytes()));
        sweep(&folder.join("pids"));
        let mut watcher = Command::new("sh")
            .args(["-c", WATCHER])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Not in the terminal's foreground group: an interrupt must reach the test, not its watcher.
            .process_group(0)
            .spawn()
            .doing(|| "start the watcher (sh)".to_owned())?;
        let pipe = watcher.stdin.take().ok_or_else(|| Failure::new("the watcher has no pipe"))?;
        let watcher = Mutex::new(Watcher { pipe, pids: Vec::new() });
        let machine = Arc::new(Self { folder, watcher, _lock: lock });
        *current = Arc::downgrade(&machine);
        Ok(Some(machine))
    }

    /// From now on the process dies with this one.
    pub(crate) fn watch(&self, pid: u32) -> Result<()> {
        self.tell("add", pid, |pids| pids.push(pid))
    }

    /// The process has been waited for: its number may be given to another from now on.
    pub(crate) fn forget(&self, pid: u32) {
        // A watcher that is gone cannot kill the wrong process either.
        let _ = self.tell("del", pid, |pids| pids.retain(|&other| other != pid));
    }

    fn tell(&self, verb: &str, pid: u32, change: impl FnOnce(&mut Vec<u32>)) -> Result<()> {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut watcher.pids);
        let list: String = watcher.pids.iter().map(|pid| format!("{pid}\n")).collect();
        let path = self.folder.join("pids");
        fs::write(&path, list).doing(|| format!("write {}", path.display()))?;
        watcher.pipe.write_all(format!("{verb} {pid}\n").as_bytes()).doing(|| "tell the watcher".to_owned())
    }
}

/// Where the lock and the list of processes are: one place for all work trees of a user.
fn folder() -> Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("kafka-testkit-{user}"));
    fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
    Ok(folder)
}

/// Kills what a holder of the lock left behind that died before its watcher did its work.
fn sweep(list: &Path) {
    let Ok(text) = fs::read_to_string(list) else { return };
    for pid in text.lines().filter_map(|line| line.trim().parse::<i32>().ok()) {
        if is_ours(pid)
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let _ = fs::remove_file(list);
}

fn is_ours(pid: i32) -> bool {
    if let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) {
        return contains(&line, MARK.as_bytes());
    }
    let output = Command::new("ps").args(["-o", "command=", "-p", &pid.to_string()]).output();
    output.is_ok_and(|output| contains(&output.stdout, MARK.as_bytes()))
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// `count` ports of 127.0.0.1 that nobody listens on.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>> {
    let mut held: Vec<(u16, TcpListener)> = Vec::with_capacity(count);
    for _ in 0..10_000 {
        if held.len() == count {
            return Ok(held.into_iter().map(|(port, _)| port).collect());
        }
        let port = fastrand::u16(20_000..32_000);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            held.push((port, listener));
        }
    }
    Err(Failure::new("no free ports on 127.0.0.1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_distinct_and_below_the_range_of_outgoing_connections() {
        let mut ports = free_ports(40).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 40);
        assert!(ports.iter().all(|&port| port < 32_768));
    }

    #[test]
    fn a_process_without_our_mark_is_not_ours() {
        assert!(!is_ours(std::process::id().cast_signed()));
    }
}
