//! Bounded decoding of answers: every count is checked against the bytes left before the codec may reserve by it.
//!
//! The codec reserves whatever an array's count claims: fourteen bytes make it ask for twelve gigabytes. So each
//! answer is walked first along its layout (`tables`), which costs one pass over the bytes and no allocation;
//! only an answer that passes is decoded. An answer without a layout is refused: nothing is decoded unwalked.
//!
//! The walk accepts at most what the codec accepts. It knows layouts, not meanings: a null where none is allowed
//! is left to the codec to refuse.

mod layout;
mod members;
mod tables;

use bytes::Bytes;
use kafka_protocol::protocol::Decodable;

use crate::{Error, ErrorKind, Result};
use layout::Cursor;

pub use members::{CONSUMER_PROTOCOL, assignment, subscription};
pub use tables::WITHOUT_LAYOUT;

/// Decodes an answer's body (what follows the response header).
pub fn decode<R: Decodable>(api_key: i16, version: i16, body: Bytes) -> Result<R> {
    check(api_key, version, &body)?;
    let mut rest = body;
    R::decode(&mut rest, version).map_err(|error| malformed(api_key, version).with_source(error))
}

/// Walks an answer's body without decoding it. Bytes after its end are ignored, as the codec does.
pub fn check(api_key: i16, version: i16, body: &[u8]) -> Result<()> {
    let Some(layout) = tables::layout(api_key) else {
        return Err(Error::new(ErrorKind::UnsupportedApi, super::api_name(api_key))
            .with_detail("this client has no bounds for its answers"));
    };
    match layout.walk(version, &mut Cursor::new(body)) {
        Some(()) => Ok(()),
        None => Err(malformed(api_key, version).with_detail(format!(
            "the answer (version {version}) claims more than its {} bytes hold",
            body.len()
        ))),
    }
}

/// How long the tagged fields at the start of `bytes` are; `None` when they do not end within it.
pub(crate) fn tagged_fields_len(bytes: &[u8]) -> Option<usize> {
    let mut cursor = Cursor::new(bytes);
    cursor.unknown_tags()?;
    Some(bytes.len() - cursor.left())
}

fn malformed(api_key: i16, version: i16) -> Error {
    Error::new(ErrorKind::Other, super::api_name(api_key))
        .with_detail(format!("the answer (version {version}) cannot be read"))
}

#[cfg(test)]
mod tests;
