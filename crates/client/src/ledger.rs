//! The ledger: a record of the tasks that took effect, written in the transaction of the effect.
//!
//! Tasks are delivered at least once: a worker may do its work and die before it reports it, and
//! then the task comes again. A worker whose effect is a transaction in PostgreSQL records the task
//! in the same transaction. Both are committed or neither is. A second delivery finds the entry and
//! only completes the task.
//!
//! ```no_run
//! # use punctual_client::{Lease, http::Client, ledger::{Ledger, Recorded}};
//! # async fn handle(database: &mut tokio_postgres::Client, client: Client, lease: Lease) -> anyhow::Result<()> {
//! let transaction = database.transaction().await?;
//! if Ledger::of_punctual().record(&transaction, &lease.task).await? == Recorded::First {
//!     transaction.execute("UPDATE accounts SET balance = balance - 30 WHERE name = 'ada'", &[]).await?;
//! }
//! transaction.commit().await?;
//! client.complete(&lease, None).await?;
//! # Ok(()) }
//! ```
//!
//! The entries are in the database of the effect. In Punctual's own, migrations create the table
//! and the leader prunes it ([`Ledger::of_punctual`]). In any other the application does so
//! ([`Ledger::in_table`], [`Ledger::create`], [`Ledger::prune`]).

use std::time::Duration;

use tokio_postgres::{Client, Transaction};

use crate::Task;

/// How long an entry is kept by default: 30 days.
const LIFETIME: Duration = Duration::from_hours(30 * 24);

/// The longest name of a table, so that its index can be named after it.
const NAME_BYTES_MAX: usize = 50;

/// The longest key, in bytes.
const KEY_BYTES_MAX: usize = 512;

/// A table of entries, and how long they are kept.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Quoted.
    table: String,
    index: String,
    lifetime: Duration,
}

/// Whether a task took effect before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an effect that was there already must not happen again"]
pub enum Recorded {
    /// It did not: the effect belongs into this transaction.
    First,
    /// It did: only complete the task.
    Already,
}

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Not the name of a table.
    #[error("{0:?} is not the name of a table: write `table` or `schema.table`, each of 1 to {NAME_BYTES_MAX} bytes")]
    Table(String),
    /// A key that is empty or too long.
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {0}")]
    Key(usize),
    /// PostgreSQL refused, or the connection broke.
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
}

impl Ledger {
    /// The ledger in Punctual's own database.
    pub fn of_punctual() -> Self {
        Self::of("\"punctual\".\"ledger\"".to_owned(), "ledger_expiring".to_owned())
    }

    /// A ledger in a table of the application, `table` or `schema.table`, spelled as in the
    /// database.
    pub fn in_table(name: &str) -> Result<Self, LedgerError> {
        let parts: Vec<&str> = name.split('.').collect();
        let is_name = |part: &&str| (1..=NAME_BYTES_MAX).contains(&part.len()) && !part.contains('\0');
        if parts.len() > 2 || !parts.iter().all(is_name) {
            return Err(LedgerError::Table(name.to_owned()));
        }
        let quoted: Vec<String> = parts.iter().map(|part| quote(part)).collect();
        let last = parts.last().expect("invariant: a split text has a part");
        Ok(Self::of(quoted.join("."), format!("{last}_expiring")))
    }

    fn of(table: String, index: String) -> Self {
        Self { table, index, lifetime: LIFETIME }
    }

    /// The same ledger, whose further entries are kept this long. It must be longer than a task may
    /// come again.
    #[must_use]
    pub fn kept_for(self, lifetime: Duration) -> Self {
        Self { lifetime, ..self }
    }

    /// Creates the table if it is missing. Punctual's own is created by its migrations.
    pub async fn create(&self, client: &Client) -> Result<(), LedgerError> {
        let Self { table, index, .. } = self;
        let (name, index) = (literal(table), quote(index));
        // An existing table is not touched: `CREATE INDEX IF NOT EXISTS` would wait for all
        // transactions that record, and make later ones wait.
        let block = format!(
            "BEGIN
                 PERFORM pg_advisory_xact_lock(hashtextextended('punctual ledger', 0));
                 IF to_regclass({name}) IS NULL THEN
                     CREATE TABLE {table} (
                         tenant      text   COLLATE \"C\" NOT NULL,
                         key         text   COLLATE \"C\" NOT NULL,
                         recorded_at bigint NOT NULL,
                         expires_at  bigint NOT NULL,
                         PRIMARY KEY (tenant, key)
                     );
                     CREATE INDEX {index} ON {table} (expires_at);
                 END IF;
             END"
        );
        Ok(client.batch_execute(&format!("DO {}", literal(&block))).await?)
    }

    /// Records that a task takes effect in this transaction. Waits for other transactions that
    /// record the same task.
    ///
    /// With isolation above read committed, PostgreSQL may fail with a serialization error instead
    /// of waiting. Then repeat the transaction, as after any other statement.
    pub async fn record(&self, transaction: &Transaction<'_>, task: &Task) -> Result<Recorded, LedgerError> {
        self.record_key(transaction, &task.tenant, &task.task_id.to_string()).await
    }

    /// The same for a key of the application: the task id of a webhook, perhaps with a step of the
    /// task.
    pub async fn record_key(
        &self,
        transaction: &Transaction<'_>,
        tenant: &str,
        key: &str,
    ) -> Result<Recorded, LedgerError> {
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(LedgerError::Key(key.len()));
        }
        // It reads nothing, so that the privilege to insert is enough.
        let sql = format!(
            "INSERT INTO {} (tenant, key, recorded_at, expires_at)
             SELECT $1, $2, now.millis, now.millis + $3
             FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS millis) AS now
             ON CONFLICT DO NOTHING",
            self.table
        );
        let lifetime = i64::try_from(self.lifetime.as_millis()).unwrap_or(i64::MAX / 2).min(i64::MAX / 2);
        match transaction.execute(&sql, &[&tenant, &key, &lifetime]).await? {
            0 => Ok(Recorded::Already),
            _ => Ok(Recorded::First),
        }
    }

    /// Removes at most `limit` expired entries and returns how many. In Punctual's own table the
    /// leader does that.
    pub async fn prune(&self, client: &Client, limit: u32) -> Result<u64, LedgerError> {
        let sql = format!(
            "DELETE FROM {table} WHERE ctid = ANY (ARRAY(
                 SELECT ctid FROM {table} WHERE expires_at <= extract(epoch FROM clock_timestamp()) * 1000
                 ORDER BY expires_at LIMIT $1
             ))",
            table = self.table
        );
        Ok(client.execute(&sql, &[&i64::from(limit)]).await?)
    }
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    // An `E` string means the same under any setting of the session.
    format!(" E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_as_it_is_spelled() {
        let table = |name: &str| Ledger::in_table(name).map(|ledger| ledger.table);
        assert_eq!(table("Done").unwrap(), "\"Done\"");
        assert_eq!(table("billing.done").unwrap(), "\"billing\".\"done\"");
        assert_eq!(table("a\"; DROP TABLE b; --").unwrap(), "\"a\"\"; DROP TABLE b; --\"");
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for bad in ["", ".", "a.", ".a", "a.b.c", "a\0", &long] {
            assert!(matches!(table(bad), Err(LedgerError::Table(_))), "{bad:?}");
        }
    }
}
