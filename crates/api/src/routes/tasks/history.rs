//! `GET /v1/tasks/{id}/runs` and `GET /v1/tasks/{id}/events`. Both read the task's trail.

use std::borrow::Cow;

use axum::response::Response;
use punctual_client as wire;
use punctual_core::ids::TaskId;
use punctual_core::json::Json;
use punctual_core::task::Task;
use punctual_core::trail::{Actor, Entry, Run, Step};
use serde::Serialize;

use crate::answer;
use crate::cursor::Listing;
use crate::extract::TaskRequest;
use crate::extract::query::{PageParams, Query, View};
use crate::openapi::{NotFound, NotModified, TaskPath};
use crate::problem::{Code, Problem};

/// Lists the attempts of a task, oldest first.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/runs", tag = "tasks", operation_id = "list_runs",
    params(TaskPath, PageParams),
    responses(
        (status = 200, description = "A page of attempts", body = wire::RunPage),
        NotModified, NotFound,
    ),
)]
pub async fn list_runs(request: TaskRequest, query: Query) -> Result<Response, Problem> {
    let page = TrailPage::of(query, "runs", request.id)?;
    let task = with_whole_trail(&request).await?;
    let shows_answers = request.caller.full_view() == View::Full;
    let runs = task.trail.runs(request.id).into_iter().map(|one| (one.token, run(one)));
    Ok(page.answer(runs.map(|(token, run)| (token, if shows_answers { run } else { without_answers(run) }))))
}

/// Lists the steps of a task's life, oldest first. A very long life keeps its first and last steps.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/events", tag = "tasks", operation_id = "list_events",
    params(TaskPath, PageParams),
    responses(
        (status = 200, description = "A page of steps", body = wire::EventPage),
        NotModified, NotFound,
    ),
)]
pub async fn list_events(request: TaskRequest, query: Query) -> Result<Response, Problem> {
    let page = TrailPage::of(query, "events", request.id)?;
    let task = with_whole_trail(&request).await?;
    Ok(page.answer(events(&task).map(|event| (event.version, event))))
}

/// The task, if its trail can be read to its end: a cut trail must not look complete.
async fn with_whole_trail(request: &TaskRequest) -> Result<Task, Problem> {
    let task = request.find().await?;
    if task.trail.is_whole() {
        return Ok(task);
    }
    let steps = task.trail.entries().count();
    tracing::error!(task.id = %task.id, steps, "the trail of a task is damaged behind its first steps; answering 500");
    Err(Problem::new(
        Code::Internal,
        format!(
            "the history of this task is damaged: {steps} of its steps can be read; the task itself is not affected"
        ),
    ))
}

/// The requested page of a list in the order of versions. It grows at its end, and may lose what is
/// in its middle.
struct TrailPage {
    kind: &'static str,
    scope: String,
    after: u64,
    limit: usize,
}

impl TrailPage {
    fn of(query: Query, kind: &'static str, id: TaskId) -> Result<Self, Problem> {
        let (limit, cursor) = query.page()?;
        let page = Self { kind, scope: id.to_string(), after: 0, limit };
        let after = cursor.map(|text| page.listing().open_version(&text)).transpose()?.unwrap_or(0);
        Ok(Self { after, ..page })
    }

    fn listing(&self) -> Listing<'_> {
        Listing { kind: self.kind, scope: &self.scope }
    }

    /// Answers with the page of `all` items, each with its version.
    fn answer<T: Serialize>(&self, all: impl Iterator<Item = (u64, T)>) -> Response {
        let mut rest = all.skip_while(|(version, _)| *version <= self.after);
        let (versions, items): (Vec<u64>, Vec<T>) = rest.by_ref().take(self.limit).unzip();
        let last = versions.last().filter(|_| rest.next().is_some());
        let next_cursor = last.map(|version| self.listing().seal_version(*version));
        answer::page(View::Full, wire::Page { items, next_cursor })
    }
}

fn run(run: Run<'_>) -> wire::Run {
    let uncounted = run.end.as_ref().and_then(|end| end.uncounted).map(str::to_owned);
    let result_dropped = run.end.as_ref().and_then(|end| end.result_dropped).map(Into::into);
    let (finished_at, outcome, error, http_status) = match run.end {
        Some(end) => (Some(end.at), Some(end.outcome.into()), end.error, end.http_status),
        None => (None, None, None, None),
    };
    // Pull workers have details of their own, and no status.
    let response_excerpt =
        http_status.and(error.as_ref()).and_then(|error| response_excerpt(error.details.as_deref()?));
    let error = error.map(|error| wire::RunError {
        code: error.code.into_owned(),
        message: error.message.into_owned(),
        details: error.details.and_then(|text| Json::trusted(text.into_owned()).ok()),
    });
    wire::Run {
        run_id: run.id,
        attempt: run.attempt,
        worker_id: run.worker.into_owned(),
        started_at: run.started_at,
        finished_at,
        outcome,
        error,
        http_status,
        uncounted,
        response_excerpt,
        result_dropped,
    }
}

/// The run without what its target or its worker has said, which may repeat the payload.
fn without_answers(run: wire::Run) -> wire::Run {
    let error = run.error.map(|error| wire::RunError { details: None, ..error });
    wire::Run { error, response_excerpt: None, ..run }
}

/// The beginning of the answer in the details of a webhook's refusal.
fn response_excerpt(details: &str) -> Option<String> {
    let details: serde_json::Value = serde_json::from_str(details).ok()?;
    details.get("response_body")?.as_str().map(str::to_owned)
}

/// The steps. A completion is written without reading the task, so it lacks the name of its worker,
/// which the start of the run has.
fn events(task: &Task) -> impl Iterator<Item = wire::TaskEvent> {
    let mut from = None;
    let mut runner = Cow::Borrowed("");
    task.trail.entries().map(move |entry| {
        if let (Step::Started { .. }, Actor::Worker(name)) = (&entry.step, &entry.actor) {
            runner.clone_from(name);
        }
        let event = event(&entry, from, &runner);
        from = Some(event.to);
        event
    })
}

fn event(entry: &Entry<'_>, from: Option<wire::Status>, runner: &str) -> wire::TaskEvent {
    let actor = match &entry.actor {
        Actor::Client => "client".to_owned(),
        Actor::Scheduler => "scheduler".to_owned(),
        Actor::Worker(name) => format!("worker:{}", if name.is_empty() { runner } else { name }),
        Actor::Reaper => "reaper".to_owned(),
        Actor::Node => "node".to_owned(),
        Actor::Schedule => "schedule".to_owned(),
        Actor::Resolver => "resolver".to_owned(),
        Actor::Sql => "sql".to_owned(),
        Actor::Operation(id) => format!("operation:{id}"),
    };
    wire::TaskEvent {
        at: entry.at,
        from,
        to: entry.to.into(),
        actor,
        node: entry.node.to_string(),
        reason: entry.reason().into_owned(),
        version: entry.version,
        uncounted: entry.uncounted().map(str::to_owned),
        omitted: entry.omitted(),
    }
}

#[cfg(test)]
mod tests;
