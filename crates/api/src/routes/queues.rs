//! The queues of a tenant: their settings, their live tasks and their pauses.

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use punctual_client::{self as wire, PauseRequest, QueuePage, QueueSettings, ResumeRequest};
use punctual_core::queues::{Changed, Pause, QueueChange, QueueWithCounts, Switch, limits};
use punctual_core::time::Timestamp;
use punctual_submission::Faults;
use punctual_submission::fields::{NAME_RULE, is_name};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer;
use crate::cursor::Listing;
use crate::extract::query::{PageParams, Query};
use crate::extract::{Caller, If, JsonBody, MaybeJsonBody, path_text};
use crate::openapi::{IfMatch, IfNoneMatch, Invalid, NotFound, NotModified, Unavailable, VersionMismatch};
use crate::problem::{Code, Problem};
use crate::state::Api;
use crate::view;

/// The author of a pause that was set over HTTP.
const CLIENT: &str = "client";

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_queues))
        .routes(routes!(get_queue, put_queue, delete_queue))
        .routes(routes!(pause_queue))
        .routes(routes!(resume_queue))
}

/// A request about one queue.
struct QueueRequest {
    api: Api,
    caller: Caller,
    name: String,
}

impl FromRequestParts<Api> for QueueRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let caller = Caller::of(&parts.extensions, &parts.headers)?;
        let refused = || Problem::new(Code::InvalidRequest, format!("the name of a queue {NAME_RULE}"));
        let name = path_text(parts).await.filter(|name| is_name(name)).ok_or_else(refused)?;
        caller.require_queue(&name)?;
        Ok(Self { api: api.clone(), caller, name })
    }
}

/// Lists the queues.
///
/// Every queue that ever had a task, settings or a pause, by name, each with the number of its live
/// tasks.
#[utoipa::path(
    get, path = "/v1/queues", tag = "queues",
    params(PageParams),
    responses((status = 200, description = "A page of queues", body = QueuePage), NotModified),
)]
async fn list_queues(State(api): State<Api>, caller: Caller, mut query: Query) -> Result<Response, Problem> {
    let view_wanted = caller.view(query.view());
    let (limit, cursor) = query.page()?;
    let listing = Listing { kind: "queues", scope: &caller.tenant };
    let after = cursor.map(|cursor| listing.open_name(&cursor)).transpose()?;
    let (queues, now) = (api.database.queues(&caller.tenant, after, limit + 1).await?, api.clock.now());
    let items: Vec<wire::Queue> = queues.into_iter().map(|queue| view::queue(queue, now)).collect();
    let mut page = listing.page(items, limit, |last| last.name.clone().into_bytes());
    page.items.retain(|queue| caller.reaches_queue(&queue.name));
    Ok(answer::page(view_wanted, page))
}

/// Reads a queue.
#[utoipa::path(
    get, path = "/v1/queues/{name}", tag = "queues",
    params(("name" = wire::form::NameForm, Path, description = "The queue's name; a `/` in it is written `%2F`")),
    responses(
        (status = 200, description = "The queue", body = wire::Queue, headers(("ETag" = String))),
        NotFound, Invalid,
    )
)]
async fn get_queue(request: QueueRequest) -> Result<Response, Problem> {
    request.answer().await
}

/// Sets a queue.
///
/// Replaces all settings: an absent one gets its default again. A limit holds in the whole cluster
/// for every run that begins after the answer; running tasks go on. A pause stays unless `paused`
/// is given. The same settings again change nothing, not even the version.
#[utoipa::path(
    put, path = "/v1/queues/{name}", tag = "queues",
    params(
        ("name" = wire::form::NameForm, Path, description = "The queue's name; a `/` in it is written `%2F`"),
        IfMatch,
        IfNoneMatch,
    ),
    request_body = QueueSettings,
    responses(
        (status = 200, description = "The queue as it is now", body = wire::Queue, headers(("ETag" = String))),
        VersionMismatch, Invalid, Unavailable,
    )
)]
async fn put_queue(request: QueueRequest, condition: If, body: JsonBody<QueueSettings>) -> Result<Response, Problem> {
    let api = &request.api;
    let (settings, paused) = body.check(|wanted, faults| {
        if wanted.name.as_ref().is_some_and(|given| *given != request.name) {
            faults.add("/name", "must be the one in the path, or be left out");
        }
        Some((faults.queue_settings(&wanted, &api.config.submission), wanted.paused))
    })?;
    let now = api.clock.now();
    let switch = paused.map(|paused| {
        let pause = || Pause { since: now, by: CLIENT.to_owned(), reason: None, until: None };
        if paused { Switch::On(pause()) } else { Switch::Off(now) }
    });
    request.change(&condition, QueueChange::Put(settings, switch)).await
}

/// Pauses a queue.
///
/// After the answer none of its tasks begins, on any node; running tasks go on. The pause lasts
/// until the queue is resumed, or until `until`, and outlives restarts.
#[utoipa::path(
    post, path = "/v1/queues/{name}/pause", tag = "queues",
    params(
        ("name" = wire::form::NameForm, Path, description = "The queue's name; a `/` in it is written `%2F`"),
        IfMatch,
    ),
    request_body = Option<PauseRequest>,
    responses(
        (status = 200, description = "It is paused", body = wire::Queue, headers(("ETag" = String))),
        VersionMismatch, Invalid, Unavailable,
    )
)]
async fn pause_queue(
    request: QueueRequest,
    condition: If,
    MaybeJsonBody(body): MaybeJsonBody<PauseRequest>,
) -> Result<Response, Problem> {
    let now = request.api.clock.now();
    let pause = body.check(|wanted, faults| Some(pause(faults, wanted, now)))?;
    request.change(&condition, QueueChange::Pause(pause)).await
}

/// The pause that a client asks for.
fn pause(faults: &mut Faults, wanted: PauseRequest, now: Timestamp) -> Pause {
    let PauseRequest { reason, until } = wanted;
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > limits::REASON) {
        faults.add("/reason", format!("must have at most {} characters", limits::REASON));
    }
    if reason.as_ref().is_some_and(|reason| reason.contains('\0')) {
        faults.add("/reason", "must not contain the character U+0000");
    }
    let until = until.as_deref().and_then(|text| faults.instant("/until", text));
    if until.is_some_and(|until| until <= now) {
        faults.add("/until", "must be later than now");
    }
    Pause { since: now, by: CLIENT.to_owned(), reason, until }
}

/// Resumes a queue.
///
/// Tasks that fell due during the pause begin at once, as fast as its limits allow. A queue that is
/// not paused stays as it is.
#[utoipa::path(
    post, path = "/v1/queues/{name}/resume", tag = "queues",
    params(
        ("name" = wire::form::NameForm, Path, description = "The queue's name; a `/` in it is written `%2F`"),
        IfMatch,
    ),
    request_body = Option<ResumeRequest>,
    responses(
        (status = 200, description = "It is not paused", body = wire::Queue, headers(("ETag" = String))),
        NotFound, VersionMismatch, Invalid, Unavailable,
    )
)]
async fn resume_queue(
    request: QueueRequest,
    condition: If,
    MaybeJsonBody(body): MaybeJsonBody<ResumeRequest>,
) -> Result<Response, Problem> {
    let ResumeRequest {} = body.finish()?;
    // A misspelt name must not create a queue.
    request.find().await?;
    request.change(&condition, QueueChange::Resume).await
}

/// Removes a queue.
///
/// It loses its settings and its pause, and is not listed while it is empty. A task that is
/// submitted to it later creates it again, with defaults. A queue with live tasks is not removed.
#[utoipa::path(
    delete, path = "/v1/queues/{name}", tag = "queues",
    params(
        ("name" = wire::form::NameForm, Path, description = "The queue's name; a `/` in it is written `%2F`"),
        IfMatch,
    ),
    responses(
        (status = 200, description = "The queue as it was", body = wire::Queue),
        (status = 409, description = "`queue_not_empty`: it has live tasks", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch, Invalid, Unavailable,
    )
)]
async fn delete_queue(request: QueueRequest, condition: If) -> Result<Response, Problem> {
    let found = request.find().await?;
    // A task that is submitted meanwhile is in a queue with default settings, which is harmless.
    if found.live.any() {
        let live = found.live;
        let (tasks, them) = if live.total() == 1 { ("task", "it") } else { ("tasks", "them") };
        let detail = format!(
            "the queue has {} live {tasks} ({} waiting, {} blocked, {} queued, {} running); nothing was done. Cancel {them} \
             or let {them} end first",
            live.total(),
            live.pending,
            live.blocked,
            live.queued,
            live.running
        );
        return Err(Problem::new(Code::QueueNotEmpty, detail));
    }
    request.write(&condition, QueueChange::Remove).await?;
    Ok(request.answer_with(found))
}

impl QueueRequest {
    async fn find(&self) -> Result<QueueWithCounts, Problem> {
        let missing = "there is no queue with this name: it exists from its first task or setting on";
        let found = self.api.database.queue(&self.caller.tenant, &self.name).await?;
        found.ok_or_else(|| Problem::new(Code::NotFound, missing))
    }

    fn answer_with(&self, queue: QueueWithCounts) -> Response {
        let version = queue.queue.version;
        let queue = view::queue(queue, self.api.clock.now());
        answer::viewed(StatusCode::OK, version, &queue, self.caller.full_view())
    }

    async fn answer(&self) -> Result<Response, Problem> {
        Ok(self.answer_with(self.find().await?))
    }

    async fn change(&self, condition: &If, change: QueueChange) -> Result<Response, Problem> {
        self.write(condition, change).await?;
        self.answer().await
    }

    async fn write(&self, condition: &If, change: QueueChange) -> Result<(), Problem> {
        match self.api.database.change_queue_at(&self.caller.tenant, &self.name, &condition.0, change).await? {
            Changed::Done(queue) => {
                // The next submission to this node sees the settings.
                self.api.config.submission.queues.update(queue);
                Ok(())
            }
            Changed::AtAnother(there) => Err(condition.refusal("queue", there.map(|queue| queue.version))),
        }
    }
}

#[cfg(test)]
mod tests;
