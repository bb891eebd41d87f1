//! An API key as the store has it: whose it is, what it allows, and a digest of its secret.

use std::fmt;

use crate::ids::KeyId;
use crate::name_pattern::NamePattern;
use crate::time::Timestamp;

/// What the holder of a key is to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessRole {
    /// Reads.
    Viewer,
    /// Reads, submits, edits and cancels tasks.
    Submitter,
    /// Leases tasks and settles their runs.
    Worker,
    /// Reads and changes what a tenant has.
    Operator,
    /// Does everything, for every tenant.
    Admin,
}

impl AccessRole {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Viewer, Self::Submitter, Self::Worker, Self::Operator, Self::Admin];

    /// The name on the wire and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Submitter => "submitter",
            Self::Worker => "worker",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The role of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// The part of a tenant that a credential reaches. No patterns mean all names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyScope {
    /// The types of tasks.
    pub types: Vec<NamePattern>,
    /// The queues.
    pub queues: Vec<NamePattern>,
    /// Whether payloads, results, headers and checkpoints are shown.
    pub payloads: bool,
}

impl Default for KeyScope {
    fn default() -> Self {
        Self { types: Vec::new(), queues: Vec::new(), payloads: true }
    }
}

/// The SHA-256 of a secret. It is not the secret, but it is nobody's business: never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// The digest with these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(…)")
    }
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeyRecord {
    /// Its id.
    pub id: KeyId,
    /// Its tenant.
    pub tenant: String,
    /// What people call it.
    pub name: String,
    /// What its holder may do.
    pub role: AccessRole,
    /// What it reaches.
    pub scope: KeyScope,
    /// The digest of its secret.
    pub digest: SecretDigest,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is refused; none: never.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, some seconds late; none: never.
    pub last_used_at: Option<Timestamp>,
}

impl ApiKeyRecord {
    /// Whether it is refused at `now`.
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}
