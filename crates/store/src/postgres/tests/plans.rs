//! How PostgreSQL runs the statements: down an index, whatever it believes of the tables.

use punctual_testkit::postgres::connect;

use super::super::statements::Sql;
use super::Fixture;

/// The tables that may be large.
const LARGE: [&str; 10] = [
    "tasks",
    "history",
    "history_",
    "idempotency",
    "lanes",
    "quarantine",
    "inbox ",
    "inbox_keys",
    "inbox_refused",
    "ledger",
];

/// Statements over small tables, or that are meant to walk.
const MAY_WALK: &[Sql] =
    &[Sql::CountsFold, Sql::CountsList, Sql::WorkerForget, Sql::NodeSilent, Sql::HistoryPartitions];

#[tokio::test]
async fn every_statement_goes_down_an_index() {
    let fixture = Fixture::open().await;
    // As the sessions of the store are set.
    let settings = "SET search_path = punctual; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
        SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";
    let client = connect(&fixture.url).await;
    client.batch_execute(settings).await.unwrap();
    for sql in Sql::ALL {
        let parameters = client.prepare(sql.text()).await.unwrap().params().len();
        client.batch_execute(&format!("PREPARE statement AS {}", sql.text())).await.unwrap();
        let nulls = vec!["NULL"; parameters].join(", ");
        let execute = if nulls.is_empty() { "statement".to_owned() } else { format!("statement({nulls})") };
        let plan = client.simple_query(&format!("EXPLAIN EXECUTE {execute}")).await.unwrap();
        client.batch_execute("DEALLOCATE statement").await.unwrap();
        for message in plan {
            let tokio_postgres::SimpleQueryMessage::Row(row) = message else { continue };
            let step = row.get(0).unwrap();
            let walks = LARGE.iter().any(|table| step.contains(&format!("Seq Scan on {table}")));
            assert!(!walks || MAY_WALK.contains(sql), "{sql:?} walks through a table: {step}");
        }
    }
}

#[tokio::test]
async fn a_claim_goes_down_the_index_of_what_waits_without_sorting() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    client
        .batch_execute("SET search_path = punctual; SET enable_seqscan = off; SET enable_bitmapscan = off")
        .await
        .unwrap();
    for sql in [Sql::ClaimDue, Sql::LaneNextDue, Sql::LaneFront] {
        let parameters = client.prepare(sql.text()).await.unwrap().params().len();
        let text = sql.text();
        let nulls = vec!["NULL"; parameters].join(", ");
        client
            .batch_execute(&format!("SET plan_cache_mode = force_generic_plan; PREPARE statement AS {text}"))
            .await
            .unwrap();
        let plan = client.simple_query(&format!("EXPLAIN EXECUTE statement({nulls})")).await.unwrap();
        client.batch_execute("DEALLOCATE statement").await.unwrap();
        let steps: Vec<String> = plan
            .iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .collect();
        assert!(steps.iter().any(|step| step.contains("tasks_waiting")), "{sql:?}: {steps:#?}");
        assert!(!steps.iter().any(|step| step.contains("Sort")), "{sql:?}: {steps:#?}");
    }
}
