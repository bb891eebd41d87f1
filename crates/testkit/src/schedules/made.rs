//! Schedules, records and advances as the suite needs them, and the calls it makes with them.

use punctual_core::coordinator::{LEADER, LeaderLease};
use punctual_core::cron::{CronExpression, Pattern, Timing, TimingRules};
use punctual_core::ids::{NodeId, ScheduleId};
use punctual_core::schedules::plan::{CatchUp, Origin, Overlap, Spec};
use punctual_core::schedules::{
    Advance, Advanced, Definition, FiredTask, Occurrence, OccurrenceOutcome, Progress, Record, Replaced, Schedule,
    ScheduleInserted, ScheduleSnapshot,
};
use punctual_core::task::NewTask;
use punctual_core::time::Timestamp;

use crate::fixtures::{TENANT, at, json, task};
use crate::store::StoreFixture;

/// A schedule that fires every minute, next at [`at`] zero.
pub(crate) fn schedule(name: &str) -> Schedule {
    let cron = CronExpression::parse("* * * * *").expect("an expression");
    let timing = Timing { pattern: Pattern::Cron(cron), rules: TimingRules::default() };
    let spec = Spec {
        timing,
        overlap: Overlap::Skip,
        catchup: CatchUp::Last,
        catchup_window_millis: 3_600_000,
        jitter_millis: 0,
        max_runs: None,
        paused: false,
    };
    Schedule {
        id: ScheduleId::new(),
        tenant: TENANT.to_owned(),
        name: name.to_owned(),
        version: 1,
        revision: 1,
        created_at: at(-1),
        updated_at: at(-1),
        definition: Definition { spec, pause_on_failure: false, task: json(r#"{"type":"t"}"#) },
        pause: None,
        progress: Progress { next_run_at: Some(at(0)), next_check_at: Some(at(0)), ..Progress::default() },
    }
}

pub(crate) async fn stored(fixture: &StoreFixture<'_>, name: &str) -> Schedule {
    let schedule = schedule(name);
    assert_eq!(fixture.schedules.insert(schedule.clone()).await.unwrap(), ScheduleInserted::Created);
    assert_eq!(get(fixture, &schedule).await.as_ref(), Some(&schedule), "the schedule is read back as written");
    schedule
}

pub(crate) fn of_schedule(schedule: &Schedule, due_at: Timestamp) -> NewTask {
    let mut new = task().due(due_at).build();
    new.body.schedule_id = Some(schedule.id);
    new
}

/// An advance that leaves the next instant as it is.
pub(crate) fn advance(schedule: &Schedule, records: Vec<Record>) -> Advance {
    Advance {
        id: schedule.id,
        revision: schedule.revision,
        now: at(0),
        records,
        cuts: Vec::new(),
        finished: Vec::new(),
        next_run_at: schedule.progress.next_run_at,
        next_check_at: schedule.progress.next_check_at,
        switch: None,
        trigger: None,
        edited: None,
    }
}

pub(crate) fn record(instant: Timestamp, outcome: OccurrenceOutcome) -> Record {
    Record {
        instant,
        origin: Origin::Due,
        waited: false,
        outcome,
        fired: None,
        reason: "on_time".to_owned(),
        detail: None,
        covers: None,
    }
}

pub(crate) fn fired(instant: Timestamp, task: &NewTask) -> Record {
    let fired = FiredTask { task: Box::new(task.clone()), watched: true };
    Record { fired: Some(fired), ..record(instant, OccurrenceOutcome::Fired) }
}

/// Writes an advance, which must succeed. Returns the recorded instants.
pub(crate) async fn done(fixture: &StoreFixture<'_>, advance: Advance) -> Vec<Timestamp> {
    match fixture.schedules.advance(None, vec![advance]).await.unwrap().unwrap().remove(0) {
        Advanced::Done { recorded, .. } => recorded,
        advanced => panic!("{advanced:?}"),
    }
}

pub(crate) async fn lost(fixture: &StoreFixture<'_>, advance: Advance) {
    let advanced = fixture.schedules.advance(None, vec![advance]).await.unwrap().unwrap().remove(0);
    assert!(matches!(advanced, Advanced::Lost), "{advanced:?}");
}

pub(crate) async fn replace(fixture: &StoreFixture<'_>, schedule: &Schedule) -> Replaced {
    fixture.schedules.replace(schedule.clone()).await.unwrap()
}

pub(crate) async fn get(fixture: &StoreFixture<'_>, schedule: &Schedule) -> Option<Schedule> {
    fixture.schedules.get(&schedule.tenant, schedule.id).await.unwrap()
}

pub(crate) async fn snapshot(fixture: &StoreFixture<'_>, schedule: &Schedule) -> ScheduleSnapshot {
    fixture.schedules.snapshot(&schedule.tenant, schedule.id).await.unwrap().expect("it is there")
}

pub(crate) async fn due(fixture: &StoreFixture<'_>, now: Timestamp) -> Vec<ScheduleSnapshot> {
    let due = fixture.schedules.due(now, None, 100).await.unwrap();
    assert_eq!(due.next, None);
    due.snapshots
}

pub(crate) fn keys(snapshots: &[ScheduleSnapshot]) -> Vec<(Timestamp, ScheduleId)> {
    let key = |snapshot: &ScheduleSnapshot| (snapshot.schedule.progress.next_check_at.unwrap(), snapshot.schedule.id);
    snapshots.iter().map(key).collect()
}

pub(crate) async fn occurrences(fixture: &StoreFixture<'_>, schedule: &Schedule) -> Vec<Occurrence> {
    fixture.schedules.occurrences(schedule.id, None, 1_000).await.unwrap()
}

/// A lease that this node holds now; a previous holder loses it.
pub(crate) async fn lead(fixture: &StoreFixture<'_>, node: NodeId) -> LeaderLease {
    if let Some(held) = fixture.database.holder(LEADER).await.unwrap() {
        fixture.database.release(&held.lease).await.unwrap();
    }
    fixture.database.acquire(LEADER, node, 10_000).await.unwrap().expect("it is free")
}
