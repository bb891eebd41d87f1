//! Whom a task may name as what it depends on: any task by its id, and in a batch its other tasks by their places.

use std::cell::Cell;

use punctual_client::Dependency;
use punctual_core::ids::TaskId;
use punctual_core::task::limits;

/// The tasks that a task is submitted with.
pub struct Among<'a>(Option<Batch<'a>>);

struct Batch<'a> {
    ids: &'a [TaskId],
    own: usize,
    /// How much its tasks may still depend on.
    budget: &'a Cell<usize>,
}

impl<'a> Among<'a> {
    /// It is submitted by itself.
    pub const fn nobody() -> Self {
        Self(None)
    }

    /// It stands at `own` in a batch whose tasks have these ids; `budget` is what they may depend on in all.
    pub const fn batch(ids: &'a [TaskId], own: usize, budget: &'a Cell<usize>) -> Self {
        Self(Some(Batch { ids, own, budget }))
    }

    /// The id of the task itself.
    pub fn own_id(&self) -> TaskId {
        self.0.as_ref().and_then(|batch| batch.ids.get(batch.own).copied()).unwrap_or_default()
    }

    /// The id of a task that it depends on.
    pub fn find(&self, dependency: &Dependency) -> Result<TaskId, String> {
        let place = match dependency {
            Dependency::Id(text) => return text.parse().map_err(|_| "must be the id of a task".to_owned()),
            Dependency::Member(place) => *place,
        };
        let Some(batch) = &self.0 else {
            return Err("must be the id of a task; a place can be named in a batch only".to_owned());
        };
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        match batch.ids.get(place) {
            // Its own as well: a circle of one, which is refused with the others.
            Some(id) => Ok(*id),
            None => Err(format!(
                "must be the place of another task of the batch, from 0 to {}",
                batch.ids.len().saturating_sub(1)
            )),
        }
    }

    /// Takes note that it depends on so many tasks.
    pub fn count(&self, dependencies: usize) -> Result<(), String> {
        let Some(batch) = &self.0 else { return Ok(()) };
        let Some(left) = batch.budget.get().checked_sub(dependencies) else {
            let most = limits::BATCH_DEPENDENCIES;
            return Err(format!("must be shorter: the tasks of one batch may depend on {most} others in all"));
        };
        batch.budget.set(left);
        Ok(())
    }
}
