//! What a broker's code means for a transaction.
//!
//! The table only classifies and names; what follows is decided by the core.
//!
//! Of a producer id that is not the coordinator's any more, brokers say 90, and 47 in some places. 90 is final:
//! somebody else has the transactional id, or the coordinator has aborted the transaction and knows no way back.
//! 47 comes from a partition leader or a group's coordinator, which cannot tell the one from the other; the abort
//! that has to follow asks the coordinator, and finds out.

use kafka_meta::{Error, ErrorCode, ErrorKind, client};

/// Which request a code answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Question {
    /// InitProducerId, new or to raise the epoch.
    Init,
    /// AddPartitionsToTxn and AddOffsetsToTxn.
    Add,
    /// TxnOffsetCommit.
    Offsets,
    /// EndTxn.
    End,
}

/// What to do about a code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    Done,
    /// The same broker, in a moment.
    Again,
    /// The same broker, very soon: the markers of the last transaction are being written (51).
    Busy,
    /// Another broker may be the coordinator now.
    Rediscover,
    /// The topic is not known, for now or for good.
    Missing,
    /// Not tried, because of another partition of the same request (55).
    Skipped,
    /// The transaction can only be aborted.
    Abort,
    /// The producer can do nothing more.
    Fatal,
}

pub(super) fn class(code: ErrorCode, question: Question) -> Class {
    match code {
        ErrorCode::NONE => Class::Done,
        ErrorCode::CONCURRENT_TRANSACTIONS => Class::Busy,
        ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => Class::Rediscover,
        // The coordinator is being replaced; its successor answers.
        ErrorCode::TRANSACTION_COORDINATOR_FENCED => Class::Rediscover,
        ErrorCode::OPERATION_NOT_ATTEMPTED if question == Question::Add => Class::Skipped,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION if matches!(question, Question::Add | Question::Offsets) => {
            Class::Missing
        }
        ErrorCode::PRODUCER_FENCED
        | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        | ErrorCode::INVALID_TRANSACTION_TIMEOUT => Class::Fatal,
        ErrorCode::INVALID_PRODUCER_EPOCH if question != Question::Offsets => Class::Fatal,
        // Asking again without having joined again cannot help.
        ErrorCode::REBALANCE_IN_PROGRESS => Class::Abort,
        ErrorCode::INVALID_TXN_STATE
        | ErrorCode::INVALID_PRODUCER_ID_MAPPING
        | ErrorCode::TRANSACTION_ABORTABLE
            if question != Question::Init =>
        {
            Class::Abort
        }
        code if code.is_retriable() => Class::Again,
        _ => match question {
            Question::Add | Question::Offsets => Class::Abort,
            // An unknown answer to an end leaves it open how the transaction ended: nobody may go on from there.
            Question::Init | Question::End => Class::Fatal,
        },
    }
}

/// The error of a code. A stale identity, the producer's or the group member's, is `Fenced`.
pub(super) fn error(code: ErrorCode, operation: &'static str) -> Error {
    let kind = match code {
        ErrorCode::PRODUCER_FENCED
        | ErrorCode::INVALID_PRODUCER_EPOCH
        | ErrorCode::UNKNOWN_MEMBER_ID
        | ErrorCode::ILLEGAL_GENERATION
        | ErrorCode::STALE_MEMBER_EPOCH
        | ErrorCode::FENCED_MEMBER_EPOCH
        | ErrorCode::FENCED_INSTANCE_ID => ErrorKind::Fenced,
        ErrorCode::INVALID_TRANSACTION_TIMEOUT => ErrorKind::InvalidRequest,
        code => code.kind(),
    };
    let error = Error::new(kind, operation);
    match code {
        ErrorCode::INVALID_TRANSACTION_TIMEOUT => error.with_detail(format!(
            "{code}: transaction.timeout.ms is above the broker's transaction.max.timeout.ms"
        )),
        ErrorCode::PRODUCER_FENCED => error.with_detail(format!(
            "{code}: another producer has this transactional id, or the transaction ran longer than \
             transaction.timeout.ms"
        )),
        _ => error.with_detail(code.to_string()),
    }
}

/// Whether a failure to get any answer passes by itself; `Closed` is the producer's own connections going down.
pub(super) fn passes(error: &Error) -> bool {
    error.kind() == ErrorKind::Closed || client::passes(error)
}

/// Which of two failures in a row tells a caller more: running out of time says less than what came before.
pub(super) fn more_telling(before: Option<Error>, now: Error) -> Error {
    match before {
        Some(before) if now.kind() == ErrorKind::Timeout => before,
        _ => now,
    }
}
