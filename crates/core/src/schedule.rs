//! When a schedule is due: cron expressions and intervals in a time zone, without state and without a clock.
//!
//! The API parses and previews with it, and [`plan`] decides by it which instants fire. [`Timing::next_after`] is total:
//! for every instant it gives a later one or none, in bounded time, whatever the zone does to its clocks.

mod civil;
mod cron;
mod interval;
mod jitter;
pub mod plan;
mod timing;
mod zone;

#[cfg(test)]
mod tests;

pub use cron::{Cron, CronError};
pub use interval::{Interval, IntervalError};
pub use jitter::jitter_millis;
pub use timing::{DstFold, DstGap, Pattern, Rules, Timing};
pub use zone::{Zone, ZoneError, database_release};
