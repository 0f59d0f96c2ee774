//! Record headers: an ordered list, parsed only when asked for.
//!
//! Kept as the bytes they have on the wire, so a record costs nothing for headers nobody reads. Keys may repeat,
//! may be empty, and need not be sorted; a value may be null, which is not the same as empty. The bytes were
//! checked when their batch was opened; a key that is not UTF-8 is shown with replacement characters, as Java does.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use crate::varint::{self, Filler, part_len};

/// One header of a record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Header<'a> {
    /// Its name; bytes that are not UTF-8 are replaced.
    pub key: Cow<'a, str>,
    /// `None` for null; an empty value is `Some`.
    pub value: Option<Bytes>,
}

/// A record's headers, owned.
#[derive(Clone, Default)]
pub struct Headers {
    encoded: Bytes,
}

impl Headers {
    /// No headers.
    #[inline]
    pub const fn new() -> Self {
        Headers { encoded: Bytes::new() }
    }

    /// From checked bytes: the headers without their count.
    #[inline]
    pub(crate) fn from_encoded(encoded: Bytes) -> Self {
        Headers { encoded }
    }

    pub(crate) fn as_encoded(&self) -> &[u8] {
        &self.encoded
    }

    fn view(&self) -> HeadersRef<'_> {
        HeadersRef { section: &self.encoded, start: 0, end: self.encoded.len() }
    }

    /// The headers in the order written.
    pub fn iter(&self) -> HeadersIter<'_> {
        self.view().iter()
    }

    /// The first header named `key`.
    pub fn find(&self, key: &str) -> Option<Header<'_>> {
        self.iter().find(|header| header.key == key)
    }

    /// How many there are; walks them.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }
}

impl<K: AsRef<str>, V: AsRef<[u8]>> FromIterator<(K, Option<V>)> for Headers {
    fn from_iter<I: IntoIterator<Item = (K, Option<V>)>>(pairs: I) -> Self {
        let mut out = Vec::new();
        for (key, value) in pairs {
            let (key, value) = (Some(key.as_ref().as_bytes()), value.as_ref().map(AsRef::as_ref));
            let start = out.len();
            out.resize(start + part_len(key) + part_len(value), 0);
            let mut filler = Filler::new(out.get_mut(start..).unwrap_or_default());
            filler.part(key);
            filler.part(value);
        }
        Headers { encoded: Bytes::from(out) }
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = Header<'a>;
    type IntoIter = HeadersIter<'a>;

    fn into_iter(self) -> HeadersIter<'a> {
        self.iter()
    }
}

impl PartialEq for Headers {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// A record's headers, borrowed from its batch.
#[derive(Clone, Copy)]
pub struct HeadersRef<'a> {
    section: &'a Bytes,
    start: usize,
    end: usize,
}

impl<'a> HeadersRef<'a> {
    /// The headers at `start..end` of `section`, the records of a batch; empty when there are none.
    #[inline]
    pub(crate) fn new(section: &'a Bytes, start: usize, end: usize) -> Self {
        HeadersRef { section, start, end }
    }

    #[inline]
    pub(crate) fn section(&self) -> &'a Bytes {
        self.section
    }

    /// The headers in the order written.
    pub fn iter(&self) -> HeadersIter<'a> {
        HeadersIter { section: self.section, at: self.start, end: self.end }
    }

    /// The first header named `key`.
    pub fn find(&self, key: &str) -> Option<Header<'a>> {
        self.iter().find(|header| header.key == key)
    }

    /// How many there are; walks them.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// The same headers, owned; shares the batch's memory.
    #[inline]
    pub fn to_headers(&self) -> Headers {
        if self.is_empty() {
            return Headers::new();
        }
        Headers { encoded: self.section.slice(self.start..self.end) }
    }
}

impl<'a> IntoIterator for HeadersRef<'a> {
    type Item = Header<'a>;
    type IntoIter = HeadersIter<'a>;

    fn into_iter(self) -> HeadersIter<'a> {
        self.iter()
    }
}

impl fmt::Debug for HeadersRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|header| (header.key, header.value))).finish()
    }
}

/// Yields the headers of one record.
#[derive(Clone, Debug)]
pub struct HeadersIter<'a> {
    section: &'a Bytes,
    at: usize,
    end: usize,
}

impl<'a> HeadersIter<'a> {
    fn part(&mut self) -> Option<Option<&'a [u8]>> {
        let data = self.section.get(..self.end)?;
        let length = varint::read_i32(data, &mut self.at)?;
        let Ok(length) = usize::try_from(length) else { return Some(None) };
        let part = data.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(Some(part))
    }
}

impl<'a> Iterator for HeadersIter<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        if self.at >= self.end {
            return None;
        }
        let key = self.part()??;
        let value = self.part()?.map(|value| self.section.slice_ref(value));
        Some(Header { key: String::from_utf8_lossy(key), value })
    }
}

#[cfg(test)]
mod tests {
    use super::Headers;

    #[test]
    fn headers_keep_order_duplicates_nulls_and_empties() {
        let pairs = [("b", Some("1")), ("a", None), ("b", Some("")), ("", Some("x"))];
        let headers: Headers = pairs.into_iter().collect();
        let seen: Vec<_> = headers
            .iter()
            .map(|header| (header.key.into_owned(), header.value.map(|value| value.to_vec())))
            .collect();
        let wanted: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (key.to_string(), value.map(|value| value.as_bytes().to_vec())))
            .collect();
        assert_eq!(seen, wanted);
        assert_eq!(headers.len(), 4);
        assert_eq!(headers.find("b").unwrap().value.as_deref(), Some(&b"1"[..]));
        assert!(headers.find("c").is_none());
        assert!(Headers::new().is_empty());
    }
}
