//! Bounded decoding of what consumers tell each other through the broker: subscription and assignment.
//!
//! The broker passes these bytes on unread, so they are another client's word: every count is held against the
//! bytes that are left before the codec may reserve for it. Versions 0 to 3 are read, newer ones as 3 with whatever
//! follows ignored.

use bytes::Bytes;
use kafka_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use kafka_protocol::protocol::Decodable;

use crate::{Error, ErrorKind, Result};

/// The newest version of both formats.
pub const CONSUMER_PROTOCOL: i16 = 3;

const READ_SUBSCRIPTION: &str = "reading a subscription";
const READ_ASSIGNMENT: &str = "reading an assignment";

/// What a member told its group that it wants and owns.
///
/// # Errors
///
/// `Other` for bytes that do not fit.
pub fn subscription(bytes: &Bytes) -> Result<ConsumerProtocolSubscription> {
    let (version, body) = open(bytes, READ_SUBSCRIPTION)?;
    let mut walk = Walk::new(&body, READ_SUBSCRIPTION);
    walk.strings()?;
    let user_data = walk.bytes()?;
    if version >= 1 {
        walk.topic_partitions()?;
    }
    let mut body = without_odd_null(body, user_data);
    ConsumerProtocolSubscription::decode(&mut body, version)
        .map_err(|source| malformed(READ_SUBSCRIPTION, "does not fit its schema").with_source(source))
}

/// What the leader of a group, or a broker in its place, gave a member.
///
/// # Errors
///
/// `Other` for bytes that do not fit.
pub fn assignment(bytes: &Bytes) -> Result<ConsumerProtocolAssignment> {
    let (version, body) = open(bytes, READ_ASSIGNMENT)?;
    let mut walk = Walk::new(&body, READ_ASSIGNMENT);
    walk.topic_partitions()?;
    let user_data = walk.bytes()?;
    let mut body = without_odd_null(body, user_data);
    ConsumerProtocolAssignment::decode(&mut body, version)
        .map_err(|source| malformed(READ_ASSIGNMENT, "does not fit its schema").with_source(source))
}

fn malformed(operation: &'static str, what: &'static str) -> Error {
    Error::new(ErrorKind::Other, operation).with_detail(what)
}

/// The version to read by, and the body.
fn open(bytes: &Bytes, operation: &'static str) -> Result<(i16, Bytes)> {
    let version = bytes.first_chunk().map(|bytes| i16::from_be_bytes(*bytes));
    match version {
        None => Err(malformed(operation, "ends inside its version")),
        Some(version) if version < 0 => Err(malformed(operation, "has a negative version")),
        Some(version) => Ok((version.min(CONSUMER_PROTOCOL), bytes.slice(2..))),
    }
}

/// A length below -1 means null to Java and an error to the codec: such a one, at this place, becomes -1.
fn without_odd_null(body: Bytes, place: Option<usize>) -> Bytes {
    let Some(place) = place else { return body };
    let mut copy = body.to_vec();
    if let Some(length) = copy.get_mut(place..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *length = (-1_i32).to_be_bytes();
    }
    copy.into()
}

/// Walks the bytes without reserving anything.
struct Walk<'a> {
    bytes: &'a [u8],
    position: usize,
    operation: &'static str,
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8], operation: &'static str) -> Self {
        Self { bytes, position: 0, operation }
    }

    fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        if len > self.left() {
            return Err(malformed(self.operation, "is shorter than a length in it says"));
        }
        self.position += len;
        Ok(())
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N]> {
        let found = self.bytes.get(self.position..).and_then(|rest| rest.first_chunk().copied());
        let found = found.ok_or_else(|| malformed(self.operation, "ends too early"))?;
        self.position += N;
        Ok(found)
    }

    /// A count of items of at least `least` bytes each.
    fn count(&mut self, least: usize) -> Result<usize> {
        let count = i32::from_be_bytes(self.chunk()?);
        usize::try_from(count)
            .ok()
            .filter(|count| count.checked_mul(least).is_some_and(|bytes| bytes <= self.left()))
            .ok_or_else(|| malformed(self.operation, "has a count that its bytes do not bear out"))
    }

    fn string(&mut self) -> Result<()> {
        let len = i16::from_be_bytes(self.chunk()?);
        let len = usize::try_from(len).map_err(|_| malformed(self.operation, "has a null topic name"))?;
        self.skip(len)
    }

    fn strings(&mut self) -> Result<()> {
        for _ in 0..self.count(2)? {
            self.string()?;
        }
        Ok(())
    }

    fn topic_partitions(&mut self) -> Result<()> {
        for _ in 0..self.count(6)? {
            self.string()?;
            let partitions = self.count(4)?;
            self.skip(partitions.saturating_mul(4))?;
        }
        Ok(())
    }

    /// Where the length is if it is one that only Java accepts.
    fn bytes(&mut self) -> Result<Option<usize>> {
        let place = self.position;
        let len = i32::from_be_bytes(self.chunk()?);
        match usize::try_from(len) {
            Ok(len) => self.skip(len).map(|()| None),
            Err(_) => Ok((len < -1).then_some(place)),
        }
    }
}
