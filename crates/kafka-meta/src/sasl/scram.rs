//! SCRAM (RFC 5802) with SHA-256 and SHA-512, pure but for [`nonce`].
//!
//! States: *opened* (our first message is out), *proven* (our proof is out), *done* (the broker has proven that it
//! knows the password as well). Anything out of turn or malformed is a refusal.
//!
//! As brokers do, names and passwords are taken as UTF-8 without SASLprep. Iterations below 4,096 are refused, as
//! Java does: a broker that asks for few is after the password. So are more than a million: it is after our time.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ring::rand::SecureRandom;
use ring::{digest, hmac, pbkdf2};

use super::Next;
use crate::{Error, ErrorKind, Result, Secret};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    pub(super) fn mechanism(self) -> &'static str {
        match self {
            Hash::Sha256 => "SCRAM-SHA-256",
            Hash::Sha512 => "SCRAM-SHA-512",
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

const MIN_ITERATIONS: u32 = 4_096;
const MAX_ITERATIONS: u32 = 1_000_000;

/// What the client contributes to the login's randomness.
pub(super) fn nonce() -> Result<String> {
    let mut random = [0; 24];
    ring::rand::SystemRandom::new().fill(&mut random).map_err(|_| {
        Error::new(ErrorKind::Other, "connect (SASL)").with_detail("the system gives no random numbers")
    })?;
    Ok(STANDARD.encode(random))
}

/// One login.
pub(crate) struct Scram {
    hash: Hash,
    password: Secret,
    nonce: String,
    /// The first message without its GS2 header.
    bare: String,
    state: State,
}

enum State {
    Opened,
    Proven { server_key: hmac::Key, message: String },
    Done,
}

impl Scram {
    pub(super) fn new(hash: Hash, user: &str, password: Secret, nonce: &str) -> Scram {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={user},r={nonce}");
        Scram { hash, password, nonce: nonce.to_owned(), bare, state: State::Opened }
    }

    pub(super) fn open(&self) -> Bytes {
        format!("n,,{}", self.bare).into()
    }

    /// Deriving a key from the password takes milliseconds.
    pub(super) fn is_heavy(&self) -> bool {
        matches!(self.state, State::Opened)
    }

    pub(super) fn handle(&mut self, answer: &[u8]) -> std::result::Result<Next, String> {
        let answer =
            std::str::from_utf8(answer).map_err(|_| "the broker's message is not text".to_owned())?;
        if let Some(error) = attribute(answer, 'e') {
            return Err(error.to_owned());
        }
        match std::mem::replace(&mut self.state, State::Done) {
            State::Opened => self.prove(answer),
            State::Proven { server_key, message } => {
                let signature = attribute(answer, 'v').and_then(|text| STANDARD.decode(text).ok());
                let signature = signature.ok_or_else(|| "the broker proves nothing".to_owned())?;
                hmac::verify(&server_key, message.as_bytes(), &signature)
                    .map_err(|_| "the broker does not know the password".to_owned())?;
                Ok(Next::Done)
            }
            State::Done => Err("the broker goes on after the login's end".to_owned()),
        }
    }

    fn prove(&mut self, first: &str) -> std::result::Result<Next, String> {
        let refuse = |why: &str| Err(format!("the broker's first SCRAM message {why}"));
        if attribute(first, 'm').is_some() {
            return refuse("asks for an extension");
        }
        let Some(nonce) = attribute(first, 'r') else { return refuse("has no nonce") };
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return refuse("is not an answer to ours");
        }
        let Some(salt) = attribute(first, 's').and_then(|salt| STANDARD.decode(salt).ok()) else {
            return refuse("has no salt");
        };
        let iterations = attribute(first, 'i').and_then(|count| count.parse::<u32>().ok());
        let Some(iterations) = iterations else { return refuse("has no number of iterations") };
        if !(MIN_ITERATIONS..=MAX_ITERATIONS).contains(&iterations) {
            return Err(format!(
                "the broker asks for {iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted"
            ));
        }
        let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        let mut salted = vec![0; self.hash.digest().output_len()];
        let password = self.password.expose().as_bytes();
        pbkdf2::derive(self.hash.pbkdf2(), iterations, &salt, password, &mut salted);
        let salted = hmac::Key::new(self.hash.hmac(), &salted);

        let without_proof = format!("c=biws,r={nonce}");
        let message = format!("{},{first},{without_proof}", self.bare);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.digest(), client_key.as_ref());
        let stored_key = hmac::Key::new(self.hash.hmac(), stored_key.as_ref());
        let signature = hmac::sign(&stored_key, message.as_bytes());
        let proof: Vec<u8> =
            client_key.as_ref().iter().zip(signature.as_ref()).map(|(key, sign)| key ^ sign).collect();
        let server_key = hmac::sign(&salted, b"Server Key");
        let server_key = hmac::Key::new(self.hash.hmac(), server_key.as_ref());
        let last = format!("{without_proof},p={}", STANDARD.encode(proof));
        self.state = State::Proven { server_key, message };
        Ok(Next::Send(last.into()))
    }
}

/// The value of `name=value` in a list of them.
fn attribute(message: &str, name: char) -> Option<&str> {
    message.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests;
