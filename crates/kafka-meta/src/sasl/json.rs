//! Just enough JSON: the fields of one object, nested values passed over.
//!
//! Tokens, token answers and refusals are flat objects; a whole parser would be a dependency for four fields.
//! Invariant: bounded by the input's length, whatever it holds; depth costs no stack.

use std::iter::Peekable;
use std::str::CharIndices;

/// A field's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(f64),
    /// An array, an object, `true`, `false` or `null`.
    Other,
}

/// The fields of the object `text` is; `None` when it is none.
pub(crate) fn fields(text: &str) -> Option<Vec<(String, Value)>> {
    let mut chars = text.char_indices().peekable();
    let mut all = Vec::new();
    expect(&mut chars, '{')?;
    if peek(&mut chars)? == '}' {
        return Some(all);
    }
    loop {
        let name = string(&mut chars)?;
        expect(&mut chars, ':')?;
        let value = value(text, &mut chars)?;
        all.push((name, value));
        match next(&mut chars)? {
            ',' => {}
            '}' => return Some(all),
            _ => return None,
        }
    }
}

/// The text of a field.
pub(crate) fn text(json: &str, name: &str) -> Option<String> {
    fields(json)?.into_iter().find_map(|(field, value)| match value {
        Value::Text(text) if field == name => Some(text),
        _ => None,
    })
}

/// The number of a field.
pub(crate) fn number(json: &str, name: &str) -> Option<f64> {
    fields(json)?.into_iter().find_map(|(field, value)| match value {
        Value::Number(number) if field == name => Some(number),
        _ => None,
    })
}

type Chars<'a> = Peekable<CharIndices<'a>>;

fn peek(chars: &mut Chars<'_>) -> Option<char> {
    while chars.peek().is_some_and(|(_, char)| char.is_ascii_whitespace()) {
        chars.next();
    }
    chars.peek().map(|(_, char)| *char)
}

fn next(chars: &mut Chars<'_>) -> Option<char> {
    peek(chars)?;
    chars.next().map(|(_, char)| char)
}

fn expect(chars: &mut Chars<'_>, wanted: char) -> Option<()> {
    (next(chars)? == wanted).then_some(())
}

fn string(chars: &mut Chars<'_>) -> Option<String> {
    expect(chars, '"')?;
    let mut text = String::new();
    loop {
        match chars.next()?.1 {
            '"' => return Some(text),
            '\\' => match chars.next()?.1 {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'b' => text.push('\u{8}'),
                'f' => text.push('\u{c}'),
                'u' => {
                    let mut code = 0;
                    for _ in 0..4 {
                        code = code * 16 + chars.next()?.1.to_digit(16)?;
                    }
                    // Halves of a pair are of no interest in names, numbers and tokens.
                    text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                char => text.push(char),
            },
            char => text.push(char),
        }
    }
}

fn value(text: &str, chars: &mut Chars<'_>) -> Option<Value> {
    match peek(chars)? {
        '"' => string(chars).map(Value::Text),
        '{' | '[' => {
            let mut depth = 0_usize;
            loop {
                match peek(chars)? {
                    '"' => {
                        string(chars)?;
                        continue;
                    }
                    '{' | '[' => depth += 1,
                    '}' | ']' => depth = depth.checked_sub(1)?,
                    _ => {}
                }
                chars.next();
                if depth == 0 {
                    return Some(Value::Other);
                }
            }
        }
        _ => {
            let start = chars.peek()?.0;
            let mut end = start;
            while let Some((at, char)) = chars.peek()
                && (char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '+'))
            {
                end = at + char.len_utf8();
                chars.next();
            }
            match text.get(start..end)? {
                "true" | "false" | "null" => Some(Value::Other),
                number => number.parse().ok().map(Value::Number),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Value, fields, number, text};

    #[test]
    fn fields_are_found_beside_nested_values() {
        let json =
            r#" { "a" : [1, {"exp": 3, "x]": "}"}], "exp":1700000000.5 ,"t":"q\"\u0041\n", "n":null } "#;
        assert_eq!(number(json, "exp"), Some(1_700_000_000.5));
        assert_eq!(text(json, "t").unwrap(), "q\"A\n");
        assert_eq!(fields(json).unwrap().len(), 4);
        assert_eq!(fields(r#"{"n":true}"#).unwrap()[0].1, Value::Other);
        assert_eq!(fields("{}"), Some(Vec::new()));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for bad in
            ["", "[]", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":}", "{\"a\":[}", "{a:1}", "{\"a\":1x}"]
        {
            assert_eq!(fields(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(bad in "[{}\\[\\]\",:a0\\\\u ]{0,40}") {
            let _ = fields(&bad);
        }
    }
}
