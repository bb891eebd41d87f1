//! How many instants a schedule has in a time, however many they are.
//!
//! Called by [`schedules::plan`](crate::schedules::plan) for records that stand for many instants,
//! and by the API's preview. It takes a step for every change of the clocks and every month, and
//! none for an instant. Invariant: it counts what [`Timing::iter_between`] lists.

use super::timing::{FIRST, LAST};
use super::zone::Stretch;
use super::{CronExpression, DstFold, Pattern, Timing};
use crate::time::Timestamp;

impl Timing {
    /// How many instants there are from `from` to `to`, both included.
    pub fn count_between(&self, from: Timestamp, to: Timestamp) -> u64 {
        let starts_at = self.rules.starts_at.map_or(FIRST * 1_000, Timestamp::as_millis);
        let ends_at = self.rules.ends_at.map_or(LAST * 1_000, Timestamp::as_millis);
        let from = from.as_millis().max(starts_at).max(FIRST * 1_000);
        let to = to.as_millis().min(ends_at).min(LAST * 1_000);
        if to < from {
            return 0;
        }
        match &self.pattern {
            Pattern::Interval(interval) => interval.count_between(from, to),
            Pattern::Cron(cron) => self.count_seconds(cron, -(-from).div_euclid(1_000), to.div_euclid(1_000) + 1),
        }
    }

    /// How many seconds from `first` to before `end` fire.
    fn count_seconds(&self, cron: &CronExpression, first: i64, end: i64) -> u64 {
        let (mut count, mut at) = (0, first);
        while at < end {
            let stretch = self.rules.zone.stretch_at(at);
            let until = end.min(stretch.until);
            count += cron.count_local(self.rules.day_overflow, at + stretch.ahead, until + stretch.ahead);
            count -= self.count_rejected(cron, &stretch, at, until);
            if stretch.from == at
                && self.falls_into_gap_before(cron, &stretch)
                && self.first_within(cron, &stretch, stretch.local_from()).0 != Some(at)
            {
                count += 1;
            }
            at = until;
        }
        count
    }

    /// How many matching seconds of a stretch, from `first` to before `end`, do not fire because
    /// another stretch shows the same local second and fires instead.
    fn count_rejected(&self, cron: &CronExpression, stretch: &Stretch, first: i64, end: i64) -> u64 {
        let mut shown: Vec<(i64, i64)> = match self.rules.dst_fold {
            DstFold::Both => return 0,
            DstFold::First => self.earlier(stretch, first).map(|other| other.locals()).collect(),
            DstFold::Last => self.later(stretch, end - 1).map(|other| other.locals()).collect(),
        };
        shown.sort_unstable();
        let (mut count, mut reached) = (0, first + stretch.ahead);
        for (from, until) in shown {
            let (from, until) = (from.max(reached), until.min(end + stretch.ahead));
            count += cron.count_written(self.rules.day_overflow, from, until);
            reached = reached.max(until);
        }
        count
    }
}
