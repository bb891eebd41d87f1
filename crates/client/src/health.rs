//! Whether a node is alive, and whether it can serve.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    #[schema(example = "ok")]
    pub status: String,
}

/// Whether a node can serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether it should get requests.
    pub status: ReadinessStatus,
    /// How each part it needs is doing.
    pub checks: Checks,
}

/// Whether a node should get requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadinessStatus {
    /// It should.
    Ready,
    /// A part that it needs does not work.
    Unready,
    /// It is shutting down.
    Draining,
}

/// How each part a node needs is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Checks {
    /// Whether the store reads and writes.
    pub store: Check,
    /// Whether the broker answers.
    pub broker: Check,
    /// Whether the store's schema is the one this version needs.
    pub migrations: Check,
}

impl Checks {
    /// Whether every part works.
    pub fn all_ok(&self) -> bool {
        [self.store, self.broker, self.migrations].iter().all(|check| *check == Check::Ok)
    }
}

/// How one part is doing. Why it failed is in the node's log, not on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// It works.
    Ok,
    /// It does not.
    Failed,
    /// It could not be asked, since the store cannot be reached.
    Unknown,
}
