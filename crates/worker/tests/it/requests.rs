//! The request that a webhook receives.

use std::collections::HashSet;

use punctual_testkit::fixtures::START;
use punctual_testkit::sink::Sink;
use punctual_worker::SigningKeys;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use crate::support::{AMPLE, Raw, call, now, read_request, task, webhooks};

#[tokio::test]
async fn a_call_has_the_promised_headers() {
    let sink = Sink::start();
    let task = task(&sink.url("/hook?a=b"));
    webhooks().call(&task, None, &SigningKeys::NONE, now(), Instant::now() + AMPLE).await;
    let hits = sink.hits("/hook?a=b");
    let hit = &hits[0];
    assert_eq!(hit.method, "POST");
    assert_eq!(hit.body, br#"{"n": 1}"#, "the payload's own bytes");
    let id = task.id.to_string();
    for (name, value) in [
        ("Punctual-Task-Id", id.as_str()),
        ("Punctual-Type", "test.work"),
        ("Punctual-Attempt", "2"),
        ("Punctual-Fencing-Token", "7"),
        ("Punctual-Execute-At", &START.to_string()),
        ("Idempotency-Key", &id),
        ("Content-Type", "application/json"),
        ("Content-Length", "8"),
        ("webhook-id", &id),
        ("webhook-timestamp", &(START.as_millis() / 1_000).to_string()),
        ("User-Agent", concat!("Punctual/", env!("CARGO_PKG_VERSION"))),
        ("x-team", "billing"),
    ] {
        assert_eq!(hit.header(name), value, "{name}");
    }
    assert_eq!(hit.header("host"), sink.url("").trim_start_matches("http://"));
    for absent in ["webhook-signature", "cookie", "accept-encoding", "referer", "transfer-encoding"] {
        assert!(hit.values(absent).is_empty(), "{absent}");
    }
}

#[tokio::test]
async fn every_run_has_a_trace_of_its_own() {
    let sink = Sink::start();
    for _ in 0..3 {
        call(&sink.url("/")).await;
    }
    let traces: HashSet<String> = sink.hits("/").iter().map(|hit| hit.header("traceparent").to_owned()).collect();
    assert_eq!(traces.len(), 3);
    for trace in traces {
        let parts: Vec<&str> = trace.split('-').collect();
        assert!(
            matches!(parts.as_slice(), ["00", trace, span, "01"] if trace.len() == 32 && span.len() == 16),
            "{trace}"
        );
    }
}

#[tokio::test]
async fn a_submitters_header_overrides_none_of_ours() {
    let sink = Sink::start();
    let mut task = task(&sink.url("/"));
    let headers = &mut task.body.callback.as_mut().unwrap().headers;
    for (name, value) in [
        ("HOST", "internal.example"),
        ("content-length", "0"),
        ("Content-Type", "text/plain"),
        ("Transfer-Encoding", "chunked"),
        ("connection", "x-team"),
        ("Punctual-Fencing-Token", "999"),
        ("punctual-made-up", "1"),
        ("Webhook-Signature", "v1,forged"),
        ("idempotency-key", "other"),
        ("user-agent", "other"),
        ("X-Split", "a\r\nHost: b"),
        ("Authorization", "Bearer theirs"),
    ] {
        headers.insert(name.to_owned(), value.to_owned());
    }
    webhooks().call(&task, None, &SigningKeys::NONE, now(), Instant::now() + AMPLE).await;
    let hits = sink.hits("/");
    let hit = &hits[0];
    assert_eq!(hit.header("authorization"), "Bearer theirs");
    assert_eq!(hit.header("content-type"), "application/json");
    assert_eq!(hit.header("content-length"), "8");
    assert_eq!(hit.header("punctual-fencing-token"), "7");
    assert_eq!(hit.header("idempotency-key"), task.id.to_string());
    assert!(hit.header("user-agent").starts_with("Punctual/"));
    assert!(!hit.header("host").contains("internal"));
    for absent in ["transfer-encoding", "connection", "punctual-made-up", "webhook-signature", "x-split"] {
        assert!(hit.values(absent).is_empty(), "{absent}");
    }
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = Raw::serve(|mut stream| async move {
        loop {
            read_request(&mut stream).await?;
            stream.write_all(b"HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\nsome").await?;
        }
    })
    .await;
    let (webhooks, task) = (webhooks(), task(&server.url("/")));
    for _ in 0..10 {
        webhooks.call(&task, None, &SigningKeys::NONE, now(), Instant::now() + AMPLE).await;
    }
    assert_eq!(server.accepted(), 1);
}
