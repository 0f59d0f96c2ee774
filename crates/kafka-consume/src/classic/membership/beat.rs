//! Heartbeats of a classic member, and the session they keep.

use std::time::{Duration, Instant};

use kafka_meta::client::Lane;
use kafka_meta::{Error, ErrorCode, ErrorKind, Result};
use kafka_protocol::messages::HeartbeatRequest;

use crate::member::protocol::{Answer, Output, Request};
use crate::position::Retry;

use super::{Membership, NO_GENERATION, State, text};

/// One heartbeat in flight.
#[derive(Debug, Default)]
pub(super) struct Beat {
    in_flight: Option<(u64, i32)>,
    due: Option<Instant>,
    /// When the coordinator last answered one.
    heard: Option<Instant>,
    retry: Retry,
}

impl Membership {
    /// A join was answered: the session runs from now.
    pub(super) fn start_beating(&mut self, now: Instant) {
        self.beat =
            Beat { heard: Some(now), due: Some(now + self.settings.heartbeat_interval), ..Beat::default() };
    }

    /// While a JoinGroup is out the broker keeps the member by itself.
    fn beats(&self) -> bool {
        self.generation > NO_GENERATION
            && matches!(self.state, State::Preparing | State::Leading | State::Syncing | State::Stable)
    }

    pub(super) fn next_beat(&self) -> Option<Instant> {
        if !self.beats() {
            return None;
        }
        let session = self.beat.heard.map(|heard| heard + self.settings.session_timeout);
        let due = match self.beat.in_flight {
            Some(_) => None,
            None => self.beat.due.max(self.beat.retry.at),
        };
        [session, due].into_iter().flatten().min()
    }

    pub(super) fn beat(&mut self, now: Instant) {
        let due = self.beat.due.is_some_and(|due| due <= now) && self.beat.retry.is_due(now);
        if !self.beats() || self.beat.in_flight.is_some() || !due {
            return;
        }
        let request = HeartbeatRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(self.generation)
            .with_member_id(text(&self.member_id))
            .with_group_instance_id(self.instance_id());
        // Short enough for two more before the session ends: a broker that hangs must not cost the membership.
        let within = (self.settings.session_timeout / 3).max(Duration::from_secs(1));
        let ticket = self.send(Lane::Group, within, Request::Heartbeat(request));
        self.beat.in_flight = Some((ticket, self.generation));
        self.beat.due = Some(now + self.settings.heartbeat_interval);
    }

    /// No answer for a whole session: somebody else may be the coordinator. The generation is kept, it alone knows
    /// whether we are still in.
    pub(super) fn check_session(&mut self, now: Instant) {
        let over = self.beat.heard.is_some_and(|heard| heard + self.settings.session_timeout <= now);
        if !self.beats() || !over {
            return;
        }
        self.beat.in_flight = None;
        self.beat.heard = Some(now);
        self.beat.due = Some(now);
        self.outputs.push_back(Output::ForgetCoordinator);
        if self.state == State::Syncing {
            self.again(now, 0.5);
        }
    }

    pub(super) fn on_beat(&mut self, now: Instant, ticket: u64, answer: Result<Answer>, random: f64) {
        let Some((_, generation)) = self.beat.in_flight.take_if(|(sent, _)| *sent == ticket) else { return };
        let code = match answer {
            Ok(Answer::Heartbeat(answer)) => ErrorCode::from(answer.error_code),
            Ok(_) => return self.beat_again(now, random),
            Err(error) => {
                if matches!(
                    error.kind(),
                    ErrorKind::Authentication | ErrorKind::Authorization | ErrorKind::Tls
                ) {
                    self.outputs.push_back(Output::Fault(error));
                }
                return self.beat_again(now, random);
            }
        };
        let current = generation == self.generation;
        let error = Error::broker(code, "heartbeat").with_group(self.settings.group.as_str());
        match code {
            ErrorCode::NONE => {
                self.beat.heard = Some(now);
                self.beat.retry.clear();
                self.ask_what_is_given();
            }
            ErrorCode::REBALANCE_IN_PROGRESS => {
                self.beat.heard = Some(now);
                self.beat.retry.clear();
                if self.state == State::Stable && self.rejoin.is_none() {
                    self.rejoin = Some("the group rebalances");
                }
            }
            ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => {
                self.outputs.push_back(Output::ForgetCoordinator);
                self.beat_again(now, random);
            }
            ErrorCode::UNKNOWN_MEMBER_ID if current => self.end_life(false, &error),
            ErrorCode::ILLEGAL_GENERATION if current => self.end_life(true, &error),
            ErrorCode::FENCED_INSTANCE_ID if current => self.fail(error),
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION | ErrorCode::FENCED_INSTANCE_ID => {}
            _ if code.is_retriable() => self.beat_again(now, random),
            _ => {
                self.outputs.push_back(Output::Fault(error));
                self.beat_again(now, random);
            }
        }
    }

    fn beat_again(&mut self, now: Instant, random: f64) {
        self.beat.due = Some(now);
        self.beat.retry.fail(now, random);
    }
}
