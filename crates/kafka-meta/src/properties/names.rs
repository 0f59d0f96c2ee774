//! Every name that is known, and what becomes of it. `docs/properties.md` is the same for people; a test holds
//! them together.

/// What becomes of a setting.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// The cluster's.
    Cluster,
    /// The consumer's.
    Consumer,
    /// Of both.
    Both,
    /// Another name of this one.
    As(&'static str),
    /// Changes nothing about what is read.
    PassedOver(&'static str),
    /// Would change something this client does otherwise, or not at all.
    Refused(&'static str),
}

use Fate::{As, Both, Cluster, Consumer, PassedOver, Refused};

const TUNING: &str = "tunes something this client does by itself";
const TYPES: &str = "records are bytes here";
const METRICS: &str = "metrics are read through metrics()";
const LOGGING: &str = "logging is tracing's";
const PRODUCER: &str = "a producer's setting";
const IN_CODE: &str = "is set in code, on the member";
const KERBEROS: &str = "GSSAPI (Kerberos) is not supported";
const STORES: &str = "PEM keys without a password are read";
const PINNED: &str = "TLS 1.2 and 1.3 are spoken, with rustls' own choice of ciphers";
const CLASSES: &str = "Java classes cannot be loaded; the place for code is Sasl::oauthbearer";

/// Name and fate, by name.
pub static NAMES: &[(&str, Fate)] = &[
    // Where and who.
    ("bootstrap.servers", Cluster),
    ("metadata.broker.list", As("bootstrap.servers")),
    ("client.id", Cluster),
    ("client.rack", Both),
    ("request.timeout.ms", Cluster),
    ("socket.timeout.ms", As("request.timeout.ms")),
    ("socket.connection.setup.timeout.ms", Cluster),
    ("metadata.max.age.ms", Cluster),
    ("topic.metadata.refresh.interval.ms", As("metadata.max.age.ms")),
    // Security.
    ("security.protocol", Cluster),
    ("sasl.mechanism", Cluster),
    ("sasl.mechanisms", As("sasl.mechanism")),
    ("sasl.jaas.config", Cluster),
    ("sasl.username", Cluster),
    ("sasl.password", Cluster),
    ("ssl.ca.location", Cluster),
    ("ssl.ca.pem", Cluster),
    ("ssl.certificate.location", Cluster),
    ("ssl.certificate.pem", Cluster),
    ("ssl.key.location", Cluster),
    ("ssl.key.pem", Cluster),
    ("ssl.truststore.type", Cluster),
    ("ssl.truststore.location", Cluster),
    ("ssl.truststore.certificates", Cluster),
    ("ssl.keystore.type", Cluster),
    ("ssl.keystore.location", Cluster),
    ("ssl.keystore.key", Cluster),
    ("ssl.keystore.certificate.chain", Cluster),
    ("ssl.endpoint.identification.algorithm", Cluster),
    ("enable.ssl.certificate.verification", Cluster),
    ("ssl.truststore.password", Refused("PEM trust stores have no password")),
    ("ssl.keystore.password", Refused(STORES)),
    ("ssl.key.password", Refused(STORES)),
    ("ssl.enabled.protocols", Refused(PINNED)),
    ("ssl.protocol", Refused(PINNED)),
    ("ssl.cipher.suites", Refused(PINNED)),
    ("ssl.curves.list", Refused(PINNED)),
    ("ssl.sigalgs.list", Refused(PINNED)),
    ("ssl.crl.location", Refused("revocation lists are not read")),
    ("ssl.provider", Refused(PINNED)),
    ("ssl.providers", Refused(PINNED)),
    ("ssl.engine.factory.class", Refused("Java classes cannot be loaded")),
    ("ssl.keymanager.algorithm", PassedOver(TUNING)),
    ("ssl.trustmanager.algorithm", PassedOver(TUNING)),
    ("ssl.secure.random.implementation", PassedOver(TUNING)),
    ("security.providers", Refused("Java classes cannot be loaded")),
    ("sasl.client.callback.handler.class", Refused(CLASSES)),
    ("sasl.login.callback.handler.class", Refused(CLASSES)),
    ("sasl.login.class", Refused(CLASSES)),
    ("sasl.oauthbearer.token.endpoint.url", Cluster),
    ("sasl.oauthbearer.method", Cluster),
    ("sasl.oauthbearer.client.id", Cluster),
    ("sasl.oauthbearer.client.credentials.client.id", As("sasl.oauthbearer.client.id")),
    ("sasl.oauthbearer.client.secret", Cluster),
    ("sasl.oauthbearer.client.credentials.client.secret", As("sasl.oauthbearer.client.secret")),
    ("sasl.oauthbearer.scope", Cluster),
    ("sasl.oauthbearer.config", Refused("tokens for tests only are made in code: Sasl::oauthbearer")),
    ("sasl.oauthbearer.extensions", Refused("extensions are set in code: Token::with_extension")),
    (
        "enable.sasl.oauthbearer.unsecure.jwt",
        Refused("tokens for tests only are made in code: Sasl::oauthbearer"),
    ),
    ("sasl.kerberos.service.name", Refused(KERBEROS)),
    ("sasl.kerberos.principal", Refused(KERBEROS)),
    ("sasl.kerberos.keytab", Refused(KERBEROS)),
    ("sasl.kerberos.kinit.cmd", Refused(KERBEROS)),
    ("sasl.login.refresh.buffer.seconds", PassedOver(TUNING)),
    ("sasl.login.refresh.min.period.seconds", PassedOver(TUNING)),
    ("sasl.login.refresh.window.factor", PassedOver(TUNING)),
    ("sasl.login.refresh.window.jitter", PassedOver(TUNING)),
    ("sasl.login.connect.timeout.ms", PassedOver(TUNING)),
    ("sasl.login.read.timeout.ms", PassedOver(TUNING)),
    ("sasl.login.retry.backoff.ms", PassedOver(TUNING)),
    ("sasl.login.retry.backoff.max.ms", PassedOver(TUNING)),
    // What is read.
    ("group.id", Consumer),
    ("isolation.level", Consumer),
    ("auto.offset.reset", Consumer),
    ("fetch.max.wait.ms", Consumer),
    ("fetch.wait.max.ms", As("fetch.max.wait.ms")),
    ("fetch.min.bytes", Consumer),
    ("fetch.max.bytes", Consumer),
    ("max.partition.fetch.bytes", Consumer),
    ("fetch.message.max.bytes", As("max.partition.fetch.bytes")),
    ("max.poll.records", Consumer),
    ("queued.max.messages.kbytes", Consumer),
    ("check.crcs", Consumer),
    ("enable.auto.commit", Consumer),
    ("auto.commit.enable", As("enable.auto.commit")),
    ("auto.commit.interval.ms", Consumer),
    ("default.api.timeout.ms", Consumer),
    // Members.
    ("group.protocol", Consumer),
    ("max.poll.interval.ms", Consumer),
    ("session.timeout.ms", Consumer),
    ("heartbeat.interval.ms", Consumer),
    ("group.instance.id", Refused(IN_CODE)),
    ("group.remote.assignor", Refused(IN_CODE)),
    ("partition.assignment.strategy", Refused(IN_CODE)),
    ("internal.leave.group.on.close", Refused("a member that is dropped never leaves; leave() does")),
    ("enable.auto.offset.store", Refused("what a poll returned is done when the next poll is called")),
    ("enable.partition.eof", Refused("ends are no events; caught_up() tells")),
    ("exclude.internal.topics", Refused("patterns never match internal topics")),
    ("allow.auto.create.topics", Refused("reading never creates a topic")),
    ("interceptor.classes", Refused("Java classes cannot be loaded")),
    ("config.providers", Refused("values are taken as they are")),
    ("plugin.library.paths", Refused("libraries cannot be loaded")),
    ("metadata.recovery.strategy", Refused("bootstrap addresses are always asked when no broker answers")),
    // Of other clients.
    ("acks", Refused(PRODUCER)),
    ("enable.idempotence", Refused(PRODUCER)),
    ("transactional.id", Refused(PRODUCER)),
    ("compression.type", Refused(PRODUCER)),
    ("linger.ms", Refused(PRODUCER)),
    ("batch.size", Refused(PRODUCER)),
    // Passed over.
    ("key.deserializer", PassedOver(TYPES)),
    ("value.deserializer", PassedOver(TYPES)),
    ("client.dns.lookup", PassedOver("every address of a name is tried")),
    ("connections.max.idle.ms", PassedOver(TUNING)),
    ("reconnect.backoff.ms", PassedOver(TUNING)),
    ("reconnect.backoff.max.ms", PassedOver(TUNING)),
    ("retry.backoff.ms", PassedOver(TUNING)),
    ("retry.backoff.max.ms", PassedOver(TUNING)),
    ("send.buffer.bytes", PassedOver(TUNING)),
    ("receive.buffer.bytes", PassedOver(TUNING)),
    ("socket.send.buffer.bytes", PassedOver(TUNING)),
    ("socket.receive.buffer.bytes", PassedOver(TUNING)),
    ("socket.keepalive.enable", PassedOver(TUNING)),
    ("socket.nagle.disable", PassedOver(TUNING)),
    ("socket.connection.setup.timeout.max.ms", PassedOver(TUNING)),
    ("metadata.recovery.rebootstrap.trigger.ms", PassedOver(TUNING)),
    ("api.version.request", PassedOver(TUNING)),
    ("fetch.error.backoff.ms", PassedOver(TUNING)),
    ("fetch.queue.backoff.ms", PassedOver(TUNING)),
    ("queued.min.messages", PassedOver(TUNING)),
    ("coordinator.query.interval.ms", PassedOver(TUNING)),
    ("enable.metrics.push", PassedOver(METRICS)),
    ("auto.include.jmx.reporter", PassedOver(METRICS)),
    ("metric.reporters", PassedOver(METRICS)),
    ("metrics.num.samples", PassedOver(METRICS)),
    ("metrics.recording.level", PassedOver(METRICS)),
    ("metrics.sample.window.ms", PassedOver(METRICS)),
    ("statistics.interval.ms", PassedOver(METRICS)),
    ("log_level", PassedOver(LOGGING)),
    ("log.connection.close", PassedOver(LOGGING)),
    ("debug", PassedOver(LOGGING)),
];
