//! What an answer looks like on the wire, and the walk along it.
//!
//! A layout is written as text, one word a field:
//!
//! | word | field |
//! |---|---|
//! | `b` `h` `i` `l` `u` | 1, 2, 4, 8, 16 bytes |
//! | `s` `y` | a string, bytes; null allowed |
//! | `[…]` | an array of structs; null allowed |
//! | `(i)` | an array of plain values |
//! | `{…}` `?{…}` | a struct, one that may be absent |
//! | `3+i` `0-7:i` | only from version 3 on, only in versions 0 to 7 |
//! | `<0:i 2:4+[…]>` | at the end of a struct: tagged fields the codec knows, by tag |
//!
//! From its flexible version on, lengths and counts are varints and every struct ends with tagged fields.

use std::iter::Peekable;
use std::str::Chars;

/// One API's answer.
#[derive(Debug)]
pub(super) struct Layout {
    flexible_from: i16,
    body: Body,
}

#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) fields: Vec<Field>,
    pub(super) tags: Vec<(u32, Field)>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) from: i16,
    pub(super) to: i16,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Fixed(usize),
    Text,
    Blob,
    Structs(Body),
    Values(Box<Kind>),
    Struct(Body),
    Maybe(Body),
}

impl Layout {
    /// Reads the text; `None` when it is not well formed.
    pub(super) fn parse(flexible_from: i16, text: &str) -> Option<Layout> {
        let mut chars = text.chars().peekable();
        let body = Body::parse(&mut chars, None)?;
        Some(Layout { flexible_from, body })
    }

    pub(super) fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    #[cfg(test)]
    pub(super) fn body(&self) -> &Body {
        &self.body
    }

    /// Walks an answer; `None` when it claims more than is there.
    pub(super) fn walk(&self, version: i16, cursor: &mut Cursor<'_>) -> Option<()> {
        self.body.walk(version, self.is_flexible(version), cursor)
    }
}

type Text<'a> = Peekable<Chars<'a>>;

fn number(text: &mut Text<'_>) -> Option<u32> {
    let mut value = None;
    while let Some(digit) = text.peek().and_then(|c| c.to_digit(10)) {
        value = Some(value.unwrap_or(0u32).checked_mul(10)?.checked_add(digit)?);
        text.next();
    }
    value
}

impl Body {
    fn parse(text: &mut Text<'_>, end: Option<char>) -> Option<Body> {
        let mut body = Body::default();
        loop {
            match text.peek().copied() {
                Some(' ') => {
                    text.next();
                }
                found if found == end => {
                    text.next();
                    return Some(body);
                }
                Some('<') => {
                    text.next();
                    body.tags = Body::parse_tags(text)?;
                }
                Some(_) => body.fields.push(Field::parse(text)?),
                None => return None,
            }
        }
    }

    fn parse_tags(text: &mut Text<'_>) -> Option<Vec<(u32, Field)>> {
        let mut tags = Vec::new();
        loop {
            match text.peek().copied()? {
                ' ' => {
                    text.next();
                }
                '>' => {
                    text.next();
                    return Some(tags);
                }
                _ => {
                    let tag = number(text)?;
                    (text.next()? == ':').then_some(())?;
                    tags.push((tag, Field::parse(text)?));
                }
            }
        }
    }

    fn walk(&self, version: i16, flexible: bool, cursor: &mut Cursor<'_>) -> Option<()> {
        for field in &self.fields {
            if field.is_in(version) {
                field.kind.walk(version, flexible, cursor)?;
            }
        }
        if flexible {
            self.walk_tags(version, cursor)?;
        }
        Some(())
    }

    fn walk_tags(&self, version: i16, cursor: &mut Cursor<'_>) -> Option<()> {
        let count = cursor.varint()?;
        for _ in 0..count {
            let (tag, size) = (cursor.varint()?, cursor.varint()?);
            let mut value = cursor.take(usize::try_from(size).ok()?)?;
            let known = self.tags.iter().find(|(known, field)| *known == tag && field.is_in(version));
            if let Some((_, Field { kind, .. })) = known {
                // The codec reads a tag it knows by its layout and ignores the size: they have to agree, or the
                // two walks part here.
                kind.walk(version, true, &mut value)?;
                (value.left() == 0).then_some(())?;
            }
        }
        Some(())
    }

    /// The fewest bytes one can take.
    fn least(&self, version: i16, flexible: bool) -> usize {
        let fields = self.fields.iter().filter(|field| field.is_in(version));
        fields.map(|field| field.kind.least(version, flexible)).sum::<usize>() + usize::from(flexible)
    }
}

impl Field {
    pub(super) fn is_in(&self, version: i16) -> bool {
        (self.from..=self.to).contains(&version)
    }

    fn parse(text: &mut Text<'_>) -> Option<Field> {
        let (mut from, mut to) = (0, i16::MAX);
        if let Some(first) = number(text) {
            from = i16::try_from(first).ok()?;
            match text.next()? {
                '+' => {}
                '-' => {
                    to = i16::try_from(number(text)?).ok()?;
                    (text.next()? == ':').then_some(())?;
                }
                _ => return None,
            }
        }
        Some(Field { from, to, kind: Kind::parse(text)? })
    }
}

impl Kind {
    fn parse(text: &mut Text<'_>) -> Option<Kind> {
        Some(match text.next()? {
            'b' => Kind::Fixed(1),
            'h' => Kind::Fixed(2),
            'i' => Kind::Fixed(4),
            'l' => Kind::Fixed(8),
            'u' => Kind::Fixed(16),
            's' => Kind::Text,
            'y' => Kind::Blob,
            '[' => Kind::Structs(Body::parse(text, Some(']'))?),
            '{' => Kind::Struct(Body::parse(text, Some('}'))?),
            '?' => {
                (text.next()? == '{').then_some(())?;
                Kind::Maybe(Body::parse(text, Some('}'))?)
            }
            '(' => {
                let value = Kind::parse(text)?;
                (text.next()? == ')').then_some(())?;
                Kind::Values(Box::new(value))
            }
            _ => return None,
        })
    }

    fn walk(&self, version: i16, flexible: bool, cursor: &mut Cursor<'_>) -> Option<()> {
        match self {
            Kind::Fixed(size) => cursor.take(*size).map(drop),
            Kind::Text => {
                let length = if flexible { cursor.compact_length()? } else { cursor.length16()? };
                cursor.take(length).map(drop)
            }
            Kind::Blob => {
                let length = if flexible { cursor.compact_length()? } else { cursor.length32()? };
                cursor.take(length).map(drop)
            }
            Kind::Struct(body) => body.walk(version, flexible, cursor),
            Kind::Maybe(body) => match cursor.byte()? {
                1 => body.walk(version, flexible, cursor),
                _ => Some(()),
            },
            Kind::Structs(body) => {
                let count = cursor.count(flexible, body.least(version, flexible))?;
                (0..count).try_for_each(|_| body.walk(version, flexible, cursor))
            }
            Kind::Values(kind) => {
                let least = kind.least(version, flexible);
                let count = cursor.count(flexible, least)?;
                match **kind {
                    Kind::Fixed(size) => cursor.take(size.checked_mul(count)?).map(drop),
                    _ => (0..count).try_for_each(|_| kind.walk(version, flexible, cursor)),
                }
            }
        }
    }

    fn least(&self, version: i16, flexible: bool) -> usize {
        match self {
            Kind::Fixed(size) => *size,
            Kind::Text => {
                if flexible {
                    1
                } else {
                    2
                }
            }
            Kind::Blob | Kind::Structs(_) | Kind::Values(_) => {
                if flexible {
                    1
                } else {
                    4
                }
            }
            Kind::Struct(body) => body.least(version, flexible),
            Kind::Maybe(_) => 1,
        }
    }
}

/// A place in an answer.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { rest: bytes }
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, size: usize) -> Option<Cursor<'a>> {
        let (taken, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(Cursor { rest: taken })
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// An unsigned varint of at most 32 bits. Stricter than the codec, which drops bits above them.
    fn varint(&mut self) -> Option<u32> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            if shift == 28 && byte > 0x0f {
                return None;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A length one too high, 0 for null.
    fn compact_length(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?.saturating_sub(1)).ok()
    }

    fn length16(&mut self) -> Option<usize> {
        let length = i16::from_be_bytes(*self.take(2)?.rest.first_chunk()?);
        if length == -1 { Some(0) } else { usize::try_from(length).ok() }
    }

    fn length32(&mut self) -> Option<usize> {
        let length = i32::from_be_bytes(*self.take(4)?.rest.first_chunk()?);
        if length == -1 { Some(0) } else { usize::try_from(length).ok() }
    }

    /// An array's count, if that many elements of at least `least` bytes can follow.
    fn count(&mut self, flexible: bool, least: usize) -> Option<usize> {
        let count = if flexible { self.compact_length()? } else { self.length32()? };
        (count.checked_mul(least.max(1))? <= self.left()).then_some(count)
    }

    /// Steps over tagged fields none of which is known.
    pub(super) fn unknown_tags(&mut self) -> Option<()> {
        let count = self.varint()?;
        for _ in 0..count {
            self.varint()?;
            let size = self.varint()?;
            self.take(usize::try_from(size).ok()?)?;
        }
        Some(())
    }
}
