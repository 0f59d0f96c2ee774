//! A cursor over the bytes of an answer that can be trusted with hostile ones.
//!
//! It knows Kafka's primitive types in both encodings (plain, and compact with tagged fields). It never
//! reserves memory: [`Reader::count`] refuses a count the bytes left cannot hold, so its callers may.

use bytes::{Buf, Bytes};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

/// Why bytes are not the message they were read as.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end inside a field.
    #[error("{needed} bytes wanted at {position}, {left} left")]
    Truncated {
        /// Where in the body the field starts.
        position: usize,
        /// How many bytes it takes.
        needed: usize,
        /// How many there are.
        left: usize,
    },
    /// A count that the bytes left cannot hold.
    #[error("{claimed} {what} claimed at {position}, {left} bytes left")]
    Count {
        /// What is counted.
        what: &'static str,
        /// Where in the body the items would start.
        position: usize,
        /// The count as sent.
        claimed: i64,
        /// How many bytes there are.
        left: usize,
    },
    /// A variable-length number that does not end, or does not fit.
    #[error("a variable-length number at {position} is over 32 bits")]
    Varint {
        /// Where in the body it starts.
        position: usize,
    },
    /// A null where none is allowed, or a negative length.
    #[error("length {length} at {position}")]
    Length {
        /// Where in the body the length ends.
        position: usize,
        /// The length as sent.
        length: i64,
    },
    /// A string that is not UTF-8.
    #[error("a string at {position} is not UTF-8")]
    Utf8 {
        /// Where in the body it starts.
        position: usize,
    },
}

/// The cursor.
pub(super) struct Reader {
    left: Bytes,
    /// Where the body ends, counted from its start: a tagged field's reader tells positions in the body too.
    end: usize,
    flexible: bool,
}

impl Reader {
    pub(super) fn new(body: Bytes, flexible: bool) -> Self {
        let end = body.len();
        Reader { left: body, end, flexible }
    }

    fn position(&self) -> usize {
        self.end.saturating_sub(self.left.len())
    }

    fn truncated(&self, needed: usize) -> Malformed {
        Malformed::Truncated { position: self.position(), needed, left: self.left.len() }
    }

    /// The fewest bytes two lengths and `tags` lists of tagged fields take: `first` and `second` are the sizes
    /// of the lengths in the plain encoding, 0 for none; compact, each takes one byte.
    pub(super) fn shortest(&self, first: usize, second: usize, tags: usize) -> usize {
        if self.flexible { usize::from(first > 0) + usize::from(second > 0) + tags } else { first + second }
    }

    pub(super) fn i16(&mut self) -> Result<i16, Malformed> {
        self.left.try_get_i16().map_err(|_| self.truncated(2))
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        self.left.try_get_i32().map_err(|_| self.truncated(4))
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.left.try_get_i64().map_err(|_| self.truncated(8))
    }

    pub(super) fn uuid(&mut self) -> Result<Uuid, Malformed> {
        self.left.try_get_u128().map(Uuid::from_u128).map_err(|_| self.truncated(16))
    }

    fn varint(&mut self) -> Result<u32, Malformed> {
        let position = self.position();
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.left.try_get_u8().map_err(|_| self.truncated(1))?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && bits > 0x0f {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed::Varint { position })
    }

    /// A length in whichever encoding this is; `plain` reads the plain one. -1 is null.
    fn length(&mut self, plain: fn(&mut Self) -> Result<i64, Malformed>) -> Result<Option<usize>, Malformed> {
        let length = if self.flexible { i64::from(self.varint()?) - 1 } else { plain(self)? };
        if length == -1 {
            return Ok(None);
        }
        let position = self.position();
        usize::try_from(length).map(Some).map_err(|_| Malformed::Length { position, length })
    }

    fn length_16(&mut self) -> Result<i64, Malformed> {
        self.i16().map(i64::from)
    }

    fn length_32(&mut self) -> Result<i64, Malformed> {
        self.i32().map(i64::from)
    }

    fn null(&self) -> Malformed {
        Malformed::Length { position: self.position(), length: -1 }
    }

    /// The count of a list whose items take at least `item` bytes each; `None` for a null list.
    pub(super) fn nullable_count(
        &mut self,
        what: &'static str,
        item: usize,
    ) -> Result<Option<usize>, Malformed> {
        let Some(count) = self.length(Self::length_32)? else { return Ok(None) };
        let left = self.left.len();
        if count.checked_mul(item.max(1)).is_some_and(|bytes| bytes <= left) {
            return Ok(Some(count));
        }
        let claimed = i64::try_from(count).unwrap_or(i64::MAX);
        Err(Malformed::Count { what, position: self.position(), claimed, left })
    }

    /// The same for a list that may not be null.
    pub(super) fn count(&mut self, what: &'static str, item: usize) -> Result<usize, Malformed> {
        self.nullable_count(what, item)?.ok_or_else(|| self.null())
    }

    fn take(&mut self, length: usize) -> Result<Bytes, Malformed> {
        if length > self.left.len() {
            return Err(self.truncated(length));
        }
        Ok(self.left.split_to(length))
    }

    /// Bytes with a 32-bit length, a slice of the body.
    pub(super) fn nullable_bytes(&mut self) -> Result<Option<Bytes>, Malformed> {
        let Some(length) = self.length(Self::length_32)? else { return Ok(None) };
        self.take(length).map(Some)
    }

    /// A string with a 16-bit length, a slice of the body.
    pub(super) fn nullable_string(&mut self) -> Result<Option<StrBytes>, Malformed> {
        let Some(length) = self.length(Self::length_16)? else { return Ok(None) };
        let position = self.position();
        let bytes = self.take(length)?;
        StrBytes::from_utf8(bytes).map(Some).map_err(|_| Malformed::Utf8 { position })
    }

    /// The same, not null.
    pub(super) fn string(&mut self) -> Result<StrBytes, Malformed> {
        self.nullable_string()?.ok_or_else(|| self.null())
    }

    /// Hands each tagged field to `each` as a reader of its own bytes only; nothing in the plain encoding.
    pub(super) fn tags(
        &mut self,
        mut each: impl FnMut(u32, Reader) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        if !self.flexible {
            return Ok(());
        }
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let size = self.varint()?;
            let start = self.position();
            let field = self.take(usize::try_from(size).unwrap_or(usize::MAX))?;
            let end = start.saturating_add(field.len());
            each(tag, Reader { left: field, end, flexible: true })?;
        }
        Ok(())
    }

    /// Reads over tagged fields.
    pub(super) fn skip_tags(&mut self) -> Result<(), Malformed> {
        self.tags(|_, _| Ok(()))
    }
}
