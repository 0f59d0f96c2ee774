//! Tokens: their end, their message, and how often a provider is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Bearer, Token, Tokens};
use crate::sasl::Next;
use crate::{Error, ErrorKind};

fn jwt(claims: &str) -> String {
    format!("{}.{}.", URL_SAFE_NO_PAD.encode("{\"alg\":\"none\"}"), URL_SAFE_NO_PAD.encode(claims))
}

#[test]
fn the_end_is_read_from_a_jwt() {
    let token = Token::new(jwt("{\"sub\":\"alice\",\"exp\":1700000000}"));
    assert_eq!(token.expires(), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)));
    for opaque in ["opaque", "a.b.c", "", "..", &jwt("{\"exp\":-1}"), &jwt("{\"exp\":1e300}")] {
        assert_eq!(Token::new(opaque).expires(), None, "{opaque}");
    }
}

#[test]
fn the_message_carries_token_and_extensions() {
    let token = Token::new("abc").with_extension("traceId", "1 2");
    assert_eq!(Bearer::new(&token).unwrap().open(), "n,,\x01auth=Bearer abc\x01traceId=1 2\x01\x01");
    for bad in [
        Token::new(""),
        Token::new("a\x01b"),
        Token::new("a b"),
        Token::new("a").with_extension("auth", "x"),
        Token::new("a").with_extension("x=", "x"),
        Token::new("a").with_extension("x", "\x01"),
    ] {
        assert_eq!(Bearer::new(&bad).err().unwrap().kind(), ErrorKind::InvalidRequest);
    }
}

#[test]
fn a_refusal_is_confirmed_before_it_counts() {
    let mut bearer = Bearer::new(&Token::new("a")).unwrap();
    assert!(
        matches!(bearer.handle(b"{\"status\":\"invalid_token\"}"), Ok(Next::Send(byte)) if byte == "\x01")
    );
    assert_eq!(bearer.handle(b"{\"status\":\"invalid_token\"}").err().unwrap(), "invalid_token");
    let mut bearer = Bearer::new(&Token::new("a")).unwrap();
    assert!(matches!(bearer.handle(b""), Ok(Next::Done)));
}

#[tokio::test]
async fn one_token_serves_until_it_is_refused_and_a_failing_provider_costs_nothing_while_it_is_good() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let tokens = Tokens::new(move || {
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move {
            match number {
                0 => Ok(Token::new("first").with_expiry(SystemTime::now() + Duration::from_secs(60))),
                1 => Err(Error::other("the provider is away")),
                _ => Ok(Token::new("opaque")),
            }
        }
    });
    for _ in 0..3 {
        assert_eq!(tokens.current(None).await.unwrap().value.expose(), "first");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    tokens.kept.lock().await.as_mut().unwrap().stale = SystemTime::now();
    assert_eq!(tokens.current(None).await.unwrap().value.expose(), "first");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    tokens.forget().await;
    // One without an end is asked for each time.
    tokens.current(None).await.unwrap();
    tokens.current(None).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_provider_without_a_token_is_an_authentication_error() {
    let tokens = Tokens::new(|| async { Err(Error::other("the provider is away")) });
    let error = tokens.current(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication);
    assert!(error.to_string().contains("away"), "{error}");
}

#[tokio::test]
async fn a_session_that_ends_with_its_token_is_renewed_with_another_and_one_that_ends_before_is_not() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let tokens = Tokens::new(move || {
        let life = Duration::from_secs(if count.fetch_add(1, Ordering::SeqCst) == 0 { 60 } else { 120 });
        async move { Ok(Token::new("token").with_expiry(SystemTime::now() + life)) }
    });
    tokens.current(None).await.unwrap();
    let session = |seconds| Some(SystemTime::now() + Duration::from_secs(seconds));
    tokens.current(session(30)).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 1, "the broker's own limit: the token has not ended");
    for _ in 0..3 {
        // Several connections' sessions end with the first token; the second serves them all.
        tokens.current(session(59)).await.unwrap();
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}
