//! What will run, one by one, the soonest first: the waiting tasks and the instants of schedules.
//! Pure.
//!
//! `GET /v1/upcoming` reads both and keeps the soonest. Everything upcoming has a
//! [`UpcomingPosition`], and a page goes on after the last one of the page before. So pages have no
//! gap and no repeat, whatever is added or removed meanwhile.

use std::collections::BTreeMap;

use super::UpcomingSchedule;
use super::instants::{first_instant, runs_left};
use crate::ids::{ScheduleId, TaskId};
use crate::time::Timestamp;

/// Where something stands in the order of what is upcoming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpcomingPosition {
    /// When it is due.
    pub at: Timestamp,
    /// What it is.
    pub of: UpcomingKey,
}

/// What is upcoming. Instants go before tasks that are due at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpcomingKey {
    /// An instant of a schedule.
    Instant(ScheduleId),
    /// A task, by the number that its store gave it.
    Task(i64),
}

impl UpcomingPosition {
    /// The position before everything that is due at `at` or later.
    pub fn before(at: Timestamp) -> Self {
        Self { at, of: UpcomingKey::Instant(ScheduleId::from_uuid(uuid::Uuid::nil())) }
    }

    /// The instant and the number after which the tasks behind this position begin.
    pub fn last_task(self) -> (Timestamp, i64) {
        match self.of {
            UpcomingKey::Instant(_) => (self.at, i64::MIN),
            UpcomingKey::Task(number) => (self.at, number),
        }
    }
}

/// A waiting task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpcomingTask {
    /// When it is due.
    pub due_at: Timestamp,
    /// Its number. Of tasks that are due at the same time, the lower comes first.
    pub number: i64,
    /// Its id.
    pub id: TaskId,
    /// Its type.
    pub kind: String,
    /// Its queue.
    pub queue: String,
}

/// The soonest of what was added, up to a number.
#[derive(Debug)]
pub struct Soonest<T> {
    kept: BTreeMap<UpcomingPosition, T>,
    most: usize,
}

impl<T: Clone> Soonest<T> {
    /// Keeps at most `most`.
    pub fn new(most: usize) -> Self {
        Self { kept: BTreeMap::new(), most }
    }

    /// Adds one. False if `most` sooner ones are kept already.
    pub fn add(&mut self, position: UpcomingPosition, item: T) -> bool {
        self.kept.insert(position, item);
        if self.kept.len() <= self.most {
            return true;
        }
        self.kept.pop_last().is_some_and(|(last, _)| last != position)
    }

    /// Adds the instants of a schedule behind `after`, before `until`. As they only grow, it stops
    /// at the first that is not among the soonest.
    pub fn add_instants(
        &mut self,
        schedule: &UpcomingSchedule,
        now: Timestamp,
        after: UpcomingPosition,
        until: Timestamp,
        item: &T,
    ) {
        for at in instants_behind(schedule, now, after).take_while(|at| *at < until) {
            if !self.add(UpcomingPosition { at, of: UpcomingKey::Instant(schedule.id) }, item.clone()) {
                break;
            }
        }
    }

    /// What was kept, the soonest first.
    pub fn into_items(self) -> impl Iterator<Item = (UpcomingPosition, T)> {
        self.kept.into_iter()
    }
}

/// The instants of a schedule behind a position, as far as `max_runs` allows. As in
/// [`instants`](super::instants()), overdue instants are left out, and the stored one is pinned.
fn instants_behind(
    schedule: &UpcomingSchedule,
    now: Timestamp,
    after: UpcomingPosition,
) -> impl Iterator<Item = Timestamp> {
    let timing = &schedule.spec.timing;
    let at_once = UpcomingPosition { at: after.at, of: UpcomingKey::Instant(schedule.id) } > after;
    let begin = if at_once { after.at } else { after.at.plus_millis(1) };
    let (mut next, mut left) = (first_instant(schedule, now), runs_left(schedule));
    if let Some(first) = next.filter(|first| *first < begin) {
        // The pinned instant, and those between.
        left = left.saturating_sub(1 + timing.count_between(first.plus_millis(1), begin.plus_millis(-1)));
        next = timing.next_after(begin.plus_millis(-1));
    }
    std::iter::successors(next, |at| timing.next_after(*at)).take(usize::try_from(left).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests;
