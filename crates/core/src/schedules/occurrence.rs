//! The records of instants: what was decided about each.

use serde::{Deserialize, Serialize};

use super::plan::{Covers, Origin};
use crate::ids::TaskId;
use crate::time::Timestamp;

/// What was decided about an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OccurrenceOutcome {
    /// It waits for the previous task.
    Buffered,
    /// A task is made.
    Fired,
    /// It does not run, because of the overlap policy, a pause or the limit of runs.
    Skipped,
    /// It does not run, because there was no leader at its time.
    Missed,
    /// It does not run itself, because a later one runs for it.
    Coalesced,
}

impl OccurrenceOutcome {
    /// Every outcome, in the order of their codes.
    pub const ALL: [OccurrenceOutcome; 5] = [
        OccurrenceOutcome::Buffered,
        OccurrenceOutcome::Fired,
        OccurrenceOutcome::Skipped,
        OccurrenceOutcome::Missed,
        OccurrenceOutcome::Coalesced,
    ];

    /// The word on the wire and in the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            OccurrenceOutcome::Buffered => "buffered",
            OccurrenceOutcome::Fired => "fired",
            OccurrenceOutcome::Skipped => "skipped",
            OccurrenceOutcome::Missed => "missed",
            OccurrenceOutcome::Coalesced => "coalesced",
        }
    }

    /// The number in the store's column. SQL statements contain those of the first two.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The outcome with this number.
    pub fn from_code(code: i64) -> Option<Self> {
        usize::try_from(code).ok().and_then(|index| Self::ALL.get(index).copied())
    }
}

/// The number of an origin in the store's column. SQL statements contain that of a backfill.
pub const fn origin_code(origin: Origin) -> u8 {
    match origin {
        Origin::Due => 0,
        Origin::Manual => 1,
        Origin::Backfill => 2,
    }
}

/// The origin with this number.
pub const fn origin_from_code(code: i64) -> Option<Origin> {
    match code {
        0 => Some(Origin::Due),
        1 => Some(Origin::Manual),
        2 => Some(Origin::Backfill),
        _ => None,
    }
}

/// The stored record of an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Its instant.
    pub instant: Timestamp,
    /// Why there is this occurrence.
    pub origin: Origin,
    /// What was decided.
    pub outcome: OccurrenceOutcome,
    /// Why, as a stable word.
    pub reason: String,
    /// More about the reason.
    pub detail: Option<String>,
    /// The task that was made.
    pub task: Option<TaskId>,
    /// The instants that it stands for, if there are many.
    pub covers: Option<Covers>,
    /// When this was decided.
    pub decided_at: Timestamp,
}
