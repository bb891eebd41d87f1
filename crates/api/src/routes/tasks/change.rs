//! Changes of tasks that others change too: read, decide, write if nobody was faster, else
//! again.
//!
//! Used by every verb that changes one task. A caller gets one clear answer: what its change
//! did, or why it does not apply to the task as it is now.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_core::state::{By, Change};
use punctual_core::store::Applied;
use punctual_core::task::Task;
use punctual_core::trail::Actor;

use crate::answer;
use crate::extract::{If, TaskRequest};
use crate::problem::{Code, Problem};

/// How often a lost race is run again. Each loss means that somebody else has changed the task.
const ROUNDS: usize = 16;

/// What to do about a task as it is.
pub enum ChangeDecision {
    /// Nothing: it is as the caller wants it.
    Leave(StatusCode),
    /// This.
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
            ChangeDecision::Leave(status) => return Ok(answer::task(status, task)),
            ChangeDecision::Apply(change, status) => {
                if let Some(Applied::Done(_)) = api.store.apply(vec![(request.id, *change)]).await?.pop() {
                    return Ok(answer::task(status, request.find().await?));
                }
            }
        }
    }
    Err(Problem::new(Code::Conflict, "the task changed each time we tried; nothing was done").retry_after(1))
}
