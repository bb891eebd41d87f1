//! `GET /v1/forecast`: what will be due, minute by minute.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::forecast::{Minute, Window};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::json;
use crate::extract::Tenant;
use crate::extract::query::Query;
use crate::openapi::Invalid;
use crate::problem::Problem;
use crate::state::Api;

/// How far it looks ahead by default, and at most.
const HOURS: (u16, u16) = (24, 48);
/// How many of the largest minutes it shows by default, and at most.
const TOP: (u16, u16) = (10, 100);

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
    get, path = "/v1/forecast", tag = "operations", operation_id = "get_forecast",
    params(
        ("hours" = Option<u8>, Query, description = "How far to look ahead, 24 if absent", minimum = 1, maximum = 48),
        ("top" = Option<u8>, Query, description = "How many herds, 10 if absent", minimum = 0, maximum = 100),
    ),
    responses(
        (status = 200, description = "What will be due", body = wire::Forecast),
        Invalid,
    ),
)]
async fn get_forecast(State(api): State<Api>, Tenant(tenant): Tenant, mut query: Query) -> Result<Response, Problem> {
    let hours = query.read("hours", |text| number(text, 1, HOURS.1)).unwrap_or(HOURS.0);
    let top = query.read("top", |text| number(text, 0, TOP.1)).unwrap_or(TOP.0);
    query.finish()?;
    let now = api.clock.now();
    let from = Minute::of(now).plus(1);
    let window = Window { now, from, to: from.plus(i64::from(hours) * 60) };
    Ok(json(StatusCode::OK, &api.forecasts.of(&tenant, window, usize::from(top)).await?))
}

fn number(text: &str, least: u16, most: u16) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("must be a whole number from {least} to {most}"))
}

#[cfg(test)]
mod tests;
