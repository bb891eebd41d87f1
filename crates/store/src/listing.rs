//! Which tasks a filter matches. The listings of both stores check every row with this.

use punctual_core::lane::LaneKey;
use punctual_core::state::State;
use punctual_core::store::Filter;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;

/// The tables that a listing reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedTables {
    /// The live tasks.
    pub live: bool,
    /// The history.
    pub finished: bool,
    /// Only the dead letters of the history.
    pub only_dead: bool,
}

impl ListedTables {
    /// The tables that hold the states of a filter.
    pub(crate) fn of(filter: &Filter) -> Self {
        let states = &filter.states;
        let wants = |is_final: bool| states.is_empty() || states.iter().any(|state| state.is_final() == is_final);
        let only_dead = !states.is_empty() && states.iter().all(|state| *state == State::DeadLettered);
        Self { live: wants(false), finished: wants(true), only_dead }
    }
}

/// Whether a row can match, judging by its narrow columns.
pub(crate) fn row_fits(filter: &Filter, state: i64, execute_at: Timestamp) -> bool {
    filter.execute_after.is_none_or(|after| execute_at >= after)
        && filter.execute_before.is_none_or(|before| execute_at < before)
        && (filter.states.is_empty() || filter.states.iter().any(|wanted| i64::from(wanted.code()) == state))
}

/// Whether a row can match, judging by its lane.
pub(crate) fn lane_fits(filter: &Filter, lane: &LaneKey) -> bool {
    lane.tenant == filter.tenant
        && filter.kind.as_ref().is_none_or(|kind| lane.kind == *kind)
        && filter.queue.as_ref().is_none_or(|queue| lane.queue == *queue)
        && filter.priority_min.is_none_or(|least| lane.priority >= least)
}

/// Whether a task matches, judging by its body.
pub(crate) fn body_fits(filter: &Filter, task: &Task) -> bool {
    filter.created_after.is_none_or(|after| task.created_at >= after)
        && filter.created_before.is_none_or(|before| task.created_at < before)
        && filter.schedule_id.is_none_or(|schedule| task.body.schedule_id == Some(schedule))
        && filter.metadata.iter().all(|(key, value)| task.body.metadata.get(key) == Some(value))
}
