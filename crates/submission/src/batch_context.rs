//! Which tasks a submitted task may name in `depends_on`.
//!
//! Any task by its id, and inside a batch the batch's other tasks by position. Used by the check of
//! `depends_on`, once for each task.

use std::cell::Cell;

use punctual_client::Dependency;
use punctual_core::ids::TaskId;
use punctual_core::task::limits;

/// The batch that a task is submitted in, if there is one.
pub struct BatchContext<'a>(Option<BatchPosition<'a>>);

struct BatchPosition<'a> {
    ids: &'a [TaskId],
    own: usize,
    /// How many more dependencies the tasks of the batch may have in total.
    budget: &'a Cell<usize>,
}

impl<'a> BatchContext<'a> {
    /// The task is submitted by itself.
    pub const fn none() -> Self {
        Self(None)
    }

    /// The task is at position `own` of a batch whose tasks have these ids. All tasks of the batch
    /// share `budget`, the number of dependencies that they may have in total.
    pub const fn batch(ids: &'a [TaskId], own: usize, budget: &'a Cell<usize>) -> Self {
        Self(Some(BatchPosition { ids, own, budget }))
    }

    /// The id of the task itself.
    pub fn own_id(&self) -> TaskId {
        self.0.as_ref().and_then(|batch| batch.ids.get(batch.own).copied()).unwrap_or_default()
    }

    /// The id of the task that `dependency` names, or what is wrong with the name.
    pub fn find(&self, dependency: &Dependency) -> Result<TaskId, String> {
        let position = match dependency {
            Dependency::Id(text) => return text.parse().map_err(|_| "must be the id of a task".to_owned()),
            Dependency::Member(position) => *position,
        };
        let Some(batch) = &self.0 else {
            return Err("must be the id of a task; only a batch has positions".to_owned());
        };
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        match batch.ids.get(position) {
            // Its own id too: that is a cycle of one, which is refused with the other cycles.
            Some(id) => Ok(*id),
            None => Err(format!(
                "must be the position of another task of the batch, from 0 to {}",
                batch.ids.len().saturating_sub(1)
            )),
        }
    }

    /// Takes the task's dependencies out of the batch's budget.
    pub fn count(&self, dependencies: usize) -> Result<(), String> {
        let Some(batch) = &self.0 else { return Ok(()) };
        let Some(left) = batch.budget.get().checked_sub(dependencies) else {
            let max = limits::BATCH_DEPENDENCIES;
            return Err(format!("must be shorter: the tasks of one batch may have at most {max} dependencies in all"));
        };
        batch.budget.set(left);
        Ok(())
    }
}
