//! What a credential reaches: its tenant, its queues and types, and whether it sees payloads.

use serde_json::{Value, json};

use super::Guarded;
use crate::it::world::{array, id_of, merged};

fn tasks(page: &Value) -> Vec<String> {
    array(&page["items"]).iter().map(id_of).collect()
}

#[tokio::test]
async fn another_tenants_things_are_not_there() {
    let world = Guarded::start().await;
    world.tenant("acme").await;
    let own = world.caller("acme", json!({"role": "operator"})).await;
    let submitter = world.caller("acme", json!({"role": "submitter"})).await;
    let stranger = world.role("operator").await;
    let task = submitter.post("/v1/tasks", &json!({"type": "t", "delay_seconds": 600})).await.expect(201);
    assert_eq!(task["tenant"], "acme");
    let id = id_of(&task);
    let schedule = json!({"name": "s", "cron": "0 3 * * *", "task": {"type": "t"}});
    let schedule = own.post("/v1/schedules", &schedule).await.expect(201)["schedule_id"].clone();
    let schedule = format!("/v1/schedules/{}", schedule.as_str().unwrap());
    for path in [&format!("/v1/tasks/{id}"), &format!("/v1/tasks/{id}/events"), &schedule] {
        own.get(path).await.expect(200);
        stranger.get(path).await.problem_code(404, "not_found");
        stranger.delete(path).await.problem_any(&[403, 404]);
    }
    stranger.delete(&format!("/v1/tasks/{id}")).await.problem_code(404, "not_found");
    assert!(tasks(&stranger.get("/v1/tasks").await.expect(200)).is_empty());

    // Only an admin may say for whom it acts.
    stranger.tenant("acme").get("/v1/tasks").await.problem_code(403, "forbidden");
    stranger.tenant("default").get("/v1/tasks").await.expect(200);
    own.tenant("acme").get("/v1/tasks").await.expect(200);
    assert_eq!(tasks(&world.admin.tenant("acme").get("/v1/tasks").await.expect(200)), [id]);
    assert_eq!(world.admin.tenant("acme").get("/v1/whoami").await.expect(200)["tenant"], "acme");
    world.admin.tenant("a b").get("/v1/tasks").await.problem_code(400, "invalid_tenant");
    stranger.get("/v1/admin/breakers?tenant=acme").await.problem_code(403, "forbidden");
    stranger.get("/v1/admin/breakers").await.expect(200);
    stranger.post("/v1/admin/breakers/reset", &json!({"tenant": "acme"})).await.problem_code(403, "forbidden");
}

#[tokio::test]
async fn a_key_reaches_its_queues_and_types() {
    let world = Guarded::start().await;
    let all = world.role("submitter").await;
    let scope = json!({"role": "submitter", "queues": ["eu.*", "us"], "types": ["mail.*"]});
    let narrow = world.caller("default", scope).await;
    let later = |kind: &str, queue: &str| json!({"type": kind, "queue": queue, "delay_seconds": 600});
    let inside = id_of(&narrow.post("/v1/tasks", &later("mail.send", "eu.1")).await.expect(201));
    let second = id_of(&narrow.post("/v1/tasks", &later("mail.read", "us")).await.expect(201));
    narrow.post("/v1/tasks", &later("mail.send", "asia")).await.problem_code(403, "forbidden");
    narrow.post("/v1/tasks", &later("fax", "us")).await.problem_code(403, "forbidden");
    let outside = id_of(&all.post("/v1/tasks", &later("fax", "us")).await.expect(201));
    all.post("/v1/tasks", &later("mail.send", "asia")).await.expect(201);

    let batch = json!({"tasks": [later("mail.send", "us"), later("fax", "us")]});
    let items = array(&narrow.post("/v1/tasks/batch", &batch).await.expect(200)["items"]);
    assert_eq!((&items[0]["status"], &items[1]["error"]["code"]), (&json!(201), &json!("forbidden")));
    let third = id_of(&items[0]["task"]);

    for path in ["", "/runs", "/events", "/explain"] {
        narrow.get(&format!("/v1/tasks/{inside}{path}")).await.expect(200);
        narrow.get(&format!("/v1/tasks/{outside}{path}")).await.problem_code(404, "not_found");
    }
    narrow.get(&format!("/v1/tasks/{outside}?wait_seconds=1")).await.problem_code(404, "not_found");
    for call in [("PATCH", ""), ("DELETE", ""), ("POST", "/run")] {
        let call = narrow.call(call.0, &format!("/v1/tasks/{outside}{}", call.1));
        call.json(&json!({})).send().await.problem_code(404, "not_found");
    }
    let moved = json!({"queue": "asia"});
    narrow.patch(&format!("/v1/tasks/{inside}"), &moved).await.problem_code(403, "forbidden");
    narrow.patch(&format!("/v1/tasks/{inside}"), &json!({"queue": "eu.2"})).await.expect(200);

    let mut mine = vec![inside.clone(), second.clone(), third];
    mine.reverse();
    assert_eq!(tasks(&narrow.get("/v1/tasks").await.expect(200)), mine);
    assert_eq!(tasks(&narrow.get("/v1/tasks?queue=us&type=mail.read").await.expect(200)), mine[1..2]);
    assert!(tasks(&narrow.get("/v1/tasks?queue=asia").await.expect(200)).is_empty());
    let upcoming = narrow.get("/v1/upcoming").await.expect(200);
    assert_eq!(array(&upcoming["items"]).len(), 3, "{upcoming:#}");
    narrow.get("/v1/forecast").await.problem_code(403, "forbidden");
    let queues = narrow.get("/v1/queues").await.expect(200);
    let names: Vec<Value> = array(&queues["items"]).iter().map(|queue| queue["name"].clone()).collect();
    assert_eq!(names, [json!("eu.1"), json!("eu.2"), json!("us")]);
    narrow.get("/v1/queues/asia").await.problem_code(403, "forbidden");

    // What the key does not reach does not exist for its tasks either.
    let child = merged(later("mail.send", "us"), json!({"depends_on": [outside]}));
    narrow.post("/v1/tasks", &child).await.problem_code(422, "unknown_dependency");
    let child = merged(later("mail.send", "us"), json!({"depends_on": [inside]}));
    narrow.post("/v1/tasks", &child).await.expect(201);
}

#[tokio::test]
async fn a_bulk_change_stays_within_reach() {
    let world = Guarded::start().await;
    let all = world.role("submitter").await;
    let narrow = world.caller("default", json!({"role": "submitter", "queues": ["eu.*", "us"]})).await;
    for queue in ["eu.1", "eu.2", "us", "asia"] {
        all.post("/v1/tasks", &json!({"type": "t", "queue": queue, "delay_seconds": 600})).await.expect(201);
    }
    let cancel = |filter: Value, dry_run: bool| json!({"filter": filter, "dry_run": dry_run});
    for filter in [json!({}), json!({"type": "t"}), json!({"queue": "asia"}), json!({"queue": "*"})] {
        let answer = narrow.post("/v1/tasks/cancel", &cancel(filter.clone(), true)).await;
        assert!([403, 422].contains(&answer.status()), "{filter}: {answer}");
    }
    let found = narrow.post("/v1/tasks/cancel", &cancel(json!({"queue": "eu.*"}), true)).await.expect(200);
    assert_eq!(found["matched"], 2);
    // A single pattern narrows the filter by itself.
    let one = world.caller("default", json!({"role": "submitter", "queues": ["eu.*"]})).await;
    let found = one.post("/v1/tasks/cancel", &cancel(json!({"type": "t"}), true)).await.expect(200);
    assert_eq!(found["matched"], 2);
    let operation = one.post("/v1/tasks/cancel", &cancel(json!({"type": "t"}), false)).await.expect(202);
    let path = format!("/v1/operations/{}", operation["operation_id"].as_str().unwrap());
    narrow.get(&path).await.expect(200);
    let other = world.caller("default", json!({"role": "submitter", "queues": ["us"]})).await;
    other.get(&path).await.problem_code(404, "not_found");
    other.delete(&path).await.problem_code(404, "not_found");
    assert_eq!(array(&other.get("/v1/operations").await.expect(200)["items"]).len(), 0);
}

#[tokio::test]
async fn a_worker_leases_what_it_reaches() {
    let world = Guarded::start().await;
    let all = world.role("submitter").await;
    let by_queue = world.caller("default", json!({"role": "worker", "queues": ["eu.*"]})).await;
    let by_type = world.caller("default", json!({"role": "worker", "types": ["mail"]})).await;
    let poll = |member: &str, name: &str| json!({"worker_id": "w", member: [name], "wait_seconds": 10});
    for (worker, member, name) in [
        (&by_queue, "queues", "us"),
        (&by_queue, "types", "mail"),
        (&by_type, "types", "fax"),
        (&by_type, "queues", "eu.1"),
    ] {
        worker.post("/v1/leases", &poll(member, name)).await.problem_code(403, "forbidden");
    }
    for (kind, queue) in [("mail", "eu.1"), ("fax", "eu.1")] {
        all.post("/v1/tasks", &json!({"type": kind, "queue": queue, "payload": {"n": 1}})).await.expect(201);
    }
    let lease = array(&by_type.post("/v1/leases", &poll("types", "mail")).await.expect(200)["leases"]).remove(0);
    assert_eq!(lease["task"]["payload"], json!({"n": 1}));
    let (id, token) = (id_of(&lease["task"]), lease["token"].clone());

    // Not even the right token lets a worker settle what it does not reach.
    let outsider = world.caller("default", json!({"role": "worker", "queues": ["us"]})).await;
    let beat = json!({ "token": token });
    for verb in ["complete", "fail", "heartbeat", "release"] {
        outsider.post(&format!("/v1/tasks/{id}/{verb}"), &beat).await.problem_code(404, "not_found");
    }
    let settle = json!({"items": [{"task_id": id, "token": token, "outcome": "completed"}]});
    let items = outsider.post("/v1/leases/settle", &settle).await.expect(200);
    assert_eq!(items["items"][0]["status"], 404, "{items:#}");
    by_queue.post(&format!("/v1/tasks/{id}/heartbeat"), &beat).await.expect(200);
    let items = by_type.post("/v1/leases/settle", &settle).await.expect(200);
    assert_eq!(items["items"][0]["status"], 200, "{items:#}");
}

#[tokio::test]
async fn payloads_are_a_right_of_their_own() {
    let world = Guarded::start().await;
    let secret = "canary-17";
    let (submitter, worker) = (world.role("submitter").await, world.role("worker").await);
    let task = json!({"type": "t", "queue": "q", "payload": {"s": secret}});
    let id = id_of(&submitter.post("/v1/tasks", &task).await.expect(201));
    let poll = json!({"worker_id": "w", "queues": ["q"], "wait_seconds": 10});
    let lease = array(&worker.post("/v1/leases", &poll).await.expect(200)["leases"]).remove(0);
    let done = json!({"token": lease["token"], "result": {"s": secret}});
    worker.post(&format!("/v1/tasks/{id}/complete"), &done).await.expect(200);
    let operator = world.role("operator").await;
    let schedule = json!({"name": "s", "cron": "0 3 * * *", "task": {"type": "t", "payload": {"s": secret}}});
    operator.post("/v1/schedules", &schedule).await.expect(201);
    let settings = json!({"callback_url": "https://a.example/", "callback_headers": {"x-a": secret}});
    operator.call("PUT", "/v1/queues/hooks").json(&settings).send().await.expect(200);

    let blind = world.caller("default", json!({"role": "operator", "payloads": false})).await;
    let task_path = format!("/v1/tasks/{id}");
    for path in [
        task_path.as_str(),
        "/v1/tasks",
        "/v1/tasks?view=full",
        "/v1/schedules",
        "/v1/schedules/by-name/s",
        "/v1/queues",
        "/v1/queues/hooks",
    ] {
        assert!(operator.get(path).await.text().contains(secret), "{path} shows it to others");
        let shown = blind.get(path).await;
        shown.expect(200);
        assert!(!shown.text().contains(secret), "{path}: {shown}");
    }
    let task = blind.get(&task_path).await.expect(200);
    assert!(task.get("payload").is_none() && task.get("result").is_none(), "{task:#}");
    assert_eq!((&task["task_id"], &task["status"]), (&json!(id), &json!("COMPLETED")));

    let blind = world.caller("default", json!({"role": "submitter", "payloads": false})).await;
    let task = json!({"type": "t", "delay_seconds": 600, "payload": {"s": secret}});
    let batch = json!({"tasks": [task]});
    for (path, body) in [("/v1/tasks", &task), ("/v1/tasks/batch", &batch)] {
        let answer = blind.post(path, body).await;
        assert!([200, 201].contains(&answer.status()) && !answer.text().contains(secret), "{answer}");
    }
    let key = json!({"name": "w", "role": "worker", "payloads": false});
    world.admin.post("/v1/admin/tenants/default/keys", &key).await.invalid("/payloads");
}

#[tokio::test]
async fn a_schedule_is_reached_by_its_task() {
    let world = Guarded::start().await;
    let all = world.role("operator").await;
    let narrow = world.caller("default", json!({"role": "operator", "queues": ["eu"]})).await;
    let schedule =
        |name: &str, queue: &str| json!({"name": name, "cron": "0 3 * * *", "task": {"type": "t", "queue": queue}});
    narrow.post("/v1/schedules", &schedule("in", "eu")).await.expect(201);
    narrow.post("/v1/schedules", &schedule("no", "us")).await.problem_code(403, "forbidden");
    all.post("/v1/schedules", &schedule("out", "us")).await.expect(201);
    let listed = narrow.get("/v1/schedules").await.expect(200);
    assert_eq!(array(&listed["items"]).len(), 1, "{listed:#}");
    for verb in ["", "/preview", "/occurrences"] {
        narrow.get(&format!("/v1/schedules/by-name/in{verb}")).await.expect(200);
        narrow.get(&format!("/v1/schedules/by-name/out{verb}")).await.problem_code(404, "not_found");
    }
    for verb in ["pause", "resume", "trigger"] {
        let path = format!("/v1/schedules/by-name/out/{verb}");
        narrow.post(&path, &json!({})).await.problem_code(404, "not_found");
    }
    let put = |name: &str, queue: &str| {
        narrow.call("PUT", &format!("/v1/schedules/by-name/{name}")).json(&schedule(name, queue)).send()
    };
    put("out", "eu").await.problem_code(409, "name_taken");
    put("in", "us").await.problem_code(403, "forbidden");
    let patch = json!({"task": {"queue": "us"}});
    narrow.patch("/v1/schedules/by-name/in", &patch).await.problem_code(403, "forbidden");
    put("in", "eu").await.expect(200);
}
