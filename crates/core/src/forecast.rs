//! The port through which it is told what will be due in which minute: waiting tasks, as they are
//! counted in the transactions that write them, and the schedules that will fire ([`instants()`]).
//! `GET /v1/forecast` asks it.
//!
//! The rule is symmetric. A task that begins to wait (`PENDING`) for an instant in a later minute
//! than the one that lasts adds one to the minute of that instant; one that ceases to wait, while
//! that minute is still later than the one that lasts, takes one away. Time only goes on, so that
//! whatever is taken away was added. What is due within the minute never touches a count, and
//! neither does a claim, which takes only what is due.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::forecast`.
//!
//! - `a_waiting_task_counts_in_the_minute_it_is_due`: however it was submitted, alone or among
//!   many.
//! - `tasks_due_within_this_minute_are_not_counted`: to the millisecond.
//! - `tasks_that_no_longer_wait_are_not_counted`: cancelled, failed or taken out of the way.
//! - `an_edit_moves_a_task_to_its_new_minute`: earlier, later, or to now; an edit of something else
//!   moves nothing.
//! - `a_retry_counts_where_it_is_due`: and so does what is given back for later.
//! - `a_blocked_task_counts_from_its_release_on`: by the instant at which it is due then.
//! - `a_task_without_its_turn_counts_by_its_due_instant`: whoever is before it.
//! - `a_dead_letter_counts_again_when_it_waits_again`: it is due at once when it is driven, and
//!   later when it is retried.
//! - `a_replayed_task_is_counted_once`: its second submission waits for nothing.
//! - `tenants_are_counted_apart`: and a range is of its minutes, the first included and the last
//!   not.
//! - `counts_outlive_the_process`: they are as durable as the tasks.
//! - `schedules_that_will_fire_are_listed_page_by_page`: by name, those that are not paused and have
//!   a next instant, with how many of their runs wait; what a backfill put there is none of those.

mod instants;

use crate::time::Timestamp;

pub use instants::{Instants, UpcomingSchedule, Window, instants};

/// How long a minute is.
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

    /// The one so many minutes later.
    #[must_use]
    pub const fn plus(self, minutes: i64) -> Self {
        Self(self.0.saturating_add(minutes))
    }
}

/// Some schedules that will fire.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpcomingPage {
    /// Those that can be read; one that cannot stops no other.
    pub schedules: Vec<UpcomingSchedule>,
    /// The name behind which the next page begins; none at the end.
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_its_first_instant_and_not_the_next_ones() {
        let minute = Minute::of(Timestamp::from_millis(1_779_472_859_999));
        assert_eq!(minute, Minute::of(Timestamp::from_millis(1_779_472_800_000)));
        assert_eq!(minute.begins(), Timestamp::from_millis(1_779_472_800_000));
        assert_eq!(Minute::of(Timestamp::from_millis(1_779_472_860_000)), minute.plus(1));
        assert_eq!(Minute::numbered(minute.number()), minute);
        assert_eq!(Minute::of(Timestamp::from_millis(-1)), Minute::numbered(-1));
    }
}
