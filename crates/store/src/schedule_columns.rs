//! The columns that an advance of a schedule writes. Both stores write them;
//! `portable/schedules.rs` has the columns of schedules themselves.

use punctual_core::ids::TaskId;
use punctual_core::schedules::{Advance, KeyedTrigger, OccurrenceOutcome, PauseSwitch, Record, origin_code};
use uuid::Uuid;

use crate::columns::{count_column, instant_column, number_column};
use crate::write_queue::Weight;

/// Roughly how many bytes a schedule or a record takes, apart from its texts.
pub(crate) const ROW_BYTES: usize = 512;

/// The weight of a call that writes these advances.
pub(crate) fn weight_of(advances: &[Advance]) -> Weight {
    let tasks = advances.iter().flat_map(|advance| advance.records.iter().filter_map(|record| record.fired.as_ref()));
    let payloads: usize = tasks.map(|fired| fired.task.body.payload.get().len()).sum();
    let rows = advances.iter().map(|advance| 1 + 2 * advance.records.len() + advance.finished.len()).sum::<usize>();
    Weight { bytes: payloads + rows * ROW_BYTES, rows }
}

/// The columns of a record that an advance writes.
pub(crate) struct RecordColumns<'a> {
    pub schedule: Uuid,
    pub instant: i64,
    pub decided_at: i64,
    pub task_id: Option<Uuid>,
    pub covers_until: Option<i64>,
    pub covers_at_least: Option<i64>,
    pub origin: i16,
    pub outcome: i16,
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
            schedule: advance.id.uuid(),
            instant: record.instant.as_millis(),
            decided_at: advance.now.as_millis(),
            task_id: fired.map(|fired| fired.task.id).or(promised.map(|trigger| trigger.task)).map(TaskId::uuid),
            covers_until: record.covers.map(|covers| covers.until.as_millis()),
            covers_at_least: record.covers.map(|covers| number_column(covers.at_least)),
            origin: i16::from(origin_code(record.origin)),
            outcome: i16::from(record.outcome.code()),
            is_watched: fired.is_some_and(|fired| fired.watched),
            reason: &record.reason,
            detail: promised.map(|trigger| trigger.idempotency.key.as_str()).or(record.detail.as_deref()),
        }
    }
}

/// The trigger under a key whose occurrence has to wait. Its record keeps the key, and the id that
/// the task will have.
fn promised<'a>(advance: &'a Advance, record: &Record) -> Option<&'a KeyedTrigger> {
    let trigger = advance.trigger.as_ref().filter(|trigger| trigger.instant == record.instant)?;
    (record.outcome == OccurrenceOutcome::Buffered).then_some(trigger)
}

/// How an advance changes the row of its schedule.
pub(crate) struct AdvanceColumns<'a> {
    pub id: Uuid,
    pub next_run_at: Option<i64>,
    /// The column of `next_check_at`.
    pub look_at: Option<i64>,
    pub last_run_at: Option<i64>,
    pub runs: i64,
    pub skipped: i64,
    pub missed: i64,
    pub is_switched: bool,
    pub paused_at: Option<i64>,
    pub pause_reason: Option<&'a str>,
    pub decided_at: i64,
}

impl<'a> AdvanceColumns<'a> {
    /// The change by this advance. `written` says which of its records were written.
    pub(crate) fn of(advance: &'a Advance, written: impl Fn(&Record) -> bool) -> Self {
        let written = || advance.records.iter().filter(|record| written(record));
        let runs = || written().filter(|record| record.is_run());
        let decided_at = advance.now.as_millis();
        let (paused_at, pause_reason) = match &advance.switch {
            Some(PauseSwitch::Pause(reason)) => (Some(decided_at), Some(reason.as_str())),
            Some(PauseSwitch::Resume) | None => (None, None),
        };
        Self {
            id: advance.id.uuid(),
            next_run_at: instant_column(advance.next_run_at),
            look_at: instant_column(advance.next_check_at),
            last_run_at: instant_column(runs().map(|record| record.instant).max()),
            runs: count_column(runs().count()),
            skipped: number_column(written().map(Record::skipped).sum()),
            missed: number_column(written().map(Record::missed).sum()),
            is_switched: advance.switch.is_some(),
            paused_at,
            pause_reason,
            decided_at,
        }
    }
}
