use std::sync::Arc;

use axum::body::Body;
use axum::http::Request as HttpRequest;
use axum::http::header::RETRY_AFTER;
use axum::routing::{get, post};
use parking_lot::Mutex;
use tower::ServiceExt;

use super::*;
use crate::admission::BODY_WAITERS_MAX;
use crate::readiness::Probes;
use crate::state::ApiConfig;
use crate::testing::{Answer, DEADLINE, World, body};

fn request(method: &str, path: &str) -> HttpRequest<Body> {
    HttpRequest::builder().method(method).uri(path).header("host", "localhost").body(Body::empty()).unwrap()
}

/// An answer of `routes` with the middleware of `world`.
async fn behind(world: &World, routes: Router, request: HttpRequest<Body>) -> Answer {
    Answer::of(
        apply(routes, Arc::clone(&world.api.operations), None, Parameterless::default())
            .oneshot(request)
            .await
            .unwrap(),
    )
    .await
}

#[tokio::test]
async fn an_answer_has_the_id_its_caller_gave() {
    let answer = World::new().send_with("GET", "/nowhere", ("request-id", "mine-7")).await;
    assert_eq!(answer.headers[REQUEST_ID], "mine-7");
}

#[tokio::test]
async fn every_answer_says_what_may_be_done_with_it() {
    let world = World::new();
    for path in ["/nowhere", "/v1/tasks", "/v1/nowhere", "/", "/openapi.json", "/metrics"] {
        let headers = world.send("GET", path, None).await.headers;
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert!(!headers.contains_key("strict-transport-security"), "{path}");
        assert_eq!(headers.get("cache-control").is_some(), path.starts_with("/v1/"), "{path}");
    }
    let mut secure = request("GET", "/nowhere");
    secure.extensions_mut().insert(OverTls);
    let answer = behind(&world, Router::new(), secure).await;
    assert_eq!(answer.headers["strict-transport-security"], "max-age=31536000");
}

#[tokio::test]
async fn a_long_uri_is_refused() {
    let world = World::new();
    for (length, code) in [(URI_BYTES_MAX - 1, "not_found"), (URI_BYTES_MAX, "uri_too_long")] {
        let answer = world.send("GET", &format!("/{}", "y".repeat(length)), None).await;
        assert_eq!(answer.problem(), code);
    }
    let long = format!("/v1/tasks?type={}", "y".repeat(URI_BYTES_MAX));
    assert_eq!(world.send("GET", &long, None).await.problem(), "uri_too_long");
}

#[tokio::test]
async fn a_caller_that_takes_no_json_gets_406() {
    let world = World::new();
    for (accept, status) in [
        ("application/json", 404),
        ("text/html, application/*;q=0.1", 404),
        ("text/html,*/*;q=0.8", 404),
        ("text/html", 406),
        ("application/json;q=0", 406),
        ("application/xml, text/*", 406),
    ] {
        let answer = world.send_with("GET", "/v1/tasks/task_none", ("accept", accept)).await;
        assert_eq!(answer.status, status, "{accept}");
    }
}

#[tokio::test]
async fn a_panic_is_a_500_without_its_message() {
    let world = World::new();
    let routes = Router::new().route("/boom", get(async || -> String { panic!("the secret is 42") }));
    let answer = behind(&world, routes, request("GET", "/boom")).await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.problem(), Code::Internal.as_str());
    assert!(!answer.text.contains("42"));
    assert!(answer.headers.contains_key(REQUEST_ID));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_only_probes_are_served() {
    let config = ApiConfig { requests_in_flight: 1, ..ApiConfig::default() };
    let world = World::with(config, Probes::default());
    let _permit = world.api.admission.admit(&request("GET", "/v1/workers")).await.unwrap();
    let answer = world.call(request("GET", "/v1/workers")).await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "overloaded"));
    assert_eq!(answer.headers[RETRY_AFTER], "1");
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(world.call(request("GET", path)).await.status, 200, "{path}");
    }
}

/// Of a batch.
const BODY_BYTES: usize = 100_000;

/// A batch that notes when its body is read.
fn batch(read: Arc<Mutex<Option<Instant>>>) -> HttpRequest<Body> {
    let body = body(Some(BODY_BYTES), move |_| {
        read.lock().get_or_insert_with(Instant::now);
        Poll::Ready(None)
    });
    HttpRequest::post("/v1/tasks/batch").header("host", "localhost").body(Body::new(body)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_body_beyond_the_wait_queue_is_read_and_refused_late() {
    // Bytes for one body; submissions have three quarters of all.
    let config = ApiConfig { bodies_bytes: BODY_BYTES * 4 / 3, ..ApiConfig::default() };
    let world = World::with(config, Probes::default());
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(world.api.admission.admit(&batch(Arc::default())).await.unwrap());
    }
    let began = Instant::now();
    let wait = |read: Arc<Mutex<Option<Instant>>>| {
        let router = world.router.clone();
        async move {
            let answer = Answer::of(router.oneshot(batch(Arc::clone(&read))).await.unwrap()).await;
            assert_eq!(answer.problem(), "overloaded");
            assert_eq!(answer.headers[RETRY_AFTER], "1");
            let read = read.lock().expect("a short body is read before its refusal");
            (read.duration_since(began), began.elapsed())
        }
    };
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..=BODY_WAITERS_MAX {
        flood.spawn(wait(Arc::default()));
    }
    let flood = flood.join_all().await;
    let (outside, waited): (Vec<_>, Vec<_>) = flood.into_iter().partition(|(read, _)| read.is_zero());
    assert_eq!((waited.len(), outside.len()), (BODY_WAITERS_MAX, 1));
    assert!(waited.iter().all(|(read, refused)| read == refused), "they could have been admitted until then");
    assert!(!outside[0].1.is_zero(), "an immediate refusal invites an immediate retry");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_is_408() {
    let world = World::new();
    let routes = Router::new().route("/read", post(async |body: String| body));
    let reading =
        HttpRequest::post("/read").header("host", "localhost").body(Body::new(body(None, |_| Poll::Pending))).unwrap();
    let answer = behind(&world, routes, reading).await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::REQUEST_TIMEOUT, "request_timeout"));
}

#[tokio::test]
async fn requests_are_counted_by_route_not_by_path() {
    let world = World::new();
    for path in ["/v1/tasks/task_a", "/v1/tasks/task_b", "/nowhere/1", "/nowhere/2"] {
        world.call(request("GET", path)).await;
    }
    world.call(request("INVENTED", "/nowhere/3")).await;
    let metrics = world.api.operations.metrics.prometheus();
    for line in [
        r#"punctual_http_requests_total{method="GET",route="/v1/tasks/{id}",status="4xx"} 2"#,
        r#"punctual_http_requests_total{method="GET",route="unmatched",status="4xx"} 2"#,
        r#"punctual_http_requests_total{method="other",route="unmatched",status="4xx"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(!metrics.contains("task_a") && !metrics.contains("INVENTED"));
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_outlasts_the_deadline() {
    let world = World::new();
    let body = serde_json::json!({"worker_id": "w", "queues": ["q"], "wait_seconds": 2 * DEADLINE.as_secs()});
    let answer = world.send("POST", "/v1/leases", Some(body)).await;
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::OK, r#"{"leases":[]}"#));
}
