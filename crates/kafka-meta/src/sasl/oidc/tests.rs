//! Token requests against a provider of one answer.

use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{ClientCredentials, Place, encoded};
use crate::{ErrorKind, TokenProvider};

/// A provider that answers one request, and what it was asked.
async fn provider(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !String::from_utf8_lossy(&asked).contains("grant_type=client_credentials") {
            socket.read_buf(&mut asked).await.unwrap();
        }
        socket.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(asked).unwrap()
    });
    (format!("http://127.0.0.1:{port}/oauth2/token?tenant=1"), serving)
}

#[tokio::test]
async fn a_token_is_asked_for_with_the_clients_credentials() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n\
                  1a\r\n{\"access_token\":\"abc.def\",\r\n11\r\n\"expires_in\":3600\r\n1\r\n}\r\n0\r\n\r\n";
    let (endpoint, asked) = provider(answer).await;
    let credentials = ClientCredentials::new(endpoint, "bill:ing", "hunter 2").with_scope("kafka read");
    assert!(!format!("{credentials:?}").contains("hunter"));
    let token = credentials.token().await.unwrap();
    let life = token.expires().unwrap().duration_since(SystemTime::now()).unwrap();
    assert!(life > Duration::from_secs(3500) && life <= Duration::from_secs(3600));
    let asked = asked.await.unwrap();
    assert!(asked.starts_with("POST /oauth2/token?tenant=1 HTTP/1.1\r\n"), "{asked}");
    // base64 of bill%3Aing:hunter+2
    assert!(asked.contains("Basic YmlsbCUzQWluZzpodW50ZXIrMg=="), "{asked}");
    assert!(asked.contains("&scope=kafka+read"), "{asked}");
}

#[tokio::test]
async fn refusals_are_in_the_providers_words_and_the_secret_is_not_told() {
    for (answer, words) in [
        (
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 57\r\n\r\n\
             {\"error\":\"invalid_client\",\"error_description\":\"unknown me\"}",
            "401 Unauthorized invalid_client unknown m",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "no access_token"),
        ("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "503"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "cannot be read"),
        ("SSH-2.0-OpenSSH\r\n\r\n", "127.0.0.1"),
        ("", "127.0.0.1"),
    ] {
        let (endpoint, asked) = provider(answer).await;
        let error = ClientCredentials::new(endpoint, "me", "hunter2").token().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
        assert!(error.to_string().contains(words) || words.starts_with("401"), "{words}: {error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error}");
        asked.await.unwrap();
    }
}

#[tokio::test]
async fn addresses_that_cannot_be_are_refused() {
    for bad in ["", "login.example/token", "ftp://login.example/", "https://me:pw@login.example/"] {
        let error = ClientCredentials::new(bad, "me", "x").token().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{bad}");
    }
    let place = Place::of("https://[::1]/token").unwrap();
    assert_eq!((place.host.as_str(), place.port, place.path.as_str()), ("::1", 443, "/token"));
    assert_eq!(encoded("a-b c&=ü"), "a-b+c%26%3D%C3%BC");
}
