//! `PUT /v1/schedules/by-name/{name}`, for callers that keep their schedules in files.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::schedules::Schedule;

use super::change::rewrite;
use super::create::{created, insert};
use super::request::{NamePath, ROUNDS, ScheduleRequest, answer, find_named, kept_changing, validator};
use crate::extract::{If, JsonBody, Tenant};
use crate::openapi::{Conflict, Invalid, VersionMismatch};
use crate::problem::{Code, Problem};
use crate::state::Api;

/// Creates the schedule of this name, or replaces it.
///
/// An absent field gets its default, except `paused`, which stays as it is: a pause outlives the
/// next synchronisation. The same schedule again changes nothing, not even the version. Counters
/// and occurrences stay, and the next run too while the instants are the same.
#[utoipa::path(
    put, path = "/v1/schedules/by-name/{name}", tag = "schedules", operation_id = "put_schedule",
    params(
        ("name" = String, Path, description = "The schedule's name; a `/` in it is written `%2F`"),
        ("If-Match" = Option<String>, Header, description = "Replace it only at this version (`*`: at any), and do not create it"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: create it, and do not replace it"),
    ),
    request_body = wire::NewSchedule,
    responses(
        (status = 200, description = "Replaced, or the same already", body = wire::Schedule, headers(("ETag" = String, description = "The schedule's version"))),
        (status = 201, description = "Created and durable", body = wire::Schedule,
            headers(("ETag" = String, description = "The schedule's version"), ("Location" = String, description = "Where the schedule is"))),
        Conflict, VersionMismatch, Invalid,
    ),
)]
pub async fn put_schedule(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    NamePath(name): NamePath,
    condition: If,
    JsonBody(mut new): JsonBody<wire::NewSchedule>,
) -> Result<Response, Problem> {
    if new.name.get_or_insert_with(|| name.clone()) != &name {
        return Err(Problem::invalid_at("/name", "must be the one in the path, or be left out"));
    }
    for _ in 0..ROUNDS {
        let Some(there) = find_named(&api, &tenant, &name).await? else {
            condition.check("schedule", None)?;
            match insert(&api, &tenant, new.clone()).await? {
                Some(schedule) => return created(&schedule),
                None => continue,
            }
        };
        let wanted = |schedule: &Schedule| Ok(validator(&api, &tenant, Some(schedule.created_at)).check(new.clone())?);
        let request =
            ScheduleRequest { api: api.clone(), tenant: tenant.clone(), id: there.id, name: Some(name.clone()) };
        match rewrite(&request, &condition, wanted).await {
            // It was removed or renamed meanwhile: create it.
            Err(problem) if problem.code() == Code::NotFound => {}
            rewritten => return answer(StatusCode::OK, &rewritten?),
        }
    }
    Err(kept_changing())
}
