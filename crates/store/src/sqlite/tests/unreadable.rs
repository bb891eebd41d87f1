//! Rows that cannot be read: they are kept, and do not stop the others.

use punctual_core::ids::NodeId;
use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::{Applied, Filter, Store, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;
use punctual_core::upkeep::Upkeep;
use punctual_testkit::fixtures::{START, TENANT, task};
use punctual_testkit::store::fail_for_good;

use super::Fixture;

/// Statements that damage the second of three tasks.
const DAMAGES: [&str; 7] = [
    "UPDATE bodies SET payload = '{\"torn' WHERE seq = 2",
    "UPDATE bodies SET retry_policy = '{}' WHERE seq = 2",
    "UPDATE bodies SET metadata = '[1]' WHERE seq = 2",
    "UPDATE bodies SET payload = CAST(x'22ff22' AS TEXT) WHERE seq = 2",
    "UPDATE tasks SET version = -1 WHERE seq = 2",
    "UPDATE tasks SET attempts = -1 WHERE seq = 2",
    "DELETE FROM bodies WHERE seq = 2",
];

async fn damaged(damage: &'static str) -> (Fixture, Vec<Task>) {
    let fixture = Fixture::open();
    let mut stored = Vec::new();
    for _ in 0..3 {
        stored.push(fixture.insert(task()).await);
    }
    fixture.sql(damage).await;
    (fixture, stored)
}

fn ids(tasks: &[Task]) -> Vec<punctual_core::ids::TaskId> {
    tasks.iter().map(|task| task.id).collect()
}

async fn assert_in_quarantine(fixture: &Fixture, stored: &[Task]) {
    assert_eq!(fixture.number("SELECT count(*) FROM quarantine WHERE seq = 2").await, 1);
    let all = fixture.number("SELECT count(*) FROM quarantine").await;
    assert_eq!(i64::try_from(fixture.store.quarantined().await.unwrap()), Ok(all));
    assert_eq!(fixture.number("SELECT count(*) FROM tasks WHERE seq = 2").await, 0);
    let bad = stored[1].id;
    let refused = fixture.store.get(TENANT, vec![bad]).await;
    assert!(matches!(&refused, Err(StoreError::Corrupt(why)) if why.contains(&bad.to_string())), "{refused:?}");
    assert!(fixture.store.get("other", vec![bad]).await.unwrap()[0].is_none(), "another tenant does not see it");
    let batch = fixture.store.get(TENANT, ids(stored)).await.unwrap();
    assert_eq!(batch.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    fixture.assert_counts().await;
}

#[tokio::test]
async fn a_claim_gets_past_an_unreadable_row() {
    for damage in DAMAGES {
        let (fixture, stored) = damaged(damage).await;
        let refused = fixture.store.get(TENANT, vec![stored[1].id]).await;
        assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{damage}: {refused:?}");
        let taken = fixture.lease(&stored[0], 2).await;
        assert_eq!(ids(&taken), [stored[0].id, stored[2].id], "{damage}");
        assert_in_quarantine(&fixture, &stored).await;
        assert!(fixture.store.heads(None, Timestamp::MAX, 10).await.unwrap().is_empty(), "{damage}: it is still due");
    }
}

#[tokio::test]
async fn a_listing_leaves_out_an_unreadable_row() {
    for damage in DAMAGES {
        let (fixture, stored) = damaged(damage).await;
        for by_execute_at in [false, true] {
            let filter = Filter { tenant: TENANT.into(), by_execute_at, ..Filter::default() };
            let page = fixture.store.list(filter, None, 10).await.unwrap();
            assert_eq!(page.tasks.len(), 2, "{damage}");
        }
        assert_in_quarantine(&fixture, &stored).await;
    }
}

#[tokio::test]
async fn the_reaper_gets_past_an_unreadable_row() {
    let fixture = Fixture::open();
    let mut stored = Vec::new();
    for _ in 0..3 {
        stored.push(fixture.insert(task()).await);
    }
    assert_eq!(fixture.lease(&stored[0], 3).await.len(), 3);
    fixture.sql("UPDATE tasks SET lease_expires_at = 1").await;
    fixture.sql("UPDATE tasks SET held_since = NULL WHERE seq = 2").await;
    let overdue = fixture.store.overdue(vec![], 10).await.unwrap();
    assert_eq!(ids(&overdue), [stored[0].id, stored[2].id]);
    assert_in_quarantine(&fixture, &stored).await;
    assert_eq!(fixture.store.overdue(vec![], 10).await.unwrap().len(), 2);
}

/// The state of the row says held, but its hold is missing or has no end.
#[tokio::test]
async fn the_reaper_finds_a_held_row_without_a_hold() {
    for damage in [
        "UPDATE tasks SET state = 3 WHERE seq = 2",
        "UPDATE tasks SET state = 2, node = 7 WHERE seq = 2",
        "UPDATE tasks SET state = 3, worker = 'w', held_since = 1, deadline_at = 1, lease_millis = 1 WHERE seq = 2",
    ] {
        let (fixture, stored) = damaged(damage).await;
        let refused = fixture.store.get(TENANT, vec![stored[1].id]).await;
        assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{damage}: {refused:?}");
        let counts = "UPDATE counts SET tasks = 2 WHERE state = 1;
            INSERT INTO counts SELECT lane, state, 1 FROM tasks WHERE seq = 2;
            UPDATE queue_counts SET tasks = 2 WHERE state = 1;
            INSERT INTO queue_counts (tenant, queue, state, tasks)
            SELECT l.tenant, l.queue, t.state, 1 FROM tasks AS t JOIN lanes AS l ON l.id = t.lane WHERE t.seq = 2";
        fixture.sql(counts).await;
        assert!(fixture.store.overdue(vec![], 10).await.unwrap().is_empty(), "{damage}");
        assert_in_quarantine(&fixture, &stored).await;
    }
}

#[tokio::test]
async fn a_row_that_waits_and_is_held_is_not_claimed() {
    let damage = "UPDATE tasks SET holder = 'w', held_since = 1, lease_expires_at = 1, deadline_at = 1, lease_millis = 1 \
                  WHERE seq = 2";
    let (fixture, stored) = damaged(damage).await;
    assert_eq!(ids(&fixture.lease(&stored[0], 2).await), [stored[0].id, stored[2].id]);
    assert_in_quarantine(&fixture, &stored).await;
}

/// Such a row has no tenant, and no claim finds it. The sweep quarantines it, or a read of its id.
#[tokio::test]
async fn a_row_without_its_lane_is_put_in_quarantine() {
    for by_id in [false, true] {
        let (fixture, stored) = damaged("UPDATE tasks SET lane = 99 WHERE seq = 2").await;
        let counts = "UPDATE counts SET tasks = 2 WHERE state = 1; INSERT INTO counts VALUES (99, 1, 1);
            UPDATE queue_counts SET tasks = 2 WHERE state = 1";
        fixture.sql(counts).await;
        if by_id {
            assert!(fixture.store.get(TENANT, vec![stored[1].id]).await.unwrap()[0].is_none());
        } else {
            let heads = fixture.store.heads(None, Timestamp::MAX, 10).await.unwrap();
            assert_eq!(heads.len(), 1, "the lane of the other tasks");
        }
        assert_eq!(fixture.number("SELECT count(*) FROM quarantine WHERE seq = 2 AND reason LIKE '%lane%'").await, 1);
        assert_eq!(fixture.number("SELECT count(*) FROM tasks WHERE seq = 2").await, 0);
        assert!(fixture.store.get(TENANT, vec![stored[1].id]).await.unwrap()[0].is_none());
        fixture.assert_counts().await;
    }
}

#[tokio::test]
async fn an_unreadable_finished_row_stays_in_the_history() {
    let (fixture, stored) = damaged("SELECT 1").await;
    fixture
        .sql(
            "INSERT INTO history SELECT seq, id, lane, 4, 2, 0, 0, execute_at, due_at, NULL, NULL, NULL, 1, NULL, NULL, '{', \
             trail FROM tasks WHERE seq = 2;
             DELETE FROM tasks WHERE seq = 2;
             UPDATE counts SET tasks = 2",
        )
        .await;
    let filter = Filter { tenant: TENANT.into(), ..Filter::default() };
    assert_eq!(fixture.store.list(filter, None, 10).await.unwrap().tasks.len(), 2);
    let refused = fixture.store.get(TENANT, vec![stored[1].id]).await;
    assert!(matches!(&refused, Err(StoreError::Corrupt(why)) if why.contains("result")), "{refused:?}");
    assert_eq!(fixture.number("SELECT count(*) FROM history").await, 1);
}

#[tokio::test]
async fn an_id_that_leads_to_another_task_does_not_change_it() {
    let (fixture, stored) = damaged("UPDATE ids SET seq = 3 WHERE seq = 2").await;
    assert!(fixture.store.get(TENANT, vec![stored[1].id]).await.unwrap()[0].is_none());
    let by = By { now: START, node: NodeId::new(1), actor: Actor::Client };
    let cancelled = transition(&stored[1].position, Event::Cancel, &by).unwrap();
    let applied = fixture.store.apply(vec![(stored[1].id, cancelled)]).await.unwrap();
    assert!(matches!(applied[..], [Applied::Lost]));
    let other = fixture.store.get(TENANT, vec![stored[2].id]).await.unwrap();
    assert_eq!(other[0].as_ref().map(Task::state), Some(State::Pending));
}

#[tokio::test]
async fn an_astray_row_is_found_when_its_hold_expires() {
    let damages = [
        "DELETE FROM ids WHERE seq = 2",
        "UPDATE ids SET seq = 3 WHERE seq = 2",
        "UPDATE tasks SET id = (SELECT id FROM tasks WHERE seq = 3) WHERE seq = 2",
        "INSERT INTO history SELECT seq, id, lane, 4, 2, 0, 0, execute_at, due_at, NULL, NULL, NULL, 1, NULL, NULL, '1', \
         trail FROM tasks WHERE seq = 2",
    ];
    for damage in damages {
        let (fixture, stored) = damaged(damage).await;
        assert_eq!(fixture.lease(&stored[0], 3).await.len(), 3, "{damage}");
        fixture.sql("UPDATE tasks SET lease_expires_at = 1").await;
        assert_eq!(fixture.store.overdue(vec![], 10).await.unwrap().len(), 2, "{damage}");
        assert_eq!(fixture.number("SELECT count(*) FROM quarantine WHERE seq = 2").await, 1, "{damage}");
        assert_eq!(fixture.number("SELECT count(*) FROM tasks WHERE seq <> 2").await, 2, "{damage}");
        fixture.assert_counts().await;
    }
}

#[tokio::test]
async fn a_row_that_is_also_in_the_history_stops_no_other_change() {
    let (fixture, stored) = damaged("SELECT 1").await;
    let held = fixture.lease(&stored[0], 3).await;
    fixture
        .sql(
            "INSERT INTO history SELECT seq, id, lane, 4, 2, 0, 0, execute_at, due_at, NULL, NULL, NULL, 1, NULL, NULL, \
             '1', trail FROM tasks WHERE seq = 2",
        )
        .await;
    let by = By { now: START, node: NodeId::new(1), actor: Actor::Worker("w".into()) };
    let complete = |task: &Task| {
        let event = Event::Complete { result: None, http_status: None, dropped: None };
        (task.id, transition(&task.position, event, &by).unwrap())
    };
    let applied = fixture.store.apply(held.iter().map(complete).collect()).await.unwrap();
    assert!(matches!(applied[..], [Applied::Done(_), Applied::Lost, Applied::Done(_)]));
    assert_eq!(fixture.number("SELECT count(*) FROM quarantine WHERE seq = 2").await, 1);
    fixture.assert_counts().await;
}

#[tokio::test]
async fn a_listing_quarantines_a_row_without_an_id() {
    let (fixture, _) = damaged("UPDATE tasks SET id = x'01' WHERE seq = 2").await;
    let filter = Filter { tenant: TENANT.into(), ..Filter::default() };
    assert_eq!(fixture.store.list(filter, None, 10).await.unwrap().tasks.len(), 2);
    assert_eq!(fixture.number("SELECT count(*) FROM quarantine WHERE seq = 2").await, 1);
}

#[tokio::test]
async fn the_resolver_gets_past_an_unreadable_note() {
    let fixture = Fixture::open();
    fixture.sql("INSERT INTO orders_due (ordering, dead_letter) VALUES (x'00', 7)").await;
    let first = fixture.insert(task().ordering_key("k")).await;
    fixture.store.resolve().await.unwrap();
    assert_eq!(fixture.lease(&first, 1).await.len(), 1);
    assert_eq!(fixture.number("SELECT count(*) FROM orders_due").await, 0);
}

/// The resolver works off the keys of all queues in one step: one bad queue must not stop it.
#[tokio::test]
async fn unreadable_settings_hold_only_the_keys_of_their_queue() {
    let fixture = Fixture::open();
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
    assert_eq!(fixture.number(with_turn).await, 1, "the other key is held until its settings can be read");
    fixture.sql("UPDATE queues SET settings = '{}'").await;
    Upkeep::review(&fixture.store).await.unwrap();
    fixture.store.resolve().await.unwrap();
    assert_eq!(fixture.number(with_turn).await, 2);
}
