//! The instants of schedules, by the minute in which their tasks will be due. Pure.
//!
//! The instants of all schedules are computed together, always the soonest first. So if there are
//! too many to compute, the end of the window is missing for all schedules alike, and no schedule
//! is missing.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};

use super::Minute;
use crate::cron::jitter_millis;
use crate::ids::ScheduleId;
use crate::schedules::TaskNames;
use crate::schedules::plan::{GRACE_MILLIS, Spec};
use crate::time::Timestamp;

/// A schedule that will fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpcomingSchedule {
    /// Its id.
    pub id: ScheduleId,
    /// Its name.
    pub name: String,
    /// The names in its task.
    pub task: TaskNames,
    /// What decides its instants.
    pub spec: Spec,
    /// The first undecided instant.
    pub next_run_at: Timestamp,
    /// How many instants have fired.
    pub run_count: u64,
    /// How many waiting occurrences have a run reserved.
    pub reserved: u64,
}

/// The minutes of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The current instant.
    pub now: Timestamp,
    /// The first minute. It is after the current one.
    pub from: Minute,
    /// The first minute after the window.
    pub to: Minute,
}

/// The instants of schedules within a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instants {
    /// How many of their tasks will be due in each minute.
    pub minutes: BTreeMap<Minute, u64>,
    /// The first minute without a count, if there were too many instants to reach the end.
    pub until: Option<Minute>,
}

/// Counts the instants of schedules in a window, at most `max` of them. An instant counts in the
/// minute of its due time, jitter included. `ends_at` and `max_runs` apply, with one run reserved
/// for each waiting one. Paused schedules have no instants. Overdue instants are left out, since
/// catch-up decides about them. Overlap policies are ignored: every instant counts.
pub fn instants(schedules: &[UpcomingSchedule], window: &Window, max: usize) -> Instants {
    let end = window.to.begins();
    let mut left: Vec<u64> = schedules.iter().map(runs_left).collect();
    let first = schedules.iter().enumerate().filter(|(index, _)| left[*index] > 0);
    let first = first.filter_map(|(index, schedule)| Some(Reverse((first_instant(schedule, window.now)?, index))));
    let mut next: BinaryHeap<Reverse<(Timestamp, usize)>> = first.filter(|Reverse((at, _))| *at < end).collect();
    let (mut found, mut counted) = (Instants::default(), 0);
    while let Some(mut soonest) = next.peek_mut() {
        let Reverse((at, index)) = *soonest;
        if counted == max {
            found.until = Some(Minute::of(at));
            break;
        }
        counted += 1;
        let schedule = &schedules[index];
        let minute = Minute::of(due_at(schedule, at));
        if (window.from..window.to).contains(&minute) {
            *found.minutes.entry(minute).or_default() += 1;
        }
        // A schedule leaves the heap with its last run.
        debug_assert!(left[index] > 0, "only schedules with runs left are followed");
        left[index] -= 1;
        let following = if left[index] == 0 { None } else { schedule.spec.timing.next_after(at) };
        match following.filter(|at| *at < end) {
            Some(following) => *soonest = Reverse((following, index)),
            None => drop(PeekMut::pop(soonest)),
        }
    }
    if let Some(until) = found.until {
        drop(found.minutes.split_off(&until));
    }
    found
}

/// How many more instants of a schedule may fire.
pub(super) fn runs_left(schedule: &UpcomingSchedule) -> u64 {
    let spec = &schedule.spec;
    if spec.paused { 0 } else { spec.runs_left(schedule.run_count, schedule.reserved) }
}

/// The first instant that is not overdue. The stored one is pinned, as it is for the cron loop.
pub(super) fn first_instant(schedule: &UpcomingSchedule, now: Timestamp) -> Option<Timestamp> {
    let late_before = now.plus_millis(-GRACE_MILLIS);
    if schedule.next_run_at >= late_before {
        return Some(schedule.next_run_at);
    }
    schedule.spec.timing.next_after(late_before.plus_millis(-1))
}

/// When the task of an instant will be due.
fn due_at(schedule: &UpcomingSchedule, at: Timestamp) -> Timestamp {
    match schedule.spec.jitter_millis {
        0 => at,
        max => at.plus_unsigned_millis(jitter_millis(schedule.id, at, max)),
    }
}

#[cfg(test)]
mod tests;
