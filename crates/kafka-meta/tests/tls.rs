//! TLS against servers made on the spot: whom a client believes, what it shows, and what each mix-up is called.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kafka_meta::wire::frame::FrameReader;
use kafka_meta::{Cluster, ClusterConfig, Error, ErrorKind, TlsConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, version};

use support::{MODERN, api_versions, brokers, encode, framed};

/// An authority, in PEM and able to sign.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key, PEM.
    fn issue(&self, names: &[&str], expired: bool) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        if expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

fn server(identity: &(String, String), clients: Option<&Authority>) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS12, &version::TLS13])
        .unwrap();
    let builder = match clients {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let chain = CertificateDer::pem_slice_iter(identity.0.as_bytes()).map(Result::unwrap).collect();
    builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(identity.1.as_bytes()).unwrap()).unwrap()
}

/// A broker of one node on 127.0.0.1; over TLS where a configuration is given.
async fn broker(tls: Option<ServerConfig>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                match acceptor {
                    Some(acceptor) => {
                        if let Ok(socket) = acceptor.accept(socket).await {
                            serve(socket, port).await;
                        }
                    }
                    None => serve(socket, port).await,
                }
            });
        }
    });
    port
}

async fn serve(mut socket: impl AsyncRead + AsyncWrite + Unpin, port: u16) {
    // As a broker: what announces more than its cap is hung up on.
    let mut reader = FrameReader::new(1 << 20);
    while let Ok(Some(frame)) = reader.next(&mut socket).await {
        let request = support::read(frame, "127.0.0.1", port, 0);
        let body = match request.key {
            18 => encode(&api_versions(MODERN), request.version),
            _ => encode(&brokers(&[(1, "127.0.0.1", port)]), request.version),
        };
        if socket.write_all(&framed(&request, &body)).await.is_err() || socket.flush().await.is_err() {
            return;
        }
    }
}

fn config(host: &str, port: u16) -> ClusterConfig {
    ClusterConfig::new(&format!("{host}:{port}"))
        .with_connect_timeout(Duration::from_secs(5))
        .with_request_timeout(Duration::from_secs(10))
}

async fn refused(config: ClusterConfig, kind: ErrorKind, words: &str) -> Error {
    let start = Instant::now();
    let error = Cluster::connect_with(config).await.expect_err("must not connect");
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    error
}

#[tokio::test]
async fn a_named_authority_is_believed_and_any_other_is_not() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let port = broker(Some(server(&authority.issue(&["127.0.0.1", "localhost"], false), None))).await;
    for host in ["127.0.0.1", "localhost"] {
        let tls = TlsConfig::new().with_ca_pem(authority.pem());
        Cluster::connect_with(config(host, port).with_tls(tls)).await.unwrap();
    }
    for tls in [TlsConfig::new().with_ca_pem(stranger.pem()), TlsConfig::new()] {
        refused(config("127.0.0.1", port).with_tls(tls), ErrorKind::Tls, "no trusted authority").await;
    }
    // Several are believed together, from one text or from two.
    for tls in [
        TlsConfig::new().with_ca_pem(stranger.pem() + &authority.pem()),
        TlsConfig::new().with_ca_pem(stranger.pem()).with_ca_pem(authority.pem()).with_system_roots(),
    ] {
        Cluster::connect_with(config("127.0.0.1", port).with_tls(tls)).await.unwrap();
    }
}

#[tokio::test]
async fn another_name_is_refused_unless_it_is_the_one_expected() {
    let authority = Authority::new();
    let port = broker(Some(server(&authority.issue(&["kafka.example"], false), None))).await;
    let tls = TlsConfig::new().with_ca_pem(authority.pem());
    refused(config("127.0.0.1", port).with_tls(tls.clone()), ErrorKind::Tls, "another name").await;
    let named = tls.clone().with_server_name("kafka.example");
    Cluster::connect_with(config("127.0.0.1", port).with_tls(named)).await.unwrap();
    let unnamed = tls.danger_skip_server_name_check();
    Cluster::connect_with(config("127.0.0.1", port).with_tls(unnamed)).await.unwrap();
    // The chain is checked all the same.
    let stranger = TlsConfig::new().with_ca_pem(Authority::new().pem()).danger_skip_server_name_check();
    refused(config("127.0.0.1", port).with_tls(stranger), ErrorKind::Tls, "no trusted authority").await;
    let any = TlsConfig::new().danger_accept_any_certificate();
    Cluster::connect_with(config("127.0.0.1", port).with_tls(any)).await.unwrap();
}

#[tokio::test]
async fn an_expired_certificate_is_called_expired() {
    let authority = Authority::new();
    let port = broker(Some(server(&authority.issue(&["127.0.0.1"], true), None))).await;
    let tls = TlsConfig::new().with_ca_pem(authority.pem());
    refused(config("127.0.0.1", port).with_tls(tls), ErrorKind::Tls, "expired").await;
}

#[tokio::test]
async fn a_client_shows_its_certificate_and_is_told_when_one_is_missing_or_wrong() {
    let authority = Authority::new();
    let identity = authority.issue(&["127.0.0.1"], false);
    let port = broker(Some(server(&identity, Some(&authority)))).await;
    let tls = TlsConfig::new().with_ca_pem(authority.pem());
    let (certificate, key) = authority.issue(&["me"], false);
    let shown = tls.clone().with_identity_pem(certificate.clone(), key);
    Cluster::connect_with(config("127.0.0.1", port).with_tls(shown)).await.unwrap();
    refused(config("127.0.0.1", port).with_tls(tls.clone()), ErrorKind::Tls, "certificate").await;
    let (strange, strange_key) = Authority::new().issue(&["me"], false);
    let strange = tls.clone().with_identity_pem(strange, strange_key.clone());
    refused(config("127.0.0.1", port).with_tls(strange), ErrorKind::Tls, "refuses").await;
    let mixed = tls.with_identity_pem(certificate, strange_key);
    let words = "does not belong";
    refused(config("127.0.0.1", port).with_tls(mixed), ErrorKind::InvalidRequest, words).await;
}

#[tokio::test]
async fn the_two_mix_ups_of_ports_are_told_apart() {
    let authority = Authority::new();
    let secured = broker(Some(server(&authority.issue(&["127.0.0.1"], false), None))).await;
    refused(config("127.0.0.1", secured), ErrorKind::Tls, "speaks TLS").await;
    let clear = broker(None).await;
    let tls = TlsConfig::new().with_ca_pem(authority.pem());
    let config = config("127.0.0.1", clear).with_request_timeout(Duration::from_secs(2)).with_tls(tls);
    refused(config, ErrorKind::Tls, "does this port speak TLS?").await;
}

#[tokio::test]
async fn what_is_not_there_is_called_by_its_name() {
    let quick = |host: &str, port| config(host, port).with_request_timeout(Duration::from_secs(2));
    let closed = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    refused(quick("127.0.0.1", closed), ErrorKind::Disconnected, "refused").await;
    refused(quick("no-such-host.invalid", 9092), ErrorKind::Disconnected, "cannot be resolved").await;
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port();
    for tls in [None, Some(TlsConfig::new().danger_accept_any_certificate())] {
        let mut config = quick("127.0.0.1", port).with_connect_timeout(Duration::from_millis(300));
        if let Some(tls) = tls {
            config = config.with_tls(tls);
        }
        refused(config, ErrorKind::Timeout, "nothing came back").await;
    }
}

#[tokio::test]
async fn certificates_replaced_on_disk_are_used_by_the_next_connection() {
    let (first, second) = (Authority::new(), Authority::new());
    let one = broker(Some(server(&first.issue(&["127.0.0.1"], false), Some(&first)))).await;
    let two = broker(Some(server(&second.issue(&["127.0.0.1"], false), Some(&second)))).await;
    let folder = std::env::temp_dir().join(format!("kafka-meta-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |authority: &Authority| {
        let (certificate, key) = authority.issue(&["me"], false);
        std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
        std::fs::write(folder.join("me.pem"), certificate + &key).unwrap();
    };
    write(&first);
    let me = folder.join("me.pem");
    let tls = TlsConfig::new().with_ca_file(folder.join("ca.pem")).with_identity_files(&me, &me);
    Cluster::connect_with(config("127.0.0.1", one).with_tls(tls.clone())).await.unwrap();
    refused(config("127.0.0.1", two).with_tls(tls.clone()), ErrorKind::Tls, "authority").await;
    // Half written: what was read before serves on.
    std::fs::write(&me, "-----BEGIN CERT").unwrap();
    Cluster::connect_with(config("127.0.0.1", one).with_tls(tls.clone())).await.unwrap();
    write(&second);
    Cluster::connect_with(config("127.0.0.1", two).with_tls(tls)).await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn brokers_that_hang_up_in_the_handshake_later_on_are_away_rather_than_misconfigured() {
    let authority = Authority::new();
    let identity = authority.issue(&["127.0.0.1"], false);
    let acceptor = TlsAcceptor::from(Arc::new(server(&identity, None)));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (acceptor, number) = (acceptor.clone(), count.fetch_add(1, Ordering::SeqCst));
            tokio::spawn(async move {
                if number > 0 {
                    let _ = socket.read(&mut [0; 16]).await;
                    return;
                }
                let mut socket = acceptor.accept(socket).await.unwrap();
                let limited = async { serve(&mut socket, port).await };
                let _ = tokio::time::timeout(Duration::from_millis(500), limited).await;
            });
        }
    });
    let tls = TlsConfig::new().with_ca_pem(authority.pem());
    let cluster = Cluster::connect_with(config("127.0.0.1", port).with_tls(tls)).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let via = kafka_meta::client::Via::control();
        let limit = Instant::now() + Duration::from_secs(1);
        if let Err(error) = cluster.versions(1, &via, limit).await {
            assert_ne!(error.kind(), ErrorKind::Tls, "{error}");
            if accepted.load(Ordering::SeqCst) > 3 {
                return;
            }
        }
        assert!(Instant::now() < deadline, "{} connections", accepted.load(Ordering::SeqCst));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
