//! `POST /v1/tasks/batch`: many tasks in one request. Each is checked by itself, and the valid ones
//! are stored in one write; with `atomic` all of them or none.

mod answer;

use std::cell::Cell;

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use punctual_client as wire;
use punctual_core::ids::TaskId;
use punctual_core::store::Inserted;
use punctual_core::task::{NewTask, limits};
use punctual_submission::{BatchContext, Faults, TaskValidator, batch_members, keep_order, reading};
use utoipa::ToSchema;

use answer::{BatchOutcome, ShownTasks};

use super::header_key;
use super::hidden_dependencies::refuse_hidden_dependencies;
use super::submit::replace_final;
use crate::extract::body::{self, MediaType};
use crate::extract::query::Query;
use crate::extract::{Caller, json};
use crate::problem::{Code, Problem};
use crate::state::Api;
use crate::yielding::yielding;

/// What a batch answers for each task, for the OpenAPI document.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "documents what the query may say")]
enum Returned {
    /// Its id.
    Ids,
    /// The task.
    Tasks,
}

/// Submits many tasks.
///
/// Answers when all valid tasks are durable: an item for each task, in order. The body is a JSON
/// document, or with `application/x-ndjson` one task per line.
#[utoipa::path(
    post, path = "/v1/tasks/batch", tag = "tasks", operation_id = "submit_batch",
    params(
        ("return" = inline(Option<Returned>), Query, description = "What is answered for each task; `tasks` if absent"),
        ("atomic" = Option<bool>, Query, description = "Whether nothing is stored if one task is refused; false if absent"),
        ("replace_final" = Option<bool>, Query, description = "Whether tasks take their keys from those that are `CANCELLED` or `FAILED`; false if absent"),
    ),
    request_body(content((wire::NewBatch = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 200, description = "The outcome of each", body = wire::BatchAnswer),
        (status = 422, description = "With `atomic`: `batch_refused`, with the faults of all refused tasks; nothing was stored", body = wire::Problem, content_type = "application/problem+json"),
        (status = 429, description = "With `atomic`: every refusal is temporary; nothing was stored", body = wire::Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn submit_batch(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let ids_only = query.word("return", &[("ids", true), ("tasks", false)]);
    let (atomic, replaces) = (query.flag("atomic") == Some(true), query.flag("replace_final") == Some(true));
    if request.headers().contains_key(header_key::HEADER) {
        let detail = "one key cannot identify many tasks; give each task its idempotency_key";
        return Err(Problem::new(Code::InvalidIdempotencyKey, detail));
    }
    let media_type = body::media_type(request.headers())?;
    let body = body::read(request, api.config.batch_body_bytes).await?;
    let size = body.len();
    let permit = api.admission.parse_permit(size).await;
    let (mut checked, ids) = {
        let (checker, caller, body) = (api.clone(), caller.clone(), body.clone());
        api.cpu_pool.run(size, move || check_all(&checker, &caller, &body, media_type, query)).await??
    };
    refuse_hidden_dependencies(&api, &caller, &mut checked).await?;
    let (mut tasks, checked) = split(checked);
    for task in &mut tasks {
        replace_final(task, replaces);
    }
    // Only a refused dependency is looked for in the body again.
    let body = if tasks.iter().any(|task| !task.body.dependencies.ids.is_empty()) { body } else { Bytes::new() };
    let inserted = match tasks.len() {
        0 => Vec::new(),
        valid if atomic && valid < checked.len() => vec![Inserted::Withheld; valid],
        _ if atomic => api.store.insert_all(tasks).await?,
        _ => api.store.insert(tasks).await?,
    };
    let inserted: Vec<Inserted> = inserted.into_iter().map(|inserted| reached(&caller, inserted)).collect();
    let created = inserted.iter().filter(|inserted| matches!(inserted, Inserted::Created(_))).count();
    api.operations.metrics.tasks_submitted.inc_by(created as u64);
    let outcome = BatchOutcome { checked, inserted, ids };
    let unknown = outcome.unknown_dependencies(&api, &caller.tenant, &body, media_type).await;
    drop((permit, body));
    let shown = if ids_only == Some(true) { ShownTasks::Ids } else { ShownTasks::In(caller.full_view()) };
    api.cpu_pool.run(size, move || outcome.answer(unknown, shown, atomic)).await?
}

/// The store's answer for a task. A replay of one that was moved out of the caller's reach since is
/// one of a key that was used for something else.
fn reached(caller: &Caller, inserted: Inserted) -> Inserted {
    match inserted {
        Inserted::Replayed(task) if !caller.reaches(&task) => Inserted::KeyReused(task.id),
        inserted => inserted,
    }
}

/// The maximum number of faults that are listed for one task: a batch has thousands of tasks.
const TASK_FAULTS_MAX: usize = 20;

/// A task of a batch, or why it is refused.
type CheckResult = Result<NewTask, Problem>;

/// Every task of the batch or its refusal, and the id of each. A batch that is refused as a whole
/// is refused with the faults of its tasks.
fn check_all(
    api: &Api,
    caller: &Caller,
    body: &[u8],
    media_type: MediaType,
    query: Query,
) -> Result<(Vec<CheckResult>, Vec<TaskId>), Problem> {
    let max = api.config.batch_tasks.min(limits::BATCH);
    let validator = TaskValidator::new(&api.config.submission, &caller.tenant, api.clock.now(), api.node);
    let budget = Cell::new(limits::BATCH_DEPENDENCIES);
    let mut whole = Faults::default();
    query.finish_into(&mut whole);
    let mut texts = task_texts(body, media_type, &mut whole)?;
    if texts.len() > max {
        whole.add("/tasks", format!("must have at most {max} entries"));
        texts.clear();
    }
    let ids = new_ids(texts.len());
    let check = |at: usize, text: &str| {
        let context = BatchContext::batch(&ids, at, &budget);
        let checked = reading::read(text)?.check(|new, faults| validator.check(faults, new, None, &context));
        let task: NewTask = checked.map_err(|error| Problem::from(error.quoting(text).shortened(TASK_FAULTS_MAX)))?;
        caller.require(&task.lane.kind, &task.lane.queue)?;
        Ok(task)
    };
    let check = |(at, text): (usize, &[u8])| {
        let checked = json::text(text).and_then(|text| check(at, text));
        checked.map_err(|problem| problem.under(&format!("/tasks/{at}")))
    };
    let mut checked: Vec<CheckResult> = yielding(texts.into_iter().enumerate()).map(check).collect();
    batch_members::refuse_impossible(&mut checked, &ids);
    if let Err(error) = whole.finish() {
        let refused = checked.iter().enumerate();
        let refused = refused.filter_map(|(at, checked)| Some((format!("/tasks/{at}"), checked.as_ref().err()?)));
        return Err(json::quoting(body, error).beside(refused));
    }
    keep_order(&mut checked);
    Ok((checked, ids))
}

/// The tasks as they were sent. The faults of what is around them are added.
fn task_texts<'b>(body: &'b [u8], media_type: MediaType, faults: &mut Faults) -> Result<Vec<&'b [u8]>, Problem> {
    match media_type {
        MediaType::Json => {
            let sent = reading::read_list::<wire::NewBatch>(json::text(body)?, "tasks", limits::BATCH)?;
            let items = faults.part("", sent).unwrap_or_default();
            Ok(items.into_iter().map(|item| item.get().as_bytes()).collect())
        }
        MediaType::Ndjson => {
            let lines = body.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
            Ok(lines.take(limits::BATCH + 1).collect())
        }
    }
}

/// Ids in the order of the batch.
fn new_ids(count: usize) -> Vec<TaskId> {
    std::iter::repeat_with(TaskId::new).take(count).collect()
}

/// The valid tasks, and for every task of the batch its refusal, if any.
fn split(checked: Vec<CheckResult>) -> (Vec<NewTask>, Vec<Option<Problem>>) {
    let mut tasks = Vec::with_capacity(checked.len());
    let refusals = checked.into_iter().map(|result| match result {
        Ok(task) => {
            tasks.push(task);
            None
        }
        Err(problem) => Some(problem),
    });
    let refusals = refusals.collect();
    (tasks, refusals)
}
