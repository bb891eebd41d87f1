//! Roles: each call of the document, tried with each role and with none.

use std::collections::HashMap;

use punctual_testkit::http::{ApiCall, ApiClient};
use serde_json::{Value, json};

use super::{Guarded, ROLES};
use crate::it::world::unknown_task;

/// What the contract says about a call, told apart from the server's own table: the roles that may
/// make it.
fn allowed(method: &str, path: &str) -> &'static [&'static str] {
    let ends = |words: &[&str]| words.iter().any(|word| path.ends_with(word));
    match (method, path) {
        (_, "/v1/whoami") => &ROLES,
        (_, path) if path.starts_with("/v1/admin/breakers") => &["operator", "admin"],
        (_, path) if path.starts_with("/v1/admin/") => &["admin"],
        (_, "/metrics") => &["operator", "admin"],
        ("POST", "/v1/tasks" | "/v1/tasks/batch") => &["submitter", "admin"],
        ("POST", path) if path.starts_with("/v1/leases") || ends(&["/complete", "/fail", "/heartbeat", "/release"]) => {
            &["worker", "admin"]
        }
        ("GET", _) | (_, "/v1/schedules/preview") => &["viewer", "submitter", "operator", "admin"],
        (_, _) if ends(&["/redrive", "/purge"]) => &["operator", "admin"],
        (_, path) if path.starts_with("/v1/schedules") || path.starts_with("/v1/queues") => &["operator", "admin"],
        _ => &["submitter", "operator", "admin"],
    }
}

fn call(client: &ApiClient, method: &str, path: &str) -> ApiCall {
    let (task, key) = (unknown_task(), unknown_task().replace("task_", "key_"));
    let path = path.replace("{id}", &task).replace("{name}", "nothing").replace("{tenant}", "nobody");
    let call = client.call(method, &path.replace("{key_id}", &key));
    if method == "GET" || method == "DELETE" { call } else { call.json(&json!({})) }
}

#[tokio::test]
async fn every_call_is_open_to_its_roles_alone() {
    let world = Guarded::start().await;
    let mut callers = HashMap::new();
    for role in ROLES {
        callers.insert(role, world.role(role).await);
    }
    let document = world.stranger().get("/openapi.json").await.expect(200);
    let paths = document["paths"].as_object().unwrap();
    let mut calls: Vec<(String, &String)> = Vec::new();
    for (path, item) in paths {
        calls.extend(item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path)));
    }
    assert!(calls.len() > 70, "the document was not read: {}", calls.len());
    for (method, path) in calls {
        if ["/healthz", "/readyz"].contains(&path.as_str()) {
            assert_eq!(call(&world.stranger(), &method, path).send().await.status(), 200, "{path}");
            continue;
        }
        call(&world.stranger(), &method, path).send().await.problem_code(401, "unauthenticated");
        for role in ROLES {
            let answer = call(&callers[role], &method, path).send().await;
            let may = allowed(&method, path).contains(&role);
            assert_ne!(answer.status(), 401, "{role}: {answer}");
            assert_eq!(answer.status() != 403, may, "{role} may {method} {path}: {may}\n{answer}");
            if !may {
                answer.problem_code(403, "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn what_is_not_a_call_is_refused() {
    let world = Guarded::start().await;
    let viewer = world.role("viewer").await;
    world.stranger().get("/v1/nothing").await.problem_code(401, "unauthenticated");
    viewer.get("/v1/nothing").await.problem_code(404, "not_found");
    viewer.call("OPTIONS", "/v1/tasks").send().await.problem_code(403, "forbidden");
    for path in ["/", "/openapi.json", "/healthz", "/readyz"] {
        world.stranger().get(path).await.expect(200);
    }
    let schemes = &world.stranger().get("/openapi.json").await.expect(200)["components"]["securitySchemes"];
    assert_eq!(schemes["ApiKey"]["scheme"], "bearer");
}

#[tokio::test]
async fn metrics_can_be_public() {
    let world = Guarded::start_with(|serve| serve.setting("AUTH__PUBLIC_METRICS", "true")).await;
    assert_eq!(world.stranger().get("/metrics").await.status(), 200);
}

#[tokio::test]
async fn a_node_without_the_api_guards_its_metrics() {
    let world = Guarded::start_with(|serve| serve.arg("--roles").arg("leader")).await;
    world.stranger().get("/healthz").await.expect(200);
    world.stranger().get("/metrics").await.problem_code(401, "unauthenticated");
    assert_eq!(world.admin.get("/metrics").await.status(), 200);
}

/// While authentication is on, neither the name of the server nor the site of a page counts.
#[tokio::test]
async fn a_server_with_keys_has_any_name() {
    let world = Guarded::start().await;
    let call = world.admin.call("GET", "/v1/tasks").header("host", "punctual.example");
    call.header("origin", "https://elsewhere.example").send().await.expect(200);
}

#[tokio::test]
async fn while_authentication_is_off_everyone_is_an_admin() {
    let world = crate::it::world::shared().await;
    let who = world.api.get("/v1/whoami").await.expect(200);
    assert_eq!(
        [&who["principal"], &who["role"], &who["key_id"], &who["payloads"]],
        [&json!("anyone"), &json!("admin"), &Value::Null, &json!(true)]
    );
}
