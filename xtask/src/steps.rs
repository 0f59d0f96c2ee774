//! Runs steps, times them, and sums them up.
//!
//! What it is: a list of (name, seconds, result). A failed step does not stop the later ones: one run shows everything that
//! is wrong. What it is not: parallel. Two cores are already used up by one cargo.
//!
//! Invariant: the exit code is a failure exactly when one step failed.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

struct Done {
    name: String,
    took: Duration,
    passed: bool,
}

/// The steps run so far.
pub struct Steps {
    root: PathBuf,
    done: Vec<Done>,
    started: Instant,
}

impl Steps {
    /// Steps that run with `root` as their working folder.
    pub fn new(root: PathBuf) -> Self {
        Self { root, done: Vec::new(), started: Instant::now() }
    }

    /// The workspace's root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Runs cargo with its output passed through.
    pub fn cargo(&mut self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) {
        println!("\n== {name}: cargo {}", arguments.join(" "));
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let started = Instant::now();
        let mut command = Command::new(cargo);
        command.args(arguments).current_dir(&self.root).envs(environment.iter().copied());
        let passed = match command.status() {
            Ok(status) => status.success(),
            Err(error) => {
                println!("cannot run cargo: {error}");
                false
            }
        };
        self.note(name, started.elapsed(), passed);
    }

    /// Runs one of our own checks; it gives back what it found wrong.
    pub fn own(&mut self, name: &str, check: impl FnOnce(&Path) -> Vec<String>) {
        println!("\n== {name}");
        let started = Instant::now();
        let wrong = check(&self.root);
        for line in &wrong {
            println!("{line}");
        }
        self.note(name, started.elapsed(), wrong.is_empty());
    }

    /// Notes a step that could not be run as failed.
    pub fn fail(&mut self, name: &str, why: &str) {
        println!("\n== {name}: {why}");
        self.note(name, Duration::ZERO, false);
    }

    fn note(&mut self, name: &str, took: Duration, passed: bool) {
        self.done.push(Done { name: name.to_owned(), took, passed });
    }

    /// Prints the summary, `last` as its last line.
    pub fn finish(self, last: &str) -> ExitCode {
        println!("\n== seconds per step");
        for step in &self.done {
            let mark = if step.passed { "ok    " } else { "FAILED" };
            println!("{mark} {:8.1}  {}", step.took.as_secs_f64(), step.name);
        }
        let failed: Vec<&str> =
            self.done.iter().filter(|step| !step.passed).map(|step| step.name.as_str()).collect();
        println!("       {:8.1}  in all", self.started.elapsed().as_secs_f64());
        if !failed.is_empty() {
            println!("failed: {}", failed.join(", "));
        }
        if !last.is_empty() {
            println!("{last}");
        }
        if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
