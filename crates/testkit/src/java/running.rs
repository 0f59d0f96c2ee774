//! A Java program as a child: its lines, its end.
//!
//! States: running, ended. Invariants: it dies with the test process and when dropped; both of its outputs
//! are read to the end by threads of their own, so that it never waits for its reader.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::{Doing, Failure, Result};
use crate::kafka::Machine;

const PAUSE: Duration = Duration::from_millis(10);

type Lines = Arc<Mutex<Vec<String>>>;

/// A Java program that runs.
pub struct Running {
    name: String,
    child: Child,
    machine: Arc<Machine>,
    output: Lines,
    errors: Lines,
    /// The events among the first `parsed` lines.
    events: Vec<Value>,
    parsed: usize,
    readers: Vec<JoinHandle<()>>,
    ended: Option<ExitStatus>,
}

impl Running {
    pub(super) fn start(
        name: &str,
        machine: Arc<Machine>,
        mut command: Command,
        input: Option<Vec<u8>>,
    ) -> Result<Self> {
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .doing(|| format!("start {name}"))?;
        machine.watch(child.id())?;
        let (output, errors) = (Lines::default(), Lines::default());
        let mut readers = Vec::new();
        if let Some(stream) = child.stdout.take() {
            readers.push(read(stream, Arc::clone(&output)));
        }
        if let Some(stream) = child.stderr.take() {
            readers.push(read(stream, Arc::clone(&errors)));
        }
        if let (Some(mut stream), Some(input)) = (child.stdin.take(), input) {
            // A thread of its own: a program may print a lot before it reads all of this.
            std::thread::spawn(move || {
                let _ = stream.write_all(&input);
            });
        }
        Ok(Self {
            name: name.to_owned(),
            child,
            machine,
            output,
            errors,
            events: Vec::new(),
            parsed: 0,
            readers,
            ended: None,
        })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far, line by line.
    pub fn lines(&self) -> Vec<String> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it has printed to its standard error so far.
    pub fn errors(&self) -> String {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// Those lines that are JSON, as the verifiable tools print them.
    pub fn events(&mut self) -> &[Value] {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        // Only what is new: a member under load prints an event per poll.
        for line in output.get(self.parsed..).unwrap_or_default() {
            self.events.extend(serde_json::from_str::<Value>(line).ok());
        }
        self.parsed = output.len();
        &self.events
    }

    /// Waits until the events so far give something, for at most `patience`. Dropping the future changes
    /// nothing.
    pub async fn wait_for<T>(
        &mut self,
        patience: Duration,
        look: impl Fn(&[Value]) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(found) = look(self.events()) {
                return Ok(found);
            }
            if let Some(status) = self.poll_end() {
                return Err(Failure::new(format!(
                    "{} ended ({status}) early:\n{}",
                    self.name,
                    self.errors()
                )));
            }
            if Instant::now() > deadline {
                let lines = self.lines().join("\n");
                return Err(Failure::new(format!(
                    "{} did not do it in {patience:?}; it said:\n{lines}",
                    self.name
                )));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks it to end (SIGTERM), as a service manager would; see [`Running::end`].
    pub fn terminate(&mut self) -> Result<()> {
        if self.poll_end().is_some() {
            return Ok(());
        }
        crate::kafka::signal(self.child.id(), rustix::process::Signal::TERM)
    }

    /// Freezes it (SIGSTOP).
    pub fn freeze(&mut self) -> Result<()> {
        crate::kafka::signal(self.child.id(), rustix::process::Signal::STOP)
    }

    /// Lets it go on.
    pub fn thaw(&mut self) -> Result<()> {
        crate::kafka::signal(self.child.id(), rustix::process::Signal::CONT)
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        if self.poll_end().is_none() {
            let _ = self.child.kill();
            if let Ok(status) = self.child.wait() {
                self.machine.forget(self.child.id());
                self.ended = Some(status);
            }
        }
    }

    /// Waits for its end, for at most `patience`. Dropping the future leaves it running.
    pub async fn end(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.poll_end() {
                // What it printed last is in the pipes still.
                for reader in self.readers.drain(..) {
                    let _ = reader.join();
                }
                return Ok(status);
            }
            if Instant::now() > deadline {
                let errors = self.errors();
                return Err(Failure::new(format!("{} did not end in {patience:?}:\n{errors}", self.name)));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits for its end, which must be a good one. Its lines are the result.
    pub async fn success(mut self, patience: Duration) -> Result<Vec<String>> {
        let status = self.end(patience).await?;
        if !status.success() {
            let (lines, errors) = (self.lines().join("\n"), self.errors());
            return Err(Failure::new(format!("{} failed ({status}):\n{lines}\n{errors}", self.name)));
        }
        Ok(self.lines())
    }

    fn poll_end(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.machine.forget(self.child.id());
            self.ended = Some(status);
        }
        self.ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read(stream: impl Read + Send + 'static, into: Lines) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            into.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    })
}
