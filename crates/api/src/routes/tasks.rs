//! Tasks: submit, read, list, change, explain. One file per verb.

mod batch;
mod cancel;
mod change;
mod edit;
mod explain;
pub mod filter;
mod header_key;
mod hidden_dependencies;
mod history;
mod list;
mod purge;
mod read;
mod redrive;
mod run_now;
mod submit;
mod unknown_dependencies;

pub use header_key::HeaderKey;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::Api;

/// The routes of tasks and of dead letters.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(submit::submit_task, list::list_tasks))
        .routes(routes!(batch::submit_batch))
        .routes(routes!(read::get_task, edit::edit_task, cancel::cancel_task))
        .routes(routes!(run_now::run_task))
        .routes(routes!(redrive::redrive_task))
        .routes(routes!(purge::purge_task))
        .routes(routes!(history::list_runs))
        .routes(routes!(history::list_events))
        .routes(routes!(explain::explain_task))
        .routes(routes!(list::list_dead_letters))
}

#[cfg(test)]
mod tests;
