//! The layers of the configuration, merged before any value is checked.
//!
//! The embedded default file is the bottom layer and the list of all keys: a key that it lacks is
//! unknown, and a value must have the type that it has there. Above it are the file, the
//! environment and the flags.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use punctual_submission::nearest;
use toml::{Table, Value};

use super::fault::SettingFaults;

/// The default file with its comments.
pub const DEFAULT_FILE: &str = include_str!("../../punctual.default.toml");

/// The prefix of environment variables with settings.
const PREFIX: &str = "PUNCTUAL_";

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// The embedded default file.
    Default,
    /// The file named by `--config`.
    File(PathBuf),
    /// This environment variable.
    Environment(String),
    /// This flag.
    Flag(&'static str),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::Default => f.write_str("by default"),
            SettingOrigin::File(path) => write!(f, "in {}", path.display()),
            SettingOrigin::Environment(name) => write!(f, "from {name}"),
            SettingOrigin::Flag(flag) => write!(f, "from {flag}"),
        }
    }
}

/// A value and where it came from.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The value, of the type it has in the default file.
    pub value: Value,
    /// Where it came from.
    pub origin: SettingOrigin,
}

/// Every setting by its dotted key.
#[derive(Clone, Debug)]
pub struct RawSettings {
    by_key: BTreeMap<String, Setting>,
    defaults: BTreeMap<String, Value>,
}

impl RawSettings {
    /// The bottom layer.
    pub fn defaults() -> Self {
        let table: Table = DEFAULT_FILE.parse().expect("invariant: a test reads the default file");
        let defaults: BTreeMap<String, Value> = flatten(table).into_iter().collect();
        let setting = |value: &Value| Setting { value: value.clone(), origin: SettingOrigin::Default };
        let by_key = defaults.iter().map(|(key, value)| (key.clone(), setting(value))).collect();
        Self { by_key, defaults }
    }

    /// Applies the file at `path`.
    pub fn apply_file(&mut self, path: &Path, faults: &mut SettingFaults) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => return faults.source(format!("cannot read {}: {error}", path.display())),
        };
        match text.parse::<Table>() {
            Ok(table) => {
                let origin = SettingOrigin::File(path.to_owned());
                for (key, value) in flatten(table) {
                    self.set(&key, value, origin.clone(), faults);
                }
            }
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
                faults.source(format!("{} is not TOML: line {line}: {}", path.display(), error.message()));
            }
        }
    }

    /// Applies the environment.
    pub fn apply_environment(&mut self, variables: impl Iterator<Item = (String, String)>, faults: &mut SettingFaults) {
        let mut ours: Vec<_> = variables.filter(|(name, _)| is_setting(name)).collect();
        ours.sort();
        for (name, text) in ours {
            let key = name[PREFIX.len()..].to_lowercase().replace("__", ".");
            self.apply_text(&key, &text, SettingOrigin::Environment(name), faults);
        }
    }

    /// Applies one value from a flag or a variable.
    pub fn apply_text(&mut self, key: &str, text: &str, origin: SettingOrigin, faults: &mut SettingFaults) {
        let value = match self.defaults.get(key) {
            Some(Value::Integer(_)) => {
                text.parse().map(Value::Integer).or_else(|_| text.parse().map(Value::Float)).ok()
            }
            Some(Value::Boolean(_)) => text.parse().map(Value::Boolean).ok(),
            Some(Value::Array(_)) => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
            }
            _ => None,
        };
        self.set(key, value.unwrap_or_else(|| Value::String(text.to_owned())), origin, faults);
    }

    /// Takes loopback out of the networks that webhooks may go to by default, unless the store is
    /// embedded and authentication off: otherwise others than this machine can submit. Called after
    /// all layers.
    pub fn narrow_defaults(&mut self) {
        let is_embedded = self.get("store").value.as_str() == Some("sqlite");
        let is_open = self.get("auth.enabled").value.as_bool() == Some(false);
        let networks = self.by_key.get_mut("webhooks.allow_networks");
        if let Some(networks) =
            networks.filter(|networks| !(is_embedded && is_open) && networks.origin == SettingOrigin::Default)
        {
            networks.value = Value::Array(Vec::new());
        }
    }

    /// The value in force. The key must be one of the default file.
    pub fn get(&self, key: &str) -> &Setting {
        self.by_key.get(key).expect("invariant: a test reads every key")
    }

    /// The value of the default file.
    pub fn default_of(&self, key: &str) -> &Value {
        self.defaults.get(key).expect("invariant: a test reads every key")
    }

    /// Every setting in force, by its key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.by_key.iter().map(|(key, setting)| (key.as_str(), setting))
    }

    fn set(&mut self, key: &str, value: Value, origin: SettingOrigin, faults: &mut SettingFaults) {
        let Some(default) = self.defaults.get(key) else {
            return faults.key(key, &origin, self.advice_on_unknown(key));
        };
        let setting = Setting { value, origin };
        match wanted_type(key, default, &setting.value) {
            Some(wanted) => faults.value(key, &setting, wanted),
            None => drop(self.by_key.insert(key.to_owned(), setting)),
        }
    }

    fn advice_on_unknown(&self, key: &str) -> String {
        let sections = self.defaults.keys().filter_map(|known| Some(known.split_once('.')?.0));
        let inside = format!("{key}.");
        if let Some(example) = self.defaults.keys().find(|known| known.starts_with(&inside)) {
            return format!("is a section; name one of its keys, such as {example}");
        }
        match nearest(key, self.defaults.keys().map(String::as_str).chain(sections)) {
            Some(known) => format!("unknown key; did you mean {known}?"),
            None => "unknown key; `punctual config --default` lists all keys".to_owned(),
        }
    }
}

/// Whether an environment variable is a setting. Kubernetes gives every pod variables of this shape
/// for a service called `punctual`; refusing them would keep the server from starting there.
fn is_setting(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let of_kubernetes = rest == "PORT" || rest.starts_with("PORT_") || rest.starts_with("SERVICE_");
    // The second is for commands that call a server.
    !["CONFIG", "API_KEY_FILE"].contains(&rest) && !of_kubernetes
}

/// The expected type, if the value has another.
fn wanted_type(key: &str, default: &Value, value: &Value) -> Option<&'static str> {
    match (default, value) {
        (Value::Integer(_), Value::Float(_)) if key.ends_with("_seconds") => None,
        _ if default.same_type(value) => None,
        (Value::Integer(_), _) if key.ends_with("_seconds") => Some("must be a number of seconds"),
        (Value::Integer(_), _) => Some("must be a whole number"),
        (Value::Boolean(_), _) => Some("must be true or false"),
        (Value::Array(_), _) => Some("must be a list of strings"),
        _ => Some("must be a string"),
    }
}

/// The leaves of a table by their dotted keys. An empty section counts as a leaf, so that a
/// misspelt one is found.
fn flatten(table: Table) -> Vec<(String, Value)> {
    table
        .into_iter()
        .flat_map(|(key, value)| match value {
            Value::Table(section) if !section.is_empty() => {
                flatten(section).into_iter().map(|(inner, value)| (format!("{key}.{inner}"), value)).collect()
            }
            leaf => vec![(key, leaf)],
        })
        .collect()
}
