//! What the conformance suite cannot see: the files, the statements, and what happens when they
//! fail.

mod faults;
mod forecast;
mod lanes;
mod lists;
mod opening;
mod parts;
mod plans;
mod retention;
mod unreadable;

use std::path::Path;
use std::sync::Arc;

use punctual_core::clock::ManualClock;
use punctual_core::ids::NodeId;
use punctual_core::store::{Claim, Claimant, Inserted, Store, StoreError};
use punctual_core::task::Task;
use punctual_testkit::fixtures::{START, TaskBuilder};
use tempfile::TempDir;

use super::fault::Fault;
use super::job_queue::WriteClass;
use super::session::Session;
use super::{Options, SqliteStore};
use crate::write_queue::Weight;

/// A store over a directory of its own.
struct Fixture {
    directory: TempDir,
    store: SqliteStore,
}

impl Fixture {
    fn open() -> Self {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path());
        Self { directory, store }
    }

    /// Runs work as a job of the writer, which may change the database in any way.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.store.writer().call(WriteClass::Progress, Weight::SMALL, work).await
    }

    async fn sql(&self, sql: &'static str) {
        self.write(move |session| Ok(session.connection.execute_batch(sql)?)).await.unwrap();
    }

    async fn number(&self, sql: &'static str) -> i64 {
        self.write(move |session| Ok(session.connection.query_row(sql, [], |row| row.get(0))?)).await.unwrap()
    }

    async fn insert(&self, task: TaskBuilder) -> Task {
        match self.store.insert(vec![task.build()]).await.unwrap().pop().unwrap() {
            Inserted::Created(task) => task,
            other => panic!("not created: {other:?}"),
        }
    }

    async fn lease(&self, task: &Task, limit: usize) -> Vec<Task> {
        let claimant = Claimant::Worker { name: "w".into(), lease_millis: 1_000, due_by: None };
        let claim = Claim { lanes: vec![(task.lane.id, limit)], limit, claimant };
        self.store.claim(vec![claim]).await.unwrap().pop().unwrap().tasks
    }

    /// Asserts that the stored counts equal a count of the rows.
    async fn assert_counts(&self) {
        let wrong = self
            .number(
                "SELECT count(*) FROM (
                     SELECT lane, state, count(*) AS tasks FROM tasks GROUP BY lane, state
                     EXCEPT SELECT lane, state, tasks FROM counts
                 )",
            )
            .await;
        let left = self
            .number("SELECT count(*) FROM counts AS c WHERE tasks <> 0 AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.lane = c.lane AND t.state = c.state)")
            .await;
        assert_eq!((wrong, left), (0, 0), "the counts are wrong");
        let wrong = self
            .number(
                "SELECT count(*) FROM (
                     SELECT l.tenant, l.queue, t.state, count(*) AS tasks
                     FROM tasks AS t JOIN lanes AS l ON l.id = t.lane GROUP BY 1, 2, 3
                 ) AS found FULL JOIN (SELECT * FROM queue_counts WHERE tasks <> 0 AND tenant <> '') AS kept
                     USING (tenant, queue, state, tasks)
                 WHERE found.tasks IS NULL OR kept.tasks IS NULL",
            )
            .await;
        assert_eq!(wrong, 0, "the counts of queues are wrong");
    }
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, Arc::new(ManualClock::new(START)), NodeId::new(7), Options::default()).unwrap()
}
