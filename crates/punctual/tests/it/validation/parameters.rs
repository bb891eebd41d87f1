//! Parameters of the query: every call refuses those that it does not know.

use serde_json::{Value, json};

use crate::it::world::{Caller, array, id_of, shared, unknown_task};

/// Every documented call under `/v1`: its method, its path, and whether it has a body.
async fn calls(caller: &Caller) -> Vec<(String, String, bool)> {
    let document = caller.api.get("/openapi.json").await.expect(200);
    let paths = document["paths"].as_object().expect("paths").iter().filter(|(path, _)| path.starts_with("/v1/"));
    let calls = paths.flat_map(|(path, item)| {
        let operations = item.as_object().expect("operations").iter();
        operations.map(|(method, call)| (method.to_uppercase(), path.clone(), call.get("requestBody").is_some()))
    });
    calls.collect()
}

/// The messages of the faults at `pointer`.
fn messages(problem: &Value, pointer: &str) -> Vec<String> {
    let faults = array(&problem["errors"]).into_iter().filter(|fault| fault["pointer"] == pointer);
    faults.map(|fault| fault["message"].as_str().expect("a message").to_owned()).collect()
}

#[tokio::test]
async fn every_call_refuses_unknown_parameters() {
    let caller = shared().await;
    let task = caller.submit(json!({"type": "t", "queue": "q", "delay_seconds": 600})).await;
    let schedule = json!({"name": "s", "cron": "0 3 1 1 *", "task": {"type": "t"}});
    let schedule = caller.api.post("/v1/schedules", &schedule).await.expect(201);
    let tenant = unknown_task().replace("task_", "t-");
    caller.api.post("/v1/admin/tenants", &json!({ "name": tenant })).await.expect(201);
    let calls = calls(&caller).await;
    assert!(calls.len() > 50, "{calls:?}");
    for (method, path, has_body) in calls {
        let id = match path.split('/').nth(2) {
            Some("tasks") => id_of(&task),
            Some("schedules") => schedule["schedule_id"].as_str().expect("an id").to_owned(),
            _ => unknown_task().replace("task_", "op_"),
        };
        let name = if path.contains("/queues/") { "q" } else { "s" };
        let path = path.replace("{tenant}", &tenant).replace("{key_id}", &unknown_task().replace("task_", "key_"));
        let path = format!("{}?bogus=1", path.replace("{id}", &id).replace("{name}", name));
        let call = caller.api.call(&method, &path);
        let reply = if has_body { call.json(&json!({})) } else { call }.send().await;
        let problem = reply.problem_code(422, "invalid_request");
        assert_eq!(messages(&problem, "?bogus"), ["is not a known parameter"], "{method} {path}: {problem:#}");
    }
    assert_eq!(caller.task(&id_of(&task)).await, task);
    assert_eq!(caller.api.get("/v1/schedules/by-name/s").await.expect(200), schedule);
}

#[tokio::test]
async fn unknown_parameters_come_with_the_faults_of_the_body() {
    let caller = shared().await;
    for (method, path, body, pointer) in [
        ("POST", "/v1/tasks/cancel", json!({"filter": {"typ": "t"}}), "/filter/typ"),
        ("POST", "/v1/schedules", json!({"cron": "x"}), "/cron"),
        ("PUT", "/v1/queues/q", json!({"max_depth": "x"}), "/max_depth"),
        ("POST", "/v1/queues/q/pause", json!({"until": 5}), "/until"),
        ("POST", "/v1/leases", json!({"worker_id": "w", "queues": "q"}), "/queues"),
        ("POST", "/v1/leases/settle", json!({"items": [{"token": 5}]}), "/items/0/outcome"),
    ] {
        let reply = caller.api.call(method, &format!("{path}?dry_run=true")).json(&body).send().await;
        let problem = reply.problem_code(422, "invalid_request");
        for pointer in ["?dry_run", pointer] {
            assert_eq!(messages(&problem, pointer).len(), 1, "{path} {pointer}: {problem:#}");
        }
    }
}

#[tokio::test]
async fn labels_and_states_are_explained() {
    let caller = shared().await;
    for (query, pointer, end) in [
        ("metadata=c1", "?metadata", "; write `metadata.KEY=VALUE` or `metadata[KEY]=VALUE`"),
        ("status=PENDING,BLOCKED", "?status", "repeat the parameter for several: status=PENDING&status=BLOCKED"),
    ] {
        let problem = caller.api.get(&format!("/v1/tasks?{query}")).await.invalid(pointer);
        assert!(messages(&problem, pointer)[0].ends_with(end), "{problem:#}");
    }
    let xx = caller.api.get("/v1/tasks?cursor=xx").await.problem_code(400, "invalid_cursor");
    assert_eq!(xx["errors"][0]["value"], "xx");
}

#[tokio::test]
async fn a_priority_is_written_alike_everywhere() {
    let caller = shared().await;
    for (priority, queue) in [(2, "a"), (8, "b")] {
        caller.submit(json!({"type": "t", "priority": priority, "queue": queue, "delay_seconds": 600})).await;
    }
    for least in ["8", "8.0", "high"] {
        assert_eq!(caller.list(&format!("/v1/tasks?priority_min={least}")).await.len(), 1, "{least}");
        caller.api.get(&format!("/v1/dead-letters?priority_min={least}")).await.expect(200);
    }
    for least in [json!(8), json!(8.0), json!("high")] {
        let wanted = json!({"filter": {"priority_min": least}, "dry_run": true});
        assert_eq!(caller.api.post("/v1/tasks/cancel", &wanted).await.expect(200)["matched"], 1, "{wanted}");
    }
    let wanted = json!({"filter": {"priority_min": "hgih", "metadata": {"": "x", "a/b": "\u{1}"}}, "dry_run": true});
    let problem = caller.api.post("/v1/tasks/cancel", &wanted).await.problem(422);
    for (pointer, value) in [("/filter/priority_min", json!("hgih")), ("/filter/metadata/", json!("x"))] {
        let fault = array(&problem["errors"]).into_iter().find(|fault| fault["pointer"] == pointer);
        assert_eq!(fault.unwrap_or_else(|| panic!("no {pointer}: {problem:#}"))["value"], value);
    }
    assert_eq!(messages(&problem, "/filter/metadata/a~1b").len(), 1, "{problem:#}");
}
