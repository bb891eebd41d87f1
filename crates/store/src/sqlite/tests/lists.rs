//! Lists of a tenant with few tasks, where others have many.

use punctual_core::ids::NodeId;
use punctual_core::state::{By, Event, transition};
use punctual_core::store::Store;
use punctual_core::trail::Actor;
use punctual_testkit::fixtures::{START, at, filters_of_few_tasks, task};
use rusqlite::StatementStatus;

use super::super::list::list;
use super::super::session::Session;
use super::super::statements::Sql;
use super::Fixture;

/// Ten tasks, one half finished. Others have 200,000, newer and sooner than these.
async fn crowd() -> Fixture {
    let fixture = Fixture::open();
    let by = By { now: START, node: NodeId::new(7), actor: Actor::Client };
    for _ in 0..5 {
        let first = fixture.insert(task()).await;
        let running = fixture.lease(&first, 1).await.pop().unwrap();
        let event = Event::Complete { result: None, http_status: None, dropped: None };
        let done = transition(&running.position, event, &by).unwrap();
        fixture.store.apply(vec![(running.id, done)]).await.unwrap();
        fixture.insert(task().kind("later").due(at(50_000))).await;
    }
    fixture.insert(task().tenant("other").due(at(-1_000))).await;
    fixture
        .sql(
            "CREATE TEMP TABLE numbers AS
                 WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000) SELECT n FROM n;
             INSERT INTO tasks (
                 seq, id, lane, state, version, attempts, crashes, cancel_requested, execute_at, due_at, trail
             )
             SELECT 1000 + n, randomblob(16), lane, state, 1, 0, 0, 0, execute_at, due_at, trail
             FROM numbers, (SELECT * FROM tasks ORDER BY seq DESC LIMIT 1);
             INSERT INTO history (
                 seq, id, lane, state, version, attempts, crashes, execute_at, due_at, completed_at, trail
             )
             SELECT 200000 + n, randomblob(16), lane, 7, 1, 0, 0, execute_at, due_at, due_at, trail
             FROM numbers, (SELECT * FROM tasks ORDER BY seq DESC LIMIT 1)",
        )
        .await;
    fixture
}

/// How many instructions SQLite has run for all statements of a session.
fn steps(session: &mut Session<'_>) -> i64 {
    let mut sum = 0;
    for sql in Sql::ALL {
        sum += i64::from(session.statements.get(*sql).unwrap().get_status(StatementStatus::VmStep));
        let cached = session.connection.prepare_cached(sql.text()).unwrap();
        sum += i64::from(cached.get_status(StatementStatus::VmStep));
    }
    sum
}

#[tokio::test]
async fn a_list_of_few_tasks_costs_little_among_many() {
    let fixture = crowd().await;
    for (filter, expected) in filters_of_few_tasks() {
        let shown = format!("{filter:?}");
        let work = move |session: &mut Session<'_>| {
            let before = steps(session);
            let listed = list(session, &filter, None, 50)?;
            Ok((listed.page, steps(session) - before))
        };
        let (page, cost) = fixture.write(work).await.unwrap();
        assert_eq!((page.tasks.len(), page.next), (expected, None), "{shown}");
        assert!(cost < 10_000, "{cost} steps for {shown}");
    }
}
