//! A pull worker whose effect happens exactly once: it moves money between accounts.
//!
//! The transfer and the ledger's entry are one transaction. A task is delivered again if its worker
//! died before it reported, or was silent for too long. The second run finds the entry and moves
//! nothing. Try it against a server on PostgreSQL:
//!
//! ```console
//! $ PUNCTUAL_URL=http://127.0.0.1:7400 DATABASE_URL=postgres://… cargo run -p punctual-client --example exactly_once
//! ```

use anyhow::Context;
use punctual_client::http::{Client, Failure};
use punctual_client::lease::WorkerError;
use punctual_client::ledger::{Ledger, Recorded};
use punctual_client::{Lease, LeaseRequest, Seconds, Task};
use tokio_postgres::NoTls;

/// The payload of tasks of type `transfer`.
#[derive(serde::Deserialize)]
struct Transfer {
    from: String,
    to: String,
    amount: i64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let setting = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
    work(&setting("PUNCTUAL_URL")?, &setting("DATABASE_URL")?).await
}

/// Works until it is killed, or until the server or the database is gone.
pub async fn work(server: &str, database: &str) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let (mut database, connection) = tokio_postgres::connect(database, NoTls).await?;
    tokio::spawn(connection);
    let accounts = "CREATE TABLE IF NOT EXISTS accounts (name text PRIMARY KEY, balance bigint NOT NULL)";
    database.batch_execute(accounts).await?;
    // In the database of the accounts.
    let ledger = Ledger::in_table("transfers_done")?;
    ledger.create(&database).await?;
    let wanted = LeaseRequest {
        worker_id: format!("teller-{}", std::process::id()),
        types: Some(vec!["transfer".to_owned()]),
        wait_seconds: Some(Seconds(30.0)),
        ..LeaseRequest::default()
    };
    loop {
        for lease in client.lease(&wanted).await? {
            settle(&client, &lease, transfer(&mut database, &ledger, &lease.task).await).await?;
        }
    }
}

/// Moves the money, unless an earlier run has.
async fn transfer(database: &mut tokio_postgres::Client, ledger: &Ledger, task: &Task) -> anyhow::Result<Recorded> {
    let Transfer { from, to, amount } = serde_json::from_str(task.payload.get())?;
    let transaction = database.transaction().await?;
    let recorded = ledger.record(&transaction, task).await?;
    if recorded == Recorded::First {
        for (account, sum) in [(&from, -amount), (&to, amount)] {
            let change = "UPDATE accounts SET balance = balance + $2 WHERE name = $1";
            let changed = transaction.execute(change, &[account, &sum]).await?;
            anyhow::ensure!(changed == 1, "there is no account {account}");
        }
    }
    transaction.commit().await?;
    Ok(recorded)
}

/// Reports the outcome. If the worker dies before this, the task is delivered again.
async fn settle(client: &Client, lease: &Lease, done: anyhow::Result<Recorded>) -> anyhow::Result<()> {
    let found = match done {
        Ok(recorded) => {
            println!("{} {recorded:?}", lease.task.task_id);
            client.complete(lease, None).await
        }
        Err(fault) => {
            let error = WorkerError { code: None, message: Some(format!("{fault:#}")), details: None };
            client.fail(lease, Failure { error: Some(error), ..Failure::default() }).await
        }
    };
    match found {
        Ok(_) => Ok(()),
        // Another worker has the task by now, and finds the entry.
        Err(error) if error.code() == Some("stale_token") => Ok(()),
        Err(error) => Err(error.into()),
    }
}
