//! What the black-box tests build on: a real server, a tenant per test, and helpers for the
//! contract.
//!
//! Most tests share one server, each with a tenant of its own. A test that kills, configures or
//! measures takes a [`World`] of its own.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_testkit::eventually::eventually;
use punctual_testkit::http::{ApiClient, Reply};
use punctual_testkit::process::{Serve, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;

/// The program under test.
pub const PUNCTUAL: &str = env!("CARGO_BIN_EXE_punctual");

/// Long enough for anything that should happen at once, on a machine busy with all other tests.
pub const SOON: Duration = Duration::from_secs(20);

/// The states that a task does not leave by itself.
pub const FINAL: [&str; 4] = ["COMPLETED", "CANCELLED", "FAILED", "DEAD_LETTERED"];

/// A server with a directory of its own; both vanish when it is dropped.
#[derive(Debug)]
pub struct World {
    pub server: TestServer,
    pub serve: Serve,
    home: TempDir,
}

impl World {
    /// A server with the default settings.
    pub async fn start() -> Self {
        Self::start_with(|serve| serve).await
    }

    /// A server with other settings.
    pub async fn start_with(settings: impl FnOnce(Serve) -> Serve) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let serve = settings(Serve::new(PUNCTUAL, home.path().join("data")));
        let server = serve.start().await;
        Self { server, serve, home }
    }

    /// Starts the server again on the same directory, after it was killed or has ended.
    pub async fn restart(&mut self) {
        self.server = self.serve.start().await;
    }

    /// Returns once `count` workers wait in long polls.
    pub async fn until_waiting(&self, count: usize) {
        let wanted = format!("punctual_waiting_workers {count}");
        eventually("the polls have arrived", SOON, async || {
            let metrics = self.caller().api.get("/metrics").await.text().to_owned();
            if metrics.lines().any(|line| line == wanted) { Ok(()) } else { Err(metrics) }
        })
        .await;
    }

    /// The directory around the data directory.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The data directory.
    pub fn data(&self) -> std::path::PathBuf {
        self.home.path().join("data")
    }

    /// A caller in the default tenant.
    pub fn caller(&self) -> Caller {
        caller_of(&self.server)
    }
}

/// A caller of any server, in the default tenant.
pub fn caller_of(server: &TestServer) -> Caller {
    Caller { api: ApiClient::new(server.url()), world: None }
}

/// A caller of the shared server, in a tenant that no other test has.
pub async fn shared() -> Caller {
    static SHARED: Mutex<Weak<World>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    // Only the tests that use it hold it: a static would never be dropped, and the server would
    // stay.
    let world = match shared.upgrade() {
        Some(world) => world,
        None => Arc::new(World::start().await),
    };
    *shared = Arc::downgrade(&world);
    let api = ApiClient::new(world.server.url()).tenant(&format!("t-{}", uuid::Uuid::now_v7().simple()));
    Caller { api, world: Some(world) }
}

/// A client that calls the API as one tenant.
#[derive(Clone, Debug)]
pub struct Caller {
    pub api: ApiClient,
    /// Keeps the shared server alive.
    world: Option<Arc<World>>,
}

impl Caller {
    /// The same server as another tenant.
    pub fn stranger(&self) -> Self {
        let api = self.api.tenant(&format!("t-{}", uuid::Uuid::now_v7().simple()));
        Self { api, world: self.world.clone() }
    }

    /// The same server as this tenant.
    pub fn of_tenant(&self, tenant: &str) -> Self {
        Self { api: self.api.tenant(tenant), world: self.world.clone() }
    }

    /// The same tenant on connections of its own.
    pub fn apart(&self) -> Self {
        Self { api: self.api.apart(), world: self.world.clone() }
    }

    /// The address of the server, as a socket connects to it.
    pub fn address(&self) -> String {
        self.world.as_ref().expect("invariant: a caller of the shared server").server.address().to_owned()
    }

    /// Submits a task, which must be accepted, and returns it.
    pub async fn submit(&self, task: Value) -> Value {
        self.api.post("/v1/tasks", &task).await.expect(201)
    }

    /// Submits a task and returns its id.
    pub async fn submit_id(&self, task: Value) -> String {
        id_of(&self.submit(task).await)
    }

    /// Submits many tasks in one batch, which must all be accepted, and returns them.
    pub async fn submit_all(&self, tasks: Vec<Value>) -> Vec<Value> {
        let answer = self.api.post("/v1/tasks/batch", &json!({ "tasks": tasks })).await;
        let items = array(&answer.expect(200)["items"]);
        assert!(items.iter().all(|item| item["status"] == 201), "not all were accepted\n{answer}");
        items.into_iter().map(|item| item["task"].clone()).collect()
    }

    /// The task as it is now.
    pub async fn task(&self, id: &str) -> Value {
        self.api.get(&format!("/v1/tasks/{id}")).await.expect(200)
    }

    /// Waits until a task is in a state; fails at once when it has ended in another.
    pub async fn until(&self, id: &str, status: &str) -> Value {
        self.until_within(id, status, SOON).await
    }

    /// The same with a deadline.
    pub async fn until_within(&self, id: &str, status: &str, within: Duration) -> Value {
        eventually(&format!("{id} is {status}"), within, async || {
            let task = self.task(id).await;
            if task["status"] == status {
                return Ok(task);
            }
            assert!(!FINAL.iter().any(|end| task["status"] == *end), "{id} should become {status}, but is {task:#}");
            Err(format!("{task:#}"))
        })
        .await
    }

    /// Polls for leases and returns them.
    pub async fn lease(&self, wanted: Value) -> Vec<Value> {
        array(&self.api.post("/v1/leases", &wanted).await.expect(200)["leases"])
    }

    /// Waits for one lease of a queue, for as long as a long poll takes.
    pub async fn lease_one(&self, queue: &str) -> Value {
        self.lease_for(queue, 60).await
    }

    /// Waits for one lease of a queue that lasts this many seconds.
    pub async fn lease_for(&self, queue: &str, seconds: u64) -> Value {
        let wanted = json!({"worker_id": worker_id(), "queues": [queue], "max_tasks": 1, "wait_seconds": 30});
        let wanted = merged(wanted, json!({ "lease_seconds": seconds }));
        let mut leases = self.lease(wanted).await;
        assert_eq!(leases.len(), 1, "one lease of {queue} within the wait");
        leases.remove(0)
    }

    /// Settles one lease by the batched call and returns its item of the response.
    pub async fn settle(&self, lease: &Value, outcome: Value) -> Value {
        let mut items = self.settle_all(vec![settlement(lease, outcome)]).await;
        assert_eq!(items.len(), 1, "one answer for one item: {items:?}");
        items.remove(0)
    }

    /// Settles many leases by one call.
    pub async fn settle_all(&self, items: Vec<Value>) -> Vec<Value> {
        array(&self.api.post("/v1/leases/settle", &json!({ "items": items })).await.expect(200)["items"])
    }

    /// Reports to `POST /v1/tasks/{id}/{verb}` with the lease's token.
    pub async fn report(&self, verb: &str, lease: &Value, mut body: Value) -> Reply {
        body["token"] = lease["token"].clone();
        self.api.post(&format!("/v1/tasks/{}/{verb}", id_of(&lease["task"])), &body).await
    }

    /// The items of a list, from all of its pages.
    pub async fn list(&self, path: &str) -> Vec<Value> {
        let (mut items, mut next) = (Vec::new(), path.to_owned());
        loop {
            let page = self.api.get(&next).await.expect(200);
            items.extend(array(&page["items"]));
            let Some(cursor) = page["next_cursor"].as_str() else { return items };
            next = format!("{path}{}cursor={cursor}", if path.contains('?') { '&' } else { '?' });
        }
    }

    /// The ids of a list of tasks.
    pub async fn list_ids(&self, query: &str) -> Vec<String> {
        self.list(&format!("/v1/tasks?limit=1000{query}")).await.iter().map(id_of).collect()
    }

    /// The events of a task, checked for gaps and illegal steps.
    pub async fn trail(&self, id: &str) -> Vec<Value> {
        let events = self.list(&format!("/v1/tasks/{id}/events")).await;
        check_trail(&events);
        events
    }

    /// A task's runs.
    pub async fn runs(&self, id: &str) -> Vec<Value> {
        self.list(&format!("/v1/tasks/{id}/runs")).await
    }

    /// Fails when a task of this tenant is stored.
    pub async fn expect_nothing_stored(&self) {
        let stored = self.list("/v1/tasks").await;
        assert!(stored.is_empty(), "something was stored: {stored:#?}");
    }
}

/// An item for `POST /v1/leases/settle`: `outcome` with the lease's task and token.
pub fn settlement(lease: &Value, mut outcome: Value) -> Value {
    outcome["task_id"] = lease["task"]["task_id"].clone();
    outcome["token"] = lease["token"].clone();
    outcome
}

/// The stable code of a settle item, wherever its answer keeps it.
pub fn code_of(item: &Value) -> &str {
    let code = if item["code"].is_string() { &item["code"] } else { &item["error"]["code"] };
    code.as_str().unwrap_or_default()
}

/// A task's id, checked for its form.
#[track_caller]
pub fn id_of(task: &Value) -> String {
    let id = task["task_id"].as_str().unwrap_or_else(|| panic!("no task_id in {task:#}"));
    expect_id(id, "task_");
    id.to_owned()
}

/// Requires a prefix and a version 7 UUID in lower case.
#[track_caller]
pub fn expect_id(id: &str, prefix: &str) {
    let uuid = id.strip_prefix(prefix).unwrap_or_else(|| panic!("{id:?} does not begin with {prefix:?}"));
    let parsed: uuid::Uuid = uuid.parse().unwrap_or_else(|error| panic!("{id:?}: {error}"));
    assert_eq!(parsed.get_version_num(), 7, "{id:?} is not of version 7");
    assert_eq!(parsed.hyphenated().to_string(), uuid, "{id:?} is not in lower case");
}

/// A worker id that no other worker has.
pub fn worker_id() -> String {
    format!("worker_{}", uuid::Uuid::now_v7())
}

/// An id of a task that does not exist.
pub fn unknown_task() -> String {
    format!("task_{}", uuid::Uuid::now_v7())
}

/// Retries after a tenth of a second, without jitter.
pub fn quick(max_retries: u32) -> Value {
    every(max_retries, 0.1)
}

/// Retries after this many seconds, without jitter.
pub fn every(max_retries: u32, seconds: f64) -> Value {
    json!({
        "max_retries": max_retries,
        "backoff": "fixed",
        "backoff_seconds": seconds,
        "max_backoff_seconds": seconds,
        "jitter": "none",
    })
}

/// A retryable failure, for `/fail`.
pub fn boom() -> Value {
    json!({"error": {"code": "boom", "message": "it broke"}, "retryable": true})
}

/// A task with these fields added or replaced.
pub fn merged(mut task: Value, fields: Value) -> Value {
    let (Value::Object(members), Value::Object(fields)) = (&mut task, fields) else { panic!("not an object") };
    members.extend(fields);
    task
}

/// An array's elements.
#[track_caller]
pub fn array(value: &Value) -> Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("not an array: {value:#}")).clone()
}

/// The instant this many seconds from now (negative: ago), in whole milliseconds.
pub fn in_seconds(seconds: f64) -> Timestamp {
    let instant = Timestamp::now() + SignedDuration::from_secs_f64(seconds);
    Timestamp::from_millisecond(instant.as_millisecond()).expect("invariant: whole milliseconds of an instant")
}

/// An instant as the contract writes it.
pub fn written(instant: Timestamp) -> String {
    format!("{instant:.3}")
}

/// Reads an instant, checking that it is written with milliseconds and `Z`.
#[track_caller]
pub fn time(value: &Value) -> Timestamp {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is not a time"));
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{text:?} is not written with milliseconds and Z");
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// The seconds from `earlier` to `later`; negative when `later` is before.
pub fn seconds_between(earlier: Timestamp, later: Timestamp) -> f64 {
    later.duration_since(earlier).as_secs_f64()
}

/// Requires that the measured lateness, in seconds, is less than a quarter of a second in the
/// median.
///
/// The machine may be busy with all other tests, so a late round is measured again. A design that
/// is late, such as polling once a second, is late in every round.
pub async fn expect_prompt(what: &str, mut measure: impl AsyncFnMut() -> Vec<f64>) {
    let mut rounds = Vec::new();
    while rounds.len() < 4 {
        let mut behind = measure().await;
        behind.sort_by(f64::total_cmp);
        if behind[behind.len() / 2] < 0.25 {
            return;
        }
        rounds.push(behind);
    }
    panic!("{what}, seconds behind in {} rounds: {rounds:.3?}", rounds.len());
}

/// Fails unless the versions have no gap and every step is one of the contract's diagram.
#[track_caller]
pub fn check_trail(events: &[Value]) {
    assert!(!events.is_empty(), "a task has events");
    let state = |event: &Value, end: &str| event[end].as_str().map(str::to_owned);
    for event in events {
        time(&event["at"]);
        assert!(event["version"].is_u64() && event["to"].is_string(), "an event without version or state: {event:#}");
        let (from, to) = (state(event, "from"), state(event, "to"));
        assert!(legal(from.as_deref(), to.as_deref().unwrap_or_default()), "an illegal step: {event:#}");
        for member in ["actor", "node", "reason"] {
            assert!(event.get(member).is_some(), "an event without {member:?}: {event:#}");
        }
    }
    assert!(events[0]["from"].is_null(), "the first event has no state before it: {:#}", events[0]);
    for pair in events.windows(2) {
        let versions = (pair[0]["version"].as_u64(), pair[1]["version"].as_u64());
        assert_eq!(versions.0.map(|version| version + 1), versions.1, "a gap in the versions: {events:#?}");
        assert_eq!(state(&pair[0], "to"), state(&pair[1], "from"), "a step that begins elsewhere: {events:#?}");
        assert!(time(&pair[0]["at"]) <= time(&pair[1]["at"]), "time runs backwards: {events:#?}");
    }
}

/// The diagram of the contract; a change that keeps the state (an edit) is legal where edits are.
fn legal(from: Option<&str>, to: &str) -> bool {
    let Some(from) = from else { return ["BLOCKED", "PENDING"].contains(&to) };
    let next: &[&str] = match from {
        "BLOCKED" => &["BLOCKED", "PENDING", "CANCELLED", "FAILED"],
        "PENDING" => &["PENDING", "QUEUED", "CANCELLED", "FAILED"],
        "QUEUED" => &["RUNNING", "PENDING", "CANCELLED", "FAILED"],
        "RUNNING" => &["RUNNING", "COMPLETED", "PENDING", "DEAD_LETTERED", "CANCELLED"],
        "DEAD_LETTERED" => &["PENDING"],
        // Revived, after the parent that they ended because of was re-driven.
        "CANCELLED" | "FAILED" => &["BLOCKED", "PENDING"],
        _ => &[],
    };
    next.contains(&to)
}
