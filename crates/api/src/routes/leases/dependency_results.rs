//! The results of the tasks that leased tasks depend on, which are handed out with the leases.
//!
//! Bounded for a call: what does not fit is left out, and the worker reads it by its id. A store
//! that does not answer costs the results, never the leases.

use std::collections::HashMap;

use punctual_client::DependencyResult;
use punctual_core::ids::TaskId;
use punctual_core::task::Task;

use crate::state::Api;

/// The maximum number of dependencies of a task whose results are handed out.
const DEPENDENCIES_MAX: usize = 100;
/// The maximum bytes of results in the answer to one call.
const RESULT_BYTES_MAX: usize = 1024 * 1024;
/// How many tasks are read at once: they come with their payloads.
const READ_TASKS: usize = 16;

/// The results for each leased task, in order; none where they are left out.
pub(super) async fn of(api: &Api, tenant: &str, tasks: &[Task]) -> Vec<Option<Vec<DependencyResult>>> {
    let mut known: HashMap<TaskId, DependencyResult> = HashMap::new();
    let mut room = RESULT_BYTES_MAX;
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        let ids = &task.body.dependencies.ids;
        let fits = ids.len() <= DEPENDENCIES_MAX && read(api, tenant, ids, &mut known, &mut room).await;
        results.push(fits.then(|| ids.iter().filter_map(|id| known.get(id).cloned()).collect()));
    }
    results
}

/// Reads the results that are not known yet. False if there is no room for them, or no answer.
async fn read(
    api: &Api,
    tenant: &str,
    ids: &[TaskId],
    known: &mut HashMap<TaskId, DependencyResult>,
    room: &mut usize,
) -> bool {
    let missing: Vec<TaskId> = ids.iter().copied().filter(|id| !known.contains_key(id)).collect();
    for some in missing.chunks(READ_TASKS) {
        let found = match api.store.get(tenant, some.to_vec()).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(error = %error, "cannot read the results of dependencies; leasing without them");
                return false;
            }
        };
        for (id, task) in some.iter().zip(found) {
            let (status, result) = task.map_or((None, None), |task| (Some(task.state().into()), task.result));
            let bytes = result.as_ref().map_or(0, |result| result.get().len());
            let Some(left) = room.checked_sub(bytes) else { return false };
            *room = left;
            known.insert(*id, DependencyResult { task_id: *id, status, result });
        }
    }
    true
}

/// The bytes of results in an answer, roughly.
pub(super) fn bytes(results: &[Option<Vec<DependencyResult>>]) -> usize {
    let each = |result: &DependencyResult| 128 + result.result.as_ref().map_or(0, |result| result.get().len());
    results.iter().flatten().flatten().map(each).sum()
}
