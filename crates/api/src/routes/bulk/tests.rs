use serde_json::{Value, json};

use crate::testing::World;

const CANCEL: &str = "/v1/tasks/cancel";

async fn waiting(world: &World, customer: &str) -> String {
    let task = json!({"type": "t", "delay_seconds": 60, "payload": 1, "metadata": {"customer": customer}});
    world.submit(task).await
}

fn of_customer(customer: &str) -> Value {
    json!({"filter": {"metadata": {"customer": customer}}})
}

#[tokio::test]
async fn a_dry_run_counts_and_changes_nothing() {
    let world = World::new();
    let id = waiting(&world, "a").await;
    waiting(&world, "b").await;
    let wanted = crate::testing::merged(of_customer("a"), json!({"dry_run": true}));
    let found = world.send("POST", CANCEL, Some(wanted)).await.expect(200);
    assert_eq!((&found["matched"], &found["more"]), (&json!(1), &json!(false)));
    assert_eq!(found["sample"][0]["task_id"], id.as_str());
    assert!(found["sample"][0].get("payload").is_none(), "{found}");
    assert_eq!(world.get("/v1/operations").await["items"], json!([]));
}

#[tokio::test]
async fn an_operation_can_be_read_and_cancelled() {
    let world = World::new();
    waiting(&world, "a").await;
    let begun = world.send("POST", CANCEL, Some(of_customer("a"))).await;
    let operation = begun.expect(202);
    assert_eq!((&operation["state"], &operation["kind"]), (&json!("running"), &json!("cancel")));
    assert_eq!((&operation["total"], &operation["done"]), (&json!(1), &json!(0)));
    let path = begun.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(world.get(&path).await, operation);
    assert_eq!(world.get("/v1/operations").await["items"], json!([operation]));
    let other = world.send_with("GET", &path, ("punctual-tenant", "other")).await;
    assert_eq!((other.status.as_u16(), other.problem().as_str()), (404, "not_found"));
    let cancelled = world.send("DELETE", &path, None).await.expect(200);
    assert_eq!(cancelled["state"], "cancelled");
    assert_eq!(world.send("DELETE", &path, None).await.expect(200), cancelled, "again changes nothing");
}

#[tokio::test]
async fn only_a_redrive_brings_dependents_back() {
    let world = World::new();
    let wanted = crate::testing::merged(of_customer("a"), json!({"dependents": true}));
    let begun = world.send("POST", "/v1/dead-letters/redrive", Some(wanted.clone())).await.expect(202);
    assert_eq!(begun["kind"], "redrive");
    for path in [CANCEL, "/v1/dead-letters/purge"] {
        assert_eq!(world.send("POST", path, Some(wanted.clone())).await.pointers(), ["/dependents"], "{path}");
    }
}

#[tokio::test]
async fn a_faulty_filter_is_pointed_at() {
    let world = World::new();
    let filter = json!({"type": "a b", "created_after": "yesterday", "status": ["COMPLETED"]});
    let mut pointers = world.send("POST", CANCEL, Some(json!({"filter": filter}))).await.pointers();
    pointers.sort();
    assert_eq!(pointers, ["/filter/created_after", "/filter/status", "/filter/type"]);
    let missing = world.send("POST", "/v1/dead-letters/purge", Some(json!({}))).await;
    assert_eq!(missing.status.as_u16(), 422, "{}", missing.text);
    let unknown = world.send("POST", "/v1/dead-letters/redrive", Some(json!({"filter": {"tpye": "t"}}))).await;
    assert_eq!(unknown.status.as_u16(), 422, "{}", unknown.text);
}

#[tokio::test]
async fn a_tenant_has_few_operations_at_once() {
    let world = World::new();
    for _ in 0..10 {
        world.send("POST", CANCEL, Some(of_customer("a"))).await.expect(202);
    }
    let refused = world.send("POST", CANCEL, Some(of_customer("a"))).await;
    assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (429, "quota_exceeded"));
    let first = world.get("/v1/operations").await["items"][0]["operation_id"].as_str().unwrap().to_owned();
    world.send("DELETE", &format!("/v1/operations/{first}"), None).await.expect(200);
    world.send("POST", CANCEL, Some(of_customer("a"))).await.expect(202);
}
