//! When a schedule is due: cron expressions and intervals in a time zone, without state and without
//! a clock.
//!
//! The API parses and previews with it, and [`schedules::plan`](crate::schedules::plan) decides by
//! it which instants fire. Invariant: [`Timing::next_after`] is total. For every instant it returns
//! a later one or none, in bounded time, whatever the zone does to its clocks.

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
pub use timing::{DstFold, DstGap, Pattern, Timing, TimingRules};
pub use zone::{Zone, ZoneError, database_release};
