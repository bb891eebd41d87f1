//! What becomes of a task that finished because of a parent, once that parent was re-driven with
//! its dependents. Pure; the resolvers of both stores call it.

use std::collections::HashMap;

use punctual_core::ids::TaskId;
use punctual_core::state::{By, Change, Event, Position, State};
use punctual_core::task::{Dependencies, OnDependencyFailure};
use punctual_core::time::Timestamp;

use crate::claims::expect_change;
use crate::columns::Unreadable;
use crate::dependencies::{self, Prerequisites, is_waited_for};
use crate::task_row::{TaskColumn, TaskRow, count, id, instant, number};

/// A finished task that may be revived.
#[derive(Clone, Debug)]
pub(crate) struct RevivedChild {
    pub id: TaskId,
    position: Position,
    due_at: Timestamp,
    pub dependencies: Dependencies,
}

impl RevivedChild {
    /// Reads the first eight columns of the statement that finds it.
    pub(crate) fn read(row: &impl TaskRow) -> Result<Self, Unreadable> {
        const DEPENDS_ON: TaskColumn = TaskColumn(6, "depends_on");
        let state = row.integer(TaskColumn(1, "state"))?.and_then(State::from_code);
        Ok(Self {
            id: id(row, TaskColumn(0, "id"))?,
            position: Position {
                state: state.ok_or(Unreadable("state"))?,
                version: number(row, TaskColumn(2, "version"))?,
                attempts: count(row, TaskColumn(3, "attempts"))?,
                crashes: count(row, TaskColumn(4, "crashes"))?,
                cancel_requested: false,
            },
            due_at: instant(row, TaskColumn(5, "due_at"))?,
            dependencies: Dependencies {
                ids: dependencies::ids(row.bytes(DEPENDS_ON)?).ok_or(Unreadable("depends_on"))?,
                on_failure: dependencies::policy(row.text(TaskColumn(7, "on_dependency_failure"))?)
                    .unwrap_or(OnDependencyFailure::Cancel),
            },
        })
    }

    /// The change that revives it, and what it waits for then. None if one of its parents was
    /// removed: nobody knows any more whether that one completed.
    pub(crate) fn decide(&self, parents: &HashMap<TaskId, State>, by: &By<'_>) -> Option<(Change, Prerequisites)> {
        let mut waits = Prerequisites { depends_on: self.dependencies.ids.clone(), ..Prerequisites::default() };
        for id in &self.dependencies.ids {
            let state = *parents.get(id)?;
            if is_waited_for(state, self.dependencies.on_failure) {
                waits.edges.push(*id);
                waits.ended.extend(state.is_final().then_some((*id, state)));
            }
        }
        let due_at = waits.edges.is_empty().then(|| self.due_at.max(by.now));
        Some((expect_change(&self.position, Event::Revive(due_at), by), waits))
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::ids::NodeId;
    use punctual_core::trail::Actor;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_779_472_800_000);

    /// The state of the child, and how many of its parents it waits for and have finished.
    fn decide(states: &[Option<State>]) -> Option<(State, usize, usize)> {
        let ids: Vec<TaskId> = states.iter().map(|_| TaskId::new()).collect();
        let parents = ids.iter().zip(states).filter_map(|(id, state)| Some((*id, (*state)?))).collect();
        let position = Position { state: State::Failed, version: 2, attempts: 0, crashes: 0, cancel_requested: false };
        let dependencies = Dependencies { ids, on_failure: OnDependencyFailure::Fail };
        let child = RevivedChild { id: TaskId::new(), position, due_at: NOW.plus_millis(-5), dependencies };
        let by = By { now: NOW, node: NodeId::new(1), actor: Actor::Resolver };
        child.decide(&parents, &by).map(|(change, waits)| (change.to, waits.edges.len(), waits.ended.len()))
    }

    #[test]
    fn a_child_waits_for_the_parents_that_have_not_completed() {
        use State::{Blocked, Cancelled, Completed, Pending};
        assert_eq!(decide(&[Some(Pending), Some(Completed)]), Some((Blocked, 1, 0)));
        assert_eq!(decide(&[Some(Pending), Some(Cancelled)]), Some((Blocked, 2, 1)));
        assert_eq!(decide(&[Some(Completed)]), Some((Pending, 0, 0)));
    }

    #[test]
    fn a_child_of_a_removed_parent_stays() {
        assert_eq!(decide(&[Some(State::Pending), None]), None);
    }
}
