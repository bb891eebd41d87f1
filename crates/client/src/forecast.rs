//! How many tasks will be due, minute by minute.

use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What will be due, minute by minute.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// The first minute that is counted: the one after the current minute.
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// The end: the first minute that is not counted.
    #[schema(value_type = String, format = DateTime)]
    pub to: Timestamp,
    /// Whether all schedules are counted over the whole time. Waiting tasks always are.
    pub complete: bool,
    /// The instants of schedules are counted up to here, if there were too many to count them all;
    /// otherwise `null`.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub schedules_until: Option<Timestamp>,
    /// How many schedules are left out because there are too many: the last ones by name.
    pub schedules_missing: u64,
    /// How many waiting tasks are due in this time.
    pub tasks: u64,
    /// How many instants of schedules fall into it.
    pub schedules: u64,
    /// The minutes in which anything is due, in order. Empty minutes are left out.
    pub minutes: Vec<ForecastMinute>,
    /// The minutes in which the most is due, the largest first.
    pub herds: Vec<ForecastMinute>,
}

/// What will be due in a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForecastMinute {
    /// When the minute begins.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// How many waiting tasks are due in it.
    pub tasks: u64,
    /// How many instants of schedules fall into it, their jitter included; their tasks are not made
    /// yet.
    pub schedules: u64,
}
