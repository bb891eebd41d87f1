//! What the end of a parent does to a child that waits for it. Pure; the resolvers of both stores
//! call it.

use punctual_core::ids::TaskId;
use punctual_core::queues::{OnDeadLetter, Settings};
use punctual_core::state::{By, Change, Event, Position, State};
use punctual_core::task::OnDependencyFailure;
use punctual_core::time::Timestamp;

use crate::claims::expect_change;
use crate::columns::Unreadable;
use crate::dependencies;
use crate::task_row::{TaskColumn, TaskRow, count, id, instant, number};

/// A task that waits for its parents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockedChild {
    pub id: TaskId,
    position: Position,
    due_at: Timestamp,
    blockers: i64,
    on_failure: OnDependencyFailure,
}

/// How a parent finished, and its id for the trails of its children, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParentEnd {
    pub id: Option<TaskId>,
    pub state: State,
}

/// How a task finished that was a dead letter once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeadLetterEnd {
    /// It still is one, and its queue holds the tasks behind it.
    pub holds: bool,
    pub state: State,
}

impl DeadLetterEnd {
    /// A finished task in a queue with these settings. Unreadable settings hold, because that can
    /// be undone: once they are set again, the next review releases the waiting tasks.
    pub(crate) fn of(state: Option<State>, settings: Option<&str>) -> Self {
        let holds = |settings: &str| {
            serde_json::from_str(settings)
                .map_or(true, |settings: Settings| settings.on_dead_letter == OnDeadLetter::Hold)
        };
        let is_letter = state == Some(State::DeadLettered);
        Self { holds: is_letter && settings.is_some_and(holds), state: ended_as(state) }
    }
}

/// What becomes of a child.
#[derive(Debug)]
pub(crate) enum ChildStep {
    /// It finishes: a parent failed it.
    Finish(Change),
    /// It waits for no parent any more.
    Unblock(Change),
    /// It waits for so many parents.
    Wait(i64),
}

impl BlockedChild {
    /// Reads the first seven columns of the statement that finds it. An unreadable policy counts as
    /// the usual one.
    pub(crate) fn read(row: &impl TaskRow) -> Result<Self, Unreadable> {
        Ok(Self {
            id: id(row, TaskColumn(0, "id"))?,
            position: Position {
                state: State::Blocked,
                version: number(row, TaskColumn(1, "version"))?,
                attempts: count(row, TaskColumn(2, "attempts"))?,
                crashes: count(row, TaskColumn(3, "crashes"))?,
                cancel_requested: false,
            },
            due_at: instant(row, TaskColumn(4, "due_at"))?,
            blockers: row.integer(TaskColumn(5, "blockers"))?.unwrap_or_default(),
            on_failure: dependencies::policy(row.text(TaskColumn(6, "on_dependency_failure"))?).unwrap_or_default(),
        })
    }

    /// Decides after `gone` of its parents have finished. `end` is the end of the first parent that
    /// did not complete, or of any parent if all did.
    pub(crate) fn decide(&self, gone: i64, end: ParentEnd, by: &By<'_>) -> ChildStep {
        let left = self.blockers.saturating_sub(gone);
        if end.state != State::Completed && self.on_failure != OnDependencyFailure::Run {
            let parent = end.id.map(|id| (id, end.state));
            let fail = self.on_failure == OnDependencyFailure::Fail;
            ChildStep::Finish(expect_change(&self.position, Event::DependencyFailed { fail, parent }, by))
        } else if left > 0 {
            ChildStep::Wait(left)
        } else {
            ChildStep::Unblock(expect_change(&self.position, Event::Unblock(self.due_at.max(by.now)), by))
        }
    }
}

/// The state in which a task finished; an unreadable one counts as failed.
pub(crate) fn ended_as(state: Option<State>) -> State {
    state.unwrap_or(State::Failed)
}

#[cfg(test)]
mod tests {
    use punctual_core::ids::NodeId;
    use punctual_core::trail::Actor;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_779_472_800_000);

    fn decide(on_failure: OnDependencyFailure, blockers: i64, state: State) -> ChildStep {
        let position = Position { state: State::Blocked, version: 1, attempts: 0, crashes: 0, cancel_requested: false };
        let child = BlockedChild { id: TaskId::new(), position, due_at: NOW.plus_millis(-5), blockers, on_failure };
        child.decide(1, ParentEnd { id: None, state }, &By { now: NOW, node: NodeId::new(1), actor: Actor::Resolver })
    }

    #[test]
    fn the_last_completed_parent_unblocks_a_child() {
        let step = decide(OnDependencyFailure::Cancel, 1, State::Completed);
        assert!(matches!(step, ChildStep::Unblock(change) if change.due_at == Some(NOW)));
        assert!(matches!(decide(OnDependencyFailure::Cancel, 3, State::Completed), ChildStep::Wait(2)));
    }

    #[test]
    fn a_failed_parent_finishes_a_child_unless_it_runs_anyway() {
        for (on_failure, end) in
            [(OnDependencyFailure::Cancel, State::Cancelled), (OnDependencyFailure::Fail, State::Failed)]
        {
            let step = decide(on_failure, 3, State::DeadLettered);
            assert!(matches!(step, ChildStep::Finish(change) if change.to == end), "{on_failure:?}");
        }
        assert!(matches!(decide(OnDependencyFailure::Run, 1, State::Failed), ChildStep::Unblock(_)));
    }
}
