//! Typed, prefixed ids. On the wire an id is its prefix and a `UUIDv7` in lower case. So a task's
//! id sorts by the time of its submission, and a run's id cannot be mistaken for a task's. A task's
//! id is read without its prefix, too: SQL has it as a `uuid`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::time::Timestamp;

/// A text that is not an id of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be {prefix} followed by a UUID in lower case")]
pub struct NotAnId {
    prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $needs_prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// The prefix before the UUID on the wire.
            pub const PREFIX: &'static str = $prefix;

            /// The bare UUID.
            pub const fn uuid(self) -> Uuid {
                self.0
            }

            /// The id with this UUID.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, self.0.hyphenated())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;
            fn from_str(text: &str) -> Result<Self, NotAnId> {
                let fault = NotAnId { prefix: $prefix };
                let rest = match text.strip_prefix($prefix) {
                    Some(rest) => rest,
                    None if $needs_prefix => return Err(fault),
                    None => text,
                };
                // Neither upper case nor braces nor bare hex: an id has few spellings.
                if rest.len() != 36 || rest.bytes().any(|b| b.is_ascii_uppercase()) {
                    return Err(fault);
                }
                Uuid::try_parse(rest).map(Self).map_err(|_| fault)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    let mut text = [0; $prefix.len() + Hyphenated::LENGTH];
                    let (prefix, uuid) = text.split_at_mut($prefix.len());
                    prefix.copy_from_slice($prefix.as_bytes());
                    self.0.hyphenated().encode_lower(uuid);
                    serializer.serialize_str(str::from_utf8(&text).expect("invariant: an id is ASCII"))
                } else {
                    self.0.as_bytes().serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    <std::borrow::Cow<'_, str>>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
                } else {
                    <[u8; 16]>::deserialize(deserializer).map(|bytes| Self(Uuid::from_bytes(bytes)))
                }
            }
        }
    };
}

id!(
    /// One task, for its whole life.
    TaskId,
    "task_",
    false
);
id!(
    /// One run (attempt) of a task.
    RunId,
    "run_",
    true
);
id!(
    /// A recurring schedule.
    ScheduleId,
    "sched_",
    true
);
id!(
    /// A bulk operation.
    OperationId,
    "op_",
    true
);
id!(
    /// An API key.
    KeyId,
    "key_",
    true
);
id!(
    /// A secret that webhooks are signed with.
    WebhookSecretId,
    "whs_",
    true
);

impl TaskId {
    /// A fresh id. Ids made in one process grow strictly, even within a millisecond.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for TaskId {
    fn default() -> Self {
        Self::new()
    }
}

impl ScheduleId {
    /// A fresh id.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for ScheduleId {
    fn default() -> Self {
        Self::new()
    }
}

impl OperationId {
    /// A fresh id.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for OperationId {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyId {
    /// A fresh id.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl WebhookSecretId {
    /// A fresh id.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for KeyId {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for WebhookSecretId {
    fn default() -> Self {
        Self::new()
    }
}

impl RunId {
    /// The id of the run of `task` that holds fencing token `token`. It is derived, so it needs no
    /// column, and the lease, the webhook and the history all have the same id.
    pub fn of(task: TaskId, token: u64, started_at: Timestamp) -> Self {
        let mut hash = Sha256::new();
        hash.update(task.uuid().as_bytes());
        hash.update(token.to_be_bytes());
        let digest = hash.finalize();
        let mut random = [0; 10];
        random.copy_from_slice(&digest[..10]);
        let millis = u64::try_from(started_at.as_millis()).unwrap_or(0);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }
}

/// The id of one process. It is random, never a hostname: a restarted node is another node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(u64);

impl NodeId {
    /// The id with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// A fresh id: 63 random bits, which fit a signed column.
    pub fn random() -> Self {
        Self(Uuid::new_v4().as_u64_pair().0 >> 1)
    }

    /// The bare number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node_{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_within_a_process() {
        let ids: Vec<TaskId> = (0..10_000).map(|_| TaskId::new()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn the_id_of_a_task_needs_no_prefix() {
        let id = TaskId::new();
        let bare = id.uuid().to_string();
        assert_eq!((id.to_string().parse(), bare.parse()), (Ok(id), Ok(id)));
        assert_eq!(format!("task_{bare}"), id.to_string());
        for other in [
            format!("run_{bare}"),
            format!("task_task_{bare}"),
            format!("task_{{{bare}}}"),
            format!("{{{bare}}}"),
            "task_01981E2C-5b7a-7c3e-9f00-3a4b5c6d7e8f".to_owned(),
            bare.replace('-', ""),
        ] {
            assert!(other.parse::<TaskId>().is_err(), "{other}");
        }
        assert!(bare.parse::<RunId>().is_err() && bare.parse::<ScheduleId>().is_err());
    }

    #[test]
    fn a_run_is_named_by_its_task_and_token() {
        let (task, at) = (TaskId::new(), Timestamp::from_millis(1_779_472_800_123));
        assert_eq!(RunId::of(task, 3, at), RunId::of(task, 3, at));
        assert_ne!(RunId::of(task, 3, at), RunId::of(task, 5, at));
        assert_eq!(RunId::of(task, 3, at).uuid().get_version_num(), 7);
    }
}
