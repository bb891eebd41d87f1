//! What is wrong with a configuration, for the person who wrote it: every fault at once, each with its key, its
//! value, where it came from and what to do.

use std::fmt;

use super::settings::{Origin, Setting};

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
        let subject = format!("{key} = {} {}", shown(&setting.value), setting.origin);
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

/// The value as TOML; of a URL only the scheme, because what is wrong with it may be where its password stands.
fn shown(value: &toml::Value) -> String {
    match value.as_str().and_then(|text| text.split_once("://")) {
        Some((scheme, _)) => format!("\"{scheme}://…\""),
        None => value.to_string(),
    }
}
