//! Edits, pauses and resumptions of a schedule, each in one write.
//!
//! Called by the routes that edit, replace, pause and resume. Invariant: before an edit or a pause,
//! what is due is decided by the schedule as it was.

use punctual_core::schedules::plan;
use punctual_core::schedules::{
    Advance, Advanced, Definition, PauseSwitch, Replaced, Schedule, SchedulePause, ScheduleSnapshot,
};
use punctual_core::time::Timestamp;
use punctual_submission::occurrences::{Prepared, plan_input};
use punctual_submission::{CheckedSchedule, Faults};

use super::request::{ScheduleRequest, check_version, name_taken, require_reach, validator, write};
use crate::extract::If;
use crate::problem::Problem;
use crate::state::Api;

/// Replaces a schedule, its pause included, and returns it as it is then. `wanted` makes the new
/// schedule of the current one, once for each try.
pub async fn rewrite(
    request: &ScheduleRequest,
    condition: &If,
    wanted: impl Fn(&Schedule) -> Result<CheckedSchedule, Problem>,
) -> Result<Schedule, Problem> {
    let (api, wanted) = (&request.api, &wanted);
    let attempt = async |snapshot: ScheduleSnapshot, now| {
        let schedule = &snapshot.schedule;
        check_version(condition, schedule)?;
        let CheckedSchedule { name, definition, paused } = wanted(schedule)?;
        require_reach(&request.caller, &definition)?;
        let new_timing = definition.spec.timing != schedule.definition.spec.timing;
        let edited = edited(api, schedule, name.clone(), definition, now)?;
        let is_paused = schedule.pause.is_some();
        let switches = paused.is_some_and(|paused| paused != is_paused);
        if edited.is_none() && !switches {
            return Ok(Some(snapshot.schedule));
        }
        // Instants that went by in a pause are recorded when it ends, unless the edit changes the
        // timing.
        if (!is_paused || new_timing) && decide_due(api, &snapshot, now).await? {
            return Ok(None);
        }
        let written = if switches && is_paused {
            write_resume(api, snapshot, edited, now).await?
        } else {
            let mut edited = edited.unwrap_or_else(|| next_version(schedule, now));
            if switches {
                edited.set_pause(Some(SchedulePause { at: now, reason: None }));
                edited.progress.next_check_at = edited.next_check_at(true);
            }
            api.schedules.replace(edited).await?
        };
        match written {
            Replaced::Done => request.find_written().await.map(Some),
            Replaced::NameTaken => Err(name_taken(&name)),
            Replaced::Lost => Ok(None),
        }
    };
    request.change(attempt).await
}

/// Pauses a schedule. If it is paused already, it gets the new reason, if there is one, and keeps
/// the start of its pause.
pub async fn pause(request: &ScheduleRequest, condition: &If, reason: Option<&str>) -> Result<Schedule, Problem> {
    let api = &request.api;
    let attempt = async |snapshot: ScheduleSnapshot, now| {
        let schedule = &snapshot.schedule;
        check_version(condition, schedule)?;
        let is_same = |was: &SchedulePause| reason.is_none() || was.reason.as_deref() == reason;
        if schedule.pause.as_ref().is_some_and(is_same) {
            return Ok(Some(snapshot.schedule));
        }
        // The pause does not skip what was due before it.
        if schedule.pause.is_none() && decide_due(api, &snapshot, now).await? {
            return Ok(None);
        }
        let mut paused = next_version(schedule, now);
        let at = schedule.pause.as_ref().map_or(now, |was| was.at);
        paused.set_pause(Some(SchedulePause { at, reason: reason.map(str::to_owned) }));
        paused.progress.next_check_at = paused.next_check_at(true);
        match api.schedules.replace(paused).await? {
            Replaced::Done => request.find_written().await.map(Some),
            _ => Ok(None),
        }
    };
    request.change(attempt).await
}

/// Resumes a schedule, if it is paused. The instants that went by are recorded as skipped.
pub async fn resume(request: &ScheduleRequest, condition: &If) -> Result<Schedule, Problem> {
    let attempt = async |snapshot: ScheduleSnapshot, now| {
        check_version(condition, &snapshot.schedule)?;
        if snapshot.schedule.pause.is_none() {
            return Ok(Some(snapshot.schedule));
        }
        match write_resume(&request.api, snapshot, None, now).await? {
            Replaced::Done => request.find_written().await.map(Some),
            _ => Ok(None),
        }
    };
    request.change(attempt).await
}

/// Decides what is due at `now` by the schedule as it is before its change. True if something was
/// due: then the caller reads the schedule again, whether or not this write won.
async fn decide_due(api: &Api, snapshot: &ScheduleSnapshot, now: Timestamp) -> Result<bool, Problem> {
    let schedule = &snapshot.schedule;
    if schedule.progress.next_run_at.is_none_or(|at| at > now) {
        return Ok(false);
    }
    let prepared = if schedule.pause.is_some() {
        let skipped = plan::resume(schedule.id, &schedule.definition.spec, &plan_input(snapshot), now);
        Prepared::Advance(Box::new(api.occurrences.advance(snapshot, &skipped, now)), false)
    } else {
        api.occurrences.check(None, snapshot, now).await?
    };
    match prepared {
        Prepared::Advance(advance, _) => write(api, *advance).await.map(|_| true),
        Prepared::Again => Ok(true),
        Prepared::Nothing | Prepared::NotLeader => Ok(false),
    }
}

/// The schedule at its next version.
fn next_version(schedule: &Schedule, now: Timestamp) -> Schedule {
    Schedule { version: schedule.version + 1, updated_at: now, ..schedule.clone() }
}

/// The schedule with another name and definition; none if they are the same. If its instants
/// change, it continues with the first of them after now.
fn edited(
    api: &Api,
    schedule: &Schedule,
    name: String,
    mut definition: Definition,
    now: Timestamp,
) -> Result<Option<Schedule>, Problem> {
    definition.spec.paused = schedule.pause.is_some();
    if name == schedule.name && definition == schedule.definition {
        return Ok(None);
    }
    let (old, spec) = (&schedule.definition.spec, &definition.spec);
    let mut progress = schedule.progress;
    let first = || plan::first(spec, progress.run_count, now);
    progress.next_run_at = if spec.timing != old.timing {
        let mut faults = Faults::default();
        validator(api, &schedule.tenant, Some(schedule.created_at)).check_instants(&mut faults, spec);
        faults.finish()?;
        first()
    } else if spec.max_runs != old.max_runs {
        // A greater limit continues a schedule that had ended by the smaller one.
        first().and(progress.next_run_at.or_else(first))
    } else {
        progress.next_run_at
    };
    let mut edited = Schedule { name, definition, progress, ..next_version(schedule, now) };
    // The cron loop checks it once and computes the next check.
    edited.progress.next_check_at = edited.next_check_at(true);
    Ok(Some(edited))
}

/// Resumes a paused schedule, as `edited` if the same write edits it.
async fn write_resume(
    api: &Api,
    mut snapshot: ScheduleSnapshot,
    edited: Option<Schedule>,
    now: Timestamp,
) -> Result<Replaced, Problem> {
    let edited = edited.map(|mut edited| {
        // The advance increments the version, once for both.
        edited.version = snapshot.schedule.version;
        edited.set_pause(None);
        snapshot.schedule = edited.clone();
        Box::new(edited)
    });
    snapshot.schedule.set_pause(None);
    let schedule = &snapshot.schedule;
    let plan = plan::resume(schedule.id, &schedule.definition.spec, &plan_input(&snapshot), now);
    let advance =
        Advance { switch: Some(PauseSwitch::Resume), edited, ..api.occurrences.advance(&snapshot, &plan, now) };
    Ok(match write(api, advance).await? {
        Advanced::Done { .. } => Replaced::Done,
        Advanced::Lost => Replaced::Lost,
        Advanced::NameTaken => Replaced::NameTaken,
    })
}
