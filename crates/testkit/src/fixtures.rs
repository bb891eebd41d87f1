//! Tasks and random numbers for tests: sensible defaults, and one method for each field that a test
//! changes. Random choices come from [`Dice`], so that a failure can be repeated.

use std::collections::BTreeMap;

use punctual_core::ids::{NodeId, ScheduleId, TaskId};
use punctual_core::json::Json;
use punctual_core::lane::{LaneKey, Route};
use punctual_core::retry::{Backoff, Jitter, RetryPolicy};
use punctual_core::state::{By, State};
use punctual_core::store::Filter;
use punctual_core::task::{Body, Callback, CallbackBody, Dependencies, Idempotency, NewTask, OnDependencyFailure};
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;

/// 2026-05-22T18:00:00Z: the first instant of a test's clock.
pub const START: Timestamp = Timestamp::from_millis(1_779_472_800_000);

/// The tenant of a task that names no other.
pub const TENANT: &str = "acme";

/// How long one run of a task may take by default.
pub const TIMEOUT_MILLIS: u64 = 300_000;

/// The node that submits the tasks of tests.
pub const SUBMITTER: NodeId = NodeId::new(0x00c1_1e47);

/// `START` moved by `millis`.
pub fn at(millis: i64) -> Timestamp {
    START.plus_millis(millis)
}

/// A JSON document.
pub fn json(text: &str) -> Json {
    Json::parse(text).expect("the test's own JSON is well formed")
}

/// Three retries, a second apart, without jitter.
pub fn retry_policy() -> RetryPolicy {
    RetryPolicy {
        max_retries: 3,
        backoff: Backoff::Fixed,
        backoff_millis: 1_000,
        max_backoff_millis: 60_000,
        jitter: Jitter::None,
        ..RetryPolicy::default()
    }
}

/// A task that is due at [`START`], of tenant [`TENANT`], for pull workers.
pub fn task() -> TaskBuilder {
    let lane = LaneKey {
        tenant: TENANT.into(),
        queue: "default".into(),
        kind: "test.work".into(),
        priority: 5,
        route: Route::Pull,
    };
    let body = Body {
        payload: json(r#"{"n": 1}"#),
        callback: None,
        retry_policy: retry_policy(),
        timeout_millis: TIMEOUT_MILLIS,
        metadata: BTreeMap::new(),
        schedule_id: None,
        idempotency_key: None,
        ordering_key: None,
        concurrency_key: None,
        dependencies: Dependencies::default(),
    };
    TaskBuilder { lane, created_at: START, execute_at: START, expires_at: None, idempotency: None, body }
}

/// The builder of a task.
#[derive(Clone, Debug)]
#[must_use]
pub struct TaskBuilder {
    lane: LaneKey,
    created_at: Timestamp,
    execute_at: Timestamp,
    expires_at: Option<Timestamp>,
    idempotency: Option<Idempotency>,
    body: Body,
}

impl TaskBuilder {
    /// Its tenant.
    pub fn tenant(mut self, tenant: &str) -> Self {
        self.lane.tenant = tenant.into();
        self
    }

    /// Its queue.
    pub fn queue(mut self, queue: &str) -> Self {
        self.lane.queue = queue.into();
        self
    }

    /// Its type.
    pub fn kind(mut self, kind: &str) -> Self {
        self.lane.kind = kind.into();
        self
    }

    /// Its priority.
    pub fn priority(mut self, priority: u8) -> Self {
        self.lane.priority = priority;
        self
    }

    /// Pushed to a webhook at `target` (`scheme://host:port`).
    pub fn push(mut self, target: &str) -> Self {
        self.lane.route = Route::Push(target.into());
        let headers = BTreeMap::from([("x-test".to_owned(), "1".to_owned())]);
        self.body.callback = Some(Callback { url: format!("{target}/hook"), headers, body: CallbackBody::Payload });
        self
    }

    /// Its webhook gets the results of its dependencies beside the payload.
    pub fn enveloped(mut self) -> Self {
        self.body.callback.as_mut().expect("it is pushed to a webhook").body = CallbackBody::Envelope;
        self
    }

    /// When it was accepted.
    pub fn created_at(mut self, created_at: Timestamp) -> Self {
        self.created_at = created_at;
        self
    }

    /// When it is due.
    pub fn due(mut self, execute_at: Timestamp) -> Self {
        self.execute_at = execute_at;
        self
    }

    /// It fails if it has not started by then.
    pub fn expires_at(mut self, expires_at: Timestamp) -> Self {
        self.expires_at = Some(expires_at);
        self
    }

    /// Its idempotency key; `content` stands for the submitted content.
    pub fn key(mut self, key: &str, content: u8) -> Self {
        self.idempotency = Some(Idempotency::new(key, [content; 32]));
        self.body.idempotency_key = Some(key.into());
        self
    }

    /// Its ordering key.
    pub fn ordering_key(mut self, key: &str) -> Self {
        self.body.ordering_key = Some(key.into());
        self
    }

    /// Its concurrency key.
    pub fn concurrency_key(mut self, key: &str) -> Self {
        self.body.concurrency_key = Some(key.into());
        self
    }

    /// Its dependencies.
    pub fn depends_on(mut self, ids: &[TaskId]) -> Self {
        self.body.dependencies.ids = ids.to_vec();
        self
    }

    /// Its policy if one of them does not complete.
    pub fn on_dependency_failure(mut self, policy: OnDependencyFailure) -> Self {
        self.body.dependencies.on_failure = policy;
        self
    }

    /// Its payload.
    pub fn payload(mut self, text: &str) -> Self {
        self.body.payload = json(text);
        self
    }

    /// Adds a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.body.metadata.insert(key.into(), value.into());
        self
    }

    /// The schedule that made it.
    pub fn schedule(mut self, id: ScheduleId) -> Self {
        self.body.schedule_id = Some(id);
        self
    }

    /// How it is retried.
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.body.retry_policy = policy;
        self
    }

    /// How long one run may take.
    pub fn timeout_millis(mut self, millis: u64) -> Self {
        self.body.timeout_millis = millis;
        self
    }

    /// The task, with a fresh id.
    pub fn build(self) -> NewTask {
        let by = By { now: self.created_at, node: SUBMITTER, actor: Actor::Client };
        NewTask {
            id: TaskId::new(),
            lane: self.lane,
            created_at: self.created_at,
            execute_at: self.execute_at,
            due_at: self.execute_at,
            expires_at: self.expires_at,
            idempotency: self.idempotency,
            body: self.body,
            trail: by.submitted(State::Pending),
        }
    }

    /// This many such tasks, each with a fresh id, in the order of their ids.
    pub fn times(self, count: usize) -> Vec<NewTask> {
        (0..count).map(|_| self.clone().build()).collect()
    }
}

/// Random numbers from a seed (`SplitMix64`): the same seed, the same test.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that depend on `seed` only.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).expect("a usize fits 64 bits");
        usize::try_from(self.any() % bound).expect("it is below the bound")
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Filters of [`TENANT`], in both orders, and how many tasks each finds if the tenant has five
/// finished ones and five of the type `later` that wait.
pub fn filters_of_few_tasks() -> Vec<(Filter, usize)> {
    let own = || Filter { tenant: TENANT.to_owned(), ..Filter::default() };
    let filters = [
        (own(), 10),
        (Filter { kind: Some("later".into()), ..own() }, 5),
        (Filter { queue: Some("default".into()), ..own() }, 10),
        (Filter { states: vec![State::Pending], ..own() }, 5),
        (Filter { states: vec![State::Completed], ..own() }, 5),
        (Filter { states: vec![State::DeadLettered], ..own() }, 0),
        (Filter { tenant: "nobody".to_owned(), ..own() }, 0),
    ];
    let in_order = |by_execute_at| move |(filter, found)| (Filter { by_execute_at, ..filter }, found);
    filters.clone().map(in_order(false)).into_iter().chain(filters.map(in_order(true))).collect()
}
