//! How PostgreSQL plans the statements: by an index, whatever its statistics say.

use punctual_testkit::postgres::connect;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::super::statements::Sql;
use super::Fixture;

/// The tables that may be large.
const LARGE: [&str; 14] = [
    "tasks",
    "history",
    "history_",
    "idempotency",
    "lanes",
    "quarantine",
    "inbox ",
    "inbox_cancels",
    "inbox_keys",
    "inbox_refused",
    "ledger",
    "schedules",
    "occurrences",
    "forecast",
];

/// Statements over small tables, and those that are meant to scan.
const MAY_SCAN: &[Sql] = &[
    Sql::CountsFold,
    Sql::CountsList,
    Sql::QueueCountsCorrect,
    Sql::QuarantineCount,
    Sql::WorkerForget,
    Sql::HistoryPartitions,
];

/// A connection whose plans read by indexes, in their order, if they can.
async fn planner(fixture: &Fixture) -> Client {
    let client = connect(&fixture.url).await;
    let settings = "SET search_path = punctual; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
        SET enable_bitmapscan = off; SET enable_mergejoin = off";
    client.batch_execute(settings).await.unwrap();
    client
}

/// The lines of a statement's plan, whatever its parameters are.
async fn steps(client: &Client, sql: Sql) -> Vec<String> {
    let parameters = client.prepare(sql.text()).await.unwrap().params().len();
    client.batch_execute(&format!("PREPARE statement AS {}", sql.text())).await.unwrap();
    let nulls = vec!["NULL"; parameters].join(", ");
    let execute = if nulls.is_empty() { "statement".to_owned() } else { format!("statement({nulls})") };
    let plan = client.simple_query(&format!("EXPLAIN EXECUTE {execute}")).await.unwrap();
    client.batch_execute("DEALLOCATE statement").await.unwrap();
    let line = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    plan.iter().filter_map(line).collect()
}

#[tokio::test]
async fn every_statement_goes_down_an_index() {
    let fixture = Fixture::open().await;
    // As the sessions of the store are set.
    let settings = "SET search_path = punctual; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
        SET enable_bitmapscan = off; SET enable_mergejoin = off";
    let client = connect(&fixture.url).await;
    client.batch_execute(settings).await.unwrap();
    for sql in Sql::ALL {
        for step in steps(&client, *sql).await {
            let scans = LARGE.iter().any(|table| step.contains(&format!("Seq Scan on {table}")));
            assert!(!scans || MAY_SCAN.contains(sql), "{sql:?} scans a table: {step}");
        }
    }
}

/// What a limit reads for every claim and submission depends on the number of writers, not of
/// lanes.
#[tokio::test]
async fn a_limit_reads_the_counts_of_its_queue_alone() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    client.batch_execute("SET search_path = punctual; SET enable_seqscan = off").await.unwrap();
    for sql in [Sql::GateDepth, Sql::GateRunning] {
        let steps = steps(&client, sql).await;
        assert!(steps.iter().any(|step| step.contains("queue_counts_pkey")), "{sql:?}: {steps:#?}");
        assert!(!steps.iter().any(|step| step.contains("on lanes")), "{sql:?}: {steps:#?}");
    }
}

/// Statements that read held tasks, which are few, or a table a little at a time.
const MAY_READ_ALL: &[Sql] = &[Sql::ListSoonest, Sql::ListGathered, Sql::IdempotencyFree];

/// Only the held tasks are not found by lane, and not looked for if the counts know of none.
#[tokio::test]
async fn rows_are_gathered_by_lane() {
    let fixture = Fixture::open().await;
    let client = planner(&fixture).await;
    let steps = steps(&client, Sql::ListGathered).await;
    let goes_down = |index: &str| {
        let at = steps.iter().position(|step| step.contains(index)).unwrap_or_else(|| panic!("{index}: {steps:#?}"));
        steps[at + 1].contains("Index Cond: ") && steps[at + 1].contains("lane") && steps[at + 1].contains("= ANY")
    };
    assert!(["tasks_waiting", "tasks_unclaimable", "_expr_idx on history_"].into_iter().all(goes_down), "{steps:#?}");
    let held = steps.iter().position(|step| step.contains("tasks_held")).unwrap();
    assert!(steps[..held].iter().any(|step| step.contains("One-Time Filter: ($4 AND")), "{steps:#?}");
}

/// Tasks that wait for their turn are found among the blocked ones by their state.
#[tokio::test]
async fn what_will_run_is_listed_without_blocked_tasks() {
    let fixture = Fixture::open().await;
    let client = planner(&fixture).await;
    let steps = steps(&client, Sql::UpcomingTasks).await;
    let at = steps.iter().position(|step| step.contains("tasks_unclaimable")).unwrap_or_else(|| panic!("{steps:#?}"));
    let condition = &steps[at + 1];
    assert!(["Index Cond: ", "state = 1", "due_at"].into_iter().all(|part| condition.contains(part)), "{steps:#?}");
    assert!(!steps[..at].iter().any(|step| step.contains("Bitmap")), "{steps:#?}");
}

/// A table that was drained under an old open transaction is full of dead rows, but PostgreSQL
/// believes that it is empty. Reading a whole index takes seconds then.
#[tokio::test]
async fn no_statement_reads_a_whole_index() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    for sql in ["SET search_path = punctual", "VACUUM ANALYZE tasks", "VACUUM ANALYZE history"] {
        client.batch_execute(sql).await.unwrap();
    }
    let settings = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off;
        SET enable_mergejoin = off";
    client.batch_execute(settings).await.unwrap();
    for sql in Sql::ALL.iter().filter(|sql| !MAY_READ_ALL.contains(sql)) {
        let steps = steps(&client, *sql).await;
        for (at, step) in steps.iter().enumerate() {
            let reads = ["on tasks", "on history_"].iter().any(|table| step.contains(table)) && step.contains("Index");
            let goes_down = steps.get(at + 1).is_some_and(|next| next.contains("Index Cond"));
            assert!(!reads || goes_down, "{sql:?}: {steps:#?}");
        }
    }
}

#[tokio::test]
async fn a_claim_reads_the_waiting_index_without_a_sort() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let settings = "SET search_path = punctual; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
        SET enable_bitmapscan = off";
    client.batch_execute(settings).await.unwrap();
    for sql in [Sql::ClaimDue, Sql::LaneNextDue, Sql::LaneFront, Sql::LanesBefore] {
        let steps = steps(&client, sql).await;
        assert!(steps.iter().any(|step| step.contains("tasks_waiting")), "{sql:?}: {steps:#?}");
        assert!(!steps.iter().any(|step| step.contains("Sort")), "{sql:?}: {steps:#?}");
    }
}

#[tokio::test]
async fn holders_are_read_from_the_end_of_an_index() {
    let fixture = Fixture::open().await;
    let client = planner(&fixture).await;
    let steps = steps(&client, Sql::WorkerHolds).await;
    let at = steps.iter().position(|step| step.contains("Index Scan Backward using tasks_held on tasks"));
    let at = at.unwrap_or_else(|| panic!("{steps:#?}"));
    assert!(steps[at - 1].contains("Limit") && steps[at + 1].contains("Index Cond"), "no sorting: {steps:#?}");
}

#[tokio::test]
async fn a_forecast_is_a_range_of_the_primary_key() {
    let fixture = Fixture::open().await;
    let client = planner(&fixture).await;
    // With an empty table, and with one in which other tenants have most rows.
    for filled in ["", "INSERT INTO forecast SELECT 't' || n % 500, n / 500, 1, 1 FROM generate_series(1, 100000) AS n"]
    {
        client.batch_execute(filled).await.unwrap();
        client.batch_execute("ANALYZE forecast").await.unwrap();
        let list = steps(&client, Sql::ForecastList).await;
        assert!(list.iter().any(|step| step.contains("Index Scan using forecast_pkey")), "{list:#?}");
        assert!(
            list.iter()
                .any(|step| step.contains("Index Cond") && step.contains("tenant") && step.contains("minute >="))
        );
        assert!(!list.iter().any(|step| step.contains("Sort")), "{list:#?}");
        let prune = steps(&client, Sql::ForecastPrune).await;
        assert!(prune.iter().any(|step| step.contains("forecast_by_minute")), "{prune:#?}");
    }
}
