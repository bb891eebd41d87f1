//! `callback_url` and `callback_headers`: where a webhook may go, and with which headers.

use serde_json::{Value, json};

use crate::it::world::{array, shared};

fn aimed_at(url: &str) -> Value {
    json!({"type": "t", "delay_seconds": 600, "callback_url": url})
}

#[tokio::test]
async fn only_proper_http_urls_are_targets() {
    let caller = shared().await;
    for bad in [
        "",
        "ftp://example.com/x",
        "file:///etc/passwd",
        "gopher://example.com/",
        "javascript:alert(1)",
        "example.com/hook",
        "/hook",
        "//example.com/hook",
        "http://",
        "http:///hook",
        "https://:443/",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://:secret@example.com/",
        "http://example.com:99999/",
        "http://exa mple.com/",
        "http://[::1/",
        "http://example.com/\r\nX-Injected: 1",
    ] {
        caller.api.post("/v1/tasks", &aimed_at(bad)).await.invalid("/callback_url");
    }
    for bad in [json!(1), json!(["http://example.com/"]), json!({})] {
        caller.api.post("/v1/tasks", &json!({"type": "t", "callback_url": bad})).await.invalid("/callback_url");
    }
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn special_networks_are_refused_in_every_spelling() {
    let caller = shared().await;
    for host in [
        "169.254.169.254",
        "169.254.0.1",
        "10.0.0.1",
        "10.255.255.255",
        "172.16.0.1",
        "172.31.255.254",
        "192.168.1.1",
        "100.64.0.1",
        "0.0.0.0",
        "192.0.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "[::]",
        "[fd00::1]",
        "[fc00::1]",
        "[fe80::1]",
        "[ff02::1]",
        "[::ffff:10.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        // 10.0.0.1 and 169.254.169.254 as the URL standard also reads them.
        "167772161",
        "0x0a000001",
        "012.0.0.1",
        "10.1",
        "2852039166",
        "0xa9fea9fe",
        "169.254.43518",
        // A trailing dot does not change the address.
        "169.254.169.254.",
        "10.0.0.1.",
        "0x0a000001.",
        "167772161.",
        "10.1.",
    ] {
        for url in [format!("http://{host}/latest/meta-data"), format!("https://{host}:8443/")] {
            caller.api.post("/v1/tasks", &aimed_at(&url)).await.invalid("/callback_url");
        }
    }
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn loopback_and_the_public_internet_are_targets() {
    let caller = shared().await;
    for url in [
        "http://127.0.0.1:9/hook",
        "http://127.1.2.3:9/",
        "http://[::1]:9/hook",
        "https://example.com/hook?a=b&c=%20d",
        "http://example.com",
        "https://93.184.215.14:8443/",
        "https://sub.example.org:8080/a/b/c",
        "https://example.com./whole",
    ] {
        let task = caller.submit(aimed_at(url)).await;
        let kept = task["callback_url"].as_str().expect("a URL");
        assert_eq!(kept.trim_end_matches('/'), url.trim_end_matches('/'));
    }
}

#[tokio::test]
async fn reserved_headers_are_refused() {
    let caller = shared().await;
    for name in [
        "Host",
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "Transfer-Encoding",
        "TE",
        "Trailer",
        "Upgrade",
        "Content-Length",
        "content-length",
        "Punctual-Task-Id",
        "punctual-attempt",
        "PUNCTUAL-FENCING-TOKEN",
        "Punctual-Execute-At",
        "Punctual-Type",
        "Idempotency-Key",
        "webhook-id",
        "Webhook-Timestamp",
        "webhook-signature",
    ] {
        let mut task = aimed_at("http://127.0.0.1:9/");
        task["callback_headers"] = json!({ name: "x" });
        let answer = caller.api.post("/v1/tasks", &task).await;
        expect_pointer_into_headers(&answer);
    }
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn nothing_can_be_smuggled_into_a_header() {
    let caller = shared().await;
    for (name, value) in [
        ("X-A", json!("a\r\nX-B: b")),
        ("X-A", json!("a\nb")),
        ("X-A", json!("a\rb")),
        ("X-A", json!("a\u{0}")),
        ("X-A", json!("a\u{1}b")),
        ("X-A", json!("a\u{7f}b")),
        ("X-A: b\r\nX-B", json!("c")),
        ("X A", json!("b")),
        ("X-A:", json!("b")),
        ("", json!("b")),
        ("X-Ä", json!("b")),
        ("(x)", json!("b")),
        ("X-A", json!(1)),
        ("X-A", json!(null)),
        ("X-A", json!(["b"])),
    ] {
        let mut task = aimed_at("http://127.0.0.1:9/");
        task["callback_headers"] = json!({ name: value });
        let answer = caller.api.post("/v1/tasks", &task).await;
        expect_pointer_into_headers(&answer);
    }
    caller.expect_nothing_stored().await;
    let mut task = aimed_at("http://127.0.0.1:9/");
    task["callback_headers"] = json!({"X-Fine": "a b;c=\"d\", e", "Authorization": "Bearer abc"});
    caller.submit(task).await;
}

#[track_caller]
fn expect_pointer_into_headers(answer: &punctual_testkit::http::Reply) {
    let problem = answer.problem(422);
    let points = |error: &Value| error["pointer"].as_str().is_some_and(|at| at.contains("/callback_headers"));
    assert!(array(&problem["errors"]).iter().any(points), "no error points into the headers\n{answer}");
}
