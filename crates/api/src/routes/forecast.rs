//! `GET /v1/forecast`: what will be due, minute by minute.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::forecast::{Minute, Window};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::json;
use crate::extract::Caller;
use crate::extract::query::Query;
use crate::openapi::Invalid;
use crate::problem::Problem;
use crate::state::Api;

/// How far it looks ahead.
const HOURS_DEFAULT: usize = 24;
const HOURS_MAX: usize = 48;
/// How many of the largest minutes it shows.
const TOP_DEFAULT: usize = 10;
const TOP_MAX: usize = 100;

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get_forecast))
}

/// Shows what will be due, minute by minute.
///
/// Waiting tasks by their due instants, and instants of schedules whose tasks do not exist yet,
/// from the next whole minute on. Minutes without either are left out; `herds` are the largest.
/// Blocked tasks count once they are released. The forecast cannot know that a schedule will skip
/// an instant because its last task is still live, how a queue spreads the tasks of schedules
/// (`dispatch_jitter_seconds`), or when a due task runs.
#[utoipa::path(
    get, path = "/v1/forecast", tag = "forecast", operation_id = "get_forecast",
    params(
        ("hours" = Option<u8>, Query, description = "How far to look ahead, 24 if absent", minimum = 1, maximum = 48),
        ("top" = Option<u8>, Query, description = "How many herds, 10 if absent", minimum = 0, maximum = 100),
    ),
    responses(
        (status = 200, description = "What will be due", body = wire::Forecast),
        Invalid,
    ),
)]
async fn get_forecast(State(api): State<Api>, caller: Caller, mut query: Query) -> Result<Response, Problem> {
    let hours = query.number("hours", 1..=HOURS_MAX).unwrap_or(HOURS_DEFAULT);
    let top = query.number("top", 0..=TOP_MAX).unwrap_or(TOP_DEFAULT);
    query.finish()?;
    caller.require_all()?;
    let now = api.clock.now();
    let from = Minute::of(now).plus(1);
    let window = Window { now, from, to: from.plus(i64::try_from(hours * 60).expect("invariant: at most two days")) };
    Ok(json(StatusCode::OK, &api.forecasts.of(&caller.tenant, window, top).await?))
}

#[cfg(test)]
mod tests;
