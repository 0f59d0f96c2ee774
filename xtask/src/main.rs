//! The workspace's own commands: `cargo xtask test`, `cargo xtask ci`, `cargo xtask prepare`.
//!
//! What it is: a thin runner that calls cargo in a fixed order, times each step and sums up at the end. It is
//! the one definition of "everything passes": developers, `.ci/run` and the hosted workflow all call it. What
//! it is not: a build system. It has no dependencies, so that it compiles in a second.
//!
//! Invariant: a suite that did not run is never silent. The last line says so, and under `CI` it is a
//! failure.

mod checks;
mod java;
mod lexer;
mod steps;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use steps::Steps;

const USAGE: &str = "usage: cargo xtask <command>

  test [--real | --no-real] [--only NAME]
              unit, integration and doc tests, then the suites against real brokers when Java 17+ and Maven are here.
              --real     not running the real-broker suites is a failure (the same when CI is set)
              --no-real  leave them out
              --only     only the real-broker suites whose file name contains NAME
  ci          formatting, lints, docs, each crate alone, the workspace's own checks, then `test`
  checks      only the workspace's own checks (lock file, file lengths, pure cores)
  prepare     resolve Kafka's jars and record class-data archives, so that later starts are quick
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut steps = Steps::new(workspace_root());
    let last = match words.as_slice() {
        ["test", options @ ..] => match TestOptions::parse(options) {
            Ok(options) => test(&mut steps, &options),
            Err(wrong) => return usage(&wrong),
        },
        ["ci"] => {
            lint(&mut steps);
            own_checks(&mut steps);
            test(&mut steps, &TestOptions::default())
        }
        ["checks"] => {
            own_checks(&mut steps);
            String::new()
        }
        ["prepare"] => prepare(&mut steps),
        other => return usage(&format!("unknown command: {}", other.join(" "))),
    };
    steps.finish(&last)
}

fn usage(wrong: &str) -> ExitCode {
    eprintln!("{wrong}\n\n{USAGE}");
    ExitCode::from(2)
}

fn workspace_root() -> PathBuf {
    // The manifest of this crate is one level below the root.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

#[derive(Default)]
struct TestOptions {
    require_real: bool,
    leave_out_real: bool,
    only: Option<String>,
}

impl TestOptions {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            match *word {
                "--real" => options.require_real = true,
                "--no-real" => options.leave_out_real = true,
                "--only" => {
                    options.only = Some(rest.next().ok_or("--only wants a name")?.to_string());
                }
                other => return Err(format!("unknown option: {other}")),
            }
        }
        if options.require_real && options.leave_out_real {
            return Err("--real and --no-real contradict each other".to_owned());
        }
        Ok(options)
    }
}

fn lint(steps: &mut Steps) {
    steps.cargo("fmt", &["fmt", "--all", "--check"], &[]);
    steps.cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]);
    let deny = [("RUSTDOCFLAGS", "-D warnings")];
    steps.cargo("rustdoc", &["doc", "--workspace", "--no-deps"], &deny);
    for package in checks::packages(steps.root()) {
        // Feature unification hides a missing feature as long as the whole workspace is built at once.
        steps.cargo(&format!("check {package} alone"), &["check", "-p", &package], &[]);
        steps.cargo(
            &format!("check {package} --no-default-features"),
            &["check", "-p", &package, "--no-default-features"],
            &[],
        );
    }
    // Off by default, so no other step sees it.
    let oidc = ["clippy", "-p", "kafka-meta", "--all-targets", "--features", "oidc", "--", "-D", "warnings"];
    steps.cargo("clippy kafka-meta --features oidc", &oidc, &[]);
    steps.cargo("check testkit --features docker", &["check", "-p", "testkit", "--features", "docker"], &[]);
}

fn own_checks(steps: &mut Steps) {
    steps.own("lock file", checks::lock_file);
    steps.own("file lengths", checks::file_lengths);
    steps.own("pure cores", checks::pure_cores);
}

fn prepare(steps: &mut Steps) -> String {
    match java::missing() {
        Some(what) => {
            steps.fail("prepare", &what);
            what
        }
        None => {
            let arguments = ["test", "--workspace", "--test", "prepare", "--", "--nocapture"];
            steps.cargo("prepare", &arguments, &[("TESTKIT_PREPARE", "1")]);
            String::new()
        }
    }
}

fn test(steps: &mut Steps, options: &TestOptions) -> String {
    if options.only.is_none() {
        steps.cargo(
            "unit and integration tests",
            &["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"],
            &[],
        );
        let oidc = ["test", "-p", "kafka-meta", "--features", "oidc", "--lib"];
        steps.cargo("unit tests of kafka-meta --features oidc", &oidc, &[]);
        steps.cargo("doc tests", &["test", "--workspace", "--doc"], &[]);
    }
    let required = options.require_real || std::env::var_os("CI").is_some();
    if options.leave_out_real {
        return "real-broker suites: NOT RUN (left out by --no-real)".to_owned();
    }
    if let Some(what) = java::missing() {
        let text = format!("real-broker suites: NOT RUN ({what})");
        if required {
            steps.fail("real-broker suites", &what);
        }
        return text;
    }
    let wanted = options.only.as_deref().unwrap_or_default();
    let suites: Vec<String> =
        checks::real_suites(steps.root()).into_iter().filter(|suite| suite.contains(wanted)).collect();
    if suites.is_empty() {
        return "real-broker suites: NOT RUN (there are none of that name)".to_owned();
    }
    if !java::others_brokers() {
        // A few seconds once, about one in the start of each node from then on.
        prepare(steps);
    }
    for suite in &suites {
        // One at a time: two clusters on two cores only make each other time out. For the whole workspace,
        // since one package alone would have its dependencies compiled anew with fewer features.
        let arguments = ["test", "--workspace", "--test", suite, "--", "--test-threads=1", "--nocapture"];
        steps.cargo(&format!("real brokers: {suite}"), &arguments, &[("TESTKIT_REAL", "1")]);
    }
    format!("real-broker suites: {} ran", suites.len())
}
