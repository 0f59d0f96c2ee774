use kafka_meta::ErrorKind;

use super::{Acks, ProducerConfig};

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
