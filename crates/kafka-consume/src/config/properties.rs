//! A consumer's settings by the names of Java's client and of librdkafka.
//!
//! The names are in `kafka_meta::properties`; this says what each of the consumer's becomes. A setting that only
//! makes sense beside another one, or contradicts it, is refused by name: nothing is guessed.

use std::time::Duration;

use kafka_meta::Result;
use kafka_meta::properties::Properties;
use kafka_read::Visibility;

use super::{ConsumerConfig, GroupProtocol, OffsetReset};

const OPERATION: &str = "consumer settings";

impl ConsumerConfig {
    /// A configuration from settings by the names of Java's client and of librdkafka (`docs/properties.md` lists
    /// them). The cluster's settings are passed over, so that one set of properties serves both; a name that is
    /// unknown, a value that cannot be, and settings that contradict each other are named in the error. Defaults
    /// are those of [`ConsumerConfig::new`], not Java's.
    ///
    /// ```
    /// use kafka_consume::{ConsumerConfig, OffsetReset};
    ///
    /// let config = ConsumerConfig::from_properties([
    ///     ("bootstrap.servers", "one:9092"),
    ///     ("group.id", "billing"),
    ///     ("auto.offset.reset", "latest"),
    /// ])?;
    /// assert_eq!(config.auto_offset_reset, OffsetReset::Latest);
    /// # Ok::<(), kafka_consume::Error>(())
    /// ```
    pub fn from_properties<K: AsRef<str>, V: AsRef<str>>(
        properties: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self> {
        let given = Properties::new(OPERATION, properties)?;
        let mut config = ConsumerConfig::new();
        config.group_id = given.text("group.id").map(str::to_owned);
        config.rack = given.text("client.rack").map(str::to_owned);
        let wanted = "read_committed or read_uncommitted";
        set(&mut config.visibility, given.read("isolation.level", wanted, visibility)?);
        let wanted = "earliest, latest, none or by_duration:P…";
        set(&mut config.auto_offset_reset, given.read("auto.offset.reset", wanted, reset)?);
        set(&mut config.max_wait_ms, given.number("fetch.max.wait.ms")?);
        set(&mut config.min_bytes, given.number("fetch.min.bytes")?);
        set(&mut config.max_bytes, given.number("fetch.max.bytes")?);
        set(&mut config.partition_max_bytes, given.number("max.partition.fetch.bytes")?);
        set(&mut config.max_poll_records, given.number("max.poll.records")?);
        let kilobytes = given.number::<usize>("queued.max.messages.kbytes")?;
        set(&mut config.fetch_buffer_bytes, kilobytes.map(|kilobytes| kilobytes.saturating_mul(1024)));
        set(&mut config.check_crcs, given.flag("check.crcs")?);
        set(&mut config.auto_commit, given.flag("enable.auto.commit")?);
        set(&mut config.auto_commit_interval_ms, given.number("auto.commit.interval.ms")?);
        set(&mut config.api_timeout_ms, given.number("default.api.timeout.ms")?);
        set(&mut config.rebalance_timeout_ms, given.number("max.poll.interval.ms")?);
        set(&mut config.session_timeout_ms, given.number("session.timeout.ms")?);
        set(&mut config.heartbeat_interval_ms, given.number("heartbeat.interval.ms")?);
        set(&mut config.group_protocol, given.read("group.protocol", "consumer or classic", protocol)?);
        if config.group_protocol == GroupProtocol::Consumer {
            let why = "contradicts group.protocol=consumer: there the broker decides";
            given.none_of(&["session.timeout.ms", "heartbeat.interval.ms"], why)?;
        }
        if config.group_id.is_none() && given.flag("enable.auto.commit")? == Some(true) {
            return Err(given.refuse("enable.auto.commit", "is true, but group.id is missing"));
        }
        config.check()?;
        Ok(config)
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn visibility(value: &str) -> Option<Visibility> {
    match value.to_ascii_lowercase().as_str() {
        "read_committed" => Some(Visibility::CommittedOnly),
        "read_uncommitted" => Some(Visibility::All),
        _ => None,
    }
}

fn protocol(value: &str) -> Option<GroupProtocol> {
    match value.to_ascii_lowercase().as_str() {
        "consumer" => Some(GroupProtocol::Consumer),
        "classic" => Some(GroupProtocol::Classic),
        _ => None,
    }
}

fn reset(value: &str) -> Option<OffsetReset> {
    let value = value.to_ascii_lowercase();
    Some(match value.as_str() {
        "earliest" | "smallest" | "beginning" => OffsetReset::Earliest,
        "latest" | "largest" | "end" => OffsetReset::Latest,
        "none" | "error" => OffsetReset::None,
        _ => OffsetReset::ByDuration(duration(value.strip_prefix("by_duration:")?)?),
    })
}

/// An ISO 8601 duration of days, hours, minutes and seconds: `P1DT2H3M4.5S`, in lower case here.
fn duration(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('p')?;
    let (days, time) = match text.split_once('t') {
        Some((_, "")) => return None,
        Some((days, time)) => (days, time),
        None => (text, ""),
    };
    let mut total = Duration::ZERO;
    let mut any = false;
    for (part, units) in [(days, &[('d', 86_400_u32)][..]), (time, &[('h', 3_600), ('m', 60), ('s', 1)][..])]
    {
        let mut rest = part;
        for (unit, seconds) in units {
            let Some((number, after)) = rest.split_once(*unit) else { continue };
            let count: f64 = number.parse().ok().filter(|count: &f64| count.is_finite())?;
            let time = Duration::try_from_secs_f64(count * f64::from(*seconds)).ok()?;
            total = total.checked_add(time)?;
            rest = after;
            any = true;
        }
        if !rest.is_empty() {
            return None;
        }
    }
    any.then_some(total)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kafka_meta::ErrorKind;
    use kafka_read::Visibility;

    use super::{duration, reset};
    use crate::{ConsumerConfig, GroupProtocol, OffsetReset};

    #[test]
    fn each_setting_becomes_its_field() {
        let config = ConsumerConfig::from_properties([
            ("bootstrap.servers", "one:1"),
            ("group.id", "g"),
            ("client.rack", "r"),
            ("isolation.level", "read_uncommitted"),
            ("auto.offset.reset", "by_duration:PT1H"),
            ("fetch.wait.max.ms", "1"),
            ("fetch.min.bytes", "2"),
            ("fetch.max.bytes", "3000"),
            ("fetch.message.max.bytes", "4"),
            ("max.poll.records", "5"),
            ("queued.max.messages.kbytes", "6"),
            ("check.crcs", "false"),
            ("enable.auto.commit", "False"),
            ("auto.commit.interval.ms", "7"),
            ("default.api.timeout.ms", "8"),
            ("max.poll.interval.ms", "9"),
            ("session.timeout.ms", "10"),
            ("heartbeat.interval.ms", "11"),
            ("group.protocol", "CLASSIC"),
            ("sasl.password", "hunter2"),
        ])
        .unwrap();
        assert_eq!((config.group_id.as_deref(), config.rack.as_deref()), (Some("g"), Some("r")));
        assert_eq!(config.visibility, Visibility::All);
        assert_eq!(config.auto_offset_reset, OffsetReset::ByDuration(Duration::from_secs(3600)));
        assert_eq!((config.max_wait_ms, config.min_bytes, config.max_bytes), (1, 2, 3000));
        assert_eq!((config.partition_max_bytes, config.max_poll_records), (4, 5));
        assert_eq!((config.fetch_buffer_bytes, config.check_crcs, config.auto_commit), (6144, false, false));
        assert_eq!((config.auto_commit_interval_ms, config.api_timeout_ms), (7, 8));
        assert_eq!((config.rebalance_timeout_ms, config.session_timeout_ms), (9, 10));
        assert_eq!((config.heartbeat_interval_ms, config.group_protocol), (11, GroupProtocol::Classic));
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (properties, words) in [
            (vec![("group.id", "g"), ("max.poll.record", "1")], "max.poll.record:"),
            (vec![("max.poll.records", "-1")], "max.poll.records"),
            (vec![("max.poll.records", "0")], "max_poll_records"),
            (vec![("isolation.level", "serializable")], "isolation.level"),
            (vec![("auto.offset.reset", "by_duration:P")], "auto.offset.reset"),
            (vec![("enable.auto.commit", "true")], "group.id is missing"),
            (vec![("group.instance.id", "i")], "group.instance.id"),
            (vec![("group.protocol", "consumer"), ("session.timeout.ms", "1")], "session.timeout.ms"),
            (vec![("fetch.wait.max.ms", "1"), ("fetch.max.wait.ms", "2")], "fetch.max.wait.ms"),
        ] {
            let error = ConsumerConfig::from_properties(properties).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn durations_are_read_as_java_reads_them() {
        assert_eq!(duration("p1dt2h3m4.5s"), Some(Duration::from_millis(93_784_500)));
        assert_eq!(duration("pt0s"), Some(Duration::ZERO));
        for bad in ["", "p", "pt", "1d", "p1", "p1h", "pt1d", "pt1s1h", "p-1d", "pt1e400s", "p1dt"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
        assert_eq!(reset("Latest"), Some(OffsetReset::Latest));
    }
}
