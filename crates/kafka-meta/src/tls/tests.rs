//! Files that cannot be used are named, and keys are not shown.

use super::TlsConfig;
use crate::ErrorKind;

fn refusal(tls: &TlsConfig) -> String {
    let error = tls.load().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    error.to_string()
}

const KEY: &str = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0c2VjcmV0\n-----END PRIVATE KEY-----\n";

#[test]
fn what_cannot_be_used_is_named_and_nothing_of_a_key_is_shown() {
    let absent = refusal(&TlsConfig::new().with_ca_file("/nowhere/ca.pem"));
    assert!(absent.contains("/nowhere/ca.pem"), "{absent}");
    let empty = refusal(&TlsConfig::new().with_ca_pem("no certificate at all"));
    assert!(empty.contains("no certificate"), "{empty}");
    let cut = refusal(&TlsConfig::new().with_ca_pem("-----BEGIN CERTIFICATE-----\nAAAA"));
    assert!(cut.contains("does not end"), "{cut}");
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let junk = refusal(&TlsConfig::new().with_ca_pem(junk));
    assert!(junk.contains("authority"), "{junk}");
    for (tls, why) in [
        (TlsConfig::new().with_identity_pem("", KEY), "no certificate"),
        (
            TlsConfig::new()
                .danger_accept_any_certificate()
                .with_identity_pem("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", KEY),
            "kind that is not supported",
        ),
    ] {
        let refused = refusal(&tls);
        assert!(refused.contains(why), "{refused}");
        assert!(!format!("{refused} {tls:?}").contains("c2VjcmV0"), "{refused}");
    }
    let locked = KEY.replace("PRIVATE", "ENCRYPTED PRIVATE");
    let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let locked = refusal(&TlsConfig::new().with_identity_pem(certificate, locked));
    assert!(locked.contains("password"), "{locked}");
}

#[test]
fn the_systems_authorities_are_believed_unless_others_are_named() {
    let own = TlsConfig::new().with_ca_pem("x");
    assert!(!own.system_roots);
    assert!(own.with_system_roots().system_roots);
    assert!(TlsConfig::default().system_roots);
}
