use axum::http::StatusCode;
use punctual_core::breakers::{BreakerEvent, BreakerKey, Breakers, FailedProbe, OpenBreaker, Runs};
use punctual_core::ids::TaskId;
use serde_json::{Value, json};

use crate::testing::{START, World};

const TARGET: &str = "https://example.com:443";

async fn open(world: &World, key: BreakerKey) {
    let breaker = OpenBreaker {
        key,
        opened_at: START,
        next_probe_at: START.plus_millis(60_000),
        runs: Runs { ok: 1, failed: 19 },
        reason: "19 of 20 runs failed".to_owned(),
        half_open: false,
        probe: None,
        overtaken: Vec::new(),
        last_probe: None,
    };
    assert!(world.sqlite.open_breaker(breaker).await.unwrap());
}

async fn list(world: &World, query: &str) -> Value {
    let answer = world.send("GET", &format!("/v1/admin/breakers{query}"), None).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    answer.json().clone()
}

#[tokio::test]
async fn open_breakers_are_shown_with_their_probes() {
    let world = World::new();
    assert_eq!(list(&world, "").await, json!({"items": [], "next_cursor": null}));
    open(&world, BreakerKey::new("acme", TARGET)).await;
    open(&world, BreakerKey::of_tenant("acme")).await;
    let (now, next) = (START.plus_millis(60_000), START.plus_millis(120_000));
    let ask = BreakerEvent::RequestProbe { now, next };
    world.sqlite.change_breaker(&BreakerKey::new("acme", TARGET), ask).await.unwrap();
    let shown = |target: Value, state: &str, next_probe_at| {
        json!({"tenant": "acme", "target": target, "state": state, "since": START, "runs": 20, "failures": 19,
               "next_probe_at": next_probe_at, "probe": null, "reason": "19 of 20 runs failed",
               "last_probe_at": null, "last_probe_error": null})
    };
    let expected = [shown(Value::Null, "open", now), shown(TARGET.into(), "half_open", next)];
    assert_eq!(list(&world, "").await["items"], Value::from(expected.to_vec()));
}

#[tokio::test]
async fn the_error_of_the_last_probe_is_shown() {
    let world = World::new();
    let (key, probe, next) = (BreakerKey::new("acme", TARGET), TaskId::new(), START.plus_millis(120_000));
    open(&world, key.clone()).await;
    let failed = FailedProbe::new(START.plus_millis(61_000), "connection refused");
    for event in [
        BreakerEvent::RequestProbe { now: START.plus_millis(60_000), next },
        BreakerEvent::NameProbe { next, task: probe },
        BreakerEvent::Failed(probe, failed.clone()),
    ] {
        world.sqlite.change_breaker(&key, event).await.unwrap();
    }
    let shown = list(&world, "").await["items"][0].clone();
    assert_eq!(shown["last_probe_at"], json!(failed.at));
    assert_eq!((&shown["last_probe_error"], &shown["state"]), (&json!("connection refused"), &json!("open")));
}

#[tokio::test]
async fn breakers_of_one_tenant_are_listed_alone() {
    let world = World::new();
    for (tenant, target) in [("a", ""), ("a", TARGET), ("b", ""), ("b", "http://x:80"), ("b", TARGET), ("c", TARGET)] {
        open(&world, BreakerKey::new(tenant, target)).await;
    }
    let targets = async |query: &str| {
        let page = list(&world, query).await;
        let items = page["items"].as_array().unwrap().clone();
        let targets: Vec<Value> = items.into_iter().map(|mut item| item["target"].take()).collect();
        (targets, page["next_cursor"].as_str().map(str::to_owned))
    };
    let of_b = [Value::Null, json!("http://x:80"), json!(TARGET)];
    assert_eq!(targets("?tenant=b").await, (of_b.to_vec(), None));
    assert_eq!(targets("?tenant=c").await, (vec![json!(TARGET)], None), "it has none over everything");
    assert_eq!(targets("?tenant=nobody").await, (Vec::new(), None));
    let (first, next) = targets("?tenant=b&limit=1").await;
    let next = next.expect("there is more");
    let (second, last) = targets(&format!("?tenant=b&limit=2&cursor={next}")).await;
    assert_eq!((first, second, last), (of_b[..1].to_vec(), of_b[1..].to_vec(), None));
    for (query, status, code) in [
        (format!("?tenant=a&cursor={next}"), StatusCode::BAD_REQUEST, "invalid_cursor"),
        (format!("?cursor={next}"), StatusCode::BAD_REQUEST, "invalid_cursor"),
        ("?tenant=".to_owned(), StatusCode::UNPROCESSABLE_ENTITY, "invalid_request"),
    ] {
        let answer = world.send("GET", &format!("/v1/admin/breakers{query}"), None).await;
        assert_eq!((answer.status, answer.json()["code"].as_str()), (status, Some(code)), "{query}");
    }
}

#[tokio::test]
async fn pages_follow_each_other() {
    let world = World::new();
    for tenant in ["a", "b"] {
        for target in ["", "http://x:80", "http://y:80"] {
            open(&world, BreakerKey::new(tenant, target)).await;
        }
    }
    let (mut seen, mut query) = (Vec::new(), "?limit=2".to_owned());
    for _ in 0..3 {
        let page = list(&world, &query).await;
        for item in page["items"].as_array().unwrap() {
            seen.push(format!("{}/{}", item["tenant"].as_str().unwrap(), item["target"].as_str().unwrap_or_default()));
        }
        query = format!("?limit=2&cursor={}", page["next_cursor"].as_str().unwrap_or("none"));
    }
    assert_eq!(query, "?limit=2&cursor=none");
    assert_eq!(seen, ["a/", "a/http://x:80", "a/http://y:80", "b/", "b/http://x:80", "b/http://y:80"]);
    let answer = world.send("GET", "/v1/admin/breakers?cursor=none", None).await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (StatusCode::BAD_REQUEST, Some("invalid_cursor")));
}

#[tokio::test]
async fn a_breaker_is_reset_by_its_tenant_and_target() {
    let world = World::new();
    open(&world, BreakerKey::new("acme", TARGET)).await;
    open(&world, BreakerKey::of_tenant("acme")).await;
    let reset = async |body: Value| world.send("POST", "/v1/admin/breakers/reset", Some(body)).await;
    for (body, status, code) in [
        (json!({"tenant": "acme", "target": "https://other:443"}), StatusCode::NOT_FOUND, "not_found"),
        (json!({"tenant": "other", "target": TARGET}), StatusCode::NOT_FOUND, "not_found"),
        (json!({"tenant": "acme\0"}), StatusCode::NOT_FOUND, "not_found"),
        (json!({"tenant": "acme", "target": "http://example.com:443"}), StatusCode::NOT_FOUND, "not_found"),
        (json!({"tenant": "acme", "target": "\0"}), StatusCode::UNPROCESSABLE_ENTITY, "invalid_request"),
        (json!({"tenant": "acme", "target": ""}), StatusCode::UNPROCESSABLE_ENTITY, "invalid_request"),
        (json!({"tenant": "acme", "target": "example.com"}), StatusCode::UNPROCESSABLE_ENTITY, "invalid_request"),
        (json!({"tenant": "acme", "target": "ftp://example.com"}), StatusCode::UNPROCESSABLE_ENTITY, "invalid_request"),
        (json!({"target": TARGET}), StatusCode::UNPROCESSABLE_ENTITY, "invalid_request"),
        (json!({"tenant": "acme", "host": TARGET}), StatusCode::UNPROCESSABLE_ENTITY, "invalid_request"),
    ] {
        let answer = reset(body.clone()).await;
        assert_eq!((answer.status, answer.json()["code"].as_str()), (status, Some(code)), "{body}: {}", answer.text);
    }
    let refused = reset(json!({"tenant": "acme", "target": "example.com"})).await;
    let advice = "target: must be an absolute URL; write it like a callback URL, or leave it out for the breaker over all of \
                  the tenant";
    assert_eq!(refused.json()["detail"], json!(advice));
    for spelling in [TARGET, "HTTPS://Example.COM", "https://example.com/hooks/a?b=1#c", "https://EXAMPLE.com:443/"] {
        assert_eq!(
            reset(json!({"tenant": "acme", "target": spelling})).await.status,
            StatusCode::NO_CONTENT,
            "{spelling}"
        );
        assert_eq!(list(&world, "").await["items"].as_array().unwrap().len(), 1);
        open(&world, BreakerKey::new("acme", TARGET)).await;
    }
    assert_eq!(reset(json!({"tenant": "acme", "target": TARGET})).await.status, StatusCode::NO_CONTENT);
    assert_eq!(reset(json!({"tenant": "acme"})).await.status, StatusCode::NO_CONTENT);
    assert_eq!(reset(json!({"tenant": "acme", "target": null})).await.status, StatusCode::NOT_FOUND);
    assert_eq!(list(&world, "").await["items"], json!([]));
}
