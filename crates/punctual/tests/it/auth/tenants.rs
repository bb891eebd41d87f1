//! Tenants and their keys, as an administrator keeps them.

use serde_json::{Value, json};

use super::{Guarded, new_key};
use crate::it::world::{array, expect_id, id_of};

#[tokio::test]
async fn a_tenant_is_created_changed_and_removed() {
    let world = Guarded::start().await;
    let admin = &world.admin;
    let limits = json!({"submissions_per_second": 2.5, "burst": 7, "waiting_tasks": 1_000, "min_schedule_seconds": 60});
    let made = admin.post("/v1/admin/tenants", &json!({"name": "acme", "weight": 3, "limits": limits})).await;
    assert_eq!(made.header("location"), Some("/v1/admin/tenants/acme"));
    let made = made.expect(201);
    assert_eq!((&made["weight"], &made["limits"]["burst"]), (&json!(3), &json!(7)));
    assert_eq!(made["limits"]["payload_bytes"], Value::Null);
    admin.post("/v1/admin/tenants", &json!({"name": "acme"})).await.problem_code(409, "tenant_exists");

    let path = "/v1/admin/tenants/acme";
    let patch = json!({"weight": 1, "limits": {"burst": null, "concurrent_runs": 5}});
    let changed = admin.patch(path, &patch).await;
    assert_eq!(changed.header("etag"), Some("\"2\""));
    let changed = changed.expect(200);
    assert_eq!(
        [&changed["weight"], &changed["limits"]["burst"], &changed["limits"]["concurrent_runs"]],
        [&json!(1), &Value::Null, &json!(5)]
    );
    assert_eq!(changed["limits"]["waiting_tasks"], 1_000);
    assert_eq!(admin.patch(path, &patch).await.expect(200)["version"], 2, "nothing is new");
    let stale = admin.call("PATCH", path).header("if-match", "\"1\"").json(&json!({"weight": 9}));
    stale.send().await.problem_code(412, "version_mismatch");
    assert_eq!(admin.get(path).await.expect(200), changed);
    let listed = admin.get("/v1/admin/tenants").await.expect(200);
    let names: Vec<Value> = array(&listed["items"]).iter().map(|tenant| tenant["name"].clone()).collect();
    assert_eq!(names, [json!("acme"), json!("default")]);

    let caller = world.caller("acme", json!({"role": "submitter"})).await;
    let task = caller.post("/v1/tasks", &json!({"type": "t", "delay_seconds": 600})).await.expect(201);
    admin.delete(path).await.problem_code(409, "tenant_not_empty");
    caller.delete(&format!("/v1/tasks/{}", id_of(&task))).await.expect(200);
    admin.delete("/v1/admin/tenants/default").await.problem_code(409, "tenant_not_empty");
    assert_eq!(admin.delete(path).await.status(), 204);
    admin.get(path).await.problem_code(404, "not_found");
    admin.delete(path).await.problem_code(404, "not_found");
}

#[tokio::test]
async fn all_faults_of_a_tenant_and_of_a_key_are_reported() {
    let world = Guarded::start().await;
    let limits = json!({
        "submissions_per_second": 0, "burst": 0, "waiting_tasks": -1, "payload_bytes": 1.5,
        "min_schedule_seconds": -1, "schedule": 1,
    });
    let faulty = json!({"name": "a b", "weight": 0, "limits": limits});
    let answer = world.admin.post("/v1/admin/tenants", &faulty).await;
    for pointer in [
        "/name",
        "/weight",
        "/limits/submissions_per_second",
        "/limits/burst",
        "/limits/waiting_tasks",
        "/limits/payload_bytes",
        "/limits/min_schedule_seconds",
        "/limits/schedule",
    ] {
        answer.invalid(pointer);
    }
    let keys = "/v1/admin/tenants/default/keys";
    let faulty = json!({"name": "", "role": "king", "types": ["a b", "x"], "queues": "q"});
    let answer = world.admin.post(keys, &faulty).await;
    for pointer in ["/name", "/role", "/types/0", "/queues"] {
        answer.invalid(pointer);
    }
    for (key, pointer) in [
        (json!({"name": "k", "role": "admin", "queues": ["q"]}), "/queues"),
        (json!({"name": "k", "role": "admin", "payloads": false}), "/payloads"),
        (json!({"name": "k", "role": "worker", "queues": ["q"], "types": ["t"]}), "/types"),
        (json!({"name": "k", "role": "viewer", "types": vec!["t"; 33]}), "/types"),
    ] {
        world.admin.post(keys, &key).await.invalid(pointer);
    }
    let key = json!({"name": "k", "role": "viewer"});
    world.admin.post("/v1/admin/tenants/nobody/keys", &key).await.problem_code(404, "not_found");
    world.admin.get("/v1/admin/tenants/nobody/keys").await.problem_code(404, "not_found");
}

#[tokio::test]
async fn keys_are_listed_without_their_secrets() {
    let world = Guarded::start().await;
    world.tenant("acme").await;
    let (first, key) = new_key(&world.admin, "acme", json!({"role": "viewer", "queues": ["a", "b.*"]})).await;
    let (second, _) = new_key(&world.admin, "acme", json!({"role": "worker"})).await;
    expect_id(&first, "key_");
    assert!(key.starts_with("pk_testkey_"), "{key}");
    let page = world.admin.get("/v1/admin/tenants/acme/keys?limit=1").await.expect(200);
    let item = &page["items"][0];
    assert_eq!(
        [&item["key_id"], &item["tenant"], &item["role"], &item["queues"], &item["payloads"], &item["last_used_at"]],
        [&json!(first), &json!("acme"), &json!("viewer"), &json!(["a", "b.*"]), &json!(true), &Value::Null]
    );
    assert!(item.get("key").is_none() && item.get("digest").is_none(), "{item:#}");
    let cursor = page["next_cursor"].as_str().unwrap();
    let page = world.admin.get(&format!("/v1/admin/tenants/acme/keys?limit=1&cursor={cursor}")).await.expect(200);
    assert_eq!((&page["items"][0]["key_id"], &page["next_cursor"]), (&json!(second), &Value::Null));
    let path = format!("/v1/admin/tenants/acme/keys/{first}");
    world.admin.delete(&path.replace("acme", "default")).await.problem_code(404, "not_found");
    assert_eq!(world.admin.delete(&path).await.status(), 204);
    world.admin.delete(&path).await.problem_code(404, "not_found");
}
