//! Names taken, passed over and refused; values never told.

use super::{Fate, NAMES, Properties, jaas, parse};
use crate::{ClusterConfig, ErrorKind};

const BOOT: (&str, &str) = ("bootstrap.servers", "one:9092");

fn refusal(properties: &[(&str, &str)]) -> String {
    let error = ClusterConfig::from_properties(properties.iter().copied()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(!error.to_string().contains("hunter2"), "{error}");
    error.to_string()
}

#[test]
fn the_list_has_each_name_once_and_other_names_lead_to_settings() {
    for (at, (name, fate)) in NAMES.iter().enumerate() {
        assert!(NAMES.iter().skip(at + 1).all(|(other, _)| other != name), "{name} twice");
        if let Fate::As(canonical) = fate {
            let target = NAMES.iter().find(|(other, _)| other == canonical);
            assert!(
                matches!(target, Some((_, Fate::Cluster | Fate::Consumer | Fate::Both | Fate::Producer))),
                "{name}"
            );
        }
    }
}

#[test]
fn the_guide_names_every_setting() {
    let guide = include_str!("../../../../docs/properties.md");
    for (name, _) in NAMES {
        assert!(guide.contains(&format!("`{name}`")), "docs/properties.md does not mention {name}");
    }
}

#[test]
fn both_families_of_names_are_taken() {
    let java = ClusterConfig::from_properties([
        BOOT,
        ("client.id", "c"),
        ("client.rack", "r"),
        ("request.timeout.ms", "1000"),
        ("socket.connection.setup.timeout.ms", "2000"),
        ("metadata.max.age.ms", "3000"),
        ("group.id", "g"),
        ("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"),
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
        (
            "sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"hunter2\";",
        ),
    ])
    .unwrap();
    assert_eq!((java.client_id(), java.rack()), ("c", Some("r")));
    assert_eq!(java.request_timeout().as_millis(), 1000);
    assert_eq!(java.connect_timeout().as_millis(), 2000);
    assert_eq!(java.metadata_max_age().as_millis(), 3000);
    assert_eq!(java.sasl.as_ref().unwrap().mechanism(), "PLAIN");
    assert!(!format!("{java:?}").contains("hunter2"));
    let other = ClusterConfig::from_properties([
        ("metadata.broker.list", "one:9092"),
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanisms", "PLAIN"),
        ("sasl.username", "u"),
        ("sasl.password", "hunter2"),
        ("fetch.wait.max.ms", "10"),
    ])
    .unwrap();
    assert_eq!(other.bootstrap(), "one:9092");
    assert!(other.sasl.is_some());
}

#[test]
fn what_cannot_be_is_named() {
    let sasl = ("security.protocol", "SASL_PLAINTEXT");
    for (properties, words) in [
        (vec![], "bootstrap.servers is missing"),
        (vec![BOOT, ("group.idd", "x")], "group.idd"),
        (vec![BOOT, ("metadata.broker.list", "two:1")], "bootstrap.servers and metadata.broker.list"),
        (vec![BOOT, ("request.timeout.ms", "soon")], "request.timeout.ms"),
        (vec![BOOT, ("security.protocol", "TLS")], "security.protocol"),
        (vec![BOOT, ("sasl.username", "u")], "sasl.username"),
        (vec![BOOT, ("ssl.ca.location", "/x")], "ssl.ca.location"),
        (vec![BOOT, ("transactional.id", "t")], "transactional.id"),
        (vec![BOOT, sasl], "sasl.mechanism is missing"),
        (vec![BOOT, sasl, ("sasl.mechanism", "GSSAPI")], "sasl.mechanism"),
        (vec![BOOT, sasl, ("sasl.mechanism", "PLAIN")], "sasl.username is missing"),
        (vec![BOOT, sasl, ("sasl.mechanism", "PLAIN"), ("sasl.username", "u")], "sasl.password is missing"),
        (
            vec![
                BOOT,
                sasl,
                ("sasl.mechanism", "PLAIN"),
                ("sasl.password", "hunter2"),
                ("sasl.jaas.config", "x"),
            ],
            "sasl.password is set, and so is sasl.jaas.config",
        ),
        (
            vec![
                BOOT,
                sasl,
                ("sasl.mechanism", "PLAIN"),
                ("sasl.jaas.config", "A required password=\"hunter2\""),
            ],
            "semicolon",
        ),
        (
            vec![
                BOOT,
                sasl,
                ("sasl.mechanism", "SCRAM-SHA-256"),
                ("sasl.jaas.config", "a.PlainLoginModule required username=u password=\"hunter2\";"),
            ],
            "ScramLoginModule",
        ),
        (vec![("bootstrap.servers", "nonsense")], "nonsense"),
    ] {
        let text = refusal(&properties);
        assert!(text.contains(words), "{properties:?}: {text}");
    }
    // The same twice is no contradiction.
    ClusterConfig::from_properties([BOOT, ("metadata.broker.list", "one:9092")]).unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn tls_settings_are_taken_or_named() {
    let ssl = ("security.protocol", "SSL");
    for good in [
        vec![],
        vec![("ssl.ca.location", "/ca.pem")],
        vec![("ssl.truststore.type", "PEM"), ("ssl.truststore.location", "/ca.pem")],
        vec![("ssl.certificate.location", "/me.pem"), ("ssl.key.location", "/me.key")],
        vec![("ssl.keystore.type", "PEM"), ("ssl.keystore.location", "/me.pem")],
        vec![("ssl.endpoint.identification.algorithm", "")],
    ] {
        let all = [BOOT, ssl].into_iter().chain(good.clone());
        let config = ClusterConfig::from_properties(all).unwrap_or_else(|error| panic!("{good:?}: {error}"));
        assert!(config.tls.is_some());
    }
    for (bad, words) in [
        (vec![("ssl.truststore.location", "/ca.jks")], "ssl.truststore.type has to be PEM"),
        (
            vec![("ssl.keystore.type", "JKS"), ("ssl.keystore.location", "/x")],
            "ssl.keystore.type has to be PEM",
        ),
        (vec![("ssl.keystore.password", "hunter2")], "ssl.keystore.password"),
        (
            vec![("ssl.ca.location", "/a"), ("ssl.ca.pem", "b")],
            "ssl.ca.location is set, and so is ssl.ca.pem",
        ),
        (vec![("ssl.certificate.location", "/a")], "ssl.key.location is missing"),
        (vec![("ssl.key.pem", "hunter2")], "ssl.certificate.pem is missing"),
        (vec![("ssl.endpoint.identification.algorithm", "ldaps")], "is not https"),
        (vec![("enable.ssl.certificate.verification", "maybe")], "enable.ssl.certificate.verification"),
    ] {
        let all: Vec<_> = [BOOT, ssl].into_iter().chain(bad).collect();
        let text = refusal(&all);
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn login_lines_are_read_and_what_is_in_them_is_not_told() {
    let jaas =
        jaas::parse("a.b.ScramLoginModule required\n  username='al ice' password=\"p\\\"=;\" x=1 ;").unwrap();
    assert_eq!(jaas.module, "ScramLoginModule");
    assert_eq!(jaas.option("username").unwrap().expose(), "al ice");
    assert_eq!(jaas.option("password").unwrap().expose(), "p\"=;");
    for bad in [
        "",
        "A",
        "A b;",
        "A required",
        "A required x;",
        "A required x=",
        "A required x=\"1;",
        "A required; B",
    ] {
        assert!(jaas::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_properties_file_is_read_as_java_reads_it() {
    let text = "# c\n! c\n\n a = 1 \nb:2\nc 3\nd\\ e=\\u0041\\t\\\\\nf=one \\\n   two\\\n\nempty=\nlast=\\";
    let entries = parse(text);
    let entries: Vec<(&str, &str)> =
        entries.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [
        ("a", "1 "),
        ("b", "2"),
        ("c", "3"),
        ("d e", "A\t\\"),
        ("f", "one two"),
        ("empty", ""),
        ("last", ""),
    ];
    assert_eq!(entries, expected);
}

#[test]
fn values_do_not_show_in_debug() {
    let properties = Properties::new("x", [("sasl.password", "hunter2")]).unwrap();
    assert!(!format!("{properties:?}").contains("hunter2"));
}

#[cfg(feature = "oidc")]
#[test]
fn tokens_by_client_credentials_are_configured_either_way() {
    let sasl = [BOOT, ("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "OAUTHBEARER")];
    let endpoint = ("sasl.oauthbearer.token.endpoint.url", "https://login.example/token");
    let line = "a.OAuthBearerLoginModule required clientId=\"me\" clientSecret=\"hunter2\" scope=\"s\";";
    for good in [
        vec![endpoint, ("sasl.jaas.config", line)],
        vec![
            endpoint,
            ("sasl.oauthbearer.method", "oidc"),
            ("sasl.oauthbearer.client.id", "me"),
            ("sasl.oauthbearer.client.secret", "hunter2"),
        ],
    ] {
        let config = ClusterConfig::from_properties(sasl.into_iter().chain(good)).unwrap();
        assert_eq!(config.sasl.as_ref().unwrap().mechanism(), "OAUTHBEARER");
        assert!(!format!("{config:?}").contains("hunter2"));
    }
    for (bad, words) in [
        (vec![("sasl.jaas.config", line)], "token.endpoint.url is missing"),
        (vec![endpoint, ("sasl.oauthbearer.client.id", "me")], "client.secret is missing"),
        (vec![endpoint, ("sasl.jaas.config", line), ("sasl.oauthbearer.client.id", "me")], "so is sasl.jaas"),
        (vec![endpoint, ("sasl.oauthbearer.method", "default")], "sasl.oauthbearer.method"),
    ] {
        let all: Vec<_> = sasl.into_iter().chain(bad).collect();
        let text = refusal(&all);
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn what_this_client_does_anyway_may_be_said_and_nothing_else() {
    for (name, fate) in NAMES {
        let Fate::Only(only, why) = fate else { continue };
        ClusterConfig::from_properties([BOOT, (name, only)]).unwrap();
        let error = refusal(&[BOOT, (name, "another")]);
        assert!(error.contains(&format!("{name} is not {only}: {why}")), "{error}");
    }
}

#[test]
fn stores_of_java_are_refused_with_what_to_do() {
    let ssl = ("security.protocol", "SSL");
    for properties in [
        [BOOT, ssl, ("ssl.truststore.location", "trust.jks")],
        [BOOT, ssl, ("ssl.truststore.type", "JKS")],
        [BOOT, ssl, ("ssl.truststore.password", "hunter2")],
    ] {
        let error = refusal(&properties);
        assert!(error.contains("keytool -exportcert -rfc"), "{error}");
    }
    for properties in [
        [BOOT, ssl, ("ssl.keystore.location", "me.p12")],
        [BOOT, ssl, ("ssl.keystore.password", "hunter2")],
        [BOOT, ssl, ("ssl.key.password", "hunter2")],
    ] {
        let error = refusal(&properties);
        assert!(error.contains("openssl pkcs12"), "{error}");
    }
}

#[cfg(feature = "oidc")]
#[test]
fn what_java_needs_for_client_credentials_is_taken() {
    let common = [
        BOOT,
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.oauthbearer.token.endpoint.url", "https://login.example/token"),
        (
            "sasl.jaas.config",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
             clientId=\"c\" clientSecret=\"hunter2\" scope=\"kafka\" ;",
        ),
    ];
    let handler = "sasl.login.callback.handler.class";
    for class in ["OAuthBearerLoginCallbackHandler", "secured.OAuthBearerLoginCallbackHandler"] {
        let class = format!("org.apache.kafka.common.security.oauthbearer.{class}");
        let config =
            ClusterConfig::from_properties(common.into_iter().chain([(handler, class.as_str())])).unwrap();
        assert_eq!(config.sasl.as_ref().unwrap().mechanism(), "OAUTHBEARER");
        assert!(!format!("{config:?}").contains("hunter2"));
    }
    let mut own = common.to_vec();
    own.push((handler, "com.example.Login"));
    assert!(refusal(&own).contains("Sasl::oauthbearer"));
    let mut other = common.to_vec();
    other.extend([("https.ca.location", "ca.pem"), ("https.ca.pem", "PEM")]);
    assert!(refusal(&other).contains("https.ca.pem is set, and so is https.ca.location"));
}
