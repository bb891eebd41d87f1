//! Laws 1, 2 and, for submissions, 18: every acknowledged task exists, and no other task does.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use punctual_core::ids::{ScheduleId, TaskId};

use super::Findings;
use super::law::Law;
use crate::history::{History, Op, RecordedCall};

/// Checks all submissions and all tasks.
pub fn check(history: &History, findings: &mut Findings) {
    let known: BTreeSet<TaskId> = history.dump.iter().map(|dumped| dumped.task).collect();
    let mut by_key: BTreeMap<&str, Vec<&RecordedCall>> = BTreeMap::new();
    for call in history.calls() {
        if let Op::Submit(submission) = &call.op {
            by_key.entry(&submission.key).or_default().push(call);
        }
    }
    kept(history, &known, findings);
    let tasks = tasks_by_key(history, &by_key, findings);
    for (key, calls) in by_key {
        findings.about = None;
        let acknowledged: BTreeSet<TaskId> =
            calls.iter().filter_map(|call| call.answer.shown().and_then(|shown| shown.task)).collect();
        findings.demand(acknowledged.len() <= 1, Law::NothingInvented, || {
            format!("submissions under the key {key:?} were answered with {acknowledged:?}")
        });
        let created = calls.iter().filter_map(|call| call.answer.shown()).filter(|shown| shown.status == 201).count();
        findings.demand(created <= 1, Law::NothingInvented, || {
            format!("{created} submissions under the key {key:?} were answered as new")
        });
        let accepted = || calls.iter().filter(|call| call.answer.shown().is_some()).map(|call| call.op.submission());
        let contents_differ = accepted().zip(accepted().skip(1)).any(|(one, next)| one != next);
        findings.demand(!contents_differ, Law::NothingInvented, || {
            format!("different tasks under the key {key:?} were all accepted: {calls:?}")
        });
        let refused = !calls.iter().any(|call| call.answer.may_have_happened());
        if let Some(tasks) = tasks.get(key) {
            findings.demand(!refused, Law::AnswersHold, || {
                format!("every submission under the key {key:?} was refused, but there is {tasks:?}")
            });
            findings.demand(tasks.len() == 1, Law::NothingInvented, || format!("the key {key:?} has {tasks:?}"));
        }
    }
}

/// Law 1.
fn kept(history: &History, known: &BTreeSet<TaskId>, findings: &mut Findings) {
    let mut demand = |task: TaskId, evidence: &dyn Fn() -> String| {
        findings.about = Some(task);
        findings.demand(known.contains(&task), Law::AcknowledgedIsKept, evidence);
    };
    for call in history.calls() {
        if let (Op::Submit(_), Some(task)) = (&call.op, call.answer.shown().and_then(|shown| shown.task)) {
            demand(task, &|| format!("is gone, but was acknowledged: {call:?}"));
        }
    }
    for grant in history.grants() {
        demand(grant.task, &|| format!("is gone, but a worker had it: {grant:?}"));
    }
    for arrival in history.arrivals() {
        demand(arrival.task, &|| format!("is gone, but was pushed: {arrival:?}"));
    }
}

/// The tasks under each key. Reports tasks without a submission.
fn tasks_by_key<'a>(
    history: &'a History,
    submitted: &BTreeMap<&str, Vec<&RecordedCall>>,
    findings: &mut Findings,
) -> HashMap<&'a str, Vec<TaskId>> {
    let mut tasks: HashMap<&str, Vec<TaskId>> = HashMap::new();
    for dumped in &history.dump {
        findings.about = Some(dumped.task);
        let key = dumped.key.as_deref().filter(|key| submitted.contains_key(key));
        let is_of = |schedule: ScheduleId| history.schedules.iter().any(|ours| ours.schedule == schedule);
        let is_scheduled = dumped.key.is_none() && dumped.scheduled.is_some_and(|(schedule, _)| is_of(schedule));
        findings.demand(key.is_some() || is_scheduled, Law::NothingInvented, || {
            format!("no submission has the key {:?}", dumped.key)
        });
        if let Some(key) = key {
            tasks.entry(key).or_default().push(dumped.task);
        }
    }
    tasks
}
