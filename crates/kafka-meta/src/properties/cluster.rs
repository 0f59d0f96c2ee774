//! Properties that say where the cluster is, how to reach it and who one is.

use super::Properties;
use super::jaas::{self, Jaas};
use crate::{ClusterConfig, Result, Sasl, Secret};

const OPERATION: &str = "cluster settings";

impl ClusterConfig {
    /// A configuration from settings by the names of Java's client and of librdkafka (`docs/properties.md` lists
    /// them). A consumer's settings are passed over, so that one set of properties serves both; a name that is
    /// unknown, a value that cannot be, and settings that contradict each other are named in the error.
    ///
    /// ```
    /// use kafka_meta::ClusterConfig;
    ///
    /// let config = ClusterConfig::from_properties([
    ///     ("bootstrap.servers", "one:9092,two:9092"),
    ///     ("security.protocol", "SASL_PLAINTEXT"),
    ///     ("sasl.mechanism", "PLAIN"),
    ///     ("sasl.username", "billing"),
    ///     ("sasl.password", "a password"),
    /// ])?;
    /// let error = ClusterConfig::from_properties([("bootstrap.server", "one:9092")]).unwrap_err();
    /// assert!(error.to_string().contains("bootstrap.server"));
    /// # Ok::<(), kafka_meta::Error>(())
    /// ```
    pub fn from_properties<K: AsRef<str>, V: AsRef<str>>(
        properties: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self> {
        let given = Properties::new(OPERATION, properties)?;
        let Some(bootstrap) = given.text("bootstrap.servers") else {
            return Err(given.refuse("bootstrap.servers", "is missing"));
        };
        let mut config = ClusterConfig::new(bootstrap);
        if let Some(id) = given.text("client.id") {
            config = config.with_client_id(id);
        }
        if let Some(rack) = given.text("client.rack") {
            config = config.with_rack(rack);
        }
        if let Some(timeout) = given.millis("request.timeout.ms")? {
            config = config.with_request_timeout(timeout);
        }
        if let Some(timeout) = given.millis("socket.connection.setup.timeout.ms")? {
            config = config.with_connect_timeout(timeout);
        }
        if let Some(age) = given.millis("metadata.max.age.ms")? {
            config = config.with_metadata_max_age(age);
        }
        let wanted = "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL";
        let protocol = given.read("security.protocol", wanted, |value| {
            Some(match value.to_ascii_uppercase().as_str() {
                "PLAINTEXT" => (false, false),
                "SSL" => (true, false),
                "SASL_PLAINTEXT" => (false, true),
                "SASL_SSL" => (true, true),
                _ => return None,
            })
        });
        let (encrypted, login) = protocol?.unwrap_or((false, false));
        if encrypted {
            config = tls(&given, config)?;
        } else {
            given.none_of(TLS, "is set, but security.protocol is neither SSL nor SASL_SSL")?;
        }
        if login {
            config = config.with_sasl(sasl(&given)?);
        } else {
            let why = "is set, but security.protocol is neither SASL_PLAINTEXT nor SASL_SSL";
            given.none_of(SASL, why)?;
            given.none_of(OIDC, why)?;
        }
        config.addresses()?;
        Ok(config)
    }
}

const TLS: &[&str] = &[
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
];

const SASL: &[&str] = &["sasl.mechanism", "sasl.jaas.config", "sasl.username", "sasl.password"];

/// Java's classes that do what the feature `oidc` does.
#[cfg(feature = "oidc")]
const OIDC_CLASSES: &[(&str, &[&str])] = &[
    (
        "sasl.login.callback.handler.class",
        &[
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        ],
    ),
    (
        "sasl.oauthbearer.jwt.retriever.class",
        &[
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
            "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
        ],
    ),
];

const OIDC: &[&str] = &[
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.jwt.retriever.class",
    "https.ca.location",
    "https.ca.pem",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
];

fn sasl(given: &Properties) -> Result<Sasl> {
    let Some(mechanism) = given.text("sasl.mechanism") else {
        return Err(given.refuse("sasl.mechanism", "is missing: Java's default, GSSAPI, is not supported"));
    };
    let mechanism = mechanism.to_ascii_uppercase();
    let module = match mechanism.as_str() {
        "PLAIN" => "PlainLoginModule",
        "SCRAM-SHA-256" | "SCRAM-SHA-512" => "ScramLoginModule",
        "OAUTHBEARER" => return oauthbearer(given),
        _ => {
            return Err(
                given.refuse("sasl.mechanism", "is not PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
            );
        }
    };
    given.none_of(OIDC, "is set, but sasl.mechanism is not OAUTHBEARER")?;
    let (user, password) = match given.text("sasl.jaas.config") {
        Some(line) => {
            given.none_of(&["sasl.username", "sasl.password"], "is set, and so is sasl.jaas.config")?;
            let jaas = jaas::parse(line).map_err(|why| given.refuse("sasl.jaas.config", why))?;
            if jaas.module != module {
                let why = format!("does not name {module}, which sasl.mechanism={mechanism} needs");
                return Err(given.refuse("sasl.jaas.config", why));
            }
            let option = |name| option(given, &jaas, name);
            (option("username")?.expose().to_owned(), option("password")?)
        }
        None => {
            let one = |name| given.text(name).ok_or_else(|| given.refuse(name, "is missing"));
            (one("sasl.username")?.to_owned(), Secret::new(one("sasl.password")?))
        }
    };
    Ok(match mechanism.as_str() {
        "PLAIN" => Sasl::plain(user, password),
        #[cfg(feature = "scram")]
        "SCRAM-SHA-256" => Sasl::scram_sha_256(user, password),
        #[cfg(feature = "scram")]
        "SCRAM-SHA-512" => Sasl::scram_sha_512(user, password),
        _ => return Err(given.refuse("sasl.mechanism", "is not compiled in: the feature `scram` is off")),
    })
}

#[cfg(not(feature = "oidc"))]
fn oauthbearer(given: &Properties) -> Result<Sasl> {
    let why = "OAUTHBEARER needs a provider of tokens: ClusterConfig::with_sasl, or the feature `oidc`";
    Err(given.refuse("sasl.mechanism", why))
}

#[cfg(feature = "oidc")]
fn oauthbearer(given: &Properties) -> Result<Sasl> {
    given.none_of(&["sasl.username", "sasl.password"], "is set, but sasl.mechanism is OAUTHBEARER")?;
    if given.text("sasl.oauthbearer.method").is_some_and(|method| !method.eq_ignore_ascii_case("oidc")) {
        return Err(given.refuse("sasl.oauthbearer.method", "is not oidc"));
    }
    let jaas = match given.text("sasl.jaas.config") {
        Some(line) => Some(jaas::parse(line).map_err(|why| given.refuse("sasl.jaas.config", why))?),
        None => None,
    };
    if jaas.as_ref().is_some_and(|jaas| jaas.module != "OAuthBearerLoginModule") {
        let why = "does not name OAuthBearerLoginModule, which sasl.mechanism=OAUTHBEARER needs";
        return Err(given.refuse("sasl.jaas.config", why));
    }
    let either = |name: &'static str, option: &str| -> Result<Option<Secret>> {
        match (given.text(name), jaas.as_ref().and_then(|jaas| jaas.option(option))) {
            (Some(_), Some(_)) => Err(given.refuse(name, "is set, and so is sasl.jaas.config")),
            (Some(value), None) => Ok(Some(Secret::new(value))),
            (None, value) => Ok(value.cloned()),
        }
    };
    let missing = |name| given.refuse(name, "is missing");
    let endpoint = "sasl.oauthbearer.token.endpoint.url";
    let endpoint = given.text(endpoint).ok_or_else(|| missing(endpoint))?;
    let client = "sasl.oauthbearer.client.id";
    let client = either(client, "clientId")?.ok_or_else(|| missing(client))?;
    let secret = "sasl.oauthbearer.client.secret";
    let secret = either(secret, "clientSecret")?.ok_or_else(|| missing(secret))?;
    for (setting, classes) in OIDC_CLASSES {
        if given.text(setting).is_some_and(|class| !classes.contains(&class)) {
            let why = "is not a class of Kafka's own; the place for code is Sasl::oauthbearer";
            return Err(given.refuse(setting, why));
        }
    }
    let mut provider = crate::ClientCredentials::new(endpoint, client.expose(), secret);
    match (given.text("https.ca.location"), given.text("https.ca.pem")) {
        (Some(_), Some(_)) => return Err(given.refuse("https.ca.pem", "is set, and so is https.ca.location")),
        (Some("probe") | None, None) => {}
        (Some(file), None) => provider = provider.with_tls(crate::TlsConfig::new().with_ca_file(file)),
        (None, Some(pem)) => provider = provider.with_tls(crate::TlsConfig::new().with_ca_pem(pem)),
    }
    if let Some(scope) = either("sasl.oauthbearer.scope", "scope")? {
        provider = provider.with_scope(scope.expose());
    }
    Ok(Sasl::oauthbearer(provider))
}

fn option(given: &Properties, jaas: &Jaas, name: &str) -> Result<Secret> {
    jaas.option(name).cloned().ok_or_else(|| given.refuse("sasl.jaas.config", format!("has no {name}")))
}

#[cfg(not(feature = "tls"))]
fn tls(given: &Properties, _: ClusterConfig) -> Result<ClusterConfig> {
    Err(given.refuse("security.protocol", "needs TLS, which is not compiled in: the feature `tls` is off"))
}

#[cfg(feature = "tls")]
fn tls(given: &Properties, config: ClusterConfig) -> Result<ClusterConfig> {
    Ok(config.with_tls(tls::settings(given)?))
}

#[cfg(feature = "tls")]
mod tls {
    use super::Properties;
    use crate::{Result, TlsConfig};

    pub(super) fn settings(given: &Properties) -> Result<TlsConfig> {
        let mut tls = TlsConfig::new();
        for (kind, settings) in [
            ("ssl.truststore.type", ["ssl.truststore.location", "ssl.truststore.certificates"]),
            ("ssl.keystore.type", ["ssl.keystore.location", "ssl.keystore.certificate.chain"]),
        ] {
            // Java's default is JKS, which a file without a type would be.
            let used = settings.iter().any(|setting| given.text(setting).is_some());
            let is_pem = given.text(kind).is_some_and(|kind| kind.eq_ignore_ascii_case("PEM"));
            if (used || given.text(kind).is_some()) && !is_pem {
                let why = "has to be PEM: JKS and PKCS12 stores are not read; `keytool -exportcert -rfc` and \
                    `openssl pkcs12 -nodes` make PEM of them";
                return Err(given.refuse(kind, why));
            }
        }
        let one_of = |settings: &[&'static str]| {
            let mut set = settings.iter().filter(|setting| given.text(setting).is_some());
            match (set.next(), set.next()) {
                (Some(one), Some(other)) => Err(given.refuse(one, format!("is set, and so is {other}"))),
                (one, _) => Ok(one.copied()),
            }
        };
        let authorities = one_of(&[
            "ssl.ca.location",
            "ssl.ca.pem",
            "ssl.truststore.location",
            "ssl.truststore.certificates",
        ])?;
        if let Some(setting) = authorities
            && let Some(value) = given.text(setting)
        {
            // librdkafka's word for the system's own.
            let probe = setting == "ssl.ca.location" && value == "probe";
            tls = match setting {
                _ if probe => tls,
                "ssl.ca.location" | "ssl.truststore.location" => tls.with_ca_file(value),
                _ => tls.with_ca_pem(value),
            };
        }
        tls = identity(given, tls)?;
        let wanted = "https, none or empty";
        let algorithm = "ssl.endpoint.identification.algorithm";
        match given.raw(algorithm).map(str::to_ascii_lowercase).as_deref() {
            None | Some("https") => {}
            Some("" | "none") => tls = tls.danger_skip_server_name_check(),
            Some(_) => return Err(given.refuse(algorithm, format!("is not {wanted}"))),
        }
        if given.flag("enable.ssl.certificate.verification")? == Some(false) {
            tls = tls.danger_accept_any_certificate();
        }
        Ok(tls)
    }

    fn identity(given: &Properties, tls: TlsConfig) -> Result<TlsConfig> {
        let certificate = |setting| given.text(setting);
        let places = [
            ("ssl.certificate.location", "ssl.key.location"),
            ("ssl.certificate.pem", "ssl.key.pem"),
            ("ssl.keystore.certificate.chain", "ssl.keystore.key"),
            // One file for both.
            ("ssl.keystore.location", "ssl.keystore.location"),
        ];
        let mut found = None;
        for (chain, key) in places {
            let (chain_value, key_value) = (certificate(chain), certificate(key));
            let (Some(chain_value), Some(key_value)) = (chain_value, key_value) else {
                if chain_value.is_some() {
                    return Err(given.refuse(chain, format!("is set, but {key} is missing")));
                }
                if key_value.is_some() {
                    return Err(given.refuse(key, format!("is set, but {chain} is missing")));
                }
                continue;
            };
            if let Some((other, _, _)) = found {
                return Err(given.refuse(chain, format!("is set, and so is {other}")));
            }
            found = Some((chain, chain_value, key_value));
        }
        Ok(match found {
            None => tls,
            Some(("ssl.certificate.location" | "ssl.keystore.location", chain, key)) => {
                tls.with_identity_files(chain, key)
            }
            Some((_, chain, key)) => tls.with_identity_pem(chain, key),
        })
    }
}
