//! The text of a properties file, as Java reads it.

/// The names and values of a properties file, in order: comments (`#`, `!`) and empty lines left out, a line that
/// ends with a backslash goes on with the next, name and value parted by `=`, `:` or blanks, `\t`, `\n`, `\r`,
/// `\uXXXX` and `\` before any other character understood.
///
/// ```
/// use kafka_meta::ClusterConfig;
///
/// let text = "# production\nbootstrap.servers = one:9092,two:9092\nclient.id: billing\n";
/// let config = ClusterConfig::from_properties(kafka_meta::parse_properties(text))?;
/// assert_eq!(config.client_id(), "billing");
/// # Ok::<(), kafka_meta::Error>(())
/// ```
pub fn parse(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut lines = text.lines();
    while let Some(first) = lines.next() {
        let first = first.trim_start();
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut line = first.to_owned();
        while goes_on(&line) {
            line.pop();
            let Some(next) = lines.next() else { break };
            line.push_str(next.trim_start());
        }
        all.push(entry(&line));
    }
    all
}

/// Whether the line ends with an odd number of backslashes.
fn goes_on(line: &str) -> bool {
    line.chars().rev().take_while(|char| *char == '\\').count() % 2 == 1
}

fn entry(line: &str) -> (String, String) {
    let mut escaped = false;
    let end = line.char_indices().find(|(_, char)| {
        let ends = !escaped && (matches!(char, '=' | ':') || char.is_whitespace());
        escaped = *char == '\\' && !escaped;
        ends
    });
    let Some((at, _)) = end else { return (unescape(line), String::new()) };
    let (name, rest) = line.split_at(at);
    let rest = rest.trim_start();
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start();
    (unescape(name), unescape(rest))
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            plain.push(char);
            continue;
        }
        match chars.next() {
            Some('t') => plain.push('\t'),
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('f') => plain.push('\u{c}'),
            Some('u') => {
                let code: String = chars.by_ref().take(4).collect();
                let char = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                plain.push(char.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(char) => plain.push(char),
            None => {}
        }
    }
    plain
}
