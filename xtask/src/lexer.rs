//! Cuts comments, texts and test modules out of Rust source, so that a search for a word finds code only.
//!
//! What it is: a small scanner that knows line and block comments, strings, raw strings and chars. What it is not: a parser.
//! A file that opens a `#[cfg(test)]` module in its middle is cut off there: by the workspace's custom tests come last.

/// The code of `source`, with the same line numbers; everything from `#[cfg(test)]` on is left out.
pub fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = bytes.get(at..).unwrap_or_default();
        let length = if rest.starts_with(b"//") {
            rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            block_comment(rest)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if byte == b'"' {
            string(rest)
        } else if byte == b'\'' {
            char_literal(rest)
        } else {
            out.push(byte);
            at += 1;
            continue;
        };
        let cut = rest.get(..length.max(1)).unwrap_or(rest);
        out.push(b' ');
        out.extend(cut.iter().copied().filter(|&b| b == b'\n'));
        at += cut.len();
    }
    let text = String::from_utf8_lossy(&out).into_owned();
    match text.find("#[cfg(test)]") {
        // A test-only `mod tests;` line or a whole module: nothing of the core follows it.
        Some(end) => text.get(..end).unwrap_or_default().to_owned(),
        None => text,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(pair) = rest.get(at..at + 2) {
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8]) -> Option<usize> {
    let after = rest.strip_prefix(b"br").or_else(|| rest.strip_prefix(b"r"))?;
    let hashes = after.iter().take_while(|&&b| b == b'#').count();
    if after.get(hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.extend(std::iter::repeat_n(b'#', hashes));
    let body = rest.len() - after.len() + hashes + 1;
    let found = rest.get(body..)?.windows(end.len()).position(|window| window == end);
    Some(found.map_or(rest.len(), |found| body + found + end.len()))
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a char literal, or 1 for a lifetime's quote.
fn char_literal(rest: &[u8]) -> usize {
    match rest.get(1) {
        Some(b'\\') => {
            let end = rest.iter().skip(3).position(|&b| b == b'\'');
            end.map_or(1, |end| end + 4)
        }
        // One to four bytes of UTF-8, then the closing quote.
        _ => (2..=5)
            .find(|&end| rest.get(end) == Some(&b'\''))
            .filter(|&end| is_one_char(rest, end))
            .map_or(1, |end| end + 1),
    }
}

fn is_one_char(rest: &[u8], end: usize) -> bool {
    rest.get(1..end)
        .and_then(|inner| std::str::from_utf8(inner).ok())
        .is_some_and(|inner| inner.chars().count() == 1)
}

#[cfg(test)]
mod tests {
    use super::code_only;

    #[test]
    fn comments_and_texts_are_cut_and_lines_stay() {
        let source =
            "//! tokio\nlet a = \"tokio\\\" tokio\"; /* tokio\n tokio */ b\nr#\"tokio\"tokio\"# c '\"' tokio";
        let code = code_only(source);
        assert_eq!(code.matches("tokio").count(), 1);
        assert_eq!(code.lines().count(), source.lines().count());
    }

    #[test]
    fn lifetimes_do_not_open_a_char() {
        let code = code_only("fn f<'a>(x: &'a str) -> &'a str { tokio }");
        assert!(code.contains("tokio"));
        assert!(code.contains("str"));
    }

    #[test]
    fn test_modules_are_cut() {
        assert!(!code_only("fn a() {}\n#[cfg(test)]\nmod tests { use tokio; }").contains("tokio"));
    }
}
