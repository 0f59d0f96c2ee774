//! Settings by the names of Java's client and of librdkafka, pure.
//!
//! One file usually configures a whole client, so cluster, consumer and producer are given the same properties and
//! each takes what is its own. Nothing is passed over in silence that would change what is read or who can read
//! along: a name is *taken*, *passed over* because it only tunes something this client does not have, or *refused*
//! with the reason, some unless the value is what this client does anyway. A name nobody knows is refused as well: it is
//! a typing error, or a promise that cannot be kept.
//!
//! `names` is the list of names, `cluster` makes a [`ClusterConfig`](crate::ClusterConfig), `jaas` reads Java's
//! login lines, `text` reads a properties file.
//!
//! Invariant: a value that may be a secret never gets into an error.

mod cluster;
mod jaas;
mod names;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

pub use names::{Fate, NAMES};
pub use text::parse;

use crate::{Error, ErrorKind, Result};

/// Properties whose names are all known, under one name per setting.
#[derive(Debug)]
pub struct Properties {
    /// By canonical name: the name as given, and the value.
    values: BTreeMap<&'static str, (String, crate::Secret)>,
    operation: &'static str,
}

impl Properties {
    /// Sorts the properties; `operation` is what errors say they are from.
    pub fn new<K: AsRef<str>, V: AsRef<str>>(
        operation: &'static str,
        given: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Properties> {
        let mut properties = Properties { values: BTreeMap::new(), operation };
        for (name, value) in given {
            let (name, value) = (name.as_ref().trim(), value.as_ref());
            let Some((known, fate)) = NAMES.iter().find(|(known, _)| *known == name) else {
                return Err(properties.error(format!("{name}: there is no such setting")));
            };
            let canonical = match fate {
                Fate::Cluster | Fate::Consumer | Fate::Both | Fate::Producer => known,
                Fate::As(canonical) => canonical,
                Fate::PassedOver(why) => {
                    tracing::debug!(setting = name, why, "passed over");
                    continue;
                }
                Fate::Only(only, _) if value.trim().eq_ignore_ascii_case(only) => continue,
                Fate::Only(only, why) => return Err(properties.error(format!("{name} is not {only}: {why}"))),
                Fate::Refused(why) => return Err(properties.error(format!("{name}: {why}"))),
            };
            let value = crate::Secret::new(value);
            if let Some((before, other)) = properties.values.get(canonical)
                && *other != value
            {
                return Err(properties.error(format!("{before} and {name} contradict each other")));
            }
            properties.values.insert(canonical, (name.to_owned(), value));
        }
        Ok(properties)
    }

    /// The value of a setting that is set and not empty.
    pub fn text(&self, canonical: &str) -> Option<&str> {
        self.raw(canonical).filter(|value| !value.is_empty())
    }

    /// The value of a setting that is set, be it empty. Blanks around it belong to passwords only.
    pub fn raw(&self, canonical: &str) -> Option<&str> {
        let (_, value) = self.values.get(canonical)?;
        Some(if canonical == "sasl.password" { value.expose() } else { value.expose().trim() })
    }

    /// A setting's value by `read`; `wanted` says what it should have been. The value itself is not shown.
    pub fn read<T>(
        &self,
        canonical: &'static str,
        wanted: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.text(canonical) else { return Ok(None) };
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => Err(self.refuse(canonical, format!("is not {wanted}"))),
        }
    }

    /// A number.
    pub fn number<T: std::str::FromStr>(&self, canonical: &'static str) -> Result<Option<T>> {
        self.read(canonical, "a number that is allowed here", |value| value.parse().ok())
    }

    /// A time in milliseconds.
    pub fn millis(&self, canonical: &'static str) -> Result<Option<Duration>> {
        Ok(self.number(canonical)?.map(Duration::from_millis))
    }

    /// `true` or `false`, in any case.
    pub fn flag(&self, canonical: &'static str) -> Result<Option<bool>> {
        self.read(canonical, "true or false", |value| value.to_ascii_lowercase().parse().ok())
    }

    /// An error about a setting, under the name it was given by.
    pub fn refuse(&self, canonical: &'static str, why: impl std::fmt::Display) -> Error {
        let name = self.values.get(canonical).map_or(canonical, |(name, _)| name);
        self.error(format!("{name} {why}"))
    }

    /// Refuses any of `settings` that is set; `why` follows its name.
    pub fn none_of(&self, settings: &[&'static str], why: &str) -> Result<()> {
        match settings.iter().find(|setting| self.text(setting).is_some()) {
            Some(setting) => Err(self.refuse(setting, why)),
            None => Ok(()),
        }
    }

    fn error(&self, detail: String) -> Error {
        Error::new(ErrorKind::InvalidRequest, self.operation).with_detail(detail)
    }
}

#[cfg(test)]
mod tests;
