//! The kit's own error: what it was doing and why that did not work, made to be read in a failed test's
//! output.
//!
//! What it is not: something to match on. A test that needs a broker's error code asks through
//! [`crate::Client`].

use std::error::Error as StdError;
use std::fmt;

/// A result of the kit.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why the kit could not do something.
pub struct Failure {
    doing: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Failure {
    /// A failure of our own.
    pub fn new(what: impl Into<String>) -> Self {
        Self { doing: what.into(), source: None }
    }

    /// A failure of something below.
    pub fn because(doing: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { doing: doing.into(), source: Some(source.into()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.doing)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

// A test's `unwrap` prints the debug form: it must be as good to read as the other.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.source.as_deref()?;
        Some(source)
    }
}

/// Says what was being done when something below fails.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Failure::because(what(), source))
    }
}
