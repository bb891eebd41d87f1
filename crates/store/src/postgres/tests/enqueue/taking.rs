//! How rows of the inbox become tasks.

use punctual_core::clock::ManualClock;
use punctual_core::forecast::Minute;
use punctual_core::insight::Insight;
use punctual_testkit::fixtures::START;
use punctual_testkit::postgres::{Postgres, execute};

use super::super::{Migrator, Options, ids, lease};
use super::*;

#[tokio::test]
async fn a_row_becomes_a_task_after_its_commit() {
    let fixture = Fixture::open().await;
    let _taking = Taking::start(&fixture.store);
    let mut client = connect(&fixture.url).await;
    let rolled_back = client.transaction().await.unwrap();
    let gone = enqueue(rolled_back.client(), "'t', tenant => 'acme'").await;
    rolled_back.rollback().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let id = enqueue(transaction.client(), "'t', tenant => 'acme'").await;
    // A row that is committed later becomes a task meanwhile.
    let other = connect(&fixture.url).await;
    let later = enqueue(&other, "'t', tenant => 'acme'").await;
    until_there(&fixture.store, TENANT, later).await;
    assert!(fixture.store.get(TENANT, vec![id]).await.unwrap()[0].is_none(), "the task exists before its commit");
    transaction.commit().await.unwrap();
    let task = until_there(&fixture.store, TENANT, id).await;
    assert_eq!(ids(&lease(&fixture.store, &task, 5).await).len(), 2);
    assert!(fixture.store.get(TENANT, vec![gone]).await.unwrap()[0].is_none(), "it was rolled back");
    assert_eq!(fixture.number("SELECT count(*) FROM inbox").await, 0);
    fixture.assert_counts().await;
}

#[tokio::test]
async fn tasks_due_later_are_forecast() {
    let fixture = Fixture::open().await;
    let later = |enqueued: &EnqueuedTask| {
        let due_at = punctual_testkit::fixtures::at(600_000);
        validate(enqueued).map(|new| NewTask { execute_at: due_at, due_at, ..new })
    };
    let _taking = Taking::validated_by(&fixture.store, Arc::new(later));
    let client = connect(&fixture.url).await;
    for _ in 0..3 {
        let id = enqueue(&client, "'t', tenant => 'acme'").await;
        until_there(&fixture.store, TENANT, id).await;
    }
    let minute = Minute::of(punctual_testkit::fixtures::at(600_000));
    assert_eq!(fixture.store.waiting(TENANT, minute, minute.plus(1)).await.unwrap(), [(minute, 3)]);
}

#[tokio::test]
async fn an_open_transaction_delays_no_other() {
    let fixture = Fixture::open().await;
    let _taking = Taking::start(&fixture.store);
    let mut client = connect(&fixture.url).await;
    let open = client.transaction().await.unwrap();
    let id = enqueue(open.client(), "'test.work', tenant => 'acme', idempotency_key => 'k'").await;
    // The same lane and key through the store: the insert does not wait for a lock.
    let inserted = tokio::time::timeout(Duration::from_secs(3), fixture.insert(task().key("k", 1))).await;
    let first = inserted.expect("the insert waits for the open transaction");
    fixture.store.upkeep(punctual_testkit::fixtures::START).await.unwrap();
    let other = connect(&fixture.url).await;
    enqueue(&other, "'test.work', tenant => 'acme'").await;
    open.commit().await.unwrap();
    // Its key belongs to another task by now, so the row is refused.
    let refused = eventually("it was refused", SOON, async || {
        let rows = fixture.sql("SELECT id, reason FROM inbox_refused").await;
        rows.into_iter().next().ok_or_else(|| "nothing was refused".to_owned())
    })
    .await;
    assert_eq!(refused[0].as_deref(), Some(id.uuid().to_string().as_str()));
    assert!(refused[1].as_ref().unwrap().ends_with(&format!("used meanwhile for another submission, {}", first.id)));
    assert_eq!(fixture.number("SELECT count(*) FROM inbox_keys").await, 0, "the key is free again");
}

#[tokio::test]
async fn a_key_makes_one_task() {
    let fixture = Fixture::open().await;
    let (mut client, other) = (connect(&fixture.url).await, connect(&fixture.url).await);
    let arguments = "'t', payload => '{\"a\": 1}', tenant => 'acme', idempotency_key => 'k'";
    let open = client.transaction().await.unwrap();
    let first = enqueue(open.client(), arguments).await;
    assert_eq!(enqueue(open.client(), arguments).await, first, "in the same transaction");
    // Another transaction waits for it, and then finds the same task.
    let waiting = tokio::spawn(async move { (enqueue(&other, arguments).await, other) });
    until_waiting_for_a_lock(&fixture).await;
    open.commit().await.unwrap();
    let (again, other) = waiting.await.unwrap();
    assert_eq!(again, first);
    let error = refused(&other, "'t', payload => '{\"a\": 2}', tenant => 'acme', idempotency_key => 'k'").await;
    assert_eq!(error.code().code(), "23505");
    assert!(error.message().contains(&first.to_string()), "{error:?}");
    let others = enqueue(&other, "'t', tenant => 'other', idempotency_key => 'k'").await;
    // The same once it has become a task.
    let taking = Taking::start(&fixture.store);
    until_there(&fixture.store, TENANT, first).await;
    until_there(&fixture.store, "other", others).await;
    assert_eq!(enqueue(&other, arguments).await, first);
    drop(taking);
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 2);
    // A key that was used through the store is known too, but not its submission.
    let own = fixture.insert(task().key("own", 1)).await;
    let error = refused(&other, "'t', tenant => 'acme', idempotency_key => 'own'").await;
    assert_eq!(error.code().code(), "23505");
    assert!(error.message().contains(&own.id.to_string()), "{error:?}");
}

#[tokio::test]
async fn a_key_that_was_rolled_back_is_free() {
    let fixture = Fixture::open().await;
    let (mut client, other) = (connect(&fixture.url).await, connect(&fixture.url).await);
    let open = client.transaction().await.unwrap();
    let first = enqueue(open.client(), "'t', idempotency_key => 'k'").await;
    let waiting = tokio::spawn(async move { enqueue(&other, "'t', payload => '1', idempotency_key => 'k'").await });
    until_waiting_for_a_lock(&fixture).await;
    open.rollback().await.unwrap();
    assert_ne!(waiting.await.unwrap(), first);
}

#[tokio::test]
async fn an_old_snapshot_makes_no_second_task() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class").await.unwrap();
    let first = enqueue(&connect(&fixture.url).await, "'t', tenant => 'acme', idempotency_key => 'k'").await;
    let _taking = Taking::start(&fixture.store);
    until_there(&fixture.store, TENANT, first).await;
    let error = refused(&client, "'t', tenant => 'acme', idempotency_key => 'k'").await;
    assert_eq!(error.code().code(), "40001", "{error:?}");
}

/// An invalid row, one that makes the validator panic, and one whose id exists: none holds up the
/// others.
#[tokio::test]
async fn a_bad_row_is_refused() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let known = fixture.insert(task()).await;
    let good = enqueue(&client, "'good', tenant => 'acme'").await;
    let bad = enqueue(&client, "'bad', tenant => 'acme', idempotency_key => 'k'").await;
    let panic = enqueue(&client, "'panic', tenant => 'acme'").await;
    let twice = known.id.uuid();
    fixture
        .sql(&format!(
            "INSERT INTO inbox (id, created_at, bytes, tenant, submission) VALUES ('{twice}', 0, 0, 'acme', '{{\"type\": \"t\"}}')"
        ))
        .await;
    let last = enqueue(&client, "'good', tenant => 'acme'").await;
    let _taking = Taking::start(&fixture.store);
    until_there(&fixture.store, TENANT, good).await;
    until_there(&fixture.store, TENANT, last).await;
    let rows = eventually("three are refused", SOON, async || {
        let rows = fixture.sql("SELECT id, reason FROM inbox_refused ORDER BY reason").await;
        if rows.len() == 3 { Ok(rows) } else { Err(format!("{rows:?}")) }
    })
    .await;
    let reason = |id: Uuid| {
        let row = rows.iter().find(|row| row[0].as_ref().unwrap() == &id.to_string());
        row.unwrap_or_else(|| panic!("{rows:?}"))[1].clone().unwrap()
    };
    assert_eq!(reason(bad.uuid()), "it is bad");
    assert!(reason(panic.uuid()).contains("could not be validated"));
    assert!(reason(twice).contains("23505"), "{rows:?}");
    assert_eq!(fixture.number("SELECT count(*) FROM inbox").await, 0);
    fixture.assert_counts().await;
    // Its key can be used again, and the row can be put back as docs/sql.md says.
    enqueue(&client, "'good', tenant => 'acme', idempotency_key => 'k'").await;
    let back = format!(
        "WITH again AS (DELETE FROM punctual.inbox_refused WHERE id = '{}' RETURNING *)
         INSERT INTO punctual.inbox (id, created_at, bytes, tenant, submission)
         SELECT id, created_at, octet_length(submission), tenant, replace(submission, 'bad', 'good') FROM again",
        bad.uuid()
    );
    fixture.sql(&back).await;
    eventually("it is refused again, for its key", SOON, async || {
        let reason = fixture.sql(&format!("SELECT reason FROM inbox_refused WHERE id = '{}'", bad.uuid())).await;
        if format!("{reason:?}").contains("used meanwhile for the same submission") {
            Ok(())
        } else {
            Err(format!("{reason:?}"))
        }
    })
    .await;
}

/// It can be put back when the tenant has fewer lanes, or may have more.
#[tokio::test]
async fn a_row_that_needs_too_many_lanes_is_refused() {
    let fixture = Fixture::open().await;
    let options = Options { tenant_lanes: 2, ..Options::default() };
    let clock = Arc::new(ManualClock::new(START));
    let store = PostgresStore::connect(&fixture.url, clock, NodeId::new(8), options).await.unwrap();
    let client = connect(&fixture.url).await;
    let mut enqueued = Vec::new();
    for kind in ["a", "b", "c", "b"] {
        enqueued.push(enqueue(&client, &format!("'{kind}', tenant => 'acme'")).await);
    }
    let _taking = Taking::start(&store);
    for number in [0, 1, 3] {
        until_there(&store, TENANT, enqueued[number]).await;
    }
    let refused = eventually("it is refused", SOON, async || {
        let rows = fixture.sql("SELECT id, reason FROM inbox_refused").await;
        rows.into_iter().next().ok_or_else(|| "nothing was refused".to_owned())
    })
    .await;
    assert_eq!(refused[0], Some(enqueued[2].uuid().to_string()));
    assert!(refused[1].as_ref().unwrap().contains("as many lanes as it may have, 2"), "{refused:?}");
    assert_eq!(fixture.number("SELECT count(*) FROM inbox").await, 0);
}

#[tokio::test]
async fn many_nodes_take_each_row_once() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    // Before any node takes them, in one transaction and in many.
    let many = "SELECT punctual.enqueue('t', to_jsonb(n), tenant => 'acme') FROM generate_series(1, 2000) AS n";
    client.batch_execute(many).await.unwrap();
    let other = open(&fixture.url, NodeId::new(8)).await;
    let _taking = [Taking::start(&fixture.store), Taking::start(&other), Taking::start(&other)];
    for _ in 0..100 {
        enqueue(&client, "'t', tenant => 'acme'").await;
    }
    client.batch_execute(many).await.unwrap();
    eventually("all have become tasks", SOON, async || {
        let left = fixture.number("SELECT count(*) FROM inbox").await;
        if left == 0 { Ok(()) } else { Err(format!("{left} left")) }
    })
    .await;
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 4_100);
    assert_eq!(fixture.number("SELECT count(*) FROM inbox_refused").await, 0);
    fixture.assert_counts().await;
}

#[tokio::test]
async fn large_rows_are_taken_a_few_at_a_time() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let large = "SELECT punctual.enqueue('t', to_jsonb(repeat(chr(65 + n % 26), 200000)), tenant => 'acme')
        FROM generate_series(1, 150) AS n";
    client.batch_execute(large).await.unwrap();
    let _taking = Taking::start(&fixture.store);
    eventually("all have become tasks", SOON, async || {
        let left = fixture.number("SELECT count(*) FROM inbox").await;
        if left == 0 { Ok(()) } else { Err(format!("{left} left")) }
    })
    .await;
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 150);
}

/// Every committed row becomes a task, once.
#[tokio::test]
async fn rows_are_taken_after_a_restart_of_the_database() {
    let mut fixture = Fixture::open().await;
    let _taking = Taking::start(&fixture.store);
    let client = connect(&fixture.url).await;
    let first = enqueue(&client, "'t', tenant => 'acme'").await;
    until_there(&fixture.store, TENANT, first).await;
    fixture.server.stop_immediately().await;
    fixture.server.start_again().await;
    let client = connect(&fixture.url).await;
    let second = enqueue(&client, "'t', tenant => 'acme'").await;
    until_there(&fixture.store, TENANT, second).await;
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 2);
}

#[tokio::test]
async fn migrating_down_loses_no_waiting_row() {
    let server = Postgres::start().await;
    let url = server.create_database().await;
    let database = Migrator::connect(&url).await.unwrap();
    database.up(punctual_testkit::fixtures::START).await.unwrap();
    execute(&url, "SELECT punctual.enqueue('t', idempotency_key => 'k')").await;
    let refusal = async |part: &str| match database.down(3).await {
        Err(fault) => assert!(fault.to_string().contains(part), "{fault}"),
        other => panic!("{other:?}"),
    };
    refusal("1 tasks in punctual.inbox wait").await;
    execute(
        &url,
        "WITH gone AS (DELETE FROM punctual.inbox RETURNING *) INSERT INTO punctual.inbox_refused
        SELECT id, created_at, 0, tenant, submission, 'why' FROM gone",
    )
    .await;
    refusal("1 submissions in punctual.inbox_refused").await;
    execute(&url, "DELETE FROM punctual.inbox_refused").await;
    assert_eq!(database.down(3).await.unwrap().last(), Some(&4));
    let left =
        "SELECT count(*) FROM pg_proc WHERE pronamespace = 'punctual'::regnamespace AND proname <> 'history_ahead'";
    assert_eq!(execute(&url, left).await[0][0].as_deref(), Some("0"));
    assert!(database.up(punctual_testkit::fixtures::START).await.unwrap().starts_with(&[4]));
    execute(&url, "SELECT punctual.enqueue('t', idempotency_key => 'k')").await;
}

#[tokio::test]
async fn old_keys_and_refusals_are_removed_a_few_at_a_time() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let rows =
        "INSERT INTO inbox_keys SELECT 'acme', 'k' || n, gen_random_uuid(), '', n FROM generate_series(1, 10) AS n;
        INSERT INTO inbox_refused SELECT gen_random_uuid(), 0, n, 'acme', '{}', 'why' FROM generate_series(1, 10) AS n";
    fixture.sql(rows).await;
    enqueue(&client, "'t', tenant => 'acme', idempotency_key => 'waits'").await;
    fixture.sql("UPDATE inbox_keys SET created_at = 1 WHERE key = 'waits'").await;
    let before = punctual_core::time::Timestamp::from_millis(8);
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(fixture.store.prune_inbox(before, 3).await.unwrap());
    }
    assert_eq!(removed, [6, 6, 2, 0]);
    assert_eq!(
        fixture.number("SELECT count(*) FROM inbox_keys").await,
        4,
        "three young keys, and one that still waits"
    );
}

async fn until_waiting_for_a_lock(fixture: &Fixture) {
    eventually("a session waits", SOON, async || {
        let waiting = fixture.number("SELECT count(*) FROM pg_locks WHERE NOT granted").await;
        if waiting > 0 { Ok(()) } else { Err("no session waits".to_owned()) }
    })
    .await;
}

/// Submitters to a busy inbox need not notify, which would make them commit one at a time.
#[tokio::test]
async fn a_busy_inbox_is_watched() {
    let fixture = Fixture::open().await;
    let _taking = Taking::start(&fixture.store);
    let watched = || {
        fixture.number("SELECT (watched_until > extract(epoch FROM clock_timestamp()) * 1000)::int FROM inbox_watch")
    };
    assert_eq!(watched().await, 0);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let url = fixture.url.clone();
        callers.spawn(async move {
            let client = connect(&url).await;
            for _ in 0..600 {
                enqueue(&client, "'t', tenant => 'acme'").await;
            }
        });
    }
    eventually("it is watched", SOON, async || if watched().await == 1 { Ok(()) } else { Err("it is not".to_owned()) })
        .await;
    callers.join_all().await;
    eventually("all have become tasks", SOON, async || {
        let left = fixture.number("SELECT count(*) FROM inbox").await;
        if left == 0 { Ok(()) } else { Err(format!("{left} left")) }
    })
    .await;
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 2_400);
    eventually(
        "the watch is over",
        SOON,
        async || if watched().await == 0 { Ok(()) } else { Err("it is not".to_owned()) },
    )
    .await;
}
