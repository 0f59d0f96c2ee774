//! Zig-zag varints as record frames use them, read and written.
//!
//! As Kafka reads them: five bytes at most for an `int`, ten for a `long`, zero padding allowed, bits beyond the
//! type's width lost. A sixth (eleventh) byte is an error.

/// The most bytes the fixed part of a record frame takes: length 5, attributes 1, timestamp 10, offset 5, key
/// length 5. The buffer is the next power of two, so that a masked index needs no bounds check.
pub(crate) const HEAD: usize = 32;

/// Reads from a copy of a frame's first bytes; the index is masked, which the optimiser turns into no check at
/// all. `at` never passes 26 when the callers read the five fields in order.
#[inline(always)]
fn byte(head: &[u8; HEAD], at: usize) -> u8 {
    head.get(at & (HEAD - 1)).copied().unwrap_or(0)
}

/// An `int` from a frame's head.
#[inline(always)]
pub(crate) fn head_i32(head: &[u8; HEAD], at: &mut usize) -> Option<i32> {
    let first = byte(head, *at);
    *at += 1;
    if first < 0x80 {
        return Some(unzigzag32(u32::from(first)));
    }
    let mut value = u32::from(first & 0x7f);
    let mut shift = 7;
    while shift < 35 {
        let next = byte(head, *at);
        *at += 1;
        value |= u32::from(next & 0x7f) << shift;
        if next < 0x80 {
            return Some(unzigzag32(value));
        }
        shift += 7;
    }
    None
}

/// A `long` from a frame's head.
#[inline(always)]
pub(crate) fn head_i64(head: &[u8; HEAD], at: &mut usize) -> Option<i64> {
    let mut value = 0u64;
    let mut shift = 0;
    while shift < 70 {
        let next = byte(head, *at);
        *at += 1;
        value |= u64::from(next & 0x7f) << shift;
        if next < 0x80 {
            return Some(unzigzag64(value));
        }
        shift += 7;
    }
    None
}

/// An `int` at `at`, which moves past it; `None` when `data` ends first or the number is too long.
#[inline]
pub(crate) fn read_i32(data: &[u8], at: &mut usize) -> Option<i32> {
    let mut value = 0u32;
    let mut shift = 0;
    while shift < 35 {
        let next = *data.get(*at)?;
        *at += 1;
        value |= u32::from(next & 0x7f) << shift;
        if next < 0x80 {
            return Some(unzigzag32(value));
        }
        shift += 7;
    }
    None
}

#[inline(always)]
fn unzigzag32(value: u32) -> i32 {
    ((value >> 1) ^ (value & 1).wrapping_neg()).cast_signed()
}

#[inline(always)]
fn unzigzag64(value: u64) -> i64 {
    ((value >> 1) ^ (value & 1).wrapping_neg()).cast_signed()
}

/// Fills bytes that are there already: without growing, a write is a compare and a store.
pub(crate) struct Filler<'a> {
    room: &'a mut [u8],
}

impl<'a> Filler<'a> {
    /// Fills `room` from its start; what does not fit is left out, so it has to be sized first.
    #[inline(always)]
    pub(crate) fn new(room: &'a mut [u8]) -> Self {
        Filler { room }
    }

    /// One byte.
    #[inline(always)]
    pub(crate) fn byte(&mut self, byte: u8) {
        if let Some((place, rest)) = std::mem::take(&mut self.room).split_first_mut() {
            *place = byte;
            self.room = rest;
        }
    }

    /// A `long`, or an `int`, which has the same bytes.
    #[inline(always)]
    pub(crate) fn varint(&mut self, value: i64) {
        let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
        while rest >= 0x80 {
            let [low, ..] = rest.to_le_bytes();
            self.byte(low | 0x80);
            rest >>= 7;
        }
        let [low, ..] = rest.to_le_bytes();
        self.byte(low);
    }

    /// Bytes as they are.
    #[inline(always)]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        if let Some((place, rest)) = std::mem::take(&mut self.room).split_at_mut_checked(bytes.len()) {
            place.copy_from_slice(bytes);
            self.room = rest;
        }
    }

    /// A key or value with its length, −1 for null.
    #[inline(always)]
    pub(crate) fn part(&mut self, part: Option<&[u8]>) {
        self.varint(part.map_or(-1, |part| i64::try_from(part.len()).unwrap_or(i64::MAX)));
        self.bytes(part.unwrap_or_default());
    }
}

/// Bytes [`Filler::part`] takes.
#[inline(always)]
pub(crate) fn part_len(part: Option<&[u8]>) -> usize {
    part.map_or(1, |part| len_i64(i64::try_from(part.len()).unwrap_or(i64::MAX)) + part.len())
}

/// How many bytes [`Filler::varint`] writes for a `long`.
#[inline]
pub(crate) fn len_i64(value: i64) -> usize {
    let bits = 64 - (((value << 1) ^ (value >> 63)).cast_unsigned() | 1).leading_zeros();
    usize::try_from(bits.div_ceil(7)).unwrap_or(10)
}

/// How many bytes [`Filler::varint`] writes for an `int`.
#[inline]
pub(crate) fn len_i32(value: i32) -> usize {
    len_i64(i64::from(value))
}

#[cfg(test)]
mod tests {
    use super::{Filler, HEAD, head_i32, head_i64, len_i64, read_i32};

    #[test]
    fn what_is_written_is_read_back_with_the_length_foretold() {
        for value in
            [0, -1, 1, 63, -64, 64, 8191, 8192, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX, i64::MIN]
        {
            let mut out = vec![0; len_i64(value)];
            let mut filler = Filler::new(&mut out);
            filler.varint(value);
            assert!(filler.room.is_empty());
            let mut head = [0; HEAD];
            head[..out.len()].copy_from_slice(&out);
            let mut at = 0;
            assert_eq!(head_i64(&head, &mut at), Some(value));
            assert_eq!(at, out.len());
            if let Ok(small) = i32::try_from(value) {
                let (mut at, mut at_head) = (0, 0);
                assert_eq!(read_i32(&out, &mut at), Some(small));
                assert_eq!(head_i32(&head, &mut at_head), Some(small));
                assert_eq!((at, at_head), (out.len(), out.len()));
            }
        }
    }

    #[test]
    fn padding_is_read_and_a_number_too_long_is_not() {
        assert_eq!(read_i32(&[0x82, 0x80, 0x80, 0x80, 0x00], &mut 0), Some(1));
        assert_eq!(read_i32(&[0x82, 0x80, 0x80, 0x80, 0x80, 0x00], &mut 0), None);
        assert_eq!(read_i32(&[0x82], &mut 0), None);
        assert_eq!(head_i64(&[0x80; HEAD], &mut 0), None);
    }
}
