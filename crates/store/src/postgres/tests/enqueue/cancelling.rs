//! What `punctual.cancel` does, and when.

use punctual_core::state::State;

use super::super::{complete, ids};
use super::*;

async fn cancel(client: &Client, arguments: &str) -> bool {
    let row = client.query_one(&format!("SELECT punctual.cancel({arguments})"), &[]).await;
    row.unwrap_or_else(|error| panic!("{arguments}: {error:?}")).get(0)
}

async fn until_cancelled(store: &PostgresStore, id: TaskId) {
    eventually("the task is cancelled", SOON, async || match until_there(store, TENANT, id).await.state() {
        State::Cancelled => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

#[tokio::test]
async fn a_cancellation_takes_effect_if_its_transaction_commits() {
    let fixture = Fixture::open().await;
    let _taking = Taking::start(&fixture.store);
    let mut client = connect(&fixture.url).await;
    until_receiving(&fixture.store, &client).await;
    let (kept, gone) = (fixture.insert(task()).await, fixture.insert(task()).await);
    let open = client.transaction().await.unwrap();
    assert!(cancel(open.client(), &format!("'{}', 'acme'", kept.id)).await);
    open.rollback().await.unwrap();
    let open = client.transaction().await.unwrap();
    assert!(cancel(open.client(), &format!("'{}', 'acme'", gone.id)).await);
    assert!(cancel(open.client(), &format!("'{}', 'acme'", gone.id)).await, "again");
    // An open transaction holds up no other.
    let mut edited = fixture.lease(&kept, 1).await;
    assert_eq!(ids(&edited), [kept.id]);
    assert!(complete(&fixture.store, &edited.remove(0)).await);
    open.commit().await.unwrap();
    let state = fixture.store.get(TENANT, vec![gone.id]).await.unwrap()[0].as_ref().unwrap().state();
    assert_eq!(state, State::Cancelled, "at once");
    assert_eq!(until_there(&fixture.store, TENANT, kept.id).await.state(), State::Completed);
    eventually("nothing is left to do", SOON, async || {
        match fixture.number("SELECT count(*) FROM inbox_cancels").await {
            0 => Ok(()),
            left => Err(format!("{left} left")),
        }
    })
    .await;
    fixture.assert_counts().await;
}

#[tokio::test]
async fn no_claim_takes_a_task_that_is_cancelled() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let (first, second) = (fixture.insert(task()).await, fixture.insert(task()).await);
    assert!(cancel(&client, &format!("'{}', 'acme'", first.id)).await);
    assert_eq!(ids(&fixture.lease(&first, 2).await), [second.id], "no node has applied it");
    assert!(fixture.lease(&first, 2).await.is_empty());
    let _taking = Taking::start(&fixture.store);
    until_cancelled(&fixture.store, first.id).await;
}

#[tokio::test]
async fn a_row_of_the_inbox_is_cancelled_as_a_task() {
    let fixture = Fixture::open().await;
    let mut client = connect(&fixture.url).await;
    let open = client.transaction().await.unwrap();
    let id = enqueue(open.client(), "'t', tenant => 'acme'").await;
    assert!(cancel(open.client(), &format!("'{}'::uuid, tenant => 'acme'", id.uuid())).await);
    open.commit().await.unwrap();
    let _taking = Taking::start(&fixture.store);
    until_cancelled(&fixture.store, id).await;
    assert!(cancel(&client, &format!("'{id}', 'acme'")).await, "it stays cancelled");
}

#[tokio::test]
async fn a_running_task_is_asked_to_stop() {
    let fixture = Fixture::open().await;
    let _taking = Taking::start(&fixture.store);
    let client = connect(&fixture.url).await;
    let task = fixture.insert(task()).await;
    fixture.lease(&task, 1).await;
    assert!(cancel(&client, &format!("'{}', 'acme'", task.id)).await);
    eventually("it is asked to stop", SOON, async || {
        let task = until_there(&fixture.store, TENANT, task.id).await;
        if task.position.cancel_requested { Ok(()) } else { Err(format!("{task:?}")) }
    })
    .await;
}

/// Otherwise somebody puts it back, and what was cancelled runs.
#[tokio::test]
async fn a_cancelled_submission_is_not_set_aside() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let refused = async |count: i64| {
        eventually("as many are set aside", SOON, async || {
            let found = fixture.number("SELECT count(*) FROM inbox_refused").await;
            let waiting = fixture.number("SELECT count(*) FROM inbox_cancels").await;
            if (found, waiting) == (count, 0) { Ok(()) } else { Err(format!("{found}, {waiting} cancellations")) }
        })
        .await;
    };
    let before = enqueue(&client, "'bad', tenant => 'acme'").await;
    assert!(cancel(&client, &format!("'{before}', 'acme'")).await);
    enqueue(&client, "'bad', tenant => 'acme'").await;
    let after = enqueue(&client, "'bad', tenant => 'acme'").await;
    let _taking = Taking::start(&fixture.store);
    refused(2).await;
    assert!(!cancel(&client, &format!("'{after}', 'other'")).await, "it is another tenant's");
    assert!(cancel(&client, &format!("'{after}', 'acme'")).await);
    refused(1).await;
    assert!(!cancel(&client, &format!("'{after}', 'acme'")).await, "there is nothing any more");
}

#[tokio::test]
async fn nothing_to_cancel_is_false() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let done = fixture.insert(task()).await;
    let leased = fixture.lease(&done, 1).await.remove(0);
    assert!(complete(&fixture.store, &leased).await);
    let others = fixture.insert(task()).await.id;
    for arguments in [
        format!("'{}', 'acme'", done.id),
        format!("'{others}'"),
        format!("'{others}', 'other'"),
        format!("'{}'", TaskId::new()),
        "NULL::uuid".to_owned(),
    ] {
        assert!(!cancel(&client, &arguments).await, "{arguments}");
    }
    for bad in ["''", "'task_1'", "7", "'run_01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e8f'"] {
        let answer = client.query_one(&format!("SELECT punctual.cancel({bad})"), &[]).await.map(drop);
        let error = answer.expect_err(bad);
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("22023"), "{bad}: {error:?}");
    }
    assert_eq!(fixture.number("SELECT count(*) FROM inbox_cancels").await, 0);
}
