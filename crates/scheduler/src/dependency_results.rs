//! The results of the tasks that others depend on, which are handed out when those run.
//!
//! The API calls [`in_one_answer`] for leases, the worker [`of_the_first`] for webhooks. Bounded:
//! what does not fit is left out, and the worker or target reads it by its id. Invariant: one read
//! serves many tasks, and tasks without dependencies cause none.

use std::collections::{HashMap, HashSet};

use punctual_client::DependencyResult;
use punctual_core::ids::TaskId;
use punctual_core::store::{Store, StoreError, TaskResult};
use punctual_core::task::Task;

/// The maximum number of dependencies of a task whose results are handed out.
const DEPENDENCIES_MAX: usize = 100;
/// The maximum bytes of results in one answer to a pull worker, or in one request to a webhook.
const BYTES_MAX: usize = 1024 * 1024;
/// The maximum bytes of results in one read for webhooks.
const READ_BYTES: usize = 4 * BYTES_MAX;
/// Roughly the bytes of a result that is empty, as it is handed out.
const EMPTY_BYTES: usize = 128;

/// The results of all dependencies of one task, in their order; none if they are left out.
pub type Results = Option<Vec<DependencyResult>>;

/// The results for each of the tasks of one answer. A result that two of them share is in the
/// answer twice, and counts twice.
pub async fn in_one_answer(store: &dyn Store, tasks: &[Task]) -> Result<Vec<Results>, StoreError> {
    let mut entries = BYTES_MAX / EMPTY_BYTES;
    let may_have = |task: &Task| {
        let wanted = task.body.dependencies.ids.len();
        let fits = wanted <= DEPENDENCIES_MAX.min(entries);
        entries -= if fits { wanted } else { 0 };
        fits
    };
    let may_have: Vec<bool> = tasks.iter().map(may_have).collect();
    let wanted = tasks.iter().zip(&may_have).filter_map(|(task, may)| may.then_some(task));
    let known = Known::read(store, wanted, BYTES_MAX).await?;
    let mut room = BYTES_MAX;
    let of = |(task, may): (&Task, bool)| {
        let results = known.of(task).filter(|_| may)?;
        room = room.checked_sub(bytes(&results))?;
        Some(results)
    };
    Ok(tasks.iter().zip(may_have).map(of).collect())
}

/// The results for the first of these tasks, as many as one read has room for, and at least for
/// one. Each task has a request of its own, so what one gets does not depend on the others.
pub async fn of_the_first(store: &dyn Store, tasks: &[&Task]) -> Result<Vec<Results>, StoreError> {
    let may_have = |task: &Task| task.body.dependencies.ids.len() <= DEPENDENCIES_MAX;
    let known = Known::read(store, tasks.iter().copied().filter(|task| may_have(task)), READ_BYTES).await?;
    let mut first: Vec<Results> = Vec::with_capacity(tasks.len());
    for task in tasks {
        match known.of(task) {
            _ if !may_have(task) => first.push(None),
            Some(results) => first.push(Some(results).filter(|results| bytes(results) <= BYTES_MAX)),
            // Its own results are more than one read has room for.
            None if first.is_empty() => first.push(None),
            None => break,
        }
    }
    Ok(first)
}

/// The bytes of results as they are handed out, roughly.
pub fn bytes(results: &[DependencyResult]) -> usize {
    let each = |result: &DependencyResult| EMPTY_BYTES + result.result.as_ref().map_or(0, |result| result.get().len());
    results.iter().map(each).sum()
}

/// What one read has found.
struct Known(HashMap<TaskId, Option<TaskResult>>);

impl Known {
    /// Reads what the tasks depend on, up to the first result for which there is no room.
    async fn read<'a>(
        store: &dyn Store,
        tasks: impl Iterator<Item = &'a Task>,
        max_bytes: usize,
    ) -> Result<Self, StoreError> {
        let mut seen = HashSet::new();
        let ids = tasks.flat_map(|task| &task.body.dependencies.ids).copied();
        let ids: Vec<TaskId> = ids.filter(|id| seen.insert(*id)).collect();
        if ids.is_empty() {
            return Ok(Self(HashMap::new()));
        }
        let found = store.results(ids.clone(), max_bytes).await?;
        Ok(Self(ids.into_iter().zip(found).collect()))
    }

    /// The results of all dependencies of a task; none if one of them was not read.
    fn of(&self, task: &Task) -> Results {
        let one = |id: &TaskId| {
            let found = self.0.get(id)?.as_ref();
            let status = found.map(|found| found.state.into());
            Some(DependencyResult { task_id: *id, status, result: found.and_then(|found| found.result.clone()) })
        };
        task.body.dependencies.ids.iter().map(one).collect()
    }
}
