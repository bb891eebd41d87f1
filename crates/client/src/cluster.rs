//! The nodes that share a store, and the partitions they own, as an operator sees them.

use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A process of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its id. A restarted node has another one.
    pub id: String,
    /// Its name: the one its operator has set, or that of its machine. Names need not be unique.
    pub name: String,
    /// Where it listens; `null` if it does not.
    pub address: Option<String>,
    /// Its roles: `api`, `scheduler`, `worker`, `leader`.
    pub roles: Vec<String>,
    /// The version of the program.
    pub version: String,
    /// Whether it has stopped reporting: it may be dead, frozen or cut off.
    #[serde(default)]
    pub silent: bool,
    /// When the other nodes take over what it has, unless it reports before; `null` unless it is
    /// silent.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub taken_over_at: Option<Timestamp>,
    /// How long it keeps what it has while it is silent; `null` if it is of a version that does not
    /// say.
    #[serde(default)]
    pub lease_seconds: Option<f64>,
    /// Whether it is the leader.
    pub leader: bool,
    /// How many partitions it owns.
    pub partitions: usize,
    /// By how many milliseconds its wall clock was ahead of the store's; negative: behind.
    pub skew_ms: i64,
    /// When it was first seen.
    #[schema(value_type = String, format = DateTime)]
    pub first_seen_at: Timestamp,
    /// When it was last seen.
    #[schema(value_type = String, format = DateTime)]
    pub last_seen_at: Timestamp,
}

/// A partition of the queues.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Partition {
    /// Its number.
    pub partition: u16,
    /// The node that dispatches the webhooks of its queues; `null` if no node owns it.
    pub owner: Option<String>,
    /// The name of that node; `null` if no node owns it, or the node is not known yet.
    #[serde(default)]
    pub owner_name: Option<String>,
    /// The term of its last owner; grows with every new one.
    pub term: u64,
    /// When the ownership ends, or has ended, unless it is renewed.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}
