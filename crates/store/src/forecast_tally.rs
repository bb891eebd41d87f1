//! How a transaction changes the number of tasks that will be due, by lane and minute.
//!
//! It is part of the [`TransactionTally`](crate::tally::TransactionTally) and written with it. Only
//! minutes after the current one are counted (see `punctual_core::forecast`), so tasks that are
//! due at once cost nothing here.

use std::collections::BTreeMap;

use punctual_core::forecast::Minute;
use punctual_core::time::Timestamp;

/// Tasks added less tasks removed, by lane and minute. A tree, since clients choose the minutes and
/// could make a hash map slow.
type MinuteCounts = BTreeMap<(i64, Minute), i64>;

/// The changes of a transaction (see the module).
#[derive(Default)]
pub(crate) struct ForecastTally {
    /// The changes of finished jobs.
    group: MinuteCounts,
    /// The changes of the current job.
    job: MinuteCounts,
}

impl ForecastTally {
    /// Adds `tasks` of a lane that wait for an instant; a negative number takes them away.
    pub(crate) fn add(&mut self, lane: i64, due_at: Timestamp, now: Timestamp, tasks: i64) {
        let minute = Minute::of(due_at);
        if minute > Minute::of(now) {
            *self.job.entry((lane, minute)).or_default() += tasks;
        }
    }

    /// Keeps the changes of the current job, which is done.
    pub(crate) fn keep(&mut self) {
        for (place, tasks) in std::mem::take(&mut self.job) {
            *self.group.entry(place).or_default() += tasks;
        }
    }

    /// Forgets the changes of the current job, which was rolled back.
    pub(crate) fn forget(&mut self) {
        self.job.clear();
    }

    /// Forgets the changes of the transaction.
    pub(crate) fn clear(&mut self) {
        self.job.clear();
        self.group.clear();
    }

    /// Takes the changes of the transaction: lane, minute and number of tasks.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (i64, Minute, i64)> + use<> {
        let changed = std::mem::take(&mut self.group).into_iter().filter(|(_, tasks)| *tasks != 0);
        changed.map(|((lane, minute), tasks)| (lane, minute, tasks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_779_472_830_000);

    #[test]
    fn only_later_minutes_are_counted() {
        let mut forecast = ForecastTally::default();
        for millis in [-60_000, 0, 29_999] {
            forecast.add(1, NOW.plus_millis(millis), NOW, 1);
            forecast.add(1, NOW.plus_millis(millis), NOW, -1);
        }
        forecast.add(1, NOW.plus_millis(30_000), NOW, 1);
        forecast.add(2, NOW.plus_millis(89_999), NOW, 1);
        forecast.keep();
        let next = Minute::of(NOW).plus(1);
        assert_eq!(forecast.take().collect::<Vec<_>>(), [(1, next, 1), (2, next, 1)]);
        assert_eq!(forecast.take().count(), 0);
    }

    #[test]
    fn added_and_removed_tasks_leave_nothing() {
        let mut forecast = ForecastTally::default();
        forecast.add(1, NOW.plus_millis(60_000), NOW, 1);
        forecast.keep();
        forecast.add(1, NOW.plus_millis(60_000), NOW, -1);
        forecast.keep();
        forecast.add(1, NOW.plus_millis(60_000), NOW, 1);
        forecast.forget();
        assert_eq!(forecast.take().count(), 0);
    }
}
