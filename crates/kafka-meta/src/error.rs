//! One error for the workspace.
//!
//! An [`Error`] says what a caller can act on ([`ErrorKind`]), which operation failed, and which topic,
//! partition and offset, or which group or transactional id, it is about. It is one pointer wide, so a `Result` on the hot path stays small.
//!
//! What heals by itself (a leader that moves, a session the broker forgot, a coordinator that restarts) is
//! never an error: it is a `tracing` event and a metric of whoever retries it.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::TopicName;

mod code;

pub use code::ErrorCode;

/// The result of every fallible operation of the workspace.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in terms of what a caller can do about it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The cluster refused the credentials, or cannot check them.
    Authentication,
    /// The principal lacks a right; the error names the resource.
    Authorization,
    /// A batch is over `max_batch_bytes` or over what a broker takes, a record over what a producer may send, or a
    /// frame over the connection's cap.
    BatchTooLarge,
    /// A broker answered with an error code that no other kind covers.
    Broker(ErrorCode),
    /// The client, or the part of it that was asked, has been closed.
    Closed,
    /// No connection could be made, or one broke before the answer came.
    Disconnected,
    /// The group has given this member's partitions away, or another producer has taken the transactional id over.
    Fenced,
    /// A setting or an argument cannot be right; nothing was sent.
    InvalidRequest,
    /// The log was cut below the position, and no reset policy says where to go on.
    LogTruncated,
    /// No committed offset exists, and no reset policy says where to start.
    NoOffset,
    /// The partition is not assigned to this consumer.
    NotAssigned,
    /// The position is outside the log, and no reset policy says where to go on.
    OffsetOutOfRange,
    /// None of the others; see the error's source.
    Other,
    /// The time allowed for the call ran out.
    Timeout,
    /// The TLS handshake failed, or TLS met a port that does not speak it.
    Tls,
    /// The topic or partition does not exist, or no longer.
    UnknownTopic,
    /// A static member's previous session has not ended yet (KIP-345).
    UnreleasedInstanceId,
    /// The broker does not serve the API, or not in a version this client speaks.
    UnsupportedApi,
    /// A batch is packed with a codec that was not compiled in, or that does not exist.
    UnsupportedCodec,
}

/// Why an operation failed: kind, operation, and the topic, partition and offset it is about.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    operation: Cow<'static, str>,
    topic: Option<TopicName>,
    partition: Option<i32>,
    offset: Option<i64>,
    holder: Option<Holder>,
    detail: Option<Cow<'static, str>>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    fatal: bool,
    abort: bool,
}

/// What a coordinator keeps: the other thing than a topic that an operation can be about.
#[derive(Clone, Debug)]
enum Holder {
    Group(Box<str>),
    TransactionalId(Box<str>),
}

impl Error {
    /// An error of `kind` in `operation`, the words a reader of a log would use: `"fetch"`, `"commit offsets"`.
    pub fn new(kind: ErrorKind, operation: impl Into<Cow<'static, str>>) -> Self {
        Error(Box::new(Inner {
            kind,
            operation: operation.into(),
            topic: None,
            partition: None,
            offset: None,
            holder: None,
            detail: None,
            source: None,
            fatal: false,
            abort: false,
        }))
    }

    /// The error a broker's code stands for. A code with a kind of its own (29, 30, 53, 65: `Authorization`;
    /// 3, 100, 103: `UnknownTopic`; …) becomes that kind and keeps its name in the message.
    pub fn broker(code: ErrorCode, operation: impl Into<Cow<'static, str>>) -> Self {
        Error::new(code.kind(), operation).with_detail(code.to_string())
    }

    /// A failure of the caller's own code, for a rebalance listener that has to return one.
    pub fn other(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Error::new(ErrorKind::Other, "application").with_source(source)
    }

    /// Says which operation failed, for an error made where that was not known.
    pub(crate) fn with_operation(mut self, operation: impl Into<Cow<'static, str>>) -> Self {
        self.0.operation = operation.into();
        self
    }

    /// Says what a caller can act on, for an error made where that was not known.
    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Names the topic the error is about.
    pub fn with_topic(mut self, topic: impl Into<TopicName>) -> Self {
        self.0.topic = Some(topic.into());
        self
    }

    /// Names the partition the error is about.
    pub fn with_partition(mut self, topic: impl Into<TopicName>, partition: i32) -> Self {
        self.0.topic = Some(topic.into());
        self.0.partition = Some(partition);
        self
    }

    /// Names the offset the error is about.
    pub fn with_offset(mut self, offset: i64) -> Self {
        self.0.offset = Some(offset);
        self
    }

    /// Names the group the error is about.
    pub fn with_group(mut self, group: impl Into<Box<str>>) -> Self {
        self.0.holder = Some(Holder::Group(group.into()));
        self
    }

    /// Names the transactional id the error is about.
    pub fn with_transactional_id(mut self, id: impl Into<Box<str>>) -> Self {
        self.0.holder = Some(Holder::TransactionalId(id.into()));
        self
    }

    /// Adds what a reader needs to know to act: the setting, the address, the broker's own words.
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds the error underneath.
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Marks the client that returned it as beyond repair: every later call will fail alike.
    pub fn with_fatal(mut self) -> Self {
        self.0.fatal = true;
        self
    }

    /// Marks the transaction it happened in as one that can only be aborted.
    #[doc(hidden)]
    pub fn with_abort_needed(mut self) -> Self {
        self.0.abort = true;
        self
    }

    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that failed.
    pub fn operation(&self) -> &str {
        &self.0.operation
    }

    /// The topic it is about.
    pub fn topic(&self) -> Option<&str> {
        self.0.topic.map(TopicName::as_str)
    }

    /// The partition it is about.
    pub fn partition(&self) -> Option<i32> {
        self.0.partition
    }

    /// The offset it is about.
    pub fn offset(&self) -> Option<i64> {
        self.0.offset
    }

    /// The group it is about.
    pub fn group(&self) -> Option<&str> {
        match &self.0.holder {
            Some(Holder::Group(group)) => Some(group),
            _ => None,
        }
    }

    /// The transactional id it is about.
    pub fn transactional_id(&self) -> Option<&str> {
        match &self.0.holder {
            Some(Holder::TransactionalId(id)) => Some(id),
            _ => None,
        }
    }

    /// Whether the same call may succeed later without any change by the caller.
    pub fn is_retriable(&self) -> bool {
        if self.0.fatal || self.0.abort {
            return false;
        }
        match self.0.kind {
            ErrorKind::Broker(code) => code.is_retriable(),
            ErrorKind::Disconnected | ErrorKind::Timeout | ErrorKind::UnreleasedInstanceId => true,
            ErrorKind::UnknownTopic => true,
            _ => false,
        }
    }

    /// Whether the transaction it happened in can only be aborted: `abort_transaction`, then begin anew with the same
    /// producer. Never true together with [`Error::is_fatal`] or [`Error::is_retriable`].
    pub fn needs_abort(&self) -> bool {
        self.0.abort && !self.0.fatal
    }

    /// Whether the client that returned it is beyond repair: every later call will fail alike.
    pub fn is_fatal(&self) -> bool {
        self.0.fatal
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        write!(f, "{}", inner.operation)?;
        match (inner.topic, inner.partition) {
            (Some(topic), Some(partition)) => write!(f, " of {topic}-{partition}")?,
            (Some(topic), None) => write!(f, " of {topic}")?,
            _ => {}
        }
        if let Some(offset) = inner.offset {
            write!(f, " at offset {offset}")?;
        }
        match &inner.holder {
            Some(Holder::Group(group)) => write!(f, " for group {group:?}")?,
            Some(Holder::TransactionalId(id)) => write!(f, " for transactional id {id:?}")?,
            None => {}
        }
        write!(f, ": {}", inner.kind)?;
        if let Some(detail) = &inner.detail {
            write!(f, ": {detail}")?;
        }
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as &(dyn StdError + 'static))
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ErrorKind::Authentication => "authentication failed",
            ErrorKind::Authorization => "not authorized",
            ErrorKind::BatchTooLarge => "too large",
            ErrorKind::Broker(_) => "the broker refused",
            ErrorKind::Closed => "closed",
            ErrorKind::Disconnected => "disconnected",
            ErrorKind::Fenced => "fenced",
            ErrorKind::InvalidRequest => "invalid request",
            ErrorKind::LogTruncated => "the log was truncated below the position",
            ErrorKind::NoOffset => "no committed offset and no reset policy",
            ErrorKind::NotAssigned => "not assigned",
            ErrorKind::OffsetOutOfRange => "offset out of range",
            ErrorKind::Other => "failed",
            ErrorKind::Timeout => "timed out",
            ErrorKind::Tls => "TLS failed",
            ErrorKind::UnknownTopic => "unknown topic or partition",
            ErrorKind::UnreleasedInstanceId => "the instance id is still held by an earlier session",
            ErrorKind::UnsupportedApi => "not supported by the broker",
            ErrorKind::UnsupportedCodec => "unsupported compression codec",
        };
        f.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorCode, ErrorKind};

    #[test]
    fn an_error_names_what_it_is_about() {
        let error = Error::broker(ErrorCode::from(29), "fetch").with_partition("orders", 3).with_offset(42);
        assert_eq!(error.kind(), ErrorKind::Authorization);
        assert_eq!(
            error.to_string(),
            "fetch of orders-3 at offset 42: not authorized: TOPIC_AUTHORIZATION_FAILED (29)"
        );
        assert!(size_of::<Error>() <= 64);
        let error = Error::broker(ErrorCode::from(30), "commit offsets").with_group("billing");
        assert_eq!((error.group(), error.transactional_id()), (Some("billing"), None));
        assert_eq!(
            error.to_string(),
            "commit offsets for group \"billing\": not authorized: GROUP_AUTHORIZATION_FAILED (30)"
        );
    }

    #[test]
    fn an_unlisted_code_shows_its_number() {
        let error = Error::broker(ErrorCode::from(12_345), "fetch");
        assert!(error.to_string().contains("12345"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Broker(ErrorCode::from(12_345)));
    }
}
