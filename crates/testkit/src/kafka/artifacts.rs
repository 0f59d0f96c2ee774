//! Kafka's published jars, resolved once by Maven into `target/testkit/VERSION/libs`.
//!
//! What it is: a generated POM, one `mvn` call, and the class path that comes out of it (jar by jar and
//! sorted: class-data archives are bound to it). Which registry is asked is Maven's own configuration. What
//! it is not: a Maven client.
//!
//! Invariant: `libs` exists only complete (it is renamed into place), and only one process at a time resolves
//! a version.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use crate::failure::{Doing, Failure, Result};

/// The version tests run against unless they say otherwise.
pub const DEFAULT_VERSION: &str = "4.3.1";

/// What a broker needs and no more: quick to start, small, one core. Class-data archives are bound to them as
/// well.
pub(crate) const JVM_FLAGS: [&str; 3] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"];

/// A binding for the logging that 4.x publishes without one.
const LOG4J: &str = "2.24.3";

/// The jars of one version.
#[derive(Debug, Clone)]
pub(crate) struct Artifacts {
    pub(crate) version: String,
    pub(crate) folder: PathBuf,
    pub(crate) class_path: String,
}

impl Artifacts {
    /// Finds the jars, or has Maven fetch them. Blocks.
    pub(crate) fn resolve(version: &str) -> Result<Self> {
        let valid =
            !version.is_empty() && version.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
        if !valid {
            return Err(Failure::new(format!("not a Kafka version: {version:?}")));
        }
        let folder = root().join(version);
        fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
        let path = folder.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = lock.doing(|| format!("open {}", path.display()))?;
        flock(&lock, FlockOperation::LockExclusive).doing(|| format!("lock {}", path.display()))?;
        let libs = folder.join("libs");
        if !libs.is_dir() {
            fetch(version, &folder, &libs)?;
        }
        Ok(Self { version: version.to_owned(), class_path: class_path(&libs)?, folder })
    }

    pub(crate) fn is_3x(&self) -> bool {
        self.version.starts_with("3.")
    }

    /// Where this machine's class-data archive for these jars is, or would be.
    pub(crate) fn archive(&self) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        self.class_path.hash(&mut hasher);
        JVM_FLAGS.hash(&mut hasher);
        java_version().hash(&mut hasher);
        self.folder.join(format!("classes-{:016x}.jsa", hasher.finish()))
    }

    /// The option that makes this version's logging write to standard output.
    pub(crate) fn logging(&self) -> Result<String> {
        self.logging_to("", "INFO", ["System.out", "SYSTEM_OUT"])
    }

    /// The option that makes this version's logging write warnings to standard error: a tool's standard
    /// output is its result.
    pub(crate) fn tool_logging(&self) -> Result<String> {
        self.logging_to("tool-", "WARN", ["System.err", "SYSTEM_ERR"])
    }

    fn logging_to(&self, prefix: &str, level: &str, targets: [&str; 2]) -> Result<String> {
        let (name, option, text) = if self.is_3x() {
            ("log4j.properties", "-Dlog4j.configuration=file:", LOG4J_1_PROPERTIES)
        } else {
            ("log4j2.properties", "-Dlog4j2.configurationFile=", LOG4J_2_PROPERTIES)
        };
        let [old, new] = targets;
        let text = text.replace("LEVEL", level).replace("OLD", old).replace("NEW", new);
        let path = self.folder.join(format!("{prefix}{name}"));
        if !fs::read_to_string(&path).is_ok_and(|there| there == text) {
            fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
        }
        Ok(format!("{option}{}", path.display()))
    }
}

const LOG4J_1_PROPERTIES: &str = "log4j.rootLogger=LEVEL,c
log4j.appender.c=org.apache.log4j.ConsoleAppender
log4j.appender.c.Target=OLD
log4j.appender.c.layout=org.apache.log4j.PatternLayout
log4j.appender.c.layout.ConversionPattern=[%d] %p %m (%c)%n
";

const LOG4J_2_PROPERTIES: &str = "status=error
appender.c.type=Console
appender.c.name=C
appender.c.target=NEW
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=LEVEL
rootLogger.appenderRefs=c
rootLogger.appenderRef.c.ref=C
";

/// The kit's folder: `TESTKIT_DIR`, else `testkit` in the target folder.
pub(crate) fn root() -> PathBuf {
    if let Some(folder) = std::env::var_os("TESTKIT_DIR") {
        return folder.into();
    }
    if let Some(target) = std::env::var_os("CARGO_TARGET_DIR") {
        return Path::new(&target).join("testkit");
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).join("target/testkit")
}

fn java_version() -> String {
    let output = Command::new("java").arg("-version").stdin(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default()
}

fn fetch(version: &str, folder: &Path, libs: &Path) -> Result<()> {
    let fetched = folder.join("libs.part");
    let pom = folder.join("pom.xml");
    fs::write(&pom, project(version)).doing(|| format!("write {}", pom.display()))?;
    let mut said = String::new();
    // A registry that stumbles once is not a reason to fail a whole run.
    for _ in 0..3 {
        let _ = fs::remove_dir_all(&fetched);
        let output = Command::new("mvn")
            .args(["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"])
            .arg(format!("-DoutputDirectory={}", fetched.display()))
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .doing(|| "run mvn".to_owned())?;
        if output.status.success() {
            return fs::rename(&fetched, libs).doing(|| format!("rename to {}", libs.display()));
        }
        said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    Err(Failure::new(format!("Maven could not resolve Kafka {version}:\n{said}")))
}

fn project(version: &str) -> String {
    let mut dependencies = String::new();
    let mut add = |group: &str, artifact: &str, version: &str| {
        // Writing to a string cannot fail.
        let _ = write!(
            dependencies,
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>"
        );
    };
    add("org.apache.kafka", "kafka_2.13", version);
    // The command-line tools; on 3.x their logging binding comes along.
    add("org.apache.kafka", "kafka-tools", version);
    if !version.starts_with("3.") {
        add("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J);
        add("org.apache.logging.log4j", "log4j-core", LOG4J);
        add("org.apache.logging.log4j", "log4j-1.2-api", LOG4J);
    }
    format!(
        "<project><modelVersion>4.0.0</modelVersion>\
         <groupId>testkit</groupId><artifactId>libs</artifactId><version>1</version><packaging>pom</packaging>\
         <dependencies>{dependencies}</dependencies></project>\n"
    )
}

fn class_path(libs: &Path) -> Result<String> {
    let mut jars = Vec::new();
    for entry in fs::read_dir(libs).doing(|| format!("read {}", libs.display()))? {
        let path = entry.doing(|| format!("read {}", libs.display()))?.path();
        if path.extension().is_some_and(|end| end == "jar") {
            jars.push(path.display().to_string());
        }
    }
    jars.sort();
    Ok(jars.join(":"))
}
