//! Text that must not be seen: passwords and tokens.
//!
//! The type has no `Display`, its `Debug` shows nothing (not even a length), and only this crate can look inside.
//! Whatever holds one may derive `Debug`.

use std::fmt;
use std::sync::Arc;

/// A password or token. Printing it shows `[secret]`; cloning it copies nothing.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into().into())
    }

    /// The text. Whoever calls this keeps it out of errors and logs.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Secret {
        Secret::new(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn nothing_of_a_secret_is_printed() {
        assert_eq!(format!("{:?} {:#?}", Secret::from("hunter2"), Secret::from("")), "[secret] [secret]");
    }
}
