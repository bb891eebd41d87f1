//! How much one step of the inbox does. What becomes of the rows is tested with the store.

use punctual_core::clock::ManualClock;
use punctual_core::ids::NodeId;
use punctual_core::state::State;
use punctual_core::store::{Inserted, Store};
use punctual_testkit::fixtures::{START, TENANT, task};
use punctual_testkit::postgres::{Postgres, execute};
use tokio::sync::oneshot;

use super::super::{Migrator, Options};
use super::*;

/// Cancels more than one step applies, and then the task, all by SQL.
async fn flood(url: &str, task: TaskId) {
    let sql = format!(
        "INSERT INTO punctual.inbox_cancels (task_id, created_at)
         SELECT gen_random_uuid(), 0 FROM generate_series(1, {});
         SELECT punctual.cancel('{task}', '{TENANT}')",
        2 * CANCELS_MAX
    );
    execute(url, &sql).await;
}

/// Many cancellations hold up neither submissions nor a call that waits for one of them.
#[tokio::test]
async fn a_flood_of_cancellations_is_applied_in_steps() {
    let server = Postgres::start().await;
    let url = server.create_database().await;
    Migrator::connect(&url).await.unwrap().up(START).await.unwrap();
    let clock = Arc::new(ManualClock::new(START));
    let store = PostgresStore::connect(&url, clock, NodeId::new(7), Options::default()).await.unwrap();
    let Inserted::Created(task) = store.insert(vec![task().build()]).await.unwrap().remove(0) else { panic!() };
    flood(&url, task.id).await;
    let validate: InboxValidator = Arc::new(|_| Err("there is none".to_owned()));
    let mut connection = store.connect_inbox(&validate, 1_000).await.unwrap();

    let (done, answer) = oneshot::channel();
    let demand = InboxDemand::new(vec![task.id.uuid()], done);
    connection.batches.serve(demand, &store).await.unwrap();
    assert!(answer.await.unwrap());
    let read = store.get(TENANT, vec![task.id]).await.unwrap().remove(0).unwrap();
    assert_eq!(read.state(), State::Cancelled);
    let left = execute(&url, "SELECT count(*) FROM punctual.inbox_cancels").await;
    assert_eq!(left[0][0], Some((2 * CANCELS_MAX).to_string()), "only what was demanded");

    for left in [CANCELS_MAX, 0] {
        assert_eq!(connection.batches.cancel(Cancellations::Front, &store).await.unwrap(), CANCELS_MAX);
        let counted = execute(&url, "SELECT count(*) FROM punctual.inbox_cancels").await;
        assert_eq!(counted[0][0], Some(left.to_string()));
    }
}
