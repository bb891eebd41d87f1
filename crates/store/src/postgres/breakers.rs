//! Breakers and the counts they are judged by. Each call is a statement, or two that stand by
//! themselves.

use async_trait::async_trait;
use punctual_core::breakers::{BreakerChange, BreakerEvent, Breakers, Counted, FailedProbe, Key, OpenBreaker, Runs};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::columns::{count_column, node_column, number_column};

#[async_trait]
impl Breakers for PostgresStore {
    async fn record_counts(&self, node: NodeId, counts: Vec<Counted>) -> Result<(), StoreError> {
        self.reads().call(async |session| record_counts(session, node, &counts).await).await
    }

    async fn counts_since(&self, since: Timestamp) -> Result<Vec<(Key, Runs)>, StoreError> {
        self.reads().call(async |session| counts_since(session, since).await).await
    }

    async fn open_breaker(&self, breaker: OpenBreaker) -> Result<bool, StoreError> {
        self.reads().call(async |session| open(session, &breaker).await).await
    }

    async fn list_breakers(&self, after: Option<Key>, limit: usize) -> Result<Vec<OpenBreaker>, StoreError> {
        self.reads().call(async |session| list(session, after.as_ref(), limit).await).await
    }

    async fn breaker_over(&self, tenant: &str, target: &str) -> Result<Option<OpenBreaker>, StoreError> {
        self.reads().call(async |session| over(session, tenant, target).await).await
    }

    async fn change_breaker(&self, key: &Key, event: BreakerEvent) -> Result<BreakerChange, StoreError> {
        self.reads().call(async |session| change(session, key, &event).await).await
    }
}

/// What a node has counted. Nobody else writes its rows.
async fn record_counts(session: &Session, node: NodeId, counts: &[Counted]) -> Result<(), Fault> {
    let tenants: Vec<&str> = counts.iter().map(|one| one.key.tenant.as_str()).collect();
    let targets: Vec<&str> = counts.iter().map(|one| one.key.target.as_str()).collect();
    let slots: Vec<i64> = counts.iter().map(|one| one.slot_at.as_millis()).collect();
    let ok: Vec<i64> = counts.iter().map(|one| number_column(one.runs.ok)).collect();
    let failed: Vec<i64> = counts.iter().map(|one| number_column(one.runs.failed)).collect();
    let node = node_column(node);
    session.execute(Sql::BreakerCountsPut, &[&tenants, &targets, &slots, &ok, &failed, &node]).await?;
    Ok(())
}

/// The runs of every key without an open breaker.
async fn counts_since(session: &Session, since: Timestamp) -> Result<Vec<(Key, Runs)>, Fault> {
    let rows = session.query(Sql::BreakerCountsSum, &[&since.as_millis()]).await?;
    let counted = |row: &Row| {
        let runs = Runs { ok: number(row.get(2)), failed: number(row.get(3)) };
        (Key { tenant: row.get(0), target: row.get(1) }, runs)
    };
    Ok(rows.iter().map(counted).collect())
}

/// Opens a breaker; whether it was closed.
async fn open(session: &Session, breaker: &OpenBreaker) -> Result<bool, Fault> {
    let (Key { tenant, target }, reason) = (&breaker.key, &breaker.reason);
    let (opened_at, next) = (breaker.opened_at.as_millis(), breaker.next_probe_at.as_millis());
    let (ok, failed) = (number_column(breaker.runs.ok), number_column(breaker.runs.failed));
    let opened = session.execute(Sql::BreakerOpen, &[tenant, target, &opened_at, &next, &ok, &failed, reason]).await?;
    Ok(opened > 0)
}

/// The open breakers behind a key.
async fn list(session: &Session, after: Option<&Key>, limit: usize) -> Result<Vec<OpenBreaker>, Fault> {
    let (tenant, target) = after.map_or(("", ""), |key| (&key.tenant, &key.target));
    let rows = session.query(Sql::BreakerList, &[&tenant, &target, &count_column(limit)]).await?;
    Ok(rows.iter().map(breaker).collect())
}

/// The open breaker over a target.
async fn over(session: &Session, tenant: &str, target: &str) -> Result<Option<OpenBreaker>, Fault> {
    for target in [target, ""] {
        let rows = session.query(Sql::BreakerGet, &[&tenant, &target]).await?;
        if let Some(row) = rows.first() {
            return Ok(Some(breaker(row)));
        }
    }
    Ok(None)
}

/// Changes a breaker by an event. The write names what was read: if another node was faster, the
/// event is judged again by what that one wrote.
async fn change(session: &Session, key: &Key, event: &BreakerEvent) -> Result<BreakerChange, Fault> {
    loop {
        let rows = session.query(Sql::BreakerGet, &[&key.tenant, &key.target]).await?;
        let Some(read) = rows.first().map(breaker) else { return Ok(BreakerChange::NotOpen) };
        let mut breaker = read.clone();
        let change = breaker.change(event);
        let is_written = match change {
            BreakerChange::Changed => update(session, &read, &breaker).await?,
            BreakerChange::Closed => close(session, &read).await?,
            BreakerChange::NotOpen | BreakerChange::Kept => true,
        };
        if is_written {
            return Ok(change);
        }
    }
}

/// Writes a breaker that was read as `read`; false when it is another by now.
async fn update(session: &Session, read: &OpenBreaker, breaker: &OpenBreaker) -> Result<bool, Fault> {
    let (Key { tenant, target }, opened_at) = (&read.key, read.opened_at.as_millis());
    let (next, probe, overtaken) = probe_columns(read);
    let (new_next, new_probe, new_overtaken) = probe_columns(breaker);
    let (failed_at, error) =
        breaker.last_probe.as_ref().map(|failed| (failed.at.as_millis(), failed.error.as_str())).unzip();
    let written = session
        .execute(
            Sql::BreakerChange,
            &[
                tenant,
                target,
                &opened_at,
                &next,
                &read.half_open,
                &probe,
                &overtaken,
                &new_next,
                &breaker.half_open,
                &new_probe,
                &new_overtaken,
                &failed_at,
                &error,
            ],
        )
        .await?;
    Ok(written > 0)
}

/// Closes a breaker that was read as `read`, and removes its counts; false when it is another by
/// now.
async fn close(session: &Session, read: &OpenBreaker) -> Result<bool, Fault> {
    let (Key { tenant, target }, opened_at) = (&read.key, read.opened_at.as_millis());
    let (next, probe, overtaken) = probe_columns(read);
    let rows = session
        .query(Sql::BreakerClose, &[tenant, target, &opened_at, &next, &read.half_open, &probe, &overtaken])
        .await?;
    Ok(rows.first().is_some_and(|row| row.get::<_, i64>(0) > 0))
}

/// The time of the next probe, the last probe, and those it has overtaken.
fn probe_columns(breaker: &OpenBreaker) -> (i64, Option<Uuid>, Vec<Uuid>) {
    let overtaken = breaker.overtaken.iter().map(|task| task.uuid()).collect();
    (breaker.next_probe_at.as_millis(), breaker.probe.map(TaskId::uuid), overtaken)
}

fn breaker(row: &Row) -> OpenBreaker {
    let (failed_at, error): (Option<i64>, Option<String>) = (row.get(10), row.get(11));
    OpenBreaker {
        key: Key { tenant: row.get(0), target: row.get(1) },
        opened_at: Timestamp::from_millis(row.get(2)),
        next_probe_at: Timestamp::from_millis(row.get(3)),
        runs: Runs { ok: number(row.get(4)), failed: number(row.get(5)) },
        reason: row.get(6),
        half_open: row.get(7),
        probe: row.get::<_, Option<Uuid>>(8).map(TaskId::from_uuid),
        overtaken: row.get::<_, Vec<Uuid>>(9).into_iter().map(TaskId::from_uuid).collect(),
        last_probe: failed_at
            .map(|at| FailedProbe { at: Timestamp::from_millis(at), error: error.unwrap_or_default() }),
    }
}

fn number(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}
