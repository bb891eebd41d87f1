//! Law 11: every instant of a schedule has one record, which names one task, and every task has a
//! record. And law 7: no task begins before its instant.
//!
//! The schedules of a trial fire at every full second, whichever node leads and however late.

use std::collections::{BTreeMap, HashMap};

use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;

use super::Findings;
use super::law::Law;
use crate::history::{Dumped, History, Occurred, Scheduled};

/// The interval between the instants of a schedule.
const EVERY_MILLIS: i64 = 1_000;

/// Checks all schedules.
pub fn check(history: &History, findings: &mut Findings) {
    for scheduled in &history.schedules {
        let of_it = |dumped: &&Dumped| dumped.scheduled.is_some_and(|(schedule, _)| schedule == scheduled.schedule);
        let tasks: HashMap<TaskId, &Dumped> =
            history.dump.iter().filter(of_it).map(|dumped| (dumped.task, dumped)).collect();
        let mut records: BTreeMap<Timestamp, Vec<&Occurred>> = BTreeMap::new();
        for record in &scheduled.occurrences {
            records.entry(record.instant).or_default().push(record);
        }
        findings.about = None;
        recorded(scheduled, &records, findings);
        has_its_task(&records, &tasks, findings);
        for dumped in tasks.values() {
            findings.about = Some(dumped.task);
            has_its_record(dumped, &records, findings);
            is_not_early(dumped, findings);
        }
    }
}

/// Every instant has its record, and there is no other record.
fn recorded(scheduled: &Scheduled, records: &BTreeMap<Timestamp, Vec<&Occurred>>, findings: &mut Findings) {
    let full = |at: Timestamp| Timestamp::from_millis(at.as_millis().div_euclid(EVERY_MILLIS) * EVERY_MILLIS);
    let mut instant = full(scheduled.created_at).plus_millis(EVERY_MILLIS);
    while instant <= scheduled.until {
        findings.demand(records.contains_key(&instant), Law::EachInstantOnce, || {
            format!("{instant} has no record, from {} to {}", scheduled.created_at, scheduled.until)
        });
        instant = instant.plus_millis(EVERY_MILLIS);
    }
    for instant in records.keys() {
        let is_wanted = *instant == full(*instant) && *instant >= scheduled.created_at;
        findings.demand(is_wanted, Law::EachInstantOnce, || format!("{instant} is not an instant of the schedule"));
    }
}

/// A record is the only one of its instant, and its task exists and was made for that instant.
fn has_its_task(
    records: &BTreeMap<Timestamp, Vec<&Occurred>>,
    tasks: &HashMap<TaskId, &Dumped>,
    findings: &mut Findings,
) {
    for (instant, records) in records {
        let task = records.first().and_then(|record| tasks.get(&record.task?));
        let stands_for_it = task.and_then(|task| task.scheduled).is_some_and(|(_, stands_for)| stands_for == *instant);
        findings.demand(records.len() == 1 && stands_for_it, Law::EachInstantOnce, || {
            format!("{instant} has the records {records:?} and the task {task:?}")
        });
    }
}

/// A task is named by the record of its instant.
fn has_its_record(dumped: &Dumped, records: &BTreeMap<Timestamp, Vec<&Occurred>>, findings: &mut Findings) {
    let records = dumped.scheduled.and_then(|(_, instant)| records.get(&instant));
    let is_named = records.is_some_and(|records| records.iter().any(|record| record.task == Some(dumped.task)));
    findings.demand(is_named, Law::EachInstantOnce, || {
        format!("not named by the records of its instant {records:?}: {dumped:?}")
    });
}

fn is_not_early(dumped: &Dumped, findings: &mut Findings) {
    let claimed = dumped.trail.iter().find(|step| step.is("claimed"));
    let early = claimed.zip(dumped.scheduled).filter(|(claimed, (_, instant))| claimed.at < *instant);
    findings.demand(early.is_none(), Law::NeverEarly, || format!("claimed before its instant: {early:?}"));
}
