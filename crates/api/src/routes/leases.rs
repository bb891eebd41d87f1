//! Leases of pull workers: polling for tasks, and settling their runs.

mod hand_over;
mod poll_request;
mod settle;
mod settlement;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{Lease, LeaseAnswer, LeaseRequest};
use punctual_core::ids::RunId;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_scheduler::dependency_results::{self, Results};
use punctual_scheduler::polls::PollFilter;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::admission::Permit;
use crate::answer::json;
use crate::encoding::AnswerEncoder;
use crate::extract::{Caller, JsonBody, forbidden};
use crate::openapi::{Invalid, Unavailable};
use crate::problem::Problem;
use crate::server::Peer;
use crate::state::Api;
use crate::view;
use crate::yielding::yielding;

/// The routes of this file and of those below it.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(lease))
        .routes(routes!(settle::settle))
        .routes(routes!(settle::complete))
        .routes(routes!(settle::fail))
        .routes(routes!(settle::heartbeat))
        .routes(routes!(settle::release))
}

/// Lease tasks.
///
/// Waits up to `wait_seconds` for the first due task. Each task in the answer is `RUNNING` and
/// belongs to this worker until its lease expires; heartbeats extend it. A worker that disconnects
/// while it waits gets nothing.
#[utoipa::path(
    post, path = "/v1/leases", tag = "workers", operation_id = "lease_tasks",
    request_body(
        content = LeaseRequest,
        example = json!({"worker_id": "mailer-7", "queues": ["mail"], "max_tasks": 10, "wait_seconds": 30}),
    ),
    responses(
        (status = 200, description = "The leases; empty when nothing was due within the wait", body = LeaseAnswer),
        Invalid, Unavailable,
    )
)]
async fn lease(
    State(api): State<Api>,
    caller: Caller,
    permit: Option<Extension<Permit>>,
    peer: Option<Extension<Peer>>,
    encoder: Option<Extension<AnswerEncoder>>,
    body: JsonBody<LeaseRequest>,
) -> Result<Response, Problem> {
    let leases = api.config.leases;
    let poll =
        body.check(|request, faults| poll_request::poll_request(faults, caller.tenant.clone(), request, leases))?;
    require_reach(&caller, &poll.filter)?;
    let (tenant, worker, filter) = (poll.tenant.clone(), poll.worker.clone(), poll.filter.clone());
    let record_presence = || api.presence.record(&tenant, &worker, &filter, api.clock.now());
    record_presence();
    let waiting = match &permit {
        Some(Extension(permit)) if !poll.wait.is_zero() => Some(api.admission.wait(permit, poll.wait)?),
        _ => None,
    };
    let waited = !poll.wait.is_zero();
    let (tasks, hand_over) = api.polls.poll_unconfirmed(poll).await?;
    drop(waiting);
    if waited {
        // A minute in a long poll is not a minute of silence.
        record_presence();
    }
    let dependencies = results_of_dependencies(&api, &tasks).await;
    let own: usize = tasks.iter().map(|task| task.body.payload.get().len() + TASK_BYTES).sum();
    let size = own + dependencies.iter().flatten().map(|results| dependency_results::bytes(results)).sum::<usize>();
    if let Some(Extension(permit)) = &permit {
        // The tasks of a worker without room go to another one.
        permit.reserve(size)?;
    }
    let now = api.clock.now();
    api.operations.metrics.leases.inc_by(tasks.len() as u64);
    let counter = api.clone();
    let write = move || {
        let leases = yielding(tasks.into_iter().zip(dependencies));
        let leases = leases.filter_map(|(task, results)| leased(&counter, task, results, now)).collect();
        json(StatusCode::OK, &LeaseAnswer { leases })
    };
    let mut answer: Response = api.cpu_pool.run(size, write).await?;
    if let Some(Extension(encoder)) = encoder {
        answer = encoder.encode(answer).await?;
    }
    Ok(match hand_over {
        Some(hand_over) => hand_over::confirmed_when_sent(answer, hand_over, peer.map(|Extension(peer)| peer)),
        None => answer,
    })
}

/// Refuses a poll that could get tasks which the caller does not reach. A poll of queues gets all
/// of their types, and one of types all of their queues.
fn require_reach(caller: &Caller, filter: &PollFilter) -> Result<(), Problem> {
    let scope = &caller.principal.scope;
    match filter {
        PollFilter::Queues(_) if !scope.types.is_empty() => {
            Err(forbidden("the credential reaches some types only; lease by types"))
        }
        PollFilter::Kinds(_) if !scope.queues.is_empty() => {
            Err(forbidden("the credential reaches some queues only; lease by queues"))
        }
        PollFilter::Queues(queues) => queues.iter().try_for_each(|queue| caller.require_queue(queue)),
        PollFilter::Kinds(kinds) => match kinds.iter().find(|kind| !caller.reaches_type(kind)) {
            Some(kind) => Err(forbidden(&format!("the credential does not reach tasks of the type {kind}"))),
            None => Ok(()),
        },
    }
}

/// The results of the tasks that each of these depends on. A store that does not answer costs the
/// results, never the leases.
async fn results_of_dependencies(api: &Api, tasks: &[Task]) -> Vec<Results> {
    dependency_results::in_one_answer(&*api.store, tasks).await.unwrap_or_else(|error| {
        tracing::debug!(error = %error, "cannot read the results of dependencies; leasing without them");
        vec![None; tasks.len()]
    })
}

/// Roughly the bytes of a task in an answer, its payload apart.
const TASK_BYTES: usize = 1_024;

/// The lease on a task that was claimed for its worker a moment ago.
fn leased(api: &Api, task: Task, dependencies: Results, now: Timestamp) -> Option<Lease> {
    // A task that was due before its submission is late from its submission on.
    api.operations.metrics.started(task.due_at.max(task.created_at), now);
    let hold = task.hold.as_ref()?;
    let (token, attempt) = (task.position.version, task.position.attempts);
    // The last step of its trail is the start of this run, which names it.
    let run_id = RunId::of(task.id, token, task.updated_at());
    let lease_expires_at = hold.expires_at;
    let checkpoint = task.checkpoint.clone();
    Some(Lease { task: view::task(task), run_id, attempt, token, lease_expires_at, checkpoint, dependencies })
}

#[cfg(test)]
mod tests;
