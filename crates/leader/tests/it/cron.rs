//! The cron loop on the real embedded store, with a manual clock.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::{Clock, ManualClock};
use punctual_core::coordinator::{Coordinator, LEADER, LeaderLease};
use punctual_core::cron::{CronExpression, Pattern, Timing, TimingRules};
use punctual_core::failure::FailureCause;
use punctual_core::ids::{NodeId, ScheduleId, TaskId};
use punctual_core::lane::LaneId;
use punctual_core::schedules::plan::{CatchUp, Overlap, PLAN_MAX, Spec};
use punctual_core::schedules::{
    Definition, EVERY_PASS, OccurrenceOutcome, Progress, Replaced, Schedule, ScheduleInserted, Schedules,
};
use punctual_core::state::{By, Event, Failure, State, transition};
use punctual_core::store::{Applied, Claim, Claimant, Store};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::{Actor, RunError};
use punctual_leader::cron::{Config, CronLoop, Deps, Report};
use punctual_scheduler::cron_waker::CronWaker;
use punctual_store::sqlite::{Options, SqliteStore};
use punctual_submission::occurrences::Occurrences;
use punctual_submission::{SubmissionRules, TaskFactory};
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, TENANT, at, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const NODE: NodeId = NodeId::new(1);
const MINUTE: i64 = 60_000;

struct Harness {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    cron: Arc<CronLoop>,
    waker: Arc<CronWaker>,
    _directory: TempDir,
}

impl Harness {
    fn new() -> Self {
        Self::with_interval(Duration::from_secs(1))
    }

    fn with_interval(interval: Duration) -> Self {
        let directory = TempDir::new().unwrap();
        let clock = Arc::new(ManualClock::new(START));
        let store = SqliteStore::open(directory.path(), Arc::clone(&clock) as Arc<dyn Clock>, NODE, Options::default());
        let factory = TaskFactory::new(SubmissionRules::default(), NODE);
        let (store, waker) = (Arc::new(store.unwrap()), Arc::<CronWaker>::default());
        let deps = Deps {
            schedules: Arc::clone(&store) as _,
            upkeep: Arc::clone(&store) as _,
            occurrences: Occurrences::new(Arc::clone(&store) as _, factory, NODE),
            clock: Arc::clone(&clock) as _,
            waker: Arc::clone(&waker),
            count_occurrences: Arc::new(|_, _| {}),
        };
        let config = Config { interval, waiting: interval / 4, kept: None, prune_interval: Duration::from_mins(1) };
        Self { store, clock, cron: Arc::new(CronLoop::new(deps, config)), waker, _directory: directory }
    }

    /// A schedule of every minute, whose first instant is a minute after the start.
    async fn schedule(&self, name: &str, change: impl FnOnce(&mut Definition)) -> ScheduleId {
        let cron = CronExpression::parse("* * * * *").unwrap();
        let spec = Spec {
            timing: Timing { pattern: Pattern::Cron(cron), rules: TimingRules::default() },
            overlap: Overlap::Skip,
            catchup: CatchUp::Last,
            catchup_window_millis: 3_600_000,
            jitter_millis: 0,
            max_runs: None,
            paused: false,
        };
        let mut definition = Definition { spec, pause_on_failure: false, task: json(r#"{"type":"t"}"#) };
        change(&mut definition);
        let next_run_at = definition.spec.timing.next_after(self.clock.now());
        let schedule = Schedule {
            id: ScheduleId::new(),
            tenant: TENANT.to_owned(),
            name: name.to_owned(),
            version: 1,
            revision: 1,
            created_at: START,
            updated_at: START,
            definition,
            pause: None,
            progress: Progress { next_run_at, next_check_at: next_run_at, ..Progress::default() },
        };
        let id = schedule.id;
        assert_eq!(Schedules::insert(&*self.store, schedule).await.unwrap(), ScheduleInserted::Created);
        id
    }

    async fn read(&self, id: ScheduleId) -> Schedule {
        Schedules::get(&*self.store, TENANT, id).await.unwrap().unwrap()
    }

    async fn lead(&self, node: NodeId) -> LeaderLease {
        if let Some(held) = self.store.holder(LEADER).await.unwrap().filter(|held| held.lease.holder != node) {
            self.store.release(&held.lease).await.unwrap();
        }
        self.store.acquire(LEADER, node, 1_000_000_000).await.unwrap().unwrap()
    }

    /// Lets time pass, and runs one pass of the loop.
    async fn pass(&self, millis: i64) -> Report {
        self.clock.advance_millis(millis);
        self.cron.run_once(&self.lead(NODE).await).await.unwrap().unwrap()
    }

    /// The occurrences, oldest first: minutes from the start, outcome and reason.
    async fn occurrences(&self, id: ScheduleId) -> Vec<(i64, OccurrenceOutcome, String)> {
        let mut records = self.store.occurrences(id, None, 10_000).await.unwrap();
        records.reverse();
        records.into_iter().map(|one| (one.instant.millis_since(START) / MINUTE, one.outcome, one.reason)).collect()
    }

    async fn outcomes(&self, id: ScheduleId) -> Vec<OccurrenceOutcome> {
        self.occurrences(id).await.into_iter().map(|(_, outcome, _)| outcome).collect()
    }

    async fn tasks(&self, id: ScheduleId) -> Vec<Task> {
        let records = self.store.occurrences(id, None, 10_000).await.unwrap();
        let ids: Vec<TaskId> = records.into_iter().rev().filter_map(|one| one.task).collect();
        Store::get(&*self.store, TENANT, ids).await.unwrap().into_iter().flatten().collect()
    }

    async fn states(&self, id: ScheduleId) -> Vec<State> {
        self.tasks(id).await.iter().map(Task::state).collect()
    }

    async fn begin(&self, lane: LaneId) -> Task {
        let claimant = Claimant::Worker { name: "w".into(), lease_millis: 1_000_000_000, due_by: None };
        let claim = Claim { lanes: vec![(lane, 1)], limit: 1, claimant };
        self.store.claim(vec![claim]).await.unwrap().remove(0).tasks.remove(0)
    }

    /// Starts the first waiting task of a schedule.
    async fn begin_first(&self, id: ScheduleId) -> Task {
        let waiting = self.tasks(id).await.into_iter().find(|task| task.state() == State::Pending).expect("one waits");
        self.begin(waiting.lane.id).await
    }

    async fn settle(&self, task: &Task, event: Event<'_>) -> bool {
        let by = By { now: self.clock.now(), node: NODE, actor: Actor::Worker("w".into()) };
        let change = transition(&task.position, event, &by).unwrap();
        matches!(self.store.apply(vec![(task.id, change)]).await.unwrap()[0], Applied::Done(_))
    }

    async fn complete(&self, task: &Task) -> bool {
        self.settle(task, Event::Complete { result: None, http_status: None, dropped: None }).await
    }

    async fn fail(&self, task: &Task) -> bool {
        let failure = Failure {
            cause: FailureCause::Reported,
            error: RunError { code: "boom".into(), message: "it broke".into(), details: None },
            http_status: None,
            retryable: false,
            retry_after_millis: None,
            policy: task.body.retry_policy.clone(),
            poison_after: 0,
            is_under_breaker: false,
            random: 0,
        };
        self.settle(task, Event::Fail(failure)).await
    }
}

use OccurrenceOutcome::{Buffered, Fired, Skipped};

#[tokio::test]
async fn nothing_fires_early_and_everything_fires_once() {
    let harness = Harness::new();
    let id = harness.schedule("minutely", |definition| definition.spec.overlap = Overlap::AllowAll).await;
    assert_eq!(harness.pass(MINUTE - 1).await, Report { next_at: Some(at(MINUTE)), ..Report::default() });
    for minute in 1..=5 {
        let report = harness.pass(if minute == 1 { 1 } else { MINUTE }).await;
        assert_eq!((report.fired, report.next_at), (1, Some(at((minute + 1) * MINUTE))));
        assert_eq!(harness.pass(0).await.written, 0, "an instant is decided once");
    }
    let tasks = harness.tasks(id).await;
    let due: Vec<Timestamp> = tasks.iter().map(|task| task.execute_at).collect();
    assert_eq!(due, (1..=5).map(|minute| at(minute * MINUTE)).collect::<Vec<_>>());
    assert!(tasks.iter().all(|task| task.body.schedule_id == Some(id)));
    let schedule = harness.read(id).await;
    assert_eq!((schedule.progress.run_count, schedule.progress.last_run_at), (5, Some(at(5 * MINUTE))));
    assert_eq!(schedule.version, 1, "a run does not change the version");
}

#[tokio::test]
async fn skip_leaves_out_instants_while_the_previous_is_live() {
    let harness = Harness::new();
    let id = harness.schedule("s", |_| {}).await;
    harness.pass(MINUTE).await;
    let first = harness.begin_first(id).await;
    harness.pass(MINUTE).await;
    harness.pass(MINUTE).await;
    assert!(harness.complete(&first).await);
    harness.pass(MINUTE).await;
    assert_eq!(harness.outcomes(id).await, [Fired, Skipped, Skipped, Fired]);
    assert_eq!(harness.read(id).await.progress.skipped_count, 2);
}

#[tokio::test]
async fn buffer_one_keeps_one_instant_for_later() {
    let harness = Harness::new();
    let id = harness.schedule("s", |definition| definition.spec.overlap = Overlap::BufferOne).await;
    harness.pass(MINUTE).await;
    let first = harness.begin_first(id).await;
    assert!(harness.pass(MINUTE).await.waits);
    harness.pass(MINUTE).await;
    assert_eq!(harness.outcomes(id).await, [Fired, Buffered, Skipped]);
    assert!(harness.complete(&first).await);
    assert_eq!(harness.pass(1_000).await.fired, 1, "as soon as the previous task has finished");
    assert_eq!(harness.outcomes(id).await, [Fired, Fired, Skipped]);
    assert_eq!(harness.states(id).await, [State::Completed, State::Pending]);
    // The next check is at the next instant again.
    let next = harness.read(id).await.progress;
    assert_eq!((next.next_check_at, next.next_run_at), (Some(at(4 * MINUTE)), Some(at(4 * MINUTE))));
}

#[tokio::test]
async fn buffer_all_runs_one_task_at_a_time_in_order() {
    let harness = Harness::new();
    let id = harness.schedule("s", |definition| definition.spec.overlap = Overlap::BufferAll).await;
    for _ in 0..4 {
        harness.pass(MINUTE).await;
    }
    assert_eq!(harness.outcomes(id).await, [Fired, Buffered, Buffered, Buffered]);
    for done in 1..=4 {
        let running = harness.begin_first(id).await;
        assert_eq!(harness.tasks(id).await.len(), done, "one at a time");
        assert_eq!(harness.pass(1).await.fired, 0);
        assert!(harness.complete(&running).await);
        assert_eq!(harness.pass(1).await.fired, usize::from(done < 4));
    }
    let instants: Vec<i64> = harness.occurrences(id).await.into_iter().map(|(minute, ..)| minute).collect();
    assert_eq!(instants, [1, 2, 3, 4]);
    let order: Vec<Timestamp> = harness.tasks(id).await.iter().map(|task| task.created_at).collect();
    assert!(order.is_sorted());
}

#[tokio::test]
async fn cancel_other_waits_for_the_running_task_to_stop() {
    let harness = Harness::new();
    let id = harness.schedule("s", |definition| definition.spec.overlap = Overlap::CancelOther).await;
    harness.pass(MINUTE).await;
    let first = harness.begin_first(id).await;
    harness.pass(MINUTE).await;
    assert_eq!(harness.outcomes(id).await, [Fired, Buffered]);
    let asked = harness.tasks(id).await.remove(0);
    assert!(asked.position.cancel_requested && asked.state() == State::Running);
    assert_eq!(harness.pass(1).await.fired, 0, "it still runs");
    assert!(!harness.complete(&first).await, "its token is from before the request to stop");
    assert!(harness.complete(&asked).await);
    assert_eq!(harness.pass(1).await.fired, 1);
    assert_eq!(harness.states(id).await, [State::Cancelled, State::Pending]);
    // A task that no worker has is replaced at once.
    harness.pass(MINUTE).await;
    assert_eq!(harness.pass(1).await.fired, 1);
    assert_eq!(harness.states(id).await, [State::Cancelled, State::Cancelled, State::Pending]);
}

#[tokio::test]
async fn terminate_other_ends_the_run_at_once() {
    let harness = Harness::new();
    let id = harness.schedule("s", |definition| definition.spec.overlap = Overlap::TerminateOther).await;
    harness.pass(MINUTE).await;
    let first = harness.begin_first(id).await;
    assert_eq!(harness.pass(MINUTE).await.fired, 1, "it does not wait for the worker");
    assert_eq!(harness.states(id).await, [State::Cancelled, State::Pending]);
    assert!(!harness.complete(&first).await);
    harness.pass(MINUTE).await;
    assert_eq!(harness.states(id).await, [State::Cancelled, State::Cancelled, State::Pending]);
    let trail = harness.tasks(id).await.remove(0).trail;
    let actors: Vec<Actor<'_>> = trail.entries().map(|entry| entry.actor).collect();
    let by_schedule = actors.iter().filter(|actor| **actor == Actor::Schedule).count();
    assert_eq!(by_schedule, 3, "made, asked to stop, stopped");
}

#[tokio::test]
async fn allow_all_makes_a_task_for_every_instant() {
    let harness = Harness::new();
    let id = harness.schedule("s", |definition| definition.spec.overlap = Overlap::AllowAll).await;
    for _ in 0..3 {
        harness.pass(MINUTE).await;
    }
    assert_eq!(harness.states(id).await, [State::Pending; 3]);
}

#[tokio::test]
async fn a_clock_jump_to_2200_is_caught_up_in_bounded_steps() {
    let harness = Harness::new();
    let id = harness
        .schedule("s", |definition| {
            definition.spec.catchup = CatchUp::All;
            definition.spec.overlap = Overlap::AllowAll;
            definition.spec.catchup_window_millis = 3_000 * MINUTE as u64;
        })
        .await;
    let years = 174 * 365 * 24 * 60 * MINUTE;
    let mut report = harness.pass(years).await;
    let mut rounds = 1;
    while report.more {
        report = harness.pass(0).await;
        rounds += 1;
        assert!(rounds < 50, "the catch-up does not end");
    }
    let records = harness.store.occurrences(id, None, 100_000).await.unwrap();
    assert!(records.len() <= 8 * PLAN_MAX, "{}", records.len());
    assert!((2_999..=3_001).contains(&harness.tasks(id).await.len()));
    let schedule = harness.read(id).await;
    assert!(schedule.progress.missed_count > 10_000);
    assert!(schedule.progress.next_run_at.unwrap() > harness.clock.now());
}

#[tokio::test]
async fn a_former_leader_fires_nothing() {
    let harness = Harness::new();
    let id = harness.schedule("s", |definition| definition.spec.overlap = Overlap::TerminateOther).await;
    harness.pass(MINUTE).await;
    let running = harness.begin_first(id).await;
    let past = harness.lead(NODE).await;
    harness.lead(NodeId::new(2)).await;
    harness.clock.advance_millis(MINUTE);
    assert_eq!(harness.cron.run_once(&past).await.unwrap(), None);
    assert_eq!(harness.states(id).await, [State::Running], "it ends no task either");
    assert!(harness.complete(&running).await);
    assert_eq!(harness.pass(0).await.fired, 1, "the leader fires it");
}

#[tokio::test]
async fn two_leaders_at_once_fire_an_instant_once() {
    let harness = Harness::new();
    let ids = futures(&harness, 20).await;
    let lease = harness.lead(NODE).await;
    for _ in 0..5 {
        harness.clock.advance_millis(MINUTE);
        // The same lease: the term does not distinguish them, the revision does.
        let (one, two) = tokio::join!(harness.cron.run_once(&lease), harness.cron.run_once(&lease));
        assert_eq!(one.unwrap().unwrap().fired + two.unwrap().unwrap().fired, ids.len());
    }
    for id in ids {
        assert_eq!(harness.outcomes(id).await, [Fired; 5]);
        assert_eq!(harness.tasks(id).await.len(), 5);
    }
}

async fn futures(harness: &Harness, count: usize) -> Vec<ScheduleId> {
    let mut ids = Vec::new();
    for number in 0..count {
        let allow_all = |definition: &mut Definition| definition.spec.overlap = Overlap::AllowAll;
        ids.push(harness.schedule(&format!("s{number}"), allow_all).await);
    }
    ids
}

#[tokio::test]
async fn an_edit_and_an_advance_exclude_each_other() {
    let harness = Harness::new();
    let id = harness.schedule("s", |_| {}).await;
    let read = harness.read(id).await;
    assert_eq!(harness.pass(MINUTE).await.fired, 1);
    assert_eq!(Schedules::replace(&*harness.store, read).await.unwrap(), Replaced::Lost, "the advance was first");
    let mut edited = harness.read(id).await;
    edited.progress.next_run_at = Some(at(90 * MINUTE));
    edited.progress.next_check_at = Some(EVERY_PASS);
    assert_eq!(Schedules::replace(&*harness.store, edited).await.unwrap(), Replaced::Done);
    assert_eq!(harness.pass(MINUTE).await.fired, 0, "the edit was first");
    assert_eq!(harness.read(id).await.progress.next_check_at, Some(at(90 * MINUTE)), "the pass sets the next check");
}

#[tokio::test]
async fn pause_on_failure_pauses_the_schedule() {
    let harness = Harness::new();
    let id = harness.schedule("s", |definition| definition.pause_on_failure = true).await;
    let other = harness.schedule("other", |_| {}).await;
    harness.pass(MINUTE).await;
    for id in [id, other] {
        let running = harness.begin_first(id).await;
        assert!(harness.fail(&running).await);
    }
    let report = harness.pass(1_000).await;
    assert_eq!((report.written, report.fired), (1, 0));
    let paused = harness.read(id).await;
    let failed = harness.tasks(id).await.remove(0);
    let reason = paused.pause.as_ref().and_then(|pause| pause.reason.clone()).expect("a reason");
    assert!(reason.contains(&failed.id.to_string()) && reason.contains("DEAD_LETTERED"), "{reason}");
    assert_eq!((paused.version, harness.read(other).await.pause), (2, None));
    harness.pass(5 * MINUTE).await;
    assert_eq!(harness.outcomes(id).await, [Fired], "nothing fires while it is paused");
    assert_eq!(harness.outcomes(other).await.len(), 6);
    // Once it is resumed, the same failure does not pause it again.
    let mut resumed = paused;
    resumed.set_pause(None);
    resumed.progress.next_check_at = resumed.next_check_at(true);
    assert_eq!(Schedules::replace(&*harness.store, resumed).await.unwrap(), Replaced::Done);
    harness.pass(0).await;
    assert_eq!(harness.read(id).await.pause, None);
}

#[tokio::test]
async fn an_invalid_task_is_recorded_as_skipped() {
    let harness = Harness::new();
    let id = harness.schedule("s", |definition| definition.task = json(r#"{"type":""}"#)).await;
    harness.pass(MINUTE).await;
    assert_eq!(harness.occurrences(id).await, [(1, Skipped, "task_refused".to_owned())]);
    let progress = harness.read(id).await.progress;
    assert_eq!((progress.run_count, progress.skipped_count, progress.next_run_at), (0, 1, Some(at(2 * MINUTE))));
    let record = harness.store.occurrences(id, None, 1).await.unwrap().remove(0);
    assert!(record.detail.unwrap().contains("type: must be 1 to 255"));
}

#[tokio::test]
async fn a_schedule_ends_after_its_last_run() {
    let harness = Harness::new();
    let id = harness
        .schedule("s", |definition| {
            definition.spec.max_runs = Some(2);
            definition.spec.overlap = Overlap::AllowAll;
        })
        .await;
    for _ in 0..4 {
        harness.pass(MINUTE).await;
    }
    assert_eq!(harness.outcomes(id).await, [Fired, Fired]);
    let progress = harness.read(id).await.progress;
    assert_eq!((progress.next_run_at, progress.next_check_at), (None, None));
}

#[tokio::test]
async fn one_pass_fires_more_than_a_page_of_schedules() {
    let harness = Harness::new();
    let ids = futures(&harness, 250).await;
    assert_eq!(harness.pass(MINUTE).await.fired, ids.len());
}

#[tokio::test]
async fn a_written_schedule_wakes_the_loop() {
    let harness = Harness::new();
    let (lease, stop) = (harness.lead(NODE).await, CancellationToken::new());
    let (cron, token) = (Arc::clone(&harness.cron), stop.clone());
    let running = tokio::spawn(async move { cron.run(&lease, token).await });
    let id = harness.schedule("s", |_| {}).await;
    harness.clock.advance_millis(MINUTE);
    harness.waker.schedule_written();
    eventually("it fires", Duration::from_secs(20), async || {
        let records = harness.occurrences(id).await;
        if records.is_empty() { Err("nothing yet".to_owned()) } else { Ok(()) }
    })
    .await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_finished_task_wakes_the_loop_if_a_schedule_waits() {
    let harness = Harness::with_interval(Duration::from_hours(1));
    let id = harness.schedule("s", |definition| definition.spec.overlap = Overlap::BufferAll).await;
    harness.pass(MINUTE).await;
    let running = harness.begin_first(id).await;
    harness.pass(MINUTE).await;
    assert_eq!(harness.outcomes(id).await, [Fired, Buffered]);
    harness.waker.task_finished();
    let early = tokio::time::timeout(Duration::from_millis(1), harness.waker.wait());
    assert!(early.await.is_err(), "the loop is not woken before it knows that a schedule waits");
    let (lease, stop) = (harness.lead(NODE).await, CancellationToken::new());
    let (cron, token) = (Arc::clone(&harness.cron), stop.clone());
    let cron = tokio::spawn(async move { cron.run(&lease, token).await });
    assert!(harness.complete(&running).await);
    eventually("the next instant fires", Duration::from_secs(20), async || {
        harness.waker.task_finished();
        let outcomes = harness.outcomes(id).await;
        if outcomes == [Fired, Fired] { Ok(()) } else { Err(format!("{outcomes:?}")) }
    })
    .await;
    stop.cancel();
    cron.await.unwrap();
}

#[tokio::test]
async fn the_loop_ends_when_another_node_leads() {
    let harness = Harness::new();
    harness.schedule("s", |_| {}).await;
    let past = harness.lead(NODE).await;
    harness.lead(NodeId::new(2)).await;
    harness.clock.advance_millis(MINUTE);
    let ended = tokio::time::timeout(Duration::from_secs(20), harness.cron.run(&past, CancellationToken::new()));
    ended.await.expect("the loop ends by itself");
}
