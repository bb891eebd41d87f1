//! A short session of a caller and a worker, with a check that every acknowledgement was true.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use crate::it::world::{Caller, FINAL, array, id_of, merged, settlement, worker_id};

/// How long a server may take to recover from a single fault.
const RECOVERS_WITHIN: Duration = Duration::from_secs(15);

/// What the caller knows of each task, by its idempotency key.
#[derive(Debug, Default)]
pub struct Ledger {
    tasks: BTreeMap<String, Facts>,
    reads_fail: bool,
}

/// What is known of one task. A request that was not acknowledged may have happened.
#[derive(Debug, Default)]
struct Facts {
    /// As it was submitted.
    task: Value,
    /// Its id, once its submission was acknowledged.
    id: Option<String>,
    /// The token of its lease.
    token: Option<u64>,
    /// The progress of an acknowledged heartbeat.
    progress: Option<Value>,
    /// The end that the caller asked for.
    asked: Option<&'static str>,
    /// Whether that was acknowledged.
    ended: bool,
}

impl Ledger {
    /// An empty one. `reads_fail` means that the disk may refuse reads, which SQLite and the
    /// server report as damage.
    pub fn new(reads_fail: bool) -> Self {
        Self { tasks: BTreeMap::new(), reads_fail }
    }

    /// Submits, leases, sends heartbeats, completes and cancels, whatever the responses are, and
    /// records the acknowledgements.
    pub async fn work(&mut self, caller: &Caller) {
        self.submit(caller, "alone", json!({})).await;
        self.submit_batch(caller, &["first", "second", "third"]).await;
        self.submit(caller, "later", json!({"delay_seconds": 600})).await;
        let leases = self.lease(caller).await;
        if let Some(lease) = leases.first() {
            self.beat(caller, lease).await;
            self.complete(caller, lease).await;
        }
        self.settle(caller, leases.get(1..).unwrap_or_default()).await;
        self.cancel(caller, "later").await;
    }

    /// Submits one task under a key. Returns whether it was acknowledged.
    pub async fn submit(&mut self, caller: &Caller, key: &str, fields: Value) -> bool {
        self.note(key, fields);
        self.submit_again(caller, key).await
    }

    /// Submits the same task until it is acknowledged.
    pub async fn submit_at_last(&mut self, caller: &Caller, key: &str) {
        self.note(key, json!({}));
        self.until_acknowledged(caller, key).await;
    }

    /// Submits the unacknowledged tasks again, under their keys.
    pub async fn submit_the_rest(&mut self, caller: &Caller) {
        let open = self.tasks.iter().filter(|(_, facts)| facts.id.is_none());
        for key in open.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.until_acknowledged(caller, &key).await;
        }
    }

    async fn until_acknowledged(&mut self, caller: &Caller, key: &str) {
        eventually("the server takes tasks again without a restart", RECOVERS_WITHIN, async || {
            if self.submit_again(caller, key).await { Ok(()) } else { Err("it was refused".to_owned()) }
        })
        .await;
    }

    async fn submit_again(&mut self, caller: &Caller, key: &str) -> bool {
        let task = self.of(key).task.clone();
        if let Some(task) = self.ask(caller, "POST", "/v1/tasks", &task).await {
            self.of(key).id = Some(id_of(&task));
        }
        self.of(key).id.is_some()
    }

    async fn submit_batch(&mut self, caller: &Caller, keys: &[&str]) {
        for key in keys {
            self.note(key, json!({}));
        }
        let tasks: Vec<Value> = keys.iter().map(|key| self.of(key).task.clone()).collect();
        let Some(answer) = self.ask(caller, "POST", "/v1/tasks/batch", &json!({ "tasks": tasks })).await else {
            return;
        };
        for (key, item) in keys.iter().zip(array(&answer["items"])) {
            if item["status"] == 201 {
                self.of(key).id = Some(id_of(&item["task"]));
            } else {
                expect_unavailable(&item["error"]);
            }
        }
    }

    /// Records that a task is about to be submitted.
    fn note(&mut self, key: &str, fields: Value) {
        let task = json!({"type": "t", "queue": "q", "idempotency_key": key, "payload": "x".repeat(500)});
        self.tasks.entry(key.to_owned()).or_default().task = merged(task, fields);
    }

    async fn lease(&mut self, caller: &Caller) -> Vec<Value> {
        let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 3, "wait_seconds": 0.5});
        let Some(answer) = self.ask(caller, "POST", "/v1/leases", &wanted).await else { return Vec::new() };
        let leases = array(&answer["leases"]);
        for lease in &leases {
            self.leased(lease).token = lease["token"].as_u64();
        }
        leases
    }

    async fn beat(&mut self, caller: &Caller, lease: &Value) {
        let beat = json!({"token": lease["token"], "progress": {"half": true}});
        let path = format!("/v1/tasks/{}/heartbeat", id_of(&lease["task"]));
        if self.ask(caller, "POST", &path, &beat).await.is_some() {
            self.leased(lease).progress = Some(beat["progress"].clone());
        }
    }

    async fn complete(&mut self, caller: &Caller, lease: &Value) {
        self.leased(lease).asked = Some("COMPLETED");
        let path = format!("/v1/tasks/{}/complete", id_of(&lease["task"]));
        let done = self.ask(caller, "POST", &path, &json!({"token": lease["token"], "result": 1})).await;
        self.leased(lease).ended = done.is_some();
    }

    async fn settle(&mut self, caller: &Caller, leases: &[Value]) {
        for lease in leases {
            self.leased(lease).asked = Some("COMPLETED");
        }
        let items: Vec<Value> = leases.iter().map(|lease| settlement(lease, json!({"outcome": "completed"}))).collect();
        let Some(answer) = self.ask(caller, "POST", "/v1/leases/settle", &json!({ "items": items })).await else {
            return;
        };
        for (lease, item) in leases.iter().zip(array(&answer["items"])) {
            if item["status"] == 200 {
                self.leased(lease).ended = true;
            } else {
                expect_unavailable(&item["error"]);
            }
        }
    }

    async fn cancel(&mut self, caller: &Caller, key: &str) {
        let Some(id) = self.of(key).id.clone() else { return };
        self.of(key).asked = Some("CANCELLED");
        let cancelled = self.ask(caller, "DELETE", &format!("/v1/tasks/{id}"), &Value::Null).await;
        self.of(key).ended = cancelled.is_some();
    }

    /// Requires that every acknowledgement is true, and that nothing exists that was not asked for.
    pub async fn expect_true(&self, caller: &Caller) {
        let mut found = BTreeMap::new();
        for task in caller.list("/v1/tasks?limit=1000").await {
            let key = task["idempotency_key"].as_str().expect("every task of these tests has a key").to_owned();
            assert!(self.tasks.contains_key(&key), "this task was not submitted: {task:#}");
            assert!(found.insert(key, task.clone()).is_none(), "there twice: {task:#}");
        }
        for (key, facts) in &self.tasks {
            match found.get(key) {
                Some(task) => facts.expect_true_of(task),
                None => assert!(facts.id.is_none(), "{key} was acknowledged and is gone: {facts:?}"),
            }
        }
        for task in found.values() {
            caller.trail(&id_of(task)).await;
        }
    }

    /// Calls; returns the acknowledged response, or nothing after a clear refusal or a broken
    /// connection.
    async fn ask(&self, caller: &Caller, method: &str, path: &str, body: &Value) -> Option<Value> {
        let call = caller.api.call(method, path);
        let answer = if body.is_null() { call } else { call.json(body) }.try_send().await.ok()?;
        if (200..300).contains(&answer.status()) {
            return Some(answer.value());
        }
        if self.reads_fail && answer.status() == 500 {
            answer.problem_code(500, "internal_error");
            return None;
        }
        expect_unavailable(&answer.problem(503));
        assert!(answer.header("retry-after").is_some(), "it has no Retry-After\n{answer}");
        None
    }

    fn of(&mut self, key: &str) -> &mut Facts {
        self.tasks.get_mut(key).expect("invariant: it was submitted before")
    }

    fn leased(&mut self, lease: &Value) -> &mut Facts {
        let key = lease["task"]["idempotency_key"].as_str().expect("a key");
        self.tasks.get_mut(key).unwrap_or_else(|| panic!("this task was not submitted: {lease:#}"))
    }
}

impl Facts {
    fn expect_true_of(&self, task: &Value) {
        let context = format!("the caller knows {self:?}, but it is {task:#}");
        if let Some(id) = &self.id {
            assert_eq!(task["task_id"], *id, "another task under the same key: {context}");
        }
        if let Some(token) = self.token {
            assert!(task["version"].as_u64() >= Some(token), "the lease is forgotten: {context}");
        }
        if let Some(progress) = &self.progress {
            assert_eq!(task["progress"], *progress, "the heartbeat is forgotten: {context}");
        }
        let status = task["status"].as_str().unwrap_or_default();
        if self.ended {
            assert_eq!(Some(status), self.asked, "the end is forgotten: {context}");
        } else if FINAL.contains(&status) {
            assert_eq!(Some(status), self.asked, "an end that was not asked for: {context}");
        }
    }
}

/// Waits until the node is ready.
pub async fn until_ready(caller: &Caller) {
    until_readiness_is(caller, 200).await;
}

/// Waits until the node is not ready.
pub async fn until_unready(caller: &Caller) {
    until_readiness_is(caller, 503).await;
}

async fn until_readiness_is(caller: &Caller, status: u16) {
    eventually(&format!("/readyz answers {status}"), RECOVERS_WITHIN, async || {
        let answer = caller.api.get("/readyz").await;
        if answer.status() == status { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

/// Requires the problem of a store that does not work, in a sentence.
#[track_caller]
fn expect_unavailable(problem: &Value) {
    let code = problem["code"].as_str().unwrap_or_default();
    assert!(["store_unavailable", "store_full", "overloaded"].contains(&code), "{problem:#}");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(' ')), "no sentence: {problem:#}");
}
