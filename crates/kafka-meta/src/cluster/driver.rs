//! The background task that keeps the picture fresh. [`Refresh`](super::refresh::Refresh) says when,
//! [`Picture`](super::merge::Picture) says what an answer means; this asks.
//!
//! The task ends when the last handle of the cluster is dropped, whatever it is doing.

use std::sync::Arc;

use tokio::time::Instant;

use super::answer::{self, Answer};
use super::call::{self, Candidate};
use super::merge::Scope;
use super::refresh::Round;
use super::shared::{Shared, address};
use crate::net::Via;
use crate::{Error, ErrorCode, ErrorKind, Result};

pub(crate) async fn run(shared: Arc<Shared>) {
    // A task before this one may have died with its runtime in the middle of a round.
    shared.state().refresh.handle_failure(Instant::now().into_std(), fastrand::f64());
    tokio::select! {
        biased;
        () = shared.stop.notified() => {}
        () = rounds(&shared) => {}
    }
}

async fn rounds(shared: &Shared) {
    loop {
        let now = Instant::now().into_std();
        let (round, deadline) = {
            let mut state = shared.state();
            (state.refresh.poll_round(now), state.refresh.next_deadline())
        };
        match (round, deadline) {
            (Some(round), _) => run_round(shared, round).await,
            (None, Some(deadline)) => {
                tokio::select! {
                    () = shared.nudge.notified() => {}
                    () = tokio::time::sleep_until(Instant::from_std(deadline)) => {}
                }
            }
            (None, None) => shared.nudge.notified().await,
        }
    }
}

async fn run_round(shared: &Shared, round: Round) {
    let outcome = ask(shared, &round).await;
    let now = Instant::now().into_std();
    match outcome {
        Ok(answer) => {
            {
                let mut state = shared.state();
                let state = &mut *state;
                let refresh = &mut state.refresh;
                let merged = state.picture.merge(&round.scope, answer, |topic| refresh.wanted(topic));
                refresh.note_denied(merged.denied);
                refresh.handle_answer(now, fastrand::f64(), merged.changed, merged.stale);
            }
            shared.published();
            let snapshot = shared.snapshot();
            if !snapshot.brokers.is_empty() {
                shared
                    .room
                    .adopt_bootstrap(snapshot.brokers.values().map(|broker| (broker.id, address(broker))));
            }
            shared.progress.send_modify(|progress| progress.answered = round.number);
        }
        Err(error) => {
            if shared.state().refresh.handle_failure(now, fastrand::f64()) {
                tracing::warn!(%error, "no broker answers a metadata request");
            }
            shared.progress.send_modify(|progress| progress.failed = Some((round.number, error)));
        }
    }
}

/// Asks one node after the other until one answers: the brokers known, then the bootstrap addresses (KIP-899).
async fn ask(shared: &Shared, round: &Round) -> Result<Answer> {
    let mut last = None;
    for candidate in call::candidates(shared, &Via::control(), round.rebootstrap) {
        match ask_one(shared, &candidate, &round.scope).await {
            Ok(answer) if answer.error == ErrorCode::REBOOTSTRAP_REQUIRED => {
                tracing::info!("the broker asks for a new start from the bootstrap addresses");
                shared.state().refresh.rebootstrap();
                last = Some(Error::broker(answer.error, "metadata"));
            }
            Ok(answer) if !answer.error.is_none() => last = Some(Error::broker(answer.error, "metadata")),
            Ok(answer) => return Ok(answer),
            Err(error) => {
                tracing::debug!(%error, "metadata request failed");
                last = Some(error);
            }
        }
    }
    Err(last.unwrap_or_else(|| {
        Error::new(ErrorKind::Disconnected, "metadata").with_detail("there is no address to ask")
    }))
}

async fn ask_one(shared: &Shared, candidate: &Candidate, scope: &Scope) -> Result<Answer> {
    let request = answer::request(match scope {
        Scope::All => None,
        Scope::Some(topics) => Some(topics),
    });
    let (version, response) = call::ask_shared(shared, candidate, answer::FROM..=13, |_| Ok(request)).await?;
    Ok(Answer::read(version, response))
}
