//! `/openapi.json`: complete, consistent, and true.

use std::collections::BTreeSet;

use punctual_testkit::http::Reply;
use serde_json::{Map, Value, json};

use super::schema::{conforms, references, resolve};
use crate::it::world::{Caller, boom, id_of, shared, unknown_task, worker_id};

/// The calls of the contract about tasks, leases and health, without the names of their parameters.
const CALLS: &[&str] = &[
    "POST /v1/tasks",
    "GET /v1/tasks",
    "POST /v1/tasks/batch",
    "GET /v1/tasks/{}",
    "PATCH /v1/tasks/{}",
    "DELETE /v1/tasks/{}",
    "POST /v1/tasks/{}/run",
    "POST /v1/tasks/{}/redrive",
    "GET /v1/tasks/{}/runs",
    "GET /v1/tasks/{}/events",
    "GET /v1/tasks/{}/explain",
    "POST /v1/tasks/{}/complete",
    "POST /v1/tasks/{}/fail",
    "POST /v1/tasks/{}/heartbeat",
    "POST /v1/tasks/{}/release",
    "POST /v1/leases",
    "POST /v1/leases/settle",
    "GET /v1/workers",
    "GET /v1/queues",
    "GET /v1/queues/{}",
    "PUT /v1/queues/{}",
    "DELETE /v1/queues/{}",
    "POST /v1/queues/{}/pause",
    "POST /v1/queues/{}/resume",
    "POST /v1/schedules",
    "GET /v1/schedules",
    "POST /v1/schedules/preview",
    "GET /v1/schedules/by-name/{}",
    "PUT /v1/schedules/by-name/{}",
    "GET /v1/schedules/{}",
    "PATCH /v1/schedules/{}",
    "DELETE /v1/schedules/{}",
    "POST /v1/schedules/{}/pause",
    "POST /v1/schedules/{}/resume",
    "POST /v1/schedules/{}/trigger",
    "POST /v1/schedules/{}/backfill",
    "DELETE /v1/schedules/{}/backfill",
    "GET /v1/schedules/{}/preview",
    "GET /v1/schedules/{}/occurrences",
    "PATCH /v1/schedules/by-name/{}",
    "DELETE /v1/schedules/by-name/{}",
    "POST /v1/schedules/by-name/{}/pause",
    "POST /v1/schedules/by-name/{}/resume",
    "POST /v1/schedules/by-name/{}/trigger",
    "POST /v1/schedules/by-name/{}/backfill",
    "DELETE /v1/schedules/by-name/{}/backfill",
    "GET /v1/schedules/by-name/{}/preview",
    "GET /v1/schedules/by-name/{}/occurrences",
    "GET /v1/forecast",
    "GET /v1/upcoming",
    "GET /v1/admin/nodes",
    "GET /v1/admin/partitions",
    "GET /v1/admin/breakers",
    "POST /v1/admin/breakers/reset",
    "GET /v1/admin/tenants/{}/webhook-secrets",
    "POST /v1/admin/tenants/{}/webhook-secrets",
    "DELETE /v1/admin/tenants/{}/webhook-secrets/{}",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    // Further routes may be documented; this test calls these.
    "GET /openapi.json",
    "POST /v1/tasks (refused)",
    "GET /v1/tasks/{} (missing)",
];

const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

async fn document(caller: &Caller) -> Value {
    let answer = caller.api.get("/openapi.json").await;
    let document = answer.expect(200);
    assert_eq!(answer.header("content-type").and_then(|media| media.split(';').next()), Some("application/json"));
    document
}

/// `/a/{name}/b` as `/a/{}/b`.
fn nameless(path: &str) -> String {
    let segments = path.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment });
    segments.collect::<Vec<_>>().join("/")
}

/// Every operation as (method and nameless path, path item's path, operation).
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let each = paths.iter().flat_map(|(path, item)| {
        let of = METHODS.iter().filter_map(|method| item.get(*method).map(|operation| (*method, operation.clone())));
        of.map(|(method, operation)| (format!("{} {}", method.to_uppercase(), nameless(path)), path.clone(), operation))
            .collect::<Vec<_>>()
    });
    each.collect()
}

#[tokio::test]
async fn the_document_is_openapi_3_1_and_names_every_call() {
    let caller = shared().await;
    let document = document(&caller).await;
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")), "{}", document["openapi"]);
    for member in ["title", "version"] {
        assert!(document["info"][member].as_str().is_some_and(|text| !text.is_empty()), "info.{member}");
    }
    let documented: BTreeSet<String> = operations(&document).into_iter().map(|(call, ..)| call).collect();
    // The document need not document itself.
    for call in CALLS.iter().filter(|call| !call.contains('(') && **call != "GET /openapi.json") {
        assert!(documented.contains(*call), "{call} is not in the document: {documented:#?}");
    }
}

#[tokio::test]
async fn the_document_is_sound_in_itself() {
    let caller = shared().await;
    let document = document(&caller).await;
    let mut found = Vec::new();
    references(&document, &mut found);
    for reference in found {
        resolve(&document, &reference).unwrap_or_else(|error| panic!("{error}"));
    }
    let mut names = BTreeSet::new();
    for (call, path, operation) in operations(&document) {
        let responses = operation["responses"].as_object().cloned().unwrap_or_default();
        assert!(!responses.is_empty(), "{call} has no responses");
        assert!(responses.keys().any(|status| status.starts_with('2')), "{call} never succeeds");
        for (status, response) in &responses {
            let described = response.get("description").is_some() || response.get("$ref").is_some();
            assert!(described, "{call}: the response {status} has no description");
        }
        if let Some(name) = operation["operationId"].as_str() {
            assert!(names.insert(name.to_owned()), "{name} is the name of two operations");
        }
        let declared = parameters(&document, &path, &operation);
        for segment in path.split('/').filter_map(|segment| segment.strip_prefix('{')) {
            let name = segment.trim_end_matches('}');
            assert!(
                declared.contains(&("path".to_owned(), name.to_owned())),
                "{call} does not declare {name}: {declared:?}"
            );
        }
    }
}

/// The (place, name) of each parameter of an operation.
fn parameters(document: &Value, path: &str, operation: &Value) -> BTreeSet<(String, String)> {
    let of_path = document["paths"][path]["parameters"].as_array().cloned().unwrap_or_default();
    let own = operation["parameters"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let each = of_path.iter().chain(&own).map(|parameter| match parameter["$ref"].as_str() {
        Some(reference) => resolve(document, reference).expect("a reference leads somewhere").clone(),
        None => parameter.clone(),
    });
    each.map(|parameter| (text(&parameter["in"]), text(&parameter["name"]))).collect()
}

#[tokio::test]
async fn filters_and_headers_are_documented() {
    let caller = shared().await;
    let document = document(&caller).await;
    let of = |wanted: &str| {
        let found = operations(&document).into_iter().find(|(call, ..)| call == wanted);
        let (_, path, operation) = found.unwrap_or_else(|| panic!("no {wanted}"));
        let names = parameters(&document, &path, &operation).into_iter().map(|(_, name)| name.to_lowercase());
        names.collect::<BTreeSet<_>>()
    };
    let list = of("GET /v1/tasks");
    for name in [
        "limit",
        "cursor",
        "status",
        "type",
        "queue",
        "schedule_id",
        "priority_min",
        "created_after",
        "created_before",
        "execute_after",
        "execute_before",
        "order",
    ] {
        assert!(list.contains(name), "the filter {name} is not in the document: {list:?}");
    }
    assert!(of("POST /v1/tasks").contains("idempotency-key"));
    assert!(of("POST /v1/tasks/batch").contains("return"));
    assert!(of("PATCH /v1/tasks/{}").contains("if-match"));
}

/// Compares real responses with the document.
struct Checker {
    document: Value,
    checked: BTreeSet<String>,
}

impl Checker {
    #[track_caller]
    fn check(&mut self, call: &str, answer: &Reply) {
        let wanted = call.split(" (").next().unwrap_or(call);
        let found = operations(&self.document).into_iter().find(|(documented, ..)| documented == wanted);
        let Some((_, _, operation)) = found else {
            assert_eq!(wanted, "GET /openapi.json", "{wanted} is not in the document");
            self.checked.insert(call.to_owned());
            return;
        };
        let response = self.response(&operation, answer.status()).unwrap_or_else(|| {
            panic!(
                "{call} may answer {:?} according to the document\n{answer}",
                operation["responses"].as_object().map(Map::keys)
            )
        });
        if let Some(content) = response["content"].as_object().filter(|_| !answer.body().is_empty()) {
            let media = answer.header("content-type").and_then(|media| media.split(';').next()).unwrap_or_default();
            let documented = content.iter().find(|(known, _)| known.split(';').next() == Some(media));
            let (_, documented) =
                documented.unwrap_or_else(|| panic!("{call}: {media:?} is not one of {:?}\n{answer}", content.keys()));
            if media.ends_with("json") {
                let schema = &documented["schema"];
                assert!(!schema.is_null(), "{call}: JSON without a schema");
                conforms(&self.document, schema, &answer.value(), "")
                    .unwrap_or_else(|error| panic!("{call}: {error}\n{answer}"));
            }
        } else {
            assert!(answer.body().is_empty(), "{call} answers a body that the document does not know\n{answer}");
        }
        self.checked.insert(call.to_owned());
    }

    /// The documented response for a status, by its number: `default` would excuse any.
    fn response(&self, operation: &Value, status: u16) -> Option<Value> {
        let response = operation["responses"].get(status.to_string())?.clone();
        match response["$ref"].as_str() {
            Some(reference) => resolve(&self.document, reference).ok().cloned(),
            None => Some(response),
        }
    }
}

#[tokio::test]
async fn every_call_answers_as_the_document_says() {
    let caller = shared().await;
    let mut checker = Checker { document: document(&caller).await, checked: BTreeSet::new() };
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/v1/admin/nodes",
        "/v1/admin/partitions",
        "/v1/admin/breakers",
    ] {
        checker.check(&format!("GET {path}"), &caller.api.get(path).await);
    }
    let nothing = json!({"tenant": "nobody"});
    checker.check("POST /v1/admin/breakers/reset", &caller.api.post("/v1/admin/breakers/reset", &nothing).await);
    check_webhook_secrets(&caller, &mut checker).await;
    check_tasks(&caller, &mut checker).await;
    check_runs(&caller, &mut checker).await;
    check_queues(&caller, &mut checker).await;
    check_schedules(&caller, &mut checker).await;
    for query in ["", "?hours=48&top=3", "?hours=0"] {
        checker.check("GET /v1/forecast", &caller.api.get(&format!("/v1/forecast{query}")).await);
    }
    for query in ["", "?limit=1", "?to=x"] {
        checker.check("GET /v1/upcoming", &caller.api.get(&format!("/v1/upcoming{query}")).await);
    }
    let unchecked: Vec<&&str> = CALLS.iter().filter(|call| !checker.checked.contains(**call)).collect();
    assert!(unchecked.is_empty(), "{unchecked:?} were not called");
}

async fn check_webhook_secrets(caller: &Caller, checker: &mut Checker) {
    let secrets = format!("/v1/admin/tenants/t-{}/webhook-secrets", uuid::Uuid::now_v7().simple());
    let create = "POST /v1/admin/tenants/{}/webhook-secrets";
    let own = json!({"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"});
    let made = caller.api.post(&secrets, &own).await;
    checker.check(create, &made);
    // The same one again, one that is malformed, the second, and one too many.
    for body in [own, json!({"secret": "whsec_"}), json!({}), json!({})] {
        checker.check(create, &caller.api.post(&secrets, &body).await);
    }
    checker.check("GET /v1/admin/tenants/{}/webhook-secrets", &caller.api.get(&secrets).await);
    let one = format!("{secrets}/{}", made.expect(201)["id"].as_str().expect("an id"));
    for _ in 0..2 {
        checker.check("DELETE /v1/admin/tenants/{}/webhook-secrets/{}", &caller.api.delete(&one).await);
    }
}

async fn check_tasks(caller: &Caller, checker: &mut Checker) {
    let api = &caller.api;
    let waiting = json!({
        "type": "t", "delay_seconds": 600, "payload": {"a": 1}, "metadata": {"k": "v"},
        "callback_url": "http://127.0.0.1:9",
        "callback_headers": {"x-a": "b"}, "expires_at": "2101-01-01T00:00:00Z", "idempotency_key": "k",
    });
    let submitted = api.post("/v1/tasks", &waiting).await;
    checker.check("POST /v1/tasks", &submitted);
    checker.check("POST /v1/tasks", &api.post("/v1/tasks", &waiting).await);
    checker.check("POST /v1/tasks (refused)", &api.post("/v1/tasks", &json!({"type": "", "x": 1})).await);
    checker.check("POST /v1/tasks", &api.call("POST", "/v1/tasks").body("application/json", "{").send().await);
    checker.check("POST /v1/tasks", &api.call("POST", "/v1/tasks").body("text/plain", "{}").send().await);
    let batch = json!({"tasks": [{"type": "t", "delay_seconds": 600}, {"type": ""}]});
    checker.check("POST /v1/tasks/batch", &api.post("/v1/tasks/batch", &batch).await);
    checker.check("POST /v1/tasks/batch", &api.post("/v1/tasks/batch?return=ids", &batch).await);
    checker.check("GET /v1/tasks", &api.get("/v1/tasks?limit=1").await);
    checker.check("GET /v1/tasks", &api.get("/v1/tasks?limit=0").await);
    let path = format!("/v1/tasks/{}", id_of(&submitted.expect(201)));
    checker.check("GET /v1/tasks/{}", &api.get(&path).await);
    checker.check("GET /v1/tasks/{} (missing)", &api.get(&format!("/v1/tasks/{}", unknown_task())).await);
    checker.check("PATCH /v1/tasks/{}", &api.patch(&path, &json!({"priority": 7})).await);
    checker.check(
        "PATCH /v1/tasks/{}",
        &api.call("PATCH", &path).header("if-match", "\"0\"").json(&json!({"priority": 7})).send().await,
    );
    for tail in ["runs", "events", "explain"] {
        checker.check(&format!("GET /v1/tasks/{{}}/{tail}"), &api.get(&format!("{path}/{tail}")).await);
    }
    checker.check("POST /v1/tasks/{}/redrive", &api.post(&format!("{path}/redrive"), &json!({})).await);
    checker.check("DELETE /v1/tasks/{}", &api.delete(&path).await);
    checker.check("PATCH /v1/tasks/{}", &api.patch(&path, &json!({"priority": 7})).await);
    let soon = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    checker.check("POST /v1/tasks/{}/run", &api.call("POST", &format!("/v1/tasks/{soon}/run")).send().await);
}

async fn check_runs(caller: &Caller, checker: &mut Checker) {
    let api = &caller.api;
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 1, "wait_seconds": 20});
    for verb in ["complete", "fail", "release", "heartbeat"] {
        caller.submit(json!({"type": "t", "queue": "q", "payload": 1})).await;
        let answer = api.post("/v1/leases", &wanted).await;
        checker.check("POST /v1/leases", &answer);
        let lease = answer.expect(200)["leases"][0].clone();
        let mut stale = lease.clone();
        stale["token"] = json!(0);
        let body = match verb {
            "complete" => json!({"result": 1}),
            "fail" => boom(),
            _ => json!({}),
        };
        checker.check(&format!("POST /v1/tasks/{{}}/{verb}"), &caller.report(verb, &stale, body.clone()).await);
        checker.check(&format!("POST /v1/tasks/{{}}/{verb}"), &caller.report(verb, &lease, body).await);
        let path = format!("/v1/tasks/{}", id_of(&lease["task"]));
        for tail in ["runs", "events", "explain"] {
            checker.check(&format!("GET /v1/tasks/{{}}/{tail}"), &api.get(&format!("{path}/{tail}")).await);
        }
        checker.check("GET /v1/tasks/{}", &api.get(&path).await);
        let item =
            json!({"task_id": lease["task"]["task_id"], "token": lease["token"], "outcome": "completed", "result": 1});
        let items = json!({"items": [item, {"task_id": unknown_task(), "token": 1, "outcome": "released"}]});
        checker.check("POST /v1/leases/settle", &api.post("/v1/leases/settle", &items).await);
        checker.check("DELETE /v1/tasks/{}", &api.delete(&path).await);
    }
    checker.check("GET /v1/workers", &api.get("/v1/workers").await);
}

async fn check_queues(caller: &Caller, checker: &mut Checker) {
    let api = &caller.api;
    checker.check("GET /v1/queues/{}", &api.get("/v1/queues/nobodys").await);
    let all = json!({
        "max_concurrency": 3, "max_per_key": 2, "rate_limit": {"per_second": 2.5, "burst": 4}, "max_depth": 9,
        "retry_policy": {"max_retries": 1}, "timeout_seconds": 1.5, "dispatch_jitter_seconds": 1,
        "on_dead_letter": "hold", "paused": false,
    });
    for settings in [all, json!({}), json!({"max_concurrency": 0})] {
        let answer = api.call("PUT", "/v1/queues/mail").json(&settings).send().await;
        checker.check("PUT /v1/queues/{}", &answer);
        checker.check("GET /v1/queues/{}", &api.get("/v1/queues/mail").await);
    }
    let reason = json!({"reason": "why", "until": "2101-01-01T00:00:00Z"});
    for body in [reason, json!({}), json!({"until": "2001-01-01T00:00:00Z"})] {
        checker.check("POST /v1/queues/{}/pause", &api.post("/v1/queues/mail/pause", &body).await);
    }
    checker.check("GET /v1/queues", &api.get("/v1/queues?limit=1").await);
    checker.check("POST /v1/queues/{}/resume", &api.call("POST", "/v1/queues/mail/resume").send().await);
    checker.check("GET /v1/queues", &api.get("/v1/queues?cursor=x").await);
    api.post("/v1/tasks", &json!({"type": "t", "queue": "used", "delay_seconds": 60})).await.expect(201);
    for queue in ["mail", "mail", "used"] {
        checker.check("DELETE /v1/queues/{}", &api.delete(&format!("/v1/queues/{queue}")).await);
    }
    let at_another = api.call("PUT", "/v1/queues/mail").header("if-match", "\"99\"").json(&json!({})).send().await;
    checker.check("PUT /v1/queues/{}", &at_another);
}

async fn check_schedules(caller: &Caller, checker: &mut Checker) {
    let api = &caller.api;
    let schedule =
        json!({"name": "s", "cron": "0 0 1 1 *", "timezone": "Europe/Berlin", "task": {"type": "t", "payload": 1}});
    let made = api.post("/v1/schedules", &schedule).await;
    checker.check("POST /v1/schedules", &made);
    checker.check("POST /v1/schedules", &api.post("/v1/schedules", &schedule).await);
    checker.check("POST /v1/schedules", &api.post("/v1/schedules", &json!({"cron": "x"})).await);
    let id = made.expect(201)["schedule_id"].as_str().expect("an id").to_owned();
    checker.check("GET /v1/schedules", &api.get("/v1/schedules?limit=1").await);
    checker.check("GET /v1/schedules", &api.get("/v1/schedules?cursor=x").await);
    checker.check("POST /v1/schedules/preview", &api.post("/v1/schedules/preview?count=2", &schedule).await);
    let by_name =
        api.call("PUT", "/v1/schedules/by-name/other").json(&json!({"interval_seconds": 9, "task": {"type": "t"}}));
    checker.check("PUT /v1/schedules/by-name/{}", &by_name.send().await);
    checker.check("GET /v1/schedules/by-name/{}", &api.get("/v1/schedules/by-name/other").await);
    checker.check("GET /v1/schedules/by-name/{}", &api.get("/v1/schedules/by-name/none").await);
    let broken = api.call("PUT", "/v1/schedules/by-name/%ff").json(&schedule).send().await;
    broken.problem(404);
    checker.check("GET /v1/schedules/{}", &api.get("/v1/schedules/%ff").await);
    check_one_schedule(caller, checker, &format!("/v1/schedules/{id}"), "/v1/schedules/{}").await;
    check_one_schedule(caller, checker, "/v1/schedules/by-name/other", "/v1/schedules/by-name/{}").await;
}

/// Every call about the schedule at `path`, which the document has as `known`.
async fn check_one_schedule(caller: &Caller, checker: &mut Checker, path: &str, known: &str) {
    let api = &caller.api;
    let mut check =
        |method: &str, verb: &str, answer: &Reply| checker.check(&format!("{method} {known}{verb}"), answer);
    check("GET", "", &api.get(path).await);
    let edit = json!({"max_runs": 9, "ends_at": null, "task": {"payload": {"a": 1}, "queue": null}});
    check("PATCH", "", &api.patch(path, &edit).await);
    check("PATCH", "", &api.patch(path, &json!({"task": {"type": null}})).await);
    for body in [json!({"reason": "why"}), json!({"reason": 1})] {
        check("POST", "/pause", &api.post(&format!("{path}/pause"), &body).await);
    }
    check("GET", "", &api.get(path).await);
    check("POST", "/resume", &api.call("POST", &format!("{path}/resume")).send().await);
    for _ in 0..2 {
        check("POST", "/trigger", &api.call("POST", &format!("{path}/trigger")).send().await);
    }
    for _ in 0..2 {
        let keyed = api.call("POST", &format!("{path}/trigger")).header("idempotency-key", path).json(&json!({}));
        check("POST", "/trigger", &keyed.send().await);
    }
    for verb in ["/trigger", "/resume"] {
        check("POST", verb, &api.post(&format!("{path}{verb}"), &json!({"what": 1})).await);
    }
    let range = json!({"from": "2024-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"});
    check("POST", "/backfill", &api.post(&format!("{path}/backfill"), &range).await);
    check("DELETE", "/backfill", &api.delete(&format!("{path}/backfill")).await);
    check("GET", "/preview", &api.get(&format!("{path}/preview?count=2")).await);
    check("GET", "/occurrences", &api.get(&format!("{path}/occurrences?limit=1")).await);
    check("DELETE", "", &api.delete(path).await);
    check("DELETE", "", &api.delete(path).await);
}
