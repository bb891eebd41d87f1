//! How a transaction changes the counts of live tasks, by lane and state.
//!
//! The writers of both stores keep one in memory while a transaction lasts and write it into
//! `counts` at the end: one row per lane and state that changed, however many tasks moved. So the
//! counts are as durable and as exact as the tasks, and reading them is cheap.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use punctual_core::state::State;
use punctual_core::time::Timestamp;

use crate::effects::{CountedRow, Effects};
use crate::forecast_tally::ForecastTally;

/// How many tasks came and went, by lane and state.
type LaneCounts = HashMap<(i64, u8), i64, BuildHasherDefault<PlaceHasher>>;

/// The changes of a transaction (see the module).
#[derive(Default)]
pub(crate) struct TransactionTally {
    /// The changes of finished jobs.
    group: LaneCounts,
    /// The changes of the current job.
    job: LaneCounts,
    /// The changes of the forecast: tasks due in later minutes.
    pub forecast: ForecastTally,
}

impl TransactionTally {
    /// Records what a write does to the counts and to the forecast. `now` is called only if the
    /// task waits before or afterwards.
    pub(crate) fn record(&mut self, effects: &Effects, now: impl FnOnce() -> Timestamp) {
        for (row, tasks) in effects.count_changes() {
            *self.job.entry((row.at.lane, row.state.code())).or_default() += tasks;
        }
        let Effects { before, after, .. } = effects;
        let left = before.as_ref().and_then(CountedRow::forecast);
        let entered = after.as_ref().and_then(CountedRow::forecast);
        if left.is_none() && entered.is_none() {
            return;
        }
        let now = now();
        for (at, tasks) in [(left, -1), (entered, 1)] {
            if let Some(at) = at {
                self.forecast.add(at.lane, at.due_at, now, tasks);
            }
        }
    }

    /// The current job is done.
    pub(crate) fn keep(&mut self) {
        for (place, tasks) in self.job.drain() {
            *self.group.entry(place).or_default() += tasks;
        }
        self.forecast.keep();
    }

    /// The current job was rolled back.
    pub(crate) fn forget(&mut self) {
        self.job.clear();
        self.forecast.forget();
    }

    /// The transaction was rolled back, or a new one begins.
    pub(crate) fn clear(&mut self) {
        self.job.clear();
        self.group.clear();
        self.forecast.clear();
    }

    /// Takes the changes of the transaction: lane, state and number of tasks. The order is fixed,
    /// so that writers of the same rows do not deadlock. A lane whose changes cancel out has one of
    /// zero tasks: its row shows that the lane was used (`lane_reclaim.rs`).
    pub(crate) fn take(&mut self) -> Vec<(i64, u8, i64)> {
        let mut all: Vec<_> = self.group.drain().map(|((lane, state), tasks)| (lane, state, tasks)).collect();
        all.sort_unstable();
        debug_assert!(self.job.is_empty(), "a job is kept or forgotten before the commit");
        let mut changed = Vec::with_capacity(all.len());
        for of_lane in all.chunk_by(|one, next| one.0 == next.0) {
            let before = changed.len();
            changed.extend(of_lane.iter().filter(|(.., tasks)| *tasks != 0));
            if changed.len() == before {
                changed.extend(of_lane.first());
            }
        }
        changed
    }

    /// Whether the transaction has moved tasks of this lane.
    pub(crate) fn has_moved(&self, lane: i64) -> bool {
        let live = [State::Blocked, State::Pending, State::Queued, State::Running];
        live.iter()
            .map(|state| (lane, state.code()))
            .any(|place| self.group.contains_key(&place) || self.job.contains_key(&place))
    }
}

/// A fast hash of lane and state: two are hashed for every task that moves. Clients do not choose
/// these numbers, so they cannot make them collide.
#[derive(Default)]
struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, state: u8) {
        self.write_i64(i64::from(state));
    }

    fn write_i64(&mut self, lane: i64) {
        // An odd constant with its ones spread evenly; the rotation brings the mixed upper bits
        // down.
        self.0 = (self.0.rotate_left(5) ^ lane.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The lanes in which a transaction released more tasks than it took.
pub(crate) fn freed(changed: impl IntoIterator<Item = (i64, u8, i64)>) -> impl Iterator<Item = i64> {
    let held = [State::Queued.code(), State::Running.code()];
    let mut by_lane: HashMap<i64, i64> = HashMap::new();
    for (lane, _, tasks) in changed.into_iter().filter(|(_, state, _)| held.contains(state)) {
        *by_lane.entry(lane).or_default() += tasks;
    }
    by_lane.into_iter().filter(|(_, tasks)| *tasks < 0).map(|(lane, _)| lane)
}
