//! A role that may enqueue and cancel, and nothing else.

use punctual_testkit::fixtures::START;

use super::super::Migrator;
use super::*;

#[tokio::test]
async fn a_role_that_may_enqueue_may_do_nothing_else() {
    let fixture = Fixture::open().await;
    fixture.sql("CREATE ROLE app LOGIN").await;
    let app = connect(&fixture.url.replace("postgres@", "app@")).await;
    let denied = async |sql: &str| {
        let error = app.batch_execute(sql).await.expect_err(sql);
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{sql}: {error:?}");
    };
    denied("SELECT punctual.enqueue('t')").await;
    // As docs/sql.md says.
    fixture.sql("GRANT USAGE ON SCHEMA punctual TO app").await;
    denied("SELECT punctual.enqueue('t')").await;
    fixture.sql("GRANT EXECUTE ON FUNCTION punctual.enqueue TO app").await;
    denied("SELECT punctual.cancel('')").await;
    let parent = enqueue(&app, "'t'").await;
    enqueue(&app, &format!("'t', depends_on => '{{{parent}}}'")).await;
    enqueue(&app, "'t', idempotency_key => 'k', callback_url => 'http://[::1]/', metadata => '{\"a\": \"b\"}'").await;

    let tables = "SELECT relname FROM pg_class WHERE relnamespace = 'punctual'::regnamespace AND relkind IN ('r', 'p')";
    let tables: Vec<String> = fixture.sql(tables).await.into_iter().map(|mut row| row[0].take().unwrap()).collect();
    assert!(tables.len() > 15 && tables.iter().any(|table| table == "inbox"), "{tables:?}");
    for table in tables {
        for sql in ["SELECT FROM", "INSERT INTO", "DELETE FROM", "TRUNCATE"] {
            let values = if sql == "INSERT INTO" { "DEFAULT VALUES" } else { "" };
            denied(&format!("{sql} punctual.{table} {values}")).await;
        }
        let column =
            format!("SELECT attname FROM pg_attribute WHERE attrelid = 'punctual.{table}'::regclass AND attnum = 1");
        let column = fixture.sql(&column).await[0][0].clone().unwrap();
        denied(&format!("UPDATE punctual.{table} SET {column} = DEFAULT")).await;
    }
    let sequences = "SELECT relname FROM pg_class WHERE relnamespace = 'punctual'::regnamespace AND relkind = 'S'";
    for sequence in fixture.sql(sequences).await {
        denied(&format!("SELECT nextval('punctual.{}')", sequence[0].as_ref().unwrap())).await;
    }
    let functions =
        "SELECT p.oid::regprocedure::text, has_function_privilege('app', p.oid, 'EXECUTE') FROM pg_proc AS p
        WHERE p.pronamespace = 'punctual'::regnamespace";
    let functions = fixture.sql(functions).await;
    assert!(functions.len() > 10, "{functions:?}");
    for function in functions {
        let (name, allowed) = (function[0].as_ref().unwrap(), function[1].as_ref().unwrap() == "t");
        assert_eq!(allowed, name.contains("enqueue("), "{name}");
    }
    fixture.sql("GRANT EXECUTE ON FUNCTION punctual.cancel TO app").await;
    app.batch_execute(&format!("SELECT punctual.cancel('{parent}')")).await.unwrap();
    denied("SELECT punctual.history_ahead(0, 1)").await;
    denied("SELECT punctual.inbox_id(0)").await;
    denied("CREATE TABLE punctual.mine ()").await;
}

/// A migration that replaces the function grants it to the roles that could call it.
#[tokio::test]
async fn rights_outlive_a_migration() {
    let fixture = Fixture::open().await;
    fixture
        .sql("CREATE ROLE app LOGIN; CREATE ROLE \"Other app\" LOGIN; GRANT USAGE ON SCHEMA punctual TO PUBLIC")
        .await;
    fixture.sql("GRANT EXECUTE ON FUNCTION enqueue TO app; GRANT EXECUTE ON FUNCTION enqueue TO \"Other app\"").await;
    Store::close(&fixture.store).await.unwrap();
    fixture.sql("CREATE ROLE stranger LOGIN").await;
    let database = Migrator::connect(&fixture.url).await.unwrap();
    let check = async |more: &str| {
        for (role, allowed) in [("app", true), ("Other%20app", true), ("stranger", false)] {
            let client = connect(&fixture.url.replace("postgres@", &format!("{role}@"))).await;
            let called = client.batch_execute(&format!("SELECT punctual.enqueue('t' {more})")).await;
            assert_eq!(called.is_ok(), allowed, "{role}: {called:?}");
        }
    };
    check(", ordering_key => 'k'").await;
    assert!(database.down(26).await.unwrap().ends_with(&[27]));
    check("").await;
    assert!(database.up(START).await.unwrap().starts_with(&[27]));
    check(", ordering_key => 'k'").await;
}

#[tokio::test]
async fn migrating_down_loses_no_cancellation() {
    let fixture = Fixture::open().await;
    let id = fixture.insert(task()).await.id;
    Store::close(&fixture.store).await.unwrap();
    fixture.sql(&format!("SELECT cancel('{id}', 'acme')")).await;
    let database = Migrator::connect(&fixture.url).await.unwrap();
    let fault = database.down(26).await.unwrap_err().to_string();
    assert!(fault.contains("1 cancellations in punctual.inbox_cancels wait"), "{fault}");
}
