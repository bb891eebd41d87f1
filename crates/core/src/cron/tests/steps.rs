//! Counts the steps of a search (stretches and local times that it looks up), so that tests can
//! bound its length on a machine of any speed.

use std::cell::Cell;

/// The maximum for a search that finds something within a year, or jumps over years without a
/// match.
pub(super) const FEW: u32 = 24;

/// The maximum for any expression, zone and year. The longest search is for an expression that is
/// in a gap every year. A step takes about a fifth of a microsecond.
pub(super) const MOST: u32 = 240;

thread_local! {
    static STEPS: Cell<u32> = const { Cell::new(0) };
}

/// Counts a step.
pub(in crate::cron) fn take() {
    STEPS.set(STEPS.get() + 1);
}

/// The result of a search, and how many steps it took.
pub(super) fn of<T>(search: impl FnOnce() -> T) -> (T, u32) {
    STEPS.set(0);
    let found = search();
    (found, STEPS.get())
}
