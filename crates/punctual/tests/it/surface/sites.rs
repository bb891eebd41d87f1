//! Which hosts requests may be for, and which sites they may come from, while authentication is
//! off.

use punctual_testkit::http::{RawReply, raw};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::http2;
use crate::it::world::{World, shared};

/// Pauses the queue `q`, as a web page could, with these lines in the head.
async fn pause(address: &str, lines: &str) -> RawReply {
    let request = format!("POST /v1/queues/q/pause HTTP/1.1\r\n{lines}content-length: 0\r\n\r\n");
    raw(address, request).await.expect("an answer")
}

#[track_caller]
fn assert_problem(reply: &RawReply, status: u16, code: &str) {
    let problem: Value = serde_json::from_slice(&reply.body).expect("a problem");
    assert_eq!((reply.status, &problem["code"]), (status, &json!(code)), "{problem}");
    assert!(reply.header("request-id").is_some());
}

#[tokio::test]
async fn a_request_has_exactly_one_host() {
    let caller = shared().await;
    for lines in ["", "host: localhost\r\nhost: localhost\r\n", "host: a b\r\n"] {
        assert_problem(&pause(&caller.address(), lines).await, 400, "malformed_request");
    }
    // Health checks of load balancers speak HTTP/1.0 without one.
    assert_eq!(raw(&caller.address(), "GET /healthz HTTP/1.0\r\n\r\n").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_web_page_cannot_use_the_server() {
    let world = World::start_with(|serve| serve.setting("ALLOWED_HOSTS", "punctual.test,other.test")).await;
    let (address, caller) = (world.server.address(), world.caller());
    let own = format!("host: {address}\r\n");
    for (lines, status, code) in [
        ("host: evil.example:7400\r\n".to_owned(), 421, "misdirected"),
        ("host: localhost.evil.example\r\n".to_owned(), 421, "misdirected"),
        (format!("{own}origin: http://evil.example\r\n"), 403, "cross_site"),
        (format!("{own}origin: null\r\n"), 403, "cross_site"),
        (format!("{own}sec-fetch-site: cross-site\r\n"), 403, "cross_site"),
    ] {
        assert_problem(&pause(address, &lines).await, status, code);
    }
    caller.api.get("/v1/queues/q").await.problem_code(404, "not_found");
    for lines in [
        own.clone(),
        format!("{own}origin: http://{address}\r\nsec-fetch-site: same-origin\r\n"),
        "host: Punctual.test\r\norigin: https://punctual.test\r\n".to_owned(),
        "host: [::1]:7400\r\n".to_owned(),
        "host: localhost\r\n".to_owned(),
    ] {
        let reply = pause(address, &lines).await;
        assert_eq!(reply.status, 200, "{lines:?}: {}", String::from_utf8_lossy(&reply.body));
    }
    assert_eq!(caller.api.get("/v1/queues/q").await.expect(200)["paused"], true);
}

#[tokio::test]
async fn an_authority_of_http_2_is_a_host() {
    let caller = shared().await;
    for (authority, expected) in [("evil.example", "misdirected"), ("localhost", "\"next_cursor\"")] {
        let mut stream = TcpStream::connect(caller.address()).await.unwrap();
        stream.write_all(&http2::preface()).await.unwrap();
        stream.write_all(&http2::get(1, authority, "/v1/queues")).await.unwrap();
        let mut answer = Vec::new();
        while !String::from_utf8_lossy(&answer).contains(expected) {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{}", String::from_utf8_lossy(&answer));
        }
    }
}
