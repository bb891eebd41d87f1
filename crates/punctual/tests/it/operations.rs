//! The routes for operators and load balancers, on a node of any role, and the output of `punctual
//! migrate`.

use std::process::Output;

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::{Postgres, execute};
use punctual_testkit::process::Serve;
use serde_json::json;

use crate::it::config::{punctual, text};
use crate::it::world::{PUNCTUAL, SOON, World, caller_of};

fn migrate(arguments: &[&str], store: &str) -> Output {
    punctual(&[&["migrate"], arguments].concat(), &[("PUNCTUAL_STORE", store)])
}

#[tokio::test]
async fn a_node_without_the_api_serves_only_health() {
    let world = World::start_with(|serve| serve.arg("--roles").arg("scheduler,worker,leader")).await;
    let api = world.caller().api;
    api.get("/healthz").await.expect(200);
    api.get("/readyz").await.expect(200);
    let metrics = api.get("/metrics").await;
    assert!(metrics.status() == 200 && metrics.text().contains("punctual_partitions_owned"), "{metrics}");
    for path in ["/v1/tasks", "/v1/admin/nodes", "/openapi.json"] {
        api.get(path).await.problem(404);
    }
    api.post("/v1/tasks", &json!({"type": "t"})).await.problem(404);
}

/// Migrating down beside a running node makes it unready; steps of a newer version do not.
#[tokio::test]
async fn a_node_is_ready_while_its_schema_is_complete() {
    let postgres = Postgres::start().await;
    let store = postgres.create_database().await;
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let node = Serve::new(PUNCTUAL, home.path().join("unused")).setting("STORE", &store).start().await;
    let api = caller_of(&node).api;
    let until = async |status: u16, migrations: &str| {
        eventually("/readyz follows the schema", SOON, async || {
            let reply = api.get("/readyz").await;
            let is_so = reply.status() == status && reply.value()["checks"]["migrations"] == migrations;
            if is_so { Ok(()) } else { Err(reply.to_string()) }
        })
        .await;
    };
    until(200, "ok").await;
    let down = migrate(&["down"], &store);
    assert!(down.status.success(), "{}", text(&down.stderr));
    until(503, "failed").await;
    node.until_logged(&["run `punctual migrate up`"]).await;
    let up = migrate(&["up"], &store);
    assert!(up.status.success(), "{}", text(&up.stderr));
    until(200, "ok").await;

    execute(&store, "INSERT INTO punctual.schema_migrations VALUES (9999, 'of the future', '', 0)").await;
    let status = text(&migrate(&["status"], &store).stdout);
    assert!(status.starts_with("0001 tasks applied 20"), "{status}");
    let newer = "the database is at version 9999, which this binary does not know: use a newer one\n";
    assert!(status.ends_with(newer), "{status}");
    until(200, "ok").await;
}

#[test]
fn help_on_migrations_lists_their_own_settings() {
    for direction in ["up", "down", "status"] {
        let help = text(&migrate(&[direction, "--help"], "sqlite").stdout);
        for flag in ["--config", "--data", "--store"] {
            assert!(help.contains(flag), "{direction}: {flag} is not in {help}");
        }
        for flag in ["--listen", "--roles", "--broker", "--coordinator", "--read-store"] {
            assert!(!help.contains(flag), "{direction}: {flag} is in {help}");
        }
    }
}
