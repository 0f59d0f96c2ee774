//! Interned topic names.
//!
//! A record names its topic, and a shared counter touched once per record costs more than decoding the record.
//! So a name is stored once per process and handed out as a `Copy` pointer. Names are never freed: a process
//! meets a bounded number of topics, and each costs its own length once.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A topic's name: `Copy`, as cheap to pass as an integer, equal to the text it holds.
///
/// Names are interned for the life of the process, so two equal names are the same pointer.
#[derive(Clone, Copy)]
pub struct TopicName(&'static Interned);

struct Interned {
    text: Box<str>,
}

/// The set's key: looked up by text, so that a known name allocates nothing.
struct Entry(&'static Interned);

impl Borrow<str> for Entry {
    fn borrow(&self) -> &str {
        &self.0.text
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for Entry {}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

fn names() -> &'static Mutex<HashSet<Entry>> {
    static NAMES: OnceLock<Mutex<HashSet<Entry>>> = OnceLock::new();
    NAMES.get_or_init(Mutex::default)
}

impl TopicName {
    /// Interns `name`. Takes a process-wide lock for the length of a look-up: call it once per topic, not
    /// once per record.
    pub fn new(name: &str) -> Self {
        let mut names = names().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = names.get(name) {
            return TopicName(entry.0);
        }
        let interned: &'static Interned = Box::leak(Box::new(Interned { text: name.into() }));
        names.insert(Entry(interned));
        TopicName(interned)
    }

    /// The name as text.
    pub fn as_str(self) -> &'static str {
        &self.0.text
    }
}

impl Deref for TopicName {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for TopicName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for TopicName {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for TopicName {}

impl Hash for TopicName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.0).hash(state);
    }
}

impl PartialOrd for TopicName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TopicName {
    fn cmp(&self, other: &Self) -> Ordering {
        if self == other { Ordering::Equal } else { self.as_str().cmp(other.as_str()) }
    }
}

impl PartialEq<str> for TopicName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for TopicName {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for TopicName {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other.as_str()
    }
}

impl PartialEq<TopicName> for str {
    fn eq(&self, other: &TopicName) -> bool {
        self == other.as_str()
    }
}

impl PartialEq<TopicName> for &str {
    fn eq(&self, other: &TopicName) -> bool {
        *self == other.as_str()
    }
}

impl From<&str> for TopicName {
    fn from(name: &str) -> Self {
        TopicName::new(name)
    }
}

impl From<String> for TopicName {
    fn from(name: String) -> Self {
        TopicName::new(&name)
    }
}

impl From<&String> for TopicName {
    fn from(name: &String) -> Self {
        TopicName::new(name)
    }
}

impl From<TopicName> for String {
    fn from(name: TopicName) -> Self {
        name.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::TopicName;

    #[test]
    fn equal_names_are_the_same_pointer_and_compare_with_text() {
        let (a, b, c) = (TopicName::new("orders"), TopicName::new("orders"), TopicName::new("refunds"));
        assert_eq!(a, b);
        assert_ne!(a, c);
        assert!(a < c);
        assert_eq!(a, "orders");
        assert_eq!(size_of::<TopicName>(), size_of::<usize>());
    }
}
