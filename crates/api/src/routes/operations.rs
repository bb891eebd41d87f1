//! `GET /v1/operations`, `GET /v1/operations/{id}` and `DELETE /v1/operations/{id}`.

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::bulk::{BulkOperation, BulkState};
use punctual_core::ids::OperationId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::answer;
use crate::cursor::Listing;
use crate::extract::query::{PageParams, Query, View};
use crate::extract::{Caller, path_text};
use crate::openapi::{Conflict, NotFound, NotModified, OperationPath};
use crate::problem::{Code, Problem};
use crate::state::Api;

/// How often a lost race against the leader is run again.
const ROUNDS: usize = 16;

/// The routes of bulk operations.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_operations)).routes(routes!(get_operation, cancel_operation))
}

/// Lists bulk operations, newest first.
#[utoipa::path(
    get, path = "/v1/operations", tag = "bulk operations", operation_id = "list_operations",
    params(PageParams),
    responses((status = 200, description = "A page of operations", body = wire::OperationPage), NotModified),
)]
async fn list_operations(State(api): State<Api>, caller: Caller, query: Query) -> Result<Response, Problem> {
    let (limit, cursor) = query.page()?;
    let listing = Listing { kind: "operations", scope: &caller.tenant };
    let after = cursor.map(|cursor| listing.open_bytes(&cursor)).transpose()?;
    let after = after.map(|bytes| OperationId::from_uuid(Uuid::from_bytes(bytes)));
    let operations = api.database.list_operations(&caller.tenant, after, limit + 1).await?;
    let page = listing.page(operations, limit, |last| last.id.uuid().as_bytes().to_vec());
    let reached = page.items.into_iter().filter(|operation| caller.reaches_filter(&operation.filter));
    let items = reached.map(operation_view).collect();
    Ok(answer::page(View::Full, wire::Page { items, next_cursor: page.next_cursor }))
}

/// Reads a bulk operation.
#[utoipa::path(
    get, path = "/v1/operations/{id}", tag = "bulk operations", operation_id = "get_operation",
    params(OperationPath),
    responses((status = 200, description = "The operation", body = wire::Operation), NotFound),
)]
async fn get_operation(request: OperationRequest) -> Result<Response, Problem> {
    Ok(answer::json(StatusCode::OK, &operation_view(request.find().await?)))
}

/// Cancels a bulk operation.
///
/// What it has done stays done. An operation that has ended stays as it is.
#[utoipa::path(
    delete, path = "/v1/operations/{id}", tag = "bulk operations", operation_id = "cancel_operation",
    params(OperationPath),
    responses((status = 200, description = "It has ended, now or before", body = wire::Operation), NotFound, Conflict),
)]
async fn cancel_operation(request: OperationRequest) -> Result<Response, Problem> {
    for _ in 0..ROUNDS {
        let operation = request.find().await?;
        let now = request.api.clock.now();
        let Some(ended) = operation.clone().ended(BulkState::Cancelled, None, now) else {
            return Ok(answer::json(StatusCode::OK, &operation_view(operation)));
        };
        if request.api.database.write_operation(ended.clone()).await? {
            tracing::info!(operation.id = %ended.id, done = ended.done, "a bulk operation was cancelled");
            return Ok(answer::json(StatusCode::OK, &operation_view(ended)));
        }
    }
    Err(Problem::new(Code::Conflict, "the operation changed each time we tried; nothing was done").retry_after(1))
}

/// The operation on the wire.
pub fn operation_view(operation: BulkOperation) -> wire::Operation {
    wire::Operation {
        operation_id: operation.id,
        kind: operation.kind.into(),
        state: operation.state.into(),
        done: operation.done,
        total: operation.total,
        failed: operation.failed,
        started_at: operation.started_at,
        finished_at: operation.finished_at,
        error: operation.error,
    }
}

/// A request about one operation.
struct OperationRequest {
    api: Api,
    caller: Caller,
    id: OperationId,
}

impl OperationRequest {
    async fn find(&self) -> Result<BulkOperation, Problem> {
        let found = self.api.database.operation(&self.caller.tenant, self.id).await?;
        found.filter(|operation| self.caller.reaches_filter(&operation.filter)).ok_or_else(no_such_operation)
    }
}

impl FromRequestParts<Api> for OperationRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let caller = Caller::of(&parts.extensions, &parts.headers)?;
        // A text that is no id names no operation.
        let id = path_text(parts).await.and_then(|text| text.parse().ok()).ok_or_else(no_such_operation)?;
        Ok(Self { api: api.clone(), caller, id })
    }
}

fn no_such_operation() -> Problem {
    Problem::new(Code::NotFound, "there is no operation with this id")
}
