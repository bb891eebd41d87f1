//! Breakers and the counts they are judged by. Each call is a statement, or two that stand by themselves.

use async_trait::async_trait;
use punctual_core::breakers::{Breakers, Counted, FailedProbe, Key, OpenBreaker, Permission, Runs};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use tokio_postgres::Row;

use super::PostgresStore;
use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::columns::{count_column, node_column, number_column};

#[async_trait]
impl Breakers for PostgresStore {
    async fn tell_counts(&self, node: NodeId, counts: Vec<Counted>) -> Result<(), StoreError> {
        self.reads().call(async |session| tell_counts(session, node, &counts).await).await
    }

    async fn counts_since(&self, since: Timestamp) -> Result<Vec<(Key, Runs)>, StoreError> {
        self.reads().call(async |session| counts_since(session, since).await).await
    }

    async fn open_breaker(&self, breaker: OpenBreaker) -> Result<bool, StoreError> {
        self.reads().call(async |session| open(session, &breaker).await).await
    }

    async fn open_breakers(&self, after: Option<Key>, limit: usize) -> Result<Vec<OpenBreaker>, StoreError> {
        self.reads().call(async |session| list(session, after.as_ref(), limit).await).await
    }

    async fn breaker_over(&self, tenant: &str, target: &str) -> Result<Option<OpenBreaker>, StoreError> {
        self.reads().call(async |session| over(session, tenant, target).await).await
    }

    async fn permit_probe(&self, key: &Key, now: Timestamp, next: Timestamp) -> Result<Permission, StoreError> {
        self.reads().call(async |session| permit(session, key, now, next).await).await
    }

    async fn name_probe(&self, key: &Key, next: Timestamp, probe: Result<TaskId, Timestamp>) -> Result<(), StoreError> {
        self.reads().call(async |session| name_probe(session, key, next, probe).await).await
    }

    async fn close_breaker(&self, key: &Key, probe: TaskId) -> Result<bool, StoreError> {
        self.reads().call(async |session| close(session, key, Some(probe)).await).await
    }

    async fn probe_failed(&self, key: &Key, probe: TaskId, failed: FailedProbe) -> Result<(), StoreError> {
        self.reads().call(async |session| probe_failed(session, key, probe, &failed).await).await
    }

    async fn return_probe(&self, key: &Key, probe: TaskId, again_at: Timestamp) -> Result<(), StoreError> {
        self.reads().call(async |session| return_probe(session, key, probe, again_at).await).await
    }

    async fn reset_breaker(&self, key: &Key) -> Result<bool, StoreError> {
        self.reads().call(async |session| close(session, key, None).await).await
    }
}

/// What a node has counted. Nobody else writes its rows.
async fn tell_counts(session: &Session, node: NodeId, counts: &[Counted]) -> Result<(), Fault> {
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

/// Whether a probe may be made.
async fn permit(session: &Session, key: &Key, now: Timestamp, next: Timestamp) -> Result<Permission, Fault> {
    let (now, next) = (now.as_millis(), next.as_millis());
    let most_overtaken = i32::try_from(OpenBreaker::MOST_OVERTAKEN).unwrap_or(i32::MAX);
    let rows = session.query(Sql::BreakerPermit, &[&key.tenant, &key.target, &now, &next, &most_overtaken]).await?;
    let told = rows.first().map_or((false, false), |row| (row.get(0), row.get(1)));
    Ok(match told {
        (true, _) => Permission::Given,
        (false, true) => Permission::NotYet,
        (false, false) => Permission::Closed,
    })
}

/// Which task the probe is, or that there is none.
async fn name_probe(
    session: &Session,
    key: &Key,
    next: Timestamp,
    probe: Result<TaskId, Timestamp>,
) -> Result<(), Fault> {
    let (tenant, target, next) = (&key.tenant, &key.target, next.as_millis());
    match probe {
        Ok(task) => session.execute(Sql::BreakerProbe, &[tenant, target, &next, &task.uuid()]).await?,
        Err(again_at) => session.execute(Sql::BreakerReturn, &[tenant, target, &next, &again_at.as_millis()]).await?,
    };
    Ok(())
}

/// A probe failed.
async fn probe_failed(session: &Session, key: &Key, probe: TaskId, failed: &FailedProbe) -> Result<(), Fault> {
    let (tenant, target, probe, at) = (&key.tenant, &key.target, probe.uuid(), failed.at.as_millis());
    session.execute(Sql::BreakerProbeFailed, &[tenant, target, &probe, &at, &failed.error]).await?;
    Ok(())
}

/// The last probe was not run.
async fn return_probe(session: &Session, key: &Key, probe: TaskId, again_at: Timestamp) -> Result<(), Fault> {
    let (tenant, target, probe, again_at) = (&key.tenant, &key.target, probe.uuid(), again_at.as_millis());
    session.execute(Sql::BreakerProbeReturn, &[tenant, target, &probe, &again_at]).await?;
    Ok(())
}

/// Closes a breaker if this is a probe of it, or without one in any case; whether it was open.
async fn close(session: &Session, key: &Key, probe: Option<TaskId>) -> Result<bool, Fault> {
    let probe = probe.map(TaskId::uuid);
    let rows = session.query(Sql::BreakerClose, &[&key.tenant, &key.target, &probe]).await?;
    Ok(rows.first().is_some_and(|row| row.get::<_, i64>(0) > 0))
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
        probe: row.get::<_, Option<uuid::Uuid>>(8).map(TaskId::from_uuid),
        overtaken: row.get::<_, Vec<uuid::Uuid>>(9).into_iter().map(TaskId::from_uuid).collect(),
        last_probe: failed_at
            .map(|at| FailedProbe { at: Timestamp::from_millis(at), error: error.unwrap_or_default() }),
    }
}

fn number(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}
