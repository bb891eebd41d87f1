//! What a pass of the reaper has taken back, for the log.
//!
//! An operator wants to know which worker was lost, and a task to begin with. Runs that reached
//! their timeout and tasks that expired are in the trails of the tasks, so they are not worth a
//! line each pass.

use std::collections::BTreeMap;

use punctual_core::ids::TaskId;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;

/// The maximum number of workers that a pass names.
const NAMED_MAX: usize = 10;

/// What was taken back (see the module).
#[derive(Default)]
pub(super) struct TakenBack {
    /// How many tasks of each lost worker, and the first of them.
    workers: BTreeMap<String, (usize, TaskId)>,
    /// How many tasks of further lost workers.
    of_others: usize,
    /// How many tasks ended because their time was over.
    ended: usize,
}

impl TakenBack {
    /// Adds a task as it was before it was taken back at `now`.
    pub(super) fn add(&mut self, task: &Task, now: Timestamp) {
        let Some(hold) = task.hold.as_ref().filter(|hold| hold.deadline_at > now) else {
            self.ended += 1;
            return;
        };
        if let Some((tasks, _)) = self.workers.get_mut(&hold.worker) {
            *tasks += 1;
        } else if self.workers.len() < NAMED_MAX {
            self.workers.insert(hold.worker.clone(), (1, task.id));
        } else {
            self.of_others += 1;
        }
    }

    /// Logs it: a line for each worker.
    pub(super) fn log(&self) {
        for (worker, (tasks, first)) in &self.workers {
            tracing::info!(worker_id = worker, tasks, task.id = %first, "took back the tasks of a lost worker, of which this is one");
        }
        if self.of_others > 0 {
            tracing::info!(tasks = self.of_others, named = NAMED_MAX, "took back the tasks of further lost workers");
        }
        if self.ended > 0 {
            tracing::debug!(tasks = self.ended, "ended tasks whose time was over");
        }
    }
}
