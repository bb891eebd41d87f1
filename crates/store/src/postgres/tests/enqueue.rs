//! Submissions by SQL: what `punctual.enqueue` accepts and refuses, who may call it, and how rows
//! of the inbox become tasks. Cancellations by SQL.

mod calling;
mod cancelling;
mod reading;
mod rights;
mod taking;

use std::sync::Arc;
use std::time::Duration;

use punctual_core::ids::{NodeId, TaskId};
use punctual_core::store::Store;
use punctual_core::task::{Idempotency, NewTask, Task};
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{TENANT, task};
use punctual_testkit::postgres::connect;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::task::AbortHandle;
use tokio_postgres::Client;
use tokio_postgres::error::DbError;
use uuid::Uuid;

use super::super::{EnqueuedTask, InboxValidator, PostgresStore};
use super::{Fixture, open};

const SOON: Duration = Duration::from_secs(20);

/// The maximum size of a payload.
const PAYLOAD_BYTES: usize = 262_144;

/// Takes rows from the inbox until it is dropped.
struct Taking(AbortHandle);

impl Taking {
    fn start(store: &PostgresStore) -> Self {
        Self::validated_by(store, Arc::new(validate))
    }

    fn validated_by(store: &PostgresStore, validate: InboxValidator) -> Self {
        let store = store.clone();
        let run = async move { store.receive(validate, PAYLOAD_BYTES, std::future::pending()).await };
        Self(tokio::spawn(run).abort_handle())
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A task of the submission's type, due at once. The type `bad` is refused, and the type `panic`
/// panics.
fn validate(enqueued: &EnqueuedTask) -> Result<NewTask, String> {
    let submission: Value = serde_json::from_str(&enqueued.submission).unwrap();
    let kind = submission["type"].as_str().unwrap();
    match kind {
        "bad" => Err("it is bad".to_owned()),
        "panic" => panic!("a row of type panic"),
        _ => {
            let parents = submission["depends_on"].as_array().into_iter().flatten();
            let parents: Vec<TaskId> = parents.map(|id| id.as_str().unwrap().parse().unwrap()).collect();
            let mut new = task().tenant(&enqueued.tenant).kind(kind).depends_on(&parents).build();
            new.idempotency = submission["idempotency_key"]
                .as_str()
                .map(|key| Idempotency::new(key, Sha256::digest(&enqueued.submission).into()));
            Ok(NewTask { id: enqueued.id, ..new })
        }
    }
}

/// Enqueues with these arguments; returns the id.
async fn enqueue(client: &Client, arguments: &str) -> TaskId {
    let row = client.query_one(&format!("SELECT punctual.enqueue({arguments})"), &[]).await;
    TaskId::from_uuid(row.unwrap_or_else(|error| panic!("{arguments}: {error:?}")).get::<_, Uuid>(0))
}

/// Enqueues with arguments that are refused; returns PostgreSQL's error.
async fn refused(client: &Client, arguments: &str) -> DbError {
    let answer = client.query_one(&format!("SELECT punctual.enqueue({arguments})"), &[]).await;
    let error = answer.map(|row| row.get::<_, Uuid>(0)).expect_err(arguments);
    error.as_db_error().unwrap_or_else(|| panic!("{arguments}: {error:?}")).clone()
}

/// Waits until a row has become a task.
async fn until_receiving(store: &PostgresStore, client: &Client) {
    let id = enqueue(client, "'t', tenant => 'acme'").await;
    until_there(store, TENANT, id).await;
}

/// Waits until the row is a task.
async fn until_there(store: &PostgresStore, tenant: &str, id: TaskId) -> Task {
    eventually("the row has become a task", SOON, async || {
        let found = store.get(tenant, vec![id]).await.map_err(|error| error.to_string())?;
        found.into_iter().flatten().next().ok_or_else(|| "not there".to_owned())
    })
    .await
}
