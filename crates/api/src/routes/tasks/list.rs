//! `GET /v1/tasks` and `GET /v1/dead-letters`.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::state::State as TaskState;
use punctual_core::store::{Cursor, Filter, PAGE_BYTES, Page, StoreError};
use punctual_core::task::Task;
use punctual_submission::fields::{NAME_RULE, is_name, label_fault};
use tokio::time::Instant;
use utoipa::IntoParams;

use crate::answer;
use crate::cursor::Listing;
use crate::extract::Tenant;
use crate::extract::query::Query;
use crate::openapi::Invalid;
use crate::problem::Problem;
use crate::state::Api;
use crate::view;

/// The conditions of a listing, for the OpenAPI document; [`read_filter`] reads them. All have to
/// hold.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "documents what the query may say")]
struct ListParams {
    /// Of this type.
    #[param(rename = "type")]
    kind: Option<String>,
    /// In this queue.
    queue: Option<String>,
    /// Made by this schedule.
    schedule_id: Option<String>,
    /// At least this urgent: 0 to 9, or low, normal, high.
    priority_min: Option<String>,
    /// Created at or after.
    #[param(format = DateTime)]
    created_after: Option<String>,
    /// Created before.
    #[param(format = DateTime)]
    created_before: Option<String>,
    /// Wanted at or after.
    #[param(format = DateTime)]
    execute_after: Option<String>,
    /// Wanted before.
    #[param(format = DateTime)]
    execute_before: Option<String>,
    /// With this label; `KEY` is its name. May be repeated for several labels.
    #[param(rename = "metadata.KEY")]
    metadata: Option<String>,
    /// `created_at`, newest first (the default), or `execute_at`, soonest first.
    order: Option<String>,
    /// How many, 50 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Lists tasks.
#[utoipa::path(
    get, path = "/v1/tasks", tag = "tasks", operation_id = "list_tasks",
    params(("status" = Option<Vec<wire::Status>>, Query, description = "In one of these states; repeat the parameter for several"), ListParams),
    responses(
        (status = 200, description = "A page of tasks. If matches are rare or tasks are large, it may be short or empty and still have a `next_cursor`: only a page without one is the last", body = wire::TaskPage),
        Invalid,
    ),
)]
pub async fn list_tasks(State(api): State<Api>, Tenant(tenant): Tenant, mut query: Query) -> Result<Response, Problem> {
    let mut states = Vec::new();
    for name in query.take_all("status") {
        match TaskState::from_name(&name) {
            Some(state) if !states.contains(&state) => states.push(state),
            Some(_) => {}
            None => {
                query.refuse("status", format!("must be one of {}", TaskState::ALL.map(TaskState::as_str).join(", ")));
            }
        }
    }
    list(&api, tenant, states, query).await
}

/// Lists dead letters.
#[utoipa::path(
    get, path = "/v1/dead-letters", tag = "tasks", operation_id = "list_dead_letters",
    params(ListParams),
    responses(
        (status = 200, description = "A page of tasks", body = wire::TaskPage),
        Invalid,
    ),
)]
pub async fn list_dead_letters(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    query: Query,
) -> Result<Response, Problem> {
    list(&api, tenant, vec![TaskState::DeadLettered], query).await
}

async fn list(api: &Api, tenant: String, states: Vec<TaskState>, mut query: Query) -> Result<Response, Problem> {
    let filter = Filter { tenant: tenant.clone(), states, ..read_filter(&mut query) };
    let (limit, cursor) = query.page()?;
    let kind = if filter.by_execute_at { "tasks by execute_at" } else { "tasks" };
    let listing = Listing { kind, scope: &tenant };
    let after = cursor.map(|text| listing.open_task(&text)).transpose()?;
    let page = fill(api, filter, after, limit).await?;
    let bytes = bytes_of(&page);
    let next_cursor = page.next.map(|cursor| listing.seal_task(cursor));
    let write = move || answer::json(StatusCode::OK, &wire::Page { items: view::tasks(page.tasks), next_cursor });
    api.cpu_pool.run(bytes, write).await
}

/// How long a page is filled, if matches are rare.
const FILL_TIME_MAX: Duration = Duration::from_millis(500);

/// Fills a page. The store reads a bounded number of tasks a call, so a page of rare matches takes
/// several calls.
async fn fill(api: &Api, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
    let began = Instant::now();
    let mut page = api.store.list(filter.clone(), after, limit).await?;
    while page.tasks.len() < limit
        && page.next.is_some()
        && began.elapsed() < FILL_TIME_MAX
        && bytes_of(&page) < PAGE_BYTES
    {
        let more = api.store.list(filter.clone(), page.next, limit - page.tasks.len()).await?;
        page.tasks.extend(more.tasks);
        page.next = more.next;
    }
    Ok(page)
}

fn bytes_of(page: &Page) -> usize {
    page.tasks.iter().map(Task::bytes).sum()
}

/// Takes every condition but the state out of the query.
fn read_filter(query: &mut Query) -> Filter {
    let mut filter = Filter {
        kind: query.read("type", name),
        queue: query.read("queue", name),
        schedule_id: query.read("schedule_id", |text| text.parse().map_err(|fault| format!("{fault}"))),
        priority_min: query.read("priority_min", priority),
        created_after: query.instant("created_after"),
        created_before: query.instant("created_before"),
        execute_after: query.instant("execute_after"),
        execute_before: query.instant("execute_before"),
        by_execute_at: query.read("order", order).unwrap_or(false),
        ..Filter::default()
    };
    for (key, value) in query.take_prefixed("metadata.") {
        let parameter = format!("metadata.{key}");
        if let Some(message) = label_fault(&key, &value) {
            query.refuse(&parameter, message);
        } else if filter.metadata.insert(key, value).is_some() {
            query.refuse(&parameter, "may be given only once");
        }
    }
    filter
}

fn name(text: &str) -> Result<String, String> {
    if is_name(text) { Ok(text.to_owned()) } else { Err(NAME_RULE.to_owned()) }
}

fn priority(text: &str) -> Result<u8, String> {
    let priority = text.parse().map_or_else(|_| wire::Priority::Name(text.to_owned()), wire::Priority::Number);
    priority.level().ok_or_else(|| "must be a whole number from 0 to 9, or low, normal or high".to_owned())
}

fn order(text: &str) -> Result<bool, String> {
    match text {
        "execute_at" => Ok(true),
        "created_at" => Ok(false),
        _ => Err("must be created_at or execute_at".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> Result<Filter, Vec<String>> {
        let mut query = Query::parse(raw);
        let filter = read_filter(&mut query);
        match query.finish() {
            Ok(()) => Ok(filter),
            Err(problem) => Err(problem.errors().iter().map(|fault| fault.pointer.clone()).collect()),
        }
    }

    #[test]
    fn every_condition_is_read() {
        let filter = read(
            "type=mail.send&queue=q&priority_min=high&created_after=2026-05-22T18:00:00Z&execute_before=2026-05-22T20:00:00%2B02:00\
             &metadata.team=a%20%25_%5C&metadata.x=&order=execute_at",
        )
        .unwrap();
        assert_eq!(
            (filter.kind.as_deref(), filter.queue.as_deref(), filter.priority_min),
            (Some("mail.send"), Some("q"), Some(8))
        );
        assert_eq!(filter.created_after, filter.execute_before);
        assert_eq!(filter.metadata["team"], "a %_\\");
        assert_eq!(filter.metadata["x"], "");
        assert!(filter.by_execute_at);
    }

    #[test]
    fn all_faults_of_a_query_are_reported() {
        let faults = read("type=a%20b&queue=&priority_min=10&created_after=yesterday&execute_after=2026-05-22T18:00:00+02:00&order=random&metadata.=x&schedule_id=7&staus=X")
            .unwrap_err();
        let mut expected = [
            "?type",
            "?queue",
            "?schedule_id",
            "?priority_min",
            "?created_after",
            "?execute_after",
            "?order",
            "?metadata.",
            "?staus",
        ];
        let mut faults = faults;
        faults.sort();
        expected.sort_unstable();
        assert_eq!(faults, expected);
    }
}
