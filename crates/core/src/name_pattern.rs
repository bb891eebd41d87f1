//! A name, or the beginning of one: what lists and bulk operations match types and queues with.

use serde::{Deserialize, Serialize};

/// Matches names. A trailing `*` stands for any end; names have none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamePattern {
    /// This name.
    Exact(String),
    /// Every name that begins like this.
    Prefix(String),
}

impl NamePattern {
    /// Whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => name == exact,
            Self::Prefix(prefix) => name.starts_with(prefix),
        }
    }

    /// The only name that matches; none if there may be several.
    pub fn exact(&self) -> Option<&str> {
        match self {
            Self::Exact(exact) => Some(exact),
            Self::Prefix(_) => None,
        }
    }

    /// The first and the last name that can match, by code points.
    pub fn range(&self) -> (String, String) {
        match self {
            Self::Exact(exact) => (exact.clone(), exact.clone()),
            Self::Prefix(prefix) => (prefix.clone(), format!("{prefix}\u{10ffff}")),
        }
    }

    /// The name without its `*`.
    pub fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) => text,
        }
    }
}

impl From<&str> for NamePattern {
    fn from(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Exact(text.to_owned()),
        }
    }
}
