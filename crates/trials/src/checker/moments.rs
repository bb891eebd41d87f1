//! When a step was written, so that the steps of different tasks can be compared.
//!
//! If a witness saw the writes, the database's own counter gives the order: a write that depends on
//! a commit comes after it. Otherwise there was one server, and its clock gives the order; steps of
//! the same millisecond may be in either order.

use std::collections::HashMap;

use punctual_core::ids::TaskId;

use crate::history::{History, TrailStep};

/// When steps were written.
pub struct Moments {
    seen: Option<HashMap<(TaskId, u64), i64>>,
}

/// A point in the order of all writes.
pub type WriteMoment = i64;

impl Moments {
    /// The moments of a history.
    pub fn of(history: &History) -> Self {
        let seen = history.witness.as_ref().map(|witness| {
            let mut seen: HashMap<(TaskId, u64), i64> = HashMap::new();
            for write in &witness.writes {
                let moment = i64::try_from(write.moment).unwrap_or(i64::MAX);
                // A heartbeat or a turn writes to the row without a new version: the first write
                // counts.
                seen.entry((write.task, write.version))
                    .and_modify(|first| *first = moment.min(*first))
                    .or_insert(moment);
            }
            seen
        });
        Self { seen }
    }

    /// When this step of a task was written; none if no witness saw it.
    pub fn at(&self, task: TaskId, step: &TrailStep) -> Option<WriteMoment> {
        match &self.seen {
            // A worker's claim and its start are one write.
            Some(seen) => seen.get(&(task, step.version)).or_else(|| seen.get(&(task, step.version + 1))).copied(),
            None => Some(step.at.as_millis()),
        }
    }
}
