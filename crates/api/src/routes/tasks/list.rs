//! `GET /v1/tasks` and `GET /v1/dead-letters`.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::json::Json;
use punctual_core::state::State as TaskState;
use punctual_core::store::{Cursor, Filter, PAGE_BYTES, Page, StoreError};
use punctual_core::task::Task;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::filter::{FilterParams, read_filter};
use crate::answer;
use crate::cursor::Listing;
use crate::extract::Caller;
use crate::extract::query::{PageParams, Query, View, must_be_one_of};
use crate::openapi::{Invalid, NotModified};
use crate::problem::Problem;
use crate::state::Api;
use crate::view;

/// The order and the page of a listing, for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "documents what the query may say")]
struct OrderParams {
    /// In which order; `created_at` if absent.
    #[param(inline)]
    order: Option<TaskOrder>,
}

/// The orders of a listing, for the OpenAPI document.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "documents what the query may say")]
enum TaskOrder {
    /// The newest first.
    CreatedAt,
    /// The soonest first.
    ExecuteAt,
}

/// Lists tasks.
#[utoipa::path(
    get, path = "/v1/tasks", tag = "tasks", operation_id = "list_tasks",
    params(("status" = Option<Vec<wire::Status>>, Query, description = "In one of these states; repeat the parameter for several"), FilterParams, OrderParams, PageParams),
    responses(
        (status = 200, description = "A page of tasks. If matches are rare or tasks are large, it may be short or empty and still have a `next_cursor`: only a page without one is the last", body = wire::TaskPage),
        Invalid, NotModified,
    ),
)]
pub async fn list_tasks(State(api): State<Api>, caller: Caller, mut query: Query) -> Result<Response, Problem> {
    let mut states = Vec::new();
    for name in query.take_all("status") {
        match TaskState::from_name(&name) {
            Some(state) if !states.contains(&state) => states.push(state),
            Some(_) => {}
            None => {
                let words = TaskState::ALL.iter().map(|state| state.as_str());
                let rule = if name.contains(',') {
                    "must be one state; repeat the parameter for several: status=PENDING&status=BLOCKED".to_owned()
                } else {
                    must_be_one_of(&name, words)
                };
                query.refuse_value("status", &name, rule);
            }
        }
    }
    list(&api, &caller, states, query).await
}

/// Lists dead letters.
#[utoipa::path(
    get, path = "/v1/dead-letters", tag = "dead letters", operation_id = "list_dead_letters",
    params(FilterParams, OrderParams, PageParams),
    responses(
        (status = 200, description = "A page of tasks", body = wire::TaskPage),
        Invalid, NotModified,
    ),
)]
pub async fn list_dead_letters(State(api): State<Api>, caller: Caller, query: Query) -> Result<Response, Problem> {
    list(&api, &caller, vec![TaskState::DeadLettered], query).await
}

async fn list(api: &Api, caller: &Caller, states: Vec<TaskState>, mut query: Query) -> Result<Response, Problem> {
    let by_execute_at = query.word("order", &[("created_at", false), ("execute_at", true)]).unwrap_or(false);
    let tenant = &caller.tenant;
    let filter = Filter { tenant: tenant.clone(), states, by_execute_at, ..read_filter(&mut query) };
    let view = caller.view(query.view());
    let (limit, cursor) = query.page()?;
    let kind = if filter.by_execute_at { "tasks by execute_at" } else { "tasks" };
    let listing = Listing { kind, scope: tenant };
    let after = cursor.map(|text| listing.open_task(&text)).transpose()?;
    let mut page = match caller.narrow(filter) {
        Some(filter) => fill(api, caller, filter, after, limit).await?,
        None => Page { tasks: Vec::new(), next: None },
    };
    if view == View::Summary {
        page.tasks.iter_mut().for_each(drop_large_fields);
    }
    let bytes = bytes_of(&page);
    let next_cursor = page.next.map(|cursor| listing.seal_task(cursor));
    let write = move || answer::page(view, wire::Page { items: view::tasks(page.tasks), next_cursor });
    api.cpu_pool.run(bytes, write).await
}

/// Drops what a summary does not show, before it is written.
fn drop_large_fields(task: &mut Task) {
    task.body.payload = Json::null();
    task.result = None;
}

/// How long a page is filled, if matches are rare.
const FILL_TIME_MAX: Duration = Duration::from_millis(500);

/// Fills a page. The store reads a bounded number of tasks a call, so a page of rare matches takes
/// several calls.
///
/// A filter cannot say several patterns, so what the caller does not reach is left out here.
async fn fill(
    api: &Api,
    caller: &Caller,
    filter: Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Page, StoreError> {
    let began = Instant::now();
    let mut page = api.store.list(filter.clone(), after, limit).await?;
    page.tasks.retain(|task| caller.reaches(task));
    while page.tasks.len() < limit
        && page.next.is_some()
        && began.elapsed() < FILL_TIME_MAX
        && bytes_of(&page) < PAGE_BYTES
    {
        let more = api.store.list(filter.clone(), page.next, limit - page.tasks.len()).await?;
        page.tasks.extend(more.tasks.into_iter().filter(|task| caller.reaches(task)));
        page.next = more.next;
    }
    Ok(page)
}

fn bytes_of(page: &Page) -> usize {
    page.tasks.iter().map(Task::bytes).sum()
}

#[cfg(test)]
mod tests;
