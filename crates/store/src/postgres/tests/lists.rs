//! Lists of a tenant with few tasks, where others have many.

use punctual_core::store::Store;
use punctual_testkit::fixtures::{at, filters_of_few_tasks, task};

use super::{Fixture, complete};

/// Ten tasks, one half finished. Others have 200,000, newer and sooner than these.
async fn crowd() -> Fixture {
    let fixture = Fixture::open().await;
    for _ in 0..5 {
        let first = fixture.insert(task()).await;
        let running = fixture.lease(&first, 1).await.pop().unwrap();
        assert!(complete(&fixture.store, &running).await);
        fixture.insert(task().kind("later").due(at(50_000))).await;
    }
    let other = fixture.insert(task().tenant("other").due(at(-1_000))).await.id.uuid();
    let columns =
        "seq, lane, version, execute_at, due_at, created_at, timeout_millis, attempts, crashes, trail, payload";
    let id = |first: char| format!("('{first}0000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid");
    for (table, first, more, values) in
        [("tasks", 'e', "state, cancel_requested", "1, false"), ("history", 'f', "state, completed_at", "7, due_at")]
    {
        let id = id(first);
        fixture
            .sql(&format!(
                "INSERT INTO {table} (id, {columns}, {more}) SELECT {id}, {columns}, {values}
                 FROM tasks, generate_series(1, 100000) AS n WHERE id = '{other}'"
            ))
            .await;
    }
    fixture
}

/// A page looks at a quarter of the others' tasks at most. It would end there, and be empty.
#[tokio::test]
async fn a_list_of_few_tasks_is_one_page_among_many() {
    let fixture = crowd().await;
    for (filter, expected) in filters_of_few_tasks() {
        let page = fixture.store.list(filter.clone(), None, 50).await.unwrap();
        assert_eq!((page.tasks.len(), page.next), (expected, None), "{filter:?}");
    }
}
