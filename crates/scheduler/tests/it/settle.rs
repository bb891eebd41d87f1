//! What pull workers say of the tasks they hold.

use std::time::Duration;

use punctual_core::failure::FailureCause;
use punctual_core::ids::TaskId;
use punctual_core::run_end::{RunEnd, RunFailure, RunOutcome};
use punctual_core::state::{By, Event, Failure, State, transition};
use punctual_core::store::Applied;
use punctual_core::trail::{Actor, RunError};
use punctual_scheduler::settle::{ExtendedLease, RunReport, SettleEffect, SettleRefusal, SettleResult, Settlement};
use punctual_testkit::fixtures::{TENANT, at, json, retry_policy, task};

use crate::harness::{Harness, NODE};

const COMPLETED: SettleResult = Ok(SettleEffect::ended(RunEnd::Completed));
const RETRIED: SettleResult = Ok(SettleEffect::ended(RunEnd::Retried));
const RELEASED: RunReport = RunReport::Ended(RunOutcome::Released { delay_millis: 0 });
const REPEATED: SettleResult = Ok(SettleEffect::REPEATED);
const CANCELLED: SettleResult = Err(SettleRefusal::Cancelled);
const NOT_FOUND: SettleResult = Err(SettleRefusal::NotFound);

const fn stale(state: State) -> SettleResult {
    Err(SettleRefusal::Stale { state })
}

fn completed(text: &str) -> RunReport {
    RunReport::Ended(RunOutcome::Completed { result: Some(json(text)), http_status: None, dropped: None })
}

fn failed(retryable: bool) -> RunReport {
    let error = RunError { code: "boom".into(), message: "it broke".into(), details: None };
    let (cause, http_status, retry_after_millis) = (FailureCause::Reported, None, None);
    RunReport::Ended(RunOutcome::Failed(RunFailure { cause, error, http_status, retryable, retry_after_millis }))
}

impl Harness {
    async fn running(&mut self) -> (TaskId, u64) {
        self.submit(task()).await;
        let leased = self.lease("default", 1).await.remove(0);
        (leased.id, leased.position.version)
    }

    async fn say(&self, id: TaskId, token: u64, report: RunReport) -> SettleResult {
        self.settler.settle(TENANT, vec![Settlement { id, token, report }]).await.unwrap().remove(0)
    }

    async fn cancel_if_waiting(&self, id: TaskId) {
        if self.task(id).await.state() == State::Pending {
            self.cancel(id).await;
        }
    }

    async fn cancel(&self, id: TaskId) {
        let by = By { now: punctual_testkit::fixtures::START, node: NODE, actor: Actor::Client };
        let change = transition(&self.task(id).await.position, Event::Cancel, &by).unwrap();
        assert!(matches!(self.store.apply(vec![(id, change)]).await.unwrap()[..], [Applied::Done(_)]));
    }
}

#[tokio::test]
async fn a_finished_task_wakes_the_cron_loop_if_a_schedule_waits() {
    let mut harness = Harness::new();
    for (waits, outcome, is_called) in
        [(false, completed("1"), false), (true, completed("1"), true), (true, failed(true), false)]
    {
        harness.cron.set_waiting(waits);
        let (id, token) = harness.running().await;
        harness.say(id, token, outcome).await.unwrap();
        let called = tokio::time::timeout(Duration::from_millis(1), harness.cron.wait()).await.is_ok();
        assert_eq!(called, is_called, "{waits}");
    }
}

#[tokio::test]
async fn a_completion_is_recorded_once_however_often_it_is_said() {
    let mut harness = Harness::new();
    let (id, token) = harness.running().await;
    assert_eq!(harness.say(id, token, completed("1")).await, COMPLETED);
    for _ in 0..3 {
        assert_eq!(harness.say(id, token, completed("1")).await, REPEATED);
    }
    assert_eq!(harness.say(id, token, completed("2")).await, stale(State::Completed));
    assert_eq!(harness.say(id, token, failed(true)).await, stale(State::Completed));
    let task = harness.task(id).await;
    assert_eq!((task.state(), task.position.version, task.result), (State::Completed, token + 1, Some(json("1"))));
}

#[tokio::test]
async fn a_failure_is_retried_and_its_repetition_changes_nothing() {
    let mut harness = Harness::new();
    let (id, token) = harness.running().await;
    assert_eq!(harness.say(id, token, failed(true)).await, RETRIED);
    assert_eq!(harness.say(id, token, failed(true)).await, REPEATED);
    let for_good = harness.say(id, token, failed(false)).await;
    assert_eq!(for_good, stale(State::Pending), "it is to be tried again");
    let waiting = harness.task(id).await;
    assert_eq!((waiting.state(), waiting.retry_count()), (State::Pending, 1));
    harness.clock.advance_millis(1_000);
    let again = harness.lease("default", 1).await.remove(0);
    assert!(again.position.version > token);
    // The first worker still repeats what was accepted, also while the second one runs.
    assert_eq!(harness.say(id, token, failed(true)).await, REPEATED);
    assert_eq!(harness.say(id, token, completed("1")).await, stale(State::Running));
    assert_eq!(harness.say(id, again.position.version, completed("1")).await, COMPLETED);
}

#[tokio::test]
async fn a_failure_not_worth_retrying_is_a_dead_letter() {
    let mut harness = Harness::new();
    let (id, token) = harness.running().await;
    assert_eq!(harness.say(id, token, failed(false)).await, Ok(SettleEffect::ended(RunEnd::DeadLettered)));
    assert_eq!(harness.task(id).await.state(), State::DeadLettered);
}

#[tokio::test]
async fn a_release_is_not_counted() {
    let mut harness = Harness::new();
    let (id, token) = harness.running().await;
    assert_eq!(harness.say(id, token, RELEASED).await, Ok(SettleEffect::ended(RunEnd::Released)));
    assert_eq!(harness.say(id, token, RELEASED).await, REPEATED);
    let task = harness.task(id).await;
    assert_eq!((task.state(), task.position.attempts), (State::Pending, 0));
}

#[tokio::test]
async fn a_heartbeat_extends_and_a_stale_one_does_not() {
    let mut harness = Harness::new();
    let (id, token) = harness.running().await;
    harness.clock.advance_millis(30_000);
    let beat = || RunReport::Heartbeat { progress: Some(json("0.5")), checkpoint: Some(json(r#"{"at":7}"#)) };
    let extended = ExtendedLease { lease_expires_at: at(90_000), timeout_at: at(300_000) };
    assert_eq!(harness.say(id, token, beat()).await, Ok(SettleEffect::extended(extended)));
    assert_eq!(harness.say(id, token - 1, beat()).await, stale(State::Running));
    assert_eq!(harness.say(TaskId::new(), token, beat()).await, NOT_FOUND);
    let task = harness.task(id).await;
    assert_eq!((task.progress, task.checkpoint), (Some(json("0.5")), Some(json(r#"{"at":7}"#))));
}

/// The worker must know that its work takes longer than the task allows.
#[tokio::test]
async fn a_run_past_its_timeout_is_told_so() {
    let mut harness = Harness::new();
    harness.submit(task().timeout_millis(90_000)).await;
    let leased = harness.lease("default", 1).await.remove(0);
    let (id, token) = (leased.id, leased.position.version);
    let beat = || RunReport::Heartbeat { progress: Some(json("1")), checkpoint: None };
    harness.clock.advance_millis(50_000);
    let extended = ExtendedLease { lease_expires_at: at(90_000), timeout_at: at(90_000) };
    assert_eq!(harness.say(id, token, beat()).await, Ok(SettleEffect::extended(extended)));
    harness.clock.advance_millis(40_000);
    let timed_out = |state| Err(SettleRefusal::TimedOut { state });
    assert_eq!(harness.say(id, token, beat()).await, timed_out(State::Running), "nobody has taken it back yet");

    // The reaper takes it back.
    let failure = Failure {
        cause: FailureCause::Timeout,
        error: RunError { code: "timeout".into(), message: "".into(), details: None },
        http_status: None,
        retryable: true,
        retry_after_millis: None,
        policy: retry_policy(),
        poison_after: 0,
        is_under_breaker: false,
        random: 0,
    };
    let by = By { now: at(90_000), node: NODE, actor: Actor::Reaper };
    let change = transition(&harness.task(id).await.position, Event::Fail(failure), &by).unwrap();
    assert!(matches!(harness.store.apply(vec![(id, change)]).await.unwrap()[..], [Applied::Done(_)]));
    for report in [beat(), completed("1"), failed(true), RELEASED] {
        assert_eq!(harness.say(id, token, report.clone()).await, timed_out(State::Pending), "{report:?}");
    }
    assert_eq!(harness.say(id, token - 1, beat()).await, stale(State::Pending), "a token that never ran");
}

#[tokio::test]
async fn a_worker_of_a_cancelled_task_learns_it_and_has_no_effect() {
    for outcome in [completed("1"), failed(true), RELEASED, RunReport::Heartbeat { progress: None, checkpoint: None }] {
        let mut harness = Harness::new();
        let (id, token) = harness.running().await;
        harness.cancel(id).await;
        assert_eq!(harness.task(id).await.state(), State::Running);
        assert_eq!(harness.say(id, token, outcome.clone()).await, CANCELLED);
        let task = harness.task(id).await;
        assert_eq!((task.state(), task.result), (State::Cancelled, None));
        assert_eq!(harness.say(id, token, outcome).await, CANCELLED);
    }
}

#[tokio::test]
async fn another_tenants_task_is_not_found() {
    let mut harness = Harness::new();
    let (id, token) = harness.running().await;
    let item = || Settlement { id, token, report: completed("1") };
    let answers = harness.settler.settle("somebody else", vec![item()]).await.unwrap();
    assert_eq!(answers, [NOT_FOUND]);
    assert_eq!(harness.task(id).await.state(), State::Running);
    assert_eq!(harness.settler.settle(TENANT, vec![item()]).await.unwrap(), [COMPLETED]);
}

#[tokio::test]
async fn a_batch_is_answered_item_by_item() {
    let mut harness = Harness::new();
    let (first, first_token) = harness.running().await;
    let (second, second_token) = harness.running().await;
    let items = vec![
        Settlement { id: first, token: first_token, report: completed("1") },
        Settlement { id: TaskId::new(), token: 3, report: completed("1") },
        Settlement { id: second, token: second_token, report: failed(true) },
        Settlement { id: second, token: second_token + 5, report: completed("1") },
        Settlement { id: first, token: first_token, report: completed("1") },
    ];
    let answers = harness.settler.settle(TENANT, items).await.unwrap();
    assert!(
        matches!(answers[..], [COMPLETED, NOT_FOUND, RETRIED, Err(SettleRefusal::Stale { .. }), REPEATED]),
        "{answers:?}"
    );
}

/// As if they came one after the other: nothing that is said of a run after its end has an effect,
/// whatever it is.
#[tokio::test]
async fn the_reports_of_a_batch_on_one_run_are_handled_in_order() {
    let beat = |progress: &str| RunReport::Heartbeat { progress: Some(json(progress)), checkpoint: None };
    let mut harness = Harness::new();
    for end in [completed("1"), failed(true), RELEASED] {
        let (id, token) = harness.running().await;
        let said = [beat("1"), beat("2"), end.clone(), beat("3"), completed("2"), failed(false), end.clone()];
        let items = said.into_iter().map(|report| Settlement { id, token, report }).collect();
        let answers = harness.settler.settle(TENANT, items).await.unwrap();
        let extended = |answer: &SettleResult| answer.is_ok_and(|settled| settled.extended.is_some());
        assert!(answers[..2].iter().all(extended), "{end:?}: {answers:?}");
        assert!(answers[2].is_ok_and(|settled| settled.end.is_some()), "{end:?}: {answers:?}");
        assert!(
            answers[3..6].iter().all(|answer| matches!(answer, Err(SettleRefusal::Stale { .. }))),
            "{end:?}: {answers:?}"
        );
        assert_eq!(answers[6], REPEATED, "{end:?}");
        let task = harness.task(id).await;
        assert_eq!((task.progress, task.position.version), (Some(json("2")), token + 1), "{end:?}");
        harness.cancel_if_waiting(id).await;
    }
}

#[tokio::test]
async fn a_heartbeat_revives_no_expired_lease_a_completion_counts() {
    let mut harness = Harness::new();
    let (id, token) = harness.running().await;
    harness.clock.advance_millis(60_000);
    let beat = RunReport::Heartbeat { progress: Some(json("1")), checkpoint: None };
    assert_eq!(harness.say(id, token, beat).await, stale(State::Running));
    assert_eq!(harness.task(id).await.progress, None);
    assert_eq!(harness.say(id, token, completed("1")).await, COMPLETED);
}
