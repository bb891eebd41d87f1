//! Bodies: size, syntax, depth, duplicates, encodings.

use std::fmt::Write as _;

use punctual_testkit::http::{raw, upload};
use serde_json::{Value, json};

use crate::it::world::{Caller, array, id_of, shared};

const PAYLOAD_LIMIT: usize = 256 * 1024;
const BODY_LIMIT: usize = 1024 * 1024;
const BATCH_LIMIT: usize = 64 * 1024 * 1024;

/// Posts bytes as JSON to `/v1/tasks`.
async fn post(caller: &Caller, body: impl Into<Vec<u8>>) -> punctual_testkit::http::Reply {
    caller.api.call("POST", "/v1/tasks").body("application/json", body).send().await
}

/// The head of a request by hand, up to the empty line.
fn head(path: &str, tenant: &str, length: &str) -> String {
    let headers = format!("host: localhost\r\npunctual-tenant: {tenant}\r\ncontent-type: application/json\r\n{length}");
    format!("POST {path} HTTP/1.1\r\n{headers}\r\n\r\n")
}

/// A task whose payload is a string that is `length` bytes of JSON.
fn payload_of(length: usize) -> String {
    format!(r#"{{"type":"t","delay_seconds":600,"payload":"{}"}}"#, "x".repeat(length - 2))
}

/// A task padded with blanks to `length` bytes.
fn padded(length: usize) -> String {
    let task = r#"{"type":"t","delay_seconds":600}"#;
    format!("{task}{}", " ".repeat(length - task.len()))
}

#[tokio::test]
async fn a_payload_over_the_limit_is_refused() {
    let caller = shared().await;
    let task = post(&caller, payload_of(PAYLOAD_LIMIT)).await.expect(201);
    assert_eq!(caller.task(&id_of(&task)).await["payload"].as_str().map(str::len), Some(PAYLOAD_LIMIT - 2));
    let stranger = caller.stranger();
    post(&stranger, payload_of(PAYLOAD_LIMIT + 1)).await.problem(413);
    post(&stranger, payload_of(900 * 1024)).await.problem(413);
    stranger.expect_nothing_stored().await;
}

#[tokio::test]
async fn an_edited_payload_has_the_same_limit() {
    let caller = shared().await;
    let task = caller.submit(json!({"type": "t", "delay_seconds": 600, "payload": "small"})).await;
    let path = format!("/v1/tasks/{}", id_of(&task));
    let edit = json!({"payload": "x".repeat(PAYLOAD_LIMIT)});
    caller.api.patch(&path, &edit).await.problem(413);
    assert_eq!(caller.task(&id_of(&task)).await, task);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let caller = shared().await;
    post(&caller, padded(BODY_LIMIT)).await.expect(201);
    let stranger = caller.stranger();
    post(&stranger, padded(BODY_LIMIT + 1)).await.problem(413);
    stranger.expect_nothing_stored().await;
}

#[tokio::test]
async fn a_batch_over_its_limit_is_refused_without_reading_on() {
    let caller = shared().await;
    let length = BATCH_LIMIT + 1;
    let head = head("/v1/tasks/batch", "too-long", &format!("content-length: {length}"));
    let answer = upload(&caller.address(), head, &vec![b' '; 65_536], length / 65_536).await.expect("an answer");
    assert_eq!(answer.status, 413);
    expect_problem(&answer.body);
}

#[tokio::test]
async fn an_endless_body_is_cut_off() {
    let caller = shared().await;
    let head = head("/v1/tasks", "endless", "transfer-encoding: chunked");
    let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
    // Eight megabytes, and no end announced: a server that waits for the end would not answer.
    let answer = upload(&caller.address(), head, chunk.as_bytes(), 512).await.expect("an answer");
    assert_eq!(answer.status, 413);
    expect_problem(&answer.body);
    assert!(answer.header("request-id").is_some());
}

#[tokio::test]
async fn a_connection_that_ends_with_a_refused_body_says_so() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let caller = shared().await;
    let body = " ".repeat(BODY_LIMIT + 1);
    let refused = head("/v1/tasks", "refused", &format!("content-length: {}", body.len())) + &body;
    let next = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut stream = tokio::net::TcpStream::connect(caller.address()).await.expect("a connection");
    // The server may stop reading before the end; the response it has sent by then counts.
    stream.write_all(refused.as_bytes()).await.ok();
    stream.write_all(next.as_bytes()).await.ok();
    let mut answers = Vec::new();
    let mut part = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut part).await {
        answers.extend_from_slice(&part[..length]);
    }
    let answers = String::from_utf8_lossy(&answers).to_lowercase();
    assert!(answers.starts_with("http/1.1 413"), "{answers}");
    // Without `connection: close` a client could send its next request into a closed connection,
    // and would not know whether it was handled.
    let goes_on = answers.matches("http/1.1 ").count() == 2;
    assert!(goes_on || answers.contains("\r\nconnection: close\r\n"), "closed without notice: {answers}");
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_not_a_task() {
    use tokio::io::AsyncWriteExt;
    let caller = shared().await;
    let tenant = format!("short-{}", uuid::Uuid::now_v7().simple());
    let head = head("/v1/tasks", &tenant, "content-length: 50") + r#"{"type":"t"}"#;
    let mut stream = tokio::net::TcpStream::connect(caller.address()).await.expect("a connection");
    stream.write_all(head.as_bytes()).await.expect("the head is sent");
    stream.shutdown().await.expect("the sending side closes");
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await.ok();
    let answer = String::from_utf8_lossy(&rest).into_owned();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "half a body was answered with {answer:?}");
    let stored = caller.api.tenant(&tenant).get("/v1/tasks").await.expect(200);
    assert_eq!(array(&stored["items"]), Vec::<Value>::new());
}

#[tokio::test]
async fn malformed_json_is_a_bad_request() {
    let caller = shared().await;
    for bad in [
        "",
        "{",
        "{}}",
        "{\"type\":\"t\"",
        "{\"type\":\"t\",}",
        "{'type':'t'}",
        "{type:\"t\"}",
        "{\"type\":\"t\"} x",
        "{\"type\":\"t\"}{\"type\":\"t\"}",
        "{\"type\":\"t\",\"payload\":NaN}",
        "{\"type\":\"t\",\"payload\":Infinity}",
        "{\"type\":\"t\",\"payload\":01}",
        "{\"type\":\"t\",\"payload\":\"\t\"}",
        "{\"type\":\"t\",\"payload\":\"a\u{0}b\"}",
        "{\"type\":\"t\",\"payload\":\"\\x\"}",
        "{\"type\":\"t\"}\u{0}",
        "\u{feff}{\"type\":\"t\"}",
        "// a comment\n{\"type\":\"t\"}",
    ] {
        post(&caller, bad).await.problem(400);
    }
    for bytes in [
        &b"{\"type\":\"t\",\"payload\":\"\xff\"}"[..],
        b"{\"type\":\"t\",\"payload\":\"\xc0\xaf\"}",
        b"\xff\xfe{\x00",
        b"{\"type\":\"t\xed\xa0\x80\"}",
    ] {
        post(&caller, bytes).await.problem(400);
    }
    for other in ["[]", "\"t\"", "null", "1", "[{\"type\":\"t\"}]"] {
        post(&caller, other).await.problem_any(&[400, 422]);
    }
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn lone_surrogates_and_huge_numbers_are_refused_or_kept() {
    let caller = shared().await;
    for payload in
        [r#""\ud800""#, r#""\udc00x""#, "1e400", "-1e400", "9223372036854775808", "1E-999", &"9".repeat(1000)]
    {
        let answer = post(&caller, format!(r#"{{"type":"t","delay_seconds":600,"payload":{payload}}}"#)).await;
        if answer.status() == 201 {
            let task = id_of(
                &serde_json::from_str::<Value>(&answer.text().replace(payload, "0")).expect("JSON around the payload"),
            );
            let read = caller.api.get(&format!("/v1/tasks/{task}")).await;
            assert!(read.text().contains(payload), "{payload} was not kept\n{read}");
        } else {
            answer.problem_any(&[400, 422]);
        }
    }
}

#[tokio::test]
async fn duplicate_keys_are_refused() {
    let caller = shared().await;
    for bad in [
        r#"{"type":"a","type":"b"}"#,
        r#"{"type":"t","priority":1,"priority":1}"#,
        r#"{"type":"t","payload":1,"payload":2}"#,
        r#"{"type":"t","metadata":{"a":"1","a":"2"}}"#,
        r#"{"type":"t","retry_policy":{"max_retries":1,"max_retries":2}}"#,
        r#"{"type":"t","t\u0079pe":"u"}"#,
    ] {
        post(&caller, bad).await.problem_any(&[400, 422]);
    }
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn depth_bombs_and_wide_objects_do_no_harm() {
    let caller = shared().await;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [1_000, 100_000] {
            let bomb = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            post(&caller, format!(r#"{{"type":"t","payload":{bomb}}}"#)).await.problem_any(&[400, 413, 422]);
            post(&caller, bomb).await.problem_any(&[400, 413, 422]);
        }
    }
    post(&caller, "[".repeat(100_000)).await.problem(400);
    let mut wide = String::new();
    for n in 0..50_000 {
        write!(wide, "\"{n}\":1,").expect("a string can be written to");
    }
    post(&caller, format!(r#"{{{wide}"type":"t"}}"#)).await.problem(422);
    post(&caller, format!(r#"{{"type":"t","metadata":{{{}}}}}"#, wide.trim_end_matches(','))).await.problem(422);
    caller.expect_nothing_stored().await;
    caller.submit(json!({"type": "t", "delay_seconds": 600, "payload": [[[[[[[[[[1]]]]]]]]]]})).await;
}

#[tokio::test]
async fn other_content_types_are_unsupported() {
    let caller = shared().await;
    for media in [
        "text/plain",
        "application/xml",
        "application/x-www-form-urlencoded",
        "application/octet-stream",
        "application/x-ndjson",
        "nonsense",
    ] {
        caller.api.call("POST", "/v1/tasks").body(media, r#"{"type":"t"}"#).send().await.problem(415);
    }
    for path in ["/v1/tasks/batch", "/v1/leases", "/v1/leases/settle"] {
        caller.api.call("POST", path).body("text/plain", "{}").send().await.problem(415);
    }
    caller.expect_nothing_stored().await;
    let fine = r#"{"type":"t","delay_seconds":600}"#;
    for media in ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON"] {
        caller.api.call("POST", "/v1/tasks").body(media, fine).send().await.expect(201);
    }
}

#[tokio::test]
async fn a_compressed_body_is_refused() {
    let caller = shared().await;
    let call = caller.api.call("POST", "/v1/tasks").header("content-encoding", "gzip");
    call.body("application/json", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03".to_vec())
        .send()
        .await
        .problem_any(&[400, 415]);
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn header_values_that_no_client_should_send_are_refused() {
    let caller = shared().await;
    let body = r#"{"type":"t","delay_seconds":600}"#;
    let tenant = format!("raw-{}", uuid::Uuid::now_v7().simple());
    for key in [&b"a\x00b"[..], b"a\x01b", b"a\x7fb", b"caf\xe9"] {
        let head = head("/v1/tasks", &tenant, &format!("content-length: {}", body.len()));
        let head = head.trim_end().as_bytes();
        let request = [head, b"\r\nidempotency-key: ", key, b"\r\n\r\n", body.as_bytes()].concat();
        let answer = raw(&caller.address(), request).await.expect("an answer");
        assert!([400, 422].contains(&answer.status), "{key:?} was answered with {}", answer.status);
    }
    let stored = caller.api.tenant(&tenant).get("/v1/tasks").await.expect(200);
    assert_eq!(array(&stored["items"]), Vec::<Value>::new());
}

#[track_caller]
fn expect_problem(body: &[u8]) {
    let problem: Value = serde_json::from_slice(body).expect("a problem is JSON");
    for member in ["type", "title", "status", "detail", "code"] {
        assert!(!problem[member].is_null(), "no {member:?} in {problem:#}");
    }
}

/// A list of values in the order of the fields is not a request.
#[tokio::test]
async fn a_list_is_not_an_object() {
    let api = &shared().await.api;
    for (path, body) in [
        ("/v1/tasks", json!(["a"])),
        ("/v1/tasks/batch", json!([[{"type": "a"}]])),
        ("/v1/leases", json!(["w", ["default"], null, 1, 0, null])),
        ("/v1/leases/settle", json!([[]])),
        ("/v1/tasks", json!({"type": "a", "retry_policy": [1, "fixed", 1, 1, "none"]})),
    ] {
        let answer = api.post(path, &body).await;
        assert_eq!(answer.status(), 422, "{path} {body}");
    }
    let items = api.post("/v1/tasks/batch", &json!({"tasks": [["a"]]})).await.expect(200);
    assert_eq!(items["items"][0]["status"], 422, "{items}");
}
