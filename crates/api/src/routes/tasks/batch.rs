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
use punctual_submission::reading::{self, Shape};
use punctual_submission::{BatchContext, TaskValidator, batch_members, keep_order};
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::header_key;
use super::submit::replace_final;
use crate::extract::body::{self, MediaType};
use crate::extract::query::Query;
use crate::extract::{Tenant, json};
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
    Tenant(tenant): Tenant,
    mut query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let ids_only = query.word("return", &[("ids", true), ("tasks", false)]);
    let (atomic, replaces) = (query.flag("atomic") == Some(true), query.flag("replace_final") == Some(true));
    query.finish()?;
    if request.headers().contains_key(header_key::HEADER) {
        let detail = "one key cannot identify many tasks; give each task its idempotency_key";
        return Err(Problem::new(Code::InvalidIdempotencyKey, detail));
    }
    let media_type = body::media_type(request.headers())?;
    let body = body::read(request, api.config.batch_body_bytes).await?;
    let size = body.len();
    let permit = api.admission.parse_permit(size).await;
    let (checked, ids) = {
        let checker = api.clone();
        api.cpu_pool.run(size, move || check_all(&checker, &tenant, &body, media_type)).await??
    };
    let (mut tasks, checked) = split(checked);
    for task in &mut tasks {
        replace_final(task, replaces);
    }
    let inserted = match tasks.len() {
        0 => Vec::new(),
        valid if atomic && valid < checked.len() => vec![Inserted::Withheld; valid],
        _ if atomic => api.store.insert_all(tasks).await?,
        _ => api.store.insert(tasks).await?,
    };
    drop(permit);
    let created = inserted.iter().filter(|inserted| matches!(inserted, Inserted::Created(_))).count();
    api.operations.metrics.tasks_submitted.inc_by(created as u64);
    api.cpu_pool.run(size, move || answer::answer(checked, inserted, &ids, ids_only == Some(true), atomic)).await?
}

/// The maximum number of faults that are listed for one task: a batch has thousands of tasks.
const TASK_FAULTS_MAX: usize = 20;

/// A task of a batch, or why it is refused.
type CheckResult = Result<NewTask, Problem>;

/// Every task of the batch or its refusal, and the id of each.
fn check_all(
    api: &Api,
    tenant: &str,
    body: &Bytes,
    media_type: MediaType,
) -> Result<(Vec<CheckResult>, Vec<TaskId>), Problem> {
    let max = api.config.batch_tasks.min(limits::BATCH);
    let validator = TaskValidator::new(&api.config.submission, tenant, api.clock.now(), api.node);
    let budget = Cell::new(limits::BATCH_DEPENDENCIES);
    let check = |ids: &[TaskId], at: usize, text: &str| {
        let context = BatchContext::batch(ids, at, &budget);
        let checked = reading::read(text)?.check(|new, faults| validator.check(faults, new, None, &context));
        checked.map_err(|error| Problem::from(error.quoting(text).shortened(TASK_FAULTS_MAX)))
    };
    let check = |ids: &[TaskId], at: usize, text: Result<&str, Problem>| {
        let checked = text.and_then(|text| check(ids, at, text));
        checked.map_err(|problem| problem.under(&format!("/tasks/{at}")))
    };
    let (mut checked, ids): (Vec<CheckResult>, Vec<TaskId>) = match media_type {
        MediaType::Json => {
            if body.trim_ascii_start().first() == Some(&b'[') {
                // The derived reader of `RawBatch` would take a list by position.
                return Err(Problem::invalid_at("", "must be an object"));
            }
            let RawBatch { tasks: RawItems(items) } = read_batch(json::text(body)?)?;
            refuse_over(max, items.len())?;
            let ids = new_ids(items.len());
            let check = |(at, item): (usize, &&RawValue)| check(&ids, at, Ok(item.get()));
            (yielding(items.iter().enumerate()).map(check).collect(), ids)
        }
        MediaType::Ndjson => {
            let lines = || body.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
            refuse_over(max, lines().take(max + 1).count())?;
            let ids = new_ids(lines().count());
            (yielding(lines().enumerate()).map(|(at, line)| check(&ids, at, json::text(line))).collect(), ids)
        }
    };
    batch_members::refuse_impossible(&mut checked, &ids);
    keep_order(&mut checked);
    Ok((checked, ids))
}

/// Ids in the order of the batch.
fn new_ids(count: usize) -> Vec<TaskId> {
    std::iter::repeat_with(TaskId::new).take(count).collect()
}

fn refuse_over(max: usize, count: usize) -> Result<(), Problem> {
    if count <= max {
        return Ok(());
    }
    Err(Problem::invalid_at("/tasks", format!("must have at most {max} entries")))
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

/// Reads the batch, without its tasks.
fn read_batch(text: &str) -> Result<RawBatch<'_>, Problem> {
    let shape = Shape::of::<wire::NewBatch>().with_any_items();
    let sent = reading::read_as(text, &shape)?;
    Ok(sent.check(|batch, _| Some(batch)).map_err(|error| error.quoting(text))?)
}

/// The batch with unparsed tasks. Each is parsed by itself, so that a bad one does not affect
/// the rest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBatch<'a> {
    #[serde(borrow)]
    tasks: RawItems<'a>,
}

/// The tasks as text. The number is bounded while reading, so that a list of tiny ones cannot take
/// far more memory than its text.
struct RawItems<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for RawItems<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = RawItems<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of tasks")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawItems<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == limits::BATCH {
                        return Err(de::Error::custom(format_args!("must have at most {} entries", limits::BATCH)));
                    }
                    items.push(item);
                }
                Ok(RawItems(items))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch_fault(text: &str) -> (Code, Vec<String>) {
        let problem = read_batch(text).err().expect("a fault");
        (problem.code(), problem.errors().iter().map(|fault| fault.pointer.clone()).collect())
    }

    #[test]
    fn tasks_of_a_batch_stay_text() {
        let text = r#"{"tasks":[{"type":"a"},17,"x",{"type":"b","payload":[1, 2]}]}"#;
        let RawBatch { tasks: RawItems(items) } = read_batch(text).unwrap();
        assert_eq!(items.iter().map(|item| item.get()).collect::<Vec<_>>()[1..3], ["17", "\"x\""]);
    }

    #[test]
    fn a_document_of_another_shape_is_refused_as_a_whole() {
        assert_eq!(batch_fault("[]"), (Code::InvalidRequest, vec![String::new()]));
        assert_eq!(batch_fault("{}"), (Code::InvalidRequest, vec!["/tasks".to_owned()]));
        assert_eq!(batch_fault(r#"{"tasks":[],"atomic":true}"#), (Code::InvalidRequest, vec!["/atomic".to_owned()]));
        assert_eq!(batch_fault(r#"{"tasks":{}}"#), (Code::InvalidRequest, vec!["/tasks".to_owned()]));
        assert_eq!(batch_fault(r#"{"tasks":[{]}"#).0, Code::InvalidJson);
    }

    #[test]
    fn a_batch_is_bounded_while_it_is_read() {
        let text = format!(r#"{{"tasks":[{}1]}}"#, "1,".repeat(limits::BATCH));
        assert_eq!(batch_fault(&text), (Code::InvalidRequest, vec!["/tasks".to_owned()]));
    }
}
