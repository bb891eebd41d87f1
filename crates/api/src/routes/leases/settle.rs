//! Pull workers report on their runs: many in a call, or one under the task's own path.
//!
//! Every route checks its items and hands them to the lease settler, which decides. Each item is
//! answered by itself: a bad one does not affect the rest.

use std::collections::HashSet;

use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{
    Complete, Fail, Heartbeat, HeartbeatAnswer, Release, SettleAnswer, SettleItem, SettleOutcome, SettleRequest, Task,
};
use punctual_core::ids::TaskId;
use punctual_core::lane::Route;
use punctual_core::task::limits;
use punctual_core::time::Timestamp;
use punctual_scheduler::settle::{ExtendedLease, SettleRefusal, Settlement};
use punctual_submission::{Faults, reading};

use super::settlement::settlement;
use crate::answer;
use crate::extract::query::Query;
use crate::extract::{Caller, JsonBody, TaskRequest, body, json};
use crate::openapi::{Cancelled, Invalid, NotFound, StaleToken, TaskPath, TooLarge, Unavailable};
use crate::parameterless::refused_by_body;
use crate::problem::{Code, Problem};
use crate::state::Api;
use crate::view;
use crate::yielding::yielding;

/// A settle call, which may be as large as a batch: its items, each checked by itself.
pub(super) struct SettleBody(Vec<SettleRequestItem>);

/// An item of a settle call.
struct SettleRequestItem {
    /// The task that it names, if it names one.
    task_id: Option<TaskId>,
    checked: Result<Settlement, Problem>,
}

impl FromRequest<Api> for SettleBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        body::require_json(request.headers())?;
        let parameters = refused_by_body(&request);
        let bytes = body::read(request, api.config.batch_body_bytes).await?;
        let read = {
            let bytes = bytes.clone();
            move || read_items(&bytes, parameters)
        };
        Ok(Self(api.cpu_pool.run(bytes.len(), read).await??))
    }
}

/// Reads and checks the items. A call that is refused as a whole is refused with their faults.
fn read_items(body: &[u8], parameters: Query) -> Result<Vec<SettleRequestItem>, Problem> {
    let text = json::text(body)?;
    let mut whole = Faults::default();
    parameters.finish_into(&mut whole);
    let sent = reading::read_list::<SettleRequest>(text, "items", limits::LEASE_BATCH)?;
    let items = whole.part("", sent).unwrap_or_default().into_iter().enumerate();
    let items: Vec<SettleRequestItem> = yielding(items).map(|(at, item)| checked(at, item.get())).collect();
    if let Err(error) = whole.finish() {
        let refused = items.iter().enumerate();
        let refused = refused.filter_map(|(at, item)| Some((format!("/items/{at}"), item.checked.as_ref().err()?)));
        return Err(json::quoting(body, error).beside(refused));
    }
    Ok(items)
}

/// The item at this position of the call.
fn checked(at: usize, text: &str) -> SettleRequestItem {
    let mut task_id = None;
    let check = |item: SettleItem, faults: &mut Faults| {
        task_id = Some(item.task_id).filter(|_| !faults.is_left_out("/task_id"));
        Some(settlement(faults, item))
    };
    let sent = reading::read(text).map_err(Problem::from);
    let checked = sent.and_then(|sent| Ok(sent.check(check).map_err(|error| error.quoting(text))?));
    let checked = checked.map_err(|problem| problem.under(&format!("/items/{at}")));
    SettleRequestItem { task_id, checked }
}

/// Settle many runs.
///
/// Each item is settled and answered by itself, in order; the call as a whole answers 200. An item
/// with a fault is answered 422 and affects no other.
#[utoipa::path(
    post, path = "/v1/leases/settle", tag = "workers", operation_id = "settle_runs",
    request_body(
        content = SettleRequest,
        example = json!({"items": [
            {"task_id": "task_01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e8f", "token": 3, "outcome": "completed", "result": {"sent": true}},
            {"task_id": "task_01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e90", "token": 5, "outcome": "failed",
             "error": {"code": "smtp_421", "message": "try again later"}, "retry_after_seconds": 60},
        ]}),
    ),
    responses(
        (status = 200, description = "An answer for each item, in order", body = SettleAnswer),
        TooLarge, Invalid, Unavailable,
    )
)]
pub(super) async fn settle(
    State(api): State<Api>,
    caller: Caller,
    SettleBody(mut items): SettleBody,
) -> Result<Response, Problem> {
    let ids: Vec<Option<TaskId>> = items.iter().map(|item| item.task_id).collect();
    if !caller.reaches_all() {
        refuse_out_of_reach(&api, &caller, &mut items).await?;
    }
    let answers = settle_all(&api, &caller.tenant, items).await?;
    let items = ids.into_iter().zip(answers).map(|(task_id, answer)| shown(task_id, answer)).collect();
    Ok(answer::json(StatusCode::OK, &SettleAnswer { items }))
}

/// Answers the items about tasks that the caller does not reach as if there were no such tasks.
async fn refuse_out_of_reach(api: &Api, caller: &Caller, items: &mut [SettleRequestItem]) -> Result<(), Problem> {
    let ids: Vec<TaskId> = items.iter().filter_map(|item| item.task_id).collect();
    let found = api.store.get(&caller.tenant, ids.clone()).await?;
    let reaches = |task: &Option<punctual_core::task::Task>| task.as_ref().is_some_and(|task| caller.reaches(task));
    let reached: HashSet<TaskId> =
        ids.into_iter().zip(&found).filter(|(_, task)| reaches(task)).map(|(id, _)| id).collect();
    for item in items {
        if item.checked.is_ok() && item.task_id.is_none_or(|id| !reached.contains(&id)) {
            item.checked = Err(Problem::no_such_task());
        }
    }
    Ok(())
}

fn shown(task_id: Option<TaskId>, answer: ItemResult) -> punctual_client::Settled {
    let (status, lease, error) = match answer {
        Ok(lease) => (StatusCode::OK, lease, None),
        Err(problem) => (problem.status(), None, Some(Box::new(problem.to_wire()))),
    };
    let (lease_expires_at, timeout_at) = ends(lease);
    punctual_client::Settled { status: status.as_u16(), task_id, lease_expires_at, timeout_at, error }
}

/// When an extended lease ends, and when its run does.
fn ends(lease: Option<ExtendedLease>) -> (Option<Timestamp>, Option<Timestamp>) {
    lease.map(|lease| (lease.lease_expires_at, lease.timeout_at)).unzip()
}

/// Complete a run.
///
/// Repeated with the same token and result it answers 200 again and changes nothing.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/complete", tag = "workers", operation_id = "complete_run",
    params(TaskPath),
    request_body(content = Complete, example = json!({"token": 3, "result": {"sent": true}})),
    responses(
        (status = 200, description = "The task", body = Task),
        NotFound, StaleToken, Cancelled, TooLarge, Invalid, Unavailable,
    )
)]
pub(super) async fn complete(request: TaskRequest, body: JsonBody<Complete>) -> Result<Response, Problem> {
    let wanted = body.check(|Complete { token, result }, faults| {
        let completed = SettleItem::new(request.id, token, SettleOutcome::Completed);
        Some(settlement(faults, SettleItem { result, ..completed }))
    })?;
    settle_one(&request, wanted).await.map(|(task, _)| answer::json(StatusCode::OK, &task))
}

/// Fail a run.
///
/// The task is retried by its retry policy, or becomes a dead letter.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/fail", tag = "workers", operation_id = "fail_run",
    params(TaskPath),
    request_body(
        content = Fail,
        example = json!({"token": 3, "error": {"code": "smtp_421", "message": "try again later"}, "retryable": true}),
    ),
    responses(
        (status = 200, description = "The task", body = Task),
        NotFound, StaleToken, Cancelled, Invalid, Unavailable,
    )
)]
pub(super) async fn fail(request: TaskRequest, body: JsonBody<Fail>) -> Result<Response, Problem> {
    let wanted = body.check(|Fail { token, error, retryable, retry_after_seconds }, faults| {
        let failed = SettleItem::new(request.id, token, SettleOutcome::Failed);
        Some(settlement(faults, SettleItem { error, retryable, retry_after_seconds, ..failed }))
    })?;
    settle_one(&request, wanted).await.map(|(task, _)| answer::json(StatusCode::OK, &task))
}

/// Extend a lease.
///
/// By the `lease_seconds` it was taken with, never past the task's timeout (`timeout_at`). 409
/// `timed_out` means that the timeout is over, 410 that the task was cancelled: stop.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/heartbeat", tag = "workers", operation_id = "heartbeat_run",
    params(TaskPath),
    request_body(content = Heartbeat, example = json!({"token": 3, "progress": 0.5, "checkpoint": {"row": 1200}})),
    responses(
        (status = 200, description = "The task, and until when the lease runs now", body = HeartbeatAnswer),
        NotFound, StaleToken, Cancelled, TooLarge, Invalid, Unavailable,
    )
)]
pub(super) async fn heartbeat(request: TaskRequest, body: JsonBody<Heartbeat>) -> Result<Response, Problem> {
    let wanted = body.check(|Heartbeat { token, progress, checkpoint }, faults| {
        let heartbeat = SettleItem::new(request.id, token, SettleOutcome::Heartbeat);
        Some(settlement(faults, SettleItem { progress, checkpoint, ..heartbeat }))
    })?;
    let (task, lease) = settle_one(&request, wanted).await?;
    let (lease_expires_at, timeout_at) = ends(lease);
    Ok(answer::json(StatusCode::OK, &HeartbeatAnswer { task, lease_expires_at, timeout_at }))
}

/// Give a task back.
///
/// It can be leased again after `delay_seconds`, at once if that is absent, and the attempt is not
/// counted. A task that is released more than three times in a row waits longer each time, up to 30
/// seconds or its own delay.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/release", tag = "workers", operation_id = "release_run",
    params(TaskPath),
    request_body(content = Release, example = json!({"token": 3, "delay_seconds": 60})),
    responses(
        (status = 200, description = "The task", body = Task),
        NotFound, StaleToken, Cancelled, Invalid, Unavailable,
    )
)]
pub(super) async fn release(request: TaskRequest, body: JsonBody<Release>) -> Result<Response, Problem> {
    let wanted = body.check(|Release { token, delay_seconds }, faults| {
        let released = SettleItem::new(request.id, token, SettleOutcome::Released);
        Some(settlement(faults, SettleItem { delay_seconds, ..released }))
    })?;
    settle_one(&request, wanted).await.map(|(task, _)| answer::json(StatusCode::OK, &task))
}

/// Settles one run and reads the task as it is then.
async fn settle_one(request: &TaskRequest, wanted: Settlement) -> Result<(Task, Option<ExtendedLease>), Problem> {
    let TaskRequest { api, caller, .. } = request;
    let tenant = &caller.tenant;
    // The token alone settles a run, so what the caller does not reach is looked for before.
    if !caller.reaches_all() {
        request.find().await?;
    }
    let answer = settle_valid(api, tenant, vec![wanted]).await?.pop();
    let lease = answer.expect("invariant: one item, one answer")?;
    let task = request.find().await?;
    if let (Route::Pull, Some(worker)) = (&task.lane.key.route, &task.worker) {
        api.presence.record_alive(tenant, worker, api.clock.now());
    }
    Ok((view::task(task), lease))
}

/// Accepted, for a heartbeat with its lease; or why not.
type ItemResult = Result<Option<ExtendedLease>, Problem>;

/// Settles the valid items, and answers every item in order.
async fn settle_all(api: &Api, tenant: &str, items: Vec<SettleRequestItem>) -> Result<Vec<ItemResult>, Problem> {
    let mut settlements = Vec::with_capacity(items.len());
    let take = |item: SettleRequestItem| item.checked.map(|settlement| settlements.push(settlement));
    let checked: Vec<Result<(), Problem>> = items.into_iter().map(take).collect();
    let mut settled = settle_valid(api, tenant, settlements).await?.into_iter();
    let mut answer = || settled.next().expect("invariant: every settlement is answered");
    Ok(checked.into_iter().map(|checked| checked.and_then(|()| answer())).collect())
}

/// Settles runs, and answers each in order.
async fn settle_valid(api: &Api, tenant: &str, settlements: Vec<Settlement>) -> Result<Vec<ItemResult>, Problem> {
    if settlements.is_empty() {
        return Ok(Vec::new());
    }
    let settled = api.settler.settle(tenant, settlements).await?;
    for end in settled.iter().filter_map(|settled| settled.ok()?.end) {
        api.operations.metrics.settled(end.metric_label(), 1);
    }
    Ok(settled.into_iter().map(|settled| settled.map(|settled| settled.extended).map_err(problem)).collect())
}

fn problem(refusal: SettleRefusal) -> Problem {
    match refusal {
        SettleRefusal::Stale { state } => {
            let detail = format!("the token does not hold the task any more; the task is {}", state.as_str());
            Problem::new(Code::StaleToken, detail)
        }
        SettleRefusal::TimedOut { state } => {
            let rule = "the run did not end within the task's timeout_seconds, which heartbeats do not extend";
            Problem::new(Code::TimedOut, format!("{rule}; the task is {}", state.as_str()))
        }
        SettleRefusal::Cancelled => Problem::new(Code::Cancelled, "the task was cancelled; stop working on it"),
        SettleRefusal::NotFound => Problem::no_such_task(),
    }
}
