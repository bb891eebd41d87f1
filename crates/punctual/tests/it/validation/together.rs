//! All faults of a request in one answer: shapes and values, the body and the query, with what was
//! sent and what was probably meant.

use punctual_testkit::http::Reply;
use serde_json::{Value, json};

use crate::it::world::{Caller, array, id_of, merged, shared, worker_id};

/// Place and message of every fault.
fn listed(problem: &Value) -> Vec<(String, String)> {
    let text = |fault: &Value, member: &str| fault[member].as_str().expect("a text").to_owned();
    array(&problem["errors"]).iter().map(|fault| (text(fault, "pointer"), text(fault, "message"))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(pointer, message)| ((*pointer).to_owned(), (*message).to_owned())).collect()
}

/// The message of the only fault, which is at `pointer`.
fn message(reply: &Reply, pointer: &str) -> String {
    let problem = reply.invalid(pointer);
    let [(_, message)] = &listed(&problem)[..] else { panic!("not one fault\n{reply}") };
    message.clone()
}

async fn put(caller: &Caller, path: &str, body: &Value) -> Reply {
    caller.api.call("PUT", path).json(body).send().await
}

#[tokio::test]
async fn types_and_values_are_refused_in_one_answer() {
    let caller = shared().await;
    let task = json!({
        "queue": "no blanks", "payload": {"kept": true}, "callback_url": 5, "callback_headers": {"x-a": "1"},
        "execute_at": "tomorrow", "priority": 12, "timeout_seconds": true, "metadata": {"a": 1, "": "x"},
        "depends_on": ["task_x", 1.5], "retry_policy": {"max_retries": -1, "backoff": "fixd", "delay": 1},
        "retires": 3,
    });
    let problem = caller.api.post("/v1/tasks?replace_final=maybe", &task).await.problem(422);
    let expected = pairs(&[
        ("/callback_url", "must be a string"),
        ("/depends_on/1", "must be a string, or a whole number that is at least 0"),
        ("/metadata/a", "must be a string"),
        ("/priority", "must be a whole number from 0 to 9, or one of low, normal, high"),
        ("/retry_policy/backoff", "must be one of fixed, linear, exponential; did you mean `fixed`?"),
        ("/retry_policy/max_retries", "must be a whole number from 0 to 1000"),
        ("/timeout_seconds", "must be a number"),
        ("/type", "is required"),
        ("/retry_policy/delay", "is not a known field"),
        ("/retires", "is not a known field"),
        ("?replace_final", "must be true or false"),
        ("/depends_on/0", "must be the id of a task"),
        ("/queue", "must be 1 to 255 of A-Z a-z 0-9 . _ : / -"),
        ("/execute_at", "must be an RFC 3339 time with seconds and an offset, such as 2026-05-22T18:00:00Z"),
        ("/metadata/", "must have a key of 1 to 64 characters"),
    ]);
    let sorted = |mut faults: Vec<(String, String)>| {
        faults.sort();
        faults
    };
    assert_eq!(sorted(listed(&problem)), sorted(expected), "{problem:#}");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.starts_with("15 things are wrong with the request. callback_url: must be a string; "), "{detail}");
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn a_near_word_is_proposed() {
    let caller = shared().await;
    let schedule = |fields| merged(json!({"name": "s", "cron": "0 3 * * *", "task": {"type": "t"}}), fields);
    for (path, body, pointer, meant) in [
        ("/v1/tasks", json!({"type": "t", "Priority": 1}), "/Priority", "priority"),
        ("/v1/tasks", json!({"type": "t", "executeAt": "x"}), "/executeAt", "execute_at"),
        ("/v1/tasks", json!({"type": "t", "priority": "hgih"}), "/priority", "high"),
        ("/v1/tasks", json!({"type": "t", "priority": "lw"}), "/priority", "low"),
        ("/v1/tasks", json!({"type": "t", "on_dependency_failure": "rn"}), "/on_dependency_failure", "run"),
        ("/v1/tasks", json!({"type": "t", "retry_policy": {"retry_on": ["5XX"]}}), "/retry_policy/retry_on/0", "5xx"),
        ("/v1/schedules", schedule(json!({"overlap_policy": "buffer-one"})), "/overlap_policy", "buffer_one"),
        ("/v1/schedules", schedule(json!({"timezone": "Europe/Berln"})), "/timezone", "Europe/Berlin"),
        ("/v1/schedules", schedule(json!({"timezone": "CET+1"})), "/timezone", "CET"),
        ("/v1/schedules", schedule(json!({"task": {"type": "t", "queu": "q"}})), "/task/queu", "queue"),
        ("/v1/tasks/cancel", json!({"filter": {"status": ["PENDIGN"]}}), "/filter/status/0", "PENDING"),
        ("/v1/tasks/cancel", json!({"filter": {"typ": "t"}, "dry_run": true}), "/filter/typ", "type"),
        ("/v1/leases", json!({"worker_id": "w", "queues": ["q"], "max_task": 1}), "/max_task", "max_tasks"),
    ] {
        let reply = caller.api.post(path, &body).await;
        let message = message(&reply, pointer);
        assert!(message.ends_with(&format!("; did you mean `{meant}`?")), "{message}");
    }
    for (query, pointer, meant) in [
        ("stauts=PENDING", "?stauts", "status"),
        ("status=pending", "?status", "PENDING"),
        ("order=execute-at", "?order", "execute_at"),
        ("view=sumary", "?view", "summary"),
        ("priority_min=hihg", "?priority_min", "high"),
        ("created_afer=x", "?created_afer", "created_after"),
    ] {
        let reply = caller.api.get(&format!("/v1/tasks?{query}")).await;
        let message = message(&reply, pointer);
        assert!(message.ends_with(&format!("; did you mean `{meant}`?")), "{message}");
    }
    let far = caller.api.post("/v1/tasks", &json!({"type": "t", "colour": 1})).await;
    assert_eq!(message(&far, "/colour"), "is not a known field");
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn a_fault_shows_what_was_sent() {
    let caller = shared().await;
    let long = "x".repeat(300);
    let task = json!({
        "type": "no blanks", "queue": [1, {"password": "hidden"}], "ordering_key": long, "metadata": {"a": 5},
        "callback_headers": {"authorization": 7}, "api_token": "hidden", "unknown": {"payload": "hidden"},
        "callback_url": "https://u:hidden@a.example/", "payload": "x".repeat(300_000),
    });
    let reply = caller.api.post("/v1/tasks", &task).await;
    assert!(!reply.text().contains("hidden"), "{reply}");
    let errors = array(&reply.problem(413)["errors"]);
    let fault = |pointer: &str| {
        let found = errors.iter().find(|fault| fault["pointer"] == pointer);
        found.unwrap_or_else(|| panic!("no fault at {pointer}\n{reply}"))
    };
    for (pointer, value) in [
        ("/type", json!("no blanks")),
        ("/queue", json!([1, {"password": "…"}])),
        ("/ordering_key", json!(format!("{}…", "x".repeat(100)))),
        ("/metadata/a", json!(5)),
        ("/unknown", json!({"payload": "…"})),
    ] {
        assert_eq!(fault(pointer)["value"], value, "{pointer}");
    }
    for pointer in ["/callback_headers/authorization", "/api_token", "/callback_url", "/payload"] {
        assert_eq!(fault(pointer).get("value"), None, "{pointer}");
    }
    let missing = caller.api.post("/v1/tasks", &json!({})).await.invalid("/type");
    assert_eq!(missing["errors"][0].get("value"), None);
    let parameter = caller.api.get("/v1/tasks?limit=many").await.invalid("?limit");
    assert_eq!(parameter["errors"][0]["value"], "many");
}

#[tokio::test]
async fn a_fault_shows_numbers_and_words_as_they_were_sent() {
    let caller = shared().await;
    for (member, sent) in [
        ("delay_seconds", "-1"),
        ("timeout_seconds", "12345678901234567890"),
        ("timeout_seconds", "0.0"),
        ("callback_body", "\"envelop\""),
    ] {
        let task = format!(r#"{{"type": "t", "{member}": {sent}}}"#);
        let reply = caller.api.call("POST", "/v1/tasks").body("application/json", task).send().await;
        reply.invalid(&format!("/{member}"));
        assert!(reply.text().contains(&format!("\"value\":{sent}}}")), "{reply}");
    }
}

#[tokio::test]
async fn every_bad_field_of_a_cron_expression_is_named() {
    let caller = shared().await;
    let schedule = json!({"name": "s", "cron": "61 25 32 13 8", "task": {"type": "t"}});
    let message = message(&caller.api.post("/v1/schedules", &schedule).await, "/cron");
    for field in ["minute", "hour", "day-of-month", "month", "day-of-week"] {
        assert!(message.contains(&format!("in the {field} field")), "{message}");
    }
}

#[tokio::test]
async fn a_call_without_members_refuses_all() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    for verb in ["run", "purge"] {
        let path = format!("/v1/tasks/{id}/{verb}");
        let call = |body: &'static str| caller.api.call("POST", &path).body("application/json", body).send();
        call("{").await.problem_code(400, "invalid_json");
        call(r#"{"dry_run": true}"#).await.invalid("/dry_run");
        assert_eq!(caller.task(&id).await["status"], "PENDING");
    }
    let path = format!("/v1/tasks/{id}/run");
    for body in ["{}", ""] {
        caller.api.call("POST", &path).body("application/json", body).send().await.expect(200);
    }
}

#[tokio::test]
async fn a_zone_before_a_cron_expression_is_refused() {
    let caller = shared().await;
    for cron in ["CRON_TZ=Europe/Berlin 0 3 * * *", "TZ=UTC 0 3 * * *", "cron_tz=x @daily"] {
        let schedule = json!({"name": "s", "cron": cron, "task": {"type": "t"}});
        let message = message(&caller.api.post("/v1/schedules", &schedule).await, "/cron");
        assert!(message.ends_with("give the time zone in the field `timezone` instead"), "{message}");
    }
}

#[tokio::test]
async fn an_empty_body_is_called_empty() {
    let caller = shared().await;
    for path in ["/v1/tasks", "/v1/tasks/batch", "/v1/schedules", "/v1/leases", "/v1/leases/settle"] {
        for body in ["", " \r\n"] {
            let reply = caller.api.call("POST", path).body("application/json", body).send().await;
            let problem = reply.problem_code(400, "invalid_json");
            assert_eq!(problem["detail"], "the body is empty; send a JSON object", "{path}");
        }
    }
    // As `curl -X POST` sends it: without a content type, which a batch has to name.
    for path in ["/v1/tasks", "/v1/schedules", "/v1/leases"] {
        let problem = caller.api.call("POST", path).send().await.problem_code(400, "invalid_json");
        assert_eq!(problem["detail"], "the body is empty; send a JSON object", "{path}");
    }
}

#[tokio::test]
async fn whole_numbers_may_have_a_point() {
    let caller = shared().await;
    let task =
        r#"{"type": "t", "queue": "points", "priority": 7.0, "retry_policy": {"max_retries": 3.0}, "payload": 5.0}"#;
    let task = caller.api.call("POST", "/v1/tasks").body("application/json", task).send().await.expect(201);
    assert_eq!((&task["priority"], &task["retry_policy"]["max_retries"]), (&json!(7), &json!(3)));
    assert!(caller.api.get(&format!("/v1/tasks/{}", id_of(&task))).await.text().contains(r#""payload":5.0"#));
    let queue = json!({"max_concurrency": 5.0, "max_depth": 10.0, "rate_limit": {"per_second": 9, "burst": 2.0}});
    let queue = put(&caller, "/v1/queues/points", &queue).await.expect(200);
    assert_eq!((&queue["max_concurrency"], &queue["rate_limit"]["burst"]), (&json!(5), &json!(2)));
    let request = json!({"worker_id": worker_id(), "queues": ["points"], "max_tasks": 1.0});
    let leases = caller.api.post("/v1/leases", &request).await.expect(200);
    let token = leases["leases"][0]["token"].as_f64().expect("a lease");
    let item = json!({"task_id": id_of(&task), "token": token, "outcome": "heartbeat"});
    assert!(item.to_string().contains(".0"), "a number with a point: {item}");
    let settled = caller.api.post("/v1/leases/settle", &json!({"items": [item]})).await.expect(200);
    assert_eq!(settled["items"][0]["status"], 200, "{settled}");
    caller.api.post(&format!("/v1/tasks/{}/complete", id_of(&task)), &json!({"token": token})).await.expect(200);
    caller.api.get("/v1/tasks?limit=5.0").await.expect(200);
    let half = put(&caller, "/v1/queues/points", &json!({"max_concurrency": 5.5})).await;
    assert_eq!(message(&half, "/max_concurrency"), "must be a whole number from 1 to 1000000");
}

#[tokio::test]
async fn tasks_of_a_batch_are_refused_in_the_same_words() {
    let caller = shared().await;
    let tasks =
        [r#"{"type": "t", "queue": 5, "priority": 12, "typ": 1}"#, r#"{"type": "t", "delay_seconds": 600}"#, "7"];
    let json = format!(r#"{{"tasks": [{}]}}"#, tasks.join(","));
    for (media, body) in [("application/json", json), ("application/x-ndjson", tasks.join("\n"))] {
        let answer = caller.api.call("POST", "/v1/tasks/batch").body(media, body).send().await.expect(200);
        let statuses: Vec<Value> = array(&answer["items"]).iter().map(|item| item["status"].clone()).collect();
        assert_eq!(statuses, [422, 201, 422], "{answer:#}");
        let expected = pairs(&[
            ("/tasks/0/priority", "must be a whole number from 0 to 9, or one of low, normal, high"),
            ("/tasks/0/queue", "must be a string"),
            ("/tasks/0/typ", "is not a known field; did you mean `type`?"),
        ]);
        let first = &answer["items"][0]["error"];
        assert_eq!(listed(first), expected, "{first:#}");
        assert_eq!(first["errors"][0]["value"], 12);
        assert_eq!(listed(&answer["items"][2]["error"]), pairs(&[("/tasks/2", "must be an object")]));
    }
    let wide = (0..50).map(|n| format!(r#""{n}": 1,"#)).collect::<Vec<_>>().concat();
    let many = format!(r#"{{"tasks": [{{{wide} "type": 1, "queue": 2, "metadata": 3}}]}}"#);
    let answer = caller.api.call("POST", "/v1/tasks/batch").body("application/json", many).send().await.expect(200);
    let error = &answer["items"][0]["error"];
    assert_eq!(array(&error["errors"]).len(), 20);
    let detail = error["detail"].as_str().expect("a detail");
    assert!(detail.starts_with("53 things") && detail.ends_with("; errors lists the first 20"), "{detail}");
}

#[tokio::test]
async fn a_request_with_a_fault_changes_nothing() {
    let caller = shared().await;
    let task = caller.submit(json!({"type": "t", "delay_seconds": 600})).await;
    let path = format!("/v1/tasks/{}", id_of(&task));
    let patch = json!({"priority": 9, "queue": 5, "timeout_seconds": 0});
    let problem = caller.api.patch(&path, &patch).await.problem(422);
    let pointers: Vec<String> = listed(&problem).into_iter().map(|(pointer, _)| pointer).collect();
    assert_eq!(pointers, ["/queue", "/timeout_seconds"]);
    assert_eq!(caller.task(&id_of(&task)).await, task);
    let good = json!({"name": "s", "cron": "0 3 * * *", "task": {"type": "t", "queue": "a"}});
    let made = put(&caller, "/v1/schedules/by-name/s", &good).await.expect(201);
    let patch = json!({"cron": "0 4 * * *", "max_runs": "x", "task": {"queue": 5, "priority": 12}, "timezone": "y"});
    let path = format!("/v1/schedules/{}", made["schedule_id"].as_str().expect("an id"));
    let problem = caller.api.patch(&path, &patch).await.problem(422);
    let mut pointers: Vec<String> = listed(&problem).into_iter().map(|(pointer, _)| pointer).collect();
    pointers.sort();
    assert_eq!(pointers, ["/max_runs", "/task/priority", "/task/queue", "/timezone"]);
    let bad = merged(good, json!({"name": "other", "overlap_policy": 1}));
    put(&caller, "/v1/schedules/by-name/s", &bad).await.invalid("/overlap_policy");
    assert_eq!(caller.api.get(&path).await.expect(200), made);
    put(&caller, "/v1/queues/q", &json!({"max_concurrency": 5, "max_depth": "x", "paused": true})).await.problem(422);
    caller.api.get("/v1/queues/q").await.problem(404);
}
