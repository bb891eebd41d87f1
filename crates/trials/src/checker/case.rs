//! Everything that is known about one task.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use punctual_core::ids::TaskId;
use punctual_core::state::State;
use punctual_core::time::Timestamp;

use crate::history::{
    Arrival, CallAnswer, Dumped, Grant, History, Op, RecordedCall, Stamp, Submission, TrailStep, WorkerReport,
};

/// One task, with everything that the history has about it.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The task.
    pub task: TaskId,
    /// The submissions under its key.
    pub submits: Vec<&'a RecordedCall>,
    /// All other calls about it.
    pub calls: Vec<&'a RecordedCall>,
    /// The leases that workers got for it.
    pub grants: Vec<&'a Grant>,
    /// The webhooks that arrived for it.
    pub arrivals: Vec<&'a Arrival>,
    /// Its final state.
    pub dumped: Option<&'a Dumped>,
    /// By how much a server's clock may be behind.
    pub lag_millis: i64,
}

/// Every task that any actor has seen, in the order of ids.
pub fn cases(history: &History) -> Vec<Case<'_>> {
    let mut cases: BTreeMap<TaskId, Case<'_>> = BTreeMap::new();
    let mut by_key: HashMap<&str, Vec<&RecordedCall>> = HashMap::new();
    for call in history.calls() {
        match (&call.op, call.answer.shown().and_then(|shown| shown.task)) {
            (Op::Submit(submission), shown) => {
                by_key.entry(&submission.key).or_default().push(call);
                if let Some(task) = shown {
                    case(&mut cases, task);
                }
            }
            (op, _) => {
                let task = op.task().expect("invariant: only a submission does not name its task");
                case(&mut cases, task).calls.push(call);
            }
        }
    }
    for grant in history.grants() {
        case(&mut cases, grant.task).grants.push(grant);
    }
    for arrival in history.arrivals() {
        case(&mut cases, arrival.task).arrivals.push(arrival);
    }
    for dumped in &history.dump {
        let case = case(&mut cases, dumped.task);
        case.dumped = Some(dumped);
        case.submits = dumped.key.as_deref().and_then(|key| by_key.get(key)).cloned().unwrap_or_default();
    }
    cases.into_values().map(|case| Case { lag_millis: history.lag_millis, ..case }).collect()
}

fn case<'c, 'a>(cases: &'c mut BTreeMap<TaskId, Case<'a>>, task: TaskId) -> &'c mut Case<'a> {
    cases.entry(task).or_insert_with(|| Case {
        task,
        submits: Vec::new(),
        calls: Vec::new(),
        grants: Vec::new(),
        arrivals: Vec::new(),
        dumped: None,
        lag_millis: 0,
    })
}

impl<'a> Case<'a> {
    /// Its steps, oldest first; empty when it is gone.
    pub fn trail(&self) -> &'a [TrailStep] {
        self.dumped.map_or(&[], |dumped| &dumped.trail)
    }

    /// The step that brought it to this version.
    pub fn step(&self, version: u64) -> Option<&'a TrailStep> {
        self.trail().iter().find(|step| step.version == version)
    }

    /// The submission of the task. If its key was used for different tasks, the one that was
    /// accepted.
    pub fn submission(&self) -> Option<&'a Submission> {
        let accepted = self.submits.iter().find(|call| call.answer.shown().is_some());
        let possible = || self.submits.iter().find(|call| call.answer.may_have_happened());
        accepted.or_else(possible).and_then(|call| call.op.submission())
    }

    /// Every delivery of it, by lease or webhook.
    pub fn deliveries(&self) -> impl Iterator<Item = HeldRun> {
        let leased = self.grants.iter().map(|grant| HeldRun {
            token: grant.token,
            attempt: grant.attempt,
            at: grant.got,
            asked: Some(grant.asked),
        });
        let pushed = self.arrivals.iter().map(|arrival| HeldRun {
            token: arrival.token,
            attempt: arrival.attempt,
            at: arrival.at,
            asked: None,
        });
        leased.chain(pushed)
    }

    /// What workers reported about it.
    pub fn settles(&self) -> impl Iterator<Item = SettleCall<'a>> {
        self.calls.iter().filter_map(|call| match &call.op {
            Op::Settle { worker, token, report, .. } => {
                Some(SettleCall { worker, token: *token, report: *report, call })
            }
            _ => None,
        })
    }

    /// The end of the lease under `token`, as the server last answered its worker.
    pub fn promised_until(&self, token: u64) -> Option<Timestamp> {
        let granted = self.grants.iter().filter(|grant| grant.token == token).map(|grant| grant.expires_at);
        let extended = self.settles().filter(|settle| settle.token == token);
        granted.chain(extended.filter_map(|settle| settle.call.answer.shown()?.lease_expires_at)).max()
    }

    /// The trail in a line, for evidence.
    pub fn summary(&self) -> String {
        let mut text = String::from("trail");
        for TrailStep { at, to, actor, reason, version, .. } in self.trail() {
            write!(text, " · {version} {reason} → {} by {actor} at {at}", to.as_str())
                .expect("invariant: writing to a string succeeds");
        }
        text
    }
}

/// A run that a worker or a target holds.
#[derive(Clone, Copy, Debug)]
pub struct HeldRun {
    pub token: u64,
    pub attempt: u32,
    /// When it arrived.
    pub at: Stamp,
    /// When the worker began to ask for it; none for a webhook.
    pub asked: Option<Stamp>,
}

/// A worker's call that reports about a run.
#[derive(Clone, Copy, Debug)]
pub struct SettleCall<'a> {
    pub worker: &'a str,
    pub token: u64,
    pub report: WorkerReport,
    pub call: &'a RecordedCall,
}

impl SettleCall<'_> {
    /// Whether it was answered with 2xx.
    pub fn accepted(&self) -> bool {
        matches!(self.call.answer, CallAnswer::Ok(_))
    }

    /// Whether `step` is the effect of this report when it is accepted.
    pub fn is_recorded_by(&self, step: &TrailStep) -> bool {
        let by_worker = step.actor.starts_with("worker");
        match self.report {
            WorkerReport::Completed => step.reason == "completed",
            WorkerReport::Released => by_worker && step.reason == "given_back",
            WorkerReport::Failed | WorkerReport::FailedForGood => by_worker && step.is_failure(),
            WorkerReport::Heartbeat => false,
        }
    }
}

/// The reasons of steps that are not failures.
const NO_FAILURES: [&str; 11] = [
    "submitted",
    "claimed",
    "started",
    "completed",
    "given_back",
    "cancel_requested",
    "cancelled",
    "expired",
    "edited",
    "run_now",
    "redriven",
];

impl TrailStep {
    /// Whether a run ended without completing. The reason is then the worker's error code.
    pub(super) fn is_failure(&self) -> bool {
        self.from == Some(State::Running)
            && matches!(self.to, State::Pending | State::DeadLettered)
            && !NO_FAILURES.contains(&self.reason.as_str())
    }

    pub(super) fn is(&self, reason: &str) -> bool {
        self.reason == reason
    }
}
