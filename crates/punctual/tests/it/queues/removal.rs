//! Removing a queue, `If-Match`, and queues that are written back as read.

use serde_json::{Value, json};

use super::{get, pause, put};
use crate::it::world::{Caller, merged, shared};

async fn names(caller: &Caller) -> Vec<String> {
    let listed = caller.list("/v1/queues").await;
    listed.iter().map(|queue| queue["name"].as_str().expect("a name").to_owned()).collect()
}

async fn delete(caller: &Caller, queue: &str) -> punctual_testkit::http::Reply {
    caller.api.delete(&format!("/v1/queues/{queue}")).await
}

#[tokio::test]
async fn a_queue_can_be_removed_when_it_is_empty() {
    let caller = shared().await;
    put(&caller, "mali", json!({"max_concurrency": 1})).await;
    pause(&caller, "mail", json!({})).await;
    assert_eq!(delete(&caller, "mali").await.expect(200)["max_concurrency"], 1);
    assert_eq!(names(&caller).await, ["mail"]);
    caller.api.get("/v1/queues/mali").await.problem_code(404, "not_found");
    delete(&caller, "mali").await.problem_code(404, "not_found");
    delete(&caller.stranger(), "mail").await.problem_code(404, "not_found");

    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(caller.submit_id(json!({"type": "t", "queue": "mail"})).await);
    }
    let problem = delete(&caller, "mail").await.problem_code(409, "queue_not_empty");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("3 live tasks (3 waiting")), "{problem:#}");
    assert_eq!(get(&caller, "mail").await["paused"], true, "nothing was done");
    for (left, id) in (0..ids.len()).rev().zip(&ids) {
        caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(200);
        if left == 1 {
            let problem = delete(&caller, "mail").await.problem_code(409, "queue_not_empty");
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert!(detail.contains("1 live task (1 waiting") && detail.ends_with("let it end first"), "{detail}");
        }
    }
    delete(&caller, "mail").await.expect(200);
    assert_eq!(names(&caller).await, Vec::<String>::new(), "cancelled tasks do not keep it");

    let task = caller.submit(json!({"type": "t", "queue": "mail"})).await;
    assert_eq!(task["status"], "PENDING");
    let again = get(&caller, "mail").await;
    assert_eq!((&again["paused"], &again["counts"]["PENDING"]), (&json!(false), &json!(1)));
    caller.lease_one("mail").await;
}

#[tokio::test]
async fn changes_of_a_queue_honour_if_match() {
    let caller = shared().await;
    let made = put(&caller, "q", json!({"max_depth": 5})).await;
    let reply = caller.api.get("/v1/queues/q").await;
    assert_eq!((reply.header("etag"), &made["version"]), (Some("\"1\""), &json!(1)));
    let call = async |method: &str, verb: &str, tag: &str| {
        let call = caller.api.call(method, &format!("/v1/queues/q{verb}")).header("if-match", tag);
        if method == "DELETE" { call.send().await } else { call.json(&json!({})).send().await }
    };
    for (method, verb) in [("PUT", ""), ("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")] {
        call(method, verb, "\"9\"").await.problem_code(412, "version_mismatch");
    }
    assert_eq!(get(&caller, "q").await, made, "nothing was done");
    for (version, method, verb) in [(1, "POST", "/pause"), (2, "POST", "/resume"), (3, "PUT", ""), (4, "DELETE", "")] {
        call(method, verb, &format!("\"{version}\"")).await.expect(200);
    }
    caller.api.get("/v1/queues/q").await.problem_code(404, "not_found");
    call("PUT", "", "x").await.problem_code(400, "invalid_header");
}

#[tokio::test]
async fn a_queue_can_be_written_back_as_read() {
    let caller = shared().await;
    let all = json!({
        "max_concurrency": 3, "max_per_key": 2, "rate_limit": {"per_second": 2.5, "burst": 4}, "max_depth": 9, "timeout_seconds": 1.5,
        "retry_policy": {"max_retries": 1}, "dispatch_jitter_seconds": 1, "on_dead_letter": "hold",
    });
    put(&caller, "q", all).await;
    let first = pause(&caller, "q", json!({"reason": "one"})).await;
    let again = pause(&caller, "q", json!({"reason": "two", "until": "2101-01-01T00:00:00Z"})).await;
    assert_eq!((&again["pause"]["reason"], &again["version"]), (&json!("two"), &json!(3)));
    assert_eq!(again["pause"]["until"], "2101-01-01T00:00:00.000Z");
    assert_eq!(first["pause"]["reason"], "one");
    let read = get(&caller, "q").await;
    let back = put(&caller, "q", read.clone()).await;
    assert_eq!(back, read, "and changes nothing");
    let resumed = put(&caller, "q", merged(read.clone(), json!({"paused": false}))).await;
    assert_eq!((&resumed["paused"], &resumed["max_depth"]), (&json!(false), &json!(9)));
    let refused = async |body: Value| caller.api.call("PUT", "/v1/queues/q").json(&body).send().await;
    refused(merged(read.clone(), json!({"name": "other"}))).await.invalid("/name");
    refused(merged(read, json!({"max_dept": 1}))).await.invalid("/max_dept");
}
