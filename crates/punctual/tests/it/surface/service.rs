//! Health, request ids, methods, `/v1/workers`.

use std::collections::BTreeSet;

use punctual_testkit::eventually::eventually;
use serde_json::json;

use crate::it::world::{SOON, array, id_of, shared, unknown_task, worker_id};

#[tokio::test]
async fn the_server_is_alive_and_ready() {
    let caller = shared().await;
    for path in ["/healthz", "/readyz"] {
        let answer = caller.api.get(path).await;
        assert_eq!(answer.status(), 200, "{answer}");
    }
}

#[tokio::test]
async fn every_answer_has_a_request_id_of_its_own() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    let mut seen = BTreeSet::new();
    for (method, path, body) in [
        ("GET", "/healthz".to_owned(), None),
        ("GET", "/readyz".to_owned(), None),
        ("GET", "/metrics".to_owned(), None),
        ("GET", "/openapi.json".to_owned(), None),
        ("GET", "/v1/tasks".to_owned(), None),
        ("GET", format!("/v1/tasks/{id}"), None),
        ("GET", format!("/v1/tasks/{}", unknown_task()), None),
        ("GET", "/nothing/here".to_owned(), None),
        ("PUT", "/v1/tasks".to_owned(), None),
        ("POST", "/v1/tasks".to_owned(), Some(r#"{"type":"t","delay_seconds":600}"#)),
        ("POST", "/v1/tasks".to_owned(), Some(r#"{"type":""}"#)),
        ("POST", "/v1/tasks".to_owned(), Some("{")),
        ("POST", "/v1/tasks/batch".to_owned(), Some(r#"{"tasks":[]}"#)),
        ("POST", "/v1/leases".to_owned(), Some(r#"{"worker_id":"w","queues":["q"],"max_tasks":1,"wait_seconds":0}"#)),
        ("DELETE", format!("/v1/tasks/{id}"), None),
    ] {
        let mut call = caller.api.call(method, &path);
        if let Some(body) = body {
            call = call.body("application/json", body);
        }
        let answer = call.send().await;
        let request_id = answer.header("request-id").unwrap_or_default().to_owned();
        assert!(!request_id.is_empty(), "no request-id\n{answer}");
        assert!(seen.insert(request_id), "a request-id was given twice\n{answer}");
    }
}

#[tokio::test]
async fn head_is_get_without_a_body() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    for path in ["/healthz".to_owned(), "/v1/tasks".to_owned(), format!("/v1/tasks/{id}"), "/openapi.json".to_owned()] {
        let answer = caller.api.call("HEAD", &path).send().await;
        assert_eq!(answer.status(), 200, "{answer}");
        assert!(answer.body().is_empty(), "HEAD has no body\n{answer}");
        assert!(answer.header("request-id").is_some(), "{answer}");
    }
    let answer = caller.api.call("HEAD", &format!("/v1/tasks/{}", unknown_task())).send().await;
    assert_eq!(answer.status(), 404, "{answer}");
}

#[tokio::test]
async fn a_worker_that_polled_is_listed() {
    let caller = shared().await;
    let worker = worker_id();
    let wanted = json!({"worker_id": worker, "queues": ["q"], "max_tasks": 1, "wait_seconds": 0});
    caller.lease(wanted).await;
    eventually("the worker is listed", SOON, async || {
        let answer = caller.api.get("/v1/workers?limit=1000").await;
        let workers = array(&answer.expect(200)["items"]);
        let listed = workers.iter().any(|listed| listed["worker_id"] == worker.as_str());
        if listed { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn http_1_0_and_1_1_are_served() {
    let caller = shared().await;
    let address = caller.address();
    // HTTP/1.0 and 1.1, with and without keep-alive, by hand.
    for head in
        ["GET /healthz HTTP/1.0\r\n\r\n", "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"]
    {
        let answer = punctual_testkit::http::raw(&address, head).await.expect("an answer");
        assert_eq!(answer.status, 200, "{head:?}");
    }
    // Two requests on one connection.
    for _ in 0..2 {
        caller.task(&caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await).await;
    }
    assert!(caller.list("/v1/tasks").await.iter().map(id_of).count() == 2);
}

#[tokio::test]
async fn garbage_instead_of_http_gets_400_or_a_closed_connection() {
    let caller = shared().await;
    let address = caller.address();
    for nonsense in [
        "\r\n\r\n\r\nnonsense\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nno colon\r\n\r\n",
        "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: nonsense\r\n\r\n",
    ] {
        if let Some(answer) = punctual_testkit::http::raw(&address, nonsense).await {
            assert!(
                (400..=505).contains(&answer.status) && answer.status != 500,
                "{nonsense:?} was answered with {}",
                answer.status
            );
        }
    }
    assert_eq!(caller.api.get("/healthz").await.status(), 200);
}
