//! The failures that a retry policy names as worth a retry (`retry_on`). Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::failure::FailureCause;

/// A kind of failure, written as a word: `5xx`, `402`, `timeout` or `connection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryCondition {
    /// A status of this hundred: 3, 4 or 5.
    Hundred(u16),
    /// This status.
    Status(u16),
    /// The run did not end within its timeout.
    Timeout,
    /// The target gave no answer, or none that is HTTP.
    Connection,
}

impl RetryCondition {
    /// What a word must be, as a fault states it.
    pub const RULE: &str = "must be 3xx, 4xx, 5xx, a status from 300 to 599, timeout or connection";

    /// The words that are no status.
    pub const WORDS: [&str; 5] = ["3xx", "4xx", "5xx", "timeout", "connection"];

    /// Whether a failure of this cause is of this kind.
    pub fn covers(self, cause: FailureCause) -> bool {
        match (self, cause) {
            (Self::Hundred(hundred), FailureCause::Status(status)) => status / 100 == hundred,
            (Self::Status(named), FailureCause::Status(status)) => status == named,
            (Self::Timeout, FailureCause::Timeout) | (Self::Connection, FailureCause::Connection) => true,
            _ => false,
        }
    }

    /// Whether failures of this cause have a kind. The others (a lost worker, what a worker
    /// reports, a target that may not be called) cannot be named.
    pub const fn is_nameable(cause: FailureCause) -> bool {
        matches!(cause, FailureCause::Status(_) | FailureCause::Timeout | FailureCause::Connection)
    }
}

/// The word names no kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", RetryCondition::RULE)]
pub struct UnknownCondition;

impl FromStr for RetryCondition {
    type Err = UnknownCondition;

    fn from_str(word: &str) -> Result<Self, UnknownCondition> {
        match word.as_bytes() {
            b"timeout" => Ok(Self::Timeout),
            b"connection" => Ok(Self::Connection),
            [hundred @ b'3'..=b'5', b'x', b'x'] => Ok(Self::Hundred(u16::from(hundred - b'0'))),
            [b'3'..=b'5', b'0'..=b'9', b'0'..=b'9'] => word.parse().map(Self::Status).map_err(|_| UnknownCondition),
            _ => Err(UnknownCondition),
        }
    }
}

impl fmt::Display for RetryCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hundred(hundred) => write!(f, "{hundred}xx"),
            Self::Status(status) => write!(f, "{status}"),
            Self::Timeout => f.write_str("timeout"),
            Self::Connection => f.write_str("connection"),
        }
    }
}

impl Serialize for RetryCondition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RetryCondition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_written_as_it_is_read() {
        for word in ["3xx", "4xx", "5xx", "300", "402", "599", "timeout", "connection"] {
            let condition: RetryCondition = word.parse().unwrap();
            assert_eq!(condition.to_string(), word);
            assert_eq!(serde_json::to_value(condition).unwrap(), word);
        }
        for word in ["", "2xx", "200", "6xx", "600", "40", "4022", "4XX", "Timeout", "lost", " 402", "４０２"] {
            assert_eq!(word.parse::<RetryCondition>(), Err(UnknownCondition), "{word}");
        }
    }

    #[test]
    fn a_condition_covers_its_kind_alone() {
        let condition = |word: &str| word.parse::<RetryCondition>().unwrap();
        for (word, cause, covered) in [
            ("4xx", FailureCause::Status(402), true),
            ("402", FailureCause::Status(402), true),
            ("403", FailureCause::Status(402), false),
            ("5xx", FailureCause::Status(402), false),
            ("timeout", FailureCause::Timeout, true),
            ("timeout", FailureCause::Connection, false),
            ("connection", FailureCause::Connection, true),
            ("connection", FailureCause::Lost, false),
        ] {
            assert_eq!(condition(word).covers(cause), covered, "{word} {cause:?}");
        }
    }
}
