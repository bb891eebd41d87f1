//! Unreadable rows go to the quarantine: they hold up no other row and are not lost.

use punctual_core::ids::NodeId;
use punctual_core::state::{By, transition};
use punctual_core::store::{Applied, Filter, Store, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;
use punctual_core::upkeep::Upkeep;
use punctual_testkit::fixtures::{START, TENANT, task};
use punctual_testkit::store::fail_for_good;

use super::{Fixture, ids};

/// The ways to damage a row.
const DAMAGES: [&str; 6] = [
    "payload = '{\"torn'",
    "payload = repeat('x', 100000)",
    "retry_policy = '{}'",
    "metadata = '[1]'",
    "version = -1",
    "attempts = -1",
];

async fn damaged(fixture: &Fixture, damage: &str) -> Vec<Task> {
    let mut stored = Vec::new();
    for _ in 0..3 {
        stored.push(fixture.insert(task().queue(damage)).await);
    }
    fixture.sql(&format!("UPDATE tasks SET {damage} WHERE id = '{}'", stored[1].id.uuid())).await;
    stored
}

async fn assert_in_quarantine(fixture: &Fixture, stored: &[Task]) {
    let bad = stored[1].id;
    let found = |table: &str| format!("SELECT count(*) FROM {table} WHERE id = '{}'", bad.uuid());
    assert_eq!(fixture.number(&found("quarantine")).await, 1);
    assert_eq!(fixture.number(&found("tasks")).await, 0);
    let all = fixture.number("SELECT count(*) FROM quarantine").await;
    assert_eq!(i64::try_from(fixture.store.quarantined().await.unwrap()), Ok(all));
    let refused = fixture.store.get(TENANT, vec![bad]).await;
    assert!(matches!(&refused, Err(StoreError::Corrupt(why)) if why.contains(&bad.to_string())), "{refused:?}");
    assert!(fixture.store.get("other", vec![bad]).await.unwrap()[0].is_none(), "other tenants do not see it");
    let batch = fixture.store.get(TENANT, ids(stored)).await.unwrap();
    assert_eq!(batch.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    fixture.assert_counts().await;
}

#[tokio::test]
async fn a_claim_gets_past_a_row_that_cannot_be_read() {
    let fixture = Fixture::open().await;
    for damage in DAMAGES {
        let stored = damaged(&fixture, damage).await;
        let refused = fixture.store.get(TENANT, vec![stored[1].id]).await;
        assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{damage}: {refused:?}");
        let mut taken = fixture.lease(&stored[0], 2).await;
        taken.extend(fixture.lease(&stored[0], 2).await);
        assert_eq!(ids(&taken), [stored[0].id, stored[2].id], "{damage}");
        assert_in_quarantine(&fixture, &stored).await;
        assert!(fixture.store.heads(None, Timestamp::MAX, 10).await.unwrap().is_empty(), "{damage}: it stays due");
    }
}

#[tokio::test]
async fn a_listing_leaves_out_a_row_that_cannot_be_read() {
    let fixture = Fixture::open().await;
    for damage in DAMAGES {
        let stored = damaged(&fixture, damage).await;
        for by_execute_at in [false, true] {
            let queue = Some(damage.into());
            let filter = Filter { tenant: TENANT.into(), queue, by_execute_at, ..Filter::default() };
            let page = fixture.store.list(filter, None, 10).await.unwrap();
            assert_eq!(page.tasks.len(), 2, "{damage}");
        }
        assert_in_quarantine(&fixture, &stored).await;
    }
}

#[tokio::test]
async fn the_reaper_gets_past_a_row_that_cannot_be_read() {
    let fixture = Fixture::open().await;
    let mut stored = Vec::new();
    for _ in 0..3 {
        stored.push(fixture.insert(task()).await);
    }
    assert_eq!(fixture.lease(&stored[0], 3).await.len(), 3);
    fixture.sql("UPDATE tasks SET lease_expires_at = 1").await;
    fixture.sql(&format!("UPDATE tasks SET held_since = NULL WHERE id = '{}'", stored[1].id.uuid())).await;
    let mut overdue = ids(&fixture.store.overdue(vec![], 10).await.unwrap());
    overdue.sort_unstable();
    assert_eq!(overdue, [stored[0].id, stored[2].id]);
    assert_in_quarantine(&fixture, &stored).await;
    assert_eq!(fixture.store.overdue(vec![], 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn the_reaper_finds_a_hold_without_an_end() {
    for damage in ["state = 3", "state = 2, node = 7"] {
        // A fresh store scans from the beginning, however slow the machine is.
        let fixture = Fixture::open().await;
        let stored = damaged(&fixture, damage).await;
        let lane = stored[1].lane.id.number();
        fixture
            .sql(&format!(
                "DELETE FROM counts WHERE lane = {lane};
                 INSERT INTO counts SELECT lane, state, 0, count(*) FROM tasks WHERE lane = {lane} GROUP BY lane, state;
                 DELETE FROM queue_counts WHERE tenant <> '';
                 INSERT INTO queue_counts (tenant, queue, state, slot, tasks)
                 SELECT l.tenant, l.queue, t.state, 0, count(*) FROM tasks AS t JOIN lanes AS l ON l.id = t.lane
                 GROUP BY l.tenant, l.queue, t.state"
            ))
            .await;
        assert!(fixture.store.overdue(vec![], 10).await.unwrap().is_empty(), "{damage}");
        assert_in_quarantine(&fixture, &stored).await;
    }
}

/// PostgreSQL refuses it, which fails its own call and not the others of its batch.
#[tokio::test]
async fn a_text_that_cannot_be_stored_fails_its_own_call() {
    let fixture = Fixture::open().await;
    let calls: Vec<_> = (0..20)
        .map(|number| {
            let store = fixture.store.clone();
            let new = if number % 5 == 0 { task().key("nul \0", 1) } else { task() };
            tokio::spawn(async move { store.insert(vec![new.build()]).await.is_ok() })
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), number % 5 != 0, "call {number}");
    }
    fixture.assert_counts().await;
}

/// The resolver works off the keys of all queues in one step: one bad queue must not stop it.
#[tokio::test]
async fn unreadable_settings_hold_only_the_keys_of_their_queue() {
    let fixture = Fixture::open().await;
    let by = By { now: START, node: NodeId::new(7), actor: Actor::Client };
    for queue in ["good", "bad"] {
        let first = fixture.insert(task().queue(queue).ordering_key(queue)).await;
        fixture.store.resolve().await.unwrap();
        let running = fixture.lease(&first, 1).await.remove(0);
        let failed = transition(&running.position, fail_for_good(&running), &by).unwrap();
        let applied = fixture.store.apply(vec![(running.id, failed)]).await.unwrap();
        assert!(matches!(applied[..], [Applied::Done(None)]));
        fixture.insert(task().queue(queue).ordering_key(queue)).await;
    }
    let tear = "INSERT INTO queues (tenant, name, settings, version)
                SELECT tenant, queue, '{torn', 1 FROM lanes WHERE queue = 'bad'";
    fixture.sql(tear).await;
    let with_turn = "SELECT count(*) FROM tasks WHERE has_turn AND ordering IS NOT NULL";
    fixture.store.resolve().await.unwrap();
    assert_eq!(fixture.number(with_turn).await, 1, "the key of the good queue");
    Upkeep::review(&fixture.store).await.unwrap();
    fixture.store.resolve().await.unwrap();
    assert_eq!(fixture.number(with_turn).await, 1, "the other is held until its settings can be read");
    fixture.sql("UPDATE queues SET settings = '{}'").await;
    Upkeep::review(&fixture.store).await.unwrap();
    fixture.store.resolve().await.unwrap();
    assert_eq!(fixture.number(with_turn).await, 2);
}
