//! The forecast: how many tasks will be due in each minute.
//!
//! Half of the port [`Insight`](crate::insight::Insight); `GET /v1/forecast` reads it, and so does
//! `GET /v1/upcoming`. Waiting tasks are counted in the transactions that write them. The instants
//! of schedules are computed ([`instants()`]).
//!
//! The rule is symmetric. A task that begins to wait (`PENDING`) for an instant after the current
//! minute adds one to the minute of that instant. A task that stops waiting subtracts one, if that
//! minute is still after the current one. Time only goes forward, so only tasks that were added are
//! subtracted. A task that is due within the current minute never touches a count, and neither does
//! a claim, which takes only due tasks.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::forecast`.
//!
//! - `a_waiting_task_counts_in_the_minute_it_is_due`: whether it was submitted alone or in a batch.
//! - `tasks_due_within_this_minute_are_not_counted`: to the millisecond.
//! - `tasks_that_no_longer_wait_are_not_counted`: cancelled, failed or quarantined.
//! - `an_edit_moves_a_task_to_its_new_minute`: earlier, later, or to now. An edit of another field
//!   moves nothing.
//! - `a_retry_counts_where_it_is_due`: and so does a task that is given back for later.
//! - `a_blocked_task_counts_from_its_release_on`: by its due instant at that time.
//! - `a_task_without_its_turn_counts_by_its_due_instant`: however many tasks are before it.
//! - `a_dead_letter_counts_again_when_it_waits_again`: a re-drive is due at once, and a later retry
//!   counts.
//! - `a_replayed_task_is_counted_once`: its second submission adds nothing.
//! - `tenants_are_counted_apart`: and a range includes its first minute but not its last.
//! - `counts_outlive_the_process`: they are as durable as the tasks.
//! - `schedules_that_will_fire_are_listed_page_by_page`: by name, those that are not paused and
//!   have a next instant before the end, with the names in their task and how many of their runs
//!   wait. Backfills are not among those runs.
//! - `waiting_tasks_are_listed_as_they_come_due`: of all lanes of the tenant, by due instant and
//!   number, strictly behind the last one and before the end.
//! - `tasks_without_their_turn_are_listed_too`: but neither blocked nor held tasks.

mod instants;
mod soonest;

use crate::time::Timestamp;

pub use instants::{Instants, UpcomingSchedule, Window, instants};
pub use soonest::{Soonest, UpcomingKey, UpcomingPosition, UpcomingTask};

/// The length of a minute.
const MILLIS: i64 = 60_000;

/// A minute of UTC, by its number since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minute(i64);

impl Minute {
    /// The minute in which an instant lies.
    pub const fn of(at: Timestamp) -> Self {
        Self(at.as_millis().div_euclid(MILLIS))
    }

    /// The minute with this number.
    pub const fn numbered(number: i64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> i64 {
        self.0
    }

    /// Its first instant.
    pub const fn begins(self) -> Timestamp {
        Timestamp::from_millis(self.0.saturating_mul(MILLIS))
    }

    /// The minute this many minutes later.
    #[must_use]
    pub const fn plus(self, minutes: i64) -> Self {
        Self(self.0.saturating_add(minutes))
    }
}

/// A page of schedules that will fire.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpcomingPage {
    /// The schedules of the page. One that cannot be read is left out.
    pub schedules: Vec<UpcomingSchedule>,
    /// The name after which the next page begins; none at the end.
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_includes_its_start_but_not_its_end() {
        let minute = Minute::of(Timestamp::from_millis(1_779_472_859_999));
        assert_eq!(minute, Minute::of(Timestamp::from_millis(1_779_472_800_000)));
        assert_eq!(minute.begins(), Timestamp::from_millis(1_779_472_800_000));
        assert_eq!(Minute::of(Timestamp::from_millis(1_779_472_860_000)), minute.plus(1));
        assert_eq!(Minute::numbered(minute.number()), minute);
        assert_eq!(Minute::of(Timestamp::from_millis(-1)), Minute::numbered(-1));
    }
}
