//! How SQLite runs the statements: with the intended index and without sorting.

use punctual_core::queues::{QueueChange, Queues, Settings};
use punctual_core::store::Store;
use punctual_testkit::fixtures::{START, TENANT, at, task};
use rusqlite::StatementStatus;

use super::super::session::Session;
use super::super::statements::Sql;
use super::super::upcoming;
use super::Fixture;

#[tokio::test]
async fn every_statement_uses_an_index() {
    let fixture = Fixture::open();
    fixture
        .write(|session| {
            for sql in Sql::ALL {
                if sql.text().starts_with("BEGIN") || sql.text().contains("job") {
                    continue;
                }
                let mut explain = session.connection.prepare(&format!("EXPLAIN QUERY PLAN {}", sql.text()))?;
                let parameters = (0..explain.parameter_count()).map(|_| 1);
                let plan: Vec<String> = explain
                    .query_map(rusqlite::params_from_iter(parameters), |row| row.get(3))?
                    .collect::<Result<_, _>>()?;
                for step in plan {
                    assert!(!step.contains("TEMP B-TREE"), "{sql:?} sorts: {step}");
                    // The plan lists the steps of a subquery separately.
                    let is_table = step.starts_with("SCAN") && !step.starts_with("SCAN (subquery");
                    let scans = is_table && !step.contains("INDEX") && !MAY_SCAN.contains(sql);
                    assert!(!scans, "{sql:?} scans a table: {step}");
                    let automatic = step.contains("AUTOMATIC");
                    assert!(!automatic, "{sql:?} builds an automatic index: {step}");
                }
            }
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_forecast_is_a_range_of_the_primary_key() {
    let fixture = Fixture::open();
    let plan = fixture
        .write(|session| {
            let mut explain =
                session.connection.prepare(&format!("EXPLAIN QUERY PLAN {}", Sql::ForecastList.text()))?;
            let plan = explain.query_map(("t", 1, 2), |row| row.get::<_, String>(3))?;
            Ok(plan.collect::<Result<Vec<_>, _>>()?)
        })
        .await
        .unwrap();
    assert_eq!(plan, ["SEARCH forecast USING PRIMARY KEY (tenant=? AND minute>? AND minute<?)"]);
}

/// How many instructions SQLite runs for a submission and a claim in a limited queue.
async fn steps_in_a_limited_queue(lanes: u32) -> i32 {
    let fixture = Fixture::open();
    for number in 0..lanes {
        fixture.insert(task().kind(&number.to_string())).await;
    }
    let settings = Settings { max_depth: Some(1_000), max_concurrency: Some(10), ..Settings::default() };
    fixture.store.change_queue(TENANT, "default", QueueChange::Put(settings, None)).await.unwrap();
    let first = fixture.insert(task()).await;
    fixture.lease(&first, 1).await;
    let steps = async || {
        let sum = |session: &mut Session<'_>| {
            let all = Sql::ALL.iter();
            all.map(|sql| Ok(session.statements.get(*sql)?.get_status(StatementStatus::VmStep))).sum()
        };
        fixture.write(sum).await.unwrap()
    };
    let before: i32 = steps().await;
    fixture.insert(task()).await;
    assert_eq!(fixture.lease(&first, 1).await.len(), 1);
    steps().await - before
}

#[tokio::test]
async fn a_limit_costs_the_same_for_any_number_of_lanes() {
    assert_eq!(steps_in_a_limited_queue(300).await, steps_in_a_limited_queue(2).await);
}

/// How many instructions SQLite runs to list what will run, beside so many blocked tasks.
async fn steps_beside_blocked_tasks(blocked: usize) -> i32 {
    let fixture = Fixture::open();
    let parent = fixture.insert(task().queue("parents").due(at(1_000))).await;
    for _ in 0..3 {
        fixture.insert(task().ordering_key("k").due(at(1_000))).await;
    }
    fixture.store.insert(task().depends_on(&[parent.id]).due(at(1_000)).times(blocked)).await.unwrap();
    let list = |session: &mut Session<'_>| {
        let found = upcoming::tasks(session, TENANT, (START, 0), at(2_000), 10)?;
        assert_eq!(found.len(), 4);
        Ok(session.statements.get(Sql::UpcomingWithoutTurn)?.get_status(StatementStatus::VmStep))
    };
    fixture.write(list).await.unwrap()
}

#[tokio::test]
async fn what_will_run_is_listed_without_blocked_tasks() {
    assert_eq!(steps_beside_blocked_tasks(300).await, steps_beside_blocked_tasks(2).await);
}

/// Statements over small tables, and listings, which are meant to scan and stop by themselves.
const MAY_SCAN: &[Sql] = &[
    Sql::BreakerCountsPrune,
    Sql::BreakerCountsSum,
    Sql::BucketList,
    // It asks once in the life of a store whether there is an administrator.
    Sql::KeyInsertFirst,
    Sql::LeaseFreeAll,
    Sql::CountsList,
    Sql::ListLiveNewest,
    Sql::ListFinalNewest,
    Sql::WorkerForget,
    Sql::NodeList,
    // The oldest notes for the resolver: a bounded number.
    Sql::OrderNotes,
    Sql::ParentNotes,
    Sql::PlaceNotes,
    Sql::RevivedNotes,
    Sql::PartitionFree,
    Sql::PartitionFreeAll,
    Sql::PartitionList,
    Sql::PartitionLock,
    // It scans the numbers that it generates.
    Sql::PartitionMake,
    Sql::PartitionMemberDrop,
    Sql::PartitionMemberList,
    // It scans the keys that it has found.
    Sql::PlaceKeys,
    Sql::ProbeRead,
    Sql::QuarantineCount,
    // The removed queues of a tenant.
    Sql::QueueNames,
];
