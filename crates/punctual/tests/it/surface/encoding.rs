//! Compressed answers, as a client that asks for them gets them.

use std::io::Read;

use punctual_testkit::http::Reply;
use serde_json::{Value, json};

use crate::it::world::{Caller, shared, worker_id};

async fn ask(caller: &Caller, method: &str, path: &str, accepted: &str) -> Reply {
    caller.api.call(method, path).header("accept-encoding", accepted).send().await
}

/// The body without its coding, which is checked to be there.
fn decoded(reply: &Reply, coding: &str) -> Value {
    assert_eq!(reply.header("content-encoding"), Some(coding), "{reply}");
    assert_eq!(reply.header("content-length"), Some(reply.body().len().to_string().as_str()), "{reply}");
    let mut text = String::new();
    match coding {
        "gzip" => flate2::read::GzDecoder::new(reply.body()).read_to_string(&mut text),
        _ => zstd::Decoder::new(reply.body()).expect("a decoder").read_to_string(&mut text),
    }
    .expect("it can be decoded");
    serde_json::from_str(&text).expect("JSON")
}

#[tokio::test]
async fn a_list_is_compressed_as_its_caller_asks() {
    let caller = shared().await;
    let tasks = (0..200).map(|n| json!({"type": "t", "delay_seconds": 600, "payload": n})).collect();
    caller.submit_all(tasks).await;
    let path = "/v1/tasks?limit=200";
    let plain = caller.api.get(path).await;
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")));
    for (accepted, coding) in [("gzip", "gzip"), ("gzip, deflate, br, zstd", "zstd"), ("zstd;q=0.1, gzip", "gzip")] {
        let reply = ask(&caller, "GET", path, accepted).await;
        assert_eq!(decoded(&reply, coding), plain.expect(200));
        assert!(reply.body().len() < plain.body().len() / 5, "{} of {}", reply.body().len(), plain.body().len());
        assert_eq!((reply.header("vary"), reply.header("etag")), (Some("accept-encoding"), plain.header("etag")));
        let tag = reply.header("etag").expect("a page has one");
        let known = caller.api.call("GET", path).header("accept-encoding", accepted).header("if-none-match", tag);
        let known = known.send().await;
        assert_eq!((known.status(), known.body().len(), known.header("content-encoding")), (304, 0, None));
        assert_eq!(known.header("vary"), Some("accept-encoding"));
        let head = ask(&caller, "HEAD", path, accepted).await;
        assert_eq!((head.header("content-encoding"), head.body().len()), (Some(coding), 0));
        assert_eq!(head.header("content-length"), reply.header("content-length"));
    }
    for accepted in ["identity", "gzip;q=0", "br", "gzip;q=0.5, identity"] {
        let reply = ask(&caller, "GET", path, accepted).await;
        assert_eq!((reply.header("content-encoding"), reply.body()), (None, plain.body()), "{accepted}");
    }
}

/// A strong tag names bytes, so a compressed task has another one. It stands for the same version.
#[tokio::test]
async fn the_tag_of_a_compressed_task_is_its_version() {
    let caller = shared().await;
    let task = json!({"type": "t", "delay_seconds": 600, "payload": "x".repeat(5_000)});
    let path = format!("/v1/tasks/{}", caller.submit_id(task).await);
    let reply = ask(&caller, "GET", &path, "gzip").await;
    assert_eq!((reply.header("etag"), decoded(&reply, "gzip")["version"].clone()), (Some("\"1-gzip\""), json!(1)));
    let known = caller.api.call("GET", &path).header("if-none-match", "\"1-gzip\"").send().await;
    assert_eq!(known.status(), 304);
    let patch = async |tag| {
        let call = caller.api.call("PATCH", &path).header("if-match", tag);
        call.json(&json!({"priority": 9})).send().await
    };
    patch("\"2-gzip\"").await.problem(412);
    assert_eq!(patch("\"1-gzip\"").await.expect(200)["version"], 2);
}

#[tokio::test]
async fn leases_are_compressed_if_asked() {
    let caller = shared().await;
    let task = || json!({"type": "t", "queue": "packed", "payload": "x".repeat(3_000)});
    caller.submit_all(vec![task(), task(), task()]).await;
    let request = json!({"worker_id": worker_id(), "queues": ["packed"], "max_tasks": 1, "wait_seconds": 20});
    for coding in ["zstd", "gzip"] {
        let call = caller.api.call("POST", "/v1/leases").header("accept-encoding", coding);
        let answer = decoded(&call.json(&request).send().await, coding);
        let lease = &answer["leases"][0];
        caller.report("complete", lease, json!({})).await.expect(200);
    }
    assert_eq!(caller.lease(request).await.len(), 1, "who does not ask gets it as it is");
}

#[tokio::test]
async fn pages_and_metrics_are_compressed_too() {
    let caller = shared().await;
    for (path, accepted) in [("/openapi.json", "gzip"), ("/metrics", "zstd"), ("/metrics", "gzip")] {
        let reply = ask(&caller, "GET", path, accepted).await;
        assert_eq!((reply.status(), reply.header("content-encoding")), (200, Some(accepted)), "{path}");
    }
    let small = ask(&caller, "GET", "/healthz", "gzip").await;
    assert_eq!((small.header("content-encoding"), small.header("vary")), (None, None), "it is small");
}
