//! Formatted storage folders, made once and copied.
//!
//! Kafka's storage tool is a JVM of its own (seconds on a small machine), and of what it writes only
//! `meta.properties` differs between nodes. The checkpoint beside it (a file up to 4.3, in the metadata log's
//! folder from 4.4 on) depends on the version, the features and the SCRAM users. So the tool runs once for
//! each such set, and nodes get copies.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::artifacts::{Artifacts, JVM_FLAGS};
use crate::failure::{Doing, Failure, Result};

/// Every cluster of the kit has this id.
pub(crate) const CLUSTER_ID: &str = "4L6g3nShT-eMCtK--X86sw";

const META: &str = "meta.properties";
const CONFIG: &str = "format.properties";

/// Makes `folder` the formatted storage of a node. `extra` are more arguments of the storage tool. Blocks.
pub(crate) fn format(artifacts: &Artifacts, extra: &[String], node: i32, folder: &Path) -> Result<()> {
    let template = template(artifacts, extra)?;
    copy(&template, folder).doing(|| format!("copy into {}", folder.display()))?;
    let text = format!(
        "version=1\ncluster.id={CLUSTER_ID}\nnode.id={node}\ndirectory.id={}\n",
        kafka_id(fastrand::u128(..))
    );
    let path = folder.join(META);
    fs::write(&path, text).doing(|| format!("write {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == META || name == CONFIG {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to.join(name))?;
        } else {
            fs::copy(entry.path(), to.join(name))?;
        }
    }
    Ok(())
}

fn template(artifacts: &Artifacts, extra: &[String]) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    extra.hash(&mut hasher);
    let made = artifacts.folder.join(format!("formatted-{:016x}", hasher.finish()));
    if made.is_dir() {
        return Ok(made);
    }
    let part = artifacts.folder.join(format!("formatted-{}.part", std::process::id()));
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(&part).doing(|| format!("create {}", part.display()))?;
    let config = part.join(CONFIG);
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
         controller.quorum.voters=1@127.0.0.1:9093\nlog.dirs={}\n",
        part.display()
    );
    fs::write(&config, text).doing(|| format!("write {}", config.display()))?;
    let output = Command::new("java")
        .args(JVM_FLAGS)
        .arg(artifacts.logging()?)
        .args(["-cp", &artifacts.class_path, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"])
        .arg(&config)
        .args(extra)
        .stdin(Stdio::null())
        .output()
        .doing(|| "run Kafka's storage tool".to_owned())?;
    if !output.status.success() || !part.join(META).is_file() {
        return Err(Failure::new(format!(
            "Kafka's storage tool failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    // Another process may have been quicker: its result is as good.
    if fs::rename(&part, &made).is_err() {
        let _ = fs::remove_dir_all(&part);
    }
    Ok(made)
}

/// A random id in Kafka's text form: 22 characters of URL-safe base64, never with a leading dash.
fn kafka_id(bits: u128) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    // 128 bits are 21 digits of six bits and one of two, which base64 pads on its right.
    let letter = |six: u128| {
        LETTERS.get(usize::try_from(six & 63).unwrap_or_default()).copied().map_or('A', char::from)
    };
    let mut text: String = (0..21).map(|index| letter(bits >> (122 - 6 * index))).collect();
    text.push(letter((bits & 3) << 4));
    if text.starts_with('-') { text.replacen('-', "A", 1) } else { text }
}

#[cfg(test)]
mod tests {
    use super::kafka_id;

    #[test]
    fn ids_have_kafkas_form() {
        assert_eq!(kafka_id(0), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(kafka_id(u128::MAX), "_____________________w");
        assert_eq!(kafka_id(0xF8 << 120).chars().next(), Some('A'));
    }
}
