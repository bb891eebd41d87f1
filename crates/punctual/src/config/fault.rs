//! What is wrong with a configuration, for the person who wrote it: every fault at once, each with its key, its
//! value, where it came from and what to do.

use std::fmt;

use super::secret::split_scheme;
use super::settings::{Origin, Setting};

/// What may hold the address of a server, and with it a password.
const ADDRESSES: [&str; 4] = ["store", "read_store", "broker", "coordinator"];

/// One fault.
#[derive(Debug)]
pub struct Fault {
    subject: String,
    advice: String,
}

/// Every fault of a configuration.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// A setting has a value it cannot have.
    pub fn value(&mut self, key: &str, setting: &Setting, advice: impl Into<String>) {
        let subject = format!("{key} = {} {}", shown(key, &setting.value), setting.origin);
        self.0.push(Fault { subject, advice: advice.into() });
    }

    /// A key is none of ours.
    pub fn key(&mut self, key: &str, origin: &Origin, advice: impl Into<String>) {
        self.0.push(Fault { subject: format!("{key} {origin}"), advice: advice.into() });
    }

    /// A source could not be read at all.
    pub fn source(&mut self, source: impl Into<String>, advice: impl Into<String>) {
        self.0.push(Fault { subject: source.into(), advice: advice.into() });
    }

    /// `value`, if there are no faults.
    pub fn or<T>(self, value: T) -> Result<T, Faults> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [fault] => write!(f, "{fault}"),
            faults => {
                write!(f, "the configuration has {} faults:", faults.len())?;
                faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
        }
    }
}

impl std::error::Error for Faults {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.advice)
    }
}

/// The value as TOML; of an address only the scheme, because what is wrong with it may be where its password stands.
fn shown(key: &str, value: &toml::Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match split_scheme(text) {
        Some((scheme, _)) => format!("\"{scheme}://…\""),
        None if ADDRESSES.contains(&key) && !is_word => "\"…\"".to_owned(),
        None => value.to_string(),
    }
}
