//! Sessions recorded from real brokers: our requests are those of the Java client byte for byte, and the recorded
//! answers move the state as they moved hers.

use std::path::Path;

use kafka_meta::TopicName;
use kafka_meta::wire::fetch::{FetchAnswer, decode};
use serde_json::Value;
use uuid::Uuid;

use super::super::{FetchSession, Outcome, Want};
use super::{request_bytes, want};

struct Exchange {
    json: Value,
    answer: FetchAnswer,
}

fn recorded(broker: &str, version: i16, case: &str) -> Exchange {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/fetch").join(broker);
    let read =
        |extension| std::fs::read(root.join(format!("v{version}-session-{case}.{extension}"))).unwrap();
    let json = serde_json::from_slice(&read("json")).unwrap();
    Exchange { json, answer: decode(version, read("bin").into()).unwrap() }
}

impl Exchange {
    fn request_bytes(&self) -> Vec<u8> {
        let hex = self.json["request_body_hex"].as_str().unwrap();
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// The id the request's first (or first forgotten) topic goes by; nil in versions that use names.
    fn id(&self, list: &str) -> Uuid {
        let text = self.json["request"][list][0]["topicId"].as_str();
        text.map_or(Uuid::nil(), |text| {
            let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            text.chars().enumerate().fold(Uuid::nil(), |id, (at, digit)| {
                let bits = digits.find(digit).unwrap() as u128;
                let shifted = if at == 21 { id.as_u128() << 2 | bits >> 4 } else { id.as_u128() << 6 | bits };
                Uuid::from_u128(shifted)
            })
        })
    }

    fn name(&self) -> &str {
        self.json["request"]["topics"][0]["topic"].as_str().unwrap_or("not-named")
    }

    fn int(&self, field: &str) -> i32 {
        self.json["request"][field].as_i64().unwrap() as i32
    }
}

fn each(test: impl Fn(&str, i16)) {
    for (broker, newest) in [("3.9.1", 17), ("4.3.1", 18)] {
        for version in [11, 12, 13, 16, newest] {
            test(broker, version);
        }
    }
    test("4.3.1", 17);
}

/// Sends what is wanted and takes the recorded answer.
fn exchange(session: &mut FetchSession, version: i16, wants: &[Want], recorded: &Exchange) -> Outcome {
    let plan = session.build(wants);
    assert_eq!(
        request_bytes(&plan, version),
        recorded.request_bytes(),
        "{plan:?} is not {}",
        recorded.json["request"]
    );
    session.handle_answer(&plan, recorded.answer.clone())
}

fn used(outcome: Outcome) -> Vec<(TopicName, i32, i16, usize)> {
    match outcome {
        Outcome::Use(fetched) => fetched
            .into_iter()
            .map(|one| (one.topic, one.part.partition, one.part.error.value(), one.part.records.len()))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_recorded_session_is_opened_kept_changed_and_lost_as_recorded() {
    each(|broker, version| {
        let load = |case| recorded(broker, version, case);
        let (open, add, unknown) = (load("1-open"), load("4-forget-and-add"), load("5-unknown-topic"));
        let plain = TopicName::new("g-plain");
        let empty = TopicName::new("g-empty");
        let id = open.id("topics");
        assert_eq!(add.id("forgottenTopicsData"), id);

        let mut session = FetchSession::new();
        let mut wants = vec![want(&plain, id, 0, 15), want(&plain, id, 1, 4)];
        let got = used(exchange(&mut session, version, &wants, &open));
        assert_eq!(got, [(plain, 0, 0, 0), (plain, 1, 0, 0)]);
        let session_id = open.answer.session_id;
        assert_eq!((session.id, session.epoch), (session_id, 1));

        assert_eq!(used(exchange(&mut session, version, &wants, &load("2-empty"))), []);
        assert_eq!((session.id, session.epoch), (session_id, 2));

        wants[1].offset = 0;
        let got = used(exchange(&mut session, version, &wants, &load("3-changed")));
        assert!(matches!(got[..], [(topic, 1, 0, 1..)] if topic == plain), "{got:?}");
        assert_eq!((session.id, session.epoch), (session_id, 3));

        wants[1] = want(&empty, add.id("topics"), 0, 0);
        assert_eq!(used(exchange(&mut session, version, &wants, &add)), [(empty, 0, 0, 0)]);
        assert_eq!((session.id, session.epoch), (session_id, 4));

        wants.push(want(unknown.name(), unknown.id("topics"), 0, 0));
        let code = if version >= 13 { 100 } else { 3 };
        let got = used(exchange(&mut session, version, &wants, &unknown));
        assert_eq!(got, [(TopicName::new(unknown.name()), 0, code, 0)]);
        assert_eq!((session.id, session.epoch), (session_id, 5));
        assert_eq!(session.len(), 3);

        // The recorder lied about the epoch to get its error; we have to be made to.
        let bad_epoch = load("6-bad-epoch");
        session.epoch = bad_epoch.int("sessionEpoch");
        let outcome = exchange(&mut session, version, &wants, &bad_epoch);
        assert!(matches!(outcome, Outcome::Reopen { refresh: false, .. }), "{outcome:?}");
        assert_eq!((session.id, session.epoch), (session_id, 0));
        let again = session.build(&wants);
        assert!(again.is_full() && again.session_id == session_id && again.send == wants, "{again:?}");
    });
}

#[test]
fn a_session_the_recorded_broker_does_not_know_is_opened_anew() {
    each(|broker, version| {
        let unknown = recorded(broker, version, "7-unknown-id");
        let mut session = FetchSession::new();
        session.by_id = version >= 13;
        (session.id, session.epoch) = (unknown.int("sessionId"), unknown.int("sessionEpoch"));
        let outcome = exchange(&mut session, version, &[], &unknown);
        assert!(matches!(outcome, Outcome::Reopen { refresh: false, .. }), "{outcome:?}");
        assert_eq!((session.id, session.epoch), (0, 0));
    });
}

#[test]
fn closing_names_the_recorded_session_and_its_answer_changes_nothing() {
    each(|broker, version| {
        let close = recorded(broker, version, "8-close");
        let mut session = FetchSession::new();
        (session.id, session.epoch) = (close.int("sessionId"), 6);
        let plan = session.close().expect("a session to close");
        // The recorder lists a partition as well; a closing request needs none.
        assert_eq!((plan.session_id, plan.epoch), (close.int("sessionId"), close.int("sessionEpoch")));
        assert!(plan.send.is_empty() && plan.forget.is_empty());
        let outcome = session.handle_answer(&plan, close.answer);
        assert!(matches!(&outcome, Outcome::Use(fetched) if fetched.is_empty()), "{outcome:?}");
        assert_eq!((session.id, session.epoch), (0, 0));
        assert!(session.close().is_none());
    });
}
