//! A batch as it goes over the wire. Pure, but long: it is the driver's to call, outside the engine's lock.

use bytes::{Bytes, BytesMut};
use kafka_meta::{Error, ErrorKind, Result};
use kafka_read::batch::write;

use super::{Content, Stamp};

/// A batch as it goes over the wire.
pub(crate) fn pack(content: Content, stamp: Stamp) -> Result<Bytes> {
    let Stamp { identity, sequence, transactional } = stamp;
    match content {
        Content::Open(mut writer) => {
            let options = writer.options_mut();
            options.producer_id = identity.producer_id;
            options.producer_epoch = identity.epoch;
            options.base_sequence = sequence;
            options.transactional = transactional;
            let packed = writer.finish();
            packed.map(BytesMut::freeze).map_err(|error| {
                Error::new(ErrorKind::UnsupportedCodec, "produce").with_detail(error.to_string())
            })
        }
        Content::Packed(bytes, before) if before == stamp => Ok(bytes),
        Content::Packed(bytes, _) => {
            let mut bytes = bytes.try_into_mut().unwrap_or_else(|bytes| BytesMut::from(bytes.as_ref()));
            write::set_producer(&mut bytes, identity.producer_id, identity.epoch, sequence);
            Ok(bytes.freeze())
        }
        Content::Away => Err(Error::new(ErrorKind::Other, "produce").with_detail("the batch is elsewhere")),
    }
}
