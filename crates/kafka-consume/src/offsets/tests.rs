//! The pure parts of commits and OffsetFetch, time given as an argument.

mod abandoned;
mod embedded;
mod fetch;
mod identity;
mod merge;
mod model;
mod refusals;
mod retries;

use std::time::{Duration, Instant};

use kafka_meta::{CommittedOffset, ErrorCode, Result, TopicName};

use super::core::{CallId, Core, Key, Outcome, Plan};
use super::{GroupOffsets, Identity};

const MINUTE: Duration = Duration::from_secs(60);

fn key(partition: i32) -> Key {
    (TopicName::new("orders"), partition)
}

fn offsets(list: &[(i32, i64)]) -> Vec<(Key, CommittedOffset)> {
    list.iter().map(|(partition, offset)| (key(*partition), CommittedOffset::new(*offset))).collect()
}

fn member(incarnation: u64, generation: i32) -> Identity {
    Identity { generation, member_id: "m".to_owned(), instance_id: None, incarnation }
}

/// The core and a clock.
struct Bench {
    core: Core,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Bench { core: Core::new(), now: Instant::now() }
    }

    fn commit(&mut self, list: &[(i32, i64)]) -> CallId {
        self.commit_as(list, Identity::anonymous()).unwrap()
    }

    fn commit_as(&mut self, list: &[(i32, i64)], identity: Identity) -> Result<CallId> {
        self.core.submit(offsets(list), identity, self.now + MINUTE)
    }

    fn send(&mut self) -> Option<(Plan, Vec<(i32, i64)>)> {
        let plan = self.core.poll_output(self.now)?;
        let sent = plan.offsets.iter().map(|((_, partition), offset)| (*partition, offset.offset)).collect();
        Some((plan, sent))
    }

    /// What the next request stores.
    fn sent(&mut self) -> (Plan, Vec<(i32, i64)>) {
        self.send().expect("a request is due")
    }

    fn answer(&mut self, plan: &Plan, codes: &[(i32, i16)]) -> bool {
        let codes = codes.iter().map(|(partition, code)| (key(*partition), ErrorCode::from(*code))).collect();
        self.core.handle_answer(self.now, plan.ticket, codes, 0.5)
    }

    fn answer_all(&mut self, plan: &Plan, code: i16) -> bool {
        let codes: Vec<_> = plan.offsets.iter().map(|((_, partition), _)| (*partition, code)).collect();
        self.answer(plan, &codes)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn finished(&mut self) -> Vec<(CallId, Outcome)> {
        std::iter::from_fn(|| self.core.poll_finished()).collect()
    }

    fn outcome(&mut self, call: CallId) -> Outcome {
        let mut finished = self.finished();
        let at = finished.iter().position(|(id, _)| *id == call).expect("the call has finished");
        finished.swap_remove(at).1
    }

    fn assert_stored(&mut self, call: CallId) {
        for (key, result) in self.outcome(call).unwrap() {
            result.unwrap_or_else(|error| panic!("{key:?}: {error}"));
        }
    }
}

#[test]
fn the_futures_are_send() {
    fn send<T: Send>(_: &T) {}
    fn probe(offsets: &GroupOffsets, deadline: tokio::time::Instant) {
        send(&offsets.commit(Vec::new(), Identity::anonymous(), deadline));
        send(&offsets.committed(Vec::new(), None, deadline));
    }
    let _ = probe;
}
