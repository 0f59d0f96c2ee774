//! One broker as a child process: start, signals, waiting for its end.
//!
//! States: running, frozen (SIGSTOP), gone. Invariants: a running child is on the watcher's list before
//! anybody waits for it, and off it once it has been waited for; dropping a broker kills it.
//!
//! Why not tokio's child: a cluster shared by a test binary outlives the runtime of the test that started it.

use std::fs::{self, OpenOptions};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::machine::Machine;
use crate::failure::{Doing, Failure, Result};

pub(crate) struct Process {
    machine: Arc<Machine>,
    child: Child,
    log: PathBuf,
    frozen: bool,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` with both outputs appended to `log`.
    pub(crate) fn start(machine: Arc<Machine>, mut command: Command, log: PathBuf) -> Result<Self> {
        let opened = OpenOptions::new().create(true).append(true).open(&log);
        let file = opened.doing(|| format!("open {}", log.display()))?;
        let twin = file.try_clone().doing(|| format!("open {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(twin);
        // An interrupt at the terminal ends the test, and that ends the broker; Java need not hear of it.
        command.process_group(0);
        let child = command.spawn().doing(|| "start java".to_owned())?;
        let process = Self { machine, child, log, frozen: false, ended: None };
        process.machine.watch(process.child.id())?;
        Ok(process)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.machine.forget(self.child.id());
            self.ended = Some(status);
        }
        self.ended
    }

    pub(crate) fn signal(&mut self, which: Signal) -> Result<()> {
        if self.ended().is_some() {
            return Err(Failure::new("the broker is not running"));
        }
        // Not waited for yet, so the number is still its own.
        signal(self.child.id(), which)?;
        if which == Signal::STOP || which == Signal::CONT {
            self.frozen = which == Signal::STOP;
        }
        Ok(())
    }

    /// Whether it runs and is not frozen.
    pub(crate) fn is_live(&mut self) -> bool {
        self.ended().is_none() && !self.frozen
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Kills it and waits for its end, which is immediate.
    pub(crate) fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            if let Ok(status) = self.child.wait() {
                self.machine.forget(self.child.id());
                self.ended = Some(status);
            }
        }
    }

    /// Waits for its end. Dropping the future changes nothing.
    pub(crate) async fn end(&mut self, patience: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if started.elapsed() > patience {
                return Err(Failure::new(format!("process {} did not end in {patience:?}", self.pid())));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The end of its log, for an error's text.
    pub(crate) fn last_words(&self) -> String {
        last_lines(&self.log, 40)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Signals a child that has not been waited for.
pub(crate) fn signal(pid: u32, which: Signal) -> Result<()> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = number.ok_or_else(|| Failure::new("a process id out of range"))?;
    kill_process(number, which).doing(|| format!("signal process {pid}"))
}

pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

fn last_lines(path: &Path, count: usize) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}
