//! A tenant: its weight and its limits.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The largest weight of a tenant.
pub const WEIGHT_MAX: u32 = 1_000;

/// What a tenant may use, in the whole cluster. None means no limit of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantLimits {
    /// Submissions a second, in the long run.
    pub submissions_per_second: Option<f64>,
    /// Submissions at once, on top of that.
    pub burst: Option<u32>,
    /// Tasks that have not begun.
    pub waiting_tasks: Option<u64>,
    /// Bytes of one payload.
    pub payload_bytes: Option<u64>,
    /// Schedules.
    pub schedules: Option<u64>,
    /// The shortest time between two instants of a schedule.
    pub min_schedule_millis: Option<u64>,
    /// Runs at once.
    pub concurrent_runs: Option<u64>,
}

/// A tenant as the store has it.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantRecord {
    /// Its name.
    pub name: String,
    /// Its share of claims beside other tenants, from 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// What it may use.
    pub limits: TenantLimits,
    /// How often its row has changed, from 1.
    pub version: u64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl TenantRecord {
    /// A new tenant, of weight 1 and without limits.
    pub fn new(name: impl Into<String>, now: Timestamp) -> Self {
        Self {
            name: name.into(),
            weight: 1,
            limits: TenantLimits::default(),
            version: 1,
            created_at: now,
            updated_at: now,
        }
    }
}
