//! The connections of nodes to PostgreSQL: as many as there are, also through a pooler.

use punctual_testkit::postgres::Postgres;
use punctual_testkit::process::Serve;
use serde_json::json;
use tempfile::TempDir;

use crate::it::world::{PUNCTUAL, SOON, caller_of, id_of, worker_id};

fn serve(home: &TempDir, url: &str) -> Serve {
    Serve::new(PUNCTUAL, home.path().join("unused")).setting("STORE", url)
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}

fn name_of(url: &str) -> &str {
    url.rsplit('/').next().expect("the URL names a database")
}

#[tokio::test]
async fn a_node_without_its_connections_does_not_join() {
    let mut postgres = Postgres::start().await;
    postgres.execute("ALTER SYSTEM SET max_connections = 25").await;
    postgres.stop_fast().await;
    postgres.start_again().await;
    let (home, url) = (home(), postgres.create_database().await);
    let first = serve(&home, &url).start().await;
    first.until_logged(&["no room for another node", "max_connections=25"]).await;
    let refused = serve(&home, &url).fail(SOON).await.stderr;
    assert!(refused.contains("has no room for the 15 connections of this node"), "{refused}");
    assert!(refused.contains("lower store_connections on every node"), "{refused}");
    // The first node works on.
    caller_of(&first).submit_id(json!({"type": "t", "queue": "q"})).await;
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "wait_seconds": 20});
    assert_eq!(caller_of(&first).lease(wanted).await.len(), 1);
}

#[tokio::test]
async fn small_nodes_share_few_connections() {
    let mut postgres = Postgres::start().await;
    postgres.execute("ALTER SYSTEM SET max_connections = 28").await;
    postgres.stop_fast().await;
    postgres.start_again().await;
    let (home, url) = (home(), postgres.create_database().await);
    let small = serve(&home, &url).setting("STORE_CONNECTIONS", "11");
    let nodes = [small.start().await, small.start().await];
    let id = caller_of(&nodes[0]).submit_id(json!({"type": "t", "queue": "q"})).await;
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "wait_seconds": 20});
    assert_eq!(id_of(&caller_of(&nodes[1]).lease(wanted).await[0]["task"]), id);
}

#[tokio::test]
async fn pgbouncer_in_session_mode_carries_a_node() {
    let postgres = Postgres::start().await;
    let pooler = postgres.pgbouncer("session", 40).await;
    let (home, url) = (home(), postgres.create_database().await);
    let node = serve(&home, &pooler.url(name_of(&url))).start().await;
    let other = serve(&home, &pooler.url(name_of(&url))).start().await;
    // A submission at one node wakes a worker at the other, which needs notifications.
    let (caller, there) = (caller_of(&node), caller_of(&other));
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "wait_seconds": 20});
    let leased = tokio::spawn(async move { there.lease(wanted).await });
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let leases = leased.await.expect("the worker polls");
    assert_eq!(id_of(&leases[0]["task"]), id);
}

#[tokio::test]
async fn pgbouncer_without_sessions_is_refused() {
    let postgres = Postgres::start().await;
    let (home, url) = (home(), postgres.create_database().await);
    for mode in ["transaction", "statement"] {
        let pooler = postgres.pgbouncer(mode, 20).await;
        let refused = serve(&home, &pooler.url(name_of(&url))).fail(SOON).await.stderr;
        assert!(refused.contains("set pool_mode=session for this database"), "{mode}: {refused}");
    }
    let tables =
        punctual_testkit::postgres::execute(&url, "SELECT count(*) FROM pg_namespace WHERE nspname = 'punctual'").await;
    assert_eq!(tables, [[Some("0".to_owned())]], "nothing was migrated");
}
