//! What each kind of answer does.

use std::time::Duration;

use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use super::hook;
use crate::it::world::{SOON, quick, seconds_between, shared, time};

#[tokio::test]
async fn every_2xx_completes() {
    let caller = shared().await;
    let sink = Sink::start();
    let statuses = [200, 201, 202, 203, 204, 206, 299];
    let mut ids = Vec::new();
    for status in statuses {
        let path = format!("/{status}");
        sink.answer(&path, SinkAnswer::status(status));
        ids.push((status, caller.submit_id(hook(&sink, &path, json!({}))).await));
    }
    for (status, id) in ids {
        let task = caller.until(&id, "COMPLETED").await;
        assert!(task["result"].is_null(), "an empty body is no result: {task:#}");
        assert_eq!(sink.hits(&format!("/{status}")).len(), 1, "{status}");
        let runs = caller.runs(&id).await;
        assert_eq!(
            (runs.len(), &runs[0]["http_status"], &runs[0]["outcome"]),
            (1, &json!(status), &json!("completed")),
            "{runs:#?}"
        );
    }
}

#[tokio::test]
async fn other_4xx_are_dead_letters_at_once() {
    let caller = shared().await;
    let sink = Sink::start();
    let mut ids = Vec::new();
    for status in [400, 401, 403, 404, 405, 409, 410, 413, 418, 422, 426, 451, 499] {
        let path = format!("/{status}");
        sink.answer(&path, SinkAnswer::status(status).header("retry-after", "0").body("no"));
        ids.push((status, caller.submit_id(hook(&sink, &path, json!({}))).await));
    }
    for (status, id) in ids {
        let task = caller.until(&id, "DEAD_LETTERED").await;
        assert!(task["last_error"]["code"].is_string() && task["last_error"]["message"].is_string(), "{task:#}");
        assert!(task["result"].is_null(), "{task:#}");
        assert_eq!(sink.hits(&format!("/{status}")).len(), 1, "{status} was retried");
        let runs = caller.runs(&id).await;
        assert_eq!((runs.len(), &runs[0]["http_status"]), (1, &json!(status)), "{runs:#?}");
        assert!(!runs[0]["error"].is_null(), "{runs:#?}");
    }
}

#[tokio::test]
async fn busy_answers_are_retried_after_their_retry_after() {
    let caller = shared().await;
    let sink = Sink::start();
    let mut ids = Vec::new();
    for status in [408, 425, 429, 503] {
        let path = format!("/{status}");
        sink.script(&path, [SinkAnswer::status(status).header("Retry-After", "2"), SinkAnswer::json(&json!(status))]);
        ids.push((path.clone(), status, caller.submit_id(hook(&sink, &path, json!({}))).await));
    }
    for (path, status, id) in ids {
        let task = caller.until(&id, "COMPLETED").await;
        assert_eq!(task["result"], status);
        let hits = sink.hits(&path);
        assert_eq!(hits.len(), 2, "{path}");
        let waited = seconds_between(hits[0].at, hits[1].at);
        assert!((2.0..10.0).contains(&waited), "{path} was retried after {waited} s");
    }
}

#[tokio::test]
async fn retry_after_may_be_a_date() {
    let caller = shared().await;
    let sink = Sink::start();
    // Whole seconds: between two and three from now.
    let date = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3);
    let date = jiff::Timestamp::from_second(date.as_second()).expect("an instant");
    let formatted =
        jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&date).expect("a date of HTTP");
    sink.script("/date", [SinkAnswer::status(503).header("Retry-After", &formatted), SinkAnswer::status(200)]);
    let id = caller.submit_id(hook(&sink, "/date", json!({}))).await;
    caller.until(&id, "COMPLETED").await;
    let hits = sink.hits("/date");
    assert_eq!(hits.len(), 2);
    assert!(hits[1].at >= date, "retried at {}, asked for {formatted}", hits[1].at);
}

#[tokio::test]
async fn busy_answers_without_retry_after_follow_the_policy() {
    let caller = shared().await;
    let sink = Sink::start();
    for status in [408, 425, 429, 503] {
        let path = format!("/{status}");
        sink.script(&path, [SinkAnswer::status(status), SinkAnswer::status(status), SinkAnswer::status(200)]);
        let id = caller.submit_id(hook(&sink, &path, json!({}))).await;
        caller.until(&id, "COMPLETED").await;
        assert_eq!(sink.hits(&path).len(), 3, "{path}");
    }
}

#[tokio::test]
async fn an_absurd_retry_after_is_recorded_in_the_run() {
    let caller = shared().await;
    let sink = Sink::start();
    for (n, absurd) in
        ["-5", "soon", "", "1.5x", "Sun, 06 Nov 1994 08:49:37 GMT", "99999999999999999999999"].into_iter().enumerate()
    {
        let path = format!("/{n}");
        sink.script(&path, [SinkAnswer::status(429).header("Retry-After", absurd), SinkAnswer::status(200)]);
        let id = caller.submit_id(hook(&sink, &path, json!({}))).await;
        sink.wait_for(&path, 1, SOON).await;
        if n < 5 {
            caller.until(&id, "COMPLETED").await;
        }
    }
    sink.answer("/ages", SinkAnswer::status(429).header("Retry-After", "1000000000000"));
    let id = caller.submit_id(hook(&sink, "/ages", json!({}))).await;
    sink.wait_for("/ages", 1, SOON).await;
    let task = caller.until(&id, "PENDING").await;
    let wait = seconds_between(jiff::Timestamp::now(), time(&task["next_attempt_at"]));
    assert!((29.0 * 86_400.0..=30.0 * 86_400.0).contains(&wait), "the next attempt is in {wait} s");
    let runs = caller.runs(&id).await;
    assert_eq!(runs[0]["error"]["message"], "the webhook answered 429; its Retry-After was cut to 30 days");
}

#[tokio::test]
async fn other_5xx_are_retried() {
    let caller = shared().await;
    let sink = Sink::start();
    let mut ids = Vec::new();
    for status in [500, 501, 502, 504, 507, 599] {
        let path = format!("/{status}");
        sink.script(
            &path,
            [SinkAnswer::status(status), SinkAnswer::status(status), SinkAnswer::json(&json!("at last"))],
        );
        ids.push((path.clone(), status, caller.submit_id(hook(&sink, &path, json!({}))).await));
    }
    for (path, status, id) in ids {
        assert_eq!(caller.until(&id, "COMPLETED").await["result"], "at last");
        assert_eq!(sink.hits(&path).len(), 3, "{path}");
        let mut runs = caller.runs(&id).await;
        runs.sort_by_key(|run| run["attempt"].as_u64());
        let statuses: Vec<&Value> = runs.iter().map(|run| &run["http_status"]).collect();
        assert_eq!(statuses, [&json!(status), &json!(status), &json!(200)], "{runs:#?}");
    }
}

#[tokio::test]
async fn redirects_are_dead_letters_at_once() {
    let caller = shared().await;
    let sink = Sink::start();
    let elsewhere = Sink::start();
    let mut ids = Vec::new();
    for status in [301, 302, 303, 307, 308] {
        let path = format!("/{status}");
        sink.answer(&path, SinkAnswer::status(status).header("Location", &elsewhere.url("/inside")));
        ids.push((status, caller.submit_id(hook(&sink, &path, json!({}))).await));
    }
    for (status, id) in ids {
        let task = caller.until(&id, "DEAD_LETTERED").await;
        assert_eq!(task["last_error"]["code"], "redirected");
        let runs = caller.runs(&id).await;
        assert_eq!((runs.len(), &runs[0]["http_status"]), (1, &json!(status)), "{runs:#?}");
    }
    assert_eq!(elsewhere.all_hits().len(), 0, "a redirect was followed");
}

#[tokio::test]
async fn a_target_that_does_not_answer_in_time_is_retried() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.script("/slow", [SinkAnswer::hang(), SinkAnswer::status(200)]);
    let id = caller.submit_id(hook(&sink, "/slow", json!({"timeout_seconds": 1}))).await;
    caller.until(&id, "COMPLETED").await;
    let hits = sink.hits("/slow");
    assert_eq!(hits.len(), 2);
    let waited = seconds_between(hits[0].at, hits[1].at);
    assert!((0.9..15.0).contains(&waited), "tried again after {waited} s");
    sink.answer("/never", SinkAnswer::hang());
    let id = caller.submit_id(hook(&sink, "/never", json!({"timeout_seconds": 1, "retry_policy": quick(1)}))).await;
    let task = caller.until(&id, "DEAD_LETTERED").await;
    assert_eq!(task["last_error"]["code"], "timeout", "{task:#}");
    assert_eq!(sink.hits("/never").len(), 2);
    assert!(caller.runs(&id).await.iter().all(|run| run["http_status"].is_null()));
}

#[tokio::test]
async fn a_slow_target_within_its_time_completes_once() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.answer("/slow", SinkAnswer::json(&json!("slow")).after(Duration::from_secs(3)));
    let id = caller.submit_id(hook(&sink, "/slow", json!({"timeout_seconds": 30}))).await;
    sink.wait_for("/slow", 1, SOON).await;
    let running = caller.task(&id).await;
    assert_eq!((&running["status"], &running["completed_at"]), (&json!("RUNNING"), &Value::Null));
    assert_eq!(caller.until(&id, "COMPLETED").await["result"], "slow");
    assert_eq!(sink.hits("/slow").len(), 1);
}

#[tokio::test]
async fn a_refused_connection_is_retried() {
    let caller = shared().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
    let task = json!({"type": "t", "callback_url": format!("http://{closed}/"), "retry_policy": quick(2)});
    let id = caller.submit_id(task).await;
    let task = caller.until(&id, "DEAD_LETTERED").await;
    assert!(task["last_error"]["code"].is_string(), "{task:#}");
    let runs = caller.runs(&id).await;
    assert_eq!(runs.len(), 3, "{runs:#?}");
    assert!(runs.iter().all(|run| run["http_status"].is_null() && !run["error"].is_null()), "{runs:#?}");
}

#[tokio::test]
async fn broken_connections_are_retried() {
    let caller = shared().await;
    let sink = Sink::start();
    let mut ids = Vec::new();
    for (path, answer) in [
        ("/close", SinkAnswer::close()),
        ("/reset", SinkAnswer::reset()),
        ("/cut", SinkAnswer::cut_short()),
        ("/garbage", SinkAnswer::garbage()),
    ] {
        sink.script(path, [answer, SinkAnswer::json(&json!("whole"))]);
        ids.push((path, caller.submit_id(hook(&sink, path, json!({}))).await));
    }
    for (path, id) in ids {
        assert_eq!(caller.until(&id, "COMPLETED").await["result"], "whole", "{path}");
        assert!(sink.hits(path).len() >= 2, "{path}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_json_completes_all_the_same() {
    let caller = shared().await;
    let sink = Sink::start();
    for (n, body) in ["OK", "<html></html>", "{\"cut", "\u{0}"].into_iter().enumerate() {
        let path = format!("/{n}");
        sink.answer(&path, SinkAnswer::status(200).body(body));
        let id = caller.submit_id(hook(&sink, &path, json!({}))).await;
        caller.until(&id, "COMPLETED").await;
        assert_eq!(sink.hits(&path).len(), 1);
        assert_eq!(caller.runs(&id).await[0]["result_dropped"], "not_json", "{body:?}");
    }
}

#[tokio::test]
async fn a_run_says_why_its_result_was_dropped() {
    let caller = shared().await;
    let sink = Sink::start();
    let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
    for (path, body, dropped) in
        [("/kept", "[1]", None), ("/empty", "", None), ("/deep", deep.as_str(), Some("too_deep"))]
    {
        sink.answer(path, SinkAnswer::status(200).body(body));
        let id = caller.submit_id(hook(&sink, path, json!({}))).await;
        caller.until(&id, "COMPLETED").await;
        let run = &caller.runs(&id).await[0];
        assert_eq!(run.get("result_dropped").map(|word| word.as_str().unwrap()), dropped, "{path}");
        assert_eq!((&run["outcome"], &run["http_status"]), (&json!("completed"), &json!(200)));
    }
}

#[tokio::test]
async fn a_result_up_to_64_kib_is_kept() {
    let caller = shared().await;
    let sink = Sink::start();
    let longest = json!("x".repeat(64 * 1024 - 2));
    sink.answer("/fits", SinkAnswer::json(&longest));
    sink.answer("/over", SinkAnswer::json(&json!("x".repeat(64 * 1024))));
    let fits = caller.submit_id(hook(&sink, "/fits", json!({}))).await;
    let over = caller.submit_id(hook(&sink, "/over", json!({}))).await;
    assert!(caller.until(&fits, "COMPLETED").await["result"] == longest, "the result was not kept");
    assert!(caller.until(&over, "COMPLETED").await["result"].is_null(), "half a result was kept");
    assert_eq!(caller.runs(&over).await[0]["result_dropped"], "too_large");
}
