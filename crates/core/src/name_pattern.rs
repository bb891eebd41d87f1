//! A name, or the beginning of one: what lists and bulk operations match types and queues with.

use std::fmt;

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

    /// Whether every name that `other` matches matches this, too.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(_), Self::Prefix(_)) => false,
            (pattern, other) => pattern.matches(other.text()),
        }
    }

    /// The pattern of the names that match both; none if there are none.
    pub fn both(&self, other: &Self) -> Option<Self> {
        if self.covers(other) {
            Some(other.clone())
        } else if other.covers(self) {
            Some(self.clone())
        } else {
            None
        }
    }

    /// The name without its `*`.
    pub fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) => text,
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(text) => f.write_str(text),
            Self::Prefix(text) => write!(f, "{text}*"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matches_both_is_a_pattern_again() {
        for (one, other, both) in [
            ("mail", "mail", Some("mail")),
            ("mail", "post", None),
            ("mail*", "mail", Some("mail")),
            ("mail*", "mail.eu", Some("mail.eu")),
            ("mail*", "mai", None),
            ("mail.*", "mail*", Some("mail.*")),
            ("mail.*", "mail.eu*", Some("mail.eu*")),
            ("mail*", "post*", None),
            ("*", "mail", Some("mail")),
            ("*", "mail*", Some("mail*")),
        ] {
            let (one, other) = (NamePattern::from(one), NamePattern::from(other));
            let both = both.map(NamePattern::from);
            assert_eq!((one.both(&other), other.both(&one)), (both.clone(), both), "{one} and {other}");
        }
    }

    #[test]
    fn a_pattern_covers_what_it_matches() {
        let covers = |one: &str, other: &str| NamePattern::from(one).covers(&other.into());
        assert!(covers("mail*", "mail*") && covers("mail*", "mail") && covers("*", "x*") && covers("x", "x"));
        assert!(!covers("mail", "mail*") && !covers("mail.*", "mail*") && !covers("x", "y"));
        assert_eq!(NamePattern::from("mail.*").to_string(), "mail.*");
    }
}
