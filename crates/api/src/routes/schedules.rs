//! Recurring schedules: create, read, change, and list their occurrences. One file per verb.

mod backfill;
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

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::Api;

/// The routes of schedules.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create::create_schedule, list::list_schedules))
        .routes(routes!(preview::preview_new_schedule))
        .routes(routes!(read::get_schedule_by_name, sync::put_schedule))
        .routes(routes!(read::get_schedule, edit::edit_schedule, remove::delete_schedule))
        .routes(routes!(pause::pause_schedule))
        .routes(routes!(pause::resume_schedule))
        .routes(routes!(trigger::trigger_schedule))
        .routes(routes!(backfill::backfill_schedule, backfill::withdraw_backfill))
        .routes(routes!(preview::preview_schedule))
        .routes(routes!(occurrences::list_occurrences))
}

#[cfg(test)]
mod tests;
