//! API keys and the callers that show them.

use punctual_core::ids::KeyId;
use punctual_core::tenants as core;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::form::{KeyIdForm, NamePatternForm, TextForm};
use crate::objects::objects_only;
use crate::words::words;

words! {
    /// What the holder of a credential may do.
    AccessRole is core::AccessRole {
        /// Reads.
        Viewer,
        /// Reads, submits, edits and cancels tasks.
        Submitter,
        /// Leases tasks and settles their runs.
        Worker,
        /// Reads, and changes queues, schedules, dead letters and breakers; cancels tasks.
        Operator,
        /// Everything, for every tenant.
        Admin,
    }
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiKey {
    /// Its id.
    #[schema(value_type = KeyIdForm)]
    pub key_id: KeyId,
    /// Its tenant.
    pub tenant: String,
    /// What people call it.
    pub name: String,
    /// What its holder may do.
    pub role: AccessRole,
    /// Patterns of the types it reaches; empty: all.
    pub types: Vec<String>,
    /// Patterns of the queues it reaches; empty: all.
    pub queues: Vec<String>,
    /// Whether its holder sees payloads, results, headers and checkpoints.
    pub payloads: bool,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// From when on it is refused; `null`: never.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// When it was last used, up to half a minute late; `null`: never.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<Timestamp>,
}

/// An API key that was just made.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedApiKey {
    /// The key itself. It is shown this once, and cannot be read again.
    pub key: String,
    /// What is kept of it.
    #[serde(flatten)]
    pub kept: ApiKey,
}

impl std::fmt::Debug for CreatedApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedApiKey").field("kept", &self.kept).finish_non_exhaustive()
    }
}

/// An API key to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct NewApiKey {
    /// What people call it.
    #[schema(value_type = TextForm)]
    pub name: String,
    /// What its holder may do.
    pub role: AccessRole,
    /// Patterns of the types it reaches; all if absent or empty. A trailing `*` stands for any end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<NamePatternForm>, max_items = 32)]
    pub types: Vec<String>,
    /// Patterns of the queues it reaches; all if absent or empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<NamePatternForm>, max_items = 32)]
    pub queues: Vec<String>,
    /// Whether its holder sees payloads, results, headers and checkpoints; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payloads: Option<bool>,
    /// From when on it is refused; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// How a key is rotated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RotateApiKey {
    /// When the old key ends; in 24 hours if absent. It never ends later than it would anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// The caller, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    /// What people call it; `anyone` while authentication is off.
    pub principal: String,
    /// The tenant that this request is for.
    pub tenant: String,
    /// What it may do.
    pub role: AccessRole,
    /// Its API key; `null`: it has shown none.
    #[schema(value_type = Option<KeyIdForm>)]
    pub key_id: Option<KeyId>,
    /// Patterns of the types it reaches; empty: all.
    pub types: Vec<String>,
    /// Patterns of the queues it reaches; empty: all.
    pub queues: Vec<String>,
    /// Whether it sees payloads, results, headers and checkpoints.
    pub payloads: bool,
    /// When its credential ends; `null`: never.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
}

objects_only!(NewApiKey, RotateApiKey);
