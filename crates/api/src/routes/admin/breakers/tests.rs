use punctual_core::breakers::Breakers;
use serde_json::{Value, json};

use crate::testing::{Answer, World, open_breaker};

const TARGET: &str = "https://example.com:443";

/// A world with a breaker over this target of the tenant `acme`, and one over all of the tenant.
async fn broken() -> World {
    let world = World::new();
    for target in [TARGET, ""] {
        assert!(world.sqlite.open_breaker(open_breaker("acme", target, 60_000)).await.unwrap());
    }
    world
}

async fn reset(world: &World, body: Value) -> Answer {
    world.send("POST", "/v1/admin/breakers/reset", Some(body)).await
}

/// The targets of the breakers that are open.
async fn open(world: &World) -> Vec<Value> {
    let mut page = world.get("/v1/admin/breakers").await;
    page["items"].as_array_mut().unwrap().iter_mut().map(|item| item["target"].take()).collect()
}

#[tokio::test]
async fn a_breaker_shows_runs_and_failures() {
    let shown = broken().await.get("/v1/admin/breakers").await["items"][0].take();
    assert_eq!((&shown["runs"], &shown["failures"]), (&json!(20), &json!(19)), "{shown}");
}

#[tokio::test]
async fn a_reset_names_one_open_breaker() {
    let world = broken().await;
    let (missing, invalid) = ((404, "not_found"), (422, "invalid_request"));
    for (body, expected) in [
        (json!({"tenant": "acme", "target": "https://other:443"}), missing),
        (json!({"tenant": "acme", "target": "http://example.com:443"}), missing),
        (json!({"tenant": "other", "target": TARGET}), missing),
        (json!({"tenant": "acme\0"}), invalid),
        (json!({"tenant": "a b"}), invalid),
        (json!({"tenant": "acme", "target": "\0"}), invalid),
        (json!({"tenant": "acme", "target": ""}), invalid),
        (json!({"tenant": "acme", "target": "example.com"}), invalid),
        (json!({"tenant": "acme", "target": "ftp://example.com"}), invalid),
        (json!({"target": TARGET}), invalid),
        (json!({"tenant": "acme", "host": TARGET}), invalid),
    ] {
        let answer = reset(&world, body.clone()).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), expected, "{body}: {}", answer.text);
    }
    assert_eq!(open(&world).await, [Value::Null, json!(TARGET)]);
    let advice = "target: must be an absolute URL; write it like a callback URL, or leave it out for the breaker over all of \
                  the tenant";
    assert_eq!(reset(&world, json!({"tenant": "acme", "target": "example.com"})).await.json()["detail"], advice);
}

#[tokio::test]
async fn a_target_may_be_spelt_like_a_callback_url() {
    for spelling in [TARGET, "HTTPS://Example.COM", "https://example.com/hooks/a?b=1#c", "https://EXAMPLE.com:443/"] {
        let world = broken().await;
        let answer = reset(&world, json!({"tenant": "acme", "target": spelling})).await;
        assert_eq!((answer.status.as_u16(), open(&world).await), (204, vec![Value::Null]), "{spelling}");
    }
}

#[tokio::test]
async fn without_a_target_the_tenants_breaker_is_reset() {
    let world = broken().await;
    assert_eq!(reset(&world, json!({"tenant": "acme"})).await.status, 204);
    assert_eq!(open(&world).await, [json!(TARGET)]);
    assert_eq!(reset(&world, json!({"tenant": "acme", "target": null})).await.status, 404);
}
