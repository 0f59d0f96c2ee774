//! Client credentials against an issuer that signs, and real brokers that check its signatures: a token is fetched and
//! renewed before it ends, and each refusal is called by its name.
//!
//! The issuer is a few lines of HTTP on a loopback port: a token endpoint and a key set (JWKS). What it is not: a model
//! of any provider's product.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use kafka_consume::{
    Cluster, ClusterConfig, Consumer, ConsumerConfig, ErrorKind, Position, parse_properties,
};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use support::{LIMIT, Oracle, one};
use testkit::Kafka;
use testkit::kafka;
use testkit::produce::Writer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

/// A token lives this long; brokers end the session with it.
const LIFE: u64 = 6;

struct Issuer {
    address: String,
    asked: AtomicU64,
    refused: AtomicU64,
    keys: RsaKeyPair,
}

impl Issuer {
    async fn start() -> Arc<Issuer> {
        let made = Command::new("openssl")
            .args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-outform", "DER"])
            .output()
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Arc::new(Issuer {
            address: listener.local_addr().unwrap().to_string(),
            asked: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            // Which of the two encodings comes out depends on the version of openssl.
            keys: RsaKeyPair::from_pkcs8(&made.stdout)
                .or_else(|_| RsaKeyPair::from_der(&made.stdout))
                .unwrap(),
        });
        let serving = issuer.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let issuer = serving.clone();
                // A peer that hangs up is none of the issuer's business.
                tokio::spawn(async move { issuer.serve(stream).await });
            }
        });
        issuer
    }

    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut request = Vec::new();
        let whole = |request: &[u8]| {
            let text = String::from_utf8_lossy(request).into_owned();
            let (head, body) = text.split_once("\r\n\r\n")?;
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            (body.len() >= length.unwrap_or(0)).then(|| (head.to_owned(), body.to_owned()))
        };
        let (head, body) = loop {
            if let Some(parts) = whole(&request) {
                break parts;
            }
            if stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        };
        let (status, answer) = self.answer(&head, &body);
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
            answer.len()
        );
        stream.write_all(answer.as_bytes()).await
    }

    fn answer(&self, head: &str, body: &str) -> (&'static str, String) {
        if head.starts_with("GET /jwks ") {
            let parts = PublicKeyComponents::<Vec<u8>>::from(self.keys.public_key());
            let (n, e) = (URL_SAFE_NO_PAD.encode(parts.n), URL_SAFE_NO_PAD.encode(parts.e));
            let key = format!(
                "{{\"kty\":\"RSA\",\"use\":\"sig\",\"alg\":\"RS256\",\"kid\":\"k\",\"n\":\"{n}\",\"e\":\"{e}\"}}"
            );
            return ("200 OK", format!("{{\"keys\":[{key}]}}"));
        }
        assert!(head.starts_with("POST /token "), "{head}");
        assert!(body.contains("grant_type=client_credentials"), "{body}");
        let login = format!("Basic {}", STANDARD.encode("billing:issuer-secret"));
        if !head
            .lines()
            .any(|line| line.to_ascii_lowercase().starts_with("authorization:") && line.ends_with(&login))
        {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return ("401 Unauthorized", "{\"error\":\"invalid_client\"}".to_owned());
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        let audience = if body.contains("scope=elsewhere") { "elsewhere" } else { "kafka" };
        let token = self.sign(audience);
        (
            "200 OK",
            format!("{{\"access_token\":\"{token}\",\"token_type\":\"Bearer\",\"expires_in\":{LIFE}}}"),
        )
    }

    fn sign(&self, audience: &str) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let claims = format!(
            "{{\"iss\":\"testkit\",\"aud\":\"{audience}\",\"sub\":\"billing\",\"scope\":\"kafka\",\"iat\":{now},\"exp\":{}}}",
            now + LIFE
        );
        let head = URL_SAFE_NO_PAD.encode("{\"alg\":\"RS256\",\"typ\":\"JWT\",\"kid\":\"k\"}");
        let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
        let mut signature = vec![0; self.keys.public().modulus_len()];
        self.keys.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

async fn brokers(issuer: &Issuer) -> Kafka {
    let jwks = format!("http://{}/jwks", issuer.address);
    let oauth = "org.apache.kafka.common.security.oauthbearer";
    let own = |name: &str| format!("listener.name.oidc.oauthbearer.{name}");
    Kafka::builder()
        .listener("OIDC", "SASL_PLAINTEXT")
        .jvm_flag(format!("-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}"))
        .property("listener.name.oidc.sasl.enabled.mechanisms", "OAUTHBEARER")
        .property(own("sasl.jaas.config"), format!("{oauth}.OAuthBearerLoginModule required;"))
        .property(
            own("sasl.server.callback.handler.class"),
            format!("{oauth}.OAuthBearerValidatorCallbackHandler"),
        )
        .property("sasl.oauthbearer.jwks.endpoint.url", jwks)
        .property("sasl.oauthbearer.expected.audience", "kafka")
        .property("sasl.oauthbearer.expected.issuer", "testkit")
        .start()
        .await
        .unwrap()
}

/// As Java's client is told, but for what a test changes.
fn settings(kafka: &Kafka, issuer: &Issuer, secret: &str, scope: &str) -> ClusterConfig {
    let text = format!(
        "bootstrap.servers = {}
         security.protocol = SASL_PLAINTEXT
         sasl.mechanism = OAUTHBEARER
         sasl.login.callback.handler.class = org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
         sasl.oauthbearer.token.endpoint.url = http://{}/token
         sasl.jaas.config = org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \\
             clientId=\"billing\" clientSecret=\"{secret}\" scope=\"{scope}\" ;
         request.timeout.ms = 5000\n",
        kafka.listener("OIDC").unwrap(),
        issuer.address
    );
    ClusterConfig::from_properties(parse_properties(&text)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_z10_tokens_of_an_issuer_are_fetched_renewed_and_refused_by_name() {
    if !kafka::enabled() {
        return;
    }
    let issuer = Issuer::start().await;
    let kafka = brokers(&issuer).await;
    kafka.create_topic("t", 1, 1, &[]).await.unwrap();
    let cluster = Cluster::connect_with(settings(&kafka, &issuer, "issuer-secret", "kafka")).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new().max_wait_ms(100));
    consumer.assign(one("t", 0), Position::Earliest).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    let mut oracle = Oracle::strict();
    let start = Instant::now();
    let reading = timeout(LIMIT, async {
        let mut written = 0;
        // Three tokens' worth, on connections that stay.
        while start.elapsed() < Duration::from_secs(3 * LIFE)
            || u64::try_from(oracle.count).unwrap() < written
        {
            if start.elapsed() < Duration::from_secs(3 * LIFE) {
                writer.numbers("t", 0, written..written + 1).await.unwrap();
                written += 1;
            }
            oracle.take_all(&consumer.poll().await.expect("no error surfaces"));
        }
    });
    reading.await.expect("reading goes on");
    assert_eq!(consumer.metrics().fetch_errors, 0, "no connection was lost to a token that ended");
    let asked = issuer.asked.load(Ordering::Relaxed);
    assert!((3..=8).contains(&asked), "{asked} tokens in {:?}: one serves all connections", start.elapsed());

    for (what, secret, scope, words) in [
        ("a wrong secret", "wrong-secret", "kafka", "invalid_client"),
        ("a token for somebody else", "issuer-secret", "elsewhere", "invalid_token"),
    ] {
        let config = settings(&kafka, &issuer, secret, scope);
        let start = Instant::now();
        let error =
            Cluster::connect_with(config.clone()).await.err().unwrap_or_else(|| panic!("{what} got in"));
        let text = format!("{error} {error:?} {config:?}");
        assert_eq!(error.kind(), ErrorKind::Authentication, "{what}: {text}");
        assert!(text.contains(words), "{what}: {text}");
        assert!(!text.contains("-secret") && !text.contains("eyJ"), "{what}: {text}");
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: {:?}", start.elapsed());
    }
    assert!(issuer.refused.load(Ordering::Relaxed) <= 3, "the issuer is not asked in a loop");
}
