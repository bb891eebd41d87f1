//! `PATCH /v1/tasks/{id}`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::state::{Event, State as TaskState, transition};
use punctual_core::task::Edit;
use punctual_submission::patch;

use super::change::{ChangeDecision, change};
use crate::extract::{If, JsonBody, TaskRequest};
use crate::openapi::{IfMatch, Invalid, NoRoom, NotFound, TaskPath, VersionMismatch};
use crate::problem::{Code, Problem};

/// Changes a task that has not begun.
#[utoipa::path(
    patch, path = "/v1/tasks/{id}", tag = "tasks", operation_id = "edit_task",
    params(
        TaskPath,
        IfMatch,
    ),
    request_body = wire::TaskPatch,
    responses(
        (status = 200, description = "The task as it is now", body = wire::Task, headers(("ETag" = String))),
        (status = 409, description = "`not_editable`: it has begun or finished. A task that a pull worker waits for begins up to 20 ms before it is due", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch, Invalid, NoRoom,
    ),
)]
pub async fn edit_task(
    request: TaskRequest,
    condition: If,
    body: JsonBody<wire::TaskPatch>,
) -> Result<Response, Problem> {
    change(&request, &condition, |task, by| {
        if !matches!(task.state(), TaskState::Blocked | TaskState::Pending) {
            return Err(not_editable(task.state()));
        }
        let rules = &request.api.config.submission;
        let edit = body.check_ref(|patch, faults| patch::check(faults, patch, task, by.now, rules))?;
        if let Some(queue) = &edit.queue {
            request.caller.require(&task.lane.key.kind, queue)?;
        }
        if edit == Edit::default() {
            return Ok(ChangeDecision::Leave(StatusCode::OK));
        }
        let change =
            transition(&task.position, Event::Edit(Box::new(edit)), by).map_err(|fault| not_editable(fault.state))?;
        Ok(ChangeDecision::Apply(Box::new(change), StatusCode::OK))
    })
    .await
}

fn not_editable(state: TaskState) -> Problem {
    let detail = format!("the task is {}; only a BLOCKED or PENDING task can be edited", state.as_str());
    Problem::new(Code::NotEditable, detail)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::World;

    async fn patched(world: &World, id: &str, patch: Value) -> Value {
        world.send("PATCH", &format!("/v1/tasks/{id}"), Some(patch)).await.expect(200)
    }

    #[tokio::test]
    async fn a_waiting_task_goes_where_its_patch_says() {
        let world = World::new();
        let (url, other) = ("http://a.example/a", "http://b.example/b");
        let task = json!({"type": "t", "callback_url": url, "callback_headers": {"x-a": "1"}, "delay_seconds": 600});
        let id = world.submit(task).await;
        let task = patched(&world, &id, json!({"callback_url": other, "timeout_seconds": 7, "queue": "q"})).await;
        assert_eq!((&task["callback_url"], &task["callback_headers"]), (&json!(other), &json!({"x-a": "1"})));
        assert_eq!((&task["timeout_seconds"], &task["queue"]), (&json!(7), &json!("q")));
        let patch = json!({"callback_headers": {}, "callback_body": "envelope", "ordering_key": "k"});
        let task = patched(&world, &id, patch).await;
        assert_eq!((&task["callback_headers"], &task["ordering_key"]), (&json!({}), &json!("k")));
        let task = patched(&world, &id, json!({"callback_url": url})).await;
        assert_eq!((&task["callback_url"], &task["callback_body"]), (&json!(url), &json!("envelope")));
        let task = patched(&world, &id, json!({"callback_url": null, "ordering_key": null, "delay_seconds": 0})).await;
        assert_eq!((&task["callback_url"], &task["ordering_key"]), (&json!(null), &json!(null)));
        assert_eq!(task["callback_body"], "payload", "there is no webhook any more");
        assert_eq!(patched(&world, &id, json!({"queue": "q"})).await["version"], task["version"], "nothing is new");
        assert_eq!(world.lease("w", "q").await.id, id, "it waits for a pull worker of its new queue");
    }

    #[tokio::test]
    async fn a_patch_reports_all_its_faults() {
        let world = World::new();
        let id = world.submit(json!({"type": "t", "delay_seconds": 600})).await;
        let patch = json!({
            "queue": "no spaces", "timeout_seconds": 0, "ordering_key": "", "callback_headers": {"x-a": "1"},
            "callback_body": "envelope",
        });
        let answer = world.send("PATCH", &format!("/v1/tasks/{id}"), Some(patch)).await;
        assert_eq!(
            answer.pointers(),
            ["/queue", "/timeout_seconds", "/ordering_key", "/callback_headers", "/callback_body"]
        );
        let nulls = json!({"queue": null, "timeout_seconds": null, "callback_headers": null, "callback_body": null});
        let answer = world.send("PATCH", &format!("/v1/tasks/{id}"), Some(nulls)).await;
        assert_eq!(answer.pointers(), ["/queue", "/timeout_seconds", "/callback_headers", "/callback_body"]);
    }
}
