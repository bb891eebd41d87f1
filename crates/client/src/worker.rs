//! Pull workers, as they were last seen.

use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A pull worker.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its name.
    pub worker_id: String,
    /// Whether it is there.
    pub status: WorkerStatus,
    /// The queues it polls.
    pub queues: Vec<String>,
    /// The types it polls for.
    pub types: Vec<String>,
    /// How many tasks it holds, as far as leases were read.
    pub running: u64,
    /// When it was first seen.
    #[schema(value_type = String, format = DateTime)]
    pub first_seen_at: Timestamp,
    /// When it was last seen.
    #[schema(value_type = String, format = DateTime)]
    pub last_seen_at: Timestamp,
}

/// Whether a pull worker is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerStatus {
    /// It was seen a short while ago, or holds a task.
    Active,
    /// It was not seen for a while, and holds no task.
    Lost,
}
