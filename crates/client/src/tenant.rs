//! Tenants, as administrators see them.

use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::form::TenantForm;
use crate::new_task::given;
use crate::objects::objects_only;
use crate::seconds::Seconds;

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its share of claims beside other tenants.
    pub weight: u32,
    /// What it may use.
    pub limits: TenantLimits,
    /// How often it was changed; also its `ETag`.
    pub version: u64,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

/// What a tenant may use, in the whole cluster; `null`: no limit of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
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
    pub min_schedule_seconds: Option<Seconds>,
    /// Runs at once.
    pub concurrent_runs: Option<u64>,
}

/// A tenant to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct NewTenant {
    /// Its name.
    #[schema(value_type = TenantForm)]
    pub name: String,
    /// Its share of claims beside other tenants; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000)]
    pub weight: Option<i64>,
    /// What it may use; everything if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<TenantLimitsPatch>,
}

/// Changes to a tenant. An absent field stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct TenantPatch {
    /// Another weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000)]
    pub weight: Option<i64>,
    /// Other limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<TenantLimitsPatch>,
}

/// Limits of a tenant; `null` removes one, an absent one stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default, remote = "Self")]
pub struct TenantLimitsPatch {
    /// Submissions a second, in the long run.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = 0.000_1, maximum = 1_000_000)]
    pub submissions_per_second: Option<Option<f64>>,
    /// Submissions at once, on top of that.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1_000_000)]
    pub burst: Option<Option<i64>>,
    /// Tasks that have not begun.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 1_000_000_000)]
    pub waiting_tasks: Option<Option<i64>>,
    /// Bytes of one payload.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 1_000_000_000)]
    pub payload_bytes: Option<Option<i64>>,
    /// Schedules.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 1_000_000_000)]
    pub schedules: Option<Option<i64>>,
    /// The shortest time between two instants of a schedule.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 31_622_400)]
    pub min_schedule_seconds: Option<Option<Seconds>>,
    /// Runs at once.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 1_000_000_000)]
    pub concurrent_runs: Option<Option<i64>>,
}

objects_only!(NewTenant, TenantPatch, TenantLimitsPatch);
