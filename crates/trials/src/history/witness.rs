//! The database's view of a trial: holders and their terms, writes, and leftovers.
//!
//! The trial gathers it itself, without the servers' knowledge, to compare it with what they
//! report. Moments come from one counter of the database: a greater moment is later.

use punctual_core::ids::TaskId;
use serde::{Deserialize, Serialize};

/// Everything that was recorded in the database.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Witness {
    /// Each change of a holder.
    pub terms: Vec<Term>,
    /// Every write to the row of a task.
    pub writes: Vec<WitnessedWrite>,
    /// Holds that had run out and were still there after the quiet time.
    pub held: Vec<String>,
    /// Everything else that was left then and should not have been.
    pub left: Vec<String>,
}

/// The leadership or a partition changed hands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// When.
    pub moment: u64,
    /// `leader`, or the name of a partition.
    pub resource: String,
    /// The node; none if it was given up.
    pub holder: Option<String>,
    /// The number of the term, which stays when it is given up.
    pub term: u64,
}

/// The row of a task was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitnessedWrite {
    /// When.
    pub moment: u64,
    /// The task.
    pub task: TaskId,
    /// Its version from then on.
    pub version: u64,
    /// The name of the partition it is in.
    pub partition: String,
}
