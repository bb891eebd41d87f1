//! The instants of schedules, by the minute in which their tasks will be due. Pure.
//!
//! All schedules are followed at once, always the one whose next instant comes first. So when there
//! are more instants than may be computed, the end of the window is missing, for all schedules
//! alike, and not some of the schedules.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};

use super::Minute;
use crate::cron::jitter_millis;
use crate::ids::ScheduleId;
use crate::schedules::plan::{GRACE_MILLIS, Spec};
use crate::time::Timestamp;

/// A schedule that will fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpcomingSchedule {
    /// Its id.
    pub id: ScheduleId,
    /// What decides its instants.
    pub spec: Spec,
    /// The first instant that is not decided.
    pub next_run_at: Timestamp,
    /// How many have fired.
    pub run_count: u64,
    /// How many wait that have a run reserved for them.
    pub reserved: u64,
}

/// Which minutes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When it is asked.
    pub now: Timestamp,
    /// The first minute, later than the one that lasts.
    pub from: Minute,
    /// The first minute that is not asked for any more.
    pub to: Minute,
}

/// What schedules will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instants {
    /// How many of their tasks will be due in which minute.
    pub minutes: BTreeMap<Minute, u64>,
    /// The first minute that is not counted any more, if there were too many instants to count them
    /// to the end.
    pub until: Option<Minute>,
}

/// Counts the instants of schedules in a window, `most` of them at the most. An instant counts in
/// the minute in which it and its jitter fall; `ends_at` and `max_runs` hold, runs that wait having
/// theirs reserved; a schedule that is paused has none, and what is overdue, of which catching up
/// decides, is left out. What overlap policies will do is not foreseen: every instant counts.
pub fn instants(schedules: &[UpcomingSchedule], window: &Window, most: usize) -> Instants {
    let end = window.to.begins();
    let mut left: Vec<u64> = schedules.iter().map(runs_left).collect();
    let first = schedules.iter().enumerate().filter(|(place, _)| left[*place] > 0);
    let first = first.filter_map(|(place, schedule)| Some(Reverse((first_instant(schedule, window.now)?, place))));
    let mut next: BinaryHeap<Reverse<(Timestamp, usize)>> = first.filter(|Reverse((at, _))| *at < end).collect();
    let (mut told, mut counted) = (Instants::default(), 0);
    while let Some(mut soonest) = next.peek_mut() {
        let Reverse((at, place)) = *soonest;
        if counted == most {
            told.until = Some(Minute::of(at));
            break;
        }
        counted += 1;
        let schedule = &schedules[place];
        let minute = Minute::of(due_at(schedule, at));
        if (window.from..window.to).contains(&minute) {
            *told.minutes.entry(minute).or_default() += 1;
        }
        left[place] -= 1;
        let following = if left[place] == 0 { None } else { schedule.spec.timing.next_after(at) };
        match following.filter(|at| *at < end) {
            Some(following) => *soonest = Reverse((following, place)),
            None => drop(PeekMut::pop(soonest)),
        }
    }
    if let Some(until) = told.until {
        drop(told.minutes.split_off(&until));
    }
    told
}

/// How often a schedule may run yet by its time.
fn runs_left(schedule: &UpcomingSchedule) -> u64 {
    let spec = &schedule.spec;
    if spec.paused { 0 } else { spec.runs_left(schedule.run_count, schedule.reserved) }
}

/// The first instant that is not overdue. The stored one is pinned, as it is for the cron loop.
fn first_instant(schedule: &UpcomingSchedule, now: Timestamp) -> Option<Timestamp> {
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
        most => at.plus_unsigned_millis(jitter_millis(schedule.id, at, most)),
    }
}

#[cfg(test)]
mod tests;
