//! `POST /v1/tasks`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use punctual_client as wire;
use punctual_core::store::{FullQueue, Inserted};
use punctual_core::task::NewTask;
use punctual_submission::{BatchContext, TaskValidator};

use super::header_key::HeaderKey;
use super::hidden_dependencies::refuse_hidden_dependencies;
use super::unknown_dependencies::UnknownDependencies;
use crate::answer;
use crate::extract::query::Query;
use crate::extract::{Caller, JsonBody};
use crate::openapi::{IdempotencyKey, NoRoom};
use crate::problem::{Code, Problem};
use crate::state::Api;

/// Submits a task.
///
/// Answers when the task is durable. A second submission under the same idempotency key returns the
/// first task as it is now; the same key with other content is refused. A key is kept until its
/// task has finished, and for at least 30 days unless the server is set otherwise. With
/// `replace_final` a key of a task that is `CANCELLED` or `FAILED` can be used again.
#[utoipa::path(
    post, path = "/v1/tasks", tag = "tasks", operation_id = "submit_task",
    params(
        IdempotencyKey,
        ("replace_final" = Option<bool>, Query, description = "Whether the task takes its key from one that is `CANCELLED` or `FAILED`; false if absent"),
    ),
    request_body(
        content = wire::NewTask,
        example = json!({"type": "invoice.send", "queue": "mail", "payload": {"invoice": 17}, "delay_seconds": 60}),
    ),
    responses(
        (status = 201, description = "Accepted and durable", body = wire::Task,
            headers(("ETag" = String), ("Location" = String))),
        (status = 200, description = "Submitted before under this key", body = wire::Task,
            headers(("ETag" = String), ("Idempotent-Replayed" = String))),
        (status = 422, description = "Not valid: `invalid_request`, `idempotency_key_reused`, `unknown_dependency`", body = wire::Problem, content_type = "application/problem+json"),
        NoRoom,
    ),
)]
pub async fn submit_task(
    State(api): State<Api>,
    caller: Caller,
    HeaderKey(key): HeaderKey,
    mut query: Query,
    body: JsonBody<wire::NewTask>,
) -> Result<Response, Problem> {
    let replaces = query.flag("replace_final") == Some(true);
    let validator = TaskValidator::new(&api.config.submission, &caller.tenant, api.clock.now(), api.node);
    let text = body.text();
    let task = body.check(|new, faults| {
        query.finish_into(faults);
        validator.check(faults, new, key, &BatchContext::none())
    })?;
    caller.require(&task.lane.kind, &task.lane.queue)?;
    let mut checked = [Ok(task)];
    refuse_hidden_dependencies(&api, &caller, &mut checked).await?;
    let [task] = checked;
    let mut task = task?;
    replace_final(&mut task, replaces);
    let text = if task.body.dependencies.ids.is_empty() { Bytes::new() } else { text };
    let inserted = api.store.insert(vec![task]).await?.pop();
    match inserted.ok_or_else(unanswered)? {
        Inserted::Created(task) => {
            api.operations.metrics.tasks_submitted.inc();
            let path = format!("/v1/tasks/{}", task.id);
            Ok(answer::created(answer::task(StatusCode::CREATED, task, caller.full_view()), &path))
        }
        // It may have been moved to another queue since.
        Inserted::Replayed(task) if !caller.reaches(&task) => Err(key_reused()),
        Inserted::Replayed(task) => Ok(answer::replayed(answer::task(StatusCode::OK, task, caller.full_view()))),
        Inserted::KeyReused(_) => Err(key_reused()),
        Inserted::UnknownDependency(id) => {
            Err(UnknownDependencies::new(&api, &caller.tenant).refusal(&text, "", id).await)
        }
        Inserted::QueueFull(queue) => Err(queue_full(&queue)),
        Inserted::TooManyLanes(most) => Err(too_many_lanes(most)),
        Inserted::Withheld => Err(unanswered()),
    }
}

/// Lets a task take its key from one that is cancelled or failed.
pub fn replace_final(task: &mut NewTask, replaces: bool) {
    if let Some(idempotency) = &mut task.idempotency {
        idempotency.replace_final = replaces;
    }
}

/// The refusal of a key that was used for something else.
pub fn key_reused() -> Problem {
    let detail = "another task was submitted under this idempotency key before, or the task was removed since; nothing was \
                  changed";
    Problem::new(Code::IdempotencyKeyReused, detail)
}

/// The refusal of a task whose queue has no room.
pub fn queue_full(queue: &FullQueue) -> Problem {
    let FullQueue { name, max_depth } = queue;
    let detail = format!(
        "the queue {name} has as many live tasks as its max_depth of {max_depth} allows; nothing was stored, try again later"
    );
    Problem::new(Code::QueueFull, detail).retry_after(1)
}

/// The refusal of a task that needs a lane beyond those that its tenant may have. Lanes become free
/// slowly, so a client that repeats at once is slowed down.
pub fn too_many_lanes(most: u64) -> Problem {
    let detail = format!(
        "the tenant has {most} combinations of queue, type, priority and webhook target, as many as limits.tenant_lanes \
         allows; nothing was changed. Use fewer queues, types or hosts: a combination without tasks is forgotten when \
         the history of its tasks is. Tasks for combinations in use are accepted"
    );
    Problem::new(Code::QuotaExceeded, detail).retry_after(60)
}

/// A store that answers fewer tasks than it was given has broken its contract.
pub fn unanswered() -> Problem {
    tracing::error!("the store did not answer for every task it was given; answering 500");
    Problem::new(Code::Internal, "it is not known what became of the task")
}

#[cfg(test)]
mod tests;
