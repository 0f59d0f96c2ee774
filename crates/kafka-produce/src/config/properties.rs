//! A producer's settings by the names of Java's client and of librdkafka.
//!
//! The names are in `kafka_meta::properties`; this says what each of the producer's becomes. A setting that only
//! makes sense beside another one, or contradicts it, is refused by name: nothing is guessed.

use kafka_meta::Result;
use kafka_meta::properties::Properties;

use super::{Acks, Compression, Partitioner, ProducerConfig};

const OPERATION: &str = "producer settings";

impl ProducerConfig {
    /// A configuration from settings by the names of Java's client and of librdkafka (`docs/properties.md` lists
    /// them). The cluster's and a consumer's settings are passed over, so that one set of properties serves all; a
    /// name that is unknown, a value that cannot be, and settings that contradict each other are named in the
    /// error.
    ///
    /// ```
    /// use kafka_produce::{Compression, ProducerConfig};
    ///
    /// let config = ProducerConfig::from_properties([
    ///     ("bootstrap.servers", "one:9092"),
    ///     ("compression.type", "zstd"),
    ///     ("linger.ms", "20"),
    /// ])?;
    /// assert_eq!((config.compression, config.linger_ms), (Compression::Zstd, 20));
    /// # Ok::<(), kafka_produce::Error>(())
    /// ```
    pub fn from_properties<K: AsRef<str>, V: AsRef<str>>(
        properties: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self> {
        let given = Properties::new(OPERATION, properties)?;
        let mut config = ProducerConfig::new();
        set(&mut config.acks, given.read("acks", "all, 1 or 0", acks)?);
        config.enable_idempotence = given.flag("enable.idempotence")?;
        // librdkafka allows fractions of a millisecond.
        set(&mut config.linger_ms, given.read("linger.ms", "a time in milliseconds", millis)?);
        set(&mut config.batch_size, given.number("batch.size")?);
        set(&mut config.buffer_memory, given.number("buffer.memory")?);
        if let Some(kilobytes) = given.number::<usize>("queue.buffering.max.kbytes")? {
            given.none_of(&["buffer.memory"], "is set, and so is queue.buffering.max.kbytes")?;
            config.buffer_memory = kilobytes.saturating_mul(1024);
        }
        set(&mut config.max_request_size, given.number("max.request.size")?);
        set(&mut config.delivery_timeout_ms, given.number("delivery.timeout.ms")?);
        set(&mut config.request_timeout_ms, given.number("request.timeout.ms")?);
        set(&mut config.max_in_flight, given.number("max.in.flight.requests.per.connection")?);
        set(&mut config.retry_backoff_ms, given.number("retry.backoff.ms")?);
        set(&mut config.retry_backoff_max_ms, given.number("retry.backoff.max.ms")?);
        set(&mut config.max_block_ms, given.number("max.block.ms")?);
        set(&mut config.transaction_timeout_ms, given.number("transaction.timeout.ms")?);
        let wanted = "none, gzip, snappy, lz4 or zstd";
        set(&mut config.compression, given.read("compression.type", wanted, compression)?);
        config.compression_level = match config.compression {
            Compression::Gzip => given.number("compression.gzip.level")?,
            Compression::Zstd => given.number("compression.zstd.level")?,
            _ => None,
        }
        .or(given.number("compression.level")?);
        let by_name =
            given.read("partitioner", "murmur2_random: equal keys would go elsewhere", |value| {
                (value == "murmur2_random").then_some(Partitioner::Java)
            })?;
        set(&mut config.partitioner, by_name);
        let wanted = "RoundRobinPartitioner: Java classes cannot be loaded";
        let by_class = given.read("partitioner.class", wanted, |value| {
            (value.rsplit('.').next() == Some("RoundRobinPartitioner")).then_some(Partitioner::RoundRobin)
        })?;
        set(&mut config.partitioner, by_class);
        if given.flag("partitioner.ignore.keys")? == Some(true) {
            given.none_of(&["partitioner", "partitioner.class"], "contradicts partitioner.ignore.keys")?;
            config.partitioner = Partitioner::IgnoreKeys;
        }
        config.check(false)?;
        Ok(config)
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn acks(value: &str) -> Option<Acks> {
    Some(match value.to_ascii_lowercase().as_str() {
        "all" | "-1" => Acks::All,
        "1" => Acks::Leader,
        "0" => Acks::None,
        _ => return None,
    })
}

fn millis(value: &str) -> Option<u32> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let whole: u32 = whole.parse().ok()?;
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // Rounded up: a little patience is not none.
    whole.checked_add(u32::from(fraction.bytes().any(|digit| digit != b'0')))
}

fn compression(value: &str) -> Option<Compression> {
    let all =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let value = value.to_ascii_lowercase();
    all.into_iter().find(|one| one.name() == value)
}
