//! What a database saw that several servers shared: who held what when, who wrote what, and what was left behind.
//!
//! It is gathered by the trial itself, below the servers and without their knowledge, so that it can be held against
//! what they say. Moments come from one counter of the database: a moment is greater than another if it came later.

use punctual_core::ids::TaskId;
use serde::{Deserialize, Serialize};

/// All that the database saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Witness {
    /// Who came to hold what, or gave it up.
    pub terms: Vec<Term>,
    /// Every write to the row of a task.
    pub writes: Vec<Write>,
    /// Holds that were there after the quiet time although they had run out.
    pub held: Vec<String>,
    /// What else was left then and should not have been.
    pub left: Vec<String>,
}

/// A resource that only one node may act for came to be held, or was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// When.
    pub moment: u64,
    /// `leader`, or the name of a partition.
    pub resource: String,
    /// The node; none: it was given up.
    pub holder: Option<String>,
    /// The number of the term, which stays when it is given up.
    pub term: u64,
}

/// The row of a task was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// When.
    pub moment: u64,
    /// The task.
    pub task: TaskId,
    /// Its version from then on.
    pub version: u64,
    /// The name of the partition it is in.
    pub partition: String,
}
