//! The faults of the settings, for the operator: all at once, each with its key, its value, its
//! origin and what to do.

use std::fmt;

use super::secret::split_scheme;
use super::settings::{Setting, SettingOrigin};

/// Settings that may hold the address of a server, and with it a password.
const ADDRESSES: [&str; 4] = ["store", "read_store", "broker", "coordinator"];

/// All faults of the settings, one sentence each.
#[derive(Debug, Default)]
pub struct SettingFaults(Vec<String>);

impl SettingFaults {
    /// Adds a setting with a wrong value.
    pub fn value(&mut self, key: &str, setting: &Setting, advice: impl fmt::Display) {
        self.0.push(format!("{key} = {} {}: {advice}", shown(key, &setting.value), setting.origin));
    }

    /// Adds an unknown key.
    pub fn key(&mut self, key: &str, origin: &SettingOrigin, advice: impl fmt::Display) {
        self.0.push(format!("{key} {origin}: {advice}"));
    }

    /// Adds a source that cannot be read.
    pub fn source(&mut self, fault: String) {
        self.0.push(fault);
    }

    /// `value`, if there are no faults.
    pub fn or<T>(self, value: T) -> Result<T, SettingFaults> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for SettingFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [fault] => f.write_str(fault),
            faults => {
                write!(f, "the configuration has {} faults:", faults.len())?;
                faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
        }
    }
}

impl std::error::Error for SettingFaults {}

/// The value as TOML. Shows only the scheme of an address: the rest may contain a password.
fn shown(key: &str, value: &toml::Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match split_scheme(text) {
        Some((scheme, _)) => format!("\"{scheme}://…\""),
        None if ADDRESSES.contains(&key) && !is_word => "\"…\"".to_owned(),
        None => value.to_string(),
    }
}
