//! What fails nearly always is left alone, and tried once in a while.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::breakers::{BreakerChange, BreakerEvent, BreakerKey, Breakers, FailedProbe, OpenBreaker, Runs};
use punctual_core::failure::FailureCause;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::{LaneKey, Route};
use punctual_core::queues::{Pause, QueueChange, Queues, Settings};
use punctual_core::retry::RetryPolicy;
use punctual_core::run_end::{RunEnd, RunFailure, RunOutcome};
use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::Store as _;
use punctual_core::task::Task;
use punctual_core::trail::{Actor, RunError};
use punctual_scheduler::breakers::{BreakerWatch, Circuits, Config, EndedRun};
use punctual_scheduler::hints::Hints;
use punctual_scheduler::ownership::OwnedPartitions;
use punctual_scheduler::polls::PollFilter;
use punctual_scheduler::settle::{RunReport, SettleEffect, SettleRefusal, Settlement};
use punctual_testkit::fixtures::{START, TENANT, retry_policy, task};

use crate::harness::{BREAKERS, Harness, PROBE_MILLIS, poll_once, request};

const DEAD: &str = "http://dead.example:80";
const WELL: &str = "http://well.example:80";

fn ended(target: &str, task: TaskId, end: RunEnd) -> EndedRun<'_> {
    let error = end.is_failure().then(|| "connection refused".into());
    EndedRun { tenant: TENANT, target, task, end, error }
}

/// What a worker reports about a task that it holds.
fn settlement(task: &Task, outcome: RunOutcome) -> Settlement {
    Settlement { id: task.id, token: task.position.version, report: RunReport::Ended(outcome) }
}

fn failed(retryable: bool, retry_after_millis: Option<u64>) -> RunOutcome {
    let error = RunError { code: "e".into(), message: "m".into(), details: None };
    RunOutcome::Failed(RunFailure {
        cause: FailureCause::Reported,
        error,
        http_status: None,
        retryable,
        retry_after_millis,
    })
}

/// A lane of webhooks to a target.
fn lane(target: &str) -> LaneKey {
    let route = Route::Push(target.to_owned());
    LaneKey { tenant: TENANT.into(), queue: "q".into(), kind: "t".into(), priority: 5, route }
}

/// Counts so many runs with this end.
fn count(circuits: &Circuits, target: &str, end: RunEnd, times: usize) {
    circuits.count((0..times).map(|_| ended(target, TaskId::new(), end)));
}

impl Harness {
    /// Another node on the same store.
    fn node(&self, number: u64) -> (Arc<Circuits>, BreakerWatch) {
        let config = Config { confirm: Duration::from_millis(2_500), ..BREAKERS };
        let circuits = Self::circuits_in(&self.sqlite, &Arc::new(OwnedPartitions::everything()));
        let (store, clock, shared) = (Arc::clone(&self.sqlite), Arc::clone(&self.clock), Arc::clone(&circuits));
        let hints = Arc::new(Hints::default());
        (circuits, BreakerWatch::new(store as _, shared, hints, clock as _, NodeId::new(number), config))
    }

    /// Fails enough runs at a target to open its breaker.
    async fn open_breaker(&mut self, target: &str) {
        count(&self.circuits, target, RunEnd::Retried, 20);
        self.watch.run_once().await.unwrap();
        self.passes().await;
    }

    async fn open(&self) -> Vec<OpenBreaker> {
        self.sqlite.list_breakers(None, 100).await.unwrap()
    }

    /// Advances the store's clock and this node's.
    async fn advance(&mut self, millis: i64) {
        self.clock.advance_millis(millis);
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.passes().await;
    }

    /// Reports the end of a run under its target's breaker.
    async fn report(&mut self, target: &str, task: TaskId, end: RunEnd) {
        self.circuits.count([ended(target, task, end)]);
        self.watch.run_once().await.unwrap();
        self.passes().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_target_holds_up_only_its_own_tasks() {
    let mut harness = Harness::new();
    harness.open_breaker(DEAD).await;
    let held = harness.submit_all((0..3).map(|_| task().push(DEAD))).await;
    let well = harness.submit(task().push(WELL)).await;
    let of_other = harness.submit(task().tenant("other").push(DEAD)).await;
    harness.passes().await;
    let mut published = harness.published().await;
    published.sort_unstable();
    let mut expected = [well, of_other];
    expected.sort_unstable();
    assert_eq!(published, expected);
    harness.advance(PROBE_MILLIS - 1).await;
    assert_eq!(harness.depth().await, 0);
    for id in held {
        let held = harness.task(id).await;
        assert_eq!((held.state(), held.position.attempts), (State::Pending, 0));
    }
    let breakers = harness.open().await;
    assert_eq!(breakers.len(), 1, "{breakers:?}");
    assert_eq!(breakers[0].key, BreakerKey::new(TENANT, DEAD));
    assert_eq!(breakers[0].runs, Runs { ok: 0, failed: 20 });
    assert_eq!(breakers[0].reason, "20 of 20 runs to the target failed within 300 seconds");
    assert_eq!((harness.circuits.open().len(), harness.circuits.opened()), (1, 1));
}

/// Some of them are due when it opens, others are not.
#[tokio::test(start_paused = true)]
async fn tasks_that_waited_before_it_opened_are_held_up_too() {
    let mut harness = Harness::new();
    let tasks = harness.submit_all((0..5).map(|_| task().push(DEAD))).await;
    let later = harness.submit(task().queue("later").push(DEAD).due(START.plus_millis(5_000))).await;
    harness.passes().await;
    // As many as there are slots are on their way and may end.
    assert_eq!(harness.published().await, tasks[..2]);
    harness.open_breaker(DEAD).await;
    harness.advance(10_000).await;
    assert_eq!(harness.depth().await, 0);
    assert_eq!(harness.task(later).await.position.attempts, 0);
    assert_eq!(harness.task(tasks[4]).await.position.attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_succeeds_closes_the_breaker() {
    let mut harness = Harness::new();
    harness.open_breaker(DEAD).await;
    harness.submit_all((0..2).flat_map(|_| [task().push(DEAD), task().queue("other").push(DEAD)])).await;
    harness.advance(PROBE_MILLIS).await;
    let first = harness.published().await;
    assert_eq!(first.len(), 1);
    harness.advance(PROBE_MILLIS - 1).await;
    assert_eq!(harness.published().await, [], "there is one probe at a time");
    let breaker = harness.open().await.remove(0);
    assert_eq!((breaker.half_open, breaker.probe), (true, Some(first[0])));
    // The first never ends, and is followed by the next.
    harness.advance(1).await;
    let second = harness.published().await;
    assert_eq!(second.len(), 1);
    harness.report(DEAD, TaskId::new(), RunEnd::Completed).await;
    assert_eq!(harness.open().await.len(), 1, "only a probe closes it");
    harness.report(DEAD, second[0], RunEnd::Completed).await;
    assert_eq!(harness.open().await, []);
    assert_eq!(harness.published().await.len(), 2, "the rest goes on");
    // What led to it is forgotten: one failure more does not open it again.
    harness.report(DEAD, TaskId::new(), RunEnd::Retried).await;
    assert_eq!(harness.open().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_is_followed_by_the_next_in_its_time() {
    let mut harness = Harness::new();
    harness.open_breaker(DEAD).await;
    harness.submit_all((0..3).map(|_| task().push(DEAD))).await;
    harness.advance(PROBE_MILLIS).await;
    let probe = harness.published().await.remove(0);
    harness.report(DEAD, probe, RunEnd::Retried).await;
    let breaker = harness.open().await.remove(0);
    assert_eq!((breaker.half_open, breaker.probe), (false, None));
    assert_eq!(breaker.next_probe_at, START.plus_millis(2 * PROBE_MILLIS));
    assert_eq!(breaker.runs.failed, 20, "what ends under an open breaker is not counted");
    let why = FailedProbe { at: START.plus_millis(PROBE_MILLIS), error: "connection refused".to_owned() };
    assert_eq!(breaker.last_probe, Some(why));
    harness.advance(PROBE_MILLIS - 1).await;
    assert_eq!(harness.depth().await, 0);
    harness.advance(1).await;
    let probe = harness.published().await.remove(0);
    harness.report(DEAD, probe, RunEnd::Accepted).await;
    assert_eq!(harness.open().await, [], "a target that takes work on is well");
}

/// Runs may last for longer than it is until the next probe.
#[tokio::test(start_paused = true)]
async fn an_overtaken_probe_still_counts() {
    let mut harness = Harness::new();
    harness.open_breaker(DEAD).await;
    harness.submit_all((0..5).map(|_| task().push(DEAD))).await;
    let mut probes = Vec::new();
    for _ in 0..3 {
        harness.advance(PROBE_MILLIS).await;
        probes.append(&mut harness.published().await);
    }
    assert_eq!(probes.len(), 3);
    harness.report(DEAD, probes[1], RunEnd::Retried).await;
    let breaker = harness.open().await.remove(0);
    let why = FailedProbe { at: START.plus_millis(3 * PROBE_MILLIS), error: "connection refused".to_owned() };
    assert_eq!((breaker.probe, breaker.last_probe), (Some(probes[2]), Some(why)));
    harness.report(DEAD, probes[0], RunEnd::Completed).await;
    assert_eq!(harness.open().await, []);
    assert_eq!(harness.published().await.len(), 2, "the rest goes on");
}

/// Or workers whose polls end just then would put the next one off by a period each time.
#[tokio::test(start_paused = true)]
async fn a_probe_that_was_not_taken_is_made_again_soon() {
    let mut harness = Harness::new();
    count(&harness.circuits, "", RunEnd::Retried, 20);
    harness.watch.run_once().await.unwrap();
    let id = harness.submit(task().queue("q")).await;
    let polls = harness.polls.clone();
    let mut polled = Box::pin(polls.poll(request(PollFilter::Queues(vec!["q".into()]), 1, Duration::from_secs(30))));
    // Polled once, so that the worker waits; it disconnects while the probe is on its way.
    assert!(poll_once(&mut polled).is_none());
    harness.advance(PROBE_MILLIS).await;
    assert_eq!(harness.task(id).await.state(), State::Running);
    drop(polled);
    harness.passes().await;
    harness.watch.run_once().await.unwrap();
    assert_eq!(harness.open().await[0].next_probe_at, START.plus_millis(PROBE_MILLIS + 1_000));
    harness.advance(1_000).await;
    harness.watch.run_once().await.unwrap();
    let probe = harness.lease("q", 1).await.remove(0);
    harness.settler.settle(TENANT, vec![settlement(&probe, RunOutcome::Released { delay_millis: 0 })]).await.unwrap();
    harness.watch.run_once().await.unwrap();
    let breaker = harness.open().await.remove(0);
    assert_eq!((breaker.half_open, breaker.probe), (false, None));
    let in_its_time = START.plus_millis(PROBE_MILLIS + 1_000 + PROBE_MILLIS);
    assert_eq!(breaker.next_probe_at, in_its_time, "or a worker that always gives back would get one every second");
    // So is one that was cancelled on the way.
    harness.advance(PROBE_MILLIS).await;
    harness.watch.run_once().await.unwrap();
    let probe = harness.lease("q", 1).await.remove(0);
    let by = By { now: START, node: NodeId::new(1), actor: Actor::Client };
    let cancel = transition(&harness.task(id).await.position, Event::Cancel, &by).unwrap();
    harness.sqlite.apply(vec![(id, cancel)]).await.unwrap();
    let completed = settlement(&probe, RunOutcome::Completed { result: None, http_status: None, dropped: None });
    assert_eq!(harness.settler.settle(TENANT, vec![completed]).await.unwrap(), [Err(SettleRefusal::Cancelled)]);
    harness.watch.run_once().await.unwrap();
    let breaker = harness.open().await.remove(0);
    assert_eq!((breaker.half_open, breaker.probe), (false, None));
    // What is given back under no breaker counts neither way.
    harness.sqlite.change_breaker(&breaker.key, BreakerEvent::Reset).await.unwrap();
    harness.watch.run_once().await.unwrap();
    count(&harness.circuits, "", RunEnd::Retried, 1);
    count(&harness.circuits, "", RunEnd::GivenBack, 20);
    count(&harness.circuits, "", RunEnd::Released, 20);
    harness.watch.run_once().await.unwrap();
    let counted = harness.sqlite.counts_since(START).await.unwrap();
    assert_eq!(counted.iter().map(|(_, runs)| *runs).collect::<Vec<_>>(), [Runs { ok: 0, failed: 1 }], "{counted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_without_a_task_returns_its_permission() {
    let mut harness = Harness::new();
    harness.open_breaker(DEAD).await;
    harness.submit(task().queue("paused").push(DEAD)).await;
    let pause = Pause { since: START, by: "client".to_owned(), reason: None, until: None };
    harness.sqlite.change_queue(TENANT, "paused", QueueChange::Pause(pause)).await.unwrap();
    harness.advance(PROBE_MILLIS).await;
    let breaker = harness.open().await.remove(0);
    assert_eq!((harness.depth().await, breaker.half_open, breaker.probe), (0, false, None));
    assert_eq!(breaker.next_probe_at, START.plus_millis(PROBE_MILLIS), "another queue may let something through");
    let tried = harness.spy.claims.lock().unwrap().len();
    harness.advance(999).await;
    assert_eq!(harness.spy.claims.lock().unwrap().len(), tried, "this one is left alone for a second");
    harness.sqlite.change_queue(TENANT, "paused", QueueChange::Resume).await.unwrap();
    harness.advance(1).await;
    assert_eq!(harness.depth().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_without_tasks_is_probed_again_after_a_second() {
    let mut harness = Harness::new();
    harness.open_breaker(DEAD).await;
    harness.submit(task().push(DEAD)).await;
    harness.spy.claim_in_vain(1);
    harness.advance(PROBE_MILLIS).await;
    let breaker = harness.open().await.remove(0);
    assert_eq!((harness.depth().await, breaker.half_open, breaker.probe), (0, false, None));
    assert_eq!(breaker.next_probe_at, START.plus_millis(PROBE_MILLIS + 1_000));
    harness.advance(1_000).await;
    assert_eq!(harness.depth().await, 1);
}

/// By the store's clock no time passes between those who ask in vain and those who are given it.
#[tokio::test(start_paused = true)]
async fn a_full_queue_does_not_put_the_probe_off() {
    let mut harness = Harness::new();
    let settings = Settings { max_concurrency: Some(1), ..Settings::default() };
    harness.sqlite.change_queue(TENANT, "full", QueueChange::Put(settings, None)).await.unwrap();
    let behind = harness.submit_all((0..2).map(|_| task().queue("full"))).await[1];
    let held = harness.lease("full", 2).await.remove(0);
    count(&harness.circuits, "", RunEnd::Retried, 20);
    harness.watch.run_once().await.unwrap();
    let polls = harness.polls.clone();
    let poll =
        |queue: &str| Box::pin(polls.poll(request(PollFilter::Queues(vec![queue.into()]), 1, Duration::from_secs(30))));
    // Polled once, so that the workers wait.
    let mut of_full = poll("full");
    assert!(poll_once(&mut of_full).is_none());
    harness.advance(PROBE_MILLIS).await;
    assert_eq!(harness.task(behind).await.state(), State::Pending, "its queue is full");
    // A worker that polls another queue gets the probe.
    let other = harness.submit(task().queue("other")).await;
    let mut of_other = poll("other");
    assert!(poll_once(&mut of_other).is_none());
    harness.passes().await;
    let probe = harness.task(other).await;
    assert_eq!(probe.state(), State::Running);
    harness.settler.settle(TENANT, vec![settlement(&probe, failed(true, Some(100_000_000)))]).await.unwrap();
    harness.watch.run_once().await.unwrap();
    // When the queue has room again, the worker that waits for it gets one.
    harness.advance(PROBE_MILLIS).await;
    assert_eq!(harness.task(behind).await.state(), State::Pending);
    let completed = settlement(&held, RunOutcome::Completed { result: None, http_status: None, dropped: None });
    harness.settler.settle(TENANT, vec![completed]).await.unwrap();
    harness.hints.free(TENANT, "full");
    harness.passes().await;
    assert_eq!(harness.task(behind).await.state(), State::Running);
}

#[tokio::test(start_paused = true)]
async fn pull_workers_get_a_probe_and_no_more() {
    let mut harness = Harness::new();
    harness.submit_all((0..30).map(|_| task().queue("q"))).await;
    let held = harness.lease("q", 20).await;
    let failures = held.iter().map(|task| settlement(task, failed(true, Some(100_000_000)))).collect();
    harness.settler.settle(TENANT, failures).await.unwrap();
    harness.watch.run_once().await.unwrap();
    assert_eq!(harness.open().await[0].key, BreakerKey::of_tenant(TENANT));
    harness.submit(task().push(WELL)).await;
    assert_eq!(harness.lease("q", 10).await.len(), 0);
    assert_eq!(harness.depth().await, 0, "everything of the tenant is under it");
    harness.clock.advance_millis(PROBE_MILLIS);
    harness.watch.run_once().await.unwrap();
    // No worker waits, so the webhook could be the probe; without it a worker has to take one.
    let probes = harness.lease("q", 10).await;
    let pushed = harness.published().await;
    assert_eq!(probes.len() + pushed.len(), 1, "{probes:?} {pushed:?}");
    assert_eq!(harness.lease("q", 10).await.len(), 0);
    match probes.first() {
        Some(probe) => {
            let completed = settlement(probe, RunOutcome::Completed { result: None, http_status: None, dropped: None });
            harness.settler.settle(TENANT, vec![completed]).await.unwrap();
        }
        None => harness.circuits.count([ended(WELL, pushed[0], RunEnd::Completed)]),
    }
    harness.watch.run_once().await.unwrap();
    assert_eq!(harness.open().await, []);
    assert_eq!(harness.lease("q", 8).await.len(), 8);
}

/// They were on their way when it opened: neither they nor a probe are to blame.
#[tokio::test(start_paused = true)]
async fn a_failure_under_a_breaker_uses_up_no_attempt() {
    let mut harness = Harness::new();
    let policy = RetryPolicy { max_retries: 1, ..retry_policy() };
    harness.submit_all((0..3).map(|_| task().queue("q").retry_policy(policy.clone()))).await;
    let once = RetryPolicy { max_retries: 0, ..policy };
    harness.submit(task().queue("q").retry_policy(once)).await;
    let held = harness.lease("q", 4).await;
    let settle = async |task: &Task, outcome| {
        harness.settler.settle(TENANT, vec![settlement(task, outcome)]).await.unwrap().remove(0)
    };
    let before = settle(&held[0], failed(true, None)).await;
    assert_eq!(before, Ok(SettleEffect::ended(RunEnd::Retried)));
    assert_eq!(harness.task(held[0].id).await.position.attempts, 1, "no breaker is open yet");
    count(&harness.circuits, "", RunEnd::Retried, 20);
    harness.watch.run_once().await.unwrap();
    for wanted in [SettleEffect::ended(RunEnd::Retried), SettleEffect::REPEATED] {
        assert_eq!(settle(&held[1], failed(true, None)).await, Ok(wanted));
    }
    let spared = harness.task(held[1].id).await;
    assert_eq!((spared.position.attempts, spared.retry_count()), (0, 0));
    let last = spared.trail.last().unwrap();
    assert_eq!((last.uncounted(), last.reason().as_ref()), (Some("breaker_open"), "e"));
    for (task, outcome) in [(&held[2], failed(false, None)), (&held[3], failed(true, None))] {
        assert_eq!(settle(task, outcome).await, Ok(SettleEffect::ended(RunEnd::DeadLettered)));
        assert_eq!(harness.task(task.id).await.trail.last().unwrap().uncounted(), None);
    }
}

/// The one that is held up by both takes a probe that both permit.
#[tokio::test(start_paused = true)]
async fn a_probe_is_permitted_by_all_breakers_over_its_lane() {
    let mut harness = Harness::new();
    harness.open_breaker(DEAD).await;
    count(&harness.circuits, "", RunEnd::Retried, 20);
    harness.advance(30_000).await;
    harness.watch.run_once().await.unwrap();
    assert_eq!(harness.open().await.len(), 2);
    harness.submit_all((0..3).map(|_| task().push(DEAD))).await;
    harness.advance(PROBE_MILLIS - 30_000).await;
    assert_eq!(harness.depth().await, 0, "the tenant's does not permit it yet");
    harness.advance(30_000).await;
    let probe = harness.published().await;
    assert_eq!(probe.len(), 1);
    harness.report(DEAD, probe[0], RunEnd::Completed).await;
    assert_eq!(harness.open().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_healthy_node_reports_nothing_and_drops_old_counts() {
    let mut harness = Harness::new();
    count(&harness.circuits, WELL, RunEnd::Completed, 500);
    harness.watch.run_once().await.unwrap();
    assert_eq!(harness.sqlite.counts_since(START).await.unwrap(), []);
    count(&harness.circuits, DEAD, RunEnd::Retried, 19);
    harness.watch.run_once().await.unwrap();
    let counted = [
        (BreakerKey::of_tenant(TENANT), Runs { ok: 500, failed: 0 }),
        (BreakerKey::new(TENANT, DEAD), Runs { ok: 0, failed: 19 }),
    ];
    assert_eq!(harness.sqlite.counts_since(START.plus_millis(-60_000)).await.unwrap(), counted);
    harness.clock.advance_millis(300_000);
    count(&harness.circuits, DEAD, RunEnd::Retried, 1);
    harness.watch.run_once().await.unwrap();
    assert_eq!(harness.open().await, [], "the others are out of the window");
    let left = [(BreakerKey::new(TENANT, DEAD), Runs { ok: 0, failed: 1 })];
    assert_eq!(harness.sqlite.counts_since(START.plus_millis(-60_000)).await.unwrap(), left);
}

/// Otherwise breakers of targets that are not called any more would stay open.
#[tokio::test(start_paused = true)]
async fn a_breaker_that_nothing_waits_under_closes_after_a_window() {
    let mut harness = Harness::new();
    harness.open_breaker(DEAD).await;
    harness.advance(PROBE_MILLIS + 300_000).await;
    harness.watch.run_once().await.unwrap();
    assert_eq!(harness.open().await.len(), 1, "its window is not over");
    harness.advance(1).await;
    harness.watch.run_once().await.unwrap();
    assert_eq!((harness.open().await.len(), harness.circuits.open().len()), (0, 0));
}

/// A node that cannot reach a target must not close it for those that can.
#[tokio::test(start_paused = true)]
async fn a_breaker_waits_for_the_counts_of_other_nodes() {
    let harness = Harness::new();
    let ((circuits, mut watch), (others, mut other)) = (harness.node(2), harness.node(3));
    count(&circuits, DEAD, RunEnd::Retried, 100);
    count(&others, DEAD, RunEnd::Completed, 50);
    for _ in 0..4 {
        watch.run_once().await.unwrap();
        other.run_once().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(harness.open().await, []);
    // By now nearly everything fails at both.
    count(&circuits, DEAD, RunEnd::Retried, 1_000);
    for _ in 0..4 {
        watch.run_once().await.unwrap();
        other.run_once().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(harness.open().await[0].runs, Runs { ok: 50, failed: 1_100 });
    assert_eq!((circuits.open().len(), others.open().len()), (1, 1), "both know of it");
    assert_eq!(circuits.opened() + others.opened(), 1, "one has opened it");
    let reset = harness.sqlite.change_breaker(&BreakerKey::new(TENANT, DEAD), BreakerEvent::Reset).await.unwrap();
    assert_eq!(reset, BreakerChange::Closed);
    for _ in 0..4 {
        watch.run_once().await.unwrap();
        other.run_once().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(harness.open().await, [], "what was counted before is forgotten everywhere");
    assert_eq!((circuits.open().len(), others.open().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn breakers_that_are_off_count_nothing() {
    let circuits = Circuits::off();
    count(&circuits, DEAD, RunEnd::Retried, 1_000);
    assert!(circuits.open().is_empty());
    assert!(
        circuits
            .probe(&[BreakerKey::of_tenant(TENANT)], START, async { panic!("nothing is claimed") })
            .await
            .unwrap()
            .is_empty()
    );
}

/// What it did well a minute ago says nothing about a target that fails every run now.
#[tokio::test(start_paused = true)]
async fn a_target_that_breaks_after_good_runs_opens_its_breaker() {
    let mut harness = Harness::new();
    count(&harness.circuits, DEAD, RunEnd::Completed, 500);
    harness.watch.run_once().await.unwrap();
    count(&harness.circuits, DEAD, RunEnd::Completed, 100);
    count(&harness.circuits, DEAD, RunEnd::Retried, 19);
    harness.watch.run_once().await.unwrap();
    assert_eq!(harness.open().await, [], "not enough in a row");
    count(&harness.circuits, DEAD, RunEnd::Retried, 1);
    harness.watch.run_once().await.unwrap();
    assert_eq!(harness.open().await[0].runs, Runs { ok: 0, failed: 20 });
}

#[tokio::test(start_paused = true)]
async fn failures_in_turn_with_successes_open_nothing() {
    let mut harness = Harness::new();
    for _ in 0..30 {
        count(&harness.circuits, DEAD, RunEnd::Completed, 5);
        count(&harness.circuits, DEAD, RunEnd::Retried, 15);
    }
    harness.watch.run_once().await.unwrap();
    assert_eq!(harness.open().await, []);
}

/// A breaker opens seconds after the failures that open it. Fast retries do not use up a task's
/// attempts meanwhile.
#[tokio::test(start_paused = true)]
async fn attempts_are_spared_until_the_breaker_has_opened() {
    let mut harness = Harness::new();
    count(&harness.circuits, DEAD, RunEnd::Retried, 19);
    assert!(!harness.circuits.spares(&lane(DEAD)));
    count(&harness.circuits, DEAD, RunEnd::Retried, 1);
    assert!(harness.circuits.spares(&lane(DEAD)) && !harness.circuits.spares(&lane(WELL)));
    harness.watch.run_once().await.unwrap();
    tokio::time::advance(Duration::from_mins(1)).await;
    assert!(harness.circuits.spares(&lane(DEAD)), "by the open breaker");
    let reset = harness.sqlite.change_breaker(&BreakerKey::new(TENANT, DEAD), BreakerEvent::Reset).await.unwrap();
    assert_eq!(reset, BreakerChange::Closed);
    harness.watch.run_once().await.unwrap();
    assert!(!harness.circuits.spares(&lane(DEAD)), "the streak is forgotten with the counts");
    assert_eq!(harness.open().await, []);
}

/// However unevenly the failures fall on the nodes, each knows of them within two passes.
#[tokio::test(start_paused = true)]
async fn nodes_spare_attempts_once_all_have_counted_the_minimum() {
    let harness = Harness::new();
    let ((most, mut of_most), (least, mut of_least)) = (harness.node(2), harness.node(3));
    count(&most, DEAD, RunEnd::Retried, 18);
    count(&least, DEAD, RunEnd::Retried, 1);
    of_most.run_once().await.unwrap();
    of_least.run_once().await.unwrap();
    of_most.run_once().await.unwrap();
    assert!(!most.spares(&lane(DEAD)) && !least.spares(&lane(DEAD)), "19 failures are not enough");
    count(&least, DEAD, RunEnd::Retried, 1);
    of_least.run_once().await.unwrap();
    of_most.run_once().await.unwrap();
    assert!(most.spares(&lane(DEAD)) && least.spares(&lane(DEAD)));
    count(&least, DEAD, RunEnd::Completed, 1);
    assert!(most.spares(&lane(DEAD)) && !least.spares(&lane(DEAD)), "a node that reaches it spares nothing");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(!most.spares(&lane(DEAD)), "a suspicion ends");
    assert_eq!(harness.open().await, []);
}
