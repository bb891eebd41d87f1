//! The `webhooks` of the document: what a `callback_url` receives, and what its answers mean.
//!
//! `punctual-worker` sends these requests and judges the answers (`request.rs`, `answer.rs`); a
//! black-box test compares a real request with this section.

use punctual_client::Envelope;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::OpenApi;

/// The document with what the library has no words for.
#[derive(Serialize)]
pub struct WholeDocument<'a> {
    #[serde(flatten)]
    document: &'a OpenApi,
    webhooks: Value,
}

impl<'a> WholeDocument<'a> {
    /// `document` with its webhooks.
    pub fn of(document: &'a OpenApi) -> Self {
        Self { document, webhooks: json!({"task": {"post": delivery()}}) }
    }
}

/// The headers of every delivery: name, type and meaning.
const HEADERS: [(&str, &str, &str); 9] = [
    ("Punctual-Task-Id", "string", "The task's id, the same in every attempt"),
    ("Punctual-Type", "string", "The task's type"),
    ("Punctual-Attempt", "integer", "The number of the attempt, from 1"),
    ("Punctual-Fencing-Token", "integer", "The token of this run; it grows with every run"),
    ("Punctual-Execute-At", "string", "When the task was to run"),
    ("Idempotency-Key", "string", "The task's id: do the work of a second call with it only once"),
    ("Traceparent", "string", "A new trace for each run (W3C Trace Context)"),
    ("Webhook-Id", "string", "The task's id (Standard Webhooks)"),
    ("Webhook-Timestamp", "integer", "When the attempt began, in Unix seconds (Standard Webhooks)"),
];

/// The headers that come with some deliveries: of the tasks of a schedule, and of tenants with
/// secrets.
const SOME_HEADERS: [(&str, &str, &str); 3] = [
    ("Punctual-Schedule-Id", "string", "The schedule that submitted the task, if one did"),
    ("Punctual-Scheduled-For", "string", "The instant of the schedule that the task stands for"),
    (
        "Webhook-Signature",
        "string",
        "`v1,` and the base64 of an HMAC-SHA256 for each live secret of the tenant, separated by blanks (Standard \
         Webhooks). Absent for a tenant without a secret",
    ),
];

/// What each answer does to the task.
const ANSWERS: [(&str, &str); 8] = [
    ("2XX", "The task is completed. A JSON body of up to 64 KiB is its result"),
    (
        "202",
        "With the header `Punctual-Completion: async` the task runs on until it is settled; without it, as any 2xx",
    ),
    ("408", "The task is retried; `Retry-After` is honoured"),
    ("425", "The task is retried; `Retry-After` is honoured"),
    ("429", "The task is retried; `Retry-After` is honoured"),
    ("503", "The task is retried; `Retry-After` is honoured"),
    ("5XX", "The task is retried by its policy, as after a timeout or without a connection"),
    ("default", "The task is a dead letter at once, unless its `retry_on` says otherwise; redirects are not followed"),
];

fn delivery() -> Value {
    let required = HEADERS.iter().map(|header| parameter(header, true));
    let parameters = required.chain(SOME_HEADERS.iter().map(|header| parameter(header, false)));
    let responses = ANSWERS.map(|(status, meaning)| (status.to_owned(), answer(status, meaning)));
    json!({
        "operationId": "deliver_task",
        "summary": "Deliver a task",
        "description": "Sent to the `callback_url` of a task that is due, with its `callback_headers` besides. \
            It is sent at least once. docs/webhooks.md has more.",
        "tags": ["tasks"],
        "parameters": parameters.collect::<Vec<Value>>(),
        "requestBody": {
            "description": "The payload of the task, as it was submitted; for a task with the `callback_body` \
                `envelope` an object with the payload, the run and the results of the task's dependencies",
            "required": true,
            "content": {"application/json": {"schema": {
                "anyOf": [
                    {"$ref": format!("#/components/schemas/{}", Envelope::name())},
                    {"description": "The payload: any JSON"},
                ],
            }}},
        },
        "responses": Value::Object(responses.into_iter().collect()),
    })
}

fn parameter((name, kind, description): &(&str, &str, &str), required: bool) -> Value {
    json!({"name": name, "in": "header", "required": required, "description": description, "schema": {"type": kind}})
}

fn answer(status: &str, meaning: &str) -> Value {
    let header = |description: &str| json!({"description": description, "schema": {"type": "string"}});
    let mut answer = json!({"description": meaning});
    match status {
        "202" => answer["headers"] = json!({"Punctual-Completion": header("`async`: the task is settled later")}),
        "408" | "425" | "429" | "503" => {
            answer["headers"] = json!({"Retry-After": header("Seconds, or an HTTP date: when to call again")});
        }
        _ => {}
    }
    answer
}
