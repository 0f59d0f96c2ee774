//! The workspace's own checks: what cargo and clippy cannot know.
//!
//! - The lock file takes none of our crate names from a registry (crates of the same names exist there).
//! - No source file of a crate is longer than a head can hold; of tests it is only said.
//! - A file that calls itself pure in its header has no async, clock, randomness or lock.

use std::fs;
use std::path::{Path, PathBuf};

use crate::lexer::code_only;

/// Longer than this is a failure.
const MOST_LINES: usize = 600;
/// Longer than this is said, and passes.
const MANY_LINES: usize = 500;

/// What a pure core may not name, as words.
const IMPURE: [&str; 12] = [
    "async",
    "await",
    "tokio",
    "fastrand",
    "rand",
    "Mutex",
    "RwLock",
    "SystemTime",
    "thread",
    "spawn",
    "getrandom",
    "now",
];

/// The names of our packages: the folders of `crates/`, with a manifest.
pub fn packages(root: &Path) -> Vec<String> {
    let mut names: Vec<String> = entries(&root.join("crates"))
        .into_iter()
        .filter(|path| path.join("Cargo.toml").is_file())
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

/// The names of the test files that need real brokers: every `crates/*/tests/real_*.rs`, for `--test`.
pub fn real_suites(root: &Path) -> Vec<String> {
    let mut suites = Vec::new();
    for package in packages(root) {
        for path in entries(&root.join("crates").join(&package).join("tests")) {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if stem.starts_with("real_") && path.extension().is_some_and(|end| end == "rs") {
                // What starts the brokers is tried before what needs them.
                suites.push((package != "testkit", stem.to_owned()));
            }
        }
    }
    suites.sort();
    let mut names: Vec<String> = Vec::new();
    for (_, name) in suites {
        // Of two files with one name both run at the first call.
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The lock file must not take one of our names from a registry.
pub fn lock_file(root: &Path) -> Vec<String> {
    match fs::read_to_string(root.join("Cargo.lock")) {
        Ok(text) => from_registry(&text, &packages(root)),
        Err(error) => vec![format!("Cargo.lock: {error}")],
    }
}

fn from_registry(lock: &str, ours: &[String]) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        if let (Some(name), Some(_)) = (value("name"), value("source"))
            && ours.iter().any(|our| our == name)
        {
            wrong.push(format!("Cargo.lock takes {name} from a registry, it must be the workspace's own"));
        }
    }
    wrong
}

/// No source file above the limit.
pub fn file_lengths(root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for path in sources(root) {
        let lines = fs::read_to_string(&path).map_or(0, |text| text.lines().count());
        let name = path.strip_prefix(root).unwrap_or(&path).display();
        // A test file is a list of cases: long is not good, and not tangled either.
        if lines > MOST_LINES && path.components().any(|part| part.as_os_str() == "src") {
            wrong.push(format!("{name}: {lines} lines, at most {MOST_LINES}"));
        } else if lines > MANY_LINES {
            println!("long: {name}: {lines} lines");
        }
    }
    wrong
}

/// How a header says that its file is pure.
const PURE: [&str; 8] =
    ["Pure core", "Pure.", "Pure:", "Pure,", ", pure.", ", pure:", "; pure.", "pure state machine"];

fn is_pure(source: &str) -> bool {
    let header: String = source.lines().map_while(|line| line.strip_prefix("//!")).collect();
    PURE.iter().any(|sign| header.contains(sign))
}

/// Files whose header says that they are pure keep their word.
pub fn pure_cores(root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut cores = 0;
    for path in sources(root) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if !is_pure(&text) {
            continue;
        }
        cores += 1;
        for (line, word) in impurities(&text) {
            wrong.push(format!(
                "{}:{line}: `{word}` in a pure core",
                path.strip_prefix(root).unwrap_or(&path).display()
            ));
        }
    }
    println!("{cores} pure cores");
    wrong
}

fn impurities(source: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (index, line) in code_only(source).lines().enumerate() {
        for word in line.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if let Some(&bad) = IMPURE.iter().find(|&&bad| bad == word) {
                let allowed = match bad {
                    // The usual name of the argument that brings the time in: only the call is impure.
                    "now" => !line.contains("::now("),
                    // A generator whose seed comes in as an argument gives the same numbers every time.
                    "fastrand" => line.contains("fastrand::Rng") && !line.contains("Rng::new("),
                    // The type of an argument, as the paused clock wants it.
                    "tokio" => line.contains("tokio::time::Instant") && !line.contains("::now("),
                    // A future that is ready: a trait's method that does nothing.
                    "async" => line.contains("Box::pin(async { Ok(()) })"),
                    _ => false,
                };
                if !allowed {
                    found.push((index + 1, bad));
                }
            }
        }
    }
    found
}

/// Every Rust source file of the workspace that is built into a crate.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.join("xtask/src")];
    for package in packages(root) {
        for folder in ["src", "tests", "examples", "benches"] {
            folders.push(root.join("crates").join(&package).join(folder));
        }
    }
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::{from_registry, impurities, is_pure};

    #[test]
    fn a_package_of_ours_from_a_registry_is_found() {
        let lock = "version = 4\n\n[[package]]\nname = \"kafka-meta\"\nversion = \"0.4.0\"\n\n[[package]]\nname = \"bytes\"\n\
                    version = \"1\"\nsource = \"registry+x\"\n";
        let ours = ["kafka-meta".to_owned()];
        assert!(from_registry(lock, &ours).is_empty());
        let taken = format!(
            "{lock}\n[[package]]\nname = \"kafka-meta\"\nversion = \"0.3.0\"\nsource = \"registry+x\"\n"
        );
        assert_eq!(from_registry(&taken, &ours).len(), 1);
    }

    #[test]
    fn a_clock_in_a_pure_core_is_found_and_an_argument_is_not() {
        let source = "//! Pure core: x\nfn f(now: Instant) { g(now) }\nfn g() { Instant::now(); }\n// tokio\nuse tokio::x;\n";
        assert_eq!(impurities(source), [(3, "now"), (5, "tokio")]);
        assert!(impurities("//! Pure.\nuse tokio::time::Instant;\n").is_empty());
        assert_eq!(impurities("//! Pure.\nlet x = tokio::time::Instant::now();\n").len(), 2);
    }

    #[test]
    fn a_header_says_whether_its_file_is_pure() {
        assert!(is_pure("//! What an answer says.\n//! Pure.\nuse x;\n"));
        assert!(is_pure("//! What to commit next: a pure state machine.\n"));
        assert!(!is_pure("//! Zstandard in pure Rust.\n\n// Pure.\n"));
    }

    #[test]
    fn tests_of_a_pure_core_may_use_a_clock() {
        assert!(
            impurities("//! Pure core\n#[cfg(test)]\nmod tests { fn f() { Instant::now(); } }\n").is_empty()
        );
    }
}
