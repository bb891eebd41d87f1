//! Submitted tasks that depend on tasks which their submitter does not reach.
//!
//! To a caller that reaches only some queues or types the others' tasks do not exist: a task that
//! depended on one would get its result. Called by the routes that submit, for such callers only.

use std::collections::HashSet;

use punctual_core::ids::TaskId;
use punctual_core::task::NewTask;

use crate::extract::Caller;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// The tasks that are read at once: each may have a large payload.
const READ_AT_ONCE: usize = 20;

/// Refuses the tasks that depend on hidden ones, as if those did not exist.
pub async fn refuse_hidden_dependencies(
    api: &Api,
    caller: &Caller,
    checked: &mut [Result<NewTask, Problem>],
) -> Result<(), Problem> {
    if caller.reaches_all() {
        return Ok(());
    }
    let tasks = || checked.iter().flatten();
    let own: HashSet<TaskId> = tasks().map(|task| task.id).collect();
    let named = tasks().flat_map(|task| &task.body.dependencies.ids).filter(|id| !own.contains(id));
    let named: Vec<TaskId> = named.copied().collect::<HashSet<_>>().into_iter().collect();
    let mut hidden = HashSet::new();
    for ids in named.chunks(READ_AT_ONCE) {
        let found = api.store.get(&caller.tenant, ids.to_vec()).await?;
        hidden.extend(found.into_iter().flatten().filter(|task| !caller.reaches(task)).map(|task| task.id));
    }
    for one in checked {
        let names = one.as_ref().ok().and_then(|task| task.body.dependencies.ids.iter().find(|id| hidden.contains(id)));
        if let Some(id) = names.copied() {
            let detail = format!("depends_on names {id}, and there is no such task; nothing was stored");
            *one = Err(Problem::new(Code::UnknownDependency, detail));
        }
    }
    Ok(())
}
