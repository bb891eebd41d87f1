//! How schedules and what became of their instants are spelled in columns, whatever the database:
//! what the stores share.

use punctual_core::forecast::{UpcomingPage, UpcomingSchedule};
use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::schedules::plan::{Covers, Spec};
use punctual_core::schedules::{
    Advance, CheckCursor, Definition, KeyedTrigger, Occurrence, OccurrenceOutcome, PauseSwitch, Progress, Promise,
    Record, Schedule, SchedulePause, origin_code, origin_from_code,
};
use punctual_core::time::Timestamp;
use uuid::Uuid;

use crate::columns::{Unreadable, instant_column, number_column};

/// What a schedule or a record takes beside its texts, roughly.
pub(crate) const ROW_BYTES: usize = 512;

/// Roughly how many bytes advances hold, and how many rows they touch.
pub(crate) fn size_of(advances: &[Advance]) -> (usize, usize) {
    let tasks = advances.iter().flat_map(|advance| advance.records.iter().filter_map(|record| record.fired.as_ref()));
    let payloads: usize = tasks.map(|fired| fired.task.body.payload.get().len()).sum();
    let rows = advances.iter().map(|advance| 1 + 2 * advance.records.len() + advance.finished.len()).sum::<usize>();
    (payloads + rows * ROW_BYTES, rows)
}

/// The columns of a schedule, in the order in which every statement gives them.
pub(crate) struct ScheduleColumns {
    pub id: Uuid,
    pub tenant: String,
    pub name: String,
    pub version: i64,
    pub revision: i64,
    pub created_at: i64,
    pub updated_at: i64,
    pub next_run_at: Option<i64>,
    pub look_at: Option<i64>,
    pub last_run_at: Option<i64>,
    pub run_count: i64,
    pub missed_count: i64,
    pub skipped_count: i64,
    pub paused_at: Option<i64>,
    pub pause_reason: Option<String>,
    pub definition: String,
}

impl ScheduleColumns {
    /// The columns of a schedule.
    pub(crate) fn of(schedule: &Schedule) -> Self {
        let progress = &schedule.progress;
        Self {
            id: schedule.id.uuid(),
            tenant: schedule.tenant.clone(),
            name: schedule.name.clone(),
            version: number_column(schedule.version),
            revision: number_column(schedule.revision),
            created_at: schedule.created_at.as_millis(),
            updated_at: schedule.updated_at.as_millis(),
            next_run_at: instant_column(progress.next_run_at),
            look_at: instant_column(progress.next_check_at),
            last_run_at: instant_column(progress.last_run_at),
            run_count: number_column(progress.run_count),
            missed_count: number_column(progress.missed_count),
            skipped_count: number_column(progress.skipped_count),
            paused_at: schedule.pause.as_ref().map(|pause| pause.at.as_millis()),
            pause_reason: schedule.pause.as_ref().and_then(|pause| pause.reason.clone()),
            definition: serde_json::to_string(&schedule.definition)
                .expect("invariant: a definition is texts, numbers and carried JSON"),
        }
    }

    /// The schedule of the columns.
    pub(crate) fn read(self) -> Result<Schedule, Unreadable> {
        let definition: Definition = serde_json::from_str(&self.definition).map_err(|_| Unreadable("definition"))?;
        let pause =
            self.paused_at.map(|at| SchedulePause { at: Timestamp::from_millis(at), reason: self.pause_reason });
        let mut schedule = Schedule {
            id: ScheduleId::from_uuid(self.id),
            tenant: self.tenant,
            name: self.name,
            version: self.version.cast_unsigned(),
            revision: self.revision.cast_unsigned(),
            created_at: Timestamp::from_millis(self.created_at),
            updated_at: Timestamp::from_millis(self.updated_at),
            definition,
            pause: None,
            progress: Progress {
                next_run_at: self.next_run_at.map(Timestamp::from_millis),
                next_check_at: self.look_at.map(Timestamp::from_millis),
                last_run_at: self.last_run_at.map(Timestamp::from_millis),
                run_count: self.run_count.cast_unsigned(),
                missed_count: self.missed_count.cast_unsigned(),
                skipped_count: self.skipped_count.cast_unsigned(),
            },
        };
        schedule.set_pause(pause);
        Ok(schedule)
    }
}

/// The schedule of the columns; one that cannot be read stops no other.
pub(crate) fn readable(columns: ScheduleColumns) -> Option<Schedule> {
    let id = ScheduleId::from_uuid(columns.id);
    let read = columns.read();
    if let Err(Unreadable(column)) = &read {
        tracing::error!(schedule.id = %id, column, "a schedule cannot be read and is left out");
    }
    read.ok()
}

/// The columns of a schedule that will fire.
pub(crate) struct UpcomingColumns {
    pub id: Uuid,
    pub name: String,
    pub next_run_at: i64,
    pub run_count: i64,
    pub definition: String,
    pub reserved: i64,
}

/// A page of schedules that will fire, of which `limit` were asked for; one that cannot be read
/// stops no other.
pub(crate) fn upcoming_page(columns: Vec<UpcomingColumns>, limit: usize) -> UpcomingPage {
    let next = columns.last().filter(|_| columns.len() >= limit).map(|last| last.name.clone());
    let schedules = columns.into_iter().filter_map(|of| {
        let id = ScheduleId::from_uuid(of.id);
        let Ok(definition) = serde_json::from_str::<Definition>(&of.definition) else {
            tracing::error!(schedule.id = %id, column = "definition", "a schedule cannot be read and is left out");
            return None;
        };
        let next_run_at = Timestamp::from_millis(of.next_run_at);
        // Whether it is paused its own column says: what its owner wrote may be older.
        let spec = Spec { paused: false, ..definition.spec };
        let (run_count, reserved) = (of.run_count.cast_unsigned(), of.reserved.cast_unsigned());
        Some(UpcomingSchedule { id, spec, next_run_at, run_count, reserved })
    });
    UpcomingPage { schedules: schedules.collect(), next }
}

/// Where the next page of what is due begins, if this one is full.
pub(crate) fn page_end(page: &[ScheduleColumns], limit: usize) -> Option<CheckCursor> {
    let last = page.last().filter(|_| page.len() >= limit)?;
    Some(CheckCursor { next_check_at: Timestamp::from_millis(last.look_at?), id: ScheduleId::from_uuid(last.id) })
}

/// The columns of a record that an advance writes.
pub(crate) struct RecordColumns<'a> {
    pub instant: i64,
    pub decided_at: i64,
    pub task_id: Option<Uuid>,
    pub covers_until: Option<i64>,
    pub covers_at_least: Option<i64>,
    pub origin: u8,
    pub outcome: u8,
    pub is_watched: bool,
    pub reason: &'a str,
    pub detail: Option<&'a str>,
}

impl<'a> RecordColumns<'a> {
    /// The columns of a record of this advance.
    pub(crate) fn of(advance: &'a Advance, record: &'a Record) -> Self {
        let fired = record.fired.as_ref();
        let promised = promised(advance, record);
        Self {
            instant: record.instant.as_millis(),
            decided_at: advance.now.as_millis(),
            // What waits keeps the task that it will be, if somebody knows it by a key, and the
            // key.
            task_id: fired.map(|fired| fired.task.id).or(promised.map(|asked| asked.task)).map(TaskId::uuid),
            covers_until: record.covers.map(|covers| covers.until.as_millis()),
            covers_at_least: record.covers.map(|covers| number_column(covers.at_least)),
            origin: origin_code(record.origin),
            outcome: record.outcome.code(),
            is_watched: fired.is_some_and(|fired| fired.watched),
            reason: &record.reason,
            detail: promised.map(|asked| asked.idempotency.key.as_str()).or(record.detail.as_deref()),
        }
    }
}

/// What a record of what waits promises.
fn promised<'a>(advance: &'a Advance, record: &Record) -> Option<&'a KeyedTrigger> {
    let trigger = advance.trigger.as_ref().filter(|trigger| trigger.instant == record.instant)?;
    (record.outcome == OccurrenceOutcome::Buffered).then_some(trigger)
}

/// The promise of a record of what waits, if it is of one.
pub(crate) fn promise(instant: Timestamp, task: Option<Uuid>, detail: Option<String>) -> Option<Promise> {
    task.map(|task| Promise { instant, task: TaskId::from_uuid(task), key: detail })
}

/// The columns of a pause after an advance that switches it.
pub(crate) struct SwitchColumns<'a> {
    pub paused_at: Option<i64>,
    pub reason: Option<&'a str>,
}

impl<'a> SwitchColumns<'a> {
    /// Of this advance.
    pub(crate) fn of(advance: &'a Advance) -> Self {
        match &advance.switch {
            Some(PauseSwitch::Pause(reason)) => Self { paused_at: Some(advance.now.as_millis()), reason: Some(reason) },
            Some(PauseSwitch::Resume) | None => Self { paused_at: None, reason: None },
        }
    }
}

/// The columns of a record, in the order in which the listing gives them.
pub(crate) struct OccurrenceColumns {
    pub instant: i64,
    pub origin: i64,
    pub outcome: i64,
    pub reason: String,
    pub detail: Option<String>,
    pub task_id: Option<Uuid>,
    pub covers_until: Option<i64>,
    pub covers_at_least: Option<i64>,
    pub decided_at: i64,
}

impl OccurrenceColumns {
    /// The record of the columns.
    pub(crate) fn read(self) -> Result<Occurrence, Unreadable> {
        let covers = self.covers_until.zip(self.covers_at_least).map(|(until, at_least)| Covers {
            until: Timestamp::from_millis(until),
            at_least: at_least.cast_unsigned(),
        });
        let outcome = OccurrenceOutcome::from_code(self.outcome).ok_or(Unreadable("outcome"))?;
        // What waits may know the task that it will be, and there is none yet.
        let task = self.task_id.filter(|_| outcome == OccurrenceOutcome::Fired).map(TaskId::from_uuid);
        Ok(Occurrence {
            instant: Timestamp::from_millis(self.instant),
            origin: origin_from_code(self.origin).ok_or(Unreadable("origin"))?,
            outcome,
            reason: self.reason,
            // Nor is the key of what waits any detail of it.
            detail: self.detail.filter(|_| outcome != OccurrenceOutcome::Buffered),
            task,
            covers,
            decided_at: Timestamp::from_millis(self.decided_at),
        })
    }
}
