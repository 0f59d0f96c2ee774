//! Java's login lines: `org.apache….PlainLoginModule required username="u" password="p";`
//!
//! Errors say what is missing, never what is there: the line holds the password.

use crate::Secret;

/// What a login line says.
pub(super) struct Jaas {
    /// The module's class without its package.
    pub(super) module: String,
    options: Vec<(String, Secret)>,
}

impl Jaas {
    pub(super) fn option(&self, name: &str) -> Option<&Secret> {
        self.options.iter().find(|(option, _)| option == name).map(|(_, value)| value)
    }
}

/// Reads one login line; the error is what is wrong with it.
pub(super) fn parse(line: &str) -> Result<Jaas, &'static str> {
    let mut words = words(line)?.into_iter();
    let module = words.next().ok_or("names no login module")?;
    let module = module.rsplit('.').next().unwrap_or_default().to_owned();
    let flag = words.next().ok_or("has no control flag after the login module")?;
    let flags = ["required", "requisite", "sufficient", "optional"];
    if !flags.iter().any(|known| flag.eq_ignore_ascii_case(known)) {
        return Err("has no control flag after the login module");
    }
    let mut options = Vec::new();
    loop {
        match words.next().as_deref() {
            Some(";") => break,
            None => return Err("does not end with a semicolon"),
            Some(name) => {
                if words.next().as_deref() != Some("=") {
                    return Err("has an option without a value");
                }
                let value =
                    words.next().filter(|value| value != ";").ok_or("has an option without a value")?;
                options.push((name.to_owned(), Secret::new(value)));
            }
        }
    }
    if words.next().is_some() {
        return Err("has more than one login module");
    }
    Ok(Jaas { module, options })
}

/// Words, quoted or not, and `=` and `;` by themselves.
fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut all = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            char if char.is_whitespace() => {}
            '=' | ';' => all.push(char.to_string()),
            '"' | '\'' => {
                let mut word = String::new();
                loop {
                    match chars.next() {
                        None => return Err("has a quotation that does not end"),
                        Some('\\') => word.extend(chars.next()),
                        Some(end) if end == char => break,
                        Some(char) => word.push(char),
                    }
                }
                all.push(word);
            }
            char => {
                let mut word = char.to_string();
                while let Some(char) = chars.next_if(|char| !char.is_whitespace() && !"=;\"'".contains(*char))
                {
                    word.push(char);
                }
                all.push(word);
            }
        }
    }
    Ok(all)
}
