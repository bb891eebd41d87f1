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

/// How far it looks ahead if nobody says, and at the most.
const HOURS: (u16, u16) = (24, 48);
/// How many of the largest minutes are told if nobody says, and at the most.
const TOP: (u16, u16) = (10, 100);

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get_forecast))
}

/// Tells what will be due, minute by minute.
///
/// Waiting tasks by the instant at which they are due, and the instants of schedules whose tasks are not made yet, from the
/// next whole minute on. Minutes in which nothing is due are left out; `herds` are the largest. Tasks that are blocked are
/// not in it until they are released. What cannot be foreseen is not: that a schedule skips an instant because its last
/// task is still live, that a queue spreads the tasks of schedules (`dispatch_jitter_seconds`), and when what is due is
/// run.
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
