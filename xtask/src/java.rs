//! Whether real brokers can be started here: Java 17 or newer and Maven.
//!
//! What it is not: a check that the jars can be resolved. That shows when the first cluster starts.

use std::process::{Command, Stdio};

/// The first Java release that runs every Kafka version of the test matrix.
const OLDEST: u32 = 17;

/// What is missing to start real brokers, if anything.
pub fn missing() -> Option<String> {
    if others_brokers() {
        return None;
    }
    let Some(text) = output("java", "-version") else {
        return Some("no java here".to_owned());
    };
    match release(&text) {
        Some(release) if release >= OLDEST => {}
        Some(release) => return Some(format!("java is {release}, {OLDEST} or newer is needed")),
        None => return Some("cannot tell java's release".to_owned()),
    }
    if output("mvn", "--version").is_none() {
        return Some("no mvn here".to_owned());
    }
    None
}

/// Whether containers or a cluster that is already there were chosen: then nothing of Java is needed.
pub fn others_brokers() -> bool {
    std::env::var_os("TESTKIT_KAFKA").is_some_and(|chosen| chosen != "jvm")
}

fn output(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    // Java writes its version to standard error.
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some(text)
}

/// `openjdk version "17.0.15" …` is 17, `java version "1.8.0_292"` is 8.
fn release(text: &str) -> Option<u32> {
    let quoted = text.split('"').nth(1)?;
    let mut numbers = quoted.split(['.', '_', '-', '+']).map(str::parse::<u32>);
    match numbers.next()?.ok()? {
        1 => numbers.next()?.ok(),
        release => Some(release),
    }
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn the_release_is_read_from_new_and_old_version_texts() {
        assert_eq!(release("openjdk version \"17.0.15\" 2025-04-15\n"), Some(17));
        assert_eq!(release("openjdk version \"25\" 2025-09-16\n"), Some(25));
        assert_eq!(release("openjdk version \"24-ea\" 2025-03-18\n"), Some(24));
        assert_eq!(release("java version \"1.8.0_292\"\n"), Some(8));
        assert_eq!(release("no such thing"), None);
    }
}
