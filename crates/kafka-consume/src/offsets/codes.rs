//! What a broker's error code means for a commit or an OffsetFetch, and which failures pass by themselves.
//!
//! The table only classifies; who retries, how long, and under which identity is decided by the callers.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

pub(crate) use kafka_meta::client::passes;
use kafka_meta::{Error, ErrorCode, ErrorKind};

/// First pause after a failure that passes by itself.
pub(crate) const BACKOFF: Duration = Duration::from_millis(100);
/// Longest pause: after the kill of a broker FindCoordinator names the dead one for up to 12 s.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// What to do about a code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Class {
    /// No error.
    Done,
    /// The same broker, in a moment.
    Again,
    /// Another broker may be the coordinator now.
    Rediscover,
    /// The topic or partition is unknown, for now or for good.
    Missing,
    /// The member's epoch is not the broker's; a newer one may be on its way.
    Stale,
    /// Final, and about this partition.
    Refused,
    /// Final, and about the group or the caller: the same for every partition.
    RefusedAll,
}

/// The class of a partition's code in an OffsetCommit answer.
pub(crate) fn commit_class(code: ErrorCode, anonymous: bool) -> Class {
    match code {
        ErrorCode::NONE => Class::Done,
        ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR | ErrorCode::REQUEST_TIMED_OUT => {
            Class::Rediscover
        }
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID => Class::Missing,
        ErrorCode::STALE_MEMBER_EPOCH if !anonymous => Class::Stale,
        ErrorCode::GROUP_AUTHORIZATION_FAILED | ErrorCode::INVALID_GROUP_ID => Class::RefusedAll,
        // A classic member has to join before it may commit again; asking again without joining cannot help.
        ErrorCode::REBALANCE_IN_PROGRESS => Class::Refused,
        code if code.is_retriable() => Class::Again,
        _ => Class::Refused,
    }
}

/// The class of a code in an OffsetFetch answer, group level or partition level.
pub(crate) fn fetch_class(code: ErrorCode) -> Class {
    match code {
        ErrorCode::NONE => Class::Done,
        ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR | ErrorCode::REQUEST_TIMED_OUT => {
            Class::Rediscover
        }
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID => Class::Missing,
        ErrorCode::REBALANCE_IN_PROGRESS => Class::Refused,
        // 88 is among these: an open transaction holds the offset, and its end is in sight.
        code if code.is_retriable() => Class::Again,
        _ => Class::Refused,
    }
}

/// Which of two failures in a row tells the caller more: running out of time says less than what came before it.
pub(crate) fn more_telling(before: Option<Error>, now: Error) -> Error {
    match before {
        Some(before) if now.kind() == ErrorKind::Timeout => before,
        _ => now,
    }
}

/// The error of a code, with the code kept as its source.
///
/// For a member every refusal of its identity is `Fenced`; a consumer that only borrows the group's storage
/// is told the broker's own words, as it has no membership that could have been lost.
pub(crate) fn error(code: ErrorCode, operation: &'static str, anonymous: bool) -> Error {
    let fenced = matches!(
        code,
        ErrorCode::UNKNOWN_MEMBER_ID
            | ErrorCode::ILLEGAL_GENERATION
            | ErrorCode::STALE_MEMBER_EPOCH
            | ErrorCode::FENCED_MEMBER_EPOCH
            | ErrorCode::FENCED_INSTANCE_ID
    );
    let kind = if fenced && !anonymous { ErrorKind::Fenced } else { code.kind() };
    Error::new(kind, operation).with_source(Refusal(code))
}

/// The broker's code behind an error made by [`error`], where its caller only sees `Fenced`.
#[cfg(test)]
pub(crate) fn code_of(error: &Error) -> Option<ErrorCode> {
    match error.kind() {
        ErrorKind::Broker(code) => Some(code),
        _ => error.source()?.downcast_ref::<Refusal>().map(|refusal| refusal.0),
    }
}

#[derive(Debug)]
struct Refusal(ErrorCode);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl StdError for Refusal {}
