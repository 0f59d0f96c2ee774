//! Certificates, users and listeners for tests of TLS and SASL.
//!
//! One preset, [`Builder::secured`], gives every node four more listeners beside the plain one:
//!
//! | listener | transport | login |
//! |---|---|---|
//! | `SASLP` | clear text | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER (unsecured tokens) |
//! | `TLS` | TLS, PEM store | none |
//! | `MTLS` | TLS, PKCS12 store | the client's certificate |
//! | `SASLS` | TLS, PKCS12 store | as `SASLP` |
//!
//! Users: alice with "alice-secret", bob with "bob-secret"; SCRAM knows alice only. Certificates are made by
//! `openssl`, once, and made anew before they run out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use super::artifacts::root;
use super::builder::Builder;
use crate::failure::{Doing, Failure, Result};

const PASSWORD: &str = "changeit";
const VALID_DAYS: u64 = 30;
const MECHANISMS: &str = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER";

/// PEM and PKCS12 files of a test's authority, its servers and its client. The names are 127.0.0.1 and
/// localhost.
#[derive(Debug, Clone)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Finds the certificates, or makes them. Blocks for a moment.
    pub fn make() -> Result<Self> {
        let folder = root().join("certificates");
        if !is_fresh(&folder) {
            let part = root().join(format!("certificates-{}.part", std::process::id()));
            let _ = fs::remove_dir_all(&part);
            fs::create_dir_all(&part).doing(|| format!("create {}", part.display()))?;
            create(&part)?;
            let _ = fs::remove_dir_all(&folder);
            if fs::rename(&part, &folder).is_err() && !is_fresh(&folder) {
                return Err(Failure::new("certificates could not be put in their place"));
            }
        }
        Ok(Self { folder })
    }

    /// The authority's certificate, PEM.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// An authority that signed none of the others, PEM.
    pub fn stranger(&self) -> PathBuf {
        self.folder.join("stranger.pem")
    }

    /// The client's certificate, PEM.
    pub fn client(&self) -> PathBuf {
        self.folder.join("client.crt")
    }

    /// The client's unencrypted key, PKCS#8 PEM.
    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }

    fn server_pem(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    fn server_p12(&self) -> PathBuf {
        self.folder.join("server.p12")
    }
}

impl Builder {
    /// With the listeners, users and certificates of [`Certificates`]; addresses by
    /// [`super::Kafka::listener`]. Blocks for a moment.
    pub fn secured(self) -> Result<Self> {
        let made = Certificates::make()?;
        let scram = |digest: &str| format!("{digest}=[name=alice,password=alice-secret]");
        let mut builder = self
            .listener("SASLP", "SASL_PLAINTEXT")
            .listener("TLS", "SSL")
            .listener("MTLS", "SSL")
            .listener("SASLS", "SASL_SSL")
            .format(["--add-scram".to_owned(), scram("SCRAM-SHA-256")])
            .format(["--add-scram".to_owned(), scram("SCRAM-SHA-512")])
            .property("sasl.enabled.mechanisms", MECHANISMS);
        for listener in ["saslp", "sasls"] {
            for (mechanism, module) in [
                (
                    "plain",
                    "plain.PlainLoginModule required user_alice=\"alice-secret\" user_bob=\"bob-secret\";",
                ),
                ("scram-sha-256", "scram.ScramLoginModule required;"),
                ("scram-sha-512", "scram.ScramLoginModule required;"),
                (
                    "oauthbearer",
                    "oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";",
                ),
            ] {
                builder = builder.property(
                    format!("listener.name.{listener}.{mechanism}.sasl.jaas.config"),
                    format!("org.apache.kafka.common.security.{module}"),
                );
            }
        }
        // A store with a password is refused for PEM, an inherited one as well: so it is set per listener.
        builder = builder
            .property("listener.name.tls.ssl.keystore.type", "PEM")
            .property("listener.name.tls.ssl.keystore.location", made.server_pem().display().to_string());
        for listener in ["mtls", "sasls"] {
            builder = builder
                .property(format!("listener.name.{listener}.ssl.keystore.type"), "PKCS12")
                .property(
                    format!("listener.name.{listener}.ssl.keystore.location"),
                    made.server_p12().display().to_string(),
                )
                .property(format!("listener.name.{listener}.ssl.keystore.password"), PASSWORD);
        }
        Ok(builder
            .property("listener.name.mtls.ssl.client.auth", "required")
            .property("listener.name.mtls.ssl.truststore.type", "PEM")
            .property("listener.name.mtls.ssl.truststore.location", made.authority().display().to_string()))
    }

    /// With ACLs: alice and the plain listener's clients may do everything, everybody else what a test
    /// allows.
    #[must_use]
    pub fn with_acls(self) -> Self {
        self.property("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
            .property("super.users", "User:alice;User:ANONYMOUS")
    }
}

/// The last file of [`create`], well before its certificates run out.
fn is_fresh(folder: &Path) -> bool {
    let Ok(made) = fs::metadata(folder.join("stranger.pem")).and_then(|file| file.modified()) else {
        return false;
    };
    let age = SystemTime::now().duration_since(made).unwrap_or_default();
    age < Duration::from_secs(24 * 3600 * (VALID_DAYS - 5))
}

fn create(folder: &Path) -> Result<()> {
    authority(folder, "ca", "/CN=testkit authority")?;
    let extensions = "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n";
    write(folder, "extensions", extensions)?;
    let days = VALID_DAYS.to_string();
    for who in ["server", "client"] {
        let (key, csr, crt) = (format!("{who}.key"), format!("{who}.csr"), format!("{who}.crt"));
        let subject = format!("/CN={who}");
        // Makes a PKCS#8 key, as Kafka's PEM store wants it.
        let mut arguments = vec!["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        arguments.extend(["-subj", &subject, "-keyout", &key, "-out", &csr]);
        openssl(folder, &arguments)?;
        let mut arguments = vec!["x509", "-req", "-in", &csr, "-CA", "ca.pem", "-CAkey", "ca.key"];
        arguments.extend(["-CAcreateserial", "-days", &days, "-out", &crt, "-extfile", "extensions"]);
        openssl(folder, &arguments)?;
        let mut chain = read(folder, &key)?;
        chain.push_str(&read(folder, &crt)?);
        chain.push_str(&read(folder, "ca.pem")?);
        write(folder, &format!("{who}.pem"), &chain)?;
        let (p12, password) = (format!("{who}.p12"), format!("pass:{PASSWORD}"));
        let mut arguments = vec!["pkcs12", "-export", "-in", &crt, "-inkey", &key, "-certfile", "ca.pem"];
        arguments.extend(["-name", who, "-out", &p12, "-passout", &password]);
        openssl(folder, &arguments)?;
    }
    authority(folder, "stranger", "/CN=testkit stranger")
}

fn authority(folder: &Path, name: &str, subject: &str) -> Result<()> {
    let (key, pem) = (format!("{name}.key"), format!("{name}.pem"));
    let days = VALID_DAYS.to_string();
    let mut arguments =
        vec!["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    arguments.extend(["-days", &days, "-subj", subject, "-keyout", &key, "-out", &pem]);
    openssl(folder, &arguments)
}

fn openssl(folder: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .doing(|| "run openssl".to_owned())?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("openssl {arguments:?}:\n{}", String::from_utf8_lossy(&output.stderr))))
}

fn read(folder: &Path, name: &str) -> Result<String> {
    fs::read_to_string(folder.join(name)).doing(|| format!("read {name}"))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    fs::write(folder.join(name), text).doing(|| format!("write {name}"))
}
