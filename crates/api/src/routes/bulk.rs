//! Bulk changes: `POST /v1/tasks/cancel`, `POST /v1/dead-letters/redrive` and
//! `POST /v1/dead-letters/purge`.
//!
//! A request is stored as an operation, which the leader works off (`leader::bulk`).

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::bulk::{BulkKind, BulkOperation, BulkState};
use punctual_core::state::State as TaskState;
use punctual_core::store::{Filter, StoreError};
use punctual_core::task::Task;
use serde_json::json;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::operations::operation_view;
use super::tasks::filter::read_filter;
use crate::answer;
use crate::extract::query::Query;
use crate::extract::{Caller, JsonBody};
use crate::openapi::{Invalid, NoRoom};
use crate::problem::{Code, Problem};
use crate::state::Api;
use crate::view;

/// How long matching tasks are counted.
const COUNT_TIME_MAX: Duration = Duration::from_secs(5);
/// The tasks that are read at once to count them.
const COUNT_PAGE: usize = 1_000;
/// The maximum number of running operations of a tenant, among its latest ones.
const RUNNING_MAX: usize = 10;
const RECENT: usize = 100;
/// The tasks that a dry run shows.
const SAMPLE: usize = 10;

/// The routes of bulk changes.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(cancel_tasks))
        .routes(routes!(redrive_dead_letters))
        .routes(routes!(purge_dead_letters))
}

/// Cancels all tasks that match.
///
/// Waiting tasks are cancelled, running ones are asked to stop. Tasks that are submitted after the
/// answer are left alone. The operation goes on after a crash.
#[utoipa::path(
    post, path = "/v1/tasks/cancel", tag = "bulk operations", operation_id = "cancel_tasks",
    request_body(
        content = wire::BulkRequest,
        example = json!({"filter": {"queue": "mail", "created_before": "2026-01-01T00:00:00Z"}, "dry_run": true}),
    ),
    responses(
        (status = 200, description = "What a dry run found; nothing was changed", body = wire::DryRun),
        (status = 202, description = "The operation, which has begun", body = wire::Operation, headers(("Location" = String))),
        Invalid, NoRoom,
    ),
)]
async fn cancel_tasks(
    State(api): State<Api>,
    caller: Caller,
    body: JsonBody<wire::BulkRequest>,
) -> Result<Response, Problem> {
    begin(&api, caller, BulkKind::Cancel, body).await
}

/// Tries all dead letters again that match, their retries counted from zero.
///
/// With `dependents` the tasks that were cancelled or failed because of each one are revived, as
/// the re-drive of one task does.
#[utoipa::path(
    post, path = "/v1/dead-letters/redrive", tag = "bulk operations", operation_id = "redrive_dead_letters",
    request_body(
        content = wire::BulkRedrive,
        example = json!({"filter": {"queue": "mail", "error_code": "http_503"}, "dependents": true, "dry_run": true}),
    ),
    responses(
        (status = 200, description = "What a dry run found; nothing was changed", body = wire::DryRun),
        (status = 202, description = "The operation, which has begun", body = wire::Operation, headers(("Location" = String))),
        Invalid, NoRoom,
    ),
)]
async fn redrive_dead_letters(
    State(api): State<Api>,
    caller: Caller,
    body: JsonBody<wire::BulkRedrive>,
) -> Result<Response, Problem> {
    begin(&api, caller, BulkKind::Redrive, body).await
}

/// Discards all dead letters that match. They become `CANCELLED`.
#[utoipa::path(
    post, path = "/v1/dead-letters/purge", tag = "bulk operations", operation_id = "purge_dead_letters",
    request_body(
        content = wire::BulkRequest,
        example = json!({"filter": {"queue": "mail", "created_before": "2026-01-01T00:00:00Z"}, "dry_run": true}),
    ),
    responses(
        (status = 200, description = "What a dry run found; nothing was changed", body = wire::DryRun),
        (status = 202, description = "The operation, which has begun", body = wire::Operation, headers(("Location" = String))),
        Invalid, NoRoom,
    ),
)]
async fn purge_dead_letters(
    State(api): State<Api>,
    caller: Caller,
    body: JsonBody<wire::BulkRequest>,
) -> Result<Response, Problem> {
    begin(&api, caller, BulkKind::Purge, body).await
}

/// Begins an operation, or counts what it would change. All that a request may say is what a
/// re-drive takes.
async fn begin<R: Into<wire::BulkRedrive>>(
    api: &Api,
    caller: Caller,
    kind: BulkKind,
    body: JsonBody<R>,
) -> Result<Response, Problem> {
    let (filter, wanted) = body.check(|wanted, faults| {
        let wanted: wire::BulkRedrive = wanted.into();
        let mut query = Query::of_filter(&wanted.filter);
        let states = states(kind, &wanted.filter, &mut query);
        let filter = Filter { tenant: caller.tenant.clone(), states, ..read_filter(&mut query) };
        query.finish_into(faults);
        Some((filter, wanted))
    })?;
    // What a client sends whose variable is empty must not concern all tasks.
    if wanted.filter == wire::TaskFilter::default() && !wanted.dry_run {
        return Err(Problem::invalid_at("/filter", "must have a condition; for all tasks, give created_before"));
    }
    let filter = caller.narrow_exactly(filter)?;
    let matching = count(api, &filter).await?;
    if wanted.dry_run {
        let sample: Vec<_> = view::tasks(matching.sample).iter().map(view::summary).collect();
        let found = json!({"matched": matching.count, "more": matching.more, "sample": sample});
        return Ok(answer::json(StatusCode::OK, &found));
    }
    require_room(api, &filter.tenant).await?;
    let total = (!matching.more).then_some(matching.count);
    let operation = BulkOperation::begun(kind, filter, total, api.clock.now());
    let operation = if wanted.dependents { operation.with_dependents() } else { operation };
    api.database.insert_operation(operation.clone()).await?;
    tracing::info!(operation.id = %operation.id, kind = kind.as_str(), tenant = operation.tenant(), "a bulk operation has begun");
    let path = format!("/v1/operations/{}", operation.id);
    Ok(answer::created(answer::json(StatusCode::ACCEPTED, &operation_view(operation)), &path))
}

/// Fails if the tenant has as many running operations as it may have. Requests at the same instant
/// may pass together: the bound keeps the table small, and need not be exact.
async fn require_room(api: &Api, tenant: &str) -> Result<(), Problem> {
    let recent = api.database.list_operations(tenant, None, RECENT).await?;
    if recent.iter().filter(|operation| operation.state == BulkState::Running).count() < RUNNING_MAX {
        return Ok(());
    }
    let detail = format!("the tenant has {RUNNING_MAX} running operations; wait for one, or cancel it");
    Err(Problem::new(Code::QuotaExceeded, detail).retry_after(5))
}

/// The states that the filter names, or all that the operation can change.
fn states(kind: BulkKind, filter: &wire::TaskFilter, query: &mut Query) -> Vec<TaskState> {
    let possible = kind.states();
    if filter.status.is_empty() {
        return possible;
    }
    let is_named = |state: &TaskState| filter.status.contains(&(*state).into());
    if filter.status.iter().any(|status| !possible.iter().any(|state| wire::Status::from(*state) == *status)) {
        let names: Vec<&str> = possible.iter().map(|state| state.as_str()).collect();
        query.refuse("status", format!("must be one of {}: the others cannot be changed so", names.join(", ")));
    }
    possible.into_iter().filter(is_named).collect()
}

/// The tasks that match, as far as they were counted.
struct MatchingTasks {
    count: u64,
    more: bool,
    sample: Vec<Task>,
}

async fn count(api: &Api, filter: &Filter) -> Result<MatchingTasks, StoreError> {
    let began = Instant::now();
    let mut matching = MatchingTasks { count: 0, more: false, sample: Vec::new() };
    let mut after = None;
    loop {
        let page = api.store.list(filter.clone(), after, COUNT_PAGE).await?;
        matching.count += page.tasks.len() as u64;
        let wanted = SAMPLE - matching.sample.len();
        matching.sample.extend(page.tasks.into_iter().take(wanted));
        after = page.next;
        matching.more = after.is_some();
        if !matching.more || began.elapsed() >= COUNT_TIME_MAX {
            return Ok(matching);
        }
    }
}

#[cfg(test)]
mod tests;
