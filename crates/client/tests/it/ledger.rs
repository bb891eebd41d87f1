//! The ledger on a real PostgreSQL: concurrent records of one key, privileges and expiry.

use std::time::Duration;

use punctual_client::ledger::{Ledger, LedgerError, Recorded};
use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::{Postgres, connect, execute};

const SOON: Duration = Duration::from_secs(20);

const KEY: &str = "task_01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e8f";

/// A server, the URL of a database on it, and a ledger in that database.
async fn fixture() -> (Postgres, String, Ledger) {
    let server = Postgres::start().await;
    let url = server.create_database().await;
    let ledger = Ledger::in_table("Done \"here'\\\"").expect("a name");
    ledger.create(&connect(&url).await).await.expect("the table is made");
    (server, url, ledger)
}

async fn record(client: &mut tokio_postgres::Client, ledger: &Ledger, key: &str) -> Recorded {
    let transaction = client.transaction().await.expect("a transaction begins");
    let recorded = ledger.record_key(&transaction, "acme", key).await.expect("it is recorded");
    transaction.commit().await.expect("it commits");
    recorded
}

#[tokio::test]
async fn a_key_is_recorded_once_for_each_tenant() {
    let (_server, url, ledger) = fixture().await;
    let mut client = connect(&url).await;
    assert_eq!(record(&mut client, &ledger, KEY).await, Recorded::First);
    assert_eq!(record(&mut client, &ledger, KEY).await, Recorded::Already);
    assert_eq!(record(&mut client, &ledger, &format!("{KEY}/email")).await, Recorded::First);
    let transaction = client.transaction().await.expect("a transaction begins");
    let others = ledger.record_key(&transaction, "other", KEY).await.expect("it is recorded");
    assert_eq!(others, Recorded::First);
    assert_eq!(ledger.record_key(&transaction, "other", KEY).await.expect("it answers"), Recorded::Already);
    for bad in ["", &"k".repeat(513)] {
        assert!(matches!(ledger.record_key(&transaction, "acme", bad).await, Err(LedgerError::Key(_))));
    }
}

/// The second transaction waits for the first, and sees whether it committed.
#[tokio::test]
async fn only_one_of_two_transactions_records_a_key() {
    let (_server, url, ledger) = fixture().await;
    for (commits, expected) in [(false, Recorded::First), (true, Recorded::Already)] {
        let key = format!("{KEY}/{commits}");
        let (mut client, mut other) = (connect(&url).await, connect(&url).await);
        let first = client.transaction().await.expect("a transaction begins");
        assert_eq!(ledger.record_key(&first, "acme", &key).await.expect("it is recorded"), Recorded::First);
        let (theirs, same) = (ledger.clone(), key.clone());
        let second = tokio::spawn(async move { record(&mut other, &theirs, &same).await });
        eventually("the second waits", SOON, async || {
            let waiting = execute(&url, "SELECT count(*) FROM pg_locks WHERE NOT granted").await;
            if waiting[0][0].as_deref() == Some("1") { Ok(()) } else { Err(format!("{waiting:?}")) }
        })
        .await;
        assert!(!second.is_finished());
        if commits {
            first.commit().await.expect("it commits");
        } else {
            first.rollback().await.expect("it rolls back");
        }
        assert_eq!(second.await.expect("it is answered"), expected, "the first transaction commits: {commits}");
    }
}

#[tokio::test]
async fn expired_entries_are_removed_in_steps() {
    let (_server, url, ledger) = fixture().await;
    let mut client = connect(&url).await;
    let brief = ledger.clone().kept_for(Duration::ZERO);
    for number in 0..5 {
        assert_eq!(record(&mut client, &brief, &format!("brief {number}")).await, Recorded::First);
    }
    assert_eq!(record(&mut client, &ledger, KEY).await, Recorded::First);
    let lifetime = execute(&url, "SELECT max(expires_at - recorded_at) / 86400000 FROM \"Done \"\"here'\\\"\"\"").await;
    assert_eq!(lifetime[0][0].as_deref(), Some("30"), "days");
    // Expired, but not removed: still found.
    assert_eq!(record(&mut client, &brief, "brief 0").await, Recorded::Already);
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(ledger.prune(&client, 2).await.expect("it is pruned"));
    }
    assert_eq!(removed, [2, 2, 1, 0]);
    assert_eq!(record(&mut client, &brief, "brief 0").await, Recorded::First);
    assert_eq!(record(&mut client, &ledger, KEY).await, Recorded::Already);
}

#[tokio::test]
async fn the_privilege_to_insert_is_enough() {
    let (_server, url, ledger) = fixture().await;
    execute(&url, "CREATE ROLE worker LOGIN; GRANT INSERT ON \"Done \"\"here'\\\"\"\" TO worker").await;
    let mut worker = connect(&url.replace("postgres@", "worker@")).await;
    assert_eq!(record(&mut worker, &ledger, KEY).await, Recorded::First);
    assert_eq!(record(&mut worker, &ledger, KEY).await, Recorded::Already);
    let error = worker.batch_execute("DELETE FROM \"Done \"\"here'\\\"\"\"").await.expect_err("it may not");
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42501"));
}

/// A worker that starts does not wait for open transactions, and blocks none.
#[tokio::test]
async fn an_existing_table_is_not_locked() {
    let (_server, url, ledger) = fixture().await;
    let (mut client, mut other, third) = (connect(&url).await, connect(&url).await, connect(&url).await);
    let open = client.transaction().await.expect("a transaction begins");
    assert_eq!(ledger.record_key(&open, "acme", KEY).await.expect("it is recorded"), Recorded::First);
    third.batch_execute("SET lock_timeout = '2s'").await.expect("it is set");
    ledger.create(&third).await.expect("it is there already");
    assert_eq!(record(&mut other, &ledger, "another").await, Recorded::First);
}

#[tokio::test]
async fn workers_can_create_the_table_concurrently() {
    let server = Postgres::start().await;
    let url = server.create_database().await;
    execute(&url, "CREATE SCHEMA billing").await;
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        workers.spawn(async move {
            let ledger = Ledger::in_table("billing.done").expect("a name");
            let mut client = connect(&url).await;
            ledger.create(&client).await.expect("the table is made");
            record(&mut client, &ledger, KEY).await
        });
    }
    let recorded = workers.join_all().await;
    assert_eq!(recorded.iter().filter(|recorded| **recorded == Recorded::First).count(), 1);
}
