//! The statements of docs/sql.md, run in their order, unchanged.

use std::collections::HashMap;

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::connect;
use tokio_postgres::Client;

use crate::it::enqueue::Site;
use crate::it::world::{PUNCTUAL, SOON};

const DOCUMENT: &str = include_str!("../../../../docs/sql.md");

/// The role that runs a block without a role: the owner of the schema.
const OWNER: &str = "postgres";

/// The SQL blocks, each with its role.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let blocks = DOCUMENT.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    let role = |block: &'static str| block.strip_prefix("-- as ").and_then(|rest| rest.lines().next());
    blocks.map(|block| (role(block).unwrap_or(OWNER), block)).collect()
}

#[tokio::test]
async fn every_statement_does_what_it_says() {
    let site = Site::start(1).await;
    let mut clients: HashMap<&str, Client> = HashMap::new();
    let blocks = blocks();
    assert!(blocks.len() > 7, "the document was not read");
    for (role, block) in blocks {
        if !clients.contains_key(role) {
            clients.insert(role, connect(&site.url.replace("postgres@", &format!("{role}@"))).await);
        }
        clients[role].batch_execute(block).await.unwrap_or_else(|error| panic!("{role}: {block}\n{error:?}"));
    }
    let caller = site.caller(0);
    eventually("the enqueued tasks can be read", SOON, async || {
        let kinds: Vec<_> = caller.list("/v1/tasks").await.iter().map(|task| task["type"].to_string()).collect();
        let all = ["order.confirm", "reminder", "order.pack", "order.ship", "order.remind"];
        let are_there = all.iter().all(|kind| kinds.iter().any(|known| *known == format!("{kind:?}")));
        if are_there && kinds.len() == all.len() { Ok(()) } else { Err(format!("{kinds:?}")) }
    })
    .await;
    let states = async |kind: &str| {
        let found = caller.list(&format!("/v1/tasks?type={kind}")).await;
        found.iter().map(|task| task["status"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(states("order.ship").await, ["\"BLOCKED\""]);
    eventually("the reminder is cancelled", SOON, async || {
        let states = states("order.remind").await;
        if states == ["\"CANCELLED\""] { Ok(()) } else { Err(format!("{states:?}")) }
    })
    .await;
    let entries = clients[OWNER].query_one("SELECT count(*) FROM punctual.ledger", &[]).await.expect("it is counted");
    assert_eq!(entries.get::<_, i64>(0), 1);
    let invoice = "SELECT enqueue_for_billing('invoice', '{}', 'k')";
    assert_eq!(refused(&clients["app"], invoice).await, "42501", "it was not granted");
    clients["billing"].batch_execute(&format!("{invoice}; {invoice}")).await.expect("it was granted");
    let of_all = "SELECT punctual.enqueue('invoice')";
    assert_eq!(refused(&clients["billing"], of_all).await, "42501", "it may only enqueue for its own tenant");
    assert_eq!(refused(&clients["app"], r#"SELECT punctual.enqueue('t', '"\u0000"')"#).await, "22P05");
    clients["app"].batch_execute(confirmation()).await.expect("the same submission again is a replay");
}

/// The submission of the main example.
fn confirmation() -> &'static str {
    let (_, from) = DOCUMENT.split_once("INSERT INTO orders (id, total) VALUES (17, 120);\n").expect("the example");
    from.split_once("COMMIT").expect("its end").0
}

/// The SQLSTATE of a refused statement.
async fn refused(client: &Client, statement: &str) -> String {
    let error = client.batch_execute(statement).await.expect_err(statement);
    error.code().unwrap_or_else(|| panic!("{statement}: {error:?}")).code().to_owned()
}

#[tokio::test]
async fn migrating_down_and_up_does_what_the_document_says() {
    let mut site = Site::start(1).await;
    let owner = connect(&site.url).await;
    for (_, block) in blocks().into_iter().take(2) {
        owner.batch_execute(block).await.expect(block);
    }
    let app = connect(&site.url.replace("postgres@", "app@")).await;
    app.batch_execute(confirmation()).await.expect("it is allowed");
    eventually("the inbox is empty", SOON, async || {
        let left = owner.query_one("SELECT count(*) FROM punctual.inbox", &[]).await.expect("it is counted");
        if left.get::<_, i64>(0) == 0 { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    site.nodes[0].terminate();
    assert_eq!(site.nodes[0].exit(SOON).await.code, Some(0));
    for arguments in [["down", "--to", "3"].as_slice(), &["up"]] {
        let mut migrate = std::process::Command::new(PUNCTUAL);
        let done = migrate.arg("migrate").args(arguments).env("PUNCTUAL_STORE", &site.url).output().expect("it runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(refused(&app, confirmation()).await, "42501", "the privilege is gone");
    owner.batch_execute("SELECT enqueue_for_billing('invoice', '{}', 'k')").await.expect("the function is still there");
    owner.batch_execute("GRANT EXECUTE ON FUNCTION punctual.enqueue TO app").await.expect("it is granted again");
    assert_eq!(refused(&app, confirmation()).await, "23505", "the key is used");
}
