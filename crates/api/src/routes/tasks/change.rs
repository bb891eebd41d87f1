//! The loop around every change of one task: read, decide, write on the condition that nothing
//! changed, and start again if something did.
//!
//! Called by the routes that edit, cancel, run, re-drive and purge a task.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_core::state::{By, Change};
use punctual_core::store::Applied;
use punctual_core::task::Task;
use punctual_core::trail::Actor;

use super::submit::too_many_lanes;
use crate::answer;
use crate::extract::{If, TaskRequest};
use crate::problem::{Code, Problem};

/// How often a lost race is run again. After a loss another writer has succeeded.
const ROUNDS: usize = 16;

/// The decision about a task as it is now.
pub enum ChangeDecision {
    /// Leave it: it is as the caller wants it.
    Leave(StatusCode),
    /// Apply this change.
    Apply(Box<Change>, StatusCode),
}

/// Changes a task as `decide` says, and answers with the task as it is then.
pub async fn change(
    request: &TaskRequest,
    condition: &If,
    decide: impl Fn(&Task, &By<'_>) -> Result<ChangeDecision, Problem>,
) -> Result<Response, Problem> {
    let api = &request.api;
    for _ in 0..ROUNDS {
        let task = request.find().await?;
        condition.check("task", Some(task.position.version))?;
        let by = By { now: api.clock.now(), node: api.node, actor: Actor::Client };
        match decide(&task, &by)? {
            ChangeDecision::Leave(status) => return Ok(answer::task(status, task, request.caller.full_view())),
            ChangeDecision::Apply(change, status) => {
                let change = change.shortening(&task.trail);
                match api.store.apply(vec![(request.id, change)]).await?.pop() {
                    Some(Applied::Done(_)) => {
                        return Ok(answer::task(status, request.find().await?, request.caller.full_view()));
                    }
                    Some(Applied::TooManyLanes(most)) => return Err(too_many_lanes(most)),
                    Some(Applied::Lost) | None => {}
                }
            }
        }
    }
    Err(Problem::new(Code::Conflict, "the task changed each time we tried; nothing was done").retry_after(1))
}
