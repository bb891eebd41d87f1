//! Recurring schedules: create, read, change, and list their occurrences. One file per verb.

mod backfill;
mod by_name;
mod change;
mod create;
mod edit;
mod list;
mod occurrences;
mod pause;
mod preview;
mod read;
mod remove;
mod request;
mod sync;
mod trigger;

use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use self::by_name::by_name;
use crate::state::Api;

/// The routes of schedules.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create::create_schedule, list::list_schedules))
        .routes(routes!(preview::preview_new_schedule))
        .routes(routes!(sync::put_schedule))
        .merge(of_one(|routes| routes))
        .merge(of_one(by_name))
}

/// The routes of one schedule, each as `at` places it.
fn of_one(at: impl Fn(UtoipaMethodRouter<Api>) -> UtoipaMethodRouter<Api>) -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(at(routes!(read::get_schedule, edit::edit_schedule, remove::delete_schedule)))
        .routes(at(routes!(pause::pause_schedule)))
        .routes(at(routes!(pause::resume_schedule)))
        .routes(at(routes!(trigger::trigger_schedule)))
        .routes(at(routes!(backfill::backfill_schedule, backfill::withdraw_backfill)))
        .routes(at(routes!(preview::preview_schedule)))
        .routes(at(routes!(occurrences::list_occurrences)))
}

#[cfg(test)]
mod tests;
