//! Kafka's own Java clients and tools as children, and two small Java programs of the kit's for writing and
//! reading in bulk.
//!
//! ```no_run
//! # async fn f(kafka: testkit::Kafka) -> testkit::Result<()> {
//! use testkit::java::{Java, ProducePlan};
//!
//! let java = Java::new(&kafka).await?;
//! let plan = ProducePlan { count: 10_000, partitions: 3, headers: 4, ..ProducePlan::new("orders") };
//! let written = java.produce(plan.producer("compression.type", "zstd")).await?;
//! let read = java.read(&["orders"], true).await?;
//! assert_eq!(written.len(), read.len());
//! let mut member = java.verifiable_consumer("orders", "group", &["--verbose"])?;
//! # let _ = &mut member; Ok(()) }
//! ```
//!
//! Each program is a JVM: about a second to start. What it is not: for anything that a raw writer can do as
//! well.

mod record;
mod running;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

pub use record::JavaRecord;
pub use running::Running;

use crate::failure::{Doing, Failure, Result};
use crate::kafka::{Artifacts, DEFAULT_VERSION, JVM_FLAGS, Kafka, MARK, Machine};

const PATIENCE: Duration = Duration::from_secs(180);

const SOURCES: [(&str, &str); 3] = [
    ("Hex.java", include_str!("../java/Hex.java")),
    ("JavaProducer.java", include_str!("../java/JavaProducer.java")),
    ("JavaReader.java", include_str!("../java/JavaReader.java")),
];

/// What [`Java::produce`] writes.
#[derive(Debug, Clone)]
pub struct ProducePlan {
    /// The topic.
    pub topic: String,
    /// Record n goes to partition n modulo this (1).
    pub partitions: i32,
    /// How many records (10). Record n has the value "partition-n".
    pub count: u64,
    /// Values are padded to at least this many bytes (0).
    pub size: usize,
    /// Headers per record (0); names come twice, each third value is null.
    pub headers: u32,
    /// Keys are "key-" and n modulo this; 0, the default, means no keys.
    pub keys: u64,
    /// Each record whose number is a multiple of this is a tombstone; 0, the default, means none.
    pub tombstones: u64,
    /// Record n has this timestamp plus n; by default the time of writing.
    pub timestamp: Option<i64>,
    /// Records per transaction; 0, the default, means none. Needs `transactional.id` in the configuration.
    pub transaction: u64,
    /// Each transaction whose number (from 1) is a multiple of this is aborted; 0, the default, means none.
    pub aborts: u64,
    /// The producer's configuration.
    pub config: Vec<(String, String)>,
    /// Whether the records are printed, and so are the result (true). For bulk: false.
    pub print: bool,
}

impl ProducePlan {
    /// Ten plain records to partition 0.
    pub fn new(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            partitions: 1,
            count: 10,
            size: 0,
            headers: 0,
            keys: 0,
            tombstones: 0,
            timestamp: None,
            transaction: 0,
            aborts: 0,
            config: Vec::new(),
            print: true,
        }
    }

    /// With a setting of the producer's configuration.
    #[must_use]
    pub fn producer(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.push((key.into(), value.into()));
        self
    }

    fn arguments(&self, bootstrap: &str) -> Vec<String> {
        let mut all = vec![
            format!("topic={}", self.topic),
            format!("partitions={}", self.partitions),
            format!("count={}", self.count),
            format!("size={}", self.size),
            format!("headers={}", self.headers),
            format!("keys={}", self.keys),
            format!("tombstones={}", self.tombstones),
            format!("transaction={}", self.transaction),
            format!("aborts={}", self.aborts),
            format!("print={}", self.print),
            format!("producer.bootstrap.servers={bootstrap}"),
        ];
        if let Some(timestamp) = self.timestamp {
            all.push(format!("timestamp={timestamp}"));
        }
        all.extend(self.config.iter().map(|(key, value)| format!("producer.{key}={value}")));
        all
    }
}

/// Java's side of a test.
pub struct Java {
    artifacts: Artifacts,
    machine: Arc<Machine>,
    classes: PathBuf,
    bootstrap: String,
}

impl Java {
    /// Clients and tools of the cluster's own version.
    pub async fn new(kafka: &Kafka) -> Result<Self> {
        Self::at(&kafka.bootstrap(), kafka.version().unwrap_or(DEFAULT_VERSION)).await
    }

    /// Clients and tools of a version, for brokers at these addresses: a proxy's, the embedded broker's over
    /// TCP, or those of a cluster of another version.
    pub async fn at(bootstrap: &str, version: &str) -> Result<Self> {
        let machine = Machine::acquire().await?;
        let version = version.to_owned();
        let prepared = tokio::task::spawn_blocking(move || {
            let artifacts = Artifacts::resolve(&version)?;
            let classes = compile(&artifacts)?;
            Ok((artifacts, classes))
        });
        let (artifacts, classes) = prepared.await.doing(|| "prepare Java".to_owned())??;
        Ok(Self { artifacts, machine, classes, bootstrap: bootstrap.to_owned() })
    }

    /// Starts a class of the jars, with these bytes as its standard input.
    pub fn spawn(&self, class: &str, arguments: &[String], input: Option<Vec<u8>>) -> Result<Running> {
        let mut command = Command::new("java");
        command.arg("-Xmx512M").args(JVM_FLAGS);
        let archive = self.artifacts.archive();
        if archive.is_file() {
            command.arg(format!("-XX:SharedArchiveFile={}", archive.display()));
        }
        command.arg(self.artifacts.tool_logging()?).arg(format!("{MARK}tool"));
        // Ours come last: the archive is bound to the jars before them.
        let class_path = format!("{}:{}", self.artifacts.class_path, self.classes.display());
        command.args(["-cp", &class_path, class]).args(arguments);
        Running::start(class, Arc::clone(&self.machine), command, input)
    }

    /// Runs a class of the jars to its good end. Its lines are the result. Dropping the future kills it.
    pub async fn run(
        &self,
        class: &str,
        arguments: &[String],
        input: Option<Vec<u8>>,
    ) -> Result<Vec<String>> {
        self.spawn(class, arguments, input)?.success(PATIENCE).await
    }

    /// Writes records with Kafka's own producer. They are the result, as they were written, if the plan says
    /// so.
    pub async fn produce(&self, plan: ProducePlan) -> Result<Vec<JavaRecord>> {
        let lines = self.run("JavaProducer", &plan.arguments(&self.bootstrap), None).await?;
        lines.iter().map(|line| JavaRecord::parse(line)).collect()
    }

    /// Reads topics from their beginning to their end with Kafka's own consumer.
    pub async fn read(&self, topics: &[&str], committed_only: bool) -> Result<Vec<JavaRecord>> {
        self.read_with(topics, committed_only, &[]).await
    }

    /// The same with more of the consumer's configuration.
    pub async fn read_with(
        &self,
        topics: &[&str],
        committed_only: bool,
        config: &[(&str, &str)],
    ) -> Result<Vec<JavaRecord>> {
        let isolation = if committed_only { "read_committed" } else { "read_uncommitted" };
        let mut arguments = vec![
            format!("topics={}", topics.join(",")),
            format!("consumer.bootstrap.servers={}", self.bootstrap),
            format!("consumer.isolation.level={isolation}"),
        ];
        arguments.extend(config.iter().map(|(key, value)| format!("consumer.{key}={value}")));
        let lines = self.run("JavaReader", &arguments, None).await?;
        lines.iter().map(|line| JavaRecord::parse(line)).collect()
    }

    /// Kafka's console producer: one record a line.
    pub async fn console_produce(&self, topic: &str, lines: &[&str], more: &[&str]) -> Result<()> {
        let class = if self.artifacts.is_3x() {
            "kafka.tools.ConsoleProducer"
        } else {
            "org.apache.kafka.tools.ConsoleProducer"
        };
        let input = lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes();
        self.run(class, &self.tool(&["--topic", topic], more), Some(input)).await?;
        Ok(())
    }

    /// Kafka's console consumer, from the beginning, until it has `count` records. Its lines are the result.
    pub async fn console_consume(&self, topic: &str, count: usize, more: &[&str]) -> Result<Vec<String>> {
        let class = if self.artifacts.version.starts_with("3.7") {
            "kafka.tools.ConsoleConsumer"
        } else {
            "org.apache.kafka.tools.consumer.ConsoleConsumer"
        };
        let count = count.to_string();
        let own = ["--topic", topic, "--from-beginning", "--timeout-ms", "60000", "--max-messages", &count];
        self.run(class, &self.tool(&own, more), None).await
    }

    /// Kafka's consumer group command, such as `&["--describe", "--group", "g"]`. Its lines are the result.
    pub async fn consumer_groups(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let class = if self.artifacts.version.starts_with("3.7") {
            "kafka.admin.ConsumerGroupCommand"
        } else {
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        };
        self.run(class, &self.tool(&[], arguments), None).await
    }

    /// Any other of Kafka's command-line tools, by its class, told where the cluster is. Its lines are the result.
    pub async fn command(&self, class: &str, arguments: &[&str]) -> Result<Vec<String>> {
        self.run(class, &self.tool(&[], arguments), None).await
    }

    /// Kafka's log dump of segment files, with every record. Its lines are the result.
    pub async fn dump_log(&self, files: &[PathBuf]) -> Result<Vec<String>> {
        let class = if self.artifacts.is_3x() {
            "kafka.tools.DumpLogSegments"
        } else {
            "org.apache.kafka.tools.DumpLogSegments"
        };
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let arguments = ["--files".to_owned(), files.join(","), "--print-data-log".to_owned()];
        self.run(class, &arguments, None).await
    }

    /// Kafka's producer performance tool. Its last line is the result.
    pub async fn producer_performance(
        &self,
        topic: &str,
        count: u64,
        size: usize,
        config: &[&str],
    ) -> Result<String> {
        let mut arguments: Vec<String> = ["--topic", topic, "--throughput", "-1"].map(str::to_owned).to_vec();
        arguments.extend(["--num-records".to_owned(), count.to_string()]);
        arguments.extend(["--record-size".to_owned(), size.to_string(), "--producer-props".to_owned()]);
        arguments.push(format!("bootstrap.servers={}", self.bootstrap));
        arguments.extend(config.iter().map(|&setting| setting.to_owned()));
        let lines = self.run("org.apache.kafka.tools.ProducerPerformance", &arguments, None).await?;
        lines.last().cloned().ok_or_else(|| Failure::new("the performance tool said nothing"))
    }

    /// A group member of Kafka's own (`VerifiableConsumer`): its events tell assignments, records and
    /// commits.
    pub fn verifiable_consumer(&self, topic: &str, group: &str, more: &[&str]) -> Result<Running> {
        let own = ["--topic", topic, "--group-id", group];
        self.spawn("org.apache.kafka.tools.VerifiableConsumer", &self.tool(&own, more), None)
    }

    /// A producer of Kafka's own (`VerifiableProducer`): its events tell each acknowledged record.
    pub fn verifiable_producer(&self, topic: &str, more: &[&str]) -> Result<Running> {
        self.spawn("org.apache.kafka.tools.VerifiableProducer", &self.tool(&["--topic", topic], more), None)
    }

    fn tool(&self, own: &[&str], more: &[&str]) -> Vec<String> {
        let bootstrap = ["--bootstrap-server", self.bootstrap.as_str()];
        bootstrap.iter().chain(own).chain(more).map(|&argument| argument.to_owned()).collect()
    }
}

/// Compiles the kit's programs against the jars, once per change of theirs.
fn compile(artifacts: &Artifacts) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    SOURCES.hash(&mut hasher);
    let made = artifacts.folder.join(format!("programs-{:016x}", hasher.finish()));
    if made.is_dir() {
        return Ok(made);
    }
    let part = artifacts.folder.join(format!("programs-{}.part", std::process::id()));
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(&part).doing(|| format!("create {}", part.display()))?;
    let mut command = Command::new("javac");
    // Java 11 is the oldest that any version's clients run on; 17 the oldest the kit runs on.
    command.args(["--release", "17", "-cp", &artifacts.class_path, "-d"]).arg(&part);
    for (name, text) in SOURCES {
        let path: PathBuf = Path::new(&part).join(name);
        fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
        command.arg(path);
    }
    let output = command.stdin(Stdio::null()).output().doing(|| "run javac (a JDK is needed)".to_owned())?;
    if !output.status.success() {
        return Err(Failure::new(format!("javac failed:\n{}", String::from_utf8_lossy(&output.stderr))));
    }
    if fs::rename(&part, &made).is_err() {
        // Another process was quicker.
        let _ = fs::remove_dir_all(&part);
    }
    Ok(made)
}
