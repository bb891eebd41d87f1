//! The statements of docs/sql.md, run one after the other as they stand there.

use std::collections::HashMap;

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::connect;
use tokio_postgres::Client;

use crate::it::enqueue::Site;
use crate::it::world::SOON;

const DOCUMENT: &str = include_str!("../../../../docs/sql.md");

/// Who runs a block that does not say it: the owner of the schema.
const OWNER: &str = "postgres";

/// The SQL blocks, each with the role in whose name it is.
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
    eventually("what was enqueued can be read", SOON, async || {
        let kinds: Vec<_> = caller.list("/v1/tasks").await.iter().map(|task| task["type"].to_string()).collect();
        let all = ["\"order.confirm\"", "\"reminder\""].iter().all(|kind| kinds.iter().any(|known| known == kind));
        if all && kinds.len() == 2 { Ok(()) } else { Err(format!("{kinds:?}")) }
    })
    .await;
    let entries = clients[OWNER].query_one("SELECT count(*) FROM punctual.ledger", &[]).await.expect("it is counted");
    assert_eq!(entries.get::<_, i64>(0), 1);
    let billing = "SELECT enqueue_for_billing('invoice', '{}', 'k')";
    let denied = clients["app"].batch_execute(billing).await.expect_err("it was not granted");
    assert_eq!(denied.code().map(tokio_postgres::error::SqlState::code), Some("42501"));
    clients[OWNER].batch_execute(&format!("{billing}; {billing}")).await.expect("its owner may");
}
