//! The months of the history: made ahead, and listed as one table. (`retention` removes them.)

use punctual_core::state::State;
use punctual_core::store::{Filter, Store};
use punctual_testkit::fixtures::{START, TENANT, task};

use super::{Fixture, complete, ids};

/// What writers have counted is merged, however much it is, and queues without tasks leave nothing.
#[tokio::test]
async fn upkeep_merges_the_counts_of_writers() {
    let fixture = Fixture::open().await;
    let stored = fixture.insert(task()).await;
    fixture
        .sql(
            "INSERT INTO queue_counts (tenant, queue, state, slot, tasks)
             SELECT 'other', 'q' || n, 1, slot, CASE slot WHEN 1 THEN 1 ELSE -1 END
             FROM generate_series(1, 2500) AS n, generate_series(1, 2) AS slot;
             INSERT INTO counts (lane, state, slot, tasks)
             SELECT 1000000 + n, 1, 1, 0 FROM generate_series(1, 2500) AS n",
        )
        .await;
    fixture.store.upkeep(START).await.unwrap();
    let number = async |sql: &str| fixture.number(sql).await;
    assert_eq!(number("SELECT count(*) FROM punctual.queue_counts WHERE tenant = 'other' OR slot <> 0").await, 0);
    assert_eq!(number("SELECT count(*) FROM punctual.counts WHERE slot <> 0").await, 0);
    let of_task = format!("SELECT sum(tasks)::bigint FROM punctual.counts WHERE lane = {}", stored.lane.id.number());
    assert_eq!(number(&of_task).await, 1);
    let of_queue = "SELECT sum(tasks)::bigint FROM punctual.queue_counts WHERE queue = 'default'";
    assert_eq!(number(of_queue).await, 1);
}

#[tokio::test]
async fn months_are_made_ahead() {
    let fixture = Fixture::open().await;
    assert_eq!(fixture.months().await.len(), 4, "this month, two more, and the default partition");
    let stored = fixture.insert(task()).await;
    let running = fixture.lease(&stored, 1).await.pop().unwrap();
    assert!(complete(&fixture.store, &running).await);
    assert_eq!(fixture.number("SELECT count(*) FROM history_rest").await, 1, "the test's clock is in another month");

    assert_eq!(fixture.store.upkeep(START).await.unwrap(), 3);
    assert_eq!(fixture.store.upkeep(START).await.unwrap(), 0, "they are there");
    assert_eq!(fixture.number("SELECT count(*) FROM history_rest").await, 0);
    assert_eq!(
        fixture.number("SELECT count(*) FROM history_2026_05").await,
        1,
        "the row in the default partition has moved"
    );
    let done = fixture.store.get(TENANT, vec![stored.id]).await.unwrap().remove(0).unwrap();
    assert_eq!(done.state(), State::Completed);
    fixture.assert_counts().await;
}

/// Moving them would hold up every read of the history. The other months are made all the same.
#[tokio::test]
async fn a_month_with_many_rows_stays_in_the_rest() {
    let fixture = Fixture::open().await;
    let stored = fixture.insert(task()).await;
    let running = fixture.lease(&stored, 1).await.pop().unwrap();
    assert!(complete(&fixture.store, &running).await);
    let columns = fixture
        .sql(
            "SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute
             WHERE attrelid = 'history'::regclass AND attnum > 1 AND NOT attisdropped",
        )
        .await[0][0]
        .clone()
        .unwrap();
    fixture
        .sql(&format!(
            "INSERT INTO history (id, {columns})
             SELECT gen_random_uuid(), {columns} FROM history_rest, generate_series(1, 10000)"
        ))
        .await;
    assert_eq!(fixture.store.upkeep(START).await.unwrap(), 2);
    assert_eq!(fixture.number("SELECT count(*) FROM history_rest").await, 10_001);
    fixture.sql(&format!("DELETE FROM history WHERE id <> '{}'", stored.id.uuid())).await;
    assert_eq!(fixture.store.upkeep(START).await.unwrap(), 1, "few can be moved");
    assert_eq!(fixture.number("SELECT count(*) FROM history_2026_05").await, 1);
}

#[tokio::test]
async fn a_listing_runs_over_all_months() {
    let fixture = Fixture::open().await;
    fixture.store.upkeep(START).await.unwrap();
    let mut stored = Vec::new();
    for _ in 0..6 {
        let waiting = fixture.insert(task()).await;
        let running = fixture.lease(&waiting, 1).await.pop().unwrap();
        assert!(complete(&fixture.store, &running).await);
        stored.push(running);
    }
    for (number, task) in stored.iter().enumerate().skip(1) {
        // Into another month, or into none.
        let sql = format!(
            "UPDATE history SET completed_at = completed_at + {number} * 2000000000::bigint WHERE id = '{}'",
            task.id.uuid()
        );
        fixture.sql(&sql).await;
    }
    assert!(fixture.number("SELECT count(DISTINCT tableoid) FROM history").await >= 3);
    for by_execute_at in [false, true] {
        let filter = Filter { tenant: TENANT.into(), by_execute_at, ..Filter::default() };
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = fixture.store.list(filter.clone(), after, 2).await.unwrap();
            listed.extend(ids(&page.tasks));
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        if !by_execute_at {
            listed.reverse();
        }
        assert_eq!(listed, ids(&stored));
    }
}
