//! How the actors call the server. Every call and every answer goes into the history.
//!
//! A [`Caller`] finds the running server by itself. Calls that end in `_surely` are repeated until
//! they are answered, as a careful client does. The others are made once, and may end without an
//! answer.

mod answers;
mod wish;

use std::time::Duration;

use punctual_client::{Lease, LeaseAnswer};
use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use punctual_testkit::http::ApiClient;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::answers::{answer, items};
pub use self::wish::Wish;
use crate::history::{CallAnswer, Grant, Op, Recorder, WorkerReport, result_by};

/// The pause before an unanswered call is repeated.
const PAUSE: Duration = Duration::from_millis(20);

/// An actor that calls the server.
#[derive(Clone, Debug)]
pub struct Caller {
    recorder: Recorder,
    door: Door,
}

/// How a caller finds the server.
#[derive(Clone, Debug)]
enum Door {
    /// Any server that is up, over shared connections.
    Of(Vec<watch::Receiver<Option<ApiClient>>>),
    /// One server, over a connection of its own.
    Own(ApiClient),
}

/// A lease that a worker holds, or once held.
#[derive(Clone, Debug)]
pub struct HeldLease {
    /// The worker.
    pub worker: String,
    /// The task.
    pub task: TaskId,
    /// The fencing token.
    pub token: u64,
    /// The end of the lease.
    pub expires_at: Timestamp,
    /// The payload of the task.
    pub payload: Value,
}

/// A worker's poll.
#[derive(Clone, Debug)]
pub struct WorkerPoll<'a> {
    /// The worker's name.
    pub worker: &'a str,
    /// The queues it works for.
    pub queues: &'a [&'a str],
    /// The maximum number of tasks.
    pub most: usize,
    /// How long it waits for the first.
    pub wait: Duration,
    /// The length of the lease, in whole seconds.
    pub lease_seconds: u64,
}

impl Caller {
    /// Calls the server behind this door, and records the calls.
    pub fn new(recorder: Recorder, door: watch::Receiver<Option<ApiClient>>) -> Self {
        Self::of_many(recorder, vec![door])
    }

    /// Calls the servers behind these doors in turn, and records the calls.
    pub fn of_many(recorder: Recorder, doors: Vec<watch::Receiver<Option<ApiClient>>>) -> Self {
        Self { recorder, door: Door::Of(doors) }
    }

    /// Another actor that calls the current server, over a connection of its own.
    pub async fn apart(&self) -> Self {
        Self { recorder: self.recorder.clone(), door: Door::Own(self.api().await.apart()) }
    }

    /// Opens the connection, if it is not open, by a call that changes nothing.
    pub async fn connect(&self) {
        let reply = self.api().await.get("/healthz").await;
        assert_eq!(reply.status(), 200, "{reply}");
    }

    /// The recorder of its calls.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Waits until a server is up.
    pub async fn api(&self) -> ApiClient {
        let doors = match &self.door {
            Door::Of(doors) => doors,
            Door::Own(api) => return api.clone(),
        };
        let open: Vec<ApiClient> = doors.iter().filter_map(|door| door.borrow().clone()).collect();
        if !open.is_empty() {
            return open[rand::random_range(0..open.len())].clone();
        }
        let mut first = JoinSet::new();
        for mut door in doors.iter().cloned() {
            first.spawn(async move { door.wait_for(Option::is_some).await.ok().and_then(|api| api.clone()) });
        }
        let api = first.join_next().await.and_then(Result::ok).flatten();
        api.expect("the machines outlive their callers")
    }

    /// Submits one task.
    pub async fn submit(&self, wish: &Wish) -> CallAnswer {
        let api = self.api().await;
        let call = self.recorder.invoke(Op::Submit(wish.submission()));
        let mut request = api.call("POST", "/v1/tasks").json(wish.body());
        if let Some(key) = wish.header_key() {
            request = request.header("idempotency-key", key);
        }
        let answer = answer(request.try_send().await.ok().as_ref());
        call.end(answer.clone());
        answer
    }

    /// Submits one task until it is answered; none if it was refused.
    pub async fn submit_surely(&self, wish: &Wish) -> Option<TaskId> {
        loop {
            match self.submit(wish).await {
                CallAnswer::Unknown => tokio::time::sleep(PAUSE).await,
                answer => return answer.shown().and_then(|shown| shown.task),
            }
        }
    }

    /// Submits many tasks in one request.
    pub async fn submit_batch(&self, wishes: &[Wish]) -> Vec<CallAnswer> {
        let api = self.api().await;
        let calls: Vec<_> = wishes.iter().map(|wish| self.recorder.invoke(Op::Submit(wish.submission()))).collect();
        let body = json!({"tasks": wishes.iter().map(Wish::body).collect::<Vec<_>>()});
        let reply = api.call("POST", "/v1/tasks/batch").json(&body).try_send().await.ok();
        let answers = items(reply.as_ref(), calls.len());
        for (call, answer) in calls.into_iter().zip(&answers) {
            call.end(answer.clone());
        }
        answers
    }

    /// Cancels a task.
    pub async fn cancel(&self, task: TaskId) -> CallAnswer {
        self.about(Op::Cancel { task }, "DELETE", &format!("/v1/tasks/{task}"), None).await
    }

    /// Changes a task's time or payload.
    pub async fn edit(&self, task: TaskId, due_at: Option<Timestamp>, payload: Option<Value>) -> CallAnswer {
        self.edit_at(task, due_at, payload, None).await
    }

    /// Changes a task's time or payload, if it is still at a version.
    pub async fn edit_at(
        &self,
        task: TaskId,
        due_at: Option<Timestamp>,
        payload: Option<Value>,
        if_match: Option<u64>,
    ) -> CallAnswer {
        let api = self.api().await;
        let mut patch = json!({});
        if let Some(due_at) = due_at {
            patch["execute_at"] = json!(due_at);
        }
        if let Some(payload) = &payload {
            patch["payload"] = payload.clone();
        }
        let call = self.recorder.invoke(Op::Edit { task, due_at, payload, if_match });
        let mut request = api.call("PATCH", &format!("/v1/tasks/{task}")).json(&patch);
        if let Some(version) = if_match {
            request = request.header("if-match", &format!("\"{version}\""));
        }
        let answer = answer(request.try_send().await.ok().as_ref());
        call.end(answer.clone());
        answer
    }

    /// Re-drives a dead letter.
    pub async fn redrive(&self, task: TaskId) -> CallAnswer {
        self.about(Op::Redrive { task }, "POST", &format!("/v1/tasks/{task}/redrive"), Some(&json!({}))).await
    }

    /// Polls for tasks. A poll without an answer counts as one without tasks: the reaper takes them
    /// back.
    pub async fn lease(&self, ask: &WorkerPoll<'_>) -> Vec<HeldLease> {
        let api = self.api().await;
        let body = json!({
            "worker_id": ask.worker,
            "queues": ask.queues,
            "max_tasks": ask.most,
            "wait_seconds": ask.wait.as_secs_f64(),
            "lease_seconds": ask.lease_seconds,
        });
        let asked = self.recorder.now();
        let reply = api.call("POST", "/v1/leases").json(&body).try_send().await.ok();
        let got = self.recorder.now();
        let Some(reply) = reply.filter(|reply| reply.status() == 200) else { return Vec::new() };
        let answer: LeaseAnswer =
            serde_json::from_slice(reply.body()).unwrap_or_else(|error| panic!("not leases: {error}\n{reply}"));
        let held = answer.leases.into_iter().map(|lease| {
            let (worker, task, expires_at) = (ask.worker.to_owned(), lease.task.task_id, lease.lease_expires_at);
            let payload: Value = serde_json::from_str(lease.task.payload.get()).unwrap_or_default();
            let Lease { attempt, token, .. } = lease;
            let held = HeldLease { worker: worker.clone(), task, token, expires_at, payload };
            let payload = held.payload.clone();
            self.recorder.granted(Grant { worker, task, attempt, token, expires_at, payload, asked, got });
            held
        });
        held.collect()
    }

    /// Reports the outcome of a run, or a heartbeat.
    pub async fn settle(&self, held: &HeldLease, report: WorkerReport) -> CallAnswer {
        self.settle_all(&[(held.clone(), report)]).await.pop().expect("invariant: one item, one answer")
    }

    /// Reports the outcome at the task's own address.
    pub async fn settle_alone(&self, held: &HeldLease, report: WorkerReport) -> CallAnswer {
        let verb = match report {
            WorkerReport::Completed => "complete",
            WorkerReport::Failed | WorkerReport::FailedForGood => "fail",
            WorkerReport::Released => "release",
            WorkerReport::Heartbeat => "heartbeat",
        };
        let mut body = settlement(held, report);
        if let Some(fields) = body.as_object_mut() {
            fields.retain(|name, _| name != "task_id" && name != "outcome");
        }
        self.about(held.op(report), "POST", &format!("/v1/tasks/{}/{verb}", held.task), Some(&body)).await
    }

    /// Reports about many runs, in one request.
    pub async fn settle_all(&self, items: &[(HeldLease, WorkerReport)]) -> Vec<CallAnswer> {
        let api = self.api().await;
        let calls: Vec<_> = items.iter().map(|(held, report)| self.recorder.invoke(held.op(*report))).collect();
        let body = json!({"items": items.iter().map(|(held, report)| settlement(held, *report)).collect::<Vec<_>>()});
        let reply = api.call("POST", "/v1/leases/settle").json(&body).try_send().await.ok();
        let answers = self::items(reply.as_ref(), calls.len());
        for (call, answer) in calls.into_iter().zip(&answers) {
            call.end(answer.clone());
        }
        answers
    }

    /// Reports the outcome until it is answered.
    pub async fn settle_surely(&self, held: &HeldLease, report: WorkerReport) -> CallAnswer {
        loop {
            match self.settle(held, report).await {
                CallAnswer::Unknown => tokio::time::sleep(PAUSE).await,
                answer => return answer,
            }
        }
    }

    /// One call about one task.
    async fn about(&self, op: Op, method: &str, path: &str, body: Option<&Value>) -> CallAnswer {
        let api = self.api().await;
        let call = self.recorder.invoke(op);
        let request = api.call(method, path);
        let request = if let Some(body) = body { request.json(body) } else { request };
        let answer = answer(request.try_send().await.ok().as_ref());
        call.end(answer.clone());
        answer
    }
}

impl HeldLease {
    fn op(&self, report: WorkerReport) -> Op {
        Op::Settle { worker: self.worker.clone(), task: self.task, token: self.token, report }
    }
}

fn settlement(held: &HeldLease, report: WorkerReport) -> Value {
    let mut item = json!({"task_id": held.task, "token": held.token});
    let failed = |item: &mut Value, retryable: bool| {
        item["outcome"] = json!("failed");
        item["error"] = json!({"code": "reported", "message": "the worker reported a failure"});
        item["retryable"] = json!(retryable);
    };
    match report {
        WorkerReport::Completed => {
            item["outcome"] = json!("completed");
            // With a different result a repeated completion would be another one.
            item["result"] = result_by(&held.worker, held.token);
        }
        WorkerReport::Failed => failed(&mut item, true),
        WorkerReport::FailedForGood => failed(&mut item, false),
        WorkerReport::Released => item["outcome"] = json!("released"),
        WorkerReport::Heartbeat => item["outcome"] = json!("heartbeat"),
    }
    item
}
