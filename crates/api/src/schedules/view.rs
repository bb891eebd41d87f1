//! Schedules and their occurrences, as the API shows them.

use punctual_client as wire;
use punctual_client::Seconds;
use punctual_core::cron::Pattern;
use punctual_core::schedules::plan::OccurrenceReason;
use punctual_core::schedules::{Occurrence, Schedule};

use crate::problem::{Code, Problem};

/// The schedule on the wire.
pub fn schedule(schedule: &Schedule) -> Result<wire::Schedule, Problem> {
    let (spec, progress) = (&schedule.definition.spec, &schedule.progress);
    let rules = &spec.timing.rules;
    let (cron, interval_seconds) = match &spec.timing.pattern {
        Pattern::Cron(cron) => (Some(cron.as_str().to_owned()), None),
        Pattern::Interval(interval) => (None, Some(Seconds::from_millis(interval.millis()))),
    };
    Ok(wire::Schedule {
        schedule_id: schedule.id,
        tenant: schedule.tenant.clone(),
        name: schedule.name.clone(),
        cron,
        interval_seconds,
        timezone: rules.zone.name().to_owned(),
        task: task(schedule)?,
        overlap_policy: spec.overlap.into(),
        catchup: spec.catchup.into(),
        catchup_window_seconds: Seconds::from_millis(spec.catchup_window_millis),
        dst_gap: rules.dst_gap.into(),
        dst_fold: rules.dst_fold.into(),
        day_overflow: rules.day_overflow.into(),
        jitter_seconds: Seconds::from_millis(spec.jitter_millis),
        starts_at: rules.starts_at,
        ends_at: rules.ends_at,
        max_runs: spec.max_runs,
        pause_on_failure: schedule.definition.pause_on_failure,
        paused: schedule.pause.is_some(),
        paused_at: schedule.pause.as_ref().map(|pause| pause.at),
        pause_reason: schedule.pause.as_ref().and_then(|pause| pause.reason.clone()),
        next_run_at: progress.next_run_at.filter(|_| schedule.pause.is_none()),
        last_run_at: progress.last_run_at,
        run_count: progress.run_count,
        missed_count: progress.missed_count,
        skipped_count: progress.skipped_count,
        version: schedule.version,
        created_at: schedule.created_at,
        updated_at: schedule.updated_at,
    })
}

/// The occurrence on the wire.
pub fn occurrence(occurrence: Occurrence) -> wire::Occurrence {
    let Occurrence { instant, origin, outcome, reason, detail, task, covers, decided_at } = occurrence;
    let known = || OccurrenceReason::from_name(&reason).map_or("", OccurrenceReason::sentence).to_owned();
    wire::Occurrence {
        instant,
        outcome: outcome.into(),
        origin: origin.into(),
        message: detail.unwrap_or_else(known),
        reason,
        task_id: task,
        decided_at,
        covers: covers.map(|covers| wire::Covers { until: covers.until, at_least: covers.at_least }),
    }
}

fn task(schedule: &Schedule) -> Result<wire::NewTask, Problem> {
    serde_json::from_str(schedule.definition.task.get()).map_err(|error| {
        tracing::error!(%error, schedule.id = %schedule.id, "cannot read the task template of a schedule; answering 500");
        Problem::new(Code::Internal, "the stored schedule could not be read")
    })
}
