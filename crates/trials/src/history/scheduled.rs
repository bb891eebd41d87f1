//! A schedule that fires every second, and what the API shows about its instants after the drain.

use punctual_client as wire;
use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A schedule that fires at every full second, whatever else runs, and catches up on every missed
/// instant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scheduled {
    /// Its id.
    pub schedule: ScheduleId,
    /// When it was created.
    pub created_at: Timestamp,
    /// Every instant up to this one was due before the trial ended.
    pub until: Timestamp,
    /// The occurrences of its instants.
    pub occurrences: Vec<Occurred>,
}

/// The occurrence of an instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occurred {
    /// The instant.
    pub instant: Timestamp,
    /// The task that was created for it.
    pub task: Option<TaskId>,
    /// Why it had this outcome.
    pub reason: String,
}

impl From<wire::Occurrence> for Occurred {
    fn from(occurrence: wire::Occurrence) -> Self {
        let wire::Occurrence { instant, task_id, reason, .. } = occurrence;
        Self { instant, task: task_id, reason }
    }
}
