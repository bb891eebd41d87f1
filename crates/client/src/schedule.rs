//! Recurring schedules: requests of their owners, and how the API shows them.

use std::borrow::Cow;

use punctual_core::cron::{DayOverflow as CoreOverflow, DstFold as CoreFold, DstGap as CoreGap};
use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::json::Json;
use punctual_core::schedules as core;
use punctual_core::schedules::plan;
use punctual_core::time::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::form::{NameForm, ScheduleIdForm, TaskIdForm};
use crate::new_task::{NewTask, given};
use crate::objects::objects_only;
use crate::seconds::Seconds;
use crate::words::words;

/// A schedule to make, to replace or to preview. One of `cron` and `interval_seconds` is required.
///
/// The other fields of a schedule (`schedule_id`, `tenant`, `paused_at`, `pause_reason`,
/// `next_run_at`, `last_run_at`, its counts, `version`, `created_at`, `updated_at`) are accepted
/// and ignored.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schema(as = ScheduleToPreview)]
pub struct NewSchedule {
    /// Its name, unique in its tenant. It may be left out if the path has it, and of a preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = NameForm, required = false, nullable = false, example = "nightly-report")]
    pub name: Option<String>,
    /// A cron expression of five fields, of six with seconds first, or a word such as `@hourly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 3 * * MON-FRI")]
    pub cron: Option<String>,
    /// A fixed interval instead, counted from `starts_at`, or from the creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 1, maximum = 316_224_000)]
    pub interval_seconds: Option<Seconds>,
    /// The time zone of the expression: a name of the IANA database; `UTC` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin", max_length = 64)]
    pub timezone: Option<String>,
    /// The task that every occurrence submits, without times, idempotency key and dependencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ScheduledTask, required = false, nullable = false)]
    pub task: Option<NewTask>,
    /// What happens while the previous task is live; `skip` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_policy: Option<OverlapPolicy>,
    /// What happens to missed instants; `last` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catchup: Option<Catchup>,
    /// How far back catching up goes; 3600 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 31_622_400)]
    pub catchup_window_seconds: Option<Seconds>,
    /// What happens to local times that do not exist; `shift` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_gap: Option<DstGap>,
    /// What happens to local times that exist twice; `first` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_fold: Option<DstFold>,
    /// What days 29 to 31 of `cron` mean in a shorter month; `skip` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day_overflow: Option<DayOverflow>,
    /// Its tasks are due up to this much after their instants; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 86_400)]
    pub jitter_seconds: Option<Seconds>,
    /// No instant is before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub starts_at: Option<String>,
    /// No instant is after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub ends_at: Option<String>,
    /// It ends after this many runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64)]
    pub max_runs: Option<u64>,
    /// A task of it that ends `FAILED` or `DEAD_LETTERED` pauses it; `false` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_on_failure: Option<bool>,
    /// Whether it is paused. A replacement without this field leaves it as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// The schema of a [`NewSchedule`] that is to be made.
pub struct ScheduleToMake;

/// The schema of a [`NewSchedule`] whose name is in the path.
pub struct ScheduleByName;

/// The schema of the task of a [`NewSchedule`]: a [`NewTask`] without [`NOT_SCHEDULED`].
pub struct ScheduledTask;

/// The fields of a task that a schedule does not give.
pub const NOT_SCHEDULED: [&str; 6] =
    ["execute_at", "delay_seconds", "expires_at", "idempotency_key", "depends_on", "on_dependency_failure"];

macro_rules! like_new_schedule {
    ($name:ident is $wire:literal requiring $required:expr, $description:literal) => {
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let mut schema = NewSchedule::schema();
                if let RefOr::T(Schema::Object(object)) = &mut schema {
                    object.required = $required.map(str::to_owned).to_vec();
                    object.description = Some($description.to_owned());
                }
                schema
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($wire)
            }

            fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                NewSchedule::schemas(schemas);
            }
        }
    };
}

like_new_schedule!(ScheduleToMake is "NewSchedule" requiring ["name", "task"],
    "A schedule to make. One of `cron` and `interval_seconds` is required, too.");
like_new_schedule!(ScheduleByName is "ScheduleByName" requiring ["task"],
    "A schedule to make or to replace. One of `cron` and `interval_seconds` is required, too. The other fields of a \
     schedule are accepted and ignored, so that what was read can be sent back.");

impl PartialSchema for ScheduledTask {
    fn schema() -> RefOr<Schema> {
        let mut schema = NewTask::schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.properties.retain(|name, _| !NOT_SCHEDULED.contains(&name.as_str()));
            object.description = Some(
                "What every occurrence of a schedule submits: a task without times and keys of its own.".to_owned(),
            );
        }
        schema
    }
}

impl ToSchema for ScheduledTask {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        NewTask::schemas(schemas);
    }
}

/// What to change of a schedule. An absent field stays as it is.
///
/// `cron` replaces `interval_seconds` and the other way round; `starts_at`, `ends_at` and
/// `max_runs` may be `null`, which removes them; no other field may be `null`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct SchedulePatch {
    /// Another name.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = NameForm, nullable = false)]
    pub name: Option<Option<String>>,
    /// Another cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    pub cron: Option<Option<String>>,
    /// Another interval.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = 1, maximum = 316_224_000)]
    pub interval_seconds: Option<Option<Seconds>>,
    /// Another time zone.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = String, max_length = 64, nullable = false)]
    pub timezone: Option<Option<String>>,
    /// What to change of its task.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = ScheduledTaskPatch, nullable = false)]
    pub task: Option<Option<ScheduledTaskPatch>>,
    /// Another policy for overlaps.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = OverlapPolicy, nullable = false)]
    pub overlap_policy: Option<Option<OverlapPolicy>>,
    /// Another policy for missed instants.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Catchup, nullable = false)]
    pub catchup: Option<Option<Catchup>>,
    /// How far back catching up goes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = f64, minimum = 0, maximum = 31_622_400, nullable = false)]
    pub catchup_window_seconds: Option<Option<Seconds>>,
    /// What happens to local times that do not exist.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = DstGap, nullable = false)]
    pub dst_gap: Option<Option<DstGap>>,
    /// What happens to local times that exist twice.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = DstFold, nullable = false)]
    pub dst_fold: Option<Option<DstFold>>,
    /// What days 29 to 31 of `cron` mean in a shorter month.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = DayOverflow, nullable = false)]
    pub day_overflow: Option<Option<DayOverflow>>,
    /// Another jitter.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = f64, minimum = 0, maximum = 86_400, nullable = false)]
    pub jitter_seconds: Option<Option<Seconds>>,
    /// Another beginning, or none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub starts_at: Option<Option<String>>,
    /// Another end, or none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ends_at: Option<Option<String>>,
    /// Another number of runs, or no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_u64)]
    pub max_runs: Option<Option<u64>>,
    /// Whether a failure pauses it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<bool>, nullable = false)]
    pub pause_on_failure: Option<Option<bool>>,
    /// Whether it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<bool>, nullable = false)]
    pub paused: Option<Option<bool>>,
}

/// What to change of a schedule's task: a merge patch (RFC 7396). Absent members stay, `null`
/// removes one, and objects are merged, the payload too.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct ScheduledTaskPatch(pub Json);

impl<'de> Deserialize<'de> for ScheduledTaskPatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let patch = Json::deserialize(deserializer)?;
        if patch.get().starts_with('{') { Ok(Self(patch)) } else { Err(D::Error::custom("must be an object")) }
    }
}

/// The schema of a task of which nothing is required.
impl PartialSchema for ScheduledTaskPatch {
    fn schema() -> RefOr<Schema> {
        let mut schema = ScheduledTask::schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.required.clear();
            object.description = Some("What to change of a schedule's task: a merge patch (RFC 7396).".to_owned());
        }
        schema
    }
}

impl ToSchema for ScheduledTaskPatch {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        NewTask::schemas(schemas);
    }
}

/// Why a schedule is paused.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct PauseSchedule {
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*$")]
    pub reason: Option<String>,
}

/// How a schedule is triggered: an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct TriggerSchedule {}

/// How a schedule is resumed: an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ResumeSchedule {}

/// A period whose instants are to run now.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Backfill {
    /// Its beginning, included.
    #[schema(format = DateTime)]
    pub from: String,
    /// Its end, included; not in the future.
    #[schema(format = DateTime)]
    pub to: String,
}

/// What a backfill will run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BackfillAnswer {
    /// How many instants of the period will run now, without those that have run already. When a
    /// backfill is withdrawn: how many will not run.
    pub instants: u64,
}

/// A recurring schedule.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// Its id.
    #[schema(value_type = ScheduleIdForm)]
    pub schedule_id: ScheduleId,
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// Its cron expression, if it has one.
    pub cron: Option<String>,
    /// Its interval, if it has one.
    pub interval_seconds: Option<Seconds>,
    /// The time zone of the expression.
    pub timezone: String,
    /// The task that every occurrence submits.
    pub task: NewTask,
    /// What happens while the previous task is live.
    pub overlap_policy: OverlapPolicy,
    /// What happens to missed instants.
    pub catchup: Catchup,
    /// How far back catching up goes.
    pub catchup_window_seconds: Seconds,
    /// What happens to local times that do not exist.
    pub dst_gap: DstGap,
    /// What happens to local times that exist twice.
    pub dst_fold: DstFold,
    /// What days 29 to 31 of `cron` mean in a shorter month.
    pub day_overflow: DayOverflow,
    /// Its tasks are due up to this much after their instants.
    pub jitter_seconds: Seconds,
    /// No instant is before it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub starts_at: Option<Timestamp>,
    /// No instant is after it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ends_at: Option<Timestamp>,
    /// It ends after this many runs.
    pub max_runs: Option<u64>,
    /// Whether a failure pauses it.
    pub pause_on_failure: bool,
    /// Whether it is paused.
    pub paused: bool,
    /// When it was paused.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub paused_at: Option<Timestamp>,
    /// Why it is paused.
    pub pause_reason: Option<String>,
    /// When it runs next; `null` while it is paused and after its end.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_run_at: Option<Timestamp>,
    /// The last instant that ran, without backfills.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_run_at: Option<Timestamp>,
    /// How many tasks it has made, without backfills. `max_runs` limits this number.
    pub run_count: u64,
    /// How many instants were missed, or coalesced into a later one.
    pub missed_count: u64,
    /// How many instants were skipped.
    pub skipped_count: u64,
    /// How often it was edited, paused or resumed, from 1; also its `ETag`.
    pub version: u64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it was edited, paused or resumed last.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

/// The record of an instant of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Occurrence {
    /// The instant.
    #[schema(value_type = String, format = DateTime)]
    pub instant: Timestamp,
    /// The outcome.
    pub outcome: Outcome,
    /// What caused it.
    pub origin: Origin,
    /// Why it had this outcome: a stable word for programs.
    pub reason: String,
    /// The same as a sentence for people.
    pub message: String,
    /// The task that was made for it.
    #[schema(value_type = Option<TaskIdForm>)]
    pub task_id: Option<TaskId>,
    /// When this was decided.
    #[schema(value_type = String, format = DateTime)]
    pub decided_at: Timestamp,
    /// Set if one record stands for many instants.
    pub covers: Option<Covers>,
}

/// The instants that one record stands for, itself included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Covers {
    /// They are before this instant.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// There are this many. Only records of earlier builds stand for more: those stopped counting
    /// at 10,001.
    pub at_least: u64,
}

/// An instant at which a schedule will run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpcomingRun {
    /// The instant.
    #[schema(value_type = String, format = DateTime)]
    pub run_at: Timestamp,
    /// The local time in the schedule's time zone.
    #[schema(example = "2026-03-29T03:00:00+02:00[Europe/Berlin]")]
    pub local: String,
}

words! {
    /// What happens to an instant while the previous task is live.
    OverlapPolicy is plan::Overlap {
        /// It does not run.
        Skip,
        /// It waits, but only one at a time.
        BufferOne,
        /// It waits. Waiting instants run one at a time, in order.
        BufferAll,
        /// The live task is asked to stop, and it runs when that has finished.
        CancelOther,
        /// The live task is ended at once, and it runs now.
        TerminateOther,
        /// It runs at the same time.
        AllowAll,
    }

    /// What happens to missed instants.
    Catchup is plan::CatchUp {
        /// None of them runs.
        None,
        /// The last of them runs, if it is within the window.
        Last,
        /// All within the window run.
        All,
    }

    /// What happens to a local time that does not exist.
    DstGap is CoreGap {
        /// It runs at the first instant after the gap.
        Shift,
        /// It does not run that day.
        Skip,
    }

    /// Which of two instants with the same local time runs.
    DstFold is CoreFold {
        /// The earlier.
        First,
        /// The later.
        Last,
        /// Both.
        Both,
    }

    /// What days 29 to 31 mean in a month that does not have them.
    DayOverflow is CoreOverflow {
        /// It does not run in that month.
        Skip,
        /// It runs on the last day of the month.
        Last,
    }

    /// The outcome of an instant.
    Outcome is core::OccurrenceOutcome {
        /// It waits for the previous task.
        Buffered,
        /// A task was made.
        Fired,
        /// It did not run, by the rules of the schedule.
        Skipped,
        /// No node was running at its time.
        Missed,
        /// A later instant runs in its place.
        Coalesced,
    }

    /// What caused an occurrence.
    Origin is plan::Origin {
        /// Its time came.
        Due,
        /// It was triggered by a request.
        Manual,
        /// It belongs to a backfill of a past period.
        Backfill,
    }
}

/// Fields of a schedule that cannot be written: ignored, so that a schedule that was read can be
/// written back.
const READ_ONLY: &[&str] = &[
    "schedule_id",
    "tenant",
    "paused_at",
    "pause_reason",
    "next_run_at",
    "last_run_at",
    "run_count",
    "missed_count",
    "skipped_count",
    "version",
    "created_at",
    "updated_at",
];

objects_only!(NewSchedule without READ_ONLY, SchedulePatch, PauseSchedule, ResumeSchedule, TriggerSchedule, Backfill);
