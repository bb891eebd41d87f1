//! What a call finds that names a row of the inbox.

use punctual_core::state::State;
use punctual_core::store::{Inserted, StoreError};

use super::*;

/// Not announced, so that only a scan finds it.
const LATER: &str = "'t', tenant => 'acme', delay_seconds => 3600";

async fn get(store: &PostgresStore, id: TaskId) -> Result<Option<Task>, StoreError> {
    store.get(TENANT, vec![id]).await.map(|found| found.into_iter().next().flatten())
}

#[tokio::test]
async fn a_committed_row_can_be_read_at_once() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let first = enqueue(&client, LATER).await;
    assert!(get(&fixture.store, first).await.unwrap().is_none(), "this process takes no rows");
    let other = open(&fixture.url, NodeId::new(8)).await;
    let _taking = [Taking::start(&fixture.store), Taking::start(&other)];
    until_there(&fixture.store, TENANT, first).await;
    for _ in 0..100 {
        let id = enqueue(&client, LATER).await;
        assert_eq!(get(&fixture.store, id).await.unwrap().map(|task| task.id), Some(id));
        assert!(get(&other, id).await.unwrap().is_some());
    }
    assert!(get(&fixture.store, TaskId::new()).await.unwrap().is_none());
}

#[tokio::test]
async fn many_large_rows_can_be_read_in_one_call() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let _taking = Taking::start(&fixture.store);
    until_receiving(&fixture.store, &client).await;
    let large = "SELECT punctual.enqueue('t', to_jsonb(repeat(chr(65 + n % 26), 200000)), tenant => 'acme',
        delay_seconds => 3600) FROM generate_series(1, 150) AS n";
    let rows = client.query(large, &[]).await.unwrap();
    let ids: Vec<TaskId> = rows.iter().map(|row| TaskId::from_uuid(row.get(0))).collect();
    let found = fixture.store.get(TENANT, ids).await.unwrap();
    assert_eq!(found.iter().flatten().count(), 150);
}

/// Whether it exists cannot be said, so the call fails.
#[tokio::test]
async fn a_row_that_cannot_be_taken_is_not_denied() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let id = enqueue(&client, LATER).await;
    client.batch_execute("BEGIN; SELECT FROM punctual.inbox FOR UPDATE").await.unwrap();
    let _taking = Taking::start(&fixture.store);
    until_receiving(&fixture.store, &connect(&fixture.url).await).await;
    assert!(matches!(get(&fixture.store, id).await, Err(StoreError::Unavailable(_))));
    client.batch_execute("ROLLBACK").await.unwrap();
    assert!(get(&fixture.store, id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_task_can_depend_on_a_row() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let _taking = Taking::start(&fixture.store);
    until_receiving(&fixture.store, &client).await;
    for _ in 0..20 {
        let parents = [enqueue(&client, LATER).await, enqueue(&client, LATER).await];
        let child = fixture.insert(task().depends_on(&parents)).await;
        assert_eq!(child.state(), State::Blocked);
        let parents = [enqueue(&client, LATER).await];
        let children = vec![task().depends_on(&parents).build()];
        let stored = fixture.store.insert_all(children).await.unwrap();
        assert!(matches!(&stored[..], [Inserted::Created(child)] if child.state() == State::Blocked), "{stored:?}");
    }
}

/// A transaction that began first names a row of one that committed meanwhile.
#[tokio::test]
async fn a_row_is_taken_after_those_it_depends_on() {
    let fixture = Fixture::open().await;
    let (client, other) = (connect(&fixture.url).await, connect(&fixture.url).await);
    client.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    let grandparent = enqueue(&other, LATER).await;
    let parent = enqueue(&other, &format!("{LATER}, depends_on => '{{{grandparent}}}'")).await;
    let children = format!(
        "SELECT punctual.enqueue('t', tenant => 'acme', depends_on => ARRAY['{}'::uuid]) FROM generate_series(1, 600)",
        parent.uuid()
    );
    client.batch_execute(&format!("{children}; COMMIT")).await.unwrap();
    let second = open(&fixture.url, NodeId::new(8)).await;
    let _taking = [Taking::start(&fixture.store), Taking::start(&second)];
    eventually("all have become tasks", SOON, async || {
        let left = fixture.number("SELECT count(*) FROM inbox").await;
        if left == 0 { Ok(()) } else { Err(format!("{left} left")) }
    })
    .await;
    assert_eq!(fixture.number("SELECT count(*) FROM inbox_refused").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM tasks WHERE state = 0").await, 601);
    fixture.assert_counts().await;
}

#[tokio::test]
async fn ids_are_accepted_with_and_without_a_prefix() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let known = fixture.insert(task()).await.id;
    let waiting = enqueue(&client, LATER).await;
    let (known, waiting, bare) = (known.to_string(), waiting.to_string(), waiting.uuid());
    for ids in [
        format!("ARRAY['{known}', '{bare}']"),
        format!("'{{{waiting}, {known}}}'"),
        format!("ARRAY['{bare}'::uuid, '{bare}'::uuid]"),
        "'{}'".to_owned(),
        "NULL".to_owned(),
    ] {
        enqueue(&client, &format!("'t', tenant => 'acme', depends_on => {ids}, on_dependency_failure => 'run'")).await;
    }
    let stored = "SELECT submission::jsonb ->> 'depends_on' FROM inbox ORDER BY seq OFFSET 1";
    let stored: Vec<_> = fixture.sql(stored).await.into_iter().map(|mut row| row.remove(0)).collect();
    let mut both = [format!("{known:?}"), format!("{waiting:?}")];
    both.sort();
    let both = Some(format!("[{}]", both.join(", ")));
    assert_eq!(stored, [both.clone(), both, Some(format!("[{waiting:?}]")), None, None]);
}

#[tokio::test]
async fn a_dependency_of_another_tenant_is_unknown() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let known = fixture.insert(task()).await.id;
    let waiting = enqueue(&client, LATER).await;
    for id in [known, waiting, TaskId::new()] {
        let error = refused(&client, &format!("'t', tenant => 'other', depends_on => '{{{id}}}'")).await;
        assert_eq!(error.code().code(), "22023");
        assert!(error.message().contains(&id.to_string()), "{error:?}");
    }
}
