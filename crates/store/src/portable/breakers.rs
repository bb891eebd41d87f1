//! Breakers and the counts they are judged by.

use punctual_core::breakers::{
    BreakerChange, BreakerEvent, BreakerKey, FailedProbe, IntervalCounts, OpenBreaker, Runs,
};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::time::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::lists::{TaskIds, rows_column};
use super::{Connection, Corrupt, Parameter, PortableSql, Row};
use crate::columns::{count_column, node_column, number_column, number_from_column};

/// Records the runs that a node counted. No other node writes its rows.
pub(crate) async fn record_counts<C: Connection>(
    connection: &mut C,
    node: NodeId,
    counts: &[IntervalCounts],
) -> Result<(), C::Fault> {
    let row = |IntervalCounts { key, slot_at, runs }: &IntervalCounts| {
        json!({
            "tenant": key.tenant,
            "target": key.target,
            "slot_at": slot_at.as_millis(),
            "ok": number_column(runs.ok),
            "failed": number_column(runs.failed),
        })
    };
    let rows = rows_column(counts.iter().map(row));
    connection.execute(PortableSql::BreakerCountsPut, &[&rows, &node_column(node)]).await?;
    Ok(())
}

/// The runs of every key without an open breaker.
pub(crate) async fn counts_since<C: Connection>(
    connection: &mut C,
    since: Timestamp,
) -> Result<Vec<(BreakerKey, Runs)>, C::Fault> {
    let rows = connection.query(PortableSql::BreakerCountsSum, &[&since.as_millis()]).await?;
    let counts = |row: &C::Row| {
        let runs = Runs { ok: number_from_column(row.get(2)?), failed: number_from_column(row.get(3)?) };
        Ok((BreakerKey { tenant: row.get(0)?, target: row.get(1)? }, runs))
    };
    Ok(rows.iter().map(counts).collect::<Result<_, Corrupt>>()?)
}

/// Opens a breaker. Returns whether it was closed.
pub(crate) async fn open<C: Connection>(connection: &mut C, breaker: &OpenBreaker) -> Result<bool, C::Fault> {
    let OpenBreaker { key: BreakerKey { tenant, target }, reason, runs, .. } = breaker;
    let (opened_at, next) = (breaker.opened_at.as_millis(), breaker.next_probe_at.as_millis());
    let (ok, failed) = (number_column(runs.ok), number_column(runs.failed));
    let parameters: [&dyn Parameter; 7] = [tenant, target, &opened_at, &next, &ok, &failed, reason];
    Ok(connection.execute(PortableSql::BreakerOpen, &parameters).await? > 0)
}

/// The open breakers behind a key.
pub(crate) async fn list<C: Connection>(
    connection: &mut C,
    after: Option<&BreakerKey>,
    limit: usize,
) -> Result<Vec<OpenBreaker>, C::Fault> {
    let (tenant, target) = after.map_or(("", ""), |key| (&key.tenant, &key.target));
    let rows = connection.query(PortableSql::BreakerList, &[&tenant, &target, &count_column(limit)]).await?;
    Ok(rows.iter().map(breaker).collect::<Result<_, Corrupt>>()?)
}

/// The open breaker over a target: its own, else that of its tenant.
pub(crate) async fn over<C: Connection>(
    connection: &mut C,
    tenant: &str,
    target: &str,
) -> Result<Option<OpenBreaker>, C::Fault> {
    let own = get(connection, tenant, target).await?;
    if own.is_some() { Ok(own) } else { get(connection, tenant, "").await }
}

/// Changes a breaker by an event. The write names the row that was read. If another node was
/// faster, the event is applied again to the row that it wrote. (SQLite has one writer, which
/// always wins.)
pub(crate) async fn change<C: Connection>(
    connection: &mut C,
    key: &BreakerKey,
    event: &BreakerEvent,
) -> Result<BreakerChange, C::Fault> {
    loop {
        let Some(read) = get(connection, &key.tenant, &key.target).await? else { return Ok(BreakerChange::NotOpen) };
        let mut breaker = read.clone();
        let change = breaker.change(event);
        let is_written = match change {
            BreakerChange::Changed => update(connection, &read, &breaker).await?,
            BreakerChange::Closed => close(connection, &read).await?,
            BreakerChange::NotOpen | BreakerChange::Kept => true,
        };
        if is_written {
            return Ok(change);
        }
    }
}

async fn get<C: Connection>(connection: &mut C, tenant: &str, target: &str) -> Result<Option<OpenBreaker>, C::Fault> {
    let rows = connection.query(PortableSql::BreakerGet, &[&tenant, &target]).await?;
    Ok(rows.first().map(breaker).transpose()?)
}

/// Writes a breaker that was read as `read`. Returns false if it has changed since.
async fn update<C: Connection>(
    connection: &mut C,
    read: &OpenBreaker,
    breaker: &OpenBreaker,
) -> Result<bool, C::Fault> {
    let (BreakerKey { tenant, target }, opened_at) = (&read.key, read.opened_at.as_millis());
    let (next, probe, overtaken) = probe_columns(read);
    let (new_next, new_probe, new_overtaken) = probe_columns(breaker);
    let (failed_at, error) = breaker.last_probe.as_ref().map(|failed| (failed.at.as_millis(), &failed.error)).unzip();
    let parameters: [&dyn Parameter; 13] = [
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
    ];
    Ok(connection.execute(PortableSql::BreakerChange, &parameters).await? > 0)
}

/// Closes a breaker that was read as `read`. Returns false if it has changed since.
async fn close<C: Connection>(connection: &mut C, read: &OpenBreaker) -> Result<bool, C::Fault> {
    let (BreakerKey { tenant, target }, opened_at) = (&read.key, read.opened_at.as_millis());
    let (next, probe, overtaken) = probe_columns(read);
    let parameters: [&dyn Parameter; 7] = [tenant, target, &opened_at, &next, &read.half_open, &probe, &overtaken];
    Ok(!connection.query(PortableSql::BreakerClose, &parameters).await?.is_empty())
}

/// The time of the next probe, the last probe, and the probes it has overtaken.
fn probe_columns(breaker: &OpenBreaker) -> (i64, Option<Uuid>, TaskIds) {
    let probe = breaker.probe.map(TaskId::uuid);
    (breaker.next_probe_at.as_millis(), probe, TaskIds::new(&breaker.overtaken))
}

fn breaker(row: &impl Row) -> Result<OpenBreaker, Corrupt> {
    let (failed_at, error): (Option<i64>, Option<String>) = (row.get(10)?, row.get(11)?);
    Ok(OpenBreaker {
        key: BreakerKey { tenant: row.get(0)?, target: row.get(1)? },
        opened_at: Timestamp::from_millis(row.get(2)?),
        next_probe_at: Timestamp::from_millis(row.get(3)?),
        runs: Runs { ok: number_from_column(row.get(4)?), failed: number_from_column(row.get(5)?) },
        reason: row.get(6)?,
        half_open: row.get(7)?,
        probe: row.get::<Option<Uuid>>(8)?.map(TaskId::from_uuid),
        overtaken: row.get::<TaskIds>(9)?.into_tasks(),
        last_probe: failed_at
            .map(|at| FailedProbe { at: Timestamp::from_millis(at), error: error.unwrap_or_default() }),
    })
}
