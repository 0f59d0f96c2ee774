//! The standard's example, and brokers that lead astray.

use super::{Hash, Scram};
use crate::Secret;
use crate::sasl::Next;

/// The example of RFC 7677.
const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
const FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

fn text(next: Next) -> String {
    match next {
        Next::Send(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        Next::Done => "done".to_owned(),
    }
}

fn login() -> Scram {
    Scram::new(Hash::Sha256, "user", Secret::from("pencil"), NONCE)
}

#[test]
fn the_example_of_the_standard() {
    let mut scram = login();
    assert_eq!(scram.open(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let last = text(scram.handle(FIRST.as_bytes()).unwrap());
    assert_eq!(
        last,
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
    let done = scram.handle(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap();
    assert_eq!(text(done), "done");
    assert!(scram.handle(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").is_err());
}

#[test]
fn a_broker_that_does_not_know_the_password_is_refused() {
    let mut scram = login();
    scram.handle(FIRST.as_bytes()).unwrap();
    let refusal = scram.handle(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    assert!(refusal.err().unwrap().contains("password"));
}

#[test]
fn names_are_escaped() {
    let scram = Scram::new(Hash::Sha512, "a=b,c", Secret::from("x"), "nonce");
    assert_eq!(scram.open(), "n,,n=a=3Db=2Cc,r=nonce");
}

#[test]
fn first_messages_that_lead_astray_are_refused() {
    for (first, why) in [
        ("r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "not an answer"),
        ("r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "not an answer"),
        ("r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1", "1 iterations"),
        ("r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4000000000", "iterations"),
        ("r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==", "number of iterations"),
        ("r=rOprNGfwEbeRWgbNEkqOx,s=*,i=4096", "salt"),
        ("m=ext,r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "extension"),
        ("e=unknown-user", "unknown-user"),
        ("", "nonce"),
    ] {
        let refusal = login().handle(first.as_bytes()).err().unwrap();
        assert!(refusal.contains(why), "{first}: {refusal}");
        assert!(!refusal.contains("pencil"));
    }
    assert!(login().handle(&[0xff, 0xfe]).is_err());
}
