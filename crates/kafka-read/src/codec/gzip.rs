//! gzip: any number of members, as `java.util.zip.GZIPInputStream` reads them. Each member's CRC and length are
//! checked.

use std::io::Write as _;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::{Failure, first_buffer, read_capped};

pub(super) fn inflate(packed: &[u8], cap: usize) -> Result<Vec<u8>, Failure> {
    let mut out = first_buffer(packed, cap);
    let mut rest = packed;
    loop {
        let mut member = GzDecoder::new(rest);
        read_capped(&mut member, &mut out, cap)?;
        let after = member.into_inner();
        if after.len() >= rest.len() {
            return Err(Failure::Broken);
        }
        rest = after;
        if !rest.starts_with(&[0x1f, 0x8b]) {
            return Ok(out);
        }
    }
}

pub(super) fn deflate(data: &[u8], level: Option<i32>, out: &mut Vec<u8>) -> Result<(), Failure> {
    let level = level
        .and_then(|level| u32::try_from(level).ok())
        .map_or(Compression::default(), |level| Compression::new(level.min(9)));
    let mut encoder = GzEncoder::new(out, level);
    encoder.write_all(data).and_then(|()| encoder.finish().map(drop)).map_err(|_| Failure::Broken)
}
