//! When a schedule is due: cron expressions and intervals in a time zone. Pure.
//!
//! The API uses it to parse and preview, and [`schedules::plan`](crate::schedules::plan) to find
//! the instants that are due. Invariant: [`Timing::next_after`] is total. For every instant it
//! returns a later one or none, in bounded time, whatever the zone does to its clocks.

mod count;
mod expression;
mod interval;
mod jitter;
mod timing;
mod zone;

#[cfg(test)]
mod tests;

pub use expression::{CronError, CronExpression};
pub use interval::{Interval, IntervalError};
pub use jitter::jitter_millis;
pub use timing::{DayOverflow, DstFold, DstGap, Pattern, Timing, TimingRules};
pub use zone::{Zone, ZoneError, database_release};
