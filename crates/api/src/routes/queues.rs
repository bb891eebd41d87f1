//! The queues of a tenant: their settings, their live tasks and their pauses.

use axum::extract::{FromRequestParts, Path, State};
use axum::http::header::ETAG;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use punctual_client::{self as wire, Page, PauseRequest, QueuePage, QueueSettings, ResumeRequest};
use punctual_core::queues::{Change, Changed, Pause, QueueWithCounts, Switch, limits};
use punctual_submission::Faults;
use punctual_submission::fields::{NAME_RULE, is_name};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::json;
use crate::cursor::Listing;
use crate::extract::query::Query;
use crate::extract::{If, JsonBody, MaybeJsonBody, Tenant};
use crate::openapi::{Invalid, NotFound, Unavailable, VersionMismatch};
use crate::problem::{Code, Problem};
use crate::state::Api;
use crate::view;

/// Who paused a queue that was paused over HTTP.
const CLIENT: &str = "client";

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_queues))
        .routes(routes!(get_queue, put_queue, delete_queue))
        .routes(routes!(pause_queue))
        .routes(routes!(resume_queue))
}

/// The name of the queue in the path.
struct QueuePath(String);

impl<S: Send + Sync> FromRequestParts<S> for QueuePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) if is_name(&name) => Ok(Self(name)),
            _ => Err(Problem::new(Code::InvalidRequest, format!("the name of a queue {NAME_RULE}"))),
        }
    }
}

/// Lists the queues.
///
/// Every queue that ever had a task, settings or a pause, by name, each with the number of its live
/// tasks.
#[utoipa::path(
    get, path = "/v1/queues", tag = "queues",
    params(
        ("limit" = Option<u16>, Query, description = "Queues on a page, 50 if absent", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses((status = 200, description = "A page of queues", body = QueuePage))
)]
async fn list_queues(State(api): State<Api>, Tenant(tenant): Tenant, mut query: Query) -> Result<Response, Problem> {
    let (limit, cursor) = (query.limit(), query.take("cursor"));
    query.finish()?;
    let listing = Listing { kind: "queues", scope: &tenant };
    let after = cursor.map(|cursor| after(listing, &cursor)).transpose()?;
    // One more than the page holds shows whether there is a next page.
    let mut queues = api.database.queues(&tenant, after, limit + 1).await?;
    let (more, now) = (queues.len() > limit, api.clock.now());
    queues.truncate(limit);
    let items: Vec<wire::Queue> = queues.into_iter().map(|queue| view::queue(queue, now)).collect();
    let next_cursor = items.last().filter(|_| more).map(|last| listing.seal(last.name.as_bytes()));
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

fn after(listing: Listing<'_>, cursor: &str) -> Result<String, Problem> {
    let refused = |_| Problem::new(Code::InvalidCursor, "the cursor must be a next_cursor of this very listing");
    String::from_utf8(listing.open(cursor)?).map_err(refused)
}

/// Reads a queue.
#[utoipa::path(
    get, path = "/v1/queues/{name}", tag = "queues",
    params(("name" = String, Path, description = "Its name; a slash in it as `%2F`")),
    responses(
        (status = 200, description = "The queue", body = wire::Queue, headers(("ETag" = String, description = "The queue's version"))),
        NotFound, Invalid,
    )
)]
async fn get_queue(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    QueuePath(name): QueuePath,
) -> Result<Response, Problem> {
    answer(&api, &tenant, &name).await
}

/// Sets a queue.
///
/// Replaces all settings: an absent one gets its default again. A limit holds in the whole cluster
/// for every run that begins after the answer; running tasks go on. A pause stays unless `paused`
/// is given. The same settings again change nothing, not even the version.
#[utoipa::path(
    put, path = "/v1/queues/{name}", tag = "queues",
    params(
        ("name" = String, Path, description = "Its name; a slash in it as `%2F`"),
        ("If-Match" = Option<String>, Header, description = "Set it only at this version (`*`: at any), and do not make it"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: make it, and do not set one that is there"),
    ),
    request_body = QueueSettings,
    responses(
        (status = 200, description = "The queue as it is now", body = wire::Queue, headers(("ETag" = String, description = "The queue's version"))),
        VersionMismatch, Invalid, Unavailable,
    )
)]
async fn put_queue(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    QueuePath(name): QueuePath,
    condition: If,
    JsonBody(wanted): JsonBody<QueueSettings>,
) -> Result<Response, Problem> {
    let mut faults = Faults::default();
    if wanted.name.as_ref().is_some_and(|given| *given != name) {
        faults.add("/name", "must be the one in the path, or be left out");
    }
    let settings = faults.queue_settings(&wanted, &api.config.submission);
    faults.finish()?;
    let now = api.clock.now();
    let switch = wanted.paused.map(|paused| {
        let pause = || Pause { since: now, by: CLIENT.to_owned(), reason: None, until: None };
        if paused { Switch::On(pause()) } else { Switch::Off(now) }
    });
    change(&api, &tenant, &name, &condition, Change::Put(settings, switch)).await
}

/// Pauses a queue.
///
/// After the answer none of its tasks begins, on any node; running tasks go on. The pause lasts
/// until the queue is resumed, or until `until`, and outlives restarts.
#[utoipa::path(
    post, path = "/v1/queues/{name}/pause", tag = "queues",
    params(
        ("name" = String, Path, description = "Its name; a slash in it as `%2F`"),
        ("If-Match" = Option<String>, Header, description = "Pause it only at this version"),
    ),
    request_body = Option<PauseRequest>,
    responses(
        (status = 200, description = "It is paused", body = wire::Queue, headers(("ETag" = String, description = "The queue's version"))),
        VersionMismatch, Invalid, Unavailable,
    )
)]
async fn pause_queue(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    QueuePath(name): QueuePath,
    condition: If,
    MaybeJsonBody(wanted): MaybeJsonBody<PauseRequest>,
) -> Result<Response, Problem> {
    let now = api.clock.now();
    let mut faults = Faults::default();
    if wanted.reason.as_ref().is_some_and(|reason| reason.chars().count() > limits::REASON) {
        faults.add("/reason", format!("must have at most {} characters", limits::REASON));
    }
    if wanted.reason.as_ref().is_some_and(|reason| reason.contains('\0')) {
        faults.add("/reason", "must not contain the character U+0000");
    }
    let until = wanted.until.as_deref().and_then(|text| faults.instant("/until", text));
    if until.is_some_and(|until| until <= now) {
        faults.add("/until", "must be later than now");
    }
    faults.finish()?;
    let pause = Pause { since: now, by: CLIENT.to_owned(), reason: wanted.reason, until };
    change(&api, &tenant, &name, &condition, Change::Pause(pause)).await
}

/// Resumes a queue.
///
/// Tasks that fell due during the pause begin at once, as fast as its limits allow. A queue that is
/// not paused stays as it is.
#[utoipa::path(
    post, path = "/v1/queues/{name}/resume", tag = "queues",
    params(
        ("name" = String, Path, description = "Its name; a slash in it as `%2F`"),
        ("If-Match" = Option<String>, Header, description = "Resume it only at this version"),
    ),
    request_body = Option<ResumeRequest>,
    responses(
        (status = 200, description = "It is not paused", body = wire::Queue, headers(("ETag" = String, description = "The queue's version"))),
        NotFound, VersionMismatch, Invalid, Unavailable,
    )
)]
async fn resume_queue(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    QueuePath(name): QueuePath,
    condition: If,
    MaybeJsonBody(ResumeRequest {}): MaybeJsonBody<ResumeRequest>,
) -> Result<Response, Problem> {
    // A misspelt name must not create a queue.
    answer(&api, &tenant, &name).await?;
    change(&api, &tenant, &name, &condition, Change::Resume).await
}

/// Removes a queue.
///
/// It loses its settings and its pause, and is not listed while it is empty. A task that is
/// submitted to it later creates it again, with defaults. A queue with live tasks is not removed.
#[utoipa::path(
    delete, path = "/v1/queues/{name}", tag = "queues",
    params(
        ("name" = String, Path, description = "Its name; a slash in it as `%2F`"),
        ("If-Match" = Option<String>, Header, description = "Remove it only at this version"),
    ),
    responses(
        (status = 200, description = "The queue as it was", body = wire::Queue),
        (status = 409, description = "`queue_not_empty`: it has live tasks", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch, Invalid, Unavailable,
    )
)]
async fn delete_queue(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    QueuePath(name): QueuePath,
    condition: If,
) -> Result<Response, Problem> {
    let there = find(&api, &tenant, &name).await?;
    // A task that is submitted meanwhile is in a queue with default settings, which is harmless.
    if there.live.any() {
        let (tasks, them) = if there.live.total() == 1 { ("task", "it") } else { ("tasks", "them") };
        let detail = format!(
            "the queue has {} live {tasks} ({} waiting, {} blocked, {} queued, {} running); nothing was done. Cancel {them} \
             or let {them} end first",
            there.live.total(),
            there.live.pending,
            there.live.blocked,
            there.live.queued,
            there.live.running
        );
        return Err(Problem::new(Code::QueueNotEmpty, detail));
    }
    write(&api, &tenant, &name, &condition, Change::Remove).await?;
    Ok(answer_with(&api, there))
}

async fn change(api: &Api, tenant: &str, name: &str, condition: &If, change: Change) -> Result<Response, Problem> {
    write(api, tenant, name, condition, change).await?;
    answer(api, tenant, name).await
}

async fn write(api: &Api, tenant: &str, name: &str, condition: &If, change: Change) -> Result<(), Problem> {
    match api.database.change_queue_at(tenant, name, &condition.0, change).await? {
        Changed::Done(queue) => {
            // The next submission to this node sees the settings; a queue without any has nothing
            // to see.
            api.config.submission.queues.learn(Some(queue).filter(|queue| queue.version > 0));
            Ok(())
        }
        Changed::AtAnother(there) => Err(condition.refusal("queue", there.map(|queue| queue.version))),
    }
}

async fn find(api: &Api, tenant: &str, name: &str) -> Result<QueueWithCounts, Problem> {
    api.database.queue(tenant, name).await?.ok_or_else(|| {
        Problem::new(Code::NotFound, "there is no queue with this name: it exists from its first task or setting on")
    })
}

async fn answer(api: &Api, tenant: &str, name: &str) -> Result<Response, Problem> {
    Ok(answer_with(api, find(api, tenant, name).await?))
}

/// The answer that shows a queue, with its version as `ETag`.
fn answer_with(api: &Api, queue: QueueWithCounts) -> Response {
    let tag = HeaderValue::try_from(format!("\"{}\"", queue.queue.version));
    let mut response = json(StatusCode::OK, &view::queue(queue, api.clock.now()));
    response.headers_mut().insert(ETAG, tag.expect("invariant: a number in quotes is a header value"));
    response
}

#[cfg(test)]
mod tests;
