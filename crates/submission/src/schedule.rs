//! Checks a schedule that its owner sent, and makes the definition that is stored. Pure: the caller
//! gives the time.
//!
//! Called by the routes that create, replace, edit and preview schedules. Invariant: one call
//! reports every fault, and the task of a schedule that passes could be submitted now.

use punctual_client as wire;
use punctual_client::NewSchedule;
use punctual_core::cron::{
    CronError, CronExpression, DayOverflow, DstGap, Interval, Pattern, Timing, TimingRules, Zone,
};
use punctual_core::ids::NodeId;
use punctual_core::json::Json;
use punctual_core::schedules::Definition;
use punctual_core::schedules::plan::Spec;
use punctual_core::time::Timestamp;

use crate::faults::Faults;
use crate::nearest::nearest;
use crate::{BatchContext, SubmissionRules, TaskValidator};

/// A day: the longest jitter.
const DAY_MILLIS: u64 = 86_400_000;
/// The longest window of catching up: a year.
const WINDOW_MAX_MILLIS: u64 = 366 * DAY_MILLIS;
/// The window of a schedule that gives none.
const WINDOW_MILLIS: u64 = 3_600_000;
/// The maximum of `max_runs`.
const RUNS_MAX: u64 = 1_000_000_000_000;

/// Checks the schedules of one request.
pub struct ScheduleValidator<'a> {
    /// The rules for their tasks.
    pub rules: &'a SubmissionRules,
    /// Their tenant.
    pub tenant: &'a str,
    /// The time of the request.
    pub now: Timestamp,
    /// This process.
    pub node: NodeId,
    /// When the schedule was created: an interval without a start counts from there.
    pub created_at: Timestamp,
}

/// A schedule that may be stored.
#[derive(Debug)]
pub struct CheckedSchedule {
    /// Its name.
    pub name: String,
    /// What its owner wrote, without the pause.
    pub definition: Definition,
    /// Whether it is to be paused; none leaves it as it is.
    pub paused: Option<bool>,
}

impl ScheduleValidator<'_> {
    /// The schedule to store for a request; none only with a fault.
    pub fn check(&self, faults: &mut Faults, new: NewSchedule) -> Option<CheckedSchedule> {
        match &new.name {
            Some(name) => faults.name("/name", name),
            None => faults.add("/name", "is required"),
        }
        let spec = self.spec(faults, &new);
        let task = if let Some(task) = &new.task {
            self.task(faults, task)
        } else {
            faults.add("/task", "is required: what every occurrence submits, as for POST /v1/tasks");
            None
        };
        if !faults.is_empty() {
            return None;
        }
        let definition =
            Definition { spec: spec?, pause_on_failure: new.pause_on_failure.unwrap_or(false), task: task? };
        Some(CheckedSchedule { name: new.name?, definition, paused: new.paused })
    }

    /// The spec of a schedule that is only previewed: it needs neither a name nor a task. None only
    /// with a fault.
    pub fn check_preview(&self, faults: &mut Faults, new: &NewSchedule) -> Option<Spec> {
        if let Some(name) = &new.name {
            faults.name("/name", name);
        }
        let spec = self.spec(faults, new);
        if let Some(task) = &new.task {
            self.task(faults, task);
        }
        spec.filter(|_| faults.is_empty())
    }

    /// Refuses a schedule that has no instant after now.
    pub fn check_instants(&self, faults: &mut Faults, spec: &Spec) {
        if spec.timing.next_after(self.now).is_some() {
            return;
        }
        let rules = &spec.timing.rules;
        match (&spec.timing.pattern, rules.ends_at) {
            (_, Some(_)) => faults.add("/ends_at", "leaves no instant to come; give a later one, or none"),
            (Pattern::Interval(_), None) => {
                faults.add("/starts_at", "leaves no instant to come; give an earlier one, or none");
            }
            (Pattern::Cron(_), None) if rules.dst_gap == DstGap::Skip => faults.add(
                "/cron",
                "has no instant to come: its local times are in gaps where clocks are put forward, and dst_gap is skip",
            ),
            (Pattern::Cron(_), None) => faults.add("/cron", "has no instant to come"),
        }
    }

    /// The spec; none only with a fault.
    fn spec(&self, faults: &mut Faults, new: &NewSchedule) -> Option<Spec> {
        let starts_at = new.starts_at.as_deref().and_then(|text| faults.instant("/starts_at", text));
        let ends_at = new.ends_at.as_deref().and_then(|text| faults.instant("/ends_at", text));
        if let (Some(start), Some(end)) = (starts_at, ends_at)
            && end < start
        {
            faults.add("/ends_at", "must not be before starts_at");
        }
        let pattern = pattern(faults, new, starts_at, self.created_at);
        let zone = match new.timezone.as_deref().map(Zone::named).transpose() {
            Ok(zone) => zone.unwrap_or_default(),
            Err(fault) => {
                let name = new.timezone.as_deref().unwrap_or_default();
                faults.add("/timezone", format!("{fault}{}", zone_meant(name)));
                Zone::default()
            }
        };
        let window = faults.seconds("/catchup_window_seconds", new.catchup_window_seconds, WINDOW_MAX_MILLIS);
        let jitter = faults.seconds("/jitter_seconds", new.jitter_seconds, DAY_MILLIS);
        if new.max_runs.is_some_and(|runs| !(1..=RUNS_MAX).contains(&runs)) {
            faults.add("/max_runs", format!("must be a whole number from 1 to {RUNS_MAX}"));
        }
        let rules = TimingRules {
            zone,
            dst_gap: new.dst_gap.map(Into::into).unwrap_or_default(),
            dst_fold: new.dst_fold.map(Into::into).unwrap_or_default(),
            day_overflow: day_overflow(new),
            starts_at,
            ends_at,
        };
        Some(Spec {
            timing: Timing { pattern: pattern?, rules },
            overlap: new.overlap_policy.map(Into::into).unwrap_or_default(),
            catchup: new.catchup.map(Into::into).unwrap_or_default(),
            catchup_window_millis: window.unwrap_or(WINDOW_MILLIS),
            jitter_millis: jitter.unwrap_or(0),
            max_runs: new.max_runs,
            paused: false,
        })
    }

    /// The task as it is stored; none only with a fault.
    fn task(&self, faults: &mut Faults, task: &wire::NewTask) -> Option<Json> {
        let given = [
            ("execute_at", task.execute_at.is_some(), "the schedule says when its tasks run"),
            ("delay_seconds", task.delay_seconds.is_some(), "the schedule says when its tasks run"),
            ("expires_at", task.expires_at.is_some(), "one instant cannot hold for every occurrence"),
            ("idempotency_key", task.idempotency_key.is_some(), "each occurrence is another task"),
            ("depends_on", task.depends_on.is_some(), "a task of a schedule waits for no other"),
            ("on_dependency_failure", task.on_dependency_failure.is_some(), "a task of a schedule waits for no other"),
        ];
        debug_assert!(given.iter().map(|(name, ..)| *name).eq(wire::schedule::NOT_SCHEDULED), "as the document says");
        for (name, _, why) in given.iter().filter(|(_, is_given, _)| *is_given) {
            faults.add(format!("/task/{name}"), format!("must be left out: {why}"));
        }
        // What must be left out is not checked, nor are the others against it.
        let rest = wire::NewTask {
            execute_at: None,
            delay_seconds: None,
            expires_at: None,
            idempotency_key: None,
            depends_on: None,
            on_dependency_failure: None,
            ..task.clone()
        };
        let mut of_task = Faults::default();
        let validator = TaskValidator::new(self.rules, self.tenant, self.now, self.node);
        validator.check(&mut of_task, rest, None, &BatchContext::none());
        faults.extend_under("/task", of_task);
        if !faults.is_empty() {
            return None;
        }
        let text = serde_json::to_string(task).expect("invariant: a task that was read can be written");
        // The payload is one level deeper in it, and documents have a greatest depth.
        Json::parse(&text).map_err(|_| faults.add("/task/payload", "has one level too many to be stored")).ok()
    }
}

/// The rule for days that a month does not have.
fn day_overflow(new: &NewSchedule) -> DayOverflow {
    new.day_overflow.map(Into::into).unwrap_or_default()
}

/// The pattern; none only with a fault.
fn pattern(
    faults: &mut Faults,
    new: &NewSchedule,
    starts_at: Option<Timestamp>,
    created_at: Timestamp,
) -> Option<Pattern> {
    match (&new.cron, new.interval_seconds) {
        (Some(_), Some(_)) => {
            faults.add("/interval_seconds", "must not be given together with cron");
            None
        }
        (None, None) if faults.is_left_out("/interval_seconds") => None,
        (None, None) => {
            faults.add("/cron", "is required, or interval_seconds instead");
            None
        }
        (Some(text), None) => {
            let cron = CronExpression::parse_with(text, day_overflow(new));
            cron.map_err(|fault| faults.add("/cron", cron_fault(text, &fault))).ok().map(Pattern::Cron)
        }
        (None, Some(every)) => {
            // A value that is no duration is out of range too.
            let millis = every.to_millis_within(0, u64::MAX).unwrap_or(0);
            // It counts from `starts_at`, and has no instant before the schedule was there.
            let interval = Interval::new(millis, starts_at.unwrap_or(created_at));
            let interval = interval.map(|interval| interval.starting_after(created_at));
            interval.map_err(|fault| faults.add("/interval_seconds", fault.to_string())).ok().map(Pattern::Interval)
        }
    }
}

/// What is wrong with an expression. If it only lacks the rule for short months, that is said.
fn cron_fault(text: &str, fault: &CronError) -> String {
    let overflows = *fault == CronError::Impossible && CronExpression::parse_with(text, DayOverflow::Last).is_ok();
    if overflows { format!("{fault}, or set day_overflow to last") } else { fault.to_string() }
}

/// The end of the fault of a time zone: the zone that was probably meant. Besides misspelt names
/// these are cities alone, and names with a distance from UTC behind them.
fn zone_meant(text: &str) -> String {
    let names = Zone::names();
    let written = text.trim().replace(' ', "_");
    let without_distance =
        written.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':').trim_end_matches(['+', '-']);
    let is_city = |name: &&String| {
        !name.starts_with("Etc/") && name.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(&written))
    };
    let is_name = |name: &&String| name.eq_ignore_ascii_case(without_distance);
    let meant = names.iter().find(is_city).or_else(|| names.iter().find(is_name));
    // Abbreviations are near to others that mean another time, and the sign of Etc/GMT+1 is the
    // opposite of what people mean: only names of places are compared.
    let places = names.iter().filter(|name| name.contains('/') && !name.starts_with("Etc/")).map(String::as_str);
    let meant = meant.map(String::as_str).or_else(|| nearest(&written, places));
    meant.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_zone_has_a_nearest_one() {
        for (text, name) in [
            ("Europe/Berln", "Europe/Berlin"),
            ("Berlin", "Europe/Berlin"),
            ("America/New York", "America/New_York"),
            ("new_york", "America/New_York"),
            ("CET+1", "CET"),
            ("Europe-Berlin", "Europe/Berlin"),
        ] {
            assert_eq!(zone_meant(text), format!("; did you mean `{name}`?"), "{text}");
        }
        for text in ["", "+02:00", "PST", "IST", "MSK", "Mars/Olympus", &"x".repeat(1_000)] {
            assert_eq!(zone_meant(text), "", "{text}");
        }
    }
}
