//! `PUT /v1/schedules/by-name/{name}`, for callers that keep their schedules in files.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::schedules::Schedule;
use punctual_submission::Faults;
use punctual_submission::fields::{NAME_RULE, is_name};

use super::change::rewrite;
use super::create::{check_new, created, insert};
use super::request::{
    NamePath, ROUNDS, ScheduleRequest, answer, find_named, kept_changing, name_taken, require_reach, validator,
};
use crate::extract::{Caller, If, JsonBody};
use crate::openapi::{Conflict, IfMatch, IfNoneMatch, Invalid, VersionMismatch};
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
        ("name" = wire::form::NameForm, Path, description = "The schedule's name; a `/` in it is written `%2F`"),
        IfMatch,
        IfNoneMatch,
    ),
    request_body = wire::ScheduleByName,
    responses(
        (status = 200, description = "Replaced, or the same already", body = wire::Schedule, headers(("ETag" = String))),
        (status = 201, description = "Created and durable", body = wire::Schedule,
            headers(("ETag" = String), ("Location" = String))),
        Conflict, VersionMismatch, Invalid,
    ),
)]
pub async fn put_schedule(
    State(api): State<Api>,
    caller: Caller,
    NamePath(name): NamePath,
    condition: If,
    body: JsonBody<wire::NewSchedule>,
) -> Result<Response, Problem> {
    if !is_name(&name) {
        return Err(Problem::new(Code::InvalidRequest, format!("the name of a schedule {NAME_RULE}")));
    }
    let named = |new: &wire::NewSchedule, faults: &mut Faults| {
        if new.name.as_ref().is_some_and(|given| *given != name) {
            faults.add("/name", "must be the one in the path, or be left out");
        }
        wire::NewSchedule { name: Some(name.clone()), ..new.clone() }
    };
    for _ in 0..ROUNDS {
        let Some(there) = find_named(&api, &caller, &name).await? else {
            condition.check("schedule", None)?;
            let validator = validator(&api, &caller.tenant, None);
            let checked = body.check_ref(|new, faults| {
                let new = named(new, faults);
                check_new(&validator, faults, new)
            })?;
            require_reach(&caller, &checked.definition)?;
            match insert(&api, &validator, checked).await? {
                Some(schedule) => return created(&schedule, &caller),
                // It was created meanwhile, or is one that the caller does not reach.
                None if !caller.reaches_all() => return Err(name_taken(&name)),
                None => continue,
            }
        };
        let wanted = |schedule: &Schedule| {
            let validator = validator(&api, &caller.tenant, Some(schedule.created_at));
            body.check_ref(|new, faults| {
                let new = named(new, faults);
                validator.check(faults, new)
            })
        };
        let request =
            ScheduleRequest { api: api.clone(), caller: caller.clone(), id: there.id, name: Some(name.clone()) };
        match rewrite(&request, &condition, wanted).await {
            // It was removed or renamed meanwhile: create it.
            Err(problem) if problem.code() == Code::NotFound => {}
            rewritten => return answer(StatusCode::OK, &rewritten?, &caller),
        }
    }
    Err(kept_changing())
}
