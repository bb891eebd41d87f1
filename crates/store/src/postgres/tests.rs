//! What the conformance suite cannot test: the schema, the statements, several nodes, and failures
//! of PostgreSQL.

mod enqueue;
mod faults;
mod fences;
mod forecast;
mod gone;
mod history;
mod lanes;
mod ledger;
mod lists;
mod locked_rows;
mod migrating;
mod nodes;
mod opening;
mod partitions;
mod plans;
mod queues;
mod resolve;
mod retention;
mod standby;
mod timeouts;
mod tls;
mod unreadable;

use std::sync::Arc;

use punctual_core::clock::ManualClock;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::state::{By, Event, transition};
use punctual_core::store::{Applied, Claim, Claimant, Inserted, Store};
use punctual_core::task::Task;
use punctual_core::trail::Actor;
use punctual_testkit::fixtures::{START, TaskBuilder};
use punctual_testkit::postgres::{Postgres, execute};

use super::{Migrator, Options, PostgresStore};

/// A database on a server of its own, and a store over it.
struct Fixture {
    server: Postgres,
    url: String,
    store: PostgresStore,
}

impl Fixture {
    async fn open() -> Self {
        let server = Postgres::start().await;
        let url = server.create_database().await;
        Migrator::connect(&url).await.unwrap().up(START).await.unwrap();
        let store = open(&url, NodeId::new(7)).await;
        Self { server, url, store }
    }

    /// Runs SQL on the database without the store.
    async fn sql(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        execute(&self.url, &format!("SET search_path = punctual; {sql}")).await
    }

    async fn number(&self, sql: &str) -> i64 {
        self.sql(sql).await[0][0].as_ref().unwrap().parse().unwrap()
    }

    async fn insert(&self, task: TaskBuilder) -> Task {
        insert(&self.store, task).await
    }

    async fn lease(&self, task: &Task, limit: usize) -> Vec<Task> {
        lease(&self.store, task, limit).await
    }

    /// The partitions of the history.
    async fn months(&self) -> Vec<String> {
        let sql = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'history'::regclass ORDER BY 1";
        self.sql(sql).await.into_iter().map(|mut row| row.remove(0).unwrap()).collect()
    }

    /// Asserts that the stored counts are right.
    async fn assert_counts(&self) {
        let wrong = "SELECT count(*) FROM (
                 SELECT lane, state, count(*) AS tasks FROM tasks GROUP BY lane, state
             ) AS found FULL JOIN (
                 SELECT lane, state, sum(tasks) AS tasks FROM counts GROUP BY lane, state HAVING sum(tasks) <> 0
             ) AS kept USING (lane, state, tasks)
             WHERE found IS NULL OR kept IS NULL";
        assert_eq!(self.number(wrong).await, 0, "the counts are wrong");
        let wrong = "SELECT count(*) FROM (
                 SELECT l.tenant, l.queue, t.state, count(*) AS tasks
                 FROM tasks AS t JOIN lanes AS l ON l.id = t.lane GROUP BY l.tenant, l.queue, t.state
             ) AS found FULL JOIN (
                 SELECT tenant, queue, state, sum(tasks) AS tasks FROM queue_counts WHERE tenant <> ''
                 GROUP BY tenant, queue, state HAVING sum(tasks) <> 0
             ) AS kept USING (tenant, queue, state, tasks)
             WHERE found IS NULL OR kept IS NULL";
        assert_eq!(self.number(wrong).await, 0, "the counts of queues are wrong");
    }
}

async fn open(url: &str, node: NodeId) -> PostgresStore {
    open_at(url, node, &Arc::new(ManualClock::new(START))).await
}

async fn open_at(url: &str, node: NodeId, clock: &Arc<ManualClock>) -> PostgresStore {
    let clock = Arc::clone(clock);
    PostgresStore::connect(url, clock, node, Options::default()).await.unwrap()
}

async fn insert(store: &PostgresStore, task: TaskBuilder) -> Task {
    match store.insert(vec![task.build()]).await.unwrap().pop().unwrap() {
        Inserted::Created(task) => task,
        other => panic!("not created: {other:?}"),
    }
}

async fn lease(store: &PostgresStore, task: &Task, limit: usize) -> Vec<Task> {
    let claimant = Claimant::Worker { name: "w".into(), lease_millis: 1_000, due_by: None };
    let claim = Claim { lanes: vec![(task.lane.id, limit)], limit, claimant };
    store.claim(vec![claim]).await.unwrap().pop().unwrap().tasks
}

/// Completes a running task; returns whether the change was applied.
async fn complete(store: &PostgresStore, task: &Task) -> bool {
    let by = By { now: START, node: NodeId::new(7), actor: Actor::Client };
    let event = Event::Complete { result: None, http_status: None, dropped: None };
    let change = transition(&task.position, event, &by).unwrap();
    matches!(store.apply(vec![(task.id, change)]).await.unwrap()[0], Applied::Done(_))
}

fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id).collect()
}
