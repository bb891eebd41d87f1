//! The weights of the calls that write tasks. The ports of both stores call it.
//!
//! Invariant: a call weighs the same on both stores, so that neither queue admits more than the
//! other within the same bounds.

use punctual_core::ids::TaskId;
use punctual_core::json::Json;
use punctual_core::state::Change;
use punctual_core::store::{Beat, Start};
use punctual_core::task::NewTask;

use crate::write_queue::Weight;

/// Roughly how many bytes a task takes, apart from its texts.
pub(crate) const TASK_BYTES: usize = 512;

/// A dependency is a row of its own.
pub(crate) fn of_insert(tasks: &[NewTask]) -> Weight {
    let bytes = tasks.iter().map(|task| task.body.payload.get().len() + TASK_BYTES).sum();
    let rows = tasks.iter().map(|task| 1 + task.body.dependencies.ids.len()).sum();
    Weight { bytes, rows }
}

/// Starts have no texts.
pub(crate) fn of_starts(starts: &[Start]) -> Weight {
    Weight { bytes: starts.len() * TASK_BYTES, rows: starts.len() }
}

/// Results are the texts of changes.
pub(crate) fn of_changes(changes: &[(TaskId, Change)]) -> Weight {
    let bytes = changes.iter().map(|(_, change)| length(change.result.as_ref()) + TASK_BYTES).sum();
    Weight { bytes, rows: changes.len() }
}

/// Progress and checkpoints are the texts of beats.
pub(crate) fn of_beats(beats: &[Beat]) -> Weight {
    let texts = |beat: &Beat| length(beat.progress.as_ref()) + length(beat.checkpoint.as_ref());
    Weight { bytes: beats.iter().map(|beat| texts(beat) + TASK_BYTES).sum(), rows: beats.len() }
}

fn length(json: Option<&Json>) -> usize {
    json.map_or(0, |json| json.get().len())
}

#[cfg(test)]
mod tests {
    use punctual_testkit::fixtures::task;

    use super::*;

    #[test]
    fn an_insert_weighs_its_tasks_and_their_dependencies() {
        let mut tasks = task().times(2);
        let payloads: usize = tasks.iter().map(|task| task.body.payload.get().len()).sum();
        let alone = of_insert(&tasks);
        assert_eq!(alone, Weight { bytes: payloads + 2 * TASK_BYTES, rows: 2 });
        tasks[1].body.dependencies.ids = vec![TaskId::new(), TaskId::new(), tasks[0].id];
        assert_eq!(of_insert(&tasks), Weight { rows: 5, ..alone });
    }
}
