//! How many steps a search takes: stretches that are looked up and times that are looked for, so
//! that its length is bounded on a machine of any speed.

use std::cell::Cell;

/// What a search takes that finds something within the year, or jumps over years in which there is
/// nothing.
pub(super) const FEW: u32 = 24;

/// What no search exceeds, whatever the expression, the zone and the year: the longest is that for
/// an expression which falls into a gap in every year. A step is a fifth of a microsecond or so.
pub(super) const MOST: u32 = 240;

thread_local! {
    static STEPS: Cell<u32> = const { Cell::new(0) };
}

/// A step is taken.
pub(in crate::cron) fn take() {
    STEPS.set(STEPS.get() + 1);
}

/// What a search finds, and how many steps it took.
pub(super) fn of<T>(search: impl FnOnce() -> T) -> (T, u32) {
    STEPS.set(0);
    let found = search();
    (found, STEPS.get())
}
