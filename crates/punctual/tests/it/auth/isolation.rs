//! Every call there is, made by one tenant with what belongs to another.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Guarded;
use crate::it::world::{id_of, merged};

/// In every name and text of the other tenant.
const CANARY: &str = "canary-3f9c";

/// What the other tenant has, by the names of the parameters of paths.
struct Theirs {
    /// Of paths that begin so.
    ids: BTreeMap<&'static str, BTreeMap<&'static str, String>>,
    task: String,
    token: u64,
    cursor: String,
}

/// Gives a tenant one of everything.
async fn furnish(world: &Guarded) -> Theirs {
    world.tenant("theirs").await;
    let api = world.admin.tenant("theirs");
    let name = |what: &str| format!("{CANARY}-{what}");
    let task = json!({
        "type": name("type"), "queue": name("queue"), "payload": {"card": name("payload")}, "delay_seconds": 600,
        "metadata": {"who": name("label")}, "ordering_key": name("order"), "concurrency_key": name("concurrency"),
        "idempotency_key": name("key"),
    });
    let waiting = id_of(&api.post("/v1/tasks", &task).await.expect(201));
    let running = merged(task, json!({"delay_seconds": 0, "ordering_key": null, "idempotency_key": null}));
    let running = id_of(&api.post("/v1/tasks", &running).await.expect(201));
    let lease = json!({"worker_id": name("worker"), "queues": [name("queue")], "max_tasks": 1, "wait_seconds": 20});
    let leased = api.post("/v1/leases", &lease).await.expect(200);
    let token = leased["leases"][0]["token"].as_u64().expect("a lease");
    let progress = json!({"token": token, "progress": name("progress"), "checkpoint": name("checkpoint")});
    api.post(&format!("/v1/tasks/{running}/heartbeat"), &progress).await.expect(200);
    let schedule = json!({"name": name("schedule"), "cron": "0 3 * * *", "task": {"type": name("type")}});
    let schedule = api.post("/v1/schedules", &schedule).await.expect(201)["schedule_id"].clone();
    let operation = api.post("/v1/tasks/cancel", &json!({"filter": {"queue": "none"}})).await.expect(202);
    let cursor = api.get("/v1/tasks?limit=1").await.expect(200)["next_cursor"].clone();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let ids = [
        ("/v1/tasks/", [("id", running.clone())].into()),
        ("/v1/schedules/by-name/", [("name", name("schedule"))].into()),
        ("/v1/schedules/", [("id", text(&schedule))].into()),
        ("/v1/operations/", [("id", text(&operation["operation_id"]))].into()),
        ("/v1/queues/", [("name", name("queue"))].into()),
    ];
    Theirs { ids: ids.into(), task: waiting, token, cursor: text(&cursor) }
}

impl Theirs {
    /// A path of the document with their ids in it; none if it has parameters of other things.
    fn path(&self, template: &str) -> Option<String> {
        // The longest beginning is the most special.
        let ids = self.ids.iter().rev().find(|(beginning, _)| template.starts_with(*beginning));
        let filled = ids.map_or_else(
            || template.to_owned(),
            |(_, ids)| {
                ids.iter().fold(template.to_owned(), |path, (name, id)| path.replace(&format!("{{{name}}}"), id))
            },
        );
        (!filled.contains('{')).then_some(filled)
    }

    /// A good body for a call, that names what is theirs.
    fn body(&self, method: &str, template: &str) -> Option<Value> {
        let (task, token) = (&self.task, self.token);
        let filter = json!({"filter": {"queue": format!("{CANARY}*")}});
        let schedule = json!({"name": "mine", "cron": "0 4 * * *", "task": {"type": "t"}});
        let body = match (method, template) {
            ("POST", "/v1/tasks") => json!({"type": "t", "depends_on": [task]}),
            ("POST", "/v1/tasks/batch") => json!({"tasks": [{"type": "t", "depends_on": [task]}]}),
            ("POST", "/v1/tasks/cancel" | "/v1/dead-letters/redrive" | "/v1/dead-letters/purge") => filter,
            ("POST", "/v1/leases") => {
                json!({"worker_id": "mine", "queues": [format!("{CANARY}-queue")], "max_tasks": 9})
            }
            ("POST", "/v1/leases/settle") => {
                json!({"items": [{"task_id": task, "token": token, "outcome": "completed"}]})
            }
            ("POST", path) if path.ends_with("/fail") => {
                json!({"token": token, "error": {"code": "c", "message": "m"}})
            }
            ("POST", path) if ["/complete", "/heartbeat", "/release"].iter().any(|end| path.ends_with(end)) => {
                json!({ "token": token })
            }
            ("POST", "/v1/schedules" | "/v1/schedules/preview") => schedule,
            ("PUT", "/v1/schedules/by-name/{name}") => {
                json!({"cron": "0 4 * * *", "task": {"type": "t"}})
            }
            ("POST", path) if path.ends_with("/backfill") => {
                json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-03T00:00:00Z"})
            }
            ("POST", "/v1/admin/breakers/reset") => json!({"tenant": "theirs"}),
            ("PATCH" | "PUT" | "POST", _) => json!({}),
            _ => return None,
        };
        Some(body)
    }
}

/// What a call about a thing that is not there answers.
fn is_refused_as_absent(status: u16, text: &str) -> bool {
    status == 404 && text.contains("not_found")
}

/// Whether an answer has what only the other tenant knows. Names of queues and schedules are in the
/// paths of the calls.
fn shows_theirs(text: &str) -> bool {
    let secrets = ["type", "payload", "label", "order", "concurrency", "progress", "checkpoint", "worker"];
    secrets.iter().any(|secret| text.contains(&format!("{CANARY}-{secret}")))
}

#[tokio::test]
async fn no_call_reaches_what_is_another_tenants() {
    let world = Guarded::start().await;
    let theirs = furnish(&world).await;
    let before = things(&world).await;
    let document = world.admin.get("/openapi.json").await.expect(200);
    let mut calls = 0;
    for role in ["operator", "worker", "submitter", "viewer"] {
        let own = world.role(role).await;
        for (template, item) in document["paths"].as_object().expect("paths") {
            for method in item.as_object().expect("methods").keys().map(|method| method.to_uppercase()) {
                let Some(path) = theirs.path(template) else { continue };
                let (call, body) = (own.call(&method, &path), theirs.body(&method, template));
                let sent = body.as_ref().map(Value::to_string).unwrap_or_default();
                let call = if let Some(body) = &body { call.json(body) } else { call };
                let reply = call.send().await;
                let (status, text) = (reply.status(), reply.text());
                let is_named = template.contains('{');
                // A queue, or a schedule of this name, may be made: it is the caller's own.
                let makes =
                    ["/v1/queues/{name}", "/v1/schedules/by-name/{name}"].iter().any(|own| template.starts_with(own));
                assert!(
                    !is_named || makes || status == 403 || is_refused_as_absent(status, text),
                    "{role}: {method} {path}: {status} {text}"
                );
                assert!(!shows_theirs(text), "{role}: {method} {path}: {text}");
                let is_echo = sent.contains(&theirs.task) || path.contains(&theirs.task);
                assert!(is_echo || !text.contains(&theirs.task), "{role}: {method} {path}: {text}");
                calls += 1;
            }
        }
        for query in [
            format!("/v1/tasks?cursor={}", theirs.cursor),
            "/v1/tasks?queue=canary*".to_owned(),
            format!("/v1/tasks?ordering_key={CANARY}-order"),
            format!("/v1/tasks?idempotency_key={CANARY}-key"),
            format!("/v1/tasks?concurrency_key={CANARY}-concurrency"),
            format!("/v1/tasks?metadata[who]={CANARY}-label"),
            format!("/v1/tasks?worker_id={CANARY}-worker"),
            "/v1/workers".to_owned(),
            "/v1/upcoming".to_owned(),
            "/v1/forecast".to_owned(),
        ] {
            let reply = own.get(&query).await;
            let text = reply.text();
            assert!(!shows_theirs(text) && !text.contains(&theirs.task), "{role}: {query}: {reply}");
        }
    }
    assert!(calls > 200, "the document was not read: {calls} calls");
    assert_eq!(things(&world).await, before, "nothing of theirs has changed");
    let metrics = world.admin.get("/metrics").await;
    assert!(!metrics.text().contains(CANARY), "{metrics}");
    // A key is another one in another tenant.
    let own = world.role("submitter").await;
    let same_key = json!({"type": "t", "idempotency_key": format!("{CANARY}-key")});
    assert_ne!(id_of(&own.post("/v1/tasks", &same_key).await.expect(201)), theirs.task);
}

/// What the other tenant has, with versions.
async fn things(world: &Guarded) -> Vec<Value> {
    let api = world.admin.tenant("theirs");
    let mut things = Vec::new();
    for list in ["/v1/tasks", "/v1/schedules", "/v1/queues"] {
        things.push(api.get(list).await.expect(200)["items"].clone());
    }
    things
}
