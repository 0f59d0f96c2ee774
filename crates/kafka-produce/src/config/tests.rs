use kafka_meta::ErrorKind;

use super::{Acks, Compression, Partitioner, ProducerConfig};

#[test]
fn contradictory_settings_are_refused() {
    let new = ProducerConfig::new;
    assert!(new().check(false).is_ok());
    assert!(new().check(true).is_ok());
    for config in [
        new().batch_size(0),
        new().buffer_memory(0),
        new().max_in_flight(0),
        new().max_in_flight(6),
        new().acks(Acks::Leader).enable_idempotence(true),
        new().delivery_timeout_ms(1_000),
    ] {
        assert_eq!(config.check(false).unwrap_err().kind(), ErrorKind::InvalidRequest, "{config:?}");
    }
    assert!(new().acks(Acks::Leader).check(true).is_err(), "transactions need acks from all");
    assert!(new().enable_idempotence(false).check(true).is_err());
}

#[test]
fn fewer_acks_switch_idempotence_off_unless_it_is_asked_for() {
    assert!(ProducerConfig::new().is_idempotent());
    for acks in [Acks::Leader, Acks::None] {
        let config = ProducerConfig::new().acks(acks).max_in_flight(20);
        assert!(!config.is_idempotent());
        assert!(config.check(false).is_ok());
    }
}

#[test]
fn settings_are_taken_by_javas_and_librdkafkas_names() {
    let java = ProducerConfig::from_properties([
        ("bootstrap.servers", "one:9092"),
        ("group.id", "a consumer's"),
        ("acks", "1"),
        ("linger.ms", "20"),
        ("batch.size", "100000"),
        ("compression.type", "ZSTD"),
        ("compression.zstd.level", "7"),
        ("compression.gzip.level", "3"),
        ("partitioner.class", "org.apache.kafka.clients.producer.RoundRobinPartitioner"),
        ("key.serializer", "org.apache.kafka.common.serialization.StringSerializer"),
    ])
    .unwrap();
    assert_eq!((java.acks, java.linger_ms, java.batch_size), (Acks::Leader, 20, 100_000));
    assert_eq!((java.compression, java.compression_level), (Compression::Zstd, Some(7)));
    assert_eq!(java.partitioner, Partitioner::RoundRobin);
    let other = ProducerConfig::from_properties([
        ("request.required.acks", "-1"),
        ("queue.buffering.max.ms", "0.5"),
        ("queue.buffering.max.kbytes", "64"),
        ("message.timeout.ms", "90000"),
        ("max.in.flight", "3"),
        ("partitioner", "murmur2_random"),
    ])
    .unwrap();
    assert_eq!((other.acks, other.linger_ms, other.buffer_memory), (Acks::All, 1, 65_536));
    assert_eq!((other.delivery_timeout_ms, other.max_in_flight), (90_000, 3));
    assert_eq!(other.partitioner, Partitioner::Java);
}

#[test]
fn what_cannot_be_is_named() {
    for (name, value, words) in [
        ("acks", "2", "acks"),
        ("compression.type", "brotli", "compression.type"),
        ("partitioner", "consistent_random", "partitioner"),
        ("linger.ms", "1.x", "linger.ms"),
        ("retries", "3", "delivery.timeout.ms"),
        ("transactional.id", "t", "Producer::transactional"),
        ("linger.msec", "3", "linger.msec"),
    ] {
        let error = ProducerConfig::from_properties([(name, value)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().contains(words), "{error}");
    }
    let both = [("acks", "0"), ("enable.idempotence", "true")];
    assert!(ProducerConfig::from_properties(both).is_err());
}
