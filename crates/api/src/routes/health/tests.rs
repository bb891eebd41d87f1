use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use punctual_core::store::Store;
use serde_json::json;

use crate::metrics::{MeasuredStore, Metrics};
use crate::readiness::{ProbeFault, Probes, ReadinessProbe, probe};
use crate::state::ApiConfig;
use crate::testing::{START, World};

#[tokio::test(start_paused = true)]
async fn readiness_follows_the_parts_and_liveness_does_not() {
    let broker_works = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&broker_works);
    let broker = probe(move || {
        let works = asked.load(Ordering::SeqCst);
        async move { if works { Ok(()) } else { Err("amqp://user:secret@host is gone") } }
    });
    let world = World::with(ApiConfig::default(), Probes { broker: Some(broker), migrations: None });
    let ready = world.send("GET", "/readyz", None).await;
    assert_eq!(ready.status, StatusCode::OK);
    assert_eq!(ready.json(), json!({"status": "ready", "checks": {"store": "ok", "broker": "ok", "migrations": "ok"}}));

    broker_works.store(false, Ordering::SeqCst);
    world.store.broken.store(true, Ordering::SeqCst);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let unready = world.send("GET", "/readyz", None).await;
    assert_eq!(unready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(unready.headers[CONTENT_TYPE], "application/json");
    assert_eq!(
        unready.json(),
        json!({"status": "unready", "checks": {"store": "failed", "broker": "failed", "migrations": "ok"}})
    );
    assert_eq!(world.send("GET", "/healthz", None).await.json(), json!({"status": "ok"}));
}

#[tokio::test(start_paused = true)]
async fn frequent_questions_cause_few_checks() {
    let world = World::new();
    for _ in 0..100 {
        assert_eq!(world.send("GET", "/readyz", None).await.status, StatusCode::OK);
    }
    assert_eq!(world.store.checked.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_does_not_answer_has_failed() {
    let migrations = probe(std::future::pending::<Result<(), String>>);
    let world = World::with(ApiConfig::default(), Probes { broker: None, migrations: Some(migrations) });
    assert_eq!(world.send("GET", "/readyz", None).await.json()["checks"]["migrations"], "failed");
}

#[tokio::test(start_paused = true)]
async fn migrations_are_not_blamed_while_the_store_is_away() {
    for (fault, expected) in
        [(ProbeFault::NoAnswer("gone".into()), "unknown"), (ProbeFault::Failed("too old".into()), "failed")]
    {
        let migrations: ReadinessProbe = Arc::new(move || Box::pin(std::future::ready(Err(fault.clone()))));
        let world = World::with(ApiConfig::default(), Probes { broker: None, migrations: Some(migrations) });
        world.store.broken.store(true, Ordering::SeqCst);
        let answer = world.send("GET", "/readyz", None).await;
        assert_eq!(answer.json()["checks"], json!({"store": "failed", "broker": "ok", "migrations": expected}));
    }
}

#[tokio::test]
async fn a_draining_node_is_not_ready() {
    let world = World::new();
    world.api.operations.drain();
    let answer = world.send("GET", "/readyz", None).await;
    assert_eq!((answer.status, &answer.json()["status"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("draining")));
}

#[tokio::test(start_paused = true)]
async fn a_scrape_does_not_wait_for_a_slow_store() {
    let world = World::new();
    world.store.count_millis.store(2_000, Ordering::SeqCst);
    let begun = tokio::time::Instant::now();
    let answer = world.send("GET", "/metrics", None).await;
    assert!(begun.elapsed() <= Duration::from_millis(50), "{:?}", begun.elapsed());
    assert!(answer.text.contains("punctual_build_info") && !answer.text.contains("punctual_tasks{"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let answer = world.send("GET", "/metrics", None).await;
    assert!(answer.text.contains("punctual_tasks{state=\"PENDING\"} 0\n"), "{}", answer.text);
}

#[tokio::test(start_paused = true)]
async fn frequent_scrapes_cause_few_counts() {
    let world = World::new();
    for _ in 0..3 {
        world.send("POST", "/v1/tasks", Some(json!({"type": "work"}))).await;
    }
    for _ in 0..20 {
        let answer = world.send("GET", "/metrics", None).await;
        assert_eq!(answer.headers[CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
        assert!(answer.text.contains("punctual_tasks{state=\"PENDING\"} 3\n"), "{}", answer.text);
        assert!(answer.text.contains("punctual_tasks_submitted_total 3\n"));
        assert!(answer.text.contains("punctual_tasks_quarantined{} 0\n"), "{}", answer.text);
    }
    assert_eq!(world.store.counted.load(Ordering::SeqCst), 1);
    world.store.broken.store(true, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(6)).await;
    let answer = world.send("GET", "/metrics", None).await;
    let old = ["punctual_tasks{", "punctual_tasks_quarantined{} 0"];
    assert!(!old.iter().any(|old| answer.text.contains(old)), "an old number is not shown: {}", answer.text);
}

#[tokio::test]
async fn calls_of_the_store_and_their_errors_are_measured() {
    let world = World::new();
    let metrics = Metrics::new(START);
    let store = MeasuredStore::new(world.store.clone(), metrics.store.clone());
    let shown = |lines: [&str; 3]| {
        let text = metrics.prometheus();
        assert!(lines.iter().all(|line| text.lines().any(|shown| shown == *line)), "not all of {lines:?} in {text}");
    };
    let unavailable = "punctual_store_errors_total{error=\"unavailable\"}";
    store.check().await.unwrap();
    let calls = "punctual_store_call_seconds_count{call=\"check\"}";
    shown(["punctual_store_up 1", &format!("{unavailable} 0"), &format!("{calls} 1")]);
    world.store.broken.store(true, Ordering::SeqCst);
    store.check().await.unwrap_err();
    shown(["punctual_store_up 0", &format!("{unavailable} 1"), &format!("{calls} 2")]);
    world.store.broken.store(false, Ordering::SeqCst);
    store.check().await.unwrap();
    shown(["punctual_store_up 1", &format!("{unavailable} 1"), &format!("{calls} 3")]);
}

#[tokio::test]
async fn a_caller_that_accepts_openmetrics_gets_it() {
    let world = World::new();
    let accept = ("accept", "application/openmetrics-text;version=1.0.0,*/*;q=0.1");
    let answer = world.send_with("GET", "/metrics", accept).await;
    assert!(answer.headers[CONTENT_TYPE].to_str().unwrap().starts_with("application/openmetrics-text"));
    assert!(answer.text.ends_with("# EOF\n"));
}
