//! Where a listing finds the tasks that a filter matches. The listings of both stores use it.
//!
//! A listing walks over the tasks of all tenants, in its order. That is quick while most tasks
//! match. If the first rows do not fill the page, it tries to gather: to read all tasks of the
//! lanes that the filter allows, by lane. Few of those are sorted and make the page, whatever the
//! others have. If they are many, the walk goes on: it finds many in reasonable time, too.

use punctual_core::name_pattern::NamePattern;
use punctual_core::state::State;
use punctual_core::store::Filter;
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

/// How many rows a listing walks over before it tries to gather.
pub(crate) fn first_walk(limit: usize) -> usize {
    limit.saturating_add(1).clamp(64, 2_000)
}

/// The maximum number of rows that are gathered, and of lanes that they are gathered from. Reading
/// them takes some ten milliseconds.
pub(crate) const GATHERED_ROWS: usize = 10_000;
pub(crate) const GATHERED_LANES: usize = 1_000;

/// The live rows of a lane that are gathered. Each part has an index of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatheredParts {
    /// Waiting tasks that have their turn.
    pub claimable: bool,
    /// Blocked tasks, and waiting ones without their turn.
    pub unclaimable: bool,
    /// Queued and running tasks.
    pub held: bool,
}

impl GatheredParts {
    /// The parts that hold the states of a filter.
    pub(crate) fn of(filter: &Filter) -> Self {
        let states = &filter.states;
        let wants = |state: State| states.is_empty() || states.contains(&state);
        Self {
            claimable: wants(State::Pending),
            unclaimable: wants(State::Blocked) || wants(State::Pending),
            held: wants(State::Queued) || wants(State::Running),
        }
    }
}

/// The first and the last queue that a filter allows, by name.
pub(crate) fn queue_range(filter: &Filter) -> (String, String) {
    filter.queue.as_ref().map_or_else(|| (String::new(), "\u{10ffff}".to_owned()), NamePattern::range)
}

/// The only type that a filter allows; none if there may be several.
pub(crate) fn only_kind(filter: &Filter) -> Option<&str> {
    filter.kind.as_ref().and_then(NamePattern::exact)
}

/// Whether a row can match, judging by its narrow columns.
pub(crate) fn row_fits(filter: &Filter, state: i64, execute_at: Timestamp) -> bool {
    filter.allows_time(execute_at)
        && (filter.states.is_empty() || filter.states.iter().any(|wanted| i64::from(wanted.code()) == state))
}
