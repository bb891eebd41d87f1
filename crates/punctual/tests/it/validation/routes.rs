//! Paths and methods that do not exist.

use punctual_testkit::http::raw;
use serde_json::{Value, json};

use crate::it::world::{shared, unknown_task};

#[tokio::test]
async fn unknown_paths_are_not_found() {
    let caller = shared().await;
    for path in [
        "/v1/nothing",
        "/v2/tasks",
        "/v1/task",
        "/v1/tasks/batch/more",
        "/v1/leases/settle/now",
        "/index.php",
        "/v1/tasks/..%2f..%2fetc%2fpasswd",
    ] {
        caller.api.get(path).await.problem_any(&[400, 404, 405]);
        caller.api.post(path, &json!({})).await.problem_any(&[400, 404, 405]);
    }
    for path in ["/v2/tasks", "/v1/task", "/nothing/here"] {
        caller.api.get(path).await.problem(404);
    }
}

#[tokio::test]
async fn malformed_ids_are_not_found() {
    let caller = shared().await;
    let upper = unknown_task().to_uppercase().replace("TASK_", "task_");
    for id in [
        "1",
        "task_",
        "task_1",
        "run_0198c0de-0000-7000-8000-000000000000",
        "%00",
        "a%00b",
        "%ff",
        "..%2f",
        "'--",
        &upper,
        &"x".repeat(3000),
    ] {
        for tail in ["", "/runs", "/events", "/explain"] {
            caller.api.get(&format!("/v1/tasks/{id}{tail}")).await.problem_any(&[400, 404, 414, 422]);
        }
        caller.api.delete(&format!("/v1/tasks/{id}")).await.problem_any(&[400, 404, 414, 422]);
        caller
            .api
            .post(&format!("/v1/tasks/{id}/complete"), &json!({"token": 1}))
            .await
            .problem_any(&[400, 404, 414, 422]);
    }
}

#[tokio::test]
async fn other_methods_are_not_allowed_and_the_right_ones_named() {
    let caller = shared().await;
    for (method, path) in [
        ("PUT", "/v1/tasks".to_owned()),
        ("DELETE", "/v1/tasks".to_owned()),
        ("PATCH", "/v1/tasks".to_owned()),
        ("PUT", "/v1/tasks/batch".to_owned()),
        ("DELETE", "/v1/leases".to_owned()),
        ("GET", "/v1/leases/settle".to_owned()),
        ("PUT", format!("/v1/tasks/{}", unknown_task())),
        ("GET", format!("/v1/tasks/{}/complete", unknown_task())),
        ("POST", format!("/v1/tasks/{}/events", unknown_task())),
        ("POST", "/healthz".to_owned()),
        ("DELETE", "/metrics".to_owned()),
        ("FROB", "/v1/tasks".to_owned()),
        ("TRACE", "/v1/tasks".to_owned()),
    ] {
        let answer = caller.api.call(method, &path).send().await;
        answer.problem(405);
        assert!(
            answer.header("allow").is_some_and(|allowed| !allowed.is_empty()),
            "RFC 9110 wants Allow with 405\n{answer}"
        );
    }
}

#[tokio::test]
async fn a_trace_is_never_echoed() {
    let caller = shared().await;
    let request = "TRACE /v1/tasks HTTP/1.1\r\nhost: localhost\r\nx-secret: canary-4711\r\n\r\n";
    let answer = raw(&caller.address(), request).await.expect("an answer");
    assert_eq!(answer.status, 405);
    assert!(!String::from_utf8_lossy(&answer.body).contains("canary-4711"));
}

#[tokio::test]
async fn problems_reveal_no_internals() {
    let caller = shared().await;
    for answer in [
        caller.api.post("/v1/tasks", &json!({"type": "t", "priority": {"a": 1}})).await,
        caller.api.get("/v1/tasks?limit=x").await,
        caller.api.get("/v1/tasks?cursor=x").await,
        caller.api.get(&format!("/v1/tasks/{}", unknown_task())).await,
        caller.api.call("POST", "/v1/tasks").body("application/json", "{").send().await,
    ] {
        let problem: Value = answer.problem_any(&[400, 404, 422]);
        let text = problem.to_string().to_lowercase();
        for inside in ["sqlite", "rusqlite", "select ", "panicked", ".rs:", "unwrap", "serde", "backtrace"] {
            assert!(!text.contains(inside), "{inside:?} in a problem\n{answer}");
        }
    }
}
